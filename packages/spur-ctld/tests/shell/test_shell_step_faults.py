"""Steps inside allocations when things go wrong: failing launches, restarts, clients that go; suspension."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from grpc import aio

from spur_core.ids import STEP_EXTERN
from spur_core.states import JobState
from spur_ctld.dispatch.steps import CLIENT_SECS
from spur_ctld.state import ops
from spur_proto import agent_pb2
from spur_proto import controller_pb2 as pb

RUNNING, PENDING = JobState.RUNNING, JobState.PENDING
COMPLETED, FAILED, CANCELLED = JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED


async def reach(condition: Callable[[], Any], what: str = "", tries: int = 1000) -> None:
    for _ in range(tries):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what or "never came true")


async def two_nodes(cluster: Any, cpus: int = 4) -> tuple[Any, Any]:
    return await cluster.add_agent("n1", cpus=cpus), await cluster.add_agent("n2", cpus=cpus)


async def hung_up(asked: "asyncio.Task[Any]") -> None:
    """The controller is gone, and with it the client's connection."""
    assert isinstance((await asyncio.gather(asked, return_exceptions=True))[0], BaseException)


def rids(agent: Any) -> set[tuple[int, int, int]]:
    return set(agent.held)


class TestLaunchFailures:
    async def test_a_node_that_refuses_ends_the_step_everywhere(self, cluster):
        one, two = await two_nodes(cluster)
        job = await cluster.alloc(2)
        two.step_refuse.append(
            agent_pb2.RunCommandResponse(failure=agent_pb2.LAUNCH_FAILURE_JOB, error="no such directory")
        )
        with pytest.raises(aio.AioRpcError) as failed:
            await cluster.step(job, min_nodes=2, request_id="r")
        text = f"Task launch for StepId={job}.0 failed on node n2: no such directory"
        assert failed.value.details() == text
        await reach(lambda: not cluster.state.jobs[job].steps)
        assert rids(one) == {(job, 1, STEP_EXTERN)}
        assert cluster.state.jobs[job].state is RUNNING
        (past,) = cluster.state.jobs[job].past_steps
        assert (past.row.state, past.stop.why) == (FAILED, "launch")
        with pytest.raises(aio.AioRpcError) as again:
            await cluster.step(job, min_nodes=2, request_id="r")
        assert again.value.details() == text

    async def test_an_answer_that_was_lost_is_asked_for(self, cluster):
        one = await cluster.add_agent("n1")
        job = await cluster.alloc()
        one.mute = 1
        answer = await cluster.step(job)
        assert answer.step.state == RUNNING
        assert (job, 1, 0) in one.probes
        assert len(one.commands) == 1

    async def test_a_request_that_was_lost_is_sent_again(self, cluster):
        one = await cluster.add_agent("n1")
        job = await cluster.alloc()
        one.deaf = 1
        answer = await cluster.step(job)
        assert answer.step.state == RUNNING
        assert len(one.commands) == 2

    async def test_a_step_stopped_while_it_is_launched(self, cluster):
        one = await cluster.add_agent("n1")
        job = await cluster.alloc()
        one.step_gate.clear()
        asked = asyncio.create_task(cluster.step(job))
        await reach(lambda: one.commands)
        assert not await cluster.cancel(job, step_id=0)
        one.step_gate.set()
        with pytest.raises(aio.AioRpcError):
            await asked
        await reach(lambda: not cluster.state.jobs[job].steps)
        assert rids(one) == {(job, 1, STEP_EXTERN)}, "what came up after the first kill was killed as well"


