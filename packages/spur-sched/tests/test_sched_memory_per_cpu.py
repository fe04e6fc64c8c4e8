"""Memory for each CPU: it counts for every CPU that the job holds and can use, asked for or not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spur_sched.feasible import feasible
from spur_sched.plan import plan

#: One thread to a core, and two and four.
MAKES = {
    1: {"cpus": 8, "sockets": 1, "cores_per_socket": 8, "threads_per_core": 1},
    2: {"cpus": 8, "sockets": 1, "cores_per_socket": 4, "threads_per_core": 2},
    4: {"cpus": 8, "sockets": 1, "cores_per_socket": 2, "threads_per_core": 4},
}


@pytest.fixture
def look(snap, now):
    """{node: (CPUs, MiB)} of the first job."""

    def run(nodes, job, parts=None, **more):
        found = plan(snap(nodes, [job], parts, **more), now)
        return {share.node: (share.cpus, share.memory_mb) for one in found.placements for share in one.shares}

    return run


@pytest.mark.parametrize(
    ("threads", "wanted", "held"),
    [
        (1, {"num_tasks": 1}, (1, 100)),
        (1, {"num_tasks": 1, "exclusive": True}, (8, 800)),
        (2, {"num_tasks": 1, "exclusive": True}, (8, 800)),
        (1, {"num_tasks": 2, "cpus_per_task": 2, "exclusive": True, "max_nodes": 1}, (8, 800)),
        (1, {"num_tasks": 1, "exclusive": True, "memory_per_node_mb": 70}, (8, 70)),
        # Threads that nobody may use do not count.
        (2, {"num_tasks": 3, "threads_per_core": 1, "max_nodes": 1}, (6, 300)),
        (2, {"num_tasks": 3, "threads_per_core": 2, "max_nodes": 1}, (3, 300)),
        (4, {"num_tasks": 3, "threads_per_core": 2, "max_nodes": 1}, (8, 400)),
        (2, {"num_tasks": 1, "threads_per_core": 1, "exclusive": True}, (8, 400)),
        # The job may use the other threads of its cores.
        (2, {"num_tasks": 3, "ntasks_per_core": 1, "max_nodes": 1}, (6, 600)),
        (1, {"num_tasks": 1, "min_cpus": 6}, (6, 600)),
        (1, {"num_tasks": 7, "min_cpus": 6, "max_nodes": 1}, (7, 700)),
        (2, {"num_tasks": 1, "min_cpus": 6, "threads_per_core": 1}, (6, 300)),
        (1, {"num_tasks": 1, "cpus_per_gpu": 3, "gres": {("gpu", "a"): 2}}, (6, 600)),
    ],
)
def test_what_is_held(node, job, look, threads, wanted, held):
    nodes = [node("n1", gres={("gpu", "a"): 2}, **MAKES[threads])]
    assert look(nodes, job(1, memory_per_cpu_mb=100, **wanted)) == {"n1": held}
    enough = [nodes[0]._replace(memory_mb=held[1])]
    assert look(enough, job(1, memory_per_cpu_mb=100, **wanted)) == {"n1": held}
    unstated = [nodes[0]._replace(memory_mb=0)]
    assert look(unstated, job(1, memory_per_cpu_mb=100, **wanted)) == {"n1": held}
    short = [nodes[0]._replace(memory_mb=held[1] - 1)]
    assert look(short, job(1, memory_per_cpu_mb=100, **wanted)) == {}


def test_a_partition_of_whole_nodes(node, part, job, look):
    nodes = [node("n1", **MAKES[1])]
    parts = [part("main", nodes, oversubscribe="EXCLUSIVE")]
    assert look(nodes, job(1, num_tasks=1, memory_per_cpu_mb=100), parts) == {"n1": (8, 800)}
    assert look(nodes, job(1, num_tasks=1, memory_per_cpu_mb=126), parts) == {}


@pytest.mark.parametrize(
    "wanted",
    [
        {"exclusive": True},
        {"min_cpus": 8},
        {"ntasks_per_core": 1, "num_tasks": 4, "max_nodes": 1},
    ],
)
def test_refused_at_submit_when_no_node_has_so_much(node, part, job, wanted):
    nodes = [node("n1", memory_mb=6026, **MAKES[2])]
    parts = {"main": part("main", nodes)}
    refused = feasible(job(1, memory_per_cpu_mb=800, **{"num_tasks": 1, **wanted}), nodes, parts)
    assert refused is not None
    assert refused.text == "Requested node configuration is not available"
    assert feasible(job(1, memory_per_cpu_mb=753, **{"num_tasks": 1, **wanted}), nodes, parts) is None
    assert feasible(job(1, memory_per_cpu_mb=800, num_tasks=1), nodes, parts) is None


def test_a_node_with_more_cpus_may_be_the_one_that_has_too_little(node, job, look):
    big = node("n1", cpus=16, memory_mb=1000, weight=2)
    small = node("n2", cpus=4, memory_mb=1000)
    assert look([big, small], job(1, num_tasks=1, exclusive=True, memory_per_cpu_mb=100)) == {"n2": (4, 400)}


def test_a_job_that_asks_for_less_is_not_taken_for_one_that_failed(snap, node, job, now):
    jobs = [
        job(1, num_tasks=1, cpus_per_task=2, exclusive=True, memory_per_cpu_mb=200),
        job(2, num_tasks=1, cpus_per_task=4, exclusive=True, memory_per_cpu_mb=100),
    ]
    # The first may run on the small one, which is taken.
    small = node("n2", cpus=2, running=[(now + 500, 2, 400, {})])
    found = plan(snap([node("n1", cpus=8), small], jobs), now)
    assert [(one.job_id, one.shares[0].node) for one in found.placements] == [(2, "n1")]


def test_the_promise_is_for_all_of_it(snap, node, job, now):
    nodes = [node("n1", cpus=8, running=[(now + 500, 1, 1, {})])]
    found = plan(snap(nodes, [job(1, num_tasks=1, exclusive=True, memory_per_cpu_mb=125)]), now)
    assert [(one.at, one.nodes) for one in found.expected] == [(now + 500, ("n1",))]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_node_gives_more_than_it_has(snap, node, job, now, data):
    """Several jobs of all kinds on one node: everything held for usable CPUs, within the node."""
    threads = data.draw(st.sampled_from(sorted(MAKES)))
    memory = data.draw(st.sampled_from([100, 350, 500, 700, 801, 1000]))
    nodes = [node("n1", memory_mb=memory, **MAKES[threads])]
    wishes = st.fixed_dictionaries(
        {"num_tasks": st.integers(1, 5), "cpus_per_task": st.integers(1, 3)},
        optional={
            "threads_per_core": st.integers(1, threads),
            "ntasks_per_core": st.integers(1, 4),
            "min_cpus": st.integers(1, 8),
            "exclusive": st.booleans(),
        },
    )
    jobs = [
        job(number, memory_per_cpu_mb=100, **(data.draw(wishes) | {"max_nodes": 1})) for number in range(1, 4)
    ]
    found = plan(snap(nodes, jobs), now)
    shares = {one.job_id: one.shares[0] for one in found.placements}
    assert sum(share.memory_mb for share in shares.values()) <= memory
    for number, share in shares.items():
        usable = min(threads, jobs[number - 1].threads_per_core or threads)
        if usable == threads:
            assert share.memory_mb == 100 * share.cpus
        else:
            assert share.memory_mb == 100 * min(share.cpus, -(-share.cpus // threads) * usable)
