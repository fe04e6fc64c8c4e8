"""Listing, changing and signalling over the wire; errors are one sentence with a status and a code."""

import asyncio
import grp
import pwd
import signal

import grpc
import msgspec
import pytest

from spur_core.states import JobState, NodeBase, NodeFlag
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

CODES = grpc.StatusCode


async def refused(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


async def jobs(cluster, user="root", **filters):
    answer = await cluster.stub.GetJobs(pb.GetJobsRequest(**filters), metadata=cluster.user(user))
    return [job.job_id for job in answer.jobs]


async def test_filters_and_pages(cluster):
    await cluster.add_agent("n1", cpus=1)
    first = await cluster.submit(name="a")
    second = await cluster.submit(name="b", user="nobody")
    third = await cluster.submit(name="a", account="acc")
    await cluster.in_state(first, JobState.RUNNING)
    assert await jobs(cluster) == [first, second, third]
    assert await jobs(cluster, states=[JobState.RUNNING]) == [first]
    assert await jobs(cluster, users=["nobody"]) == [second]
    assert await jobs(cluster, users=["65534"]) == [second]
    assert await jobs(cluster, names=["a"], accounts=["acc"]) == [third]
    assert await jobs(cluster, nodes=["n[1-3]"]) == [first]
    assert await jobs(cluster, partitions=["debug"], jobs=[pb.JobTarget(job_id=third)]) == [third]
    assert await jobs(cluster, partitions=["other"]) == []
    answer = await cluster.stub.GetJobs(pb.GetJobsRequest(page_size=2), metadata=cluster.user())
    assert [job.job_id for job in answer.jobs] == [first, second]
    answer = await cluster.stub.GetJobs(
        pb.GetJobsRequest(page_size=2, page_token=answer.next_page_token), metadata=cluster.user()
    )
    assert [job.job_id for job in answer.jobs] == [third]
    assert not answer.next_page_token


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (pb.GetJobsRequest(states=[99]), "states: 99 is not a job state"),
        (pb.GetJobsRequest(page_token="x"), "page_token: not one of ours: 'x'"),
        (pb.GetJobsRequest(nodes=["n[3-1]"]), "Invalid hostlist: n[3-1]"),
    ],
)
async def test_bad_filters_name_the_field(cluster, request_, text):
    status, said = await refused(cluster.stub.GetJobs(request_, metadata=cluster.user()))
    assert status is CODES.INVALID_ARGUMENT
    assert text in said


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"partition": "nope"}, "Invalid partition name specified"),
        ({"array": "5-1"}, "Invalid job array specification"),
        ({"array": "0-1001"}, "Invalid job array specification"),
        ({"dependency": "afterok"}, "Job dependency problem"),
        ({"min_nodes": 0}, "Node count specification invalid"),
        ({"num_tasks": 0}, "Task count specification invalid"),
        ({"gres": ["nothing:1"]}, "Invalid generic resource (gres) specification"),
        ({"nodelist": "zz9"}, "Invalid node name specified"),
        ({"constraint": "a&&"}, "Invalid feature specification"),
        ({"open_mode": "both"}, "open_mode: 'both' is neither append nor truncate"),
        ({"work_dir": "relative"}, "work_dir: 'relative' is not an absolute path"),
        ({"script": b""}, "Batch script is empty!"),
        ({"script": b"#!/bin/sh\n\0"}, "The Slurm controller does not allow scripts that contain a NULL"),
        ({"script": b"#!/bin/sh\n" + b"#" * (4 << 20)}, "too large: more than 4 MiB"),
        ({"environment": [b"novalue"]}, "environment: every entry must be NAME=value"),
        ({"deadline_at": 5.0}, "Incompatible begin and deadline time specification"),
        ({"memory_per_node_mb": 1, "memory_per_cpu_mb": 1}, "mutually exclusive"),
        ({"umask": 0o1000}, "umask:"),
    ],
)
async def test_submissions_that_are_refused(cluster, spec, text):
    await cluster.add_agent("n1")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await cluster.submit(**spec)
    assert caught.value.code() is CODES.INVALID_ARGUMENT
    assert text in caught.value.details()
    assert "\n" not in caught.value.details()


async def test_submit_without_a_spec(cluster):
    status, text = await refused(cluster.stub.SubmitJob(pb.SubmitJobRequest(), metadata=cluster.user()))
    assert (status, text) == (CODES.INVALID_ARGUMENT, "spec: missing")


