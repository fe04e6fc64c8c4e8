"""The environment and the local spec of a step, from the wire spec alone."""

import pytest

from spur_agent import task_plan
from spur_agent.accounts import Account
from spur_agent.allocation import Grant, GresGrant
from spur_agent.environment import NodeContext
from spur_agent.environment import build as build_env
from spur_agent.local_spec import NodeRules, rlimit
from spur_agent.local_spec import build as build_for_supervisor
from spur_agent.share import Share, whole
from spur_core.errors import RequestError
from spur_core.ids import STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE
from spur_proto import agent_pb2, common_pb2
from spur_proto_lite.launch_spec import MOST_TASKS, LaunchSpec

pytestmark = pytest.mark.node

HERE = NodeContext("n2", "/opt/spur/bin", "/etc/spur/spur.conf", Account("ann", "/home/ann", "/bin/zsh"))
RULES = NodeRules("n2", False, "auto", True)


def wire(step=STEP_BATCH, **fields):
    spec = agent_pb2.LaunchSpec(
        rid=common_pb2.RuntimeId(job_id=5, run_attempt=1, step_id=step),
        cluster_name="test",
        job_name="train",
        user="ann",
        uid=1001,
        gid=100,
        partition="gpu",
        account="phys",
        script=b"#!/bin/sh\n",
        nodes=["n10", "n2", "n1"],
        node_index=1,
        slice=common_pb2.NodeSlice(node="n2", cpus=4, memory_mb=900, ranks=[2, 3]),
        total_tasks=5,
        cpus_per_task=2,
        tasks_per_node_text="2(x2),1",
        cpus_per_node_text="4(x2),2",
        start_at=1700000000.7,
        submit_dir="/home/ann",
        submit_host="login",
    )
    for name, value in fields.items():
        current = getattr(spec, name)
        if hasattr(current, "extend"):
            current.extend(value)
        elif isinstance(value, common_pb2.NodeSlice):
            current.CopyFrom(value)
        elif isinstance(value, dict):
            current.CopyFrom(type(current)(**value))
        else:
            setattr(spec, name, value)
    return spec


def build(spec, grant, here, cpu_bind=None):
    return build_env(spec, whole(grant), here, cpu_bind or {})


def build_local(spec, env, groups, grant, rules):
    share = grant if isinstance(grant, Share) else whole(grant)
    plan = task_plan.make(spec, share, rules.pinned, rules.places)
    return build_for_supervisor(spec, env, groups, share, rules, plan)


def env_of(spec, grant=None, here=HERE):
    pairs = [entry.decode().partition("=") for entry in build(spec, grant or Grant((0, 1), 900), here)]
    assert len({name for name, _, _ in pairs}) == len(pairs)
    return {name: value for name, _, value in pairs}


def test_a_step_has_an_end_of_tasks_on_one_node():
    spec = wire(step=0, script=b"")
    del spec.slice.ranks[:]
    spec.slice.ranks.extend(range(MOST_TASKS + 1))
    with pytest.raises(RequestError, match=f"{MOST_TASKS + 1} tasks on one node"):
        build_local(spec, [], (), Grant((0, 1), 900), RULES)


