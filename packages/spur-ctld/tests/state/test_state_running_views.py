"""Active attempts as a pass sees them; what suspended ones may have back; which of them go on."""

import pytest

from spur_core.config import parse_config
from spur_ctld.scheduling import pushing
from spur_ctld.scheduling.network import shape_of
from spur_ctld.scheduling.running import Rules, running_views
from spur_ctld.scheduling.views import expected_end, node_view
from spur_ctld.state import ops
from spur_ctld.state.records import Partition


@pytest.fixture
def sim(make_sim):
    sim = make_sim(nodes=2, cpus=8)
    parts = (
        Partition(
            name="main",
            default=True,
            nodes=("n1", "n2"),
            priority_tier=1,
            preempt_mode="REQUEUE",
            preempt_exempt_time=60,
            grace_time=30,
        ),
        Partition(name="asleep", nodes=("n1", "n2"), priority_tier=2, preempt_mode="SUSPEND"),
        Partition(name="high", nodes=("n1", "n2"), priority_tier=9),
    )
    sim.do(ops.Configure(at=0, settings=sim.state.settings, partitions=parts))
    return sim


def view(sim, job_id, **rules):
    return next(one for one in running_views(sim.state, None, Rules(**rules)) if one.job_id == job_id)


def run_in(sim, partition, cpus=4, nodes=("n1",), layer=0, **more):
    from spur_ctld.state.records import Slice

    job_id = sim.submit(partitions=(partition,), **more)
    slices = tuple(Slice(node=name, cpus=cpus, layer=layer) for name in nodes)
    done = sim.do(
        ops.DispatchBegin(at=0, job_id=job_id, attempt=1, partition=partition, slices=slices, everywhere=True)
    )
    assert done.refusal is None
    sim.commit(job_id)
    return job_id


def preempt(sim, job_id, mode, by=99, grace=0):
    return sim.do(ops.Preempt(at=0, job_id=job_id, attempt=1, by=by, mode=mode, grace_secs=grace)).refusal


def told(sim, job_id, *nodes):
    sim.do(ops.SuspendTold(at=0, job_id=job_id, attempt=1, nodes=nodes, suspended=True))


def test_the_words_of_its_partition_count(sim):
    job_id = run_in(sim, "main")
    one = view(sim, job_id)
    assert (one.tier, one.preempt_mode, one.grace_secs) == (1, "requeue", 30)
    assert one.exempt_until == sim.job(job_id).start_at + 60
    assert view(sim, run_in(sim, "high")).preempt_mode == "off"


def test_the_clusters_word_where_it_says_nothing(sim):
    job_id = run_in(sim, "asleep")
    assert view(sim, job_id, exempt_secs=7).exempt_until == sim.job(job_id).start_at + 7


def test_who_cannot_be_requeued(sim):
    assert view(sim, run_in(sim, "main", requeue=False)).preempt_mode == "cancel"


def test_nobody_is_a_victim_before_he_started_or_twice(sim):
    job_id = sim.submit()
    sim.begin(job_id)
    assert view(sim, job_id).started is None
    other = run_in(sim, "main", nodes=("n2",))
    preempt(sim, other, "requeue", by=5, grace=30)
    one = view(sim, other)
    assert (one.room_for, one.ending_since, one.end) == (
        5,
        sim.job(other).push.at,
        sim.job(other).push.end_at,
    )


def test_what_is_being_ended_is_expected_to_be_gone(sim):
    job_id = run_in(sim, "main", time_limit=3600)
    assert expected_end(sim.job(job_id)) == sim.job(job_id).start_at + 3600
    sim.cancel(job_id)
    assert expected_end(sim.job(job_id)) == sim.job(job_id).fence.at
    assert view(sim, job_id).ending_since == sim.job(job_id).fence.at


def test_a_user_who_suspended_his_job_keeps_its_cpus(sim):
    job_id = run_in(sim, "asleep")
    sim.suspend(job_id)
    one = view(sim, job_id)
    assert (one.preempt_mode, one.lent) == ("off", False)


