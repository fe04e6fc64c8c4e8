"""What a controller counts: calls by method and by user, jobs by what became of them."""

import grpc
import pytest

from spur_core.states import JobState
from spur_proto import controller_pb2 as pb


async def told(cluster, user="root", **fields):
    request = pb.GetStatisticsRequest(**fields)
    return await cluster.stub.GetStatistics(request, metadata=cluster.user(user))


async def test_calls_and_jobs_are_counted_until_an_administrator_resets_them(cluster):
    agent = await cluster.add_agent("n1")
    first = await cluster.submit(num_tasks=4, time_limit_secs=3600)
    await cluster.in_state(first, JobState.RUNNING)
    array = await cluster.submit(array="1-3", num_tasks=4)
    gone = await cluster.submit(num_tasks=4)
    assert await cluster.cancel(gone) == ""
    await cluster.report(agent, first)
    await cluster.in_state(first, JobState.COMPLETED)
    found = await told(cluster)
    assert (found.jobs_submitted, found.jobs_completed, found.jobs_failed) == (5, 1, 0)
    assert found.jobs_canceled == 1
    assert found.jobs_started >= 1
    assert found.jobs_pending + found.jobs_running <= 3
    assert array
    assert found.calls_open >= 1
    assert found.scheduler.cycles >= 1
    assert found.since <= found.at
    methods = {one.name: one for one in found.by_method}
    assert methods["SubmitJob"].count == 3
    assert methods["RegisterAgent"].count == 1
    assert methods["SubmitJob"].total_secs >= methods["SubmitJob"].most_secs > 0
    users = {one.name: one for one in found.by_user}
    assert users["root"].count >= 4
    assert "n1" not in users
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await told(cluster, "nobody", reset=True)
    assert refusal.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert (await told(cluster, reset=True)).jobs_submitted == 5
    again = await told(cluster)
    assert (again.jobs_submitted, again.jobs_completed, again.since >= found.since) == (0, 0, True)
    assert {one.name for one in again.by_method} <= {"GetStatistics", "Heartbeat"}
