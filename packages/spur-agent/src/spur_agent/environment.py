"""The environment of a step: wire launch spec and facts of this node in, `NAME=value` list out.  Pure.

Order, later wins: what the user submitted, account, identity of job and step, layout, devices.  Variables of
single tasks (rank and what follows from it) of a numbered step come from the supervisor's task plan.
Nothing of the daemon's own environment is in the result.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spur_agent.accounts import Account
from spur_agent.allocation import Grant
from spur_core.errors import RequestError
from spur_core.grammar import hostlist
from spur_core.ids import STEP_BATCH, is_numbered
from spur_proto import agent_pb2

BASE_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
#: Port that the training variables name; the libraries' own default.
MASTER_PORT: Final = 29500

_THREADS: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
#: Each names devices by index; all get the same list, since a counted GPU has no known vendor.
_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
_NO_DEVICE: Final = (*_VISIBLE, "HIP_VISIBLE_DEVICES")

#: Names (without SLURM_) that this module decides.  A job submitted from inside another job brings that
#: one's values along: what is not set anew must not shine through.
_NAMES: Final = (
    "JOB_ID JOBID JOB_NAME JOB_PARTITION JOB_ACCOUNT JOB_QOS JOB_UID JOB_GID JOB_USER JOB_RESERVATION "
    "JOB_LICENSES JOB_COMMENT JOB_NODELIST NODELIST JOB_NUM_NODES NNODES NTASKS NPROCS "
    "NTASKS_PER_NODE CPUS_PER_TASK MEM_PER_NODE MEM_PER_CPU TASKS_PER_NODE JOB_CPUS_PER_NODE "
    "CPUS_ON_NODE JOB_GPUS STEP_GPUS GPUS_ON_NODE NODEID PROCID LOCALID GTIDS TASK_PID TOPOLOGY_ADDR "
    "TOPOLOGY_ADDR_PATTERN CLUSTER_NAME SUBMIT_DIR SUBMIT_HOST PRIO_PROCESS JOB_START_TIME "
    "JOB_END_TIME JOB_DEPENDENCY RESTART_COUNT ARRAY_JOB_ID ARRAY_TASK_ID ARRAY_TASK_COUNT "
    "ARRAY_TASK_MIN ARRAY_TASK_MAX ARRAY_TASK_STEP STEP_ID STEPID STEP_NODELIST STEP_NUM_NODES "
    "STEP_NUM_TASKS STEP_TASKS_PER_NODE LAUNCH_NODE_IPADDR SRUN_COMM_HOST SRUN_COMM_PORT "
    "STEP_LAUNCHER_PORT LABELIO TASK_OFFSET PEER_NODES TARGET_NODE NODE_RANK "
)
_OURS: Final = frozenset(_NAMES.split())


class NodeContext(NamedTuple):
    """Facts of this node that a step's environment names.

    program_dir: where spur's own programs are.  config: the configuration file, empty if there is none.
    account: the user's line of passwd; None when this host does not know the user.
    """

    node: str
    program_dir: str
    config: str
    account: Account | None


def build(spec: agent_pb2.LaunchSpec, grant: Grant, here: NodeContext) -> list[bytes]:
    """The complete environment, one `NAME=value` each, no name twice.

    Raises:
        RequestError: an entry of the submitted environment is no `NAME=value`.
    """
    env = _submitted(spec.environment)
    _account(env, here)
    for name in _OURS:
        env.pop(b"SLURM_" + name.encode(), None)
        env.pop(b"SPUR_" + name.encode(), None)
    slurm: dict[str, str] = {}
    slurm.update(_identity(spec, here))
    slurm.update(_layout(spec, grant))
    slurm.update(_array(spec))
    slurm.update(_gpus(spec, grant))
    if is_numbered(spec.rid.step_id):
        slurm.update(_step(spec))
    else:
        slurm.update({"NODEID": str(spec.node_index), "PROCID": "0", "LOCALID": "0", "GTIDS": "0"})
    for name, value in slurm.items():
        _put(env, f"SLURM_{name}", value)
        _put(env, f"SPUR_{name}", value)
    _put(env, "SLURMD_NODENAME", here.node)
    _put(env, "SPURD_NODENAME", here.node)
    _put(env, "SPUR_TARGET_NODE", here.node)
    if spec.slice.ranks:
        _put(env, "SPUR_TASK_OFFSET", str(spec.slice.ranks[0]))
    if not is_numbered(spec.rid.step_id):
        _training(env, spec)
    _devices(env, grant)
    for name in _THREADS:
        _default(env, name, str(max(spec.cpus_per_task, 1)))
    return [name + b"=" + value for name, value in env.items()]


def _submitted(entries: Iterable[bytes]) -> dict[bytes, bytes]:
    env: dict[bytes, bytes] = {}
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if not name or not equals or b"\0" in entry:
            shown = name.decode(errors="replace")
            raise RequestError(f"environment entry {shown!r} is not NAME=value")
        env[name] = value
    return env


def _put(env: dict[bytes, bytes], name: str, value: str) -> None:
    env[name.encode()] = value.encode(errors="surrogateescape")


def _default(env: dict[bytes, bytes], name: str, value: str) -> None:
    if name.encode() not in env:
        _put(env, name, value)


def _account(env: dict[bytes, bytes], here: NodeContext) -> None:
    if here.account is not None:
        _default(env, "HOME", here.account.home)
        _default(env, "USER", here.account.name)
        _default(env, "LOGNAME", here.account.name)
        _default(env, "SHELL", here.account.shell)
    _default(env, "TMPDIR", "/tmp")  # noqa: S108
    if here.config:
        _default(env, "SPUR_CONF", here.config)
        _put(env, "SLURM_CONF", env[b"SPUR_CONF"].decode(errors="surrogateescape"))
    path = env.get(b"PATH", b"").decode(errors="surrogateescape") or BASE_PATH
    # At the end: the folder may hold an interpreter of its own, and a job's `python` must stay the user's.
    if here.program_dir and here.program_dir not in path.split(":"):
        path = f"{path}:{here.program_dir}"
    _put(env, "PATH", path)


def _identity(spec: agent_pb2.LaunchSpec, here: NodeContext) -> dict[str, str]:
    job = str(spec.rid.job_id)
    found = {
        "JOB_ID": job,
        "JOBID": job,
        "JOB_NAME": spec.job_name,
        "JOB_PARTITION": spec.partition,
        "JOB_UID": str(spec.uid),
        "JOB_GID": str(spec.gid),
        "JOB_USER": spec.user,
        "CLUSTER_NAME": spec.cluster_name,
        "SUBMIT_DIR": spec.submit_dir,
        "SUBMIT_HOST": spec.submit_host,
        "TOPOLOGY_ADDR": here.node,
        "TOPOLOGY_ADDR_PATTERN": "node",
        "PRIO_PROCESS": "0",
        "JOB_START_TIME": str(int(spec.start_at)),
    }
    optional = {
        "JOB_ACCOUNT": spec.account,
        "JOB_QOS": spec.qos,
        "JOB_END_TIME": str(int(spec.end_at)) if spec.end_at else "",
        "JOB_DEPENDENCY": spec.dependency,
        "RESTART_COUNT": str(spec.restarts) if spec.restarts else "",
        "UMASK": f"{spec.umask:04o}" if spec.HasField("umask") else "",
    }
    found.update((name, value) for name, value in optional.items() if value)
    return found


def _layout(spec: agent_pb2.LaunchSpec, grant: Grant) -> dict[str, str]:
    nodes = hostlist.compress_sorted(list(spec.nodes))
    count = str(len(spec.nodes))
    found = {
        "JOB_NODELIST": nodes,
        "NODELIST": nodes,
        "JOB_NUM_NODES": count,
        "NNODES": count,
        "TASKS_PER_NODE": spec.tasks_per_node_text,
        "JOB_CPUS_PER_NODE": spec.cpus_per_node_text,
        "CPUS_ON_NODE": str(spec.slice.cpus or len(grant.cpu_ids)),
    }
    # A batch script that was given no task count must not see one: programs take it for a wish.
    if spec.tasks_given or is_numbered(spec.rid.step_id):
        found["NTASKS"] = found["NPROCS"] = str(spec.total_tasks)
    if spec.HasField("tasks_per_node"):
        found["NTASKS_PER_NODE"] = str(spec.tasks_per_node)
    if spec.cpus_per_task_given:
        found["CPUS_PER_TASK"] = str(spec.cpus_per_task)
    if spec.HasField("memory_per_node_mb"):
        found["MEM_PER_NODE"] = str(spec.memory_per_node_mb or spec.slice.memory_mb)
    if spec.HasField("memory_per_cpu_mb"):
        found["MEM_PER_CPU"] = str(spec.memory_per_cpu_mb)
    return found


def _array(spec: agent_pb2.LaunchSpec) -> dict[str, str]:
    if not spec.HasField("array_job_id"):
        return {}
    return {
        "ARRAY_JOB_ID": str(spec.array_job_id),
        "ARRAY_TASK_ID": str(spec.array_task_id),
        "ARRAY_TASK_COUNT": str(spec.array_task_count),
        "ARRAY_TASK_MIN": str(spec.array_task_min),
        "ARRAY_TASK_MAX": str(spec.array_task_max),
        "ARRAY_TASK_STEP": str(spec.array_task_step),
    }


def _step(spec: agent_pb2.LaunchSpec) -> dict[str, str]:
    step = str(spec.rid.step_id)
    found = {
        "STEP_ID": step,
        "STEPID": step,
        "STEP_NODELIST": hostlist.compress_sorted(list(spec.nodes)),
        "STEP_NUM_NODES": str(len(spec.nodes)),
        "STEP_NUM_TASKS": str(spec.total_tasks),
        "STEP_TASKS_PER_NODE": spec.tasks_per_node_text,
        "NODEID": str(spec.node_index),
        "SRUN_COMM_HOST": spec.submit_host,
    }
    if spec.label:
        found["LABELIO"] = "1"
    return found


def _gpu_ids(grant: Grant) -> list[str]:
    return [str(i) for i in sorted(i for one in grant.gres if one.name == "gpu" for i in one.indices)]


def _gpus(spec: agent_pb2.LaunchSpec, grant: Grant) -> dict[str, str]:
    ids = _gpu_ids(grant)
    if not ids:
        return {}
    found = {"JOB_GPUS": ",".join(ids), "GPUS_ON_NODE": str(len(ids))}
    if spec.rid.step_id != STEP_BATCH:
        found["STEP_GPUS"] = ",".join(ids)
    return found


def _devices(env: dict[bytes, bytes], grant: Grant) -> None:
    ids = _gpu_ids(grant)
    if ids:
        for name in _VISIBLE:
            _put(env, name, ",".join(ids))
        return
    for name in _NO_DEVICE:
        _put(env, name, "-1")
    _put(env, "NVIDIA_VISIBLE_DEVICES", "void")
    _put(env, "SPUR_JOB_GPUS", "")


def _training(env: dict[bytes, bytes], spec: agent_pb2.LaunchSpec) -> None:
    """What training launchers look for in a batch script; the user's own settings win."""
    here = len(spec.slice.ranks) or 1
    found: Mapping[str, str] = {
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": str(here),
        "NPROC_PER_NODE": str(here),
        "NODE_RANK": str(spec.node_index),
        "SPUR_NODE_RANK": str(spec.node_index),
    }
    if len(spec.nodes) > 1:
        found = {
            **found,
            "MASTER_ADDR": spec.nodes[0],
            "MASTER_PORT": str(MASTER_PORT),
            "WORLD_SIZE": str(len(spec.nodes)),
            "RANK": str(spec.node_index),
        }
    for name, value in found.items():
        _default(env, name, value)
