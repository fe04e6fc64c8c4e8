"""Role changes of one member, driven by hand: what ends, what is forgotten, what is taken up again."""

import asyncio

import grpc
import pytest
from grpc import aio

from spur_core.errors import BusyError
from spur_core.ids import STEP_BATCH
from spur_core.states import JobState
from spur_ctld.ledger import AFTERMATH_SECS, Ledger
from spur_ctld.replication.errors import NotLeader, Unknown
from spur_ctld.replication.roles import Role
from spur_ctld.state import ops
from spur_ctld.state.cluster import ClusterState
from spur_proto import controller_pb2 as pb


async def reach(condition, secs=20.0):
    loop = asyncio.get_running_loop()
    end = loop.time() + secs
    while not (found := condition()):
        assert loop.time() < end, "never came true"
        await asyncio.sleep(0.005)
    return found


async def lose(cluster):
    """Another controller leads, as far as this one's shell knows."""
    leadership = cluster.controller.leadership
    leadership.on_role(Role.FOLLOWER, 2)
    assert not leadership.open
    await reach(lambda: leadership.office is None)


async def win(cluster, term=3):
    cluster.controller.leadership.on_role(Role.LEADER, term)
    await reach(lambda: cluster.controller.leadership.open)


async def test_calls_for_a_leader_are_refused_so_that_they_are_repeated(cluster):
    await lose(cluster)
    with pytest.raises(aio.AioRpcError) as caught:
        await cluster.submit()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert dict(caught.value.trailing_metadata())["x-spur-code"] == "not_leader"
    assert not cluster.state.jobs
    await win(cluster)
    assert await cluster.submit() == 1


async def test_no_report_is_acknowledged_without_its_record(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)
    await lose(cluster)
    entry = pb.RecoveryEntry(state=pb.RECOVERY_STATE_LIVE)
    entry.rid.job_id, entry.rid.run_attempt, entry.rid.step_id = job, 1, STEP_BATCH
    recovery = pb.ReportStepdRecoveryRequest(hostname="n1", boot_id="boot-1", entries=[entry])
    for call in (
        lambda: cluster.report(agent, job, code=3),
        lambda: cluster.beat(agent),
        lambda: cluster.stub.ReportStepdRecovery(recovery, metadata=cluster.as_node("n1")),
    ):
        with pytest.raises(aio.AioRpcError) as caught:
            await call()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert cluster.state.jobs[job].state is JobState.RUNNING
    await win(cluster)
    assert await cluster.report(agent, job, code=3) == pb.REPORT_VERDICT_ACCEPTED


async def test_no_order_leaves_in_the_name_of_a_term_that_is_over(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)
    old = cluster.controller.office.agents
    leadership = cluster.controller.leadership
    leadership.on_role(Role.FOLLOWER, 2)
    # At once, before anything has had time to be stopped.
    with pytest.raises(NotLeader):
        await old.end(f"127.0.0.1:{agent.port}", job, 1, 0, "cancelled")
    with pytest.raises(NotLeader):
        await cluster.controller.ledger.commit(ops.Deadline(at=0.0, job_ids=()))
    assert not agent.cancels
    await win(cluster, 9)
    assert await cluster.cancel(job) == ""
    await cluster.in_state(job, JobState.CANCELLED)
    assert {request.term for request in agent.cancels} == {9}


async def test_a_launch_under_way_is_asked_about_and_not_made_again(cluster):
    agent = await cluster.add_agent("n1")
    agent.gate.clear()
    job = await cluster.submit()
    await reach(lambda: agent.entered)
    await lose(cluster)
    assert cluster.state.jobs[job].state is JobState.CONFIGURING
    agent.gate.set()
    await win(cluster)
    await reach(lambda: cluster.state.jobs[job].state is JobState.RUNNING)
    # The call was cancelled with its connection, or the agent has it and says so.
    assert len(agent.attempts) == len(set(agent.attempts))


async def test_watchers_and_those_in_line_are_told_to_ask_again(cluster):
    await cluster.add_agent("n1")
    job = await cluster.alloc(exclusive=True)
    await cluster.step(job)
    waiting = asyncio.create_task(cluster.step(job, request_id="two", wait_secs=50))
    stream = cluster.stub.WatchJob(pb.WatchJobRequest(job_id=job), metadata=cluster.user())
    await stream.read()
    await reach(lambda: cluster.controller.site.lines._lines.get(job))
    await lose(cluster)
    for call in (waiting, stream.read()):
        with pytest.raises(aio.AioRpcError) as caught:
            await asyncio.wait_for(call, 10)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_what_a_leader_remembered_is_forgotten(cluster):
    agent = await cluster.add_agent("n1")
    site = cluster.controller.site
    site.memory.cool("n1", site.monotonic() + 1000)
    await cluster.beat(agent)
    before = (site.memory, site.clients, site.lines, site.builder, site.recovery, site.agents)
    listening = len(site.ledger._listeners)
    await lose(cluster)
    assert site.loads == {}
    await win(cluster)
    after = (site.memory, site.clients, site.lines, site.builder, site.recovery, site.agents)
    assert not any(old is new for old, new in zip(before, after, strict=True))
    assert not site.memory.cooling(site.monotonic())
    assert set(site.memory.beats) == {"n1"}
    # Nothing of the old one listens any more.
    assert len(site.ledger._listeners) == len(set(site.ledger._listeners)) == listening


async def test_leadership_that_comes_and_goes_ends_with_the_last_word(cluster):
    leadership = cluster.controller.leadership
    for term in range(3, 40):
        leadership.on_role(Role.FOLLOWER, term)
        leadership.on_role(Role.LEADER, term + 1)
        await asyncio.sleep(0)
    await reach(lambda: leadership.open)
    assert cluster.controller.office.term == 40
    await cluster.submit()


class Silent:
    """A log that takes commands and never says what became of them."""

    async def propose(self, cmd, deadline=None):
        await asyncio.Event().wait()

    async def read_barrier(self, deadline=None):
        return 0


async def test_a_proposal_whose_leader_is_deposed_ends_with_its_fate_unknown():
    state = ClusterState.empty()
    ledger = Ledger(lambda: state, Silent())
    task = asyncio.create_task(ledger.commit(ops.Deadline(at=1.0, job_ids=())))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    began = loop.time()
    ledger.lead(leads=False)
    with pytest.raises(Unknown) as caught:
        await task
    assert isinstance(caught.value, BusyError)
    assert AFTERMATH_SECS - 0.1 < loop.time() - began < AFTERMATH_SECS + 5
