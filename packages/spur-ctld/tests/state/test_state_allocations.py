"""Allocations, the nodes that only hold a place, and suspension."""

import pytest

from spur_core.ids import STEP_EXTERN
from spur_core.states import JobState
from spur_ctld.state import events, ops
from spur_ctld.state.records import Exit

PENDING, RUNNING, COMPLETING = JobState.PENDING, JobState.RUNNING, JobState.COMPLETING
COMPLETED, FAILED, CANCELLED = JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED
SUSPENDED, TIMEOUT, NODE_FAIL = JobState.SUSPENDED, JobState.TIMEOUT, JobState.NODE_FAIL


class TestAllocation:
    @pytest.mark.parametrize(
        ("end", "state", "reason"),
        [
            ({}, COMPLETED, "None"),
            ({"code": 3}, FAILED, "NonZeroExitCode"),
            ({"signal": 2}, FAILED, "RaisedSignal:2(Interrupt)"),
        ],
    )
    def test_its_owner_ends_it(self, sim, end, state, reason):
        job_id = sim.alloc()
        assert sim.over(job_id, **end) is None
        job = sim.job(job_id)
        assert (job.state, job.fence.targets, job.fence.why) == (COMPLETING, ("n1", "n2"), "ended")
        assert events.FenceRequested(job_id, 1) in sim.events
        assert sim.over(job_id).text == "Job/step already completing or completed"
        ended = job.end_at
        sim.complete(job_id, "n2")
        assert sim.job(job_id).state is COMPLETING
        sim.confirm(job_id, "n1")
        job = sim.job(job_id)
        assert (job.state, job.reason, job.exit, job.end_at) == (state, reason, Exit(**end), ended)
        (extern,) = sim.row(job_id).steps
        assert (extern.step_id, extern.name, extern.nodelist) == (STEP_EXTERN, "extern", "n[1-2]")

    def test_who_and_when(self, sim, bob, admin):
        assert sim.over(9).text == "Invalid job id specified"
        pending = sim.submit(alloc_only=True, script=b"")
        assert sim.over(pending).text == "Job is pending execution"
        batch = sim.submit()
        sim.run(batch)
        assert sim.over(batch).code == "wrong_state"
        job_id = sim.alloc(("n2",))
        assert sim.over(job_id, who=bob).text == "Access/permission denied"
        assert sim.over(job_id, who=admin) is None

    def test_it_is_never_requeued(self, sim):
        job_id = sim.alloc()
        assert sim.requeue(job_id).text == "Requested operation is presently disabled"
        sim.down("n1")
        assert sim.job(job_id).fence.outcome is NODE_FAIL

    def test_steps_run_in_it_and_are_cut_off(self, sim):
        job_id = sim.alloc()
        assert sim.step(job_id, num_tasks=4, min_nodes=2) == 0
        sim.over(job_id)
        sim.complete(job_id, "n1", step_id=0, code=1)
        for name in ("n1", "n2"):
            sim.complete(job_id, name)
        assert sim.job(job_id).state is COMPLETED
        assert sim.step_row(job_id, 0).exit.code == 1

    def test_its_limit_makes_a_timeout(self, sim):
        job_id = sim.alloc()
        sim.do(ops.TimeLimitSignalled(at=0, job_id=job_id, attempt=1))
        sim.complete(job_id, "n1")
        assert sim.job(job_id).state is COMPLETING
        sim.complete(job_id, "n2")
        assert (sim.job(job_id).state, sim.job(job_id).reason) == (TIMEOUT, "TimeLimit")

    def test_a_cancel_while_it_ends_is_too_late(self, sim):
        job_id = sim.alloc()
        sim.over(job_id)
        assert sim.cancel(job_id).text == "Job/step already completing or completed"


