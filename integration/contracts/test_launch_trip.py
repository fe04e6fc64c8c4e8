"""Border: the controller's launch request → the agent → `launch.json` → the supervisor.

Every field of the wire message has its place in the table below; a field that is added and forgotten there
fails the first test.  The values travel through the real functions of both sides.
"""

from collections.abc import Callable
from typing import Any

import pytest

from spur_agent import environment, local_spec
from spur_agent.accounts import Account
from spur_agent.allocation import Grant, GresGrant
from spur_core.ids import RuntimeId
from spur_proto import agent_pb2, common_pb2
from spur_proto_lite.launch_spec import LaunchSpec


def wire() -> agent_pb2.LaunchSpec:
    """A launch of step 0, in which no field has its default."""
    return agent_pb2.LaunchSpec(
        rid=common_pb2.RuntimeId(job_id=7, run_attempt=3, step_id=0),
        cluster_name="cl",
        job_name="name\u00e9",
        user="alice",
        uid=1234,
        gid=2345,
        partition="part",
        account="acct",
        qos="qos1",
        script=b"#!/bin/sh\n\xff\n",
        argv=[b"prog", b"\xfe"],
        script_args=[b"x y"],
        environment=[b"RAW=\xff", b"EMPTY="],
        work_dir="/w",
        stdout_path="o-%t",
        stderr_path="e-%t",
        stdin_path="/in",
        open_mode="append",
        umask=0o027,
        spool_output=True,
        label=True,
        rlimits=["NOFILE=10:20"],
        nodes=["n1", "n2"],
        node_index=1,
        slice=common_pb2.NodeSlice(node="n2", cpus=3, memory_mb=50, ranks=[4, 5]),
        total_tasks=6,
        cpus_per_task=1,
        tasks_per_node=2,
        tasks_given=True,
        tasks_per_node_text="4,2",
        cpus_per_node_text="4,3",
        memory_per_node_mb=50,
        memory_per_cpu_mb=17,
        array_job_id=6,
        array_task_id=9,
        array_task_count=11,
        array_task_min=1,
        array_task_max=21,
        array_task_step=2,
        restarts=2,
        start_at=1000.0,
        end_at=2000.0,
        submit_host="login",
        submit_dir="/home/alice",
        dependency="afterok:5",
        kill_wait_secs=12,
        cpus_per_task_given=True,
    )


Check = Callable[[LaunchSpec], bool]


def env(name: str, value: str) -> Check:
    """The value reaches the step's environment, under both prefixes."""
    return lambda spec: spec.env.get(f"SLURM_{name}") == value and spec.env.get(f"SPUR_{name}") == value


