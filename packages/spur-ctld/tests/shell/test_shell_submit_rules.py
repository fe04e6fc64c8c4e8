"""The submit pipeline without a network: every rule of it as a table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import RequestError
from spur_ctld import submit, submit_shape
from spur_ctld.state.records import UNLIMITED, Gres, Node, Partition
from spur_ctld.users import UserRecord
from spur_proto import common_pb2

RULES = submit.SubmitRules(
    max_array_size=1001,
    default_priority=1000,
    max_user_priority=1000,
    default_time_limit=0,
    enforce_part_limits="NO",
)
ALICE = submit.Submitter(UserRecord("alice", 1000, 100, "users"), admin=False)
ROOT = submit.Submitter(UserRecord("root", 0, 0, "root"), admin=True)
NODES = {
    f"n{i}": Node(name=f"n{i}", cpus=8, gres=(Gres(name="gpu", count=2, type="h100"),)) for i in (1, 2, 3)
}
PARTS = {
    "a": Partition(name="a", nodes=("n1", "n2"), max_time=3600, default_time=600),
    "b": Partition(name="b", default=True, nodes=("n1", "n2", "n3"), def_mem_per_cpu=100),
    "shut": Partition(name="shut", state="DRAIN", nodes=("n1",)),
    "down": Partition(name="down", state="DOWN", nodes=("n1",), max_nodes=1, max_time=60),
}


def spec(**fields):
    made = common_pb2.JobSpec(script=b"#!/bin/sh\n")
    for key, value in fields.items():
        if isinstance(value, list):
            getattr(made, key).extend(value)
        else:
            setattr(made, key, value)
    return made


def go(who=ALICE, rules=RULES, **fields):
    return submit.resolve(spec(**fields), rules, PARTS, NODES, who, 1000.0)


@pytest.mark.parametrize(
    ("fields", "nodes", "tasks", "given", "warnings"),
    [
        ({}, (1, 1), 1, False, 0),
        ({"min_nodes": 2}, (2, 2), 2, False, 0),
        ({"min_nodes": 2, "max_nodes": 4}, (2, 4), 2, False, 0),
        ({"max_nodes": 4}, (1, 4), 1, False, 0),
        ({"num_tasks": 4}, (1, 4), 4, True, 0),
        ({"num_tasks": 1, "min_nodes": 2}, (1, 1), 1, True, 1),
        ({"min_nodes": 2, "tasks_per_node": 3}, (2, 2), 6, True, 0),
        ({"num_tasks": 5, "tasks_per_node": 2}, (3, 5), 5, True, 0),
        ({"num_tasks": 4, "min_nodes": 2, "max_nodes": 2, "tasks_per_node": 2}, (2, 2), 4, True, 0),
        ({"num_tasks": 2, "min_nodes": 1, "max_nodes": 9}, (1, 2), 2, True, 0),
    ],
)
def test_shapes(fields, nodes, tasks, given, warnings):
    shape = submit_shape.resolve(spec(**fields), 0)
    assert ((shape.min_nodes, shape.max_nodes), shape.num_tasks) == (nodes, tasks)
    assert shape.tasks_given == given
    assert len(shape.warnings) == warnings


def test_the_warning_is_slurms():
    shape = submit_shape.resolve(spec(num_tasks=1, min_nodes=2), 0)
    assert shape.warnings == ("can't run 1 process on 2 nodes, setting nnodes to 1",)


def test_named_nodes_raise_the_node_count():
    shape = submit_shape.resolve(spec(min_nodes=1), 3)
    assert (shape.min_nodes, shape.max_nodes) == (3, 3)


@given(st.integers(1, 50), st.integers(1, 50), st.none() | st.integers(1, 50), st.none() | st.integers(1, 50))
def test_a_shape_never_contradicts_itself(low, more, tasks, per_node):
    fields = {"min_nodes": low, "max_nodes": low + more}
    if tasks:
        fields["num_tasks"] = tasks
    if per_node:
        fields["tasks_per_node"] = per_node
    try:
        shape = submit_shape.resolve(spec(**fields), 0)
    except RequestError as error:
        refused = error.text
        shape = None
    if shape is None:
        assert refused == "More processors requested than permitted"
        return
    assert 1 <= shape.min_nodes <= shape.max_nodes
    if tasks:
        assert shape.num_tasks == tasks >= shape.min_nodes
        if per_node:
            assert shape.max_nodes * per_node >= tasks


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"partition": "a"}, 600),
        ({"partition": "b"}, UNLIMITED),
        ({"partition": "a,b"}, 600),
        ({"partition": "down"}, 60),
        ({"partition": "b", "time_limit_secs": 90}, 90),
        ({"partition": "b", "time_limit_secs": 0}, UNLIMITED),
        ({"partition": "b", "time_limit_secs": UNLIMITED}, UNLIMITED),
    ],
)
def test_time_limits(fields, limit):
    assert go(**fields).op.request.time_limit == limit


def test_the_cluster_fallback_limit():
    rules = RULES._replace(default_time_limit=1200)
    assert go(rules=rules, partition="b").op.request.time_limit == 1200
    assert go(rules=rules, partition="a").op.request.time_limit == 600
    assert go(rules=rules, partition="down").op.request.time_limit == 60


@pytest.mark.parametrize(
    ("mode", "fields", "refused"),
    [
        ("NO", {"partition": "a", "time_limit_secs": 7200}, False),
        ("ANY", {"partition": "a", "time_limit_secs": 7200}, True),
        ("ANY", {"partition": "a,b", "time_limit_secs": 7200}, False),
        ("ALL", {"partition": "a,b", "time_limit_secs": 7200}, True),
        ("ALL", {"partition": "down", "min_nodes": 2}, True),
    ],
)
def test_enforced_partition_limits(mode, fields, refused):
    rules = RULES._replace(enforce_part_limits=mode)
    if refused:
        with pytest.raises(RequestError):
            go(rules=rules, **fields)
    else:
        go(rules=rules, **fields)


def test_memory_defaults():
    assert go(partition="b").op.request.memory_per_cpu_mb == 100
    assert go(partition="b", memory_per_node_mb=0).op.request.memory_per_node_mb == 0
    assert go(partition="a").op.request.memory_per_node_mb is None


@pytest.mark.parametrize(
    ("who", "fields", "priority", "nice", "warnings"),
    [
        (ALICE, {}, 1000, 0, 0),
        (ALICE, {"nice": 100}, 900, 100, 0),
        (ALICE, {"nice": 5000}, 1, 5000, 0),
        (ALICE, {"nice": -5}, 1000, 0, 1),
        (ROOT, {"nice": -5}, 1005, -5, 0),
        (ALICE, {"priority": 5000}, 1000, 0, 1),
        (ROOT, {"priority": 5000}, 5000, 0, 0),
        (ALICE, {"priority": 7}, 7, 0, 0),
    ],
)
def test_priorities(who, fields, priority, nice, warnings):
    resolved = go(who, **fields)
    assert (resolved.op.priority, resolved.op.request.nice) == (priority, nice)
    assert len(resolved.warnings) == warnings


def test_identity_comes_from_the_caller_alone():
    request = go().op.request
    assert (request.user, request.uid, request.gid, request.group) == ("alice", 1000, 100, "users")


def test_partitions():
    assert go().op.request.partitions == ("b",)
    assert go(partition="a,b,a").op.request.partitions == ("a", "b")
    with pytest.raises(RequestError, match="inactive or drain"):
        go(partition="shut")
    go(partition="down")
    assert go(partition="shut,a").op.request.partitions == ("shut", "a")
    with pytest.raises(RequestError, match="Requested nodes not in this partition"):
        go(partition="a", nodelist="n3")
    with pytest.raises(RequestError, match="No partition specified"):
        submit.resolve(spec(), RULES, {}, NODES, ALICE, 0.0)


def test_hold_and_priority_zero_hold():
    assert go(hold=True).op.held
    assert go(priority=0).op.held
    assert not go().op.held


def test_arrays_and_resources():
    op = go(array="0-9:3%2", gres=["gpu:1", "gpu:h100:1"]).op
    assert (op.array, op.array_throttle) == (((0, 9, 3),), 2)
    assert {(g.name, g.type, g.count) for g in op.request.gres} == {("gpu", "", 1), ("gpu", "h100", 1)}
    assert go(gres=["none"]).op.request.gres == ()


def test_a_begin_time_in_the_past_is_none():
    assert go(begin_at=10.0).op.request.begin_at is None
    assert go(begin_at=2000.0).op.request.begin_at == 2000.0


@given(
    st.dictionaries(
        st.binary(min_size=1).filter(lambda k: not set(k) & {0, 61}), st.binary().filter(lambda v: 0 not in v)
    )
)
def test_an_environment_survives(env):
    from spur_ctld.dispatch.launch_spec import split_environment

    entries = [k + b"=" + v for k, v in env.items()]
    assert split_environment(submit.environment(entries)) == entries