class TestRestarts:
    async def test_a_step_that_runs_goes_on(self, cluster):
        one = await cluster.add_agent("n1")
        job = await cluster.alloc()
        made = await cluster.step(job, request_id="r")
        await cluster.crash()
        await cluster.restart()
        again = await cluster.step(job, request_id="r")
        assert again.step.rid == made.step.rid
        assert len(one.commands) == 1
        assert await cluster.report(one, job, step_id=0, code=4) == pb.REPORT_VERDICT_ACCEPTED
        over = await cluster.step(job, request_id="r")
        assert (over.step.state, over.step.exit.code) == (FAILED, 4)

    async def test_launched_everywhere_before_the_commit(self, cluster):
        one, two = await two_nodes(cluster)
        job = await cluster.alloc(2)
        two.step_gate.clear()
        asked = asyncio.create_task(cluster.step(job, min_nodes=2, request_id="r"))
        await reach(lambda: two.commands and (job, 1, 0) in one.held)
        await cluster.crash()
        await hung_up(asked)
        two.held[job, 1, 0] = "live"
        await cluster.restart()
        await reach(lambda: cluster.state.jobs[job].steps[0].start_at)
        answer = await cluster.step(job, min_nodes=2, request_id="r")
        assert answer.step.rid.step_id == 0
        two.held.pop((job, 1, 0))

    async def test_launched_on_one_node_of_two(self, cluster):
        """The client asks again: the other node gets it too, and no node gets it twice."""
        one, two = await two_nodes(cluster)
        job = await cluster.alloc(2)
        two.step_gate.clear()
        asked = asyncio.create_task(cluster.step(job, min_nodes=2, request_id="r"))
        await reach(lambda: two.commands and (job, 1, 0) in one.held)
        await cluster.crash()
        await hung_up(asked)
        await cluster.restart()
        two.step_gate.set()
        answer = await cluster.step(job, min_nodes=2, request_id="r")
        assert answer.step.rid.step_id == 0
        assert (job, 1, 0) in two.held
        assert len(one.commands) == 1

    async def test_launched_on_one_node_of_two_and_its_client_is_gone(self, cluster):
        one, two = await two_nodes(cluster)
        job = await cluster.alloc(2)
        two.step_gate.clear()
        asked = asyncio.create_task(cluster.step(job, min_nodes=2, request_id="r"))
        await reach(lambda: two.commands and (job, 1, 0) in one.held)
        await cluster.crash()
        await hung_up(asked)
        await cluster.restart()
        # Both nodes have answered, the client is waited for.
        await reach(lambda: (job, 1, 0) in one.probes and (job, 1, 0) in two.probes)
        await reach(lambda: job in cluster.controller.ledger._waiters)
        cluster.clock.ahead += CLIENT_SECS
        await reach(lambda: not cluster.state.jobs[job].steps)
        assert rids(one) == {(job, 1, STEP_EXTERN)}
        with pytest.raises(aio.AioRpcError, match="the controller restarted during the launch"):
            await cluster.step(job, min_nodes=2, request_id="r")

    async def test_launched_nowhere(self, cluster):
        """It never was: the client's repeat makes a new step, and its program runs once."""
        one = await cluster.add_agent("n1")
        job = await cluster.alloc()
        one.step_gate.clear()
        one.deaf = 1
        asked = asyncio.create_task(cluster.step(job, request_id="r"))
        await reach(lambda: one.commands)
        await cluster.crash()
        await hung_up(asked)
        one.step_gate.set()
        await cluster.restart()
        answer = await cluster.step(job, request_id="r")
        assert (answer.step.rid.step_id, answer.step.state) == (1, RUNNING)
        assert rids(one) == {(job, 1, STEP_EXTERN), (job, 1, 1)}

    async def test_a_stop_goes_on(self, cluster):
        one = await cluster.add_agent("n1")
        job = await cluster.alloc()
        await cluster.step(job)
        one.obeys = False
        assert not await cluster.cancel(job, step_id=0)
        await reach(lambda: one.cancels)
        await cluster.crash()
        count = len(one.cancels)
        await cluster.restart()
        await reach(lambda: len(one.cancels) > count)
        assert 0 in cluster.state.jobs[job].steps
        one.obeys = True
        await reach(lambda: not cluster.state.jobs[job].steps)
        assert rids(one) == {(job, 1, STEP_EXTERN)}

    async def test_a_resumption_is_told_after_all(self, cluster):
        one, two = await two_nodes(cluster)
        job = await cluster.alloc(2)
        assert not (await self._suspend(cluster, "SuspendJob", job))
        await reach(lambda: not cluster.state.jobs[job].untold)
        await two.stop()
        assert not (await self._suspend(cluster, "ResumeJob", job))
        await reach(lambda: cluster.state.jobs[job].untold == ("n2",))
        await cluster.crash()
        await two.start()
        count = len(one.suspends)
        await cluster.restart()
        await reach(lambda: not cluster.state.jobs[job].untold)
        assert [call.resume for call in two.suspends] == [False, True]
        assert len(one.suspends) == count, "it was told before"

    async def _suspend(self, cluster, name, job):
        request = getattr(pb, f"{name}Request")(targets=[pb.JobTarget(job_id=job)])
        answer = await getattr(cluster.stub, name)(request, metadata=cluster.user())
        return answer.results[0].text


