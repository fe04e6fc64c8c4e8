"""Three controllers with real logs and mutual TLS on loopback: who answers what, and what a change of leaders
leaves alone.
"""

import asyncio
import time

import grpc
import pytest
from grpc import aio

from spur_auth.passing import seal
from spur_core.states import JobState
from spur_ctld.api import gate
from spur_ctld.state import codec
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb


async def reach(condition, secs=20.0):
    loop = asyncio.get_running_loop()
    end = loop.time() + secs
    while not (found := condition()):
        assert loop.time() < end, "never came true"
        await asyncio.sleep(0.005)
    return found


async def test_every_member_takes_a_job_and_shows_the_queue(trio):
    await trio.add_agent("n1")
    jobs = []
    for at in (1, 2, 3):
        trio.ask(at)
        jobs.append(await trio.submit())
    assert jobs == [1, 2, 3]
    for at in (1, 2, 3):
        trio.ask(at)
        answer = await trio.stub.GetJobs(pb.GetJobsRequest(), metadata=trio.user())
        assert [job.job_id for job in answer.jobs] == jobs
        nodes = await trio.stub.GetNodes(pb.GetNodesRequest(), metadata=trio.user())
        assert [node.name for node in nodes.nodes] == ["n1"]
    await trio.even()
    assert len({codec.digest(member.machine.state) for member in trio.members.values()}) == 1


async def test_an_answer_that_was_passed_on_names_the_leader(trio):
    trio.ask(trio.followers[0])
    call = trio.stub.SubmitJob(
        pb.SubmitJobRequest(spec=common_pb2.JobSpec(script=b"#!/bin/sh\n", name="j", work_dir="/tmp")),
        metadata=trio.user(),
    )
    told = dict(await call.initial_metadata())
    assert told["x-spur-leader"] == trio.addresses[trio.leader - 1]
    assert (await call).job_id == 1