def test_a_batch_script_sees_what_slurm_would_show_it():
    env = env_of(wire())
    expected = {
        "JOB_ID": "5",
        "JOBID": "5",
        "JOB_NAME": "train",
        "JOB_PARTITION": "gpu",
        "JOB_ACCOUNT": "phys",
        "JOB_UID": "1001",
        "JOB_GID": "100",
        "JOB_USER": "ann",
        "JOB_NODELIST": "n[1-2,10]",
        "NODELIST": "n[1-2,10]",
        "JOB_NUM_NODES": "3",
        "NNODES": "3",
        "TASKS_PER_NODE": "2(x2),1",
        "JOB_CPUS_PER_NODE": "4(x2),2",
        "CPUS_ON_NODE": "4",
        "NODEID": "1",
        "PROCID": "0",
        "LOCALID": "0",
        "GTIDS": "0",
        "CLUSTER_NAME": "test",
        "SUBMIT_DIR": "/home/ann",
        "SUBMIT_HOST": "login",
        "TOPOLOGY_ADDR": "n2",
        "TOPOLOGY_ADDR_PATTERN": "node",
        "PRIO_PROCESS": "0",
        "JOB_START_TIME": "1700000000",
    }
    for name, value in expected.items():
        assert env[f"SLURM_{name}"] == env[f"SPUR_{name}"] == value, name
    assert env["SLURMD_NODENAME"] == env["SPURD_NODENAME"] == "n2"
    for absent in (
        "NTASKS",
        "NPROCS",
        "CPUS_PER_TASK",
        "NTASKS_PER_NODE",
        "JOB_QOS",
        "JOB_END_TIME",
        "RESTART_COUNT",
        "ARRAY_TASK_ID",
        "STEP_ID",
        "JOB_GPUS",
        "MEM_PER_NODE",
    ):
        assert f"SLURM_{absent}" not in env, absent
    assert (env["HOME"], env["USER"], env["LOGNAME"], env["SHELL"]) == ("/home/ann", "ann", "ann", "/bin/zsh")
    assert env["PATH"] == "/usr/local/bin:/usr/bin:/bin:/opt/spur/bin"
    assert env["OMP_NUM_THREADS"] == "2"
    assert (env["MASTER_ADDR"], env["WORLD_SIZE"], env["RANK"]) == ("n10", "3", "1")
    assert env["SPUR_CONF"] == env["SLURM_CONF"] == "/etc/spur/spur.conf"


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"tasks_given": True}, "SLURM_NTASKS", "5"),
        ({"tasks_given": True}, "SPUR_NPROCS", "5"),
        ({"tasks_per_node": 2}, "SLURM_NTASKS_PER_NODE", "2"),
        ({"cpus_per_task_given": True}, "SLURM_CPUS_PER_TASK", "2"),
        ({"memory_per_node_mb": 700}, "SLURM_MEM_PER_NODE", "700"),
        ({"memory_per_node_mb": 0}, "SLURM_MEM_PER_NODE", "900"),
        ({"memory_per_cpu_mb": 0}, "SLURM_MEM_PER_CPU", "0"),
        ({"wishes": {"gres_total": ["gpu:h100:4", "shard:1"]}}, "SLURM_GPUS", "h100:4"),
        ({"wishes": {"gres_per_task": ["gpu:2"]}}, "SPUR_GPUS_PER_TASK", "2"),
        ({"gpus_per_node_text": "h100:4"}, "SLURM_GPUS_PER_NODE", "h100:4"),
        ({"wishes": {"cpus_per_gpu": 3}}, "SLURM_CPUS_PER_GPU", "3"),
        ({"wishes": {"memory_per_gpu_mb": 300}}, "SLURM_MEM_PER_GPU", "300"),
        ({"wishes": {"ntasks_per_core": 1}}, "SLURM_NTASKS_PER_CORE", "1"),
        ({"wishes": {"ntasks_per_socket": 2}}, "SLURM_NTASKS_PER_SOCKET", "2"),
        ({"wishes": {"ntasks_per_gpu": 2}}, "SLURM_NTASKS_PER_GPU", "2"),
        ({"wishes": {"threads_per_core": 1}}, "SLURM_THREADS_PER_CORE", "1"),
        ({"wishes": {"hint": "nomultithread"}}, "SLURM_HINT", "nomultithread"),
        ({"qos": "high"}, "SLURM_JOB_QOS", "high"),
        ({"end_at": 1700003600.0}, "SLURM_JOB_END_TIME", "1700003600"),
        ({"restarts": 2}, "SLURM_RESTART_COUNT", "2"),
        ({"dependency": "afterok:4"}, "SLURM_JOB_DEPENDENCY", "afterok:4"),
        ({"umask": 0o27}, "SLURM_UMASK", "0027"),
        ({"array_job_id": 3, "array_task_id": 0, "array_task_count": 4}, "SLURM_ARRAY_TASK_ID", "0"),
        ({"array_job_id": 3, "array_task_count": 4}, "SPUR_ARRAY_TASK_COUNT", "4"),
    ],
)
def test_optional_variables(fields, name, value):
    assert env_of(wire(**fields))[name] == value


