"""Dispatch: preconditions, the atomic start, and every way a launch can fail."""

import pytest

from spur_core.states import JobState
from spur_ctld.state import events
from spur_ctld.state.records import Gres


def test_the_life_of_a_job(sim):
    """Queue, dispatch, start, end; each step in one entry."""
    job_id = sim.submit()
    assert (job_id, sim.job(1).state, sim.job(1).reason, sim.job(1).priority) == (
        1,
        JobState.PENDING,
        "None",
        1000,
    )
    assert sim.row(1).state is JobState.PENDING
    sim.begin(1, cpus=2, memory_mb=100)
    assert events.DispatchRequested(1, 1) in sim.events
    job = sim.job(1)
    assert (job.state, job.run_attempt, job.partition, job.held) == (JobState.CONFIGURING, 1, "main", ("n1",))
    assert (sim.state.use["n1"].cpus, sim.state.use["n1"].memory_mb) == (2, 100)
    sim.commit(1)
    job = sim.job(1)
    assert (job.state, job.start_at) == (JobState.RUNNING, sim.now - 1)
    assert sim.row(1).state is JobState.RUNNING
    assert sim.complete(1) == "accepted"
    assert events.JobEnded(1, 1, JobState.COMPLETED) in sim.events
    assert events.RoomFreed(("n1",)) in sim.events
    job = sim.job(1)
    assert (job.state, job.reason, job.held) == (JobState.COMPLETED, "None", ())
    row = sim.row(1)
    assert (row.state, row.alloc_cpus, row.nodelist, row.end_at) == (JobState.COMPLETED, 2, "n1", job.end_at)
    assert [(step.step_id, step.name, step.state) for step in row.steps] == [
        (4294967291, "batch", JobState.COMPLETED)
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"attempt": 2},
        {"attempt": 0},
        {"cpus": 5},
        {"memory_mb": 1001},
        {"gres": (Gres(name="gpu", count=3),)},
        {"gres": (Gres(name="gpu", type="h100", count=1),)},
        {"nodes": ("n9",)},
        {"nodes": ()},
        {"nodes": ("n1", "n1")},
        {"task": 3},
    ],
)
def test_a_dispatch_that_does_not_fit_changes_nothing(sim, more):
    sim.submit()
    assert sim.begin(1, **more).refusal.code == "wrong_state"


@pytest.mark.parametrize("what", ["held", "running", "ended", "unknown", "drained", "down", "silent"])
def test_a_dispatch_needs_a_free_job_and_a_node_in_service(sim, what, admin):
    from spur_ctld.state import ops

    sim.submit(held=what == "held")
    if what in ("running", "ended"):
        sim.run(1)
    if what == "ended":
        sim.complete(1)
    if what == "drained":
        sim.do(ops.NodeUpdate(at=0, names=("n1",), who=admin, state="drain", reason="x"))
    if what == "down":
        sim.down("n1")
    if what == "silent":
        sim.do(ops.NodeSilent(at=0, name="n1", reason="restart"))
    assert sim.begin(2 if what == "unknown" else 1, attempt=1).refusal.code == "wrong_state"


def test_two_dispatches_race_for_the_last_cpu(sim):
    sim.submit()
    sim.submit()
    assert sim.begin(1, cpus=3).refusal is None
    assert sim.begin(2, cpus=2).refusal is not None
    assert sim.begin(2, nodes=("n2",), cpus=2).refusal is None


@pytest.mark.parametrize("attempt", [2, 7])
def test_only_the_dispatched_attempt_commits(sim, attempt):
    sim.submit()
    sim.begin(1)
    assert sim.commit(1, attempt).refusal.code == "wrong_state"
    assert sim.commit(1).refusal is None
    assert sim.commit(1).refusal.code == "wrong_state"
    assert sim.abort(1).refusal.code == "wrong_state"


class TestAbort:
    """A launch on n1 and n2 (a stand-alone srun, so both nodes launch) that failed."""

    @pytest.fixture
    def launched(self, sim):
        sim.submit(srun=True, min_nodes=2, max_nodes=2, num_tasks=2)
        sim.begin(1, ("n1", "n2"))
        return sim

    def test_nothing_left_behind_ends_in_the_same_entry(self, launched):
        sim = launched
        sim.abort(1, clear=("n1", "n2"), desc="n1: no such user")
        job = sim.job(1)
        assert (job.state, job.reason, job.desc) == (JobState.PENDING, "JobLaunchFailure", "n1: no such user")
        assert (job.run_attempt, job.restarts, job.launch_failures) == (1, 0, 1)
        assert job.not_before == sim.now + 5
        assert sim.state.use["n1"].cpus == 0
        assert events.JobQueued(1) in sim.events

    def test_a_node_in_doubt_is_fenced_first(self, launched):
        sim = launched
        sim.abort(1, clear=("n1",))
        assert events.FenceRequested(1, 1) in sim.events
        job = sim.job(1)
        assert (job.state, job.fence.targets) == (JobState.COMPLETING, ("n2",))
        assert sim.state.use["n2"].cpus == 1
        sim.confirm(1, "n2")
        assert (sim.job(1).state, sim.job(1).run_attempt) == (JobState.PENDING, 1)
        # The next dispatch takes the next number.
        assert sim.begin(1, attempt=1).refusal is not None
        assert sim.begin(1, attempt=2).refusal is None

    def test_the_jobs_own_fault_ends_it(self, launched):
        sim = launched
        sim.abort(1, "fail", clear=("n1", "n2"))
        job = sim.job(1)
        assert (job.state, job.reason) == (JobState.FAILED, "JobLaunchFailure")
        assert (job.exit.code, job.exit.signal) == (0, 53)
        assert sim.row(1).state is JobState.FAILED

    def test_hold(self, launched):
        sim = launched
        sim.abort(1, "hold", clear=("n1", "n2"))
        job = sim.job(1)
        assert (job.state, job.reason, job.desc) == (
            JobState.PENDING,
            "JobHeldUser",
            "launch failed requeued held",
        )
        assert (job.priority, job.prior_priority) == (0, 1000)

    def test_only_once(self, launched):
        sim = launched
        sim.abort(1, clear=("n1",))
        assert sim.abort(1, clear=("n1", "n2")).refusal.code == "wrong_state"


