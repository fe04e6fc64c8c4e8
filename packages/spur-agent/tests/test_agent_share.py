"""Which part of its job's holding a step gets, and which of it each of its tasks: pure tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_agent.allocation import Grant, GresGrant, NoRoom
from spur_agent.binding import NOWHERE, Places, bind_cpus, bind_gpus, mask_of, parse
from spur_agent.cpu_places import read_places
from spur_agent.share import MOST_OVERLAPPING, Beside, Share, Wish, choose, cpu_count, gpu_ids, whole
from spur_core.errors import RequestError

pytestmark = pytest.mark.node

JOB = Grant((2, 3, 6, 7), 800, (GresGrant("gpu", "a", (0, 1)), GresGrant("gpu", "b", (4,))))


def wish(cpus=0, gres=(), exact=False, overlap=False, memory_mb=100):
    return Wish(cpus, memory_mb, tuple(gres), exact, overlap)


def exact(*cpus, gpus=()):
    return Beside(Grant(cpus, 1, (GresGrant("gpu", "", tuple(gpus)),)), exact=True, overlap=False)


@pytest.mark.parametrize(
    ("asked", "beside", "cpus"),
    [
        (wish(2), [], (2, 3, 6, 7)),  # a step has all of its job's, whatever it counted
        (wish(2), [exact(2, 3)], (2, 3, 6, 7)),
        (wish(2, exact=True), [], (2, 3)),
        (wish(2, exact=True), [exact(2)], (3, 6)),
        (wish(2, exact=True), [exact(2), exact(3, 7)], (2, 6)),  # not enough free ones: the least used
        (wish(3, exact=True), [Beside(Grant((2,), 1), exact=False, overlap=False)], (2, 3, 6)),
        (wish(1, exact=True), [Beside(Grant((2,), 1), exact=True, overlap=True)], (2,)),
        (wish(9, exact=True), [], (2, 3, 6, 7)),
        (wish(0, exact=True), [], (2, 3, 6, 7)),
        (wish(1, overlap=True), [exact(2)], (2, 3, 6, 7)),
        (wish(1, exact=True, overlap=True), [exact(2)], (3,)),
    ],
)
def test_cpus(asked, beside, cpus):
    share = choose(JOB, asked, beside)
    assert share.step.cpu_ids == cpus
    assert share.job is JOB
    assert share.step.memory_mb == 100


@pytest.mark.parametrize(
    ("asked", "beside", "gpus"),
    [
        ([], [], []),
        ([("gpu", "", 3)], [], [0, 1, 4]),
        ([("gpu", "", 1)], [], [0]),
        ([("gpu", "", 1)], [exact(gpus=(0, 1))], [4]),
        ([("gpu", "", 2)], [exact(gpus=(0, 1))], [0, 4]),
        ([("gpu", "b", 1), ("gpu", "", 1)], [], [0, 4]),
        ([("gpu", "", 2), ("gpu", "a", 2)], None, None),
        ([("gpu", "a", 3)], None, None),
        ([("shard", "", 1)], None, None),
        ([("gpu", "", 0)], [], []),
    ],
)
def test_devices(asked, beside, gpus):
    if gpus is None:
        with pytest.raises(NoRoom, match="the step wants"):
            choose(JOB, wish(gres=asked), [])
        return
    assert gpu_ids(choose(JOB, wish(gres=asked), beside).step) == gpus


def test_there_is_an_end_to_overlapping():
    running = [Beside(Grant((2,), 1), exact=False, overlap=True)] * (MOST_OVERLAPPING - 1)
    choose(JOB, wish(overlap=True), [*running, exact(2)])
    with pytest.raises(NoRoom, match=f"^{MOST_OVERLAPPING} overlapping steps of the job run here already"):
        choose(JOB, wish(overlap=True), [*running, running[0]])
    choose(JOB, wish(), [*running, running[0]])


def test_counts():
    assert cpu_count(whole(JOB), 3) == 3
    assert cpu_count(whole(JOB), 0) == 4
    assert cpu_count(Share(Grant((2,), 0), JOB), 3) == 1


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(1, 8), st.booleans(), st.booleans()), max_size=6),
)
def test_exact_steps_share_cpus_only_when_they_must(total, steps):
    job = Grant(tuple(range(total)), 1)
    beside: list[Beside] = []
    for cpus, is_exact, overlap in steps:
        got = choose(job, wish(cpus, exact=is_exact, overlap=overlap), beside).step
        assert set(got.cpu_ids) <= set(job.cpu_ids)
        assert len(got.cpu_ids) == (min(cpus, total) if is_exact else total)
        taken = {c for one in beside if one.exact and not one.overlap for c in one.grant.cpu_ids}
        if is_exact and total - len(taken) >= len(got.cpu_ids):
            assert not taken & set(got.cpu_ids)
        beside.append(Beside(got, is_exact, overlap))


# Two sockets of two cores of two threads; siblings are n and n + 4.
TWO = Places(
    core={n: (n % 4 // 2, n % 4) for n in range(8)},
    socket={n: n % 4 // 2 for n in range(8)},
    ldom={n: n % 4 // 2 for n in range(8)},
)
ALL = tuple(range(8))


@pytest.mark.parametrize(
    ("text", "step", "tasks", "each", "places", "cpus"),
    [
        ("", ALL, 2, 1, TWO, ((), ())),
        ("none", ALL, 2, 1, TWO, ((), ())),
        ("quiet", ALL, 1, 1, TWO, ((),)),
        ("threads", (1, 2, 5), 4, 1, TWO, ((1,), (2,), (5,), (1,))),
        ("threads", ALL, 3, 3, TWO, ((0, 1, 2), (3, 4, 5), (0, 6, 7))),
        ("threads", (0, 1), 1, 9, TWO, ((0, 1),)),
        ("cores", ALL, 2, 1, TWO, ((0, 4), (1, 5))),
        ("verbose,cores", ALL, 2, 3, TWO, ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("cores", ALL, 2, 1, NOWHERE, ((0,), (1,))),
        ("sockets", ALL, 3, 1, TWO, ((0, 1, 4, 5), (2, 3, 6, 7), (0, 1, 4, 5))),
        ("ldoms", (0, 1, 4), 1, 1, TWO, ((0, 1, 4),)),
        ("rank", (3, 6), 3, 1, TWO, ((3,), (6,), (3,))),
        ("map_cpu:5,1", ALL, 3, 1, TWO, ((5,), (1,), (5,))),
        ("v,map_cpu:0x2*2,7", ALL, 3, 1, TWO, ((2,), (2,), (7,))),
        ("mask_cpu:0x3,c", ALL, 3, 1, TWO, ((0, 1), (2, 3), (0, 1))),
        ("mask_cpu:f0", (4, 5), 1, 1, TWO, ((4, 5),)),
        ("map_cpu:7", (), 1, 1, TWO, ((),)),  # the node's CPU numbers are not real
    ],
)
def test_cpu_binding(text, step, tasks, each, places, cpus):
    assert bind_cpus(parse(text), step, tasks, each, places).cpus == cpus


def test_a_binding_is_told_as_masks():
    bound = bind_cpus(parse("verbose,cores"), ALL, 2, 1, TWO)
    assert (bound.type_word, bound.list_word, bound.verbose) == ("mask_cpu:", "0x11,0x22", True)
    assert bind_cpus(parse("none"), ALL, 2, 1, TWO).type_word == "none"
    assert bind_cpus(parse("verbose"), ALL, 2, 1, TWO)[1:] == ("", "", True)
    assert mask_of((0, 63, 64)) == "0x18000000000000001"


@pytest.mark.parametrize(
    "text",
    [
        "core",
        "cores:2",
        "map_cpu",
        "map_cpu:",
        "map_cpu:x",
        "map_cpu:-1",
        "map_cpu:1*0",
        "map_cpu:0*65536,0*65536",
        "mask_cpu:0",
        "mask_cpu:0xg",
        "rank_ldom",
        "none,cores",
        "map_cpu:99999999",
    ],
)
def test_bad_cpu_bindings_name_themselves(text):
    with pytest.raises(RequestError, match="--cpu-bind"):
        parse(text)


def test_a_cpu_of_another_job_is_refused():
    with pytest.raises(RequestError, match="outside of job step allocation, allocated CPUs are: 0x3"):
        bind_cpus(parse("map_cpu:2"), (0, 1), 1, 1, TWO)
    # What is partly inside is cut.
    assert bind_cpus(parse("mask_cpu:0x6"), (0, 1), 1, 1, TWO).cpus == ((1,),)


@pytest.mark.parametrize(
    ("text", "per_task", "ids", "tasks", "found"),
    [
        ("", 0, [0, 1], 2, None),
        ("none", 1, [0, 1], 2, None),
        ("closest", 0, [0, 1], 2, None),
        ("per_task:1", 0, [], 2, None),
        ("", 1, [3, 5], 2, ((3,), (5,))),
        ("", 2, [3, 5], 2, ((3, 5), (3, 5))),
        ("verbose,per_task:1", 0, [3, 5], 3, ((3,), (5,), (3,))),
        ("single:2", 0, [3, 5], 4, ((3,), (3,), (5,), (5,))),
        ("map_gpu:1,0", 0, [3, 5], 3, ((5,), (3,), (5,))),
        ("mask_gpu:0x3*2,1", 0, [3, 5], 3, ((3, 5), (3, 5), (3,))),
    ],
)
def test_gpu_binding(text, per_task, ids, tasks, found):
    assert bind_gpus(text, per_task, ids, tasks) == found


@pytest.mark.parametrize("text", ["map_gpu:2", "map_gpu:", "per_task:0", "single", "mask_gpu:0", "nonsense"])
def test_bad_gpu_bindings(text):
    with pytest.raises(RequestError, match="--gpu-bind"):
        bind_gpus(text, 0, [3, 5], 1)


def test_places_are_read_from_sysfs(tmp_path):
    for number in range(2):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text("0\n")
        (folder / "core_id").write_text(f"{number}\n")
    node = tmp_path / "sys/devices/system/node/node0"
    node.mkdir(parents=True)
    (node / "cpulist").write_text("0-1\n")
    assert read_places(tmp_path) == Places(
        {0: ("0", "0"), 1: ("0", "1")}, {0: "0", 1: "0"}, {0: "node0", 1: "node0"}
    )
    assert read_places(tmp_path / "nothing") == NOWHERE


def test_a_step_is_in_the_layer_of_its_job():
    job = Grant((0, 1), 10, layer=2)
    assert choose(job, wish(1, exact=True), []).step == Grant((0,), 100, (), 2)