class TestClientsThatGo:
    async def test_what_was_recorded_is_launched_all_the_same(self, cluster):
        one = await cluster.add_agent("n1")
        job = await cluster.alloc()
        one.step_gate.clear()
        asked = asyncio.create_task(cluster.step(job, request_id="r"))
        await reach(lambda: one.commands)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        one.step_gate.set()
        await reach(lambda: cluster.state.jobs[job].steps[0].start_at)
        assert (await cluster.step(job, request_id="r")).step.rid.step_id == 0
        assert len(one.commands) == 1

    async def record(self, cluster, job, key):
        """A step that is in the log while its call never heard of it."""
        await cluster.controller.ledger.commit(
            ops.StepCreate(
                at=cluster.clock.time(),
                job_id=job,
                attempt=1,
                who=ops.Who(uid=0, admin=True),
                ask=ops.StepAsk(),
                request_id=f"step:0:{job}:{key}",
            )
        )

    async def test_a_repeat_launches_what_nobody_did(self, cluster):
        one = await cluster.add_agent("n1")
        job = await cluster.alloc()
        await self.record(cluster, job, "r")
        answer = await cluster.step(job, request_id="r", argv=[b"id"])
        assert (answer.step.rid.step_id, answer.step.state) == (0, RUNNING)
        assert [list(spec.argv) for spec in one.commands] == [[b"id"]]

    async def test_without_a_repeat_it_is_taken_back(self, cluster):
        await cluster.add_agent("n1")
        job = await cluster.alloc()
        await self.record(cluster, job, "r")
        await cluster.controller.timers.tick()
        assert cluster.state.jobs[job].steps
        cluster.clock.ahead += 121
        await cluster.beat(cluster.agents["n1"])
        await cluster.controller.timers.tick()
        await reach(lambda: not cluster.state.jobs[job].steps)
        assert not cluster.state.jobs[job].past_steps


async def test_an_answer_outlives_the_memory_of_its_step(cluster):
    one = await cluster.add_agent("n1")
    job = await cluster.alloc()
    await cluster.step(job, request_id="r")
    await cluster.report(one, job, step_id=0)
    for number in range(1, 34):
        await cluster.step(job)
        await cluster.report(one, job, step_id=number)
    with pytest.raises(aio.AioRpcError, match="already completing or completed"):
        await cluster.step(job, request_id="r")


async def test_suspend_and_resume(cluster):
    one = await cluster.add_agent("n1")
    job = await cluster.submit(time_limit_secs=60)
    await cluster.in_state(job, RUNNING)

    async def call(name, user="root"):
        request = getattr(pb, f"{name}Request")(targets=[pb.JobTarget(job_id=job)])
        answer = await getattr(cluster.stub, name)(request, metadata=cluster.user(user))
        return answer.results[0].text

    assert await call("SuspendJob", "nobody") == "Access/permission denied"
    assert await call("ResumeJob") == "Job is not suspended"
    assert await call("SuspendJob") == ""
    assert cluster.state.jobs[job].state is JobState.SUSPENDED
    await reach(lambda: one.suspends)
    (told,) = one.suspends
    assert (told.rid.job_id, told.rid.run_attempt, told.rid.HasField("step_id"), told.resume) == (
        job,
        1,
        False,
        False,
    )
    # Its clock stands still.
    cluster.clock.ahead += 3600
    await cluster.beat(one)
    await cluster.controller.timers.tick()
    assert cluster.state.jobs[job].time_signalled_at is None
    assert await call("ResumeJob") == ""
    await reach(lambda: not cluster.state.jobs[job].untold)
    assert one.suspends[-1].resume
    await cluster.controller.timers.tick()
    assert cluster.state.jobs[job].time_signalled_at is None
    shown = await cluster.job(job)
    assert shown.run_secs < 60