async def test_changes_to_a_pending_job(cluster):
    await cluster.add_agent("n1")
    job = await cluster.submit(hold=True)
    target = [pb.JobTarget(job_id=job)]

    async def update(**fields):
        answer = await cluster.stub.UpdateJob(
            pb.UpdateJobRequest(targets=target, **fields), metadata=cluster.user()
        )
        return answer.results[0].text

    assert await update(comment="new", name="n", time_limit_secs=120, num_tasks=2, cpus_per_task=2) == ""
    assert await update(memory_per_cpu_mb=7, dependency="afterany:999", req_nodelist="n1") == ""
    shown = await cluster.job(job)
    assert (shown.comment, shown.name, shown.time_limit_secs) == ("new", "n", 120)
    assert (shown.num_tasks, shown.cpus_per_task, shown.memory_per_cpu_mb) == (2, 2, 7)
    assert shown.req_nodelist == "n1"
    assert await update(time_limit_delta_secs=60) == ""
    assert (await cluster.job(job)).time_limit_secs == 180
    for bad, text in (
        ({"partition": "nope"}, "Invalid partition name specified"),
        ({"dependency": "after"}, "Job dependency problem"),
        ({"req_nodelist": "zz"}, "Invalid node name specified"),
        ({"cpus_per_task": 0}, "CPU count specification invalid"),
        ({}, "No changes specified"),
        ({"hold": 9}, "hold: 9 is not an action"),
    ):
        status, said = await refused(
            cluster.stub.UpdateJob(pb.UpdateJobRequest(targets=target, **bad), metadata=cluster.user())
        )
        assert (status, said) == (CODES.INVALID_ARGUMENT, text)


async def test_a_change_is_refused_where_the_submission_would_be(cluster):
    await cluster.add_agent("n1", gres=[common_pb2.GresCount(name="gpu", count=2)])
    job, other = await cluster.submit(hold=True), await cluster.submit(hold=True, user="nobody")
    target = [pb.JobTarget(job_id=job)]

    async def update(targets=target, user="root", **fields):
        answer = await cluster.stub.UpdateJob(
            pb.UpdateJobRequest(targets=targets, **fields), metadata=cluster.user(user)
        )
        return [result.text for result in answer.results]

    before = cluster.state.jobs[job].request
    for changes, spec in (
        ({"constraint": "zz"}, {"constraint": "zz"}),
        ({"num_tasks": 99}, {"num_tasks": 99}),
        ({"cpus_per_task": 99}, {"cpus_per_task": 99}),
        ({"gres": "gpu:99"}, {"gres": ["gpu:99"]}),
        ({"memory_per_node_mb": 1 << 30}, {"memory_per_node_mb": 1 << 30}),
    ):
        _, said = await refused(cluster.submit(**spec))
        assert await update(**changes) == [said], changes
        assert cluster.state.jobs[job].request == before
    assert await update(wishes={"min_cpus": 99}) == ["Requested node configuration is not available"]
    # One of two: each is answered for itself, and another user learns nothing.
    both = [pb.JobTarget(job_id=999), *target]
    assert await update(both, num_tasks=2) == ["Invalid job id specified", ""]
    assert cluster.state.jobs[job].request.num_tasks == 2
    assert (await update([pb.JobTarget(job_id=other)], "nobody", num_tasks=99))[0]
    assert await update(user="nobody", num_tasks=99) == ["Access/permission denied"]
    # What has nothing to do with nodes is still changed when they cannot be had any more.
    record = cluster.state.jobs[job]
    wide = msgspec.structs.replace(record, request=msgspec.structs.replace(record.request, num_tasks=99))
    cluster.state.put_job(wide)
    assert await update(comment="c", time_limit_secs=60) == [""]


async def test_hold_and_release(cluster):
    await cluster.add_agent("n1")
    job = await cluster.submit(hold=True, user="nobody")
    target = [pb.JobTarget(job_id=job)]
    hold = pb.UpdateJobRequest(targets=target, hold=pb.HOLD_ACTION_HOLD)
    release = pb.UpdateJobRequest(targets=target, hold=pb.HOLD_ACTION_RELEASE)
    await cluster.stub.UpdateJob(hold, metadata=cluster.user())
    assert cluster.state.jobs[job].reason == "JobHeldAdmin"
    answer = await cluster.stub.UpdateJob(release, metadata=cluster.user("nobody"))
    assert answer.results[0].code == "access_denied"
    await cluster.stub.UpdateJob(release, metadata=cluster.user())
    await cluster.in_state(job, JobState.RUNNING)


