"""Which CPUs and devices a dispatch gets: given at apply, kept with the slices, derived from nothing else."""

import msgspec
import pytest

from spur_core.errors import GrammarError
from spur_ctld.state import codec, naming, ops, versions
from spur_ctld.state.inventory import DeviceSet, Inventory
from spur_ctld.state.records import Gres, Node, Slice

GPU = (Gres(name="gpu", count=1),)


@pytest.fixture
def named(make_sim):
    """Two nodes of two sockets with two CPUs and a GPU each."""
    sim = make_sim()
    sim.name_things()
    for name in ("n1", "n2"):
        sim.register(name, inventory=sim.told())
    yield sim
    sim.saved_and_restored()


def has(sim, job_id):
    return [(part.cpu_ids, *(item.indices for item in part.gres)) for part in sim.state.jobs[job_id].slices]


def test_a_dispatch_gets_names(named):
    one, other = named.submit(), named.submit()
    named.run(one, ("n1", "n2"), cpus=2, gres=GPU)
    assert has(named, one) == [("0-1", "0"), ("0-1", "0")]
    named.run(other, ("n2",), cpus=2, gres=GPU)
    assert has(named, other) == [("2-3", "1")]


def test_names_are_free_again_after_the_end(named):
    ids = [named.submit() for _ in range(5)]
    for job_id in ids[:4]:
        named.run(job_id, ("n1",))
    assert [has(named, job_id) for job_id in ids[:4]] == [[("0",)], [("1",)], [("2",)], [("3",)]]
    named.complete(ids[1])
    named.run(ids[4], ("n1",))
    assert has(named, ids[4]) == [("1",)]


def test_the_next_attempt_gets_others(named):
    first, second = named.submit(), named.submit()
    named.run(first, ("n1",), cpus=2)
    named.fence(first)
    named.run(second, ("n1",), cpus=2)
    assert has(named, second) == [("2-3",)]
    named.confirm(first)
    assert named.job(first).slices == ()


def test_without_an_inventory_the_agent_chooses(sim):
    sim.name_things()
    job_id = sim.submit()
    sim.run(job_id, gres=GPU)
    assert has(sim, job_id) == [("", "")]


def test_before_the_version_the_agent_chooses(sim):
    sim.register("n1", inventory=sim.told())
    job_id = sim.submit()
    sim.run(job_id, gres=GPU)
    assert has(sim, job_id) == [("", "")]


def test_beside_one_without_names_the_agent_chooses(sim):
    """Nobody here knows which CPUs that one has."""
    old, beside, later = sim.submit(), sim.submit(), sim.submit()
    sim.run(old)
    sim.name_things()
    sim.register("n1", inventory=sim.told())
    sim.run(beside)
    assert has(sim, beside) == [("",)]
    sim.complete(old)
    sim.complete(beside)
    sim.run(later)
    assert has(sim, later) == [("0",)]


def test_what_is_only_counted_stays_so(named):
    """An inventory names GPUs; licences of a node are a number."""
    named.register("n1", inventory=named.told(), gres=(Gres(name="gpu", count=2), Gres(name="tape", count=9)))
    job_id, other = named.submit(), named.submit()
    named.run(job_id, gres=(Gres(name="gpu", count=1), Gres(name="tape", count=3)))
    assert has(named, job_id) == [("0", "0", "")]
    named.run(other, gres=(Gres(name="gpu", count=1), Gres(name="tape", count=3)))
    # The nearest CPUs of the second GPU, though the other socket has one left.
    assert has(named, other) == [("2", "1", "")]


def test_a_node_that_came_back_smaller_refuses_nobody(named):
    job_id = named.submit()
    named.run(job_id, cpus=3)
    named.register("n1", cpus=4, inventory=Inventory(sockets=(("8-11",),)))
    other, last = named.submit(), named.submit()
    named.run(other, cpus=1, gres=GPU)
    assert has(named, other) == [("8", "")]
    named.complete(job_id)
    named.run(last, cpus=3)
    assert has(named, last) == [("9-11",)]


def test_a_step_is_counted_inside_its_job(named):
    job_id = named.alloc(("n1",), cpus=4, gres=(Gres(name="gpu", count=2),))
    step = named.step(job_id, exact=True, num_tasks=1)
    assert [(p.cpu_ids, p.gres) for p in named.steps(job_id)[step].slices] == [
        ("", (Gres(name="gpu", count=2),))
    ]


