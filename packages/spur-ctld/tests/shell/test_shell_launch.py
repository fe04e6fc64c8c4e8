"""From submit to the end of a job, and every way a launch can go wrong."""

import asyncio
import time

import grpc
import pytest

from spur_core import reasons
from spur_core.ids import STEP_BATCH
from spur_core.states import ACTIVE_STATES, JobState
from spur_proto import agent_pb2, common_pb2
from spur_proto import controller_pb2 as pb

ACCEPTED, FINAL = pb.REPORT_VERDICT_ACCEPTED, pb.REPORT_VERDICT_FINAL


async def test_a_job_from_submit_to_complete(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(environment=[b"A=1", b"B=x=y"], num_tasks=2, comment="hello")
    await cluster.in_state(job, JobState.RUNNING)
    (spec,) = agent.launches
    assert (spec.rid.job_id, spec.rid.run_attempt, spec.rid.step_id) == (job, 1, STEP_BATCH)
    assert list(spec.environment) == [b"A=1", b"B=x=y"]
    assert spec.script == b"#!/bin/sh\ntrue\n"
    assert list(spec.slice.ranks) == [0, 1]
    assert (spec.user, spec.uid, spec.gid) == ("root", 0, 0)
    shown = await cluster.job(job)
    assert (shown.state, shown.nodelist, shown.stdout_path) == (JobState.RUNNING, "n1", "/out")
    assert shown.slices[0].cpus == 2
    assert await cluster.report(agent, job, code=3) == ACCEPTED
    shown = await cluster.job(job)
    assert (shown.state, shown.exit.code, shown.reason) == (JobState.FAILED, 3, "NonZeroExitCode")
    assert await cluster.report(agent, job, code=0) == FINAL
    assert not cluster.state.use["n1"].jobs


async def test_an_idle_cluster_starts_a_job_at_once(cluster):
    agent = await cluster.add_agent("n1", cpus=64)
    await cluster.submit()
    times = []
    for _ in range(20):
        before = time.perf_counter()
        count = agent.entered
        await cluster.submit()
        while agent.entered == count:
            await asyncio.sleep(0)
        times.append(time.perf_counter() - before)
    times.sort()
    # Far below any tick; the figure itself is for the benchmarks.
    assert times[len(times) // 2] < 0.25, times


async def test_the_next_job_starts_when_room_comes_free(cluster):
    agent = await cluster.add_agent("n1", cpus=1)
    first = await cluster.submit()
    second = await cluster.submit()
    await cluster.in_state(first, JobState.RUNNING)
    await cluster.report(agent, first)
    await cluster.in_state(second, JobState.RUNNING)


async def test_an_array_is_one_record_and_its_tasks_run_under_a_throttle(cluster):
    agent = await cluster.add_agent("n1", cpus=8)
    job = await cluster.submit(array="0-4%2")
    for _ in range(200):
        running = [j for j in cluster.state.jobs.values() if j.state is JobState.RUNNING]
        if len(running) == 2:
            break
        await asyncio.sleep(0.02)
    assert len(running) == 2
    rest = cluster.state.jobs[job]
    assert rest.array_pending
    ended = 0
    while ended < 5:
        for j in list(cluster.state.jobs.values()):
            if j.state is JobState.RUNNING:
                await cluster.report(agent, j.job_id)
                ended += 1
        await asyncio.sleep(0.01)
    assert {j.array_task_id for j in cluster.state.jobs.values()} == {0, 1, 2, 3, 4}
    assert all(j.state is JobState.COMPLETED for j in cluster.state.jobs.values())


async def test_tasks_with_records_of_their_own_start_one_by_one_under_a_throttle_too(cluster):
    """All of them could start in the first pass after a node is there."""
    job = await cluster.submit(array="0-3%1", hold=True)
    for tasks in ("2", "3", ""):
        target = pb.JobTarget(job_id=job, array_tasks=tasks)
        request = pb.UpdateJobRequest(targets=[target], hold=pb.HOLD_ACTION_RELEASE)
        await cluster.stub.UpdateJob(request, metadata=cluster.user())
    assert len(cluster.state.jobs) == 3
    agent = await cluster.add_agent("n1", cpus=8)
    for _ in range(4):
        for _ in range(500):
            active = [j for j in cluster.state.jobs.values() if j.state in ACTIVE_STATES]
            assert len(active) <= 1
            if active and active[0].state is JobState.RUNNING:
                break
            await asyncio.sleep(0.01)
        await cluster.report(agent, active[0].job_id)
    assert {j.array_task_id for j in cluster.state.jobs.values()} == {0, 1, 2, 3}
    assert all(j.state is JobState.COMPLETED for j in cluster.state.jobs.values())


async def test_srun_over_two_nodes_launches_step_0_on_both(cluster):
    one, two = await cluster.add_agent("n1", cpus=1), await cluster.add_agent("n2", cpus=1)
    job = await cluster.submit(srun_job=True, argv=[b"hostname"], min_nodes=2, num_tasks=2)
    await cluster.in_state(job, JobState.RUNNING)
    assert [s.rid.step_id for s in (*one.launches, *two.launches)] == [0, 0]
    assert [s.node_index for s in (*one.launches, *two.launches)] == [0, 1]
    assert one.launches[0].nodes == ["n1", "n2"]
    assert one.launches[0].tasks_per_node_text == "1(x2)"
    await cluster.report(one, job, step_id=0)
    assert cluster.state.jobs[job].state is JobState.COMPLETING
    await cluster.report(two, job, step_id=0, code=2)
    assert (await cluster.job(job)).exit.code == 2


@pytest.mark.parametrize(
    ("kind", "state", "reason"),
    [
        (agent_pb2.LAUNCH_FAILURE_JOB, JobState.FAILED, reasons.LAUNCH_FAILURE),
        (agent_pb2.LAUNCH_FAILURE_NODE, JobState.PENDING, reasons.LAUNCH_FAILURE),
        (agent_pb2.LAUNCH_FAILURE_RESOURCES, JobState.PENDING, reasons.LAUNCH_FAILURE),
    ],
)
async def test_failure_classes(cluster, kind, state, reason):
    agent = await cluster.add_agent("n1")
    agent.refuse.append(agent_pb2.LaunchJobResponse(failure=kind, error="no program spurstepd"))
    job = await cluster.submit()
    for _ in range(400):
        record = cluster.state.jobs[job]
        if record.run_attempt and record.state is state:
            break
        await asyncio.sleep(0.01)
    assert (record.state, record.reason) == (state, reason)
    assert "no program spurstepd" in record.desc
    assert not cluster.state.use["n1"].jobs
    if state is JobState.FAILED:
        assert (record.exit.code, record.exit.signal) == (0, 53)
    else:
        # Nothing is tried again before the pause is over and the node has cooled down; then attempt 2 is.
        cluster.clock.ahead += 60
        cluster.controller.scheduler.wake()
        await cluster.in_state(job, JobState.RUNNING)
        assert cluster.state.jobs[job].run_attempt == 2


async def test_one_node_of_two_fails_and_the_other_is_cleaned_up(cluster):
    one, two = await cluster.add_agent("n1", cpus=1), await cluster.add_agent("n2", cpus=1)
    two.refuse.append(agent_pb2.LaunchJobResponse(failure=agent_pb2.LAUNCH_FAILURE_NODE, error="disk full"))
    job = await cluster.submit(srun_job=True, argv=[b"true"], min_nodes=2, num_tasks=2)
    for _ in range(400):
        record = cluster.state.jobs[job]
        if record.run_attempt and record.state is JobState.PENDING:
            break
        await asyncio.sleep(0.01)
    assert record.desc == "n2: disk full (1 of 2 nodes confirmed)"
    assert not one.held
    assert [c.reason for c in one.cancels] == ["launch"]
    assert one.cancels[0].grace_secs == 0


async def test_an_agent_that_is_gone_is_asked_until_it_answers(cluster, caplog):
    """Its run may have begun, so nothing is undone before it says that there is none.

    A launch that never left is then sent again, as the same attempt.
    """
    agent = await cluster.add_agent("n1")
    await agent.stop()
    job = await cluster.submit()
    for _ in range(2000):
        if f"probe_waits job={job} node=n1" in caplog.text:
            break
        await asyncio.sleep(0.005)
    else:
        raise AssertionError("it was never asked")
    assert cluster.state.jobs[job].state is JobState.CONFIGURING
    assert cluster.state.use["n1"].jobs == {job}
    await agent.start()
    await cluster.in_state(job, JobState.RUNNING)
    assert (job, 1, STEP_BATCH) in agent.probes
    assert agent.attempts == [(job, 1)]


async def test_a_launch_whose_answer_was_lost_is_not_undone(cluster):
    """The agent died after the start: what it holds then is the launch's success."""
    agent = await cluster.add_agent("n1")
    agent.gate.clear()
    job = await cluster.submit()
    while not agent.entered:
        await asyncio.sleep(0.005)
    agent.held[(job, 1, STEP_BATCH)] = "live"
    await agent.stop()
    agent.gate.set()
    await agent.start()
    await cluster.in_state(job, JobState.RUNNING)
    assert not agent.cancels


async def test_cancel_while_the_launch_is_on_its_way(cluster):
    agent = await cluster.add_agent("n1")
    agent.gate.clear()
    job = await cluster.submit()
    while not agent.entered:
        await asyncio.sleep(0.005)
    answer = await cluster.stub.CancelJob(
        pb.CancelJobRequest(targets=[pb.JobTarget(job_id=job)]), metadata=cluster.user()
    )
    assert answer.results[0].code == ""
    assert cluster.state.jobs[job].state is JobState.COMPLETING
    agent.gate.set()
    await cluster.in_state(job, JobState.CANCELLED)
    assert not agent.held, "what was launched after the cancel was killed as well"
    assert agent.attempts == [(job, 1)]


async def test_a_short_job_may_end_before_its_launch_was_confirmed(cluster):
    agent = await cluster.add_agent("n1")
    agent.gate.clear()
    job = await cluster.submit()
    while not agent.entered:
        await asyncio.sleep(0.005)
    assert await cluster.report(agent, job) == ACCEPTED
    assert (await cluster.job(job)).state == JobState.COMPLETED
    agent.gate.set()
    await cluster.controller.launcher.settled(job, 1)
    assert (await cluster.job(job)).state == JobState.COMPLETED
    agent.held.clear()


async def test_watching_a_job_shows_every_state_and_ends(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(hold=True)
    call = cluster.stub.WatchJob(pb.WatchJobRequest(job_id=job), metadata=cluster.user())
    first = await call.read()
    assert (first.job.state, first.job.reason) == (JobState.PENDING, "JobHeldUser")
    request = pb.UpdateJobRequest(targets=[pb.JobTarget(job_id=job)], hold=pb.HOLD_ACTION_RELEASE)
    await cluster.stub.UpdateJob(request, metadata=cluster.user())
    seen = []
    while (message := await call.read()) is not grpc.aio.EOF:
        seen.append(message.job.state)
        if message.job.state == JobState.RUNNING and job in {r[0] for r in agent.held}:
            assert message.nodes[0].address == f"127.0.0.1:{agent.port}"
            await cluster.report(agent, job)
    assert seen[-1] == JobState.COMPLETED
    assert JobState.RUNNING in seen


async def test_watching_nothing(cluster):
    call = cluster.stub.WatchJob(pb.WatchJobRequest(job_id=77), metadata=cluster.user())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert (caught.value.code(), caught.value.details()) == (
        grpc.StatusCode.NOT_FOUND,
        "Invalid job id specified",
    )


async def test_dependencies_start_when_the_parent_ends(cluster):
    agent = await cluster.add_agent("n1")
    parent = await cluster.submit()
    good = await cluster.submit(dependency=f"afterok:{parent}")
    never = await cluster.submit(dependency=f"afternotok:{parent}", kill_on_invalid_dependency=True)
    parked = await cluster.submit(dependency=f"afternotok:{parent}")
    await cluster.in_state(parent, JobState.RUNNING)
    shown = await cluster.job(good)
    assert shown.dependency == f"afterok:{parent}(unfulfilled)"
    await cluster.report(agent, parent)
    await cluster.in_state(good, JobState.RUNNING)
    await cluster.in_state(never, JobState.CANCELLED)
    for _ in range(200):
        if cluster.state.jobs[parked].reason == reasons.DEPENDENCY_NEVER:
            break
        await asyncio.sleep(0.01)
    assert cluster.state.jobs[parked].reason == reasons.DEPENDENCY_NEVER


async def test_begin_time(cluster):
    await cluster.add_agent("n1")
    job = await cluster.submit(begin_at=cluster.clock.time() + 1000)
    for _ in range(200):
        if cluster.state.jobs[job].reason == reasons.BEGIN_TIME:
            break
        await asyncio.sleep(0.01)
    assert cluster.state.jobs[job].reason == reasons.BEGIN_TIME
    cluster.clock.ahead += 1001
    cluster.controller.scheduler.wake()
    await cluster.in_state(job, JobState.RUNNING)


async def test_an_impossible_shape_and_a_trial(cluster):
    await cluster.add_agent("n1", cpus=4)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await cluster.submit(cpus_per_task=5)
    assert caught.value.details() == "Requested node configuration is not available"
    spec = common_pb2.JobSpec(script=b"#!/bin/sh\n", num_tasks=4)
    answer = await cluster.stub.SubmitJob(
        pb.SubmitJobRequest(spec=spec, test_only=True), metadata=cluster.user()
    )
    assert answer.job_id == 0
    assert answer.test_result.startswith("Job 1 to start at 20")
    assert answer.test_result.endswith("using 4 processors on nodes n1 in partition debug")
    assert not cluster.state.jobs
    busy = await cluster.submit(num_tasks=4, time_limit_secs=600)
    await cluster.in_state(busy, JobState.RUNNING)
    spec.immediate = True
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await cluster.stub.SubmitJob(pb.SubmitJobRequest(spec=spec), metadata=cluster.user())
    assert caught.value.details() == "Requested nodes are busy"
    answer = await cluster.stub.SubmitJob(
        pb.SubmitJobRequest(spec=spec, test_only=True), metadata=cluster.user()
    )
    assert "on nodes n1" in answer.test_result


async def test_a_repeated_request_id_is_one_job(cluster):
    spec = common_pb2.JobSpec(script=b"#!/bin/sh\n", hold=True)
    request = pb.SubmitJobRequest(spec=spec, request_id="abc")
    first = await cluster.stub.SubmitJob(request, metadata=cluster.user())
    again = await cluster.stub.SubmitJob(request, metadata=cluster.user())
    other = await cluster.stub.SubmitJob(request, metadata=cluster.user("nobody"))
    assert first.job_id == again.job_id != other.job_id
    assert len(cluster.state.jobs) == 2


async def test_a_stop_waits_for_no_launch(cluster):
    agent = await cluster.add_agent("n1")
    agent.gate.clear()
    await cluster.submit()
    while not agent.entered:
        await asyncio.sleep(0.005)
    begun = time.monotonic()
    await cluster.down()
    assert time.monotonic() - begun < 5
    await cluster.restart()
    agent.gate.set()


async def test_a_fault_of_ours_does_not_leave_a_job_in_between(cluster, monkeypatch):
    from spur_ctld.dispatch import launcher

    def broken(*_):
        raise ValueError("a fault")

    agent = await cluster.add_agent("n1")
    monkeypatch.setattr(launcher, "build", broken)
    job = await cluster.submit()
    for _ in range(400):
        record = cluster.state.jobs[job]
        if record.run_attempt and record.state is JobState.PENDING:
            break
        await asyncio.sleep(0.01)
    assert record.desc == "Slurm internal error, contact system administrator"
    assert not agent.launches