#: Wire field -> what must be true of the supervisor's spec.
SURVIVES: dict[str, Check] = {
    "rid": lambda s: s.rid == RuntimeId(7, 3, 0) and env("JOB_ID", "7")(s),
    "cluster_name": env("CLUSTER_NAME", "cl"),
    "job_name": lambda s: s.job_name == "name\u00e9" and env("JOB_NAME", "name\u00e9")(s),
    "user": lambda s: s.user == "alice" and env("JOB_USER", "alice")(s),
    "uid": lambda s: s.uid == 1234 and env("JOB_UID", "1234")(s),
    "gid": lambda s: s.gid == 2345 and env("JOB_GID", "2345")(s),
    "partition": lambda s: s.partition == "part" and env("JOB_PARTITION", "part")(s),
    "account": env("JOB_ACCOUNT", "acct"),
    "qos": env("JOB_QOS", "qos1"),
    "script": lambda s: raw(s.script) == b"#!/bin/sh\n\xff\n",
    "argv": lambda s: [raw(a) for a in s.argv] == [b"prog", b"\xfe"],
    "script_args": lambda s: s.script_args == ("x y",),
    "environment": lambda s: raw(s.env["RAW"]) == b"\xff" and s.env["EMPTY"] == "",
    "work_dir": lambda s: s.work_dir == "/w",
    "stdout_path": lambda s: s.stdout_pattern == "o-%t",
    "stderr_path": lambda s: s.stderr_pattern == "e-%t",
    "stdin_path": lambda s: s.stdin_pattern == "/in",
    "open_mode": lambda s: s.open_mode == "append",
    "umask": lambda s: s.umask == 0o027,
    "spool_output": lambda s: s.spool_output,
    "label": lambda s: s.label,
    "rlimits": lambda s: [(r.name, r.soft, r.hard) for r in s.rlimits] == [("NOFILE", 10, 20)],
    "nodes": lambda s: s.cohort == ("n1", "n2") and s.n_nodes == 2 and env("JOB_NODELIST", "n[1-2]")(s),
    "node_index": lambda s: s.node_id == 1 and env("NODEID", "1")(s),
    "slice": lambda s: (
        (s.cpus, s.memory_mb) == (3, 50)
        and [(t.rank, t.local_rank) for t in s.tasks] == [(4, 0), (5, 1)]
        and s.tasks[1].env["SLURM_PROCID"] == "5"
    ),
    "total_tasks": env("NTASKS", "6"),
    "cpus_per_task": env("CPUS_PER_TASK", "1"),
    "cpus_per_task_given": env("CPUS_PER_TASK", "1"),
    "tasks_per_node": env("NTASKS_PER_NODE", "2"),
    "tasks_given": env("NPROCS", "6"),
    "tasks_per_node_text": env("TASKS_PER_NODE", "4,2"),
    "cpus_per_node_text": env("JOB_CPUS_PER_NODE", "4,3"),
    "memory_per_node_mb": env("MEM_PER_NODE", "50"),
    "memory_per_cpu_mb": env("MEM_PER_CPU", "17"),
    "array_job_id": lambda s: s.array_job_id == 6 and env("ARRAY_JOB_ID", "6")(s),
    "array_task_id": lambda s: s.array_task_id == 9 and env("ARRAY_TASK_ID", "9")(s),
    "array_task_count": env("ARRAY_TASK_COUNT", "11"),
    "array_task_min": env("ARRAY_TASK_MIN", "1"),
    "array_task_max": env("ARRAY_TASK_MAX", "21"),
    "array_task_step": env("ARRAY_TASK_STEP", "2"),
    "restarts": lambda s: s.restart_count == 2 and env("RESTART_COUNT", "2")(s),
    "start_at": env("JOB_START_TIME", "1000"),
    "end_at": env("JOB_END_TIME", "2000"),
    "submit_host": env("SUBMIT_HOST", "login"),
    "submit_dir": env("SUBMIT_DIR", "/home/alice"),
    "dependency": env("JOB_DEPENDENCY", "afterok:5"),
    "kill_wait_secs": lambda s: s.kill_wait_secs == 12,
}


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@pytest.fixture(scope="module")
def arrived() -> LaunchSpec:
    """The spec as the supervisor reads it."""
    message = agent_pb2.LaunchSpec.FromString(wire().SerializeToString())
    grant = Grant(cpu_ids=(2, 3, 4), memory_mb=50, gres=(GresGrant("gpu", "a100", (0, 2)),))
    account = Account("alice", "/home/alice", "/bin/sh")
    here = environment.NodeContext("n2", "/opt/spur/bin", "/etc/spur/spur.conf", account)
    rules = local_spec.NodeRules("n2", allow_root_jobs=False, cgroup_root="auto", pinned=True)
    built = local_spec.build(message, environment.build(message, grant, here), (2345, 99), grant, rules)
    return LaunchSpec.from_json(built.to_json())


def test_every_wire_field_is_in_the_table() -> None:
    assert {field.name for field in agent_pb2.LaunchSpec.DESCRIPTOR.fields} == set(SURVIVES)


def test_no_field_of_the_example_has_its_default() -> None:
    assert {field.name for field, _ in wire().ListFields()} == set(SURVIVES)


@pytest.mark.parametrize("name", sorted(SURVIVES))
def test_the_field_survives(arrived: Any, name: str) -> None:
    assert SURVIVES[name](arrived), name


def test_what_the_node_adds_is_there(arrived: Any) -> None:
    assert (arrived.cpu_ids, arrived.gpu_ids, arrived.groups) == ((2, 3, 4), (0, 2), (2345, 99))
    assert arrived.env["SLURMD_NODENAME"] == "n2"
    assert arrived.env["CUDA_VISIBLE_DEVICES"] == "0,2"