class TestCompanions:
    """A batch job's further nodes have a supervisor that only holds."""

    @pytest.fixture
    def three(self, make_sim):
        sim = make_sim(nodes=3)
        sim.submit(min_nodes=3, max_nodes=3)
        sim.run(1, ("n1", "n2", "n3"))
        return sim

    @pytest.mark.parametrize(
        ("end", "state"),
        [({}, COMPLETED), ({"code": 3}, FAILED), ({"signal": 9, "oom": True}, JobState.OUT_OF_MEMORY)],
    )
    def test_the_scripts_exit_decides_and_the_rest_is_fenced(self, three, end, state):
        sim = three
        sim.complete(1, "n1", ended_at=1100.0, **end)
        job = sim.job(1)
        assert (job.state, job.fence.targets, job.fence.outcome) == (COMPLETING, ("n2", "n3"), state)
        assert (job.held, job.end_at) == (("n2", "n3"), 1100.0)
        sim.complete(1, "n3", signal=9)
        sim.confirm(1, "n2")
        job = sim.job(1)
        assert (job.state, job.end_at) == (state, 1100.0)
        assert job.exit.code == end.get("code", 0)
        assert not sim.state.active

    def test_before_the_last_node_confirmed(self, make_sim):
        sim = make_sim()
        sim.submit(min_nodes=2, max_nodes=2)
        sim.begin(1, ("n1", "n2"))
        sim.complete(1, "n1", code=1)
        assert sim.job(1).fence.targets == ("n2",)
        assert sim.commit(1).refusal is not None
        sim.confirm(1, "n2")
        assert (sim.job(1).state, sim.job(1).exit.code) == (FAILED, 1)

    def test_the_outcome_is_kept_when_a_node_of_the_rest_is_lost(self, three):
        sim = three
        sim.complete(1, "n1")
        sim.down("n2")
        assert sim.job(1).fence.outcome is COMPLETED
        sim.register("n2", boot="boot-2")
        assert sim.job(1).fence.targets == ("n3",)
        sim.confirm(1, "n3")
        assert sim.job(1).state is COMPLETED

    @pytest.mark.parametrize(("requeue", "state"), [(True, PENDING), (False, NODE_FAIL)])
    def test_a_companion_that_lets_go_ends_the_run(self, make_sim, requeue, state):
        sim = make_sim()
        sim.submit(min_nodes=2, max_nodes=2, requeue=requeue)
        sim.run(1, ("n1", "n2"))
        assert sim.complete(1, "n2") == "accepted"
        assert (sim.job(1).fence.targets, sim.job(1).fence.outcome) == (("n1",), state)
        sim.confirm(1, "n1")
        assert sim.job(1).state is state

    def test_at_the_limit_companions_may_end_first(self, three):
        sim = three
        sim.do(ops.TimeLimitSignalled(at=0, job_id=1, attempt=1))
        sim.complete(1, "n2", signal=15)
        assert sim.job(1).fence is None
        sim.complete(1, "n1", signal=15)
        sim.complete(1, "n3", signal=15)
        assert sim.job(1).state is TIMEOUT

    def test_an_srun_is_decided_by_the_nodes_with_tasks(self, make_sim):
        sim = make_sim(nodes=3)
        sim.submit(srun=True, argv=(b"true",), script=b"", num_tasks=2, min_nodes=3)
        sim.run(1, ("n1", "n2", "n3"), ranks=[(0,), (1,), ()])
        sim.complete(1, "n2")
        assert (sim.job(1).state, sim.job(1).fence) == (COMPLETING, None)
        sim.complete(1, "n1", code=4)
        assert sim.job(1).fence.targets == ("n3",)
        sim.complete(1, "n3")
        assert (sim.job(1).state, sim.job(1).exit.code, sim.job(1).derived_exit.code) == (FAILED, 4, 4)


class TestSuspension:
    @pytest.fixture
    def one(self, sim):
        sim.submit(min_nodes=2, max_nodes=2)
        sim.run(1, ("n1", "n2"))
        return sim

    def test_there_and_back(self, one):
        sim = one
        assert sim.suspend(1) is None
        job = sim.job(1)
        assert (job.state, job.untold, job.suspended_at) == (SUSPENDED, ("n1", "n2"), sim.now)
        assert events.SuspendRequested(1, 1) in sim.events
        began = sim.now
        told = ops.SuspendTold(at=0, job_id=1, attempt=1, nodes=("n2",), suspended=True)
        assert sim.do(told).refusal is None
        assert sim.job(1).untold == ("n1",)
        assert sim.do(told).refusal is not None
        assert sim.suspend(1, resume=True) is None
        job = sim.job(1)
        assert (job.state, job.untold, job.suspended_at) == (RUNNING, ("n1", "n2"), None)
        assert job.suspended_secs == sim.now - began
        late = ops.SuspendTold(at=0, job_id=1, attempt=1, nodes=("n1",), suspended=True)
        assert sim.do(late).refusal is not None, "that was the suspension, not the resumption"

    def test_words(self, sim, bob):
        assert sim.suspend(9).text == "Invalid job id specified"
        sim.submit()
        assert sim.suspend(1).text == "Job is pending execution"
        sim.run(1)
        assert sim.suspend(1, who=bob).text == "Access/permission denied"
        assert sim.suspend(1, resume=True).text == "Job is not suspended"
        sim.suspend(1)
        assert sim.suspend(1).text == "Job is not running"
        sim.complete(1)
        assert sim.suspend(1).text == "Job/step already completing or completed"

    def test_an_end_counts_the_time_it_stood(self, one):
        sim = one
        sim.suspend(1)
        began = sim.now
        sim.cancel(1)
        job = sim.job(1)
        assert (job.suspended_at, job.suspended_secs, job.untold) == (None, sim.now - began, ())
        for name in ("n1", "n2"):
            sim.confirm(1, name)
        assert sim.row(1).suspended_secs == job.suspended_secs

    def test_a_step_that_comes_up_late_is_stopped_too(self, one):
        sim = one
        sim.ask(1, num_tasks=1)
        sim.suspend(1)
        sim.do(ops.SuspendTold(at=0, job_id=1, attempt=1, nodes=("n1", "n2"), suspended=True))
        assert sim.job(1).untold == ()
        sim.step_up(1, 0)
        assert sim.job(1).untold == ("n1",)
        assert events.SuspendRequested(1, 1) in sim.events


def test_a_client_is_seen_once(sim):
    job_id = sim.alloc()
    op = ops.ClientSeen(at=0, job_id=job_id, attempt=1)
    assert sim.do(op).refusal is None
    assert sim.do(op).refusal is not None
    assert sim.job(job_id).client_seen


def test_a_failed_prolog_cancels_who_waits(sim):
    job_id = sim.submit(alloc_only=True, script=b"")
    sim.begin(job_id)
    sim.abort(job_id, outcome="cancel", desc="n1: prolog failed")
    assert (sim.job(job_id).state, sim.job(job_id).desc) == (CANCELLED, "n1: prolog failed")
