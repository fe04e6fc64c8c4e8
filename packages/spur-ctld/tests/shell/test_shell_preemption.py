"""Preemption through the leader: what agents are told, once, also by the next process."""

import asyncio
import signal

import pytest

from spur_core.states import JobState
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

PARTITIONS = """
[[partitions]]
name = "low"
nodes = "ALL"
priority_tier = 1
preempt_mode = "{mode}"
grace_time = {grace}
[[partitions]]
name = "high"
nodes = "ALL"
priority_tier = 9
"""


async def reach(condition, what="", tries=1000):
    for _ in range(tries):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what or "never came true")


async def made(clusters, mode="cancel", grace=0, cpus=4):
    cluster = await clusters(
        scheduler='preempt_type = "partition_prio"', extra=PARTITIONS.format(mode=mode, grace=grace)
    )
    agent = await cluster.add_agent("n1", cpus=cpus)
    low = await cluster.submit(partition="low", num_tasks=4, min_nodes=1, max_nodes=1)
    await cluster.in_state(low, JobState.RUNNING)
    return cluster, agent, low


async def push(cluster):
    return await cluster.submit(partition="high", num_tasks=4, min_nodes=1, max_nodes=1)


async def test_a_victim_is_ended_and_its_room_used(clusters):
    cluster, agent, low = await made(clusters)
    high = await push(cluster)
    await cluster.in_state(high, JobState.RUNNING)
    assert cluster.state.jobs[low].state is JobState.PREEMPTED
    ends = [call for call in agent.cancels if call.rid.job_id == low]
    assert {(call.reason, call.rid.run_attempt) for call in ends} == {("preempted", 1)}
    assert not any(call.HasField("signal") for call in ends)
    shown = await cluster.job(low)
    assert shown.state == common_pb2.JOB_STATE_PREEMPTED
    assert (shown.preempted_by, shown.HasField("preempt_at")) == (high, True)


async def test_while_it_does_not_end_nobody_takes_the_room(clusters):
    cluster, agent, low = await made(clusters)
    agent.obeys = False
    high = await push(cluster)
    await cluster.in_state(low, JobState.COMPLETING)
    other = await cluster.submit(partition="low")
    await reach(lambda: agent.cancels)
    await cluster.crash()
    await cluster.restart()
    assert cluster.state.jobs[low].push.by == high
    agent.obeys = True
    await cluster.in_state(high, JobState.RUNNING)
    assert cluster.state.jobs[other].state is JobState.PENDING


async def test_grace_is_told_once_and_ends(clusters):
    cluster, agent, low = await made(clusters, grace=30)
    high = await push(cluster)
    await reach(
        lambda: cluster.state.jobs[low].push is not None and not cluster.state.jobs[low].push.unwarned
    )
    assert [call.signal for call in agent.cancels] == [signal.SIGCONT, signal.SIGTERM]
    await cluster.controller.timers.tick()
    assert cluster.state.jobs[low].state is JobState.RUNNING
    shown = await cluster.job(low)
    assert shown.end_at == cluster.state.jobs[low].push.end_at
    await cluster.crash()
    await cluster.restart()
    assert len(agent.cancels) == 2, "it was told before"
    cluster.clock.ahead += 31
    await cluster.beat(agent)
    await cluster.controller.timers.tick()
    await cluster.in_state(high, JobState.RUNNING)
    assert cluster.state.jobs[low].state is JobState.PREEMPTED


async def test_a_node_that_cannot_be_told_is_told_by_the_next_process(clusters):
    cluster, agent, low = await made(clusters, grace=300)
    await agent.stop()
    await push(cluster)
    await reach(lambda: cluster.state.jobs[low].push is not None)
    await cluster.crash()
    await agent.start()
    await cluster.restart()
    await reach(lambda: not cluster.state.jobs[low].push.unwarned)
    assert [call.signal for call in agent.cancels][-2:] == [signal.SIGCONT, signal.SIGTERM]


async def test_suspended_lent_and_back(clusters):
    cluster, agent, low = await made(clusters, mode="suspend")
    high = await push(cluster)
    await cluster.in_state(high, JobState.RUNNING)
    assert cluster.state.jobs[low].state is JobState.SUSPENDED
    assert [(call.rid.job_id, call.resume) for call in agent.suspends] == [(low, False)]
    await cluster.crash()
    await cluster.restart()
    assert cluster.state.jobs[low].push.lent
    answer = await cluster.stub.ResumeJob(
        pb.ResumeJobRequest(targets=[pb.JobTarget(job_id=low)]), metadata=cluster.user()
    )
    assert "goes on by itself" in answer.results[0].text
    await cluster.report(agent, high)
    await cluster.in_state(low, JobState.RUNNING)
    await reach(lambda: not cluster.state.jobs[low].untold)
    assert [(call.rid.job_id, call.resume) for call in agent.suspends][-1] == (low, True)


async def test_it_goes_on_when_the_other_is_gone_before_it_started(clusters):
    cluster, agent, low = await made(clusters, mode="suspend")
    await agent.stop()
    high = await push(cluster)
    await cluster.in_state(low, JobState.SUSPENDED)
    assert not await cluster.cancel(high)
    await agent.start()
    await cluster.in_state(low, JobState.RUNNING)
    await reach(lambda: not cluster.state.jobs[low].untold)


@pytest.mark.parametrize("mode", ["cancel", "requeue", "suspend"])
async def test_from_when_on_is_shown(clusters, mode):
    cluster, _, low = await made(clusters, mode=mode)
    shown = await cluster.job(low)
    assert shown.preempt_eligible_at == cluster.state.jobs[low].start_at
    high = await cluster.submit(partition="high", hold=True)
    assert not (await cluster.job(high)).HasField("preempt_eligible_at")
