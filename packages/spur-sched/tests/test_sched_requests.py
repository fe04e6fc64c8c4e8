"""What a job may ask for besides nodes, tasks and CPUs: each wish against a small cluster."""

import pytest

from spur_sched.feasible import feasible
from spur_sched.plan import plan
from spur_sched.spread import Count, Offer, choose, in_a_row

GPU, H100, A100, SHARD = ("gpu", ""), ("gpu", "h100"), ("gpu", "a100"), ("shard", "")
UID, OTHER = 1000, 1001


def placed(found, job_id=1):
    """{node: share} of a job, {} when it waits."""
    shares = [p.shares for p in found.placements if p.job_id == job_id]
    return {share.node: share for share in shares[0]} if shares else {}


def gpus(shares):
    return {
        name: sum(n for (kind, _), n in share.gres.items() if kind == "gpu") for name, share in shares.items()
    }


def cpus(shares):
    return {name: share.cpus for name, share in shares.items()}


def memory(shares):
    return {name: share.memory_mb for name, share in shares.items()}


@pytest.fixture
def look(snap, now):
    """Placements of the first job."""

    def run(nodes, job, parts=None):
        return placed(plan(snap(nodes, [job], parts), now), job.job_id)

    return run


@pytest.fixture
def never(snap):
    def run(nodes, job, parts=None):
        view = snap(nodes, [job], parts)
        return feasible(job, view.nodes(), view.partitions())

    return run


