"""Partitions that are made, changed and removed while the controller runs."""

import grpc
import pytest

from spur_core.config import parse_config
from spur_ctld import partition_changes
from spur_ctld.settings import partition_record
from spur_proto import controller_pb2 as pb

FULL = """
cluster_name = "c"

[scheduler]
priority_type = "multifactor"
preempt_type = "partition_prio"

[[partitions]]
name = "a"
default = true
nodes = "n[1-3]"
max_time = "1-0"
default_time = 60
max_nodes = 4
min_nodes = 2
allow_accounts = ["x", "y"]
deny_qos = ["low"]
allow_groups = ["g"]
root_only = true
oversubscribe = "FORCE:3"
exclusive_user = true
max_cpus_per_node = 8
lln = true
alternate = "b"
priority_tier = 3
priority_job_factor = 7
preempt_mode = "requeue"
preempt_exempt_time = 5
grace_time = 9
over_time_limit = 10
def_mem_per_cpu = "1G"
max_mem_per_node = "8G"

[[partitions]]
name = "b"
nodes = "ALL"
selector = { rack = "r1" }
req_resv = true
disable_root_jobs = true
def_mem_per_node = 100
"""


def test_records_become_entries_and_records_again():
    for entry in parse_config(FULL).partitions:
        record = partition_record(entry)
        assert partition_record(partition_changes.entry_of(record)) == record


def changes(**words):
    return [pb.PartitionChange(key=key, value=value) for key, value in words.items()]


async def refused(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.details()


def update(cluster, name="default", user="root", **words):
    request = pb.UpdatePartitionRequest(name=name, changes=changes(**words))
    return cluster.stub.UpdatePartition(request, metadata=cluster.user(user))


def create(cluster, name, **words):
    request = pb.CreatePartitionRequest(name=name, changes=changes(**words))
    return cluster.stub.CreatePartition(request, metadata=cluster.user())


def delete(cluster, name):
    return cluster.stub.DeletePartition(pb.DeletePartitionRequest(name=name), metadata=cluster.user())


async def shown(cluster):
    answer = await cluster.stub.GetPartitions(pb.GetPartitionsRequest(), metadata=cluster.user())
    return {one.name: one for one in answer.partitions}


async def only(cluster):
    return next(iter(await shown(cluster)))


async def test_what_can_be_changed(cluster):
    await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    name = await only(cluster)
    await update(
        cluster,
        name,
        State="drain",
        MaxTime="2:00:00",
        DefaultTime="30",
        MaxNodes="3",
        MinNodes="1",
        PriorityTier="4",
        Nodes="n2",
        AllowAccounts="x,y",
        AllowGroups="users",
        DenyQOS="low",
        OverSubscribe="yes",
        LLN="YES",
        DefMemPerCPU="1G",
        MaxCPUsPerNode="2",
    )
    one = (await shown(cluster))[name]
    assert (one.state, one.max_time_secs, one.default_time_secs, one.max_nodes) == ("DRAIN", 7200, 1800, 3)
    assert (one.priority_tier, one.nodes, list(one.allow_accounts)) == (4, "n2", ["x", "y"])
    assert (one.oversubscribe, one.lln, one.max_cpus_per_node) == ("YES:4", True, 2)
    assert (one.def_memory_per_cpu_mb, list(one.deny_qos)) == (1024, ["low"])
    await update(cluster, name, State="UP", MaxTime="UNLIMITED", MaxNodes="UNLIMITED", AllowAccounts="ALL")
    one = (await shown(cluster))[name]
    assert not one.HasField("max_time_secs")
    assert not one.HasField("max_nodes")
    assert (one.state, list(one.allow_accounts), one.default_time_secs) == ("UP", [], 1800)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"State": "sideways"}, "State=sideways: must be one of UP, DOWN, DRAIN, INACTIVE"),
        ({"MaxTime": "x"}, "MaxTime=x: not a duration"),
        ({"MaxTime": ""}, "MaxTime=: not a duration"),
        ({"MaxNodes": ""}, "MaxNodes=: must be a whole number"),
        ({"DefMemPerNode": "2T", "MaxMemPerNode": "1T"}, "must not be above max_mem_per_node"),
        ({"MaxNodes": "0"}, "MaxNodes=0: must be at least 1"),
        ({"MinNodes": "many"}, "MinNodes=many: must be a whole number"),
        ({"LLN": "perhaps"}, "LLN=perhaps: must be YES or NO"),
        ({"Nodes": "n9"}, "Invalid node name specified: n9"),
        ({"Nodes": "n[1-"}, "Nodes=n[1-: not a hostlist"),
        ({"MaxTime": "10", "DefaultTime": "20"}, "must not be above max_time"),
        ({"Alternate": "nowhere"}, "must be another partition"),
        ({"PriorityJobFactor": "5"}, 'has an effect with priority_type = "multifactor" only'),
        ({"Hidden": "YES"}, "Update of this parameter is not supported: Hidden=YES"),
        ({"OverSubscribe": "YES:x"}, "the number of jobs on a CPU"),
        ({}, "No changes specified"),
    ],
)
async def test_what_is_refused(cluster, words, text):
    await cluster.add_agent("n1")
    name = await only(cluster)
    before = (await shown(cluster))[name]
    assert text in await refused(update(cluster, name, **words))
    assert (await shown(cluster))[name] == before


