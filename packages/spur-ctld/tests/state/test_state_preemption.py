"""Preempted attempts: their end, their grace, their CPUs while they are stopped, and the way back."""

import pytest

from spur_core.states import JobState
from spur_ctld.state import events, ops
from spur_ctld.state.records import Partition, Slice

PENDING, RUNNING, SUSPENDED = JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED
COMPLETING, PREEMPTED = JobState.COMPLETING, JobState.PREEMPTED


def preempt(sim, job_id, mode="cancel", *, by=99, attempt=1, grace=0):
    done = sim.do(ops.Preempt(at=0, job_id=job_id, attempt=attempt, by=by, mode=mode, grace_secs=grace))
    return done.refusal


def stopped(sim, job_id, *nodes, suspended=True):
    op = ops.SuspendTold(at=0, job_id=job_id, attempt=1, nodes=nodes or ("n1",), suspended=suspended)
    return sim.do(op).refusal


def test_cancelled_for_another(sim):
    job_id = sim.submit()
    sim.run(job_id)
    assert preempt(sim, job_id, by=7) is None
    job = sim.job(job_id)
    assert (job.state, job.fence.why, job.fence.targets) == (COMPLETING, "preempted", ("n1",))
    assert (job.push.by, job.push.mode) == (7, "cancel")
    assert events.FenceRequested(job_id, 1) in sim.events
    sim.confirm(job_id)
    job = sim.job(job_id)
    assert (job.state, job.reason, job.held) == (PREEMPTED, "None", ())
    assert job.push.at
    assert sim.row(job_id).state is PREEMPTED


def test_requeued_for_another(sim):
    job_id = sim.submit()
    sim.run(job_id)
    assert preempt(sim, job_id, "requeue") is None
    sim.confirm(job_id)
    job = sim.job(job_id)
    assert (job.state, job.reason, job.push, job.restarts) == (PENDING, "BeginTime", None, 1)
    assert job.not_before > sim.now
    assert sim.row(job_id, 1).state is PREEMPTED
    assert sim.row(job_id, 2).state is PENDING


@pytest.mark.parametrize("request_", [{"requeue": False}, {"srun": True, "script": b""}])
def test_who_cannot_be_requeued_is_cancelled(sim, request_):
    job_id = sim.submit(**request_)
    sim.run(job_id)
    assert preempt(sim, job_id, "requeue") is None
    assert sim.job(job_id).fence.outcome is PREEMPTED
    assert sim.job(job_id).push.mode == "cancel"


def test_exactly_that_attempt(sim):
    job_id = sim.submit()
    sim.run(job_id)
    assert preempt(sim, job_id, attempt=2).code == "wrong_state"
    assert preempt(sim, job_id + 1).code == "no_such_job"
    assert preempt(sim, job_id, "burn").code == "wrong_state"
    sim.cancel(job_id)
    assert preempt(sim, job_id).code == "wrong_state"


def test_not_while_it_is_launched(sim):
    job_id = sim.submit()
    sim.begin(job_id)
    assert preempt(sim, job_id).code == "wrong_state"


class TestGrace:
    def test_told_first_then_ended(self, sim):
        job_id = sim.submit()
        sim.run(job_id, nodes=("n1", "n2"))
        assert preempt(sim, job_id, by=7, grace=10) is None
        push = sim.job(job_id).push
        assert (sim.job(job_id).state, push.unwarned, push.end_at) == (RUNNING, ("n1", "n2"), sim.now + 10)
        assert events.PreemptRequested(job_id, 1) in sim.events
        assert sim.do(ops.PreemptTold(at=0, job_id=job_id, attempt=1, nodes=("n2",))).refusal is None
        assert sim.do(ops.PreemptTold(at=0, job_id=job_id, attempt=1, nodes=("n2",))).refusal is not None
        assert sim.job(job_id).push.unwarned == ("n1",)
        # Too early, and not again by somebody else.
        assert preempt(sim, job_id, by=8).code == "wrong_state"
        assert preempt(sim, job_id, by=8, grace=3).code == "wrong_state"
        sim.now += 10
        assert preempt(sim, job_id, by=7) is None
        assert sim.job(job_id).fence.outcome is PREEMPTED

    def test_its_own_mode_counts_at_the_end(self, sim):
        job_id = sim.submit()
        sim.run(job_id)
        preempt(sim, job_id, "requeue", by=7, grace=1)
        sim.now += 5
        assert preempt(sim, job_id, "cancel", by=7) is None
        job = sim.job(job_id)
        assert (job.fence.outcome, job.push.by, job.push.unwarned) == (PENDING, 7, ())

    def test_who_ends_by_himself_has_ended_by_himself(self, sim):
        job_id = sim.submit()
        sim.run(job_id)
        preempt(sim, job_id, grace=30)
        sim.complete(job_id)
        assert sim.job(job_id).state is JobState.COMPLETED


