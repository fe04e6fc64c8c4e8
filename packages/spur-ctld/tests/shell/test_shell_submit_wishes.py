"""What a submission asks for besides counts, and who may use a partition: every rule as a table."""

import pytest

from spur_core.errors import RequestError
from spur_ctld import submit, submit_wishes
from spur_ctld.state.accounting_rows import requested_tres
from spur_ctld.state.pending import request_view
from spur_ctld.state.records import Gres, Node, Partition
from spur_ctld.users import UserRecord
from spur_proto import common_pb2

RULES = submit.SubmitRules(
    max_array_size=1001,
    default_priority=1000,
    max_user_priority=1000,
    default_time_limit=0,
    enforce_part_limits="NO",
)
ALICE = submit.Submitter(UserRecord("alice", 1000, 100, "users", ("users", "physics")), admin=False)
ROOT = submit.Submitter(UserRecord("root", 0, 0, "root", ("root",)), admin=True)
GPUS = (Gres(name="gpu", count=4, type="h100"), Gres(name="shard", count=8))
NODES = {f"n{i}": Node(name=f"n{i}", cpus=8, gres=GPUS) for i in (1, 2, 3)}
MAIN = Partition(name="main", default=True, nodes=("n1", "n2", "n3"), def_mem_per_cpu=100)


def go(*, who=ALICE, parts=(MAIN,), wishes=(), **fields):
    """The request that the submission becomes."""
    spec = common_pb2.JobSpec(script=b"#!/bin/sh\n", **fields)
    if wishes:
        spec.wishes.CopyFrom(common_pb2.JobWishes(**wishes))
    found = submit.resolve(spec, RULES, {part.name: part for part in parts}, NODES, who, 1000.0)
    return found.op.request


def refused(**fields):
    with pytest.raises(RequestError) as caught:
        go(**fields)
    return caught.value.text


@pytest.mark.parametrize(
    ("fields", "wishes", "nodes", "tasks"),
    [
        # A total: one node at least, and never more nodes than GPUs.
        ({}, {"gres_total": ["gpu:4"]}, (1, 4), (1, False)),
        ({"min_nodes": 2, "max_nodes": 2}, {"gres_total": ["gpu:4"]}, (2, 2), (2, False)),
        ({"min_nodes": 1, "max_nodes": 9}, {"gres_total": ["gpu:4"]}, (1, 4), (1, False)),
        ({"num_tasks": 3}, {"gres_total": ["gpu:4"]}, (1, 3), (3, True)),
        # Tasks of each GPU say how many tasks there are, or how many GPUs it takes.
        ({}, {"gres_total": ["gpu:4"], "ntasks_per_gpu": 2}, (1, 4), (8, True)),
        ({"min_nodes": 2, "max_nodes": 2, "gres": ["gpu:2"]}, {"ntasks_per_gpu": 3}, (2, 2), (12, True)),
        ({"num_tasks": 5}, {"ntasks_per_gpu": 2}, (1, 3), (5, True)),
        ({"num_tasks": 4}, {"gres_per_task": ["gpu:1"]}, (1, 4), (4, True)),
    ],
)
def test_nodes_and_tasks_that_follow_from_gpus(fields, wishes, nodes, tasks):
    request = go(wishes=wishes, **fields)
    assert ((request.min_nodes, request.max_nodes), (request.num_tasks, request.tasks_given)) == (
        nodes,
        tasks,
    )


def test_tasks_that_share_gpus_bring_them():
    assert go(num_tasks=5, wishes={"ntasks_per_gpu": 2}).gres_total == (Gres(name="gpu", count=3),)


