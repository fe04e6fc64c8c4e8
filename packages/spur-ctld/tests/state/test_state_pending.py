"""Which pending jobs only room holds back, in which order, and why the others wait."""

import pytest

from spur_core.states import JobState
from spur_ctld.state import dependencies, ops
from spur_ctld.state.pending import pending_views
from spur_ctld.state.records import Partition
from spur_ctld.state.settings import Settings


def look(sim, now=None):
    """(eligible ids in order, {id: reason})."""
    queue = pending_views(sim.state, sim.now + 1 if now is None else now)
    return [view.job_id for view in queue.views], {job_id: reason for job_id, reason, _ in queue.gated}


def why(sim, job_id):
    """The job's verdict in a word."""
    eligible, gated = look(sim)
    return "eligible" if job_id in eligible else gated[job_id]


class TestOrder:
    def test_priority_then_age_then_id(self, sim):
        sim.submit(priority=5)
        sim.submit(priority=9)
        sim.submit(priority=5)
        assert look(sim) == ([2, 1, 3], {})

    def test_a_higher_tier_comes_first(self, sim):
        sim.do(
            ops.Configure(
                at=0,
                settings=Settings(),
                partitions=(
                    Partition(name="main", nodes=("n1", "n2")),
                    Partition(name="fast", nodes=("n1",), priority_tier=3),
                ),
            )
        )
        sim.submit(priority=9)
        sim.submit(priority=1, partitions=("main", "fast"))
        assert look(sim)[0] == [2, 1]

    def test_age_counts_from_the_begin_time(self, sim):
        sim.submit(begin_at=sim.now + 100)
        sim.submit()
        assert look(sim, sim.now + 200)[0] == [2, 1]


class TestGates:
    def test_holds_are_passed_over(self, sim):
        sim.submit(held=True)
        assert look(sim) == ([], {})

    def test_begin_time(self, sim):
        sim.submit(begin_at=sim.now + 100)
        assert why(sim, 1) == "BeginTime"
        assert look(sim, sim.now + 100)[0] == [1]

    def test_a_backoff_keeps_its_own_reason(self, sim):
        sim.submit()
        sim.begin(1)
        sim.abort(1)
        assert look(sim) == ([], {})
        assert look(sim, sim.now + 5)[0] == [1]

    def test_throttle(self, sim):
        sim.submit(array=((0, 9, 1),), array_throttle=2)
        (view,) = pending_views(sim.state, sim.now).views
        assert view.tasks == (0, 1)
        sim.begin(1, task=0)
        (view,) = pending_views(sim.state, sim.now).views
        assert view.tasks == (1,)
        sim.begin(1, task=1)
        assert why(sim, 1) == "JobArrayTaskLimit"
        sim.complete(2)
        (view,) = pending_views(sim.state, sim.now).views
        assert view.tasks == (2,)

    def test_a_task_that_was_singled_out_or_requeued_is_under_the_throttle_too(self, sim):
        sim.submit(array=((0, 4, 1),), array_throttle=1)
        sim.hold(1, tasks=((3, 3, 1),))
        sim.hold(1, "release", tasks=((3, 3, 1),))
        single = max(sim.state.jobs)
        assert [view.job_id for view in pending_views(sim.state, sim.now).views] == [1, single]
        running = sim.run(1, task=0)
        assert look(sim) == ([], {1: "JobArrayTaskLimit", single: "JobArrayTaskLimit"})
        sim.update(1, array_throttle=2)
        assert look(sim)[0] == [1, single]
        sim.complete(running)
        sim.update(1, array_throttle=1)
        sim.run(single)
        assert why(sim, 1) == "JobArrayTaskLimit"

    def test_views_are_reused_until_what_they_show_changes(self, sim):
        sim.submit()
        sim.submit()
        memo = {}
        first = pending_views(sim.state, sim.now, memo).views
        sim.update(1, comment="x")
        second = pending_views(sim.state, sim.now, memo).views
        assert first[1] is second[1]
        assert first[0] is not second[0]
        sim.do(ops.PendingReasons(at=0, reasons=((2, "Priority", ""),)))
        assert pending_views(sim.state, sim.now, memo).views[1] is first[1]
        sim.update(2, priority=5)
        assert [view.priority for view in pending_views(sim.state, sim.now, memo).views] == [1000, 5]
        sim.cancel(2)
        pending_views(sim.state, sim.now, memo)
        assert set(memo) == {1}