class TestGpus:
    @pytest.mark.parametrize(
        ("free", "wanted", "given"),
        [
            # One node when one will do, of several the fullest-stocked give most; each gives one at least.
            ((4, 4), {"gres_total": {GPU: 4}, "max_nodes": 4}, {"n1": 4}),
            ((2, 4), {"gres_total": {GPU: 4}, "max_nodes": 4}, {"n2": 4}),
            ((4, 4), {"gres_total": {GPU: 6}, "max_nodes": 6}, {"n1": 4, "n2": 2}),
            ((2, 4), {"gres_total": {GPU: 5}, "max_nodes": 5}, {"n1": 1, "n2": 4}),
            ((4, 4), {"gres_total": {GPU: 4}, "min_nodes": 2}, {"n1": 3, "n2": 1}),
            ((4, 4, 1), {"gres_total": {GPU: 9}, "min_nodes": 3}, {"n1": 4, "n2": 4, "n3": 1}),
            ((4, 0, 4), {"gres_total": {GPU: 2}, "min_nodes": 3}, {}),
            ((4, 4), {"gres_total": {GPU: 9}, "max_nodes": 9}, {}),
            ((1, 1), {"gres_total": {GPU: 2}, "max_nodes": 1}, {}),
        ],
    )
    def test_of_the_whole_job(self, look, node, job, free, wanted, given):
        nodes = [node(f"n{at}", gres={GPU: count}) for at, count in enumerate(free, 1)]
        assert gpus(look(nodes, job(1, **wanted))) == given

    def test_of_the_whole_job_with_tasks(self, look, node, job):
        nodes = [node("n1", gres={GPU: 2}), node("n2", gres={GPU: 2})]
        shares = look(nodes, job(1, num_tasks=6, gres_total={GPU: 4}, max_nodes=4))
        assert gpus(shares) == {"n1": 2, "n2": 2}
        assert sum(len(share.ranks) for share in shares.values()) == 6

    def test_types(self, look, node, job):
        nodes = [node("n1", gres={A100: 4}), node("n2", gres={H100: 2, A100: 2})]
        assert gpus(look(nodes, job(1, gres_total={H100: 2}, max_nodes=2))) == {"n2": 2}
        assert look(nodes, job(1, gres_total={H100: 3}, max_nodes=3)) == {}
        assert look(nodes, job(1, gres_total={GPU: 4}, max_nodes=4))["n1"].gres == {A100: 4}

    def test_of_each_task(self, look, node, job):
        nodes = [node("n1", gres={GPU: 3}), node("n2", gres={GPU: 3})]
        shares = look(nodes, job(1, num_tasks=3, gres_per_task={GPU: 2}))
        assert shares == {}
        shares = look([*nodes, node("n3", gres={GPU: 2})], job(1, num_tasks=3, gres_per_task={GPU: 2}))
        assert gpus(shares) == {"n1": 2, "n2": 2, "n3": 2}
        shares = look([node("n1", gres={GPU: 8})], job(1, num_tasks=3, gres_per_task={GPU: 2}))
        assert gpus(shares) == {"n1": 6}

    def test_of_each_task_beside_other_resources_of_the_node(self, look, node, job):
        nodes = [node("n1", gres={GPU: 4, SHARD: 8})]
        share = look(nodes, job(1, num_tasks=2, gres={SHARD: 3}, gres_per_task={GPU: 1}))["n1"]
        assert share.gres == {GPU: 2, SHARD: 3}
        share = look(nodes, job(1, gres={SHARD: 3}, gres_total={GPU: 2}))["n1"]
        assert share.gres == {GPU: 2, SHARD: 3}

    def test_of_each_socket(self, look, node, job):
        nodes = [node("n1", gres={GPU: 4}, sockets=1), node("n2", gres={GPU: 4}, sockets=2)]
        wanted = job(1, gres_per_socket={GPU: 2}, sockets_per_node=2)
        assert gpus(look(nodes, wanted)) == {"n2": 4}

    def test_cpus_of_each(self, look, node, job):
        nodes = [node("n1", cpus=8, gres={GPU: 4})]
        assert cpus(look(nodes, job(1, gres={GPU: 2}, cpus_per_gpu=3))) == {"n1": 6}
        assert cpus(look(nodes, job(1, gres_total={GPU: 2}, cpus_per_gpu=4))) == {"n1": 8}
        assert cpus(look(nodes, job(1, num_tasks=2, gres_per_task={GPU: 1}, cpus_per_gpu=3))) == {"n1": 6}
        assert look(nodes, job(1, gres={GPU: 3}, cpus_per_gpu=3)) == {}
        assert look(nodes, job(1, gres_total={GPU: 3}, cpus_per_gpu=3)) == {}
        # More tasks than that take a CPU each.
        assert cpus(look(nodes, job(1, num_tasks=5, max_nodes=1, gres={GPU: 1}, cpus_per_gpu=2))) == {"n1": 5}

    def test_memory_of_each(self, look, node, job):
        nodes = [node("n1", gres={GPU: 4})]
        assert memory(look(nodes, job(1, gres={GPU: 2}, memory_per_gpu_mb=300))) == {"n1": 600}
        assert memory(look(nodes, job(1, gres_total={GPU: 3}, memory_per_gpu_mb=300))) == {"n1": 900}
        assert look(nodes, job(1, gres={GPU: 4}, memory_per_gpu_mb=300)) == {}
        assert look(nodes, job(1, gres_total={GPU: 4}, memory_per_gpu_mb=300)) == {}

    def test_a_total_is_kept_free_of_what_runs(self, snap, now, node, job):
        nodes = [node("n1", gres={GPU: 4}), node("n2", gres={GPU: 4})]
        jobs = [job(at, gres_total={GPU: 3}, max_nodes=3) for at in (1, 2, 3)]
        found = plan(snap(nodes, jobs), now)
        assert gpus(placed(found, 1)) == {"n1": 3}
        assert gpus(placed(found, 2)) == {"n2": 3}
        assert placed(found, 3) == {}
        assert [(w.job_id, w.reason) for w in found.waiting] == [(3, "Resources")]

    def test_impossible(self, never, node, job):
        nodes = [node(name, cpus=5, gres={GPU: 4}) for name in ("n1", "n2")]
        assert never(nodes, job(1, gres_total={GPU: 8}, max_nodes=8)) is None
        for wanted in (
            {"gres_total": {GPU: 9}, "max_nodes": 9},
            {"gres_total": {GPU: 5}, "max_nodes": 1},
            {"gres_total": {H100: 1}},
            {"num_tasks": 9, "gres_per_task": {GPU: 1}},
            {"gres": {GPU: 2}, "cpus_per_gpu": 3},
            {"gres": {GPU: 2}, "memory_per_gpu_mb": 501},
        ):
            found = never(nodes, job(1, **wanted))
            assert found is not None, wanted
            assert found.text == "Requested node configuration is not available", wanted