class TestLent:
    def test_it_claims_what_nobody_uses(self, sim):
        job_id = run_in(sim, "asleep", cpus=6)
        preempt(sim, job_id, "suspend", by=50)
        told(sim, job_id, "n1")
        node = node_view(sim.state, sim.state.nodes["n1"])
        assert (node.used_cpus, node.jobs) == (6, 1)
        assert sim.state.use["n1"].cpus == 0
        run_in(sim, "high", cpus=4)
        node = node_view(sim.state, sim.state.nodes["n1"])
        # 4 are used, of the 6 lent ones 4 are left for it.
        assert node.used_cpus == 8
        one = view(sim, job_id)
        assert (one.lent, one.room_for, one.shares[0].cpus) == (True, 50, 4)
        assert sum(item[1] for item in node.running) == node.used_cpus

    def test_it_goes_on_when_nobody_waits_for_it_any_more(self, sim):
        job_id = run_in(sim, "asleep", cpus=6)
        high = sim.submit(partitions=("high",))
        preempt(sim, job_id, "suspend", by=high)
        told(sim, job_id, "n1")
        assert pushing.resumable(sim.state, {high}) == []
        assert [job.job_id for job in pushing.resumable(sim.state, set())] == [job_id]

    def test_high_tiers_go_on_first(self, sim):
        low = run_in(sim, "main", cpus=2)
        middle = run_in(sim, "asleep", cpus=2)
        for job_id in (low, middle):
            preempt(sim, job_id, "suspend", by=50)
            told(sim, job_id, "n1")
        assert [job.job_id for job in pushing.resumable(sim.state, set())] == [middle, low]


def test_views_are_made_anew_only_when_something_changed(sim):
    job_id = run_in(sim, "main")
    memo = {}
    first = running_views(sim.state, memo)[0]
    assert running_views(sim.state, memo)[0] is first
    sim.cancel(job_id)
    assert running_views(sim.state, memo)[0] is not first
    sim.confirm(job_id)
    assert running_views(sim.state, memo) == []
    assert memo == {}


def topology(text):
    return parse_config(f'cluster_name = "c"\n[topology]\n{text}').topology


class TestNetwork:
    def test_blocks_follow_the_sorted_names(self):
        section = topology('plugin = "block"\nblock_size = 2')
        shape = shape_of(section, frozenset({"n10", "n9", "n1", "n2"}))
        assert shape.leaves == {"n1": "block000", "n2": "block000", "n9": "block001", "n10": "block001"}
        assert shape.address("n9") == ("block001.n9", "block.node")
        # A node that comes later moves those behind it.
        later = shape_of(section, frozenset({"n10", "n9", "n1", "n2", "n3"}))
        assert later.leaves["n10"] == "block002"

    def test_a_tree_knows_nodes_that_never_registered(self):
        section = topology(
            'plugin = "tree"\n[[topology.switches]]\nname = "s0"\nnodes = "n[1-2]"\n'
            '[[topology.switches]]\nname = "top"\nswitches = "s0"'
        )
        shape = shape_of(section, frozenset({"n1", "x"}))
        assert shape.address("n1") == ("top.s0.n1", "switch.switch.node")
        assert shape.address("x") == ("x", "node")
        assert shape.nodes_below("top") == ["n1", "n2"]

    def test_without_a_plugin_all_nodes_are_alike(self):
        shape = shape_of(topology('plugin = "none"'), frozenset({"n1"}))
        assert shape.address("n1") == ("n1", "node")
        assert not shape.topology.parents


def test_who_shares_cpus(sim):
    """It is shown in its layer, and has no CPUs to lend."""
    ids = [run_in(sim, "asleep", cpus=6, layer=layer) for layer in (1, 2)]
    shown = node_view(sim.state, sim.state.nodes["n1"])
    assert (shown.used_cpus, shown.jobs, shown.layers) == (0, 2, (("asleep", 1), ("asleep", 2)))
    assert [cpus for _, cpus, *_ in shown.running] == [6, 6]
    one = view(sim, ids[1])
    assert (one.preempt_mode, one.shares[0].layer) == ("off", 2)