def end(sim, job_id, **how):
    sim.run(job_id)
    sim.complete(job_id, **how)


class TestOnOneJob:
    """Job 1 is depended on, job 2 asks."""

    @pytest.mark.parametrize(
        ("kind", "done", "failed", "cancelled"),
        [
            ("afterok", "eligible", "DependencyNeverSatisfied", "DependencyNeverSatisfied"),
            ("afternotok", "DependencyNeverSatisfied", "eligible", "eligible"),
            ("afterany", "eligible", "eligible", "eligible"),
            ("after", "eligible", "eligible", "eligible"),
            ("aftercorr", "eligible", "DependencyNeverSatisfied", "DependencyNeverSatisfied"),
        ],
    )
    def test_ends(self, make_sim, kind, done, failed, cancelled):
        for how, expected in (("done", done), ("failed", failed), ("cancelled", cancelled), ("oom", failed)):
            sim = make_sim()
            sim.submit()
            sim.submit(dependency=f"{kind}:1")
            assert why(sim, 2) == "Dependency"
            if how == "cancelled":
                sim.cancel(1)
            else:
                end(sim, 1, code=int(how == "failed"), oom=how == "oom")
            assert why(sim, 2) == expected, how

    def test_start(self, sim):
        sim.submit()
        sim.submit(dependency="after:1+1")
        assert pending_views(sim.state, sim.now).starts_matter
        sim.run(1)
        assert look(sim, sim.job(1).start_at + 59)[0] == []
        assert look(sim, sim.job(1).start_at + 60)[0] == [2]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("afterany:77", "eligible"),
            ("after:77", "eligible"),
            ("afterok:77", "DependencyNeverSatisfied"),
            ("afternotok:77", "DependencyNeverSatisfied"),
            ("afterok:77?afterany:78", "eligible"),
            ("afterok:1_3", "DependencyNeverSatisfied"),
        ],
    )
    def test_unknown(self, sim, text, expected):
        sim.submit()
        sim.submit(dependency=text)
        assert why(sim, 2) == expected

    def test_a_requeued_job_is_waited_for_again(self, sim):
        sim.submit()
        sim.submit(dependency="afterok:1")
        end(sim, 1, code=1)
        assert why(sim, 2) == "DependencyNeverSatisfied"
        sim.requeue(1)
        assert why(sim, 2) == "Dependency"

    def test_never_and_asked_to_be_cancelled(self, sim):
        sim.submit(dependency="afterok:77", kill_on_invalid_dependency=True)
        queue = pending_views(sim.state, sim.now)
        assert (queue.never, queue.gated) == ([1], [])


class TestOnArrays:
    @pytest.fixture
    def array(self, sim):
        """Tasks 1 to 3 of job 1."""
        sim.submit(array=((1, 3, 1),))
        return sim

    def test_the_whole_array(self, array):
        sim = array
        asking = sim.submit(dependency="afterok:1")
        for task in (1, 2, 3):
            assert why(sim, asking) == "Dependency"
            sim.complete(sim.run(1, task=task))
        assert why(sim, asking) == "eligible"

    def test_one_failed_task_decides_when_all_are_over(self, array):
        sim = array
        asking = sim.submit(dependency="afterok:1")
        sim.complete(sim.run(1, task=2), code=1)
        assert why(sim, asking) == "Dependency"
        sim.cancel(1)
        assert why(sim, asking) == "DependencyNeverSatisfied"

    def test_one_task(self, array):
        sim = array
        asking = sim.submit(dependency="afterok:1_2")
        missing = sim.submit(dependency="afterok:1_7")
        assert (why(sim, asking), why(sim, missing)) == ("Dependency", "DependencyNeverSatisfied")
        sim.complete(sim.run(1, task=2))
        assert why(sim, asking) == "eligible"

    def test_all_tasks(self, array):
        sim = array
        asking = sim.submit(dependency="afterany:1_*")
        sim.cancel(1)
        assert why(sim, asking) == "eligible"

    def test_a_task_cancelled_before_it_started(self, array):
        sim = array
        asking = sim.submit(dependency="afterok:1_2")
        sim.cancel(1, tasks=((2, 2, 1),))
        assert why(sim, asking) == "DependencyNeverSatisfied"

    def test_task_by_task(self, array):
        """`aftercorr`: pending tasks of one record wait for one counterpart each."""
        sim = array
        asking = sim.submit(array=((1, 4, 1),), dependency="aftercorr:1")
        assert why(sim, asking) == "Dependency"
        sim.complete(sim.run(1, task=2))
        (view,) = [v for v in pending_views(sim.state, sim.now).views if v.job_id == asking]
        assert view.tasks == (2,)
        started = sim.run(asking, task=2)
        assert sim.job(started).array_task_id == 2
        sim.complete(sim.run(1, task=1), code=1)
        assert why(sim, asking) == "Dependency"
        sim.complete(sim.run(1, task=3), code=1)
        # Tasks 1 and 3 failed, a task 4 never was.
        assert why(sim, asking) == "DependencyNeverSatisfied"