async def test_unknown_jobs_and_bad_targets_are_answered_one_by_one(cluster):
    job = await cluster.submit(hold=True)
    targets = [
        pb.JobTarget(job_id=999),
        pb.JobTarget(job_id=job),
        pb.JobTarget(job_id=0),
        pb.JobTarget(job_id=job, array_tasks="x"),
    ]
    answer = await cluster.stub.CancelJob(pb.CancelJobRequest(targets=targets), metadata=cluster.user())
    assert [r.code for r in answer.results] == ["no_such_job", "", "no_such_job", "no_such_job"]
    assert answer.results[0].text == "Invalid job id specified"
    answer = await cluster.stub.CancelJob(pb.CancelJobRequest(targets=targets[1:2]), metadata=cluster.user())
    assert answer.results[0].text == "Job/step already completing or completed"


async def test_one_element_of_an_array(cluster):
    job = await cluster.submit(array="0-9", hold=True)
    request = pb.CancelJobRequest(targets=[pb.JobTarget(job_id=job, array_tasks="3")])
    await cluster.stub.CancelJob(request, metadata=cluster.user())
    shown = await cluster.stub.GetJobs(
        pb.GetJobsRequest(jobs=[pb.JobTarget(job_id=job)]), metadata=cluster.user()
    )
    rows = {
        (j.array_pending, j.array_task_id if j.HasField("array_task_id") else None, j.state)
        for j in shown.jobs
    }
    assert rows == {("0-2,4-9", None, JobState.PENDING), ("", 3, JobState.CANCELLED)}


async def test_signals(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)
    target = [pb.JobTarget(job_id=job)]

    async def send(**fields):
        answer = await cluster.stub.CancelJob(
            pb.CancelJobRequest(targets=target, **fields), metadata=cluster.user()
        )
        return answer.results[0].text

    assert await send(signal=signal.SIGUSR1) == ""
    assert not agent.cancels, "without -b or -f a signal goes to steps, and there is none"
    assert await send(signal=signal.SIGUSR1, batch_only=True) == ""
    assert await send(signal=signal.SIGUSR2, full=True) == ""
    assert [(c.signal, c.batch_only, c.rid.run_attempt) for c in agent.cancels] == [
        (signal.SIGUSR1, True, 1),
        (signal.SIGUSR2, False, 1),
    ]
    assert cluster.state.jobs[job].state is JobState.RUNNING
    _status, text = await refused(
        cluster.stub.CancelJob(pb.CancelJobRequest(targets=target, signal=99), metadata=cluster.user())
    )
    assert text == "signal: 99 is not a signal number"
    assert await send(signal=signal.SIGKILL) == ""
    await cluster.in_state(job, JobState.CANCELLED)


async def test_a_pending_job_minds_no_signal_but_kill(cluster):
    job = await cluster.submit(hold=True)
    request = pb.CancelJobRequest(targets=[pb.JobTarget(job_id=job)], signal=signal.SIGUSR1, full=True)
    answer = await cluster.stub.CancelJob(request, metadata=cluster.user())
    assert answer.results[0].code == ""
    assert cluster.state.jobs[job].state is JobState.PENDING
    request.signal = signal.SIGKILL
    await cluster.stub.CancelJob(request, metadata=cluster.user())
    assert cluster.state.jobs[job].state is JobState.CANCELLED


async def test_nodes_and_partitions(cluster):
    await cluster.add_agent("n1", cpus=4, gres=[common_pb2.GresCount(name="gpu", type="h100", count=2)])
    await cluster.add_agent("n2", cpus=2)
    job = await cluster.submit(num_tasks=2, gres=["gpu:1"], nodelist="n1")
    await cluster.in_state(job, JobState.RUNNING)
    answer = await cluster.stub.GetNodes(pb.GetNodesRequest(), metadata=cluster.user())
    one, two = answer.nodes
    assert (one.base, one.alloc_cpus, one.gres_used[0].count) == (NodeBase.MIXED, 2, 1)
    assert (two.base, two.alloc_cpus, list(two.partitions)) == (NodeBase.IDLE, 0, ["debug"])
    answer = await cluster.stub.GetPartitions(pb.GetPartitionsRequest(), metadata=cluster.user())
    (part,) = answer.partitions
    assert (part.total_nodes, part.total_cpus, part.nodes) == (2, 6, "n[1-2]")
    assert part.tres == "cpu=6,mem=8000M,node=2,billing=6,gres/gpu=2,gres/gpu:h100=2"
    status, text = await refused(
        cluster.stub.GetPartitions(pb.GetPartitionsRequest(name="x"), metadata=cluster.user())
    )
    assert (status, text) == (CODES.NOT_FOUND, "Invalid partition name specified")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"names": "n1", "state": "DRAIN"}, "You must specify a reason when DOWNING or DRAINING a node"),
        ({"names": "zz", "state": "RESUME"}, "Invalid node name specified"),
        ({"names": "n1", "state": "POWER_UP"}, "Requested operation not supported on this system"),
        ({"names": "n1", "state": "FLYING"}, "Invalid node state specified: FLYING"),
        ({"names": "n1"}, "No changes specified"),
    ],
)
async def test_node_changes_that_are_refused(cluster, fields, text):
    await cluster.add_agent("n1")
    _status, said = await refused(
        cluster.stub.UpdateNode(pb.UpdateNodeRequest(**fields), metadata=cluster.user())
    )
    assert text in said


