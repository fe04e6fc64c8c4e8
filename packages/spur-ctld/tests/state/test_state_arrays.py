"""Arrays: one record for all that has not started, records of their own for tasks that did."""

import pytest

from spur_core.grammar.array import IndexSet
from spur_core.states import JobState

PENDING, CANCELLED = JobState.PENDING, JobState.CANCELLED


def rest(sim, job_id):
    return IndexSet(sim.job(job_id).array_pending).text()


def by_task(sim, array_job_id):
    return {job.array_task_id: job for job in sim.state.array_members(array_job_id) if not job.array_pending}


@pytest.fixture
def array(sim):
    """Tasks 0 to 9, two at a time."""
    assert sim.submit(array=((0, 9, 1),), array_throttle=2) == 1
    return sim


def test_one_record_and_one_id(array):
    job = array.job(1)
    assert (job.array_job_id, job.array_count, job.array_min, job.array_max) == (1, 10, 0, 9)
    assert array.state.next_job_id == 2
    assert array.row(1).array_pending == "0-9%2"


def test_a_task_that_starts_gets_an_id_of_its_own(array):
    sim = array
    result = sim.begin(1, task=3)
    assert result.job_id == 2
    task = sim.job(2)
    assert (task.state, task.array_job_id, task.array_task_id) == (JobState.CONFIGURING, 1, 3)
    assert rest(sim, 1) == "0-2,4-9"
    assert (sim.job(1).state, sim.job(1).run_attempt) == (PENDING, 0)
    assert sim.row(1).array_pending == "0-2,4-9%2"
    sim.commit(2)
    sim.complete(2)
    assert (sim.row(2).array_job_id, sim.row(2).array_task_id) == (1, 3)
    # Started once is not pending any more.
    assert sim.begin(1, task=3).refusal is not None
    assert sim.begin(1).refusal is not None


def test_the_last_task_keeps_the_records_id(sim):
    sim.submit(array=((4, 6, 2),))
    assert sim.begin(1, task=4).job_id == 2
    assert sim.begin(1, task=6).job_id == 1
    job = sim.job(1)
    assert (job.array_task_id, job.array_pending, job.array_job_id) == (6, (), 1)
    assert sim.row(1).array_pending == ""


def test_ten_thousand_tasks_cost_one_record(make_sim):
    sim = make_sim()
    sim.submit(array=((0, 9999, 1),))
    assert len(sim.state.jobs) == 1
    sim.cancel(1)
    assert len(sim.state.jobs) == 1


class TestCancel:
    def test_all(self, array):
        sim = array
        sim.run(1, task=0)
        assert sim.cancel(1) is None
        assert sim.job(1).state is CANCELLED
        assert sim.job(2).fence is not None
        sim.confirm(2)
        assert sim.job(2).state is CANCELLED

    def test_one_pending_task_ends_alone(self, array):
        sim = array
        assert sim.cancel(1, tasks=((5, 5, 1),)) is None
        assert by_task(sim, 1)[5].state is CANCELLED
        assert (rest(sim, 1), sim.job(1).state) == ("0-4,6-9", PENDING)

    def test_some_running_and_some_pending(self, array):
        sim = array
        sim.run(1, task=1)
        assert sim.cancel(1, tasks=((1, 3, 1),)) is None
        tasks = by_task(sim, 1)
        assert tasks[1].fence is not None
        assert {index: job.state for index, job in tasks.items() if index != 1} == {
            2: CANCELLED,
            3: CANCELLED,
        }
        assert rest(sim, 1) == "0,4-9"

    def test_tasks_that_do_not_exist(self, array):
        assert array.cancel(1, tasks=((77, 79, 1),)).code == "no_such_job"
        assert rest(array, 1) == "0-9"

    def test_by_the_raw_id_of_a_task(self, array):
        sim = array
        sim.run(1, task=1)
        assert sim.cancel(2) is None
        assert sim.job(2).fence is not None
        assert sim.job(1).state is PENDING

    def test_somebody_elses(self, array, bob):
        assert array.cancel(1, tasks=((5, 5, 1),), who=bob).code == "access_denied"
        assert rest(array, 1) == "0-9"

    def test_twice(self, array):
        """An ended remainder is not split any more."""
        sim = array
        sim.cancel(1)
        assert sim.cancel(1, tasks=((5, 5, 1),)).code == "already_done"
        assert sim.state.next_job_id == 2


def test_hold_of_one_task_splits_it(array):
    sim = array
    assert sim.hold(1, tasks=((2, 2, 1),)) is None
    held = by_task(sim, 1)[2]
    assert (held.reason, sim.job(1).reason) == ("JobHeldUser", "None")
    sim.hold(1, "release")
    assert sim.job(held.job_id).reason == "None"


def test_hold_of_all_does_not_split(array):
    array.hold(1)
    assert (len(array.state.jobs), array.job(1).reason) == (1, "JobHeldUser")


def test_an_update_refused_leaves_the_task_where_it_was(array):
    sim = array
    assert sim.update(1, tasks=((2, 2, 1),), partitions=("nosuch",)) is not None
    assert rest(sim, 1) == "0-9"
    assert sim.update(1, tasks=((2, 2, 1),), time_limit=60) is None
    assert by_task(sim, 1)[2].request.time_limit == 60
    assert sim.job(1).request.time_limit is None


def test_the_throttle_can_be_changed(array):
    array.update(1, array_throttle=5)
    assert array.row(1).array_pending == "0-9%5"


def test_requeue_of_the_array_takes_what_can_be_requeued(array):
    """A running and an ended task go back, the pending rest is no obstacle."""
    sim = array
    sim.run(1, task=0)
    sim.run(1, task=1)
    sim.complete(3)
    assert sim.requeue(1) is None
    sim.confirm(2)
    assert [sim.job(number).state for number in (1, 2, 3)] == [PENDING, PENDING, PENDING]
    assert rest(sim, 1) == "2-9"


def test_purge_of_ended_tasks_leaves_the_rest(array):
    from spur_ctld.state import ops

    sim = array
    sim.run(1, task=0)
    sim.complete(2)
    rows = tuple((row.job_id, row.attempt, row.seq) for row in sim.state.outbox.values())
    sim.do(ops.OutboxAck(at=0, rows=rows))
    sim.do(ops.Purge(at=0, job_ids=(1, 2), answers_before=0.0))
    assert sorted(sim.state.jobs) == [1]
