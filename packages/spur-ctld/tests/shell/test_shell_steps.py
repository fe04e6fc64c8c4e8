"""Steps inside allocations through the RPCs: made, launched, waited for, watched and stopped."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc import aio

from spur_core.ids import STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE
from spur_core.states import JobState
from spur_proto import agent_pb2, common_pb2
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


async def test_an_allocation_from_submit_to_its_end(cluster):
    one, two = await two_nodes(cluster)
    job = await cluster.alloc(2, num_tasks=4, environment=[b"A=1"], name="interactive")
    assert rids(one) == rids(two) == {(job, 1, STEP_EXTERN)}
    for agent, index in ((one, 0), (two, 1)):
        (spec,) = agent.launches
        assert (spec.hold, spec.job_lifetime, spec.node_index) == (True, True, index)
        assert not spec.script
        assert not spec.argv
        assert list(spec.environment) == [b"A=1"]
        assert spec.job_tasks == 4
    shown = await cluster.job(job)
    assert (shown.alloc_only, shown.batch) == (True, False)
    await cluster.stub.CompleteJob(
        pb.CompleteJobRequest(job_id=job, exit=common_pb2.ExitStatus(code=3)), metadata=cluster.user()
    )
    await cluster.in_state(job, FAILED)
    assert cluster.state.jobs[job].exit.code == 3
    assert not rids(one) | rids(two)
    assert {cancel.reason for cancel in one.cancels} == {"ended"}
    assert {cancel.grace_secs for cancel in one.cancels} == {0}


async def test_a_batch_job_holds_its_other_nodes_until_the_script_ends(cluster):
    one, two = await two_nodes(cluster)
    job = await cluster.submit(min_nodes=2)
    await cluster.in_state(job, RUNNING)
    assert (one.launches[0].hold, two.launches[0].hold) == (False, True)
    assert one.launches[0].script
    assert not two.launches[0].script
    await cluster.report(one, job, code=0)
    assert cluster.state.jobs[job].state is JobState.COMPLETING
    await cluster.in_state(job, COMPLETED)
    assert not rids(two)


async def test_a_step_over_two_nodes(cluster):
    one, two = await two_nodes(cluster)
    job = await cluster.alloc(2, exclusive=True, num_tasks=8)
    answer = await cluster.step(
        job,
        num_tasks=7,
        distribution="cyclic",
        environment=[b"B=2"],
        rlimits=["NOFILE=100:200"],
        umask=0o27,
        label=True,
        work_dir="/data",
        shape=common_pb2.StepShape(cpu_bind="none"),
        submit_host="login",
        time_limit_secs=60,
    )
    assert (answer.busy, answer.step.rid.step_id, answer.step.state) == (False, 0, RUNNING)
    assert [node.node for node in answer.nodes] == ["n1", "n2"]
    assert answer.nodes[0].address.endswith(f":{one.port}")
    (spec,) = two.commands
    assert (spec.rid.job_id, spec.rid.run_attempt, spec.rid.step_id) == (job, 1, 0)
    assert list(spec.slice.ranks) == [1, 3, 5]
    assert (spec.slice.cpus, spec.job_slice.cpus) == (4, 4)
    assert (spec.node_index, spec.step_node_index, list(spec.step_nodes)) == (1, 1, ["n1", "n2"])
    assert (spec.step_tasks, spec.step_tasks_per_node_text) == (7, "4,3")
    assert (spec.hold, spec.job_lifetime, spec.spool_output, spec.label) == (False, False, True, True)
    assert (spec.work_dir, spec.umask, list(spec.rlimits)) == ("/data", 0o27, ["NOFILE=100:200"])
    assert (spec.step_name, spec.distribution, spec.shape.cpu_bind) == ("hostname", "cyclic", "none")
    assert (spec.srun_host, spec.srun_address) == ("login", "127.0.0.1")
    assert list(spec.environment) == [b"B=2"]
    assert (spec.uid, spec.user) == (0, "root")
    await cluster.report(one, job, step_id=0)
    await cluster.report(two, job, step_id=0, code=2)
    record = cluster.state.jobs[job]
    assert (record.state, record.steps, record.derived_exit.code) == (RUNNING, {}, 2)


async def test_steps_wait_in_order(cluster):
    one = await cluster.add_agent("n1")
    job = await cluster.alloc(exclusive=True)
    await cluster.step(job)
    second = asyncio.create_task(cluster.step(job, request_id="two"))
    await reach(lambda: cluster.controller.site.lines._lines.get(job))
    # A small one that came later does not overtake the one that waits for the whole node.
    third = asyncio.create_task(cluster.step(job, request_id="three", exact=True, num_tasks=1))
    await reach(lambda: len(cluster.controller.site.lines._lines[job]) == 2)
    overlapping = await cluster.step(job, overlap=True)
    assert overlapping.step.rid.step_id == 1, "one that shares does not stand in line"
    await cluster.report(one, job, step_id=0)
    assert (await second).step.rid.step_id == 2
    assert not third.done()
    await cluster.report(one, job, step_id=2)
    assert (await third).step.rid.step_id == 3
    assert not cluster.controller.site.lines._lines


async def test_a_place_in_line_is_kept_for_a_client_that_calls_again(cluster):
    one = await cluster.add_agent("n1")
    job = await cluster.alloc(exclusive=True)
    await cluster.step(job)
    answer = await cluster.step(job, request_id="two", wait_secs=0)
    assert (answer.busy, answer.text) == (True, "Requested nodes are busy")
    third = asyncio.create_task(cluster.step(job, request_id="three"))
    await reach(lambda: len(cluster.controller.site.lines._lines[job]) == 2)
    await cluster.report(one, job, step_id=0)
    assert (await cluster.step(job, request_id="two")).step.rid.step_id == 1
    await cluster.report(one, job, step_id=1)
    assert (await third).step.rid.step_id == 2
    # One that never calls again loses its place.
    assert (await cluster.step(job, request_id="gone", wait_secs=0)).busy
    await cluster.report(one, job, step_id=2)
    cluster.clock.ahead += 11
    assert (await cluster.step(job, request_id="four")).step.rid.step_id == 3


async def test_immediate_is_told_at_once_and_takes_no_place(cluster):
    await cluster.add_agent("n1")
    job = await cluster.alloc(exclusive=True)
    await cluster.step(job)
    assert (await cluster.step(job, immediate=True, request_id="now")).busy
    assert not cluster.controller.site.lines._lines


async def test_a_script_may_make_a_step_before_its_last_node_has_confirmed(cluster):
    one, two = await two_nodes(cluster)
    two.gate.clear()
    job = await cluster.submit(min_nodes=2)
    await reach(lambda: one.held)
    asked = asyncio.create_task(cluster.step(job))
    await reach(lambda: job in cluster.controller.ledger._waiters, "the step waits for a change of its job")
    assert not asked.done()
    two.gate.set()
    assert (await asked).step.rid.step_id == 0


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"num_tasks": 9}, "INVALID_ARGUMENT", "More processors requested than permitted"),
        ({"min_nodes": 2}, "INVALID_ARGUMENT", "Requested node configuration is not available"),
        ({"nodelist": "n9"}, "INVALID_ARGUMENT", "Requested node configuration is not available"),
        ({"argv": []}, "INVALID_ARGUMENT", "No command given to execute."),
        ({"distribution": "heap"}, "INVALID_ARGUMENT", "Invalid --distribution specification: 'heap'"),
        ({"gres": ["gpu:9"]}, "INVALID_ARGUMENT", "Invalid generic resource (gres) specification"),
        ({"relative": 1, "nodelist": "n1"}, "INVALID_ARGUMENT", "relative: cannot be combined with"),
        ({"work_dir": "x"}, "INVALID_ARGUMENT", "work_dir: 'x' is not an absolute path"),
        ({"environment": [b"A"]}, "INVALID_ARGUMENT", "environment: every entry must be NAME=value"),
        ({"rlimits": ["x"]}, "INVALID_ARGUMENT", "rlimits: 'x' is not NAME=SOFT:HARD"),
        ({"umask": 0o1000}, "INVALID_ARGUMENT", "umask: 0o1000 is more than 0777"),
        (
            {"shape": common_pb2.StepShape(task_prolog="x")},
            "INVALID_ARGUMENT",
            "task_prolog: 'x' is not an absolute path",
        ),
        (
            {"shape": common_pb2.StepShape(mpi="pmix")},
            "INVALID_ARGUMENT",
            "mpi: 'pmix' is not supported by this release",
        ),
        (
            {"shape": common_pb2.StepShape(commands=[common_pb2.RankCommand(ranks=[0])])},
            "INVALID_ARGUMENT",
            "commands: a command must have words",
        ),
    ],
)
async def test_refusals(cluster, fields, status, text):
    await cluster.add_agent("n1")
    job = await cluster.alloc(exclusive=True, num_tasks=4)
    with pytest.raises(aio.AioRpcError) as refused:
        await cluster.step(job, **fields)
    assert refused.value.code() is grpc.StatusCode[status]
    assert refused.value.details().startswith(text)
    assert cluster.state.jobs[job].next_step_id == 0


async def test_whose_job_it_is(cluster):
    await cluster.add_agent("n1")
    job = await cluster.alloc(user="daemon")
    for call in (
        lambda: cluster.step(job, "nobody"),
        lambda: cluster.stub.CompleteJob(pb.CompleteJobRequest(job_id=job), metadata=cluster.user("nobody")),
        lambda: cluster.stub.JobKeepalive(
            pb.JobKeepaliveRequest(job_id=job), metadata=cluster.user("nobody")
        ),
    ):
        with pytest.raises(aio.AioRpcError) as refused:
            await call()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    answer = await cluster.step(job, "root")
    assert answer.step.user == "daemon"
    (spec,) = cluster.agents["n1"].commands
    assert spec.user == "daemon", "an administrator's step runs as the job's user"
    for target in ({"step_id": 0}, {"signal": 10}):
        assert await cluster.cancel(job, "nobody", **target) == "Access/permission denied"
    hidden = await cluster.steps("nobody")
    assert [(step.rid.step_id, step.name, step.nodelist) for step in hidden] == [
        (0, "", ""),
        (STEP_EXTERN, "", ""),
    ]
    with pytest.raises(aio.AioRpcError) as unknown:
        await cluster.step(99)
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
    assert unknown.value.details() == "Invalid job id specified"


class TestSignals:
    async def test_a_step_is_ended_by_its_number(self, cluster):
        one = await cluster.add_agent("n1")
        job = await cluster.alloc()
        await cluster.step(job, overlap=True)
        await cluster.step(job, overlap=True)
        one.obeys = False
        assert not await cluster.cancel(job, step_id=1)
        stop = cluster.state.jobs[job].steps[1].stop
        assert (stop.why, stop.uid, stop.hard) == ("cancelled", 0, False)
        await reach(lambda: one.cancels)
        assert {(c.rid.step_id, c.reason, c.grace_secs) for c in one.cancels} <= {
            (1, "cancelled", 2),
            (1, "cancelled", 1),
        }
        await cluster.report(one, job, step_id=1, signal=15)
        assert set(cluster.state.jobs[job].steps) == {0}
        assert await cluster.cancel(job, step_id=1) == "Job/step already completing or completed"
        assert await cluster.cancel(job, step_id=7) == "Invalid job id specified"

    async def test_kill_is_an_end_without_grace(self, cluster):
        one = await cluster.add_agent("n1")
        job = await cluster.alloc()
        await cluster.step(job)
        assert not await cluster.cancel(job, step_id=0, signal=9)
        await reach(lambda: not cluster.state.jobs[job].steps)
        assert {c.grace_secs for c in one.cancels} == {0}

    async def test_a_signal_goes_to_the_nodes_of_the_step(self, cluster):
        one, two = await two_nodes(cluster)
        job = await cluster.alloc(2)
        await cluster.step(job, nodelist="n2")
        assert not await cluster.cancel(job, step_id=0, signal=10)
        (sent,) = two.cancels
        assert (sent.rid.run_attempt, sent.rid.step_id, sent.signal) == (1, 0, 10)
        assert not one.cancels
        assert cluster.state.jobs[job].steps[0].stop is None

    async def test_without_a_flag_to_steps_only(self, cluster):
        one, two = await two_nodes(cluster)
        job = await cluster.submit(min_nodes=2)
        await cluster.in_state(job, RUNNING)
        assert not await cluster.cancel(job, signal=10)
        assert not one.cancels, "there is none"
        await cluster.step(job, nodelist="n2")
        assert not await cluster.cancel(job, signal=10)
        (sent,) = two.cancels
        assert (sent.steps_only, sent.batch_only, sent.rid.HasField("step_id")) == (True, False, False)
        assert not one.cancels

    async def test_batch_and_full(self, cluster):
        one, two = await two_nodes(cluster)
        job = await cluster.submit(min_nodes=2)
        await cluster.in_state(job, RUNNING)
        assert not await cluster.cancel(job, signal=10, batch_only=True)
        (sent,) = one.cancels
        assert (sent.batch_only, sent.rid.step_id) == (True, STEP_BATCH)
        assert not two.cancels
        assert not await cluster.cancel(job, signal=12, full=True)
        for agent in (one, two):
            assert (agent.cancels[-1].signal, agent.cancels[-1].rid.HasField("step_id")) == (12, False)


async def test_a_limit_of_its_own(cluster):
    one = await cluster.add_agent("n1")
    job = await cluster.alloc(time_limit_secs=3600)
    await cluster.step(job, time_limit_secs=60)
    await cluster.controller.timers.tick()
    assert cluster.state.jobs[job].steps[0].stop is None
    cluster.clock.ahead += 61
    await cluster.controller.timers.tick()
    await reach(lambda: not cluster.state.jobs[job].steps)
    assert {c.reason for c in one.cancels} == {"timeout"}
    assert cluster.state.jobs[job].past_steps[0].row.state is JobState.TIMEOUT
    assert cluster.state.jobs[job].state is RUNNING


async def test_listing(cluster):
    await two_nodes(cluster)
    job = await cluster.alloc(2)
    batch = await cluster.submit()
    srun = await cluster.submit(srun_job=True, argv=[b"true"], num_tasks=1)
    for job_id in (batch, srun):
        await cluster.in_state(job_id, RUNNING)
    await cluster.step(job, nodelist="n2", name="two", time_limit_secs=60)
    await cluster.step(
        job, interactive=True, argv=[b"bash"], name="bash", shape=common_pb2.StepShape(pty=True)
    )
    rows = {(step.rid.job_id, step.rid.step_id): step for step in await cluster.steps()}
    assert set(rows) == {
        (job, 0),
        (job, STEP_EXTERN),
        (job, STEP_INTERACTIVE),
        (batch, STEP_BATCH),
        (srun, 0),
    }
    step = rows[job, 0]
    assert (step.name, step.nodelist, step.num_tasks, step.state) == ("two", "n2", 1, RUNNING)
    assert (step.time_limit_secs, step.partition, step.user) == (60, "debug", "root")
    assert rows[job, STEP_INTERACTIVE].pty
    assert rows[job, STEP_EXTERN].nodelist == "n[1-2]"
    assert rows[batch, STEP_BATCH].name == "batch"
    target = pb.JobTarget(job_id=job, step_id=0)
    assert [one.rid.step_id for one in await cluster.steps(jobs=[target])] == [0]
    assert {s.rid.job_id for s in await cluster.steps(jobs=[pb.JobTarget(job_id=job)])} == {job}
    assert {s.rid.step_id for s in await cluster.steps(nodes=["n2"])} <= {0, STEP_EXTERN, STEP_BATCH}
    assert not await cluster.steps(users=["nobody"])
    assert len(await cluster.steps(partitions=["debug"])) == 5


async def test_watching(cluster):
    one = await cluster.add_agent("n1")
    job = await cluster.alloc()
    await cluster.step(job)

    watched = set()

    async def watch(step_id, attempt=0):
        rid = common_pb2.RuntimeId(job_id=job, run_attempt=attempt, step_id=step_id)
        answers = []
        async for answer in cluster.stub.WatchStep(pb.WatchStepRequest(rid=rid), metadata=cluster.user()):
            answers.append(answer)
            watched.add(step_id)
        return answers

    step = asyncio.create_task(watch(0))
    extern = asyncio.create_task(watch(STEP_EXTERN))
    await reach(lambda: len(watched) == 2, "both see how their step is")
    assert not await cluster.cancel(job, step_id=0, signal=12)
    await cluster.report(one, job, step_id=0, code=3)
    seen = await asyncio.wait_for(step, 10)
    assert [answer.step.state for answer in seen] == [RUNNING, FAILED]
    assert seen[0].nodes[0].node == "n1"
    assert seen[-1].step.exit.code == 3
    assert [answer.step.exit.code for answer in await watch(0, 1)] == [3], "also when it is over"
    for step_id, attempt in ((7, 0), (0, 9)):
        with pytest.raises(aio.AioRpcError) as unknown:
            await watch(step_id, attempt)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
    await cluster.stub.CompleteJob(pb.CompleteJobRequest(job_id=job), metadata=cluster.user())
    seen = await asyncio.wait_for(extern, 10)
    assert seen[-1].step.state in (COMPLETED, CANCELLED)


async def test_a_client_that_fell_silent(clusters):
    cluster = await clusters(scheduler="inactive_limit_secs = 60")
    await cluster.add_agent("n1", cpus=8)
    job = await cluster.alloc()
    never = await cluster.alloc()

    async def ping():
        await cluster.stub.JobKeepalive(pb.JobKeepaliveRequest(job_id=job), metadata=cluster.user())

    await ping()
    await cluster.controller.timers.tick()
    for _ in range(3):
        cluster.clock.ahead += 50
        await cluster.beat(cluster.agents["n1"])
        await ping()
        await cluster.controller.timers.tick()
    assert cluster.state.jobs[job].state is RUNNING
    # A new leader gives everybody a full window.
    await cluster.crash()
    await cluster.restart()
    await cluster.controller.timers.tick()
    assert cluster.state.jobs[job].state is RUNNING
    cluster.clock.ahead += 61
    await cluster.beat(cluster.agents["n1"])
    await cluster.controller.timers.tick()
    await cluster.in_state(job, JobState.TIMEOUT)
    assert cluster.state.jobs[job].reason == "InactiveLimit"
    assert cluster.state.jobs[never].state is RUNNING, "nobody ever stood behind it (salloc --no-shell)"


class TestPrologs:
    PROLOG = agent_pb2.LaunchJobResponse(failure=agent_pb2.LAUNCH_FAILURE_PROLOG, error="prolog: exit 1")

    async def test_a_batch_job_is_held(self, cluster):
        agent = await cluster.add_agent("n1")
        agent.refuse.append(self.PROLOG)
        job = await cluster.submit()
        await reach(lambda: cluster.state.jobs[job].reason == "JobHeldUser")
        assert "prolog: exit 1" in cluster.state.jobs[job].desc
        assert not cluster.controller.site.memory.cooling(cluster.clock.monotonic())

    async def test_or_tried_again_by_configuration(self, clusters):
        cluster = await clusters(controller="hold_on_prolog_fail = false")
        agent = await cluster.add_agent("n1")
        agent.refuse.append(self.PROLOG)
        job = await cluster.submit()
        await reach(lambda: cluster.state.jobs[job].reason == "JobLaunchFailure")

    async def test_an_allocation_is_cancelled(self, cluster):
        agent = await cluster.add_agent("n1")
        agent.refuse.append(self.PROLOG)
        job = await cluster.submit(script=b"", alloc_only=True)
        await cluster.in_state(job, CANCELLED)


async def test_a_request_that_cannot_be_does_not_rest_the_node(cluster):
    agent = await cluster.add_agent("n1")

    async def refuse(request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "bad spec")

    agent.LaunchJob = refuse
    await agent.stop()
    await agent.start()
    job = await cluster.submit()
    await cluster.in_state(job, FAILED)
    assert "bad spec" in cluster.state.jobs[job].desc
    assert not cluster.controller.site.memory.cooling(cluster.clock.monotonic())


async def test_a_stand_alone_srun_lies_as_it_wishes(cluster):
    one, two = await two_nodes(cluster)
    shape = common_pb2.StepShape(cpu_bind="none")
    spec = common_pb2.JobSpec(
        argv=[b"true"],
        srun_job=True,
        num_tasks=4,
        min_nodes=2,
        name="true",
        work_dir="/tmp",
        distribution="cyclic",
        step=shape,
    )
    answer = await cluster.stub.SubmitJob(pb.SubmitJobRequest(spec=spec), metadata=cluster.user())
    await cluster.in_state(answer.job_id, RUNNING)
    assert [list(agent.launches[0].slice.ranks) for agent in (one, two)] == [[0, 2], [1, 3]]
    launched = two.launches[0]
    assert (launched.shape, launched.distribution, launched.step_tasks) == (shape, "cyclic", 4)
    assert (list(launched.step_nodes), launched.step_node_index) == (["n1", "n2"], 1)
    assert cluster.state.jobs[answer.job_id].next_step_id == 1


async def test_the_history_of_an_allocation(clusters):
    from spur_proto import accounting_pb2

    cluster = await clusters(extra="history")
    one, two = await two_nodes(cluster)
    job = await cluster.alloc(2)
    await cluster.step(job, num_tasks=2, min_nodes=2, distribution="cyclic")
    await cluster.report(one, job, step_id=0)
    await cluster.report(two, job, step_id=0, code=1)
    await cluster.stub.CompleteJob(pb.CompleteJobRequest(job_id=job), metadata=cluster.user())
    await cluster.in_state(job, COMPLETED)

    async def history(**fields):
        target = accounting_pb2.HistoryTarget(job_id=job, **fields)
        answer = await cluster.history.GetJobHistory(
            accounting_pb2.GetJobHistoryRequest(jobs=[target]), metadata=cluster.user()
        )
        (found,) = answer.jobs
        return found

    found = await history()
    assert (found.state, found.derived_exit.code) == (COMPLETED, 1)
    assert [(s.step_id, s.name, s.state, s.exit.code, s.layout) for s in found.steps] == [
        (0, "hostname", FAILED, 1, "Cyclic"),
        (STEP_EXTERN, "extern", found.steps[1].state, 0, ""),
    ]
    only = await history(step_id=0)
    assert [step.step_id for step in only.steps] == [0]