def test_jobs_of_other_layers_share_cpus_the_least_shared_first(named):
    """Layers of a partition with `oversubscribe`: no two jobs of one layer meet on a CPU."""
    ids = [named.submit() for _ in range(6)]
    for job_id, cpus, layer in zip(ids, (2, 3, 2, 1, 1, 2), (1, 2, 1, 2, 3, 3), strict=True):
        named.run(job_id, ("n1",), cpus=cpus, layer=layer)
    found = [has(named, job_id)[0][0] for job_id in ids]
    # The second one gets the other socket and a CPU more, the fourth what its layer has left.
    assert found == ["0-1", "0,2-3", "2-3", "1", "0", "2-3"]
    for job_id in ids:
        named.complete(job_id)
    last = named.submit()
    named.run(last, ("n1",), cpus=4)
    assert has(named, last) == [("0-3",)]


class TestLent:
    def lend(self, sim, job_id, by):
        sim.do(ops.Preempt(at=0, job_id=job_id, attempt=1, by=by, mode="suspend"))
        sim.do(ops.SuspendTold(at=0, job_id=job_id, attempt=1, nodes=("n1",), suspended=True))

    def resume(self, sim, job_id):
        return sim.do(ops.Preempt(at=0, job_id=job_id, attempt=1, by=0, mode="resume")).refusal

    def test_lent_cpus_come_last_and_go_back(self, named):
        low, high = named.submit(), named.submit()
        named.run(low, cpus=2, gres=GPU)
        self.lend(named, low, high)
        named.run(high, cpus=3, gres=GPU)
        assert has(named, low) == [("0-1", "0")]
        # The GPU stays with the one that sleeps; of its CPUs one is used.
        assert has(named, high) == [("0,2-3", "1")]
        named.complete(high)
        assert self.resume(named, low) is None
        assert has(named, low) == [("0-1", "0")]

    def test_nobody_goes_on_while_another_has_his_very_cpus(self, named):
        """By number alone there is room: two CPUs are used, two are free."""
        low, high, third = (named.submit() for _ in range(3))
        named.run(low, cpus=2)
        self.lend(named, low, high)
        named.run(high, cpus=2)
        named.run(third, cpus=2)
        assert has(named, third) == [("0-1",)]
        named.complete(high)
        assert self.resume(named, low).text == "its CPUs are in use"
        named.complete(third)
        assert self.resume(named, low) is None


NODE = Inventory(sockets=(("0-1", "2-3"),), devices=(DeviceSet(name="gpu", indices="0-1", near="0-3"),))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, ""),
        ({"sockets": (("0-1",),)}, "the sockets have 2 CPUs, the node 4"),
        ({"sockets": (("0-1", "1-2"),)}, "the sockets have 4 CPUs, the node 4"),
        ({"sockets": (("0-1", "2"),)}, "a socket's lists of threads differ in length"),
        ({"devices": (DeviceSet(name="gpu", indices="0"),)}, "1 devices gpu, the node has 2"),
        ({"devices": (DeviceSet(name="gpu", type="a", indices="0-1"),)}, "2 devices gpu:a, the node has 0"),
        (
            {"devices": (DeviceSet(name="gpu", indices="0"), DeviceSet(name="gpu", indices="0"))},
            "a device is in two sets",
        ),
        ({"devices": ()}, ""),
    ],
)
def test_an_inventory_fits_its_node(change, wrong):
    said = msgspec.structs.replace(NODE, **change)
    assert naming.problem(said, 4, (Gres(name="gpu", count=2),)) == wrong


def test_an_inventory_is_of_lists():
    with pytest.raises(GrammarError):
        naming.problem(Inventory(sockets=(("0-99999999",),)), 4, ())


def test_an_older_group_takes_a_registration_without_its_inventory():
    op = ops.NodeRegister(at=0, node=Node(name="n", cpus=4, inventory=NODE))
    assert versions.needed(op) == naming.SINCE == versions.COMMAND_VERSION
    assert versions.fitted(op, 3).node.inventory is None
    assert versions.needed(versions.fitted(op, 3)) <= 3


def test_an_old_log_and_snapshot_have_no_names():
    """What an older release wrote lacks the fields; what it reads of ours it passes over."""
    op = ops.DispatchBegin(at=0, job_id=1, attempt=1, partition="p", slices=(Slice(node="n", cpus=1),))
    assert b"cpu_ids" not in codec.encode_op(op)
    assert b"inventory" not in msgspec.msgpack.encode(Node(name="n"))
    assert codec.decode_op(codec.encode_op(op)) == op