async def test_statuses_come_back_as_the_leader_gave_them(trio):
    trio.ask(trio.followers[0])
    with pytest.raises(aio.AioRpcError) as caught:
        await trio.stub.CompleteJob(pb.CompleteJobRequest(job_id=77), metadata=trio.user())
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert dict(caught.value.trailing_metadata())["x-spur-code"] == "no_such_job"
    with pytest.raises(aio.AioRpcError) as caught:
        await trio.stub.CompleteJob(pb.CompleteJobRequest(job_id=77))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_call_is_passed_on_once_only(trio):
    trio.ask(trio.followers[0])
    metadata = (*trio.user(), ("x-spur-forwarded", "-"))
    with pytest.raises(aio.AioRpcError) as caught:
        await trio.stub.CompleteJob(pb.CompleteJobRequest(job_id=77), metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    told = dict(caught.value.trailing_metadata())
    assert told["x-spur-code"] == "not_leader"
    assert told["x-spur-leader"] == trio.addresses[trio.leader - 1]


async def test_who_passes_a_call_on_is_believed_only_with_a_controllers_seal(trio):
    """The address of an agent is where its call came from, not the controller that passed it on."""
    leader = trio.leader
    trio.ask(leader)
    request = pb.RegisterAgentRequest(
        node="n9", hostname="n9", port=7000, cpus=1, memory_mb=100, boot_id="b", version="0"
    )
    lie = (*trio.as_node("n9"), ("x-spur-peer", "ipv4:10.1.2.3:5"), ("x-spur-forwarded", "-"))
    await trio.stub.RegisterAgent(request, metadata=lie)
    assert trio.state.nodes["n9"].address == "127.0.0.1"
    own, address = trio.as_node("n9"), "ipv4:10.1.2.3:5"
    member = trio.members[leader]
    for wrong in (
        member._credentials.token(),
        member._seal("ipv4:10.1.2.4:5", dict(own)["authorization"], ""),
        member._seal(address, "", ""),
        seal(member.site.key, time.time() - 200, address, dict(own)["authorization"], ""),
        "1.x",
        "1." + "0" * 64,
    ):
        lie = (*own, ("x-spur-peer", address), ("x-spur-forwarded", wrong))
        await trio.stub.RegisterAgent(request, metadata=lie)
        assert trio.state.nodes["n9"].address == "127.0.0.1", wrong
    right = member._seal(address, dict(own)["authorization"], "")
    truth = (*own, ("x-spur-peer", address), ("x-spur-forwarded", right))
    await trio.stub.RegisterAgent(request, metadata=truth)
    assert trio.state.nodes["n9"].address == "10.1.2.3"


async def test_a_watcher_at_a_follower_sees_the_job_end(trio):
    agent = await trio.add_agent("n1")
    job = await trio.submit()
    trio.ask(trio.followers[0])
    stream = trio.stub.WatchJob(pb.WatchJobRequest(job_id=job), metadata=trio.user())
    seen = []

    async def watch():
        async for answer in stream:
            seen.append(answer.job.state)

    task = asyncio.create_task(watch())
    await reach(lambda: common_pb2.JOB_STATE_RUNNING in seen)
    await trio.report(agent, job)
    await asyncio.wait_for(task, 10)
    assert seen[-1] == common_pb2.JOB_STATE_COMPLETED


@pytest.mark.parametrize("asked", ["leader", "follower"])
async def test_watchers_are_sent_to_the_next_leader(trio, asked):
    await trio.add_agent("n1")
    job = await trio.submit()
    old = trio.leader
    trio.ask(old if asked == "leader" else trio.followers[0])
    stream = trio.stub.WatchJob(pb.WatchJobRequest(job_id=job), metadata=trio.user())
    assert (await stream.read()).job.job_id == job
    trio.ask(trio.followers[-1])
    answer = await trio.stub.Takeover(pb.TakeoverRequest(), metadata=trio.user())
    assert answer.leader_id == trio.followers[-1] or trio.leader in (answer.leader_id, 0)

    async def to_the_end():
        while await stream.read() is not aio.EOF:
            pass

    with pytest.raises(aio.AioRpcError) as caught:
        await asyncio.wait_for(to_the_end(), 15)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert await trio.led() != old


async def test_a_stop_hands_over_and_nothing_is_lost(trio):
    agent = await trio.add_agent("n1")
    job = await trio.submit()
    await trio.in_state(job, JobState.RUNNING)
    old = trio.leader
    await trio.stop(old)
    new = await trio.led()
    assert new != old
    record = trio.state.jobs[job]
    assert (record.state, record.run_attempt) == (JobState.RUNNING, 1)
    assert await trio.report(agent, job) == pb.REPORT_VERDICT_ACCEPTED
    await trio.in_state(job, JobState.COMPLETED)
    # The one that comes back follows and knows it all.
    await trio.start(old)
    await reach(lambda: trio.members[old].machine.state.jobs.get(job) is not None)
    assert trio.leader == new


async def test_a_launch_under_way_is_asked_about_by_the_next_leader(trio):
    """Matrix row 14: the agent has the launch and the leader dies before it hears so."""
    agent = await trio.add_agent("n1")
    agent.gate.clear()
    job = await trio.submit()
    await reach(lambda: agent.entered)
    agent.gate.set()
    await trio.kill(trio.leader)
    await trio.led()
    await reach(lambda: trio.state.jobs[job].state is not JobState.CONFIGURING)
    await reach(lambda: trio.state.jobs[job].state is JobState.RUNNING)
    assert len(agent.attempts) == trio.state.jobs[job].run_attempt


async def test_a_fence_goes_on(trio):
    """Matrix row 15: the next leader goes on from the replicated list, in the name of its own term."""
    agent = await trio.add_agent("n1")
    job = await trio.submit()
    await trio.in_state(job, JobState.RUNNING)
    agent.obeys = False
    assert await trio.cancel(job) == ""
    await reach(lambda: agent.cancels)
    old_term = agent.cancels[-1].term
    await trio.kill(trio.leader)
    agent.obeys = True
    await trio.led()
    await trio.in_state(job, JobState.CANCELLED)
    assert agent.cancels[-1].term > old_term


async def test_a_repeat_at_the_next_leader_gets_the_first_answer(trio):
    await trio.add_agent("n1", cpus=1)
    metadata = (*trio.user(), ("x-spur-request-id", "ab" * 16))
    request = pb.SubmitJobRequest(spec=common_pb2.JobSpec(script=b"#!/bin/sh\n", name="j", work_dir="/tmp"))
    first = await trio.stub.SubmitJob(request, metadata=metadata)
    await trio.in_state(first.job_id, JobState.RUNNING)
    target = pb.JobTarget(job_id=first.job_id)
    again = pb.RequeueJobRequest(targets=[target])
    await trio.stub.RequeueJob(again, metadata=metadata)
    await reach(lambda: trio.state.jobs[first.job_id].run_attempt == 2)
    # A launch that the leader's end cuts off is another attempt.
    await trio.in_state(first.job_id, JobState.RUNNING)
    await trio.kill(trio.leader)
    await trio.led()
    assert (await trio.stub.SubmitJob(request, metadata=metadata)).job_id == first.job_id
    results = (await trio.stub.RequeueJob(again, metadata=metadata)).results
    assert [result.code for result in results] == [""]
    assert list(trio.state.jobs) == [first.job_id]
    await trio.in_state(first.job_id, JobState.RUNNING)
    assert trio.state.jobs[first.job_id].run_attempt == 2


async def test_nobody_is_called_down_because_the_leader_changed(trio):
    agent = await trio.add_agent("n1")
    job = await trio.submit()
    await trio.in_state(job, JobState.RUNNING)
    await trio.kill(trio.leader)
    await trio.led()
    trio.clock.ahead += 85
    await trio.controller.timers.tick()
    assert trio.state.jobs[job].state is JobState.RUNNING
    answer = await trio.beat(agent)
    assert not answer.register_again
    assert answer.term == trio.controller.node.term


async def test_without_a_majority_there_are_stale_reads_only(trio):
    await trio.add_agent("n1")
    job = await trio.submit()
    await trio.even()
    alone = trio.followers[0]
    for at in [at for at in trio.members if at != alone]:
        await trio.kill(at)
    trio.ask(alone)
    request = pb.GetJobsRequest()
    with pytest.raises(aio.AioRpcError) as caught:
        await trio.stub.GetJobs(request, metadata=trio.user(), timeout=2)
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    call = trio.stub.GetJobs(request, metadata=(*trio.user(), ("x-spur-stale-ok", "1")))
    assert [found.job_id for found in (await call).jobs] == [job]
    told = dict(await call.trailing_metadata())["x-spur-stale"]
    assert told.startswith("applied=")
    assert "silent=" in told
    with pytest.raises(aio.AioRpcError) as caught:
        await trio.stub.CompleteJob(pb.CompleteJobRequest(job_id=job), metadata=trio.user())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    ping = await trio.stub.Ping(pb.PingRequest(), metadata=trio.user())
    assert (ping.member_id, ping.role, len(ping.members)) == (alone, "backup", 3)


async def test_a_follower_whose_state_is_replaced_shows_the_new_one(trio):
    """A snapshot is installed under readers: nothing that they use may point into the old state."""
    await trio.add_agent("n1")
    first = await trio.submit()
    behind = trio.members[trio.followers[0]]
    await trio.even()
    trio.ask(trio.followers[0])
    shown = await trio.stub.GetPartitions(pb.GetPartitionsRequest(), metadata=trio.user())
    assert shown.partitions[0].name == "debug"
    old = behind.machine.state
    woken = asyncio.create_task(behind.ledger.job_changed(first, 10))
    await asyncio.sleep(0)
    behind.machine.restore(list(trio.controller.machine.freeze()))
    assert await woken
    assert behind.ledger.state is not old
    second = await trio.submit()
    answer = await trio.stub.GetJobs(pb.GetJobsRequest(), metadata=trio.user())
    assert [job.job_id for job in answer.jobs] == [first, second]
    assert second not in old.jobs
    again = await trio.stub.GetPartitions(pb.GetPartitionsRequest(), metadata=trio.user())
    assert again.partitions == shown.partitions
    await trio.even()
    assert codec.digest(behind.machine.state) == codec.digest(trio.state)


async def test_a_call_that_could_not_leave_waits_for_the_next_leader(trio):
    """The follower has not noticed yet that the leader is gone."""
    asked = trio.followers[0]
    trio.ask(asked)
    await trio.submit()
    await trio.kill(trio.leader)
    assert await trio.submit() == 2
    answer = await trio.stub.GetNodes(pb.GetNodesRequest(), metadata=trio.user())
    assert list(answer.nodes) == []


async def test_loads_are_shown_by_every_member(trio):
    """Only the leader hears of them."""
    agent = await trio.add_agent("n1")
    request = pb.HeartbeatRequest(node=agent.name, boot_id="boot-1", cpu_load=250, free_memory_mb=77)
    await trio.stub.Heartbeat(request, metadata=trio.as_node("n1"))
    for at in (1, 2, 3):
        trio.ask(at)
        (node,) = (await trio.stub.GetNodes(pb.GetNodesRequest(), metadata=trio.user())).nodes
        assert node.free_memory_mb == 77


async def test_ping_and_takeover(trio):
    for at in (1, 2, 3):
        trio.ask(at)
        ping = await trio.stub.Ping(pb.PingRequest(), metadata=trio.user())
        assert ping.member_id == at
        assert ping.role == ("primary" if at == trio.leader else "backup")
        assert ping.leader_id == trio.leader
        assert ping.leader_address == trio.addresses[trio.leader - 1]
        assert [member.client_address for member in ping.members] == trio.addresses
    wanted = trio.followers[0]
    trio.ask(trio.followers[1])
    with pytest.raises(aio.AioRpcError) as caught:
        await trio.stub.Takeover(pb.TakeoverRequest(member=wanted), metadata=trio.user("nobody"))
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(aio.AioRpcError) as caught:
        await trio.stub.Takeover(pb.TakeoverRequest(member=9), metadata=trio.user())
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    answer = await trio.stub.Takeover(pb.TakeoverRequest(member=wanted), metadata=trio.user())
    assert answer.leader_id == wanted
    await reach(lambda: trio.leader == wanted)
    # The one that is asked, by default; and nothing to do for the one that leads.
    trio.ask(wanted)
    assert (await trio.stub.Takeover(pb.TakeoverRequest(), metadata=trio.user())).leader_id == wanted


async def test_the_time_never_goes_back_with_a_slower_clock(trio):
    await trio.submit()
    trio.clock.ahead += 3600
    second = await trio.submit()
    latest = trio.state.time
    await trio.kill(trio.leader)
    trio.clock.ahead -= 3600
    await trio.led()
    third = await trio.submit()
    assert trio.state.jobs[third].submit_at >= trio.state.jobs[second].submit_at
    assert trio.state.time >= latest


async def test_nothing_is_stamped_by_a_clock_that_is_wrong(trio):
    """Time limits and begin times would go by it, and the group's time never goes back."""
    wrong = trio.followers[0]
    before = trio.state.time
    await trio.kill(wrong)
    trio.wrong[wrong] = 3600.0
    await trio.start(wrong)
    told = trio.members[wrong].node
    await reach(lambda: len(told.alarms()) == 2)
    for _ in range(2):
        leader = await trio.led()
        assert leader != wrong
        await trio.stub.Takeover(pb.TakeoverRequest(member=wrong), metadata=trio.user())
        await reach(lambda: trio.leader not in (0, wrong))
    await trio.led()
    await trio.submit()
    assert before <= trio.state.time < before + 1800


async def test_requests_that_wait_for_a_leader_do_not_fill_the_memory(trio, monkeypatch):
    monkeypatch.setattr(gate, "MOST_HELD_BYTES", 10_000)
    asked, *others = (1, 2, 3)
    for at in others:
        await trio.kill(at)
    await reach(lambda: not trio.leader)
    spec = common_pb2.JobSpec(script=b"#!/bin/sh\n#" + b"x" * 6000, name="j", work_dir="/tmp")
    trio.ask(asked)

    async def code() -> str:
        with pytest.raises(aio.AioRpcError) as caught:
            await trio.stub.SubmitJob(pb.SubmitJobRequest(spec=spec), metadata=trio.user(), timeout=20)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        return str(dict(caught.value.trailing_metadata())["x-spur-code"])

    assert sorted(await asyncio.gather(code(), code(), code())) == ["no_leader", "overloaded", "overloaded"]
    assert await code() == "no_leader", "there is room again"