class TestSingleton:
    def test_one_after_the_other(self, sim):
        sim.submit(name="x")
        sim.submit(name="x", dependency="singleton")
        sim.submit(name="x", dependency="singleton")
        sim.submit(name="y", dependency="singleton")
        assert look(sim) == ([1, 4], {2: "Dependency", 3: "Dependency"})
        end(sim, 1)
        assert look(sim) == ([2, 4], {3: "Dependency"})
        sim.run(2)
        assert why(sim, 3) == "Dependency"

    def test_a_later_one_that_runs_counts(self, sim):
        sim.submit(name="x", dependency="singleton", begin_at=sim.now + 100)
        sim.submit(name="x")
        sim.run(2)
        assert look(sim, sim.now + 200)[1] == {1: "Dependency"}

    def test_other_users_do_not_count(self, sim, bob):
        sim.submit(name="x")
        sim.submit(name="x", dependency="singleton", who=bob)
        assert why(sim, 2) == "eligible"

    def test_tasks_of_an_array_do_not_wait_for_each_other(self, sim):
        sim.submit(name="x", array=((0, 2, 1),), dependency="singleton")
        sim.run(1, task=0)
        assert why(sim, 1) == "eligible"


def test_what_is_referenced(sim):
    sim.submit(dependency="afterok:5:6_1,afterany:7")
    sim.submit(dependency="singleton")
    sim.submit(dependency="afterok:8")
    sim.cancel(3)
    assert sim.job(3).state is JobState.CANCELLED
    assert dependencies.referenced(sim.state) == {5, 6, 7}


class TestAccess:
    """Partitions that change while jobs wait."""

    @pytest.fixture
    def limited(self, sim):
        def set_limits(**limits):
            main = Partition(name="main", nodes=("n1", "n2"))
            fast = Partition(name="fast", nodes=("n1",), **limits)
            sim.do(ops.Configure(at=0, settings=Settings(), partitions=(main, fast)))

        set_limits()
        return set_limits

    @pytest.mark.parametrize(
        ("limits", "reason"),
        [
            ({"allow_accounts": ("chem",)}, "AccountNotAllowed"),
            ({"deny_accounts": ("bio",)}, "AccountNotAllowed"),
            ({"allow_qos": ("high",)}, "QOSNotAllowed"),
            ({"req_resv": True}, "Reservation"),
        ],
    )
    def test_a_partition_that_no_longer_allows(self, sim, limited, limits, reason):
        sim.submit(partitions=("fast",), account="bio")
        sim.submit(partitions=("fast", "main"), account="bio")
        assert look(sim) == ([1, 2], {})
        limited(**limits)
        queue = pending_views(sim.state, sim.now + 1)
        assert queue.gated == [(1, reason, "")]
        # What else was asked for is left.
        assert [(view.job_id, view.partitions) for view in queue.views] == [(2, ("main",))]
        limited()
        assert look(sim) == ([1, 2], {})