def test_the_users_own_settings_win_where_they_may_and_lose_where_they_must_not():
    mine = """HOME=/data
        OMP_NUM_THREADS=7 PATH=/opt/spur/bin:/bin RANK=9 CUDA_VISIBLE_DEVICES=0,1 SLURM_JOB_ID=1
        SLURM_ARRAY_TASK_ID=3 SLURM_NTASKS=64 SPUR_STEP_ID=2 SLURM_EXPORT_ENV=ALL"""
    env = env_of(wire(environment=mine.encode().split()))
    assert (env["HOME"], env["OMP_NUM_THREADS"], env["PATH"], env["RANK"]) == (
        "/data",
        "7",
        "/opt/spur/bin:/bin",
        "9",
    )
    assert env["CUDA_VISIBLE_DEVICES"] == "-1"
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert env["SLURM_JOB_ID"] == "5"
    assert env["SLURM_EXPORT_ENV"] == "ALL"
    for name in ("SLURM_ARRAY_TASK_ID", "SLURM_NTASKS", "SPUR_STEP_ID"):
        assert name not in env


def test_gpus_are_named_by_index():
    env = env_of(wire(), Grant((0,), 1, (GresGrant("gpu", "a", (3, 1)), GresGrant("shard", "", (0,)))))
    assert env["SLURM_JOB_GPUS"] == env["CUDA_VISIBLE_DEVICES"] == env["ROCR_VISIBLE_DEVICES"] == "1,3"
    assert env["SLURM_GPUS_ON_NODE"] == "2"


def test_a_numbered_step_has_the_step_variables_and_leaves_ranks_to_the_tasks():
    spec = wire(step=0, spool_output=True, label=True)
    env = env_of(spec)
    for name, value in {
        "STEP_ID": "0",
        "STEPID": "0",
        "STEP_NODELIST": "n[1-2,10]",
        "STEP_NUM_NODES": "3",
        "STEP_NUM_TASKS": "5",
        "STEP_TASKS_PER_NODE": "2(x2),1",
        "NTASKS": "5",
        "NPROCS": "5",
        "NODEID": "1",
        "SRUN_COMM_HOST": "login",
        "LABELIO": "1",
    }.items():
        assert env[f"SLURM_{name}"] == env[f"SPUR_{name}"] == value, name
    assert "SLURM_PROCID" not in env
    assert "RANK" not in env
    local = build_local(spec, build(spec, Grant((0,), 1), HERE), (100,), Grant((0, 1), 900), RULES)
    assert [(t.rank, t.local_rank) for t in local.tasks] == [(2, 0), (3, 1)]
    task = local.tasks[1].env
    assert "SLURM_PROCID" not in task  # the supervisor's
    assert env["SLURM_GTIDS"] == "2,3"
    assert "SLURM_GTIDS" not in task
    assert (task["LOCAL_RANK"], task["LOCAL_WORLD_SIZE"], task["SPUR_TASK_OFFSET"]) == ("1", "2", "2")


def test_a_further_steps_names_tell_the_step_and_those_with_job_its_job():
    spec = wire(
        step=4,
        tasks_given=True,
        step_nodes=["n2", "n5"],
        step_node_index=0,
        step_tasks=3,
        step_tasks_per_node_text="2,1",
        distribution="cyclic",
        srun_host="shell",
        srun_address="192.0.2.9",
        environment=b"SLURM_NODEID=7 SLURM_CPU_BIND=cores SLURM_CPU_BIND_LIST=0x1 SLURM_MPI_TYPE=x".split(),
    )
    spec.shape.mpi = "none"
    gpus = GresGrant("gpu", "a", (0, 1, 2))
    share = Share(
        Grant((4,), 10, (GresGrant("gpu", "a", (2,)),)),
        Grant((2, 3, 4, 5), 900, (gpus,)),
    )
    pairs = [e.decode().partition("=") for e in build_env(spec, share, HERE, {"CPU_BIND_TYPE": "none"})]
    env = {name: value for name, _, value in pairs}
    expected = {
        "STEP_ID": "4",
        "STEP_NODELIST": "n[2,5]",
        "STEP_NUM_NODES": "2",
        "STEP_NUM_TASKS": "3",
        "STEP_TASKS_PER_NODE": "2,1",
        "NNODES": "2",
        "NTASKS": "3",
        "NPROCS": "3",
        "TASKS_PER_NODE": "2,1",
        "NODEID": "0",
        "JOB_NUM_NODES": "3",
        "JOB_NODELIST": "n[1-2,10]",
        "NODELIST": "n[1-2,10]",
        "JOB_CPUS_PER_NODE": "4(x2),2",
        "CPUS_ON_NODE": "1",
        "JOB_GPUS": "0,1,2",
        "STEP_GPUS": "2",
        "GPUS_ON_NODE": "1",
        "DISTRIBUTION": "cyclic",
        "SRUN_COMM_HOST": "shell",
        "SUBMIT_HOST": "login",
        "LAUNCH_NODE_IPADDR": "192.0.2.9",
        "MPI_TYPE": "none",
        "CPU_BIND_TYPE": "none",
    }
    for name, value in expected.items():
        assert env[f"SLURM_{name}"] == env[f"SPUR_{name}"] == value, name
    assert env["CUDA_VISIBLE_DEVICES"] == "2"
    assert env["SRUN_DEBUG"] == "3"
    for name in ("SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_PROCID", "RANK", "MASTER_ADDR"):
        assert name not in env, name