@pytest.mark.parametrize(
    ("fields", "wishes", "text"),
    [
        (
            {},
            {"gres_total": ["gpu:1"], "gres_per_task": ["gpu:1"]},
            "GPUs are asked for more than once (--gpus, ",
        ),
        (
            {"gres": ["gpu:1"]},
            {"gres_total": ["gpu:1"]},
            "GPUs are asked for more than once (--gpus, --gpus-per-node)",
        ),
        (
            {},
            {"gres_total": ["gpu:a:1", "gpu:b:1"]},
            "GPUs of different types are asked for (a, b); use one type",
        ),
        (
            {"min_nodes": 3, "max_nodes": 3},
            {"gres_total": ["gpu:2"]},
            "--gpus=2 is less than the 3 nodes of the job",
        ),
        (
            {"min_nodes": 1, "max_nodes": 2},
            {"gres_per_task": ["gpu:1"]},
            "--gpus-per-task needs the number of tasks",
        ),
        ({}, {"gres_per_socket": ["gpu:1"]}, "--gpus-per-socket needs the number of sockets"),
        ({}, {"gres_total": ["tape:1"]}, "Invalid generic resource (gres) specification"),
        ({}, {"gres_total": ["gpu"] * 20000}, "gres_total: more than"),
        ({}, {"cpus_per_gpu": 2}, "Invalid generic resource (gres) specification: --cpus-per-gpu needs GPUs"),
        (
            {},
            {"memory_per_gpu_mb": 2},
            "Invalid generic resource (gres) specification: --mem-per-gpu needs GPUs",
        ),
        (
            {},
            {"ntasks_per_gpu": 2},
            "Invalid generic resource (gres) specification: --ntasks-per-gpu needs GPUs",
        ),
        (
            {"cpus_per_task": 2},
            {"cpus_per_gpu": 2, "gres_total": ["gpu:1"]},
            "--cpus-per-gpu and --cpus-per-task are mutually exclusive",
        ),
        (
            {"memory_per_node_mb": 2},
            {"memory_per_gpu_mb": 2, "gres_total": ["gpu:1"]},
            "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
        ),
        (
            {"num_tasks": 2},
            {"gres_per_task": ["gpu:1"], "ntasks_per_gpu": 1},
            "--gpus-per-task, --gpus-per-socket and --ntasks-per-node are mutually exclusive with",
        ),
        ({}, {"ntasks_per_core": 0}, "Task count specification invalid"),
        ({}, {"min_cpus": 1 << 30}, "CPU count specification invalid"),
        ({}, {"sockets_per_node": 0}, "Requested node configuration is not available"),
        ({}, {"tmp_disk_mb": 1 << 50}, "tmp_disk_mb: "),
        ({}, {"hint": "memory_bound"}, "hint: 'memory_bound' is not one of"),
        ({}, {"hint": "nomultithread", "threads_per_core": 2}, "--hint cannot be used together with"),
        (
            {"time_limit_secs": 60},
            {"time_min_secs": 120},
            "Requested time limit is invalid (missing or exceeds",
        ),
        (
            {"exclusive": True},
            {"oversubscribe": True},
            "--exclusive and --oversubscribe options are mutually",
        ),
    ],
)
def test_wishes_that_cannot_be(fields, wishes, text):
    assert refused(wishes=wishes, **fields).startswith(text)


def test_several_types_of_each_node_are_counted_out():
    assert len(go(gres=["gpu:h100:1", "gpu:1"]).gres) == 2


def test_what_is_asked_for_comes_back_and_reaches_the_scheduler():
    wishes = {
        "gres_total": ["gpu:h100:4", "shard:2"],
        "cpus_per_gpu": 3,
        "memory_per_gpu_mb": 300,
        "ntasks_per_socket": 2,
        "ntasks_per_core": 1,
        "min_cpus": 4,
        "sockets_per_node": 2,
        "cores_per_socket": 4,
        "threads_per_core": 1,
        "tmp_disk_mb": 100,
        "contiguous": True,
        "spread": True,
        "use_min_nodes": True,
        "exclusive_user": True,
        "time_min_secs": 60,
    }
    request = go(wishes=wishes)
    assert submit_wishes.message(request) == common_pb2.JobWishes(**wishes)
    # A size for GPUs takes the place of the partition's default.
    assert (request.memory_per_node_mb, request.memory_per_cpu_mb) == (None, None)
    view = request_view(request, 1, 1000, 0.0, 0.0)
    assert view.gres_total == {("gpu", "h100"): 4, ("shard", ""): 2}
    for name in (
        "cpus_per_gpu",
        "memory_per_gpu_mb",
        "ntasks_per_socket",
        "ntasks_per_core",
        "min_cpus",
        "sockets_per_node",
        "cores_per_socket",
        "threads_per_core",
        "tmp_disk_mb",
        "contiguous",
        "spread",
        "use_min_nodes",
        "exclusive_user",
    ):
        assert getattr(view, name) == wishes[name], name
    assert view.time_min == 60


