"""Priorities through the API: what listings show, who may change them, what they are made of."""

import grpc
import pytest

from spur_core.states import JobState
from spur_proto import controller_pb2 as pb

DAY = 86_400
FACTORS = (
    'priority_type = "multifactor"\npriority_weight_age = 7000\npriority_weight_job_size = 1000\n'
    "priority_weight_partition = 100\npriority_calc_period_secs = 60\n"
)
MORE = '[[partitions]]\nname = "fast"\nnodes = "ALL"\npriority_job_factor = 4\n'


@pytest.fixture
async def busy(clusters):
    """Makes a cluster of one node of four CPUs that a job of root holds."""

    async def make(scheduler="", **parts):
        cluster = await clusters(scheduler=scheduler, **parts)
        await cluster.add_agent("n1")
        holder = await cluster.submit(num_tasks=4, time_limit_secs=3600)
        await cluster.in_state(holder, JobState.RUNNING)
        return cluster

    return make


async def shown(cluster, user="root", **fields):
    answer = await cluster.stub.GetJobs(pb.GetJobsRequest(**fields), metadata=cluster.user(user))
    return {job.job_id: job for job in answer.jobs}


async def explained(cluster, user="root", **fields):
    return await cluster.stub.GetPriorities(pb.GetPrioritiesRequest(**fields), metadata=cluster.user(user))


async def update(cluster, job_id, user="root", **fields):
    """The sentence of the refusal, or nothing."""
    request = pb.UpdateJobRequest(targets=[pb.JobTarget(job_id=job_id)], **fields)
    try:
        answer = await cluster.stub.UpdateJob(request, metadata=cluster.user(user))
    except grpc.aio.AioRpcError as error:
        return error.details()
    return answer.results[0].text


async def later(cluster, secs):
    cluster.clock.ahead += secs
    for agent in cluster.agents.values():
        await cluster.beat(agent)


async def test_listings_show_what_the_base_comes_to(busy):
    cluster = await busy()
    one = await cluster.submit(num_tasks=4)
    dependent = await cluster.submit(dependency=f"afterany:{one}")
    assert {job.priority for job in (await shown(cluster)).values()} == {1000}
    await later(cluster, 7 * DAY)
    jobs = await shown(cluster)
    assert jobs[one].priority == jobs[dependent].priority == 2000
    assert (await cluster.job(one)).priority == 2000
    # What runs keeps what it began with.
    assert jobs[1].priority == 1000


async def test_a_priority_that_was_asked_for_stays(busy):
    cluster = await busy()
    asked = await cluster.submit(priority=700, num_tasks=4)
    later_set = await cluster.submit(nice=50, num_tasks=4)
    assert await update(cluster, later_set, priority=5000) == ""
    await later(cluster, 7 * DAY)
    jobs = await shown(cluster)
    assert (jobs[asked].priority, jobs[later_set].priority, jobs[later_set].nice) == (700, 5000, 0)
    assert await update(cluster, later_set, hold=pb.HOLD_ACTION_HOLD) == ""
    assert (await shown(cluster))[later_set].priority == 0
    assert await update(cluster, later_set, hold=pb.HOLD_ACTION_RELEASE) == ""
    assert (await shown(cluster))[later_set].priority == 2000


async def test_the_sum_of_factors(busy):
    cluster = await busy(FACTORS, extra=MORE)
    small = await cluster.submit(num_tasks=1, min_nodes=1)
    # 1000 * (1 of 1 nodes + 1 of 4 CPUs) / 2 + 100 * (1 of 4).
    assert (await shown(cluster))[small].priority == 625 + 25
    large = await cluster.submit(num_tasks=4, partition="fast,debug", nice=10)
    await later(cluster, 3.5 * DAY)
    answer = await explained(cluster)
    assert answer.priority_type == "multifactor"
    assert (answer.weights.age, answer.weights.partition, answer.weights.qos) == (7000, 100, 0)
    rows = {(row.job_id, row.partition): row for row in answer.jobs}
    assert set(rows) == {(small, "debug"), (large, "fast"), (large, "debug")}
    fast = rows[large, "fast"]
    assert fast.priority == (await shown(cluster))[large].priority
    assert 3495 < fast.weighted.age <= 3500
    assert (fast.weighted.partition, rows[large, "debug"].weighted.partition) == (100, 25)
    assert (fast.normalized.job_size, fast.nice, fast.user) == (1.0, 10, "root")
    assert fast.priority == int(fast.weighted.age + 1000 + 100 - 10)