def test_a_step_without_devices_sees_none_but_knows_its_jobs():
    job = Grant((0, 1), 1, (GresGrant("gpu", "", (1,)),))
    share = Share(Grant((0, 1), 1), job)
    env = dict(e.decode().split("=", 1) for e in build_env(wire(step=0), share, HERE))
    assert (env["CUDA_VISIBLE_DEVICES"], env["SLURM_JOB_GPUS"]) == ("-1", "1")
    assert "SLURM_STEP_GPUS" not in env
    assert "SLURM_GPUS_ON_NODE" not in env


def test_an_allocation_has_no_variables_of_tasks():
    env = env_of(wire(step=STEP_EXTERN, tasks_given=True, job_tasks=6))
    for name in (
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_GTIDS",
        "SPUR_TASK_OFFSET",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "OMP_NUM_THREADS",
        "SLURM_STEP_ID",
    ):
        assert name not in env, name
    assert (env["SLURM_JOB_ID"], env["SLURM_NTASKS"], env["SLURM_NNODES"]) == ("5", "6", "3")


def test_an_interactive_shell_stands_for_the_whole_allocation():
    env = env_of(wire(step=STEP_INTERACTIVE, tasks_given=True, job_tasks=6, step_tasks=1))
    assert (env["SLURM_NTASKS"], env["SLURM_PROCID"]) == ("6", "0")
    assert "SLURM_STEP_ID" not in env


def test_what_an_enclosing_job_asked_for_does_not_shine_through():
    names = ("GPUS", "GPUS_PER_NODE", "CPUS_PER_GPU", "NTASKS_PER_CORE", "HINT")
    env = env_of(wire(environment=[f"SLURM_{name}=1".encode() for name in names]))
    assert not {f"SLURM_{name}" for name in names} & env.keys()


def test_wishes_for_steps_pass_through_a_batch_job():
    env = env_of(wire(environment=[b"SLURM_CPU_BIND=cores", b"SLURM_DISTRIBUTION=cyclic"]))
    assert (env["SLURM_CPU_BIND"], env["SLURM_DISTRIBUTION"]) == ("cores", "cyclic")


def test_a_hold_needs_nothing_to_run_and_runs_nothing():
    spec = wire(hold=True, job_lifetime=True)
    grant = Grant((0, 1), 900)
    local = build_local(spec, build(spec, grant, HERE), (100,), grant, RULES)
    assert (local.hold, local.job_lifetime, local.script, local.tasks) == (True, True, "", ())
    numbered = build_local(wire(step=0, script=b"", hold=True), [], (), grant, RULES)
    assert (numbered.hold, numbered.task_list()) == (True, ())


def test_the_limits_of_the_job_stand_beside_those_of_the_step():
    share = Share(Grant((4,), 100), Grant((2, 3, 4), 900))
    spec = wire(step=1, exact=True)
    spec.slice.CopyFrom(common_pb2.NodeSlice(node="n2", cpus=1, memory_mb=100, ranks=[0]))
    local = build_local(spec, [], (), share, RULES)
    assert (local.cpus, local.cpu_ids, local.memory_mb) == (1, (4,), 100)
    assert (local.job_cpus, local.job_cpu_ids, local.job_memory_mb) == (3, (2, 3, 4), 900)
    spec.job_slice.CopyFrom(common_pb2.NodeSlice(node="n2", cpus=2, memory_mb=900))
    assert build_local(spec, [], (), share, RULES).job_cpus == 2
    batch = build_local(wire(), [], (), Grant((0, 1, 2, 3), 900), RULES)
    assert (batch.job_cpus, batch.job_cpu_ids, batch.job_memory_mb) == (4, (0, 1, 2, 3), 900)
    unpinned = build_local(spec, [], (), share, RULES._replace(pinned=False))
    assert (unpinned.cpu_ids, unpinned.job_cpu_ids) == ((), ())