class TestSuspension:
    def test_its_cpus_are_lent_when_all_nodes_stopped_it(self, sim):
        job_id = sim.submit()
        sim.run(job_id, nodes=("n1", "n2"), cpus=4, memory_mb=100)
        assert preempt(sim, job_id, "suspend", by=7) is None
        assert sim.job(job_id).state is SUSPENDED
        assert events.SuspendRequested(job_id, 1) in sim.events
        stopped(sim, job_id, "n1")
        assert sim.state.use["n1"].cpus == 4
        stopped(sim, job_id, "n2")
        assert (sim.state.use["n1"].cpus, sim.state.use["n1"].memory_mb) == (0, 100)
        assert sim.state.use["n1"].jobs == {job_id}
        assert events.RoomFreed(("n1", "n2")) in sim.events
        other = sim.submit()
        sim.run(other, nodes=("n1",), cpus=4)
        assert sim.state.use["n1"].cpus == 4

    def test_it_goes_on_when_its_cpus_are_free_again(self, sim):
        job_id, other = sim.submit(), sim.submit()
        sim.run(job_id, cpus=4)
        preempt(sim, job_id, "suspend", by=other)
        stopped(sim, job_id)
        sim.run(other, cpus=1)
        assert preempt(sim, job_id, "resume").text == "its CPUs are in use"
        assert sim.suspend(job_id, resume=True).text.startswith(f"Job is suspended for job {other}")
        sim.complete(other)
        assert preempt(sim, job_id, "resume") is None
        job = sim.job(job_id)
        assert (job.state, job.push, job.untold) == (RUNNING, None, ("n1",))
        assert job.suspended_secs > 0
        assert sim.state.use["n1"].cpus == 4
        assert preempt(sim, job_id, "resume").code == "wrong_state"

    def test_not_beside_one_that_may_run_on_its_cpus(self, make_sim):
        """Enough CPUs are free by number, but the other one of a higher tier may have the very same."""
        sim = make_sim(nodes=1, cpus=8)
        parts = tuple(
            Partition(name=name, default=tier == 1, nodes=("n1",), priority_tier=tier)
            for name, tier in (("main", 1), ("high", 5))
        )
        sim.do(ops.Configure(at=0, settings=sim.state.settings, partitions=parts))
        job_id, other = sim.submit(), sim.submit(partitions=("high",))
        sim.run(job_id, cpus=4)
        preempt(sim, job_id, "suspend", by=other)
        stopped(sim, job_id)
        slices = (Slice(node="n1", cpus=4),)
        begin = ops.DispatchBegin(
            at=0, job_id=other, attempt=1, partition="high", slices=slices, everywhere=True
        )
        assert sim.do(begin).refusal is None
        sim.commit(other)
        assert preempt(sim, job_id, "resume").text == "its CPUs are in use"
        sim.complete(other)
        assert preempt(sim, job_id, "resume") is None

    def test_a_node_that_did_not_stop_it_has_nothing_to_lend(self, sim):
        job_id = sim.submit()
        sim.run(job_id, cpus=4)
        preempt(sim, job_id, "suspend")
        assert preempt(sim, job_id, "resume") is None
        assert stopped(sim, job_id) is not None
        assert sim.state.use["n1"].cpus == 4

    def test_its_end_takes_no_cpus_from_those_who_use_them(self, sim):
        job_id, other = sim.submit(), sim.submit()
        sim.run(job_id, cpus=4)
        preempt(sim, job_id, "suspend", by=other)
        stopped(sim, job_id)
        sim.run(other, cpus=4)
        sim.cancel(job_id)
        assert sim.state.use["n1"].cpus == 4
        sim.confirm(job_id)
        assert sim.state.use["n1"].cpus == 4
        assert sim.state.use["n1"].jobs == {other}

    def test_a_suspended_one_may_be_ended_for_a_third(self, sim):
        job_id = sim.submit()
        sim.run(job_id, cpus=4)
        preempt(sim, job_id, "suspend", by=7)
        stopped(sim, job_id)
        assert preempt(sim, job_id, "cancel", by=8) is None
        assert sim.job(job_id).push.lent
        sim.confirm(job_id)
        assert sim.job(job_id).state is PREEMPTED

    def test_it_survives_a_snapshot(self, sim):
        job_id = sim.submit()
        sim.run(job_id, cpus=4)
        preempt(sim, job_id, "suspend", by=7)
        stopped(sim, job_id)
        sim.saved_and_restored()
        assert sim.state.use["n1"].cpus == 0
        assert sim.job(job_id).push.lent
