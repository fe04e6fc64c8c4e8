"""Border: the controller's launch request → the agent → `launch.json` → the supervisor.

Every field of the wire message has its place in the table below; a field that is added and forgotten there
fails the first test.  The values travel through the real functions of both sides.
"""

from collections.abc import Callable
from typing import Any

import pytest

from spur_agent import claim, environment, hook_env, hooks, local_spec, task_plan
from spur_agent.accounts import Account
from spur_agent.allocation import AllocationTable, Grant, GresGrant, Want
from spur_agent.share import Share
from spur_core.ids import STEP_BATCH, RuntimeId
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
        slice=held(common_pb2.GresCount(name="gpu", type="a100", count=2, indices="0,2"), cpu_ids="2-4"),
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
        hold=True,
        job_lifetime=True,
        shape=shape(),
        job_slice=common_pb2.NodeSlice(node="n2", cpus=4, memory_mb=80),
        step_nodes=["n2", "n3"],
        step_node_index=1,
        step_tasks_per_node_text="2,1",
        step_name="name of the step",
        distribution="cyclic",
        overlap=True,
        exact=True,
        step_tasks=3,
        job_tasks=8,
        srun_host="shell",
        srun_address="192.0.2.7",
        comment="a remark",
        reservation="night",
        licenses="m:2",
        wishes=common_pb2.JobWishes(gres_total=["gpu:a100:4"], cpus_per_gpu=3, hint="nomultithread"),
        gpus_per_node_text="2,1",
        topology_addr="core.leaf1.n2",
        topology_addr_pattern="switch.switch.node",
    )


def held(*gres: common_pb2.GresCount, cpu_ids: str) -> common_pb2.NodeSlice:
    """What the step holds on its node; no field has its default."""
    return common_pb2.NodeSlice(
        node="n2", cpus=3, memory_mb=50, gres=gres, ranks=[4, 5], cpu_ids=cpu_ids, layer=2
    )


def shape() -> common_pb2.StepShape:
    """How the step's tasks start; no field has its default either."""
    return common_pb2.StepShape(
        pty=True,
        pty_rows=50,
        pty_cols=120,
        commands=[common_pb2.RankCommand(ranks=[5], argv=[b"other", b"\xfd"])],
        cpu_bind="verbose,map_cpu:2,3",
        stdin_rank=4,
        task_prolog="/srun/before",
        task_epilog="/srun/after",
        mpi="pmi2",
        gpu_bind="map_gpu:0,1",
        gpus_per_task=1,
    )


Check = Callable[[LaunchSpec], bool]


def env(name: str, value: str) -> Check:
    """The value reaches the step's environment, under both prefixes."""
    return lambda spec: spec.env.get(f"SLURM_{name}") == value and spec.env.get(f"SPUR_{name}") == value


def of(kind: str, check: Check) -> tuple[str, Check]:
    """Seen in another kind of step: "batch" (a batch script), "hold" (a step that only holds)."""
    return kind, check


#: Wire field -> what must be true of the supervisor's spec; of a numbered step unless `of` says otherwise.
SURVIVES: dict[str, Check | tuple[str, Check]] = {
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
    "nodes": lambda s: s.n_nodes == 2 and s.nodelist == "n[1-2]" and env("JOB_NODELIST", "n[1-2]")(s),
    "node_index": lambda s: s.node_id == 1,
    "slice": lambda s: (
        (s.cpus, s.memory_mb) == (2, 50)
        and [(t.rank, t.local_rank) for t in s.tasks] == [(4, 0), (5, 1)]
        and s.tasks[1].env["LOCAL_RANK"] == "1"
        # The layer of shared CPUs is the agent's to know.
        and CLAIM.grant.layer == 2
    ),
    "total_tasks": of("alone", env("NTASKS", "6")),
    "cpus_per_task": env("CPUS_PER_TASK", "1"),
    "cpus_per_task_given": env("CPUS_PER_TASK", "1"),
    "tasks_per_node": env("NTASKS_PER_NODE", "2"),
    "tasks_given": of("batch", env("NPROCS", "8")),
    "tasks_per_node_text": of("batch", env("TASKS_PER_NODE", "4,2")),
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
    "hold": of("hold", lambda s: s.hold and not s.script and not s.tasks),
    "job_lifetime": lambda s: s.job_lifetime and s.epilog.paths == ("/e",),
    "shape": lambda s: (
        (s.pty, s.pty_rows, s.pty_cols, s.stdin_rank) == (True, 50, 120, 4)
        and [t.argv for t in s.tasks] == [(), ("other", "\udcfd")]
        and [t.cpu_ids for t in s.tasks] == [(2,), (3,)]
        and s.cpu_bind_verbose
        and env("CPU_BIND", "verbose,mask_cpu:0x4,0x8")(s)
        and (s.task_prolog.paths, s.task_epilog.paths) == (("/p", "/srun/before"), ("/srun/after", "/q"))
        and env("MPI_TYPE", "pmi2")(s)
        and (s.mpi, s.mpi_size) == ("pmi2", 3)
        and [t.env["CUDA_VISIBLE_DEVICES"] for t in s.tasks] == ["0", "2"]
    ),
    "job_slice": lambda s: (s.job_cpus, s.job_memory_mb, s.job_cpu_ids) == (4, 80, (2, 3, 4, 5)),
    "step_nodes": lambda s: s.cohort == ("n2", "n3") and env("STEP_NODELIST", "n[2-3]")(s),
    "step_node_index": env("NODEID", "1"),
    "step_tasks_per_node_text": env("STEP_TASKS_PER_NODE", "2,1"),
    "step_name": lambda s: s.step_name == "name of the step",
    "distribution": env("DISTRIBUTION", "cyclic"),
    "overlap": lambda s: CLAIM.overlap,
    "exact": lambda s: CLAIM.exact,
    "step_tasks": env("NTASKS", "3"),
    "job_tasks": of("batch", env("NTASKS", "8")),
    "srun_host": env("SRUN_COMM_HOST", "shell"),
    "srun_address": env("LAUNCH_NODE_IPADDR", "192.0.2.7"),
    "comment": env("JOB_COMMENT", "a remark"),
    "reservation": env("JOB_RESERVATION", "night"),
    "licenses": env("JOB_LICENSES", "m:2"),
    "wishes": lambda s: (
        env("GPUS", "a100:4")(s) and env("CPUS_PER_GPU", "3")(s) and env("HINT", "nomultithread")(s)
    ),
    "gpus_per_node_text": env("GPUS_PER_NODE", "2,1"),
    "topology_addr": env("TOPOLOGY_ADDR", "core.leaf1.n2"),
    "topology_addr_pattern": env("TOPOLOGY_ADDR_PATTERN", "switch.switch.node"),
}