@pytest.mark.parametrize(("sent", "rank"), [(None, None), (0, 0), (3, 3), (0xFFFFFFFF, -1)])
def test_which_task_gets_the_input(sent, rank):
    spec = wire(step=0)
    if sent is not None:
        spec.shape.stdin_rank = sent
    assert build_local(spec, [], (), Grant((), 0), RULES).stdin_rank == rank


@pytest.mark.parametrize("entry", [b"NOEQUALS", b"=value", b"", b"A=b\0c"])
def test_an_entry_that_is_no_assignment_is_refused(entry):
    with pytest.raises(RequestError, match="NAME=value"):
        env_of(wire(environment=[entry]))


def test_an_unknown_user_gets_no_home_and_bytes_survive():
    spec = wire(environment=[b"ODD=\xff\xfe", b"EMPTY="])
    entries = build(spec, Grant((), 0), HERE._replace(account=None))
    assert b"ODD=\xff\xfe" in entries
    assert b"EMPTY=" in entries
    assert not any(entry.startswith(b"HOME=") for entry in entries)
    local = build_local(spec, entries, (100,), Grant((), 0), RULES)
    again = LaunchSpec.decode(local.encode())
    assert again == local
    assert again.env["ODD"].encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_the_local_spec_says_all_of_it():
    spec = wire(
        script_args=[b"a b"],
        work_dir="/home/ann",
        stdout_path="o-%j",
        open_mode="Append",
        umask=0,
        array_job_id=3,
        array_task_id=0,
        restarts=1,
        kill_wait_secs=30,
        rlimits=["SLURM_RLIMIT_NOFILE=1024:4096", "CORE=0"],
    )
    grant = Grant((4, 5, 6, 7), 900, (GresGrant("gpu", "a", (1, 0)),))
    local = build_local(spec, [b"A=1"], (100, 27), grant, RULES)
    assert local.rid == (5, 1, STEP_BATCH)
    assert (local.node, local.node_id, local.n_nodes, local.nodelist) == ("n2", 1, 3, "n[1-2,10]")
    assert (local.script, local.script_args, local.open_mode) == ("#!/bin/sh\n", ("a b",), "append")
    assert (local.array_job_id, local.array_task_id, local.restart_count) == (3, 0, 1)
    assert (local.uid, local.gid, local.groups, local.umask) == (1001, 100, (100, 27), 0)
    assert (local.cpus, local.cpu_ids, local.memory_mb) == (4, (4, 5, 6, 7), 900)
    assert (local.gpu_ids, local.gres) == ((0, 1), "gpu:a:2")
    assert [(r.name, r.soft, r.hard) for r in local.rlimits] == [("NOFILE", 1024, 4096), ("CORE", 0, 0)]
    assert (local.tasks, local.kill_wait_secs, local.cohort) == ((), 30, ("n10", "n2", "n1"))
    unpinned = build_local(spec, [b"A=1"], (), grant, RULES._replace(pinned=False))
    assert unpinned.cpu_ids == ()
    assert build_local(wire(), [], (), grant, RULES).umask == 0o022


def test_nothing_to_run_is_refused():
    with pytest.raises(RequestError, match="neither"):
        build_local(wire(script=b""), [], (), Grant((), 0), RULES)


@pytest.mark.parametrize(
    ("item", "limits"),
    [
        ("NOFILE=1:2", ("NOFILE", 1, 2)),
        ("RLIMIT_STACK=unlimited", ("STACK", -1, -1)),
        ("SLURM_RLIMIT_AS=5:18446744073709551615", ("AS", 5, -1)),
    ],
)
def test_resource_limits(item, limits):
    found = rlimit(item)
    assert (found.name, found.soft, found.hard) == limits


@pytest.mark.parametrize("item", ["NOFILE", "=1:2", "NOFILE=x", "NOFILE=-5:1", "NOFILE=1:"[:7]])
def test_bad_resource_limits(item):
    with pytest.raises(RequestError, match="SOFT:HARD"):
        rlimit(item)