async def test_only_administrators_and_only_what_is_there(cluster):
    name = await only(cluster)
    assert await refused(update(cluster, name, user="nobody", State="DOWN")) == "Access/permission denied"
    assert await refused(update(cluster, "gone", State="DOWN")) == "Invalid partition name specified"
    assert await refused(delete(cluster, "gone")) == "Invalid partition name specified"


async def test_made_and_removed(cluster):
    await cluster.add_agent("n1")
    name = await only(cluster)
    assert "Nodes must be specified" in await refused(create(cluster, "new"))
    assert "Invalid partition name" in await refused(create(cluster, "a b", Nodes="n1"))
    await create(cluster, "new", Nodes="ALL", Default="YES", MaxTime="5")
    assert "in use already" in await refused(create(cluster, "new", Nodes="n1"))
    assert "Slurm's word" in await refused(create(cluster, "DEFAULT", Nodes="ALL"))
    found = await shown(cluster)
    assert (found["new"].is_default, found[name].is_default) == (True, False)
    spec = pb.SubmitJobRequest()
    spec.spec.script = b"#!/bin/sh\n"
    spec.spec.partition = "new"
    spec.spec.work_dir = "/tmp"
    spec.spec.hold = True
    job = await cluster.stub.SubmitJob(spec, metadata=cluster.user())
    assert await refused(delete(cluster, "new")) == "Partition is in use"
    cancel = pb.CancelJobRequest()
    cancel.targets.add(job_id=job.job_id)
    await cluster.stub.CancelJob(cancel, metadata=cluster.user())
    await delete(cluster, "new")
    assert set(await shown(cluster)) == {name}


async def test_changes_by_hand_outlive_a_controller_and_end_when_the_file_changes(cluster):
    name = await only(cluster)
    await update(cluster, name, State="DOWN")
    await create(cluster, "new", Nodes="ALL")
    for _ in range(2):
        await cluster.crash()
        await cluster.restart()
        found = await shown(cluster)
        assert set(found) == {name, "new"}
        assert found[name].state == "DOWN"
    await cluster.crash()
    cluster.text = cluster.text.replace("[[partitions]]", "[[partitions]]\nmax_nodes = 7")
    await cluster.restart()
    found = await shown(cluster)
    assert set(found) == {name}
    assert (found[name].state, found[name].max_nodes) == ("UP", 7)


async def test_changes_by_hand_outlive_a_leader(trio):
    name = next(iter(trio.state.partitions))
    request = pb.UpdatePartitionRequest(name=name, changes=changes(State="DRAIN"))
    await trio.stub.UpdatePartition(request, metadata=trio.user())
    await trio.kill(trio.leader)
    await trio.led()
    assert trio.state.partitions[name].state == "DRAIN"


async def test_a_repeat_is_answered_as_the_first_time(cluster):
    metadata = (*cluster.user(), ("x-spur-request-id", "ab" * 16))
    request = pb.CreatePartitionRequest(name="new", changes=changes(Nodes="ALL"))
    await cluster.stub.CreatePartition(request, metadata=metadata)
    await cluster.stub.CreatePartition(request, metadata=metadata)
