"""Fences that no user asked for: recovery, time limit, and their outcomes."""

import pytest

from spur_core.states import JobState

PENDING = JobState.PENDING


@pytest.fixture
def running(sim):
    sim.submit()
    sim.run(1)
    return sim


@pytest.mark.parametrize("attempt", [2, 0, 9])
def test_only_exactly_the_running_attempt_is_fenced(running, attempt):
    assert running.fence(1, attempt=attempt).refusal is not None


def test_racing_fences_are_one(running):
    assert running.fence(1, recovery=True).refusal is None
    assert running.fence(1, recovery=True).refusal.code == "wrong_state"
    running.confirm(1)
    job = running.job(1)
    assert (job.run_attempt, job.restarts, job.recovery_fences) == (1, 1, 1)


def test_time_limit(running):
    running.fence(1, JobState.TIMEOUT, reason="TimeLimit", why="timeout")
    running.confirm(1)
    job = running.job(1)
    assert (job.state, job.reason, (job.exit.code, job.exit.signal)) == (
        JobState.TIMEOUT,
        "TimeLimit",
        (0, 0),
    )
    (step,) = running.row(1).steps
    assert (step.state, step.exit.signal) == (JobState.CANCELLED, 15)


def test_a_requeue_of_what_may_not_be_requeued_is_a_node_failure(sim):
    sim.submit(requeue=False)
    sim.run(1)
    sim.fence(1, recovery=True)
    sim.confirm(1)
    assert sim.job(1).state is JobState.NODE_FAIL


def test_the_fifth_recovery_parks_the_job(sim):
    sim.submit()
    for _ in range(5):
        sim.run(1)
        sim.fence(1, recovery=True)
        sim.confirm(1)
    job = sim.job(1)
    assert (job.state, job.reason, job.priority, job.run_attempt) == (PENDING, "RecoveryFailed", 0, 5)
    sim.hold(1, "release")
    assert sim.job(1).recovery_fences == 0
    sim.run(1)


def test_nodes_that_reported_need_no_confirmation(sim):
    """One of two is over before the fence: it is not asked again, and its exit is kept."""
    sim.submit(srun=True, min_nodes=2, max_nodes=2, num_tasks=2)
    sim.run(1, ("n1", "n2"))
    sim.complete(1, "n2", code=5)
    sim.cancel(1)
    assert sim.job(1).fence.targets == ("n1",)
    sim.confirm(1, "n1")
    (step,) = sim.row(1).steps
    assert step.exit.code == 5


def test_an_end_in_the_past_of_a_skewed_node_does_not_turn_time_round(running):
    running.cancel(1)
    running.complete(1, signal=15, started_at=5.0, ended_at=6.0)
    assert running.job(1).end_at >= running.job(1).start_at