@pytest.mark.parametrize(
    ("fields", "wishes", "tres"),
    [
        (
            {},
            {"gres_total": ["gpu:h100:4"], "cpus_per_gpu": 2},
            {"cpu": 8, "gres/gpu": 4, "gres/gpu:h100": 4},
        ),
        ({"num_tasks": 3}, {"gres_per_task": ["gpu:2"]}, {"cpu": 3, "gres/gpu": 6}),
        ({}, {"gres_per_socket": ["gpu:1"], "sockets_per_node": 2}, {"cpu": 1, "gres/gpu": 2}),
        ({}, {"gres_total": ["gpu:2"], "memory_per_gpu_mb": 50}, {"mem": 100}),
        ({"min_nodes": 2, "max_nodes": 2}, {"min_cpus": 3}, {"cpu": 6}),
    ],
)
def test_requested_tres(fields, wishes, tres):
    found = requested_tres(go(wishes=wishes, **fields))
    assert {name: found[name] for name in tres} == tres


@pytest.mark.parametrize(
    ("limits", "fields", "text"),
    [
        ({"allow_groups": ("physics",)}, {}, ""),
        ({"allow_groups": ("wheel",)}, {}, "User's group not permitted to use this partition"),
        ({"allow_groups": ("wheel",)}, {"who": ROOT}, ""),
        ({"allow_accounts": ("chem",)}, {"account": "chem"}, ""),
        (
            {"allow_accounts": ("chem",)},
            {"account": "bio"},
            "Invalid account or account/partition combination",
        ),
        ({"allow_accounts": ("chem",)}, {}, "Invalid account or account/partition combination specified"),
        (
            {"deny_accounts": ("chem",)},
            {"account": "Chem"},
            "Invalid account or account/partition combination",
        ),
        ({"deny_accounts": ("chem",)}, {"account": "bio"}, ""),
        ({"deny_accounts": ("chem",)}, {}, "Invalid account or account/partition combination specified"),
        ({"allow_accounts": ("a",), "deny_accounts": ("a",)}, {"account": "a"}, ""),
        ({"allow_qos": ("high",)}, {"qos": "high"}, ""),
        ({"allow_qos": ("high",)}, {}, "Invalid qos specification"),
        ({"deny_qos": ("low",)}, {"qos": "low"}, "Invalid qos specification"),
        ({"deny_qos": ("low",)}, {}, ""),
        ({"root_only": True}, {}, "Access/permission denied"),
        ({"root_only": True}, {"who": ROOT}, ""),
        ({"disable_root_jobs": True}, {"who": ROOT}, "Access/permission denied"),
        ({"disable_root_jobs": True}, {}, ""),
        ({"req_resv": True}, {}, "Access/permission denied"),
    ],
)
def test_who_may_use_a_partition(limits, fields, text):
    part = Partition(name="p", nodes=("n1",), **limits)
    if not text:
        assert go(parts=(part,), **fields).partitions == ("p",)
    else:
        assert refused(parts=(part,), **fields).startswith(text)


def test_every_partition_of_a_list_must_allow():
    closed = Partition(name="closed", nodes=("n1",), allow_accounts=("chem",))
    assert refused(parts=(MAIN, closed), partition="main,closed").startswith("Invalid account")
    assert go(parts=(MAIN, closed), partition="main,closed", account="chem").partitions == ("main", "closed")


def test_an_alternate_takes_the_jobs_of_a_partition_that_takes_none():
    drained = Partition(name="old", default=True, state="DRAIN", nodes=("n1",), alternate="main")
    new = Partition(name="main", nodes=("n1",))
    assert go(parts=(drained, new), partition="old").partitions == ("main",)
    assert go(parts=(drained, new), partition="old,main").partitions == ("main",)
    assert go(parts=(drained, new)).partitions == ("main",)


@pytest.mark.parametrize(
    ("fields", "wishes", "good"),
    [
        ({"time_limit_secs": 60}, {}, True),
        ({"time_limit_secs": 600}, {}, False),
        ({"time_limit_secs": 600}, {"time_min_secs": 60}, True),
        ({"time_limit_secs": 60, "begin_at": 1050.0}, {}, False),
        # Without a limit of its own it gets one when it starts.
        ({}, {}, True),
    ],
)
def test_a_deadline_that_cannot_be_kept_is_refused(fields, wishes, good):
    if good:
        assert go(deadline_at=1100.0, wishes=wishes, **fields).deadline_at == 1100.0
    else:
        assert refused(deadline_at=1100.0, wishes=wishes, **fields).startswith(
            "Requested time limit is invalid"
        )


def test_a_burst_buffer_is_nothing_to_wait_for():
    assert "afterburstbuffer is not supported by this release" in refused(dependency="afterburstbuffer:5")