async def test_node_words(cluster):
    agent = await cluster.add_agent("n1")

    async def word(state, reason=None):
        request = pb.UpdateNodeRequest(names="ALL", state=state)
        if reason:
            request.reason = reason
        await cluster.stub.UpdateNode(request, metadata=cluster.user())
        answer = await cluster.stub.GetNodes(pb.GetNodesRequest(), metadata=cluster.user())
        node = answer.nodes[0]
        return node.base, NodeFlag(node.flags), node.reason

    assert await word("drain", "disk") == (NodeBase.IDLE, NodeFlag.DRAIN, "disk")
    assert (await word("RESUME"))[:2] == (NodeBase.IDLE, NodeFlag.NONE)
    assert await word("DOWN", "broken") == (NodeBase.DOWN, NodeFlag.NONE, "broken")
    await cluster.beat(agent)
    await cluster.register(agent)
    assert (await word("DOWN", "still"))[0] is not NodeBase.IDLE
    assert (await word("RESUME"))[:2] == (NodeBase.IDLE, NodeFlag.NONE)
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)


async def test_ping_and_config(cluster):
    answer = await cluster.stub.Ping(pb.PingRequest(), metadata=cluster.user())
    assert (answer.role, answer.cluster_name) == ("primary", "test")
    answer = await cluster.stub.GetConfig(pb.GetConfigRequest(), metadata=cluster.user())
    values = {entry.key: entry.value for entry in answer.entries}
    assert values["KillWait"] == "2 sec"
    assert values["MinJobAge"] == "3600 sec"
    assert values["ClusterName"] == "test"
    assert list(values) == sorted(values, key=str.lower)


async def test_registration_that_cannot_be(cluster):
    for fields, text in (({"cpus": 0, "port": 1}, "cpus:"), ({"cpus": 1, "port": 0}, "port:")):
        status, said = await refused(
            cluster.stub.RegisterAgent(
                pb.RegisterAgentRequest(node="n1", **fields), metadata=cluster.as_node("n1")
            )
        )
        assert status is CODES.INVALID_ARGUMENT
        assert text in said


GPUS = [common_pb2.GresCount(name="gpu", count=2)]


def inventory(threads: str = "0-3", near: str = "2-3") -> pb.NodeInventory:
    """Four CPUs, and a GPU near two of them."""
    return pb.NodeInventory(
        sockets=[pb.SocketCpus(threads=[threads])],
        devices=[
            pb.DeviceSet(name="gpu", indices="0", near="0-1"),
            pb.DeviceSet(name="gpu", indices="1", near=near),
        ],
    )


async def test_what_a_node_has_is_told_to_jobs_by_name(cluster):
    agent = await cluster.add_agent("n1", cpus=4, gres=GPUS, inventory=inventory())
    first = await cluster.submit(gres=["gpu:1"])
    await cluster.in_state(first, JobState.RUNNING)
    second = await cluster.submit(num_tasks=2, gres=["gpu:1"])
    await cluster.in_state(second, JobState.RUNNING)
    told = [(spec.slice.cpu_ids, [item.indices for item in spec.slice.gres]) for spec in agent.launches]
    assert told == [("0", ["0"]), ("2-3", ["1"])]
    assert agent.launches[1].job_slice == agent.launches[1].slice
    answer = await cluster.stub.GetNodes(pb.GetNodesRequest(), metadata=cluster.user())
    assert [(item.count, item.indices) for item in answer.nodes[0].gres_used] == [(2, "0-1")]