class TestTasks:
    def test_of_each_socket_and_core(self, look, node, job):
        nodes = [node(f"n{at}", cpus=16, sockets=2, cores_per_socket=4, threads_per_core=2) for at in (1, 2)]

        def tasks(**wanted):
            shares = look(nodes, job(1, **wanted))
            return {name: len(share.ranks) for name, share in shares.items()}

        assert tasks(num_tasks=4, ntasks_per_socket=1) == {"n1": 2, "n2": 2}
        assert tasks(num_tasks=5, ntasks_per_socket=1) == {}
        assert tasks(num_tasks=12, ntasks_per_core=1) == {"n1": 8, "n2": 4}
        assert tasks(num_tasks=17, ntasks_per_core=1) == {}
        assert tasks(num_tasks=17, ntasks_per_core=2) == {"n1": 16, "n2": 1}

    def test_of_each_gpu(self, look, node, job):
        nodes = [node("n1", cpus=16, gres={GPU: 2}), node("n2", cpus=16, gres={GPU: 2})]
        shares = look(nodes, job(1, num_tasks=6, gres={GPU: 2}, ntasks_per_gpu=2))
        assert {name: len(share.ranks) for name, share in shares.items()} == {"n1": 4, "n2": 2}
        shares = look(nodes, job(1, num_tasks=8, gres_total={GPU: 4}, ntasks_per_gpu=2))
        assert {name: len(share.ranks) for name, share in shares.items()} == {"n1": 4, "n2": 4}

    @pytest.mark.parametrize(
        ("wanted", "held"),
        [
            # With one thread of a core in use the job holds all of the core.
            ({"num_tasks": 3, "threads_per_core": 1}, 6),
            ({"num_tasks": 2, "cpus_per_task": 3, "threads_per_core": 1}, 12),
            ({"num_tasks": 3, "threads_per_core": 2}, 3),
            ({"num_tasks": 8, "threads_per_core": 1}, 16),
            ({"num_tasks": 3, "ntasks_per_core": 1}, 6),
        ],
    )
    def test_threads_that_are_left_idle_are_held(self, look, node, job, wanted, held):
        nodes = [node("n1", cpus=16, sockets=2, cores_per_socket=4, threads_per_core=2)]
        assert cpus(look(nodes, job(1, max_nodes=1, **wanted))) == {"n1": held}
        more = {**wanted, "num_tasks": 9}
        if wanted.get("threads_per_core") == 1:
            assert look(nodes, job(1, max_nodes=1, **more)) == {}


class TestMake:
    @pytest.mark.parametrize(
        "wanted",
        [
            {"min_cpus": 8},
            {"sockets_per_node": 2},
            {"cores_per_socket": 4},
            {"threads_per_core": 2},
            {"tmp_disk_mb": 500},
        ],
    )
    def test_only_such_nodes(self, look, never, node, job, wanted):
        small = node("n1", cpus=4, sockets=1, cores_per_socket=2, threads_per_core=1, tmp_disk_mb=499)
        large = node("n2", cpus=16, sockets=2, cores_per_socket=4, threads_per_core=2, tmp_disk_mb=500)
        assert list(look([small, large], job(1, **wanted))) == ["n2"]
        assert never([small, large], job(1, **wanted)) is None
        assert never([small], job(1, **wanted)).text == "Requested node configuration is not available"
        assert list(look([small, large], job(1))) == ["n1"]

    def test_the_least_number_of_cpus_is_also_held(self, look, node, job):
        nodes = [node("n1", cpus=8, running=((None, 4, 0, {}),)), node("n2", cpus=8)]
        assert cpus(look(nodes, job(1, min_cpus=6))) == {"n2": 6}
        assert cpus(look(nodes, job(1, min_cpus=2, num_tasks=3, max_nodes=1))) == {"n1": 3}


