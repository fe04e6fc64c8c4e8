"""Limits, deadlines, silence and reconciliation, with a clock that the test moves."""

import asyncio

import pytest

from spur_core import reasons
from spur_core.states import JobState, NodeAvail
from spur_proto import controller_pb2 as pb


async def reach(condition, what="", tries=1000):
    for _ in range(tries):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what or "never came true")


async def tick(cluster):
    await cluster.controller.timers.tick()


async def test_a_time_limit_is_recorded_and_then_told(cluster):
    agent = await cluster.add_agent("n1")
    agent.obeys = False
    job = await cluster.submit(time_limit_secs=60)
    await cluster.in_state(job, JobState.RUNNING)
    await tick(cluster)
    assert not agent.cancels
    cluster.clock.ahead += 61
    await tick(cluster)
    assert cluster.state.jobs[job].time_signalled_at is not None
    await reach(lambda: agent.cancels)
    (cancel,) = agent.cancels
    assert (cancel.rid.job_id, cancel.rid.run_attempt, cancel.grace_secs, cancel.reason) == (
        job,
        1,
        2,
        "timeout",
    )
    assert not cancel.HasField("signal")
    await tick(cluster)
    assert len(agent.cancels) == 1
    await cluster.report(agent, job, signal=15)
    record = cluster.state.jobs[job]
    assert (record.state, record.reason) == (JobState.TIMEOUT, reasons.TIME_LIMIT)


async def test_an_attempt_that_outlives_kill_is_fenced(cluster):
    agent = await cluster.add_agent("n1")
    agent.obeys = False
    job = await cluster.submit(time_limit_secs=60)
    await cluster.in_state(job, JobState.RUNNING)
    cluster.clock.ahead += 61
    await tick(cluster)
    cluster.clock.ahead += 30
    await cluster.beat(agent)
    await tick(cluster)
    assert cluster.state.jobs[job].fence.outcome is JobState.TIMEOUT
    agent.obeys = True
    await cluster.in_state(job, JobState.TIMEOUT)


async def test_the_mark_survives_a_restart_and_is_told_again_with_what_is_left(cluster):
    agent = await cluster.add_agent("n1")
    agent.obeys = False
    job = await cluster.submit(time_limit_secs=60)
    await cluster.in_state(job, JobState.RUNNING)
    cluster.clock.ahead += 61
    await tick(cluster)
    await reach(lambda: agent.cancels)
    await cluster.crash()
    cluster.clock.ahead += 2
    await cluster.restart()
    await reach(lambda: len(agent.cancels) == 2)
    assert agent.cancels[1].grace_secs == 0
    await cluster.report(agent, job, signal=9)
    assert cluster.state.jobs[job].state is JobState.TIMEOUT


async def test_over_time_limit_lets_a_job_run_on(clusters):
    cluster = await clusters(scheduler="over_time_limit = 5")
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(time_limit_secs=60)
    await cluster.in_state(job, JobState.RUNNING)
    cluster.clock.ahead += 200
    await cluster.beat(agent)
    await tick(cluster)
    assert cluster.state.jobs[job].time_signalled_at is None
    cluster.clock.ahead += 200
    await cluster.beat(agent)
    await tick(cluster)
    assert cluster.state.jobs[job].time_signalled_at is not None


async def test_a_longer_limit_given_while_it_runs_counts(cluster):
    await cluster.add_agent("n1")
    job = await cluster.submit(time_limit_secs=60)
    await cluster.in_state(job, JobState.RUNNING)
    request = pb.UpdateJobRequest(targets=[pb.JobTarget(job_id=job)], time_limit_secs=600)
    answer = await cluster.stub.UpdateJob(request, metadata=cluster.user())
    assert answer.results[0].code == ""
    cluster.clock.ahead += 120
    await tick(cluster)
    assert cluster.state.jobs[job].time_signalled_at is None


async def test_a_deadline_ends_a_pending_job(cluster):
    job = await cluster.submit(hold=True, deadline_at=cluster.clock.time() + 100)
    await tick(cluster)
    assert cluster.state.jobs[job].state is JobState.PENDING
    cluster.clock.ahead += 101
    await tick(cluster)
    assert (cluster.state.jobs[job].state, cluster.state.jobs[job].reason) == (
        JobState.DEADLINE,
        reasons.DEADLINE,
    )