async def test_an_older_agent_chooses_itself(cluster):
    agent = await cluster.add_agent("n1", cpus=4, gres=GPUS)
    job = await cluster.submit(gres=["gpu:1"])
    await cluster.in_state(job, JobState.RUNNING)
    (spec,) = agent.launches
    assert (spec.slice.cpus, spec.slice.cpu_ids, spec.slice.gres[0].indices) == (1, "", "")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (inventory("0-2"), "inventory: the sockets have 3 CPUs, the node 4"),
        (inventory("0-4294967295"), "'0-4294967295' is not a list of numbers such as 0-3,8"),
        (inventory(near="3-2"), "'3-2' is not a list of numbers such as 0-3,8"),
        (pb.NodeInventory(), "inventory: the sockets have 0 CPUs, the node 4"),
    ],
)
async def test_an_inventory_that_cannot_be(cluster, said, text):
    request = pb.RegisterAgentRequest(
        node="n1", cpus=4, gres=GPUS, port=1, address="127.0.0.1", inventory=said
    )
    call = cluster.stub.RegisterAgent(request, metadata=cluster.as_node("n1"))
    assert await refused(call) == (CODES.INVALID_ARGUMENT, text)
    assert "n1" not in cluster.state.nodes


async def test_the_configuration_caps_what_a_node_says(clusters):
    cluster = await clusters(
        extra='[[nodes]]\nnames = "n[1-2]"\ncpus = 2\nmemory_mb = 1000\nfeatures = ["ib"]\nweight = 7\n'
    )
    await cluster.add_agent("n1", cpus=64)
    node = cluster.state.nodes["n1"]
    assert (node.cpus, node.memory_mb, node.features, node.weight) == (2, 1000, ("ib",), 7)


async def test_history_is_served_beside(clusters):
    from spur_proto import accounting_pb2

    cluster = await clusters(extra="history")
    agent = await cluster.add_agent("n1")
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)
    await cluster.report(agent, job, code=3)
    request = accounting_pb2.GetJobHistoryRequest(jobs=[accounting_pb2.HistoryTarget(job_id=job)])
    for _ in range(100):
        answer = await cluster.history.GetJobHistory(request, metadata=cluster.user())
        if answer.jobs and answer.jobs[0].state == JobState.FAILED:
            break
        await asyncio.sleep(0.05)
    (row,) = answer.jobs
    assert (row.state, row.exit.code, row.steps[0].name) == (JobState.FAILED, 3, "batch")
    for _ in range(200):
        if not cluster.state.outbox:
            break
        await asyncio.sleep(0.01)
    assert not cluster.state.outbox


async def test_partitions_are_closed_to_other_groups(clusters):
    group = grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name
    extra = "".join(
        f'[[partitions]]\nname = "{name}"\nnodes = "ALL"\n{rule}\n'
        for name, rule in (
            ("theirs", 'allow_groups = ["no-such-group"]'),
            ("ours", f'allow_groups = ["no-such-group", "{group}"]'),
            ("admins", "root_only = true"),
        )
    )
    cluster = await clusters(extra=extra)
    nobody, root = cluster.user("nobody"), cluster.user()

    def submit(partition, who):
        spec = common_pb2.JobSpec(script=b"#!/bin/sh\n", partition=partition, hold=True)
        return cluster.stub.SubmitJob(pb.SubmitJobRequest(spec=spec), metadata=who)

    closed = "User's group not permitted to use this partition"
    assert (await refused(submit("theirs", nobody)))[1] == closed
    assert (await refused(submit("ours,theirs", nobody)))[1] == closed
    assert (await refused(submit("admins", nobody)))[1] == "Access/permission denied"
    for partition in ("theirs", "admins"):
        assert (await submit(partition, root)).job_id
    job = (await submit("ours", nobody)).job_id
    # Moved there it would be where it could not be submitted to.
    target = [pb.JobTarget(job_id=job)]
    for partition, text in (("theirs", closed), ("admins", "Access/permission denied")):
        move = pb.UpdateJobRequest(targets=target, partition=partition)
        assert (await refused(cluster.stub.UpdateJob(move, metadata=nobody)))[1] == text
    answer = await cluster.stub.UpdateJob(
        pb.UpdateJobRequest(targets=target, partition="theirs"), metadata=root
    )
    assert answer.results[0].text == ""
    shown = await cluster.stub.GetPartitions(pb.GetPartitionsRequest(name="ours"), metadata=nobody)
    assert list(shown.partitions[0].allow_groups) == ["no-such-group", group]