class TestChoiceOfNodes:
    def test_contiguous(self, look, node, job):
        nodes = [node(f"n{at}", running=((None, 4, 0, {}),) if at in (2, 5) else ()) for at in range(1, 10)]
        assert list(look(nodes, job(1, min_nodes=3))) == ["n1", "n3", "n4"]
        assert list(look(nodes, job(1, min_nodes=3, contiguous=True))) == ["n6", "n7", "n8"]
        assert look(nodes, job(1, min_nodes=5, contiguous=True)) == {}

    def test_spread(self, look, node, job):
        nodes = [node(f"n{at}") for at in range(1, 5)]
        assert list(look(nodes, job(1, num_tasks=4, min_nodes=1, max_nodes=3))) == ["n1"]
        shares = look(nodes, job(1, num_tasks=4, min_nodes=1, max_nodes=3, spread=True))
        assert list(shares) == ["n1", "n2", "n3"]
        # The least loaded first.
        busy = node("n1", running=((None, 2, 0, {}),))
        assert list(look([busy, *nodes[1:]], job(1, spread=True))) == ["n2"]

    def test_fewest_nodes_of_a_range(self, look, node, job):
        nodes = [node(f"n{at}") for at in range(1, 5)]
        # As many as it may have, unless it asks for the fewest.
        assert len(look(nodes, job(1, min_nodes=2, max_nodes=4))) == 4
        assert len(look(nodes, job(1, min_nodes=2, max_nodes=4, use_min_nodes=True))) == 2

    def test_least_loaded_nodes_of_a_partition(self, look, node, part, job):
        nodes = [node("n1", running=((None, 2, 0, {}),)), node("n2", running=((None, 1, 0, {}),)), node("n3")]
        assert list(look(nodes, job(1))) == ["n1"]
        assert list(look(nodes, job(1), [part("main", nodes, lln=True)])) == ["n3"]


class TestSharing:
    def test_exclusive_partition(self, look, node, part, job):
        nodes = [node("n1", cpus=8, running=((None, 1, 0, {}),)), node("n2", cpus=8)]
        parts = [part("main", nodes, oversubscribe="EXCLUSIVE"), part("more", nodes)]
        assert cpus(look(nodes, job(1), parts)) == {"n2": 8}
        assert cpus(look(nodes, job(1, partitions=("more",)), parts)) == {"n1": 1}

    @pytest.mark.parametrize("by_partition", [False, True])
    def test_one_user_a_node(self, look, node, part, job, by_partition):
        others = node("n1", running=((None, 1, 0, {}),), users=frozenset({OTHER}))
        own = node("n2", running=((None, 1, 0, {}),), users=frozenset({UID}))
        parts = [part("main", [others, own], exclusive_user=by_partition)]
        wanted = job(1, uid=UID, exclusive_user=not by_partition)
        assert list(look([others, own], wanted, parts)) == ["n2"]
        assert look([others], wanted, [part("main", [others], exclusive_user=by_partition)]) == {}

    def test_a_node_that_a_user_has_for_himself(self, look, node, job):
        taken = node("n1", running=((None, 1, 0, {}),), users=frozenset({OTHER}), owner=OTHER)
        assert look([taken], job(1, uid=UID)) == {}
        assert list(look([taken], job(1, uid=OTHER))) == ["n1"]

    def test_within_one_pass(self, snap, now, node, job):
        nodes = [node("n1"), node("n2")]
        jobs = [
            job(1, uid=UID, exclusive_user=True),
            job(2, uid=OTHER),
            job(3, uid=UID),
            job(4, uid=OTHER + 1, exclusive_user=True),
        ]
        found = plan(snap(nodes, jobs), now)
        assert [list(placed(found, at)) for at in (1, 2, 3, 4)] == [["n1"], ["n2"], ["n1"], []]

    def test_cpus_of_a_partition_on_each_node(self, snap, now, look, node, part, job):
        nodes = [
            node("n1", cpus=8, running=((None, 3, 0, {}),), partition_cpus=(("main", 3),)),
            node("n2", cpus=8),
        ]
        parts = [part("main", nodes, max_cpus_per_node=4), part("more", nodes)]
        assert list(look(nodes, job(1, cpus_per_task=2), parts)) == ["n2"]
        assert list(look(nodes, job(1), parts)) == ["n1"]
        assert look(nodes, job(1, cpus_per_task=5), parts) == {}
        assert list(look(nodes, job(1, cpus_per_task=5, partitions=("more",)), parts)) == ["n1"]
        jobs = [job(at, cpus_per_task=2) for at in (1, 2, 3)]
        found = plan(snap(nodes, jobs, parts), now)
        assert [list(placed(found, at)) for at in (1, 2, 3)] == [["n2"], ["n2"], []]


