"""Reports of nodes: verdicts for the reporter, and how a run is judged."""

import pytest

from spur_core.states import JobState
from spur_ctld.state import ops

PENDING, RUNNING, COMPLETING = JobState.PENDING, JobState.RUNNING, JobState.COMPLETING


@pytest.mark.parametrize(
    ("end", "state", "reason", "shown"),
    [
        ({}, JobState.COMPLETED, "None", (0, 0)),
        ({"code": 3}, JobState.FAILED, "NonZeroExitCode", (3, 0)),
        ({"signal": 9}, JobState.FAILED, "RaisedSignal:9(Killed)", (0, 9)),
        ({"signal": 9, "oom": True}, JobState.OUT_OF_MEMORY, "OutOfMemory", (0, 125)),
        ({"code": 1, "oom": True}, JobState.OUT_OF_MEMORY, "OutOfMemory", (0, 125)),
    ],
)
def test_verdict_by_exit(sim, end, state, reason, shown):
    sim.submit()
    sim.run(1)
    assert sim.complete(1, **end) == "accepted"
    job = sim.job(1)
    assert (job.state, job.reason, (job.exit.code, job.exit.signal)) == (state, reason, shown)
    assert sim.row(1).state is state


@pytest.mark.parametrize(
    ("end", "state", "shown"),
    [
        ({"signal": 15}, JobState.TIMEOUT, (0, 0)),
        ({"code": 0}, JobState.TIMEOUT, (0, 0)),
        ({"signal": 9, "oom": True}, JobState.OUT_OF_MEMORY, (0, 125)),
    ],
)
def test_an_attempt_over_its_limit_is_a_timeout_unless_memory_ran_out(sim, end, state, shown):
    sim.submit()
    sim.run(1)
    assert sim.do(ops.TimeLimitSignalled(at=0, job_id=1, attempt=1)).refusal is None
    assert sim.do(ops.TimeLimitSignalled(at=0, job_id=1, attempt=1)).refusal.code == "wrong_state"
    sim.complete(1, **end)
    job = sim.job(1)
    assert (job.state, (job.exit.code, job.exit.signal)) == (state, shown)


class TestTwoNodes:
    """A stand-alone srun on n1 and n2."""

    @pytest.fixture
    def two(self, sim):
        sim.submit(srun=True, min_nodes=2, max_nodes=2, num_tasks=2, argv=(b"true",), script=b"")
        sim.run(1, ("n1", "n2"))
        return sim

    def test_the_first_report_frees_its_node_and_stamps_the_end(self, two):
        sim = two
        assert sim.complete(1, "n2", ended_at=1234.0) == "accepted"
        job = sim.job(1)
        assert (job.state, job.end_at, job.held) == (COMPLETING, 1234.0, ("n1",))
        assert (sim.state.use["n1"].cpus, sim.state.use["n2"].cpus) == (1, 0)

    def test_the_last_report_brings_the_verdict(self, two):
        sim = two
        sim.complete(1, "n2", code=2)
        sim.complete(1, "n1", code=0)
        job = sim.job(1)
        assert (job.state, job.exit.code) == (JobState.FAILED, 2)
        (step,) = sim.row(1).steps
        assert (step.step_id, step.state, step.exit.code, step.nodelist) == (0, JobState.FAILED, 2, "n[1-2]")

    def test_a_repeated_report_is_final(self, two):
        sim = two
        sim.complete(1, "n2", code=2)
        assert sim.complete(1, "n2", code=0) == "final"
        assert sim.job(1).exits["n2"].exit.code == 2

    def test_memory_running_out_anywhere_decides(self, two):
        two.complete(1, "n2", signal=9, oom=True)
        two.complete(1, "n1")
        assert two.job(1).state is JobState.OUT_OF_MEMORY


def test_a_job_that_ends_before_its_start_was_recorded(sim):
    """The report overtakes the commit: it counts, and the commit finds nothing to do."""
    sim.submit()
    sim.begin(1)
    assert sim.complete(1, code=4, started_at=1001.0, ended_at=1002.0) == "accepted"
    job = sim.job(1)
    assert (job.state, job.start_at, job.end_at) == (JobState.FAILED, 1001.0, 1002.0)
    assert sim.commit(1).refusal.code == "wrong_state"
    assert sim.row(1).steps[0].exit.code == 4


def test_one_node_ends_before_the_other_confirms(sim):
    sim.submit(srun=True, min_nodes=2, max_nodes=2, num_tasks=2)
    sim.begin(1, ("n1", "n2"))
    assert sim.complete(1, "n2", started_at=1001.0, ended_at=1002.0) == "accepted"
    assert sim.job(1).state is JobState.CONFIGURING
    sim.commit(1)
    job = sim.job(1)
    assert (job.state, job.end_at, job.start_at) == (COMPLETING, 1002.0, 1001.0)
    sim.complete(1, "n1")
    assert sim.job(1).state is JobState.COMPLETED


def test_v02_stale_reports_change_nothing(sim):
    """Attempt 1 reports after attempt 2 began, and once more after it ended."""
    sim.submit()
    sim.run(1)
    sim.requeue(1)
    sim.confirm(1)
    sim.run(1)
    before = sim.job(1)
    assert sim.complete(1, attempt=1, code=9) == "final"
    assert sim.job(1) == before
    assert sim.complete(1, attempt=3) == "retry"
    assert sim.complete(1, "n2") == "wrong_node"
    assert sim.complete(1, step_id=7) == "wrong_node"
    assert sim.complete(1) == "accepted"
    assert sim.complete(1) == "final"
    assert sim.complete(99) == "unknown"


def test_a_report_during_a_fence_confirms_its_node(sim):
    """The outcome is the fence's; the exit and the step's end are kept."""
    sim.submit()
    sim.run(1)
    sim.cancel(1)
    assert sim.complete(1, signal=15) == "accepted"
    job = sim.job(1)
    assert (job.state, job.fence, job.kill_uid) == (JobState.CANCELLED, None, 1000)
    assert (job.exit.code, job.exit.signal) == (0, 0)
    row = sim.row(1)
    assert (row.kill_uid, row.steps[0].state, row.steps[0].exit.signal) == (1000, JobState.CANCELLED, 15)


def test_a_report_after_its_fence_was_confirmed_is_final(sim):
    sim.submit()
    sim.run(1)
    sim.cancel(1)
    sim.confirm(1)
    assert sim.complete(1, signal=15) == "final"


def test_a_report_before_the_clocks_agree(sim):
    """A node whose clock is behind does not make a run end before it started."""
    sim.submit()
    sim.run(1)
    sim.complete(1, started_at=10.0, ended_at=11.0)
    assert sim.job(1).end_at >= sim.job(1).start_at