def test_backoff_doubles_and_ends_in_a_hold(sim):
    """5, 10, 20, 40 seconds; at the fifth failure the job is parked and keeps no earlier row."""
    sim.submit()
    waits = []
    for attempt in range(1, 6):
        sim.begin(1)
        sim.abort(1)
        job = sim.job(1)
        assert job.run_attempt == attempt
        if job.not_before is not None:
            waits.append(job.not_before - sim.now)
    assert waits == [5, 10, 20, 40]
    assert (sim.job(1).reason, sim.job(1).priority) == ("JobHoldMaxRequeue", 0)
    rows = {key: row.gone for key, row in sim.state.outbox.items()}
    assert rows == {(1, n): True for n in range(1, 6)} | {(1, 6): False}
    sim.hold(1, "release")
    assert (sim.job(1).launch_failures, sim.job(1).priority) == (0, 1000)


def test_a_start_that_succeeds_forgets_failed_launches(sim):
    sim.submit()
    sim.begin(1)
    sim.abort(1)
    sim.run(1)
    assert sim.job(1).launch_failures == 0


def test_a_batch_job_of_the_first_release_was_launched_on_its_first_node_only(sim):
    """Its other nodes hold nothing to fence, and it ends with the only supervisor that it has."""
    sim.submit(min_nodes=2, max_nodes=2)
    sim.run(1, ("n2", "n1"), everywhere=False)
    assert sim.complete(1, "n1") == "wrong_node"
    sim.cancel(1)
    assert sim.job(1).fence.targets == ("n2",)
    sim.confirm(1, "n2")
    assert sim.job(1).state is JobState.CANCELLED
    assert (sim.state.use["n1"].cpus, sim.state.use["n2"].cpus) == (0, 0)


def test_a_start_may_cut_the_limit_of_the_attempt(sim):
    sim.submit(time_limit=3600, time_min=600)
    sim.begin(1, time_limit=900)
    sim.commit(1)
    assert (sim.job(1).request.time_limit, sim.job(1).asked_limit) == (900, 3600)
    sim.requeue(1)
    sim.confirm(1)
    assert (sim.job(1).state, sim.job(1).request.time_limit, sim.job(1).asked_limit) == (
        JobState.PENDING,
        3600,
        None,
    )


def test_a_limit_that_was_changed_afterwards_stays_changed(sim, admin):
    sim.submit(time_limit=3600)
    sim.begin(1, time_limit=900)
    sim.commit(1)
    assert sim.update(1, who=admin, time_limit=1800) is None
    sim.requeue(1)
    sim.confirm(1)
    assert (sim.job(1).request.time_limit, sim.job(1).asked_limit) == (1800, None)


def test_jobs_that_share_cpus(sim):
    """No two of one layer have a CPU in common, and nobody else is on the node."""
    for _ in range(6):
        sim.submit()
    assert sim.begin(1, cpus=3, layer=1).refusal is None
    assert sim.begin(2, cpus=4, layer=2).refusal is None
    assert sim.begin(3, cpus=2, layer=1).refusal.code == "wrong_state"
    assert sim.begin(3, cpus=1, layer=1).refusal is None
    # One with CPUs of its own, and one of another partition.
    assert sim.begin(4, cpus=1).refusal.code == "wrong_state"
    assert sim.begin(4, cpus=1, layer=3, partition="other").refusal.code == "wrong_state"
    assert sim.state.use["n1"].cpus == 4
    sim.saved_and_restored()
    assert (sim.state.use["n1"].own_cpus, sim.state.use["n1"].layers) == (0, {1: (2, 4), 2: (1, 4)})
    for job_id in (1, 2, 3):
        sim.commit(job_id)
        sim.complete(job_id)
    assert sim.state.use["n1"].layers == {}
    assert sim.begin(4, cpus=1).refusal is None
    assert sim.begin(5, cpus=1, layer=1).refusal.code == "wrong_state"