async def test_a_silent_node_goes_down_and_comes_back(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(requeue=True)
    await cluster.in_state(job, JobState.RUNNING)
    cluster.clock.ahead += 80
    await tick(cluster)
    assert cluster.state.nodes["n1"].avail is NodeAvail.UP
    agent.obeys = False
    cluster.clock.ahead += 20
    await tick(cluster)
    node = cluster.state.nodes["n1"]
    assert (node.avail, node.reason) == (NodeAvail.DOWN, "Not responding")
    assert cluster.state.jobs[job].fence.why == "node_fail"
    assert cluster.state.use["n1"].jobs == {job}, "kept until the end of the attempt is certain"
    agent.obeys = True
    await reach(lambda: cluster.state.jobs[job].state is JobState.PENDING)
    await cluster.beat(agent)
    assert cluster.state.nodes["n1"].avail is NodeAvail.UP
    await cluster.in_state(job, JobState.RUNNING)
    assert cluster.state.jobs[job].run_attempt == 2


async def test_nobody_is_silent_for_a_whole_window_after_a_start(cluster):
    await cluster.add_agent("n1")
    await cluster.down()
    cluster.clock.ahead += 10_000
    await cluster.restart()
    await tick(cluster)
    assert cluster.state.nodes["n1"].avail is NodeAvail.UP
    cluster.clock.ahead += 91
    await tick(cluster)
    assert cluster.state.nodes["n1"].avail is NodeAvail.DOWN


async def test_an_announced_restart_gets_its_grace_and_keeps_jobs(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)
    await cluster.stub.DeregisterAgent(pb.DeregisterAgentRequest(node="n1"), metadata=cluster.as_node("n1"))
    assert cluster.state.nodes["n1"].avail is NodeAvail.SILENT
    waiting = await cluster.submit()
    cluster.clock.ahead += 200
    await tick(cluster)
    assert cluster.state.nodes["n1"].avail is NodeAvail.SILENT
    assert cluster.state.jobs[job].state is JobState.RUNNING
    assert cluster.state.jobs[waiting].state is JobState.PENDING
    await cluster.register(agent)
    assert cluster.state.nodes["n1"].avail is NodeAvail.UP
    await cluster.in_state(waiting, JobState.RUNNING)
    assert cluster.state.jobs[job].run_attempt == 1
    assert not agent.cancels


async def test_what_an_agent_holds_too_much_is_ended_by_exact_identity(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)
    await cluster.report(agent, job)
    rid = (job, 1, 4294967291)
    agent.held[rid] = "live"
    await cluster.beat(agent)
    await reach(lambda: rid not in agent.held)
    assert [(c.rid.job_id, c.rid.run_attempt, c.grace_secs) for c in agent.cancels] == [(job, 1, 0)]


async def test_a_held_id_that_was_never_issued_is_left_alone(cluster):
    agent = await cluster.add_agent("n1")
    agent.held[(999, 1, 0)] = "live"
    await cluster.beat(agent)
    await cluster.beat(agent)
    assert not agent.cancels


async def test_an_attempt_missing_from_two_snapshots_a_minute_apart_is_fenced(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(requeue=True)
    await cluster.in_state(job, JobState.RUNNING)
    agent.held.clear()
    await cluster.beat(agent)
    await cluster.beat(agent, snapshot=False)
    await cluster.beat(agent)
    assert cluster.state.jobs[job].fence is None
    cluster.clock.ahead += 61
    await cluster.beat(agent, snapshot=False)
    assert cluster.state.jobs[job].fence is None, "without a list absence proves nothing"
    await cluster.beat(agent)
    await reach(lambda: cluster.state.jobs[job].state in (JobState.PENDING, JobState.RUNNING))
    assert cluster.state.jobs[job].recovery_fences == 1


async def test_a_reboot_is_seen_at_registration(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(requeue=True)
    await cluster.in_state(job, JobState.RUNNING)
    answer = await cluster.beat(agent, boot="boot-2")
    assert answer.register_again
    agent.held.clear()
    await cluster.register(agent, boot="boot-2")
    await reach(lambda: cluster.state.jobs[job].run_attempt == 2)


async def test_finished_jobs_leave_memory_unless_somebody_depends_on_them(clusters):
    cluster = await clusters(scheduler="min_job_age_secs = 300")
    agent = await cluster.add_agent("n1")
    gone, kept = await cluster.submit(), await cluster.submit()
    child = await cluster.submit(hold=True, dependency=f"afterok:{kept}")
    for job in (gone, kept):
        await cluster.in_state(job, JobState.RUNNING)
        await cluster.report(agent, job)
    cluster.state.outbox.clear()
    cluster.clock.ahead += 200
    await tick(cluster)
    assert {gone, kept, child} == set(cluster.state.jobs)
    cluster.clock.ahead += 200
    await tick(cluster)
    assert {kept, child} == set(cluster.state.jobs)


async def test_an_unknown_node_is_told_to_register(cluster):
    request = pb.HeartbeatRequest(node="stranger")
    answer = await cluster.stub.Heartbeat(request, metadata=cluster.as_node("stranger"))
    assert answer.register_again


@pytest.mark.parametrize(
    ("more", "secs"), [({}, 100), ({"time_limit_secs": 60}, 40), ({"time_limit_secs": 0}, 100)]
)
async def test_a_job_that_cannot_end_by_its_deadline_any_more_is_ended(cluster, more, secs):
    job = await cluster.submit(hold=True, deadline_at=cluster.clock.time() + 100, **more)
    cluster.clock.ahead += secs - 5
    await tick(cluster)
    assert cluster.state.jobs[job].state is JobState.PENDING
    cluster.clock.ahead += 10
    await tick(cluster)
    assert cluster.state.jobs[job].state is JobState.DEADLINE


async def test_a_deadline_cuts_a_limit_that_nobody_asked_for(clusters):
    cluster = await clusters(scheduler="default_time_limit_minutes = 60")
    deadline = cluster.clock.time() + 600
    job = await cluster.submit(deadline_at=deadline)
    cluster.clock.ahead += 300
    await tick(cluster)
    # The partition's hour would end behind the deadline; the job waits all the same.
    assert cluster.state.jobs[job].state is JobState.PENDING
    await cluster.add_agent("n1")
    await cluster.in_state(job, JobState.RUNNING)
    assert 280 < cluster.state.jobs[job].request.time_limit <= 300


async def test_a_deadline_is_the_limit_of_a_job_without_one(cluster):
    await cluster.add_agent("n1")
    job = await cluster.submit(deadline_at=cluster.clock.time() + 600, time_limit_secs=0)
    await cluster.in_state(job, JobState.RUNNING)
    assert 590 < cluster.state.jobs[job].request.time_limit <= 600