class TestTimes:
    def test_a_limit_that_may_be_cut(self, snap, now, node, job):
        nodes = [node("n1", running=((now + 1800, 2, 0, {}),))]
        first = job(1, cpus_per_task=4, time_limit=3600)
        second = job(2, cpus_per_task=2, time_limit=3600, priority=10, time_min=600)
        found = plan(snap(nodes, [first, second]), now)
        assert [(p.job_id, p.time_limit) for p in found.placements] == [(2, 1800)]
        found = plan(snap(nodes, [first, second._replace(time_min=1900)]), now)
        assert found.placements == ()
        # Where nothing forces it nothing is cut.
        found = plan(snap(nodes, [second]), now)
        assert [(p.job_id, p.time_limit) for p in found.placements] == [(2, None)]


class TestSpread:
    """The choice among nodes, without a cluster."""

    @pytest.mark.parametrize(
        ("count", "wanted"),
        [
            (Count(1, 3, 4, True, 1, spread=True), [(0, 2), (1, 1), (2, 1)]),
            (Count(1, 9, 3, True, 1, spread=True), [(0, 1), (1, 1), (2, 1)]),
            (Count(1, 2, 5, True, 1, spread=True), [(0, 2), (3, 3)]),
            (Count(1, 2, 9, True, 1, spread=True), None),
            (Count(2, 3, 2, False, 1), [(0, 1), (1, 1), (2, 1)]),
            (Count(2, 3, 2, False, 1, fewest=True), [(0, 1), (1, 1)]),
        ],
    )
    def test_nodes_of_a_range(self, count, wanted):
        offers = [Offer(at, tasks) for at, tasks in enumerate((2, 2, 2, 4))]
        assert choose(count, offers) == wanted

    @pytest.mark.parametrize(
        ("count", "required", "wanted"),
        [
            (Count(2, 2, 2, False, 1), (), [1, 2]),
            (Count(3, 3, 3, False, 1), (), [4, 5, 6]),
            (Count(2, 3, 2, False, 1), (), [4, 5, 6]),
            (Count(2, 3, 2, False, 1, fewest=True), (), [1, 2]),
            # Five tasks take three nodes.
            (Count(1, 3, 5, True, 1), (), [4, 5, 6]),
            (Count(2, 2, 2, False, 1), (5,), [4, 5]),
            (Count(2, 2, 2, False, 1), (2, 4), None),
            (Count(4, 4, 4, False, 1), (), None),
        ],
    )
    def test_in_a_row(self, count, required, wanted):
        places = {at: at for at in range(8)}
        offers = [Offer(at, 2, at in required) for at in (6, 5, 4, 2, 1)]
        found = in_a_row(count, offers, places)
        assert (found and [at for at, _ in found]) == wanted


class TestPromises:
    """What is kept for a job that waits for users or for its partition, and what is not."""

    def test_cpus_of_a_partition(self, snap, now, node, part, job):
        nodes = [node("n1", running=((now + 600, 2, 0, {}),), partition_cpus=(("main", 2),))]
        parts = [part("main", nodes, max_cpus_per_node=2), part("more", nodes)]
        jobs = [job(1, cpus_per_task=2), job(2, partitions=("more",), cpus_per_task=2, priority=10)]
        found = plan(snap(nodes, jobs, parts), now)
        assert list(placed(found, 2)) == ["n1"]
        assert [(e.job_id, e.at) for e in found.expected] == [(1, now + 600)]

    def test_nodes_of_one_user(self, snap, now, node, job):
        nodes = [node("n1", running=((now + 600, 1, 0, {}),), users=frozenset({OTHER}))]
        jobs = [
            job(1, uid=UID, exclusive_user=True),
            job(2, uid=OTHER, priority=10, time_limit=300),
            job(3, uid=OTHER, priority=9, time_limit=900),
        ]
        found = plan(snap(nodes, jobs), now)
        # Whoever would stay longer would keep the node from the first one.
        assert list(placed(found, 2)) == ["n1"]
        assert placed(found, 3) == {}
        assert [(e.job_id, e.at) for e in found.expected] == [(1, now + 600)]