#: What the agent itself remembers of the step.
CLAIM = claim.make("digest", Grant((2, 3), 50, layer=2), wire(), epilog=True)
#: Changes of the message for other kinds of steps; "alone" is a stand-alone srun's step.
KINDS: dict[str, dict[str, Any]] = {
    "step": {"hold": False},
    "hold": {},
    "batch": {"hold": False, "step_id": STEP_BATCH},
    "alone": {"hold": False, "step_tasks": 0},
}


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@pytest.fixture(scope="module")
def arrived() -> dict[str, LaunchSpec]:
    """The specs as the supervisor reads them, by kind of step."""
    return {kind: travelled(**changes) for kind, changes in KINDS.items()}


def travelled(*, step_id: int = 0, **changes: Any) -> LaunchSpec:
    """The example through the real functions of both sides."""
    message = agent_pb2.LaunchSpec.FromString(wire().SerializeToString())
    message.rid.step_id = step_id
    for name, value in changes.items():
        setattr(message, name, value)
    gpus = (GresGrant("gpu", "a100", (0, 2)),)
    share = Share(Grant((2, 3), 50, gpus), Grant((2, 3, 4, 5), 80, gpus))
    here = environment.NodeContext(
        "n2", "/opt/spur/bin", "/etc/spur/spur.conf", Account("alice", "/home/alice", "/bin/sh")
    )
    rules = local_spec.NodeRules("n2", allow_root_jobs=False, cgroup_root="auto", pinned=True)
    plan = task_plan.make(message, share, rules.pinned, rules.places)
    files = hooks.HookFiles(epilog=("/e",), task_prolog=("/p",), task_epilog=("/q",))
    scripts = hook_env.specs(message, share, here, files, hooks.Hooks())
    env = environment.build(message, share, here, plan.cpu_bind)
    built = local_spec.build(message, env, (2345, 99), share, rules, plan, scripts)
    return LaunchSpec.from_json(built.to_json())


def test_every_wire_field_is_in_the_table() -> None:
    assert {field.name for field in agent_pb2.LaunchSpec.DESCRIPTOR.fields} == set(SURVIVES)


def test_no_field_of_the_example_has_its_default() -> None:
    assert {field.name for field, _ in wire().ListFields()} == set(SURVIVES)


def test_no_field_of_the_example_step_has_its_default() -> None:
    assert {field.name for field, _ in shape().ListFields()} == {
        field.name for field in common_pb2.StepShape.DESCRIPTOR.fields
    }


def test_the_holding_arrives_at_the_allocation_table() -> None:
    part = wire().slice
    for message in (part, part.gres[0]):
        assert {field.name for field, _ in message.ListFields()} == {
            field.name for field in message.DESCRIPTOR.fields
        }
    assert local_spec.want(part) == Want(
        3, 50, (("gpu", "a100", 2),), (2, 3, 4), {("gpu", "a100"): (0, 2)}, 2
    )
    table = AllocationTable(range(8), 80, {("gpu", "a100"): 4})
    granted = table.reserve((7, 3), local_spec.want(part))
    assert granted == Grant((2, 3, 4), 50, (GresGrant("gpu", "a100", (0, 2)),), 2)
    # And from what is on the disk back into the table of the next agent.
    made = claim.make("digest", granted, wire(), epilog=True)
    spec = travelled()
    assert claim.decode(made.encode_with(spec)).grant == granted


@pytest.mark.parametrize("name", sorted(SURVIVES))
def test_the_field_survives(arrived: dict[str, LaunchSpec], name: str) -> None:
    found = SURVIVES[name]
    kind, check = found if isinstance(found, tuple) else ("step", found)
    assert check(arrived[kind]), name


def test_what_the_node_adds_is_there(arrived: dict[str, LaunchSpec]) -> None:
    step = arrived["step"]
    assert (step.cpu_ids, step.gpu_ids, step.groups) == ((2, 3), (0, 2), (2345, 99))
    assert step.env["SLURMD_NODENAME"] == "n2"
    assert step.env["CUDA_VISIBLE_DEVICES"] == "0,2"
    assert step.epilog.env["SLURM_SCRIPT_CONTEXT"] == "epilog_slurmd"
    assert step.task_prolog.env["SPUR_SCRIPT_CONTEXT"] == "prolog_task"