async def test_the_queue_goes_by_it(busy):
    cluster = await busy(FACTORS)
    small = await cluster.submit(num_tasks=1)
    large = await cluster.submit(num_tasks=4)
    agent = cluster.agents["n1"]
    await cluster.report(agent, 1)
    await cluster.in_state(large, JobState.RUNNING)
    job = cluster.state.jobs[large]
    assert job.start_priority == 1000 + 100
    assert cluster.state.jobs[small].state is JobState.PENDING


async def test_whom_it_is_told_of(busy):
    cluster = await busy()
    waits = await cluster.submit(num_tasks=4)
    held = await cluster.submit(hold=True)
    begins = await cluster.submit(begin_at=cluster.clock.time() + 1000)
    array = await cluster.submit(num_tasks=4, array="0-3")
    ids = [row.job_id for row in (await explained(cluster)).jobs]
    assert ids == [waits, array]
    assert held not in ids
    assert begins not in ids
    assert [row.job_id for row in (await explained(cluster, job_ids=[array, 99])).jobs] == [array]
    assert [row.job_id for row in (await explained(cluster, users=["0"])).jobs] == [waits, array]
    assert not (await explained(cluster, users=["nobody"])).jobs
    assert not (await explained(cluster, partitions=["zz"])).jobs
    assert len((await explained(cluster, "nobody")).jobs) == 2


async def test_others_jobs_are_hidden_where_they_are(busy):
    cluster = await busy(controller='job_info_visibility = "owner_only"')
    await cluster.submit(num_tasks=4)
    assert not (await explained(cluster, "nobody")).jobs
    assert len((await explained(cluster)).jobs) == 1


async def test_users_do_not_raise_themselves_above_the_factors(busy):
    cluster = await busy(FACTORS)
    request = pb.SubmitJobRequest()
    request.spec.script, request.spec.name, request.spec.work_dir = b"#!/bin/sh\n", "j", "/tmp"
    request.spec.num_tasks, request.spec.priority = 4, 1000
    answer = await cluster.stub.SubmitJob(request, metadata=cluster.user("nobody"))
    assert list(answer.warnings) == ["priority may be set by administrators only, ignored"]
    made = (await shown(cluster))[answer.job_id].priority
    assert made == 1100
    assert await update(cluster, answer.job_id, "nobody", priority=made + 1) == "Access/permission denied"
    assert (await shown(cluster))[answer.job_id].priority == made
    assert await update(cluster, answer.job_id, "nobody", priority=900) == ""
    assert (await shown(cluster))[answer.job_id].priority == 900
    assert await update(cluster, answer.job_id, "nobody", site_factor=5) != ""
    assert await update(cluster, answer.job_id, site_factor=5) == ""


async def test_a_site_factor_that_nothing_looks_at_is_refused(busy):
    cluster = await busy()
    waits = await cluster.submit(num_tasks=4)
    assert 'priority_type = "multifactor"' in await update(cluster, waits, site_factor=5)


async def test_settings_are_shown_as_slurm_does(busy):
    cluster = await busy(FACTORS)
    answer = await cluster.stub.GetConfig(pb.GetConfigRequest(), metadata=cluster.user())
    found = {entry.key: entry.value for entry in answer.entries}
    assert found["PriorityType"] == "priority/multifactor"
    assert (found["PriorityWeightAge"], found["PriorityMaxAge"]) == ("7000", "7-00:00:00")
