"""The environment of a step: wire launch spec and facts of this node in, `NAME=value` list out.  Pure.

Order, later wins: what the user submitted, account, identity of the job, its layout, the step, devices.  Of a
numbered step the plain names (SLURM_NTASKS, SLURM_NODEID) tell the step and those with JOB in them its job;
variables of single tasks (rank and what follows from it) come from the task plan.  An allocation that runs
nothing has no variables of tasks at all.  Nothing of the daemon's own environment is in the result.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spur_agent.accounts import Account
from spur_agent.share import Share, cpu_count, gpu_ids
from spur_agent.task_plan import VISIBLE
from spur_core.errors import RequestError
from spur_core.grammar import hostlist, wishes
from spur_core.ids import STEP_EXTERN, is_numbered
from spur_proto import agent_pb2
from spur_proto_lite.record import EMPTY

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
_NO_DEVICE: Final = (*VISIBLE, "HIP_VISIBLE_DEVICES")

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
_OURS: Final = frozenset((*_NAMES.split(), *wishes.NAMES))
#: Likewise in a numbered step only: in a batch job these are the user's wishes for the steps in it.
_STEP_OURS: Final = (
    "CPU_BIND",
    "CPU_BIND_VERBOSE",
    "CPU_BIND_TYPE",
    "CPU_BIND_LIST",
    "DISTRIBUTION",
    "MPI_TYPE",
)


class NodeContext(NamedTuple):
    """Facts of this node that a step's environment names.

    program_dir: where spur's own programs are.  config: the configuration file, empty if there is none.
    account: the user's line of passwd; None when this host does not know the user.
    """

    node: str
    program_dir: str
    config: str
    account: Account | None


def build(
    spec: agent_pb2.LaunchSpec, share: Share, here: NodeContext, cpu_bind: Mapping[str, str] = EMPTY
) -> list[bytes]:
    """The complete environment, one `NAME=value` each, no name twice.

    Args:
        cpu_bind: SLURM_CPU_BIND and its parts, without the prefix.

    Raises:
        RequestError: an entry of the submitted environment is no `NAME=value`.
    """
    numbered = is_numbered(spec.rid.step_id)
    env = _submitted(spec.environment)
    _account(env, here)
    for name in (*_OURS, *(_STEP_OURS if numbered else ())):
        env.pop(b"SLURM_" + name.encode(), None)
        env.pop(b"SPUR_" + name.encode(), None)
    slurm: dict[str, str] = {}
    slurm.update(_identity(spec, here))
    slurm.update(_layout(spec, share))
    slurm.update(_array(spec))
    slurm.update(_gpus(spec, share))
    if numbered:
        slurm.update(_step(spec))
        slurm.update(cpu_bind)
    elif spec.rid.step_id != STEP_EXTERN:
        slurm.update({"NODEID": str(spec.node_index), "PROCID": "0", "LOCALID": "0", "GTIDS": "0"})
    for name, value in slurm.items():
        _put(env, f"SLURM_{name}", value)
        _put(env, f"SPUR_{name}", value)
    _put(env, "SLURMD_NODENAME", here.node)
    _put(env, "SPURD_NODENAME", here.node)
    _put(env, "SPUR_TARGET_NODE", here.node)
    if numbered:
        _default(env, "SRUN_DEBUG", "3")
    if spec.rid.step_id != STEP_EXTERN:
        if spec.slice.ranks:
            _put(env, "SPUR_TASK_OFFSET", str(spec.slice.ranks[0]))
        if not numbered:
            _training(env, spec)
        for name in _THREADS:
            _default(env, name, str(max(spec.cpus_per_task, 1)))
    _devices(env, share)
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
        "TOPOLOGY_ADDR": spec.topology_addr or here.node,
        "TOPOLOGY_ADDR_PATTERN": spec.topology_addr_pattern or "node",
        "PRIO_PROCESS": "0",
        "JOB_START_TIME": str(int(spec.start_at)),
    }
    optional = {
        "JOB_ACCOUNT": spec.account,
        "JOB_QOS": spec.qos,
        "JOB_END_TIME": str(int(spec.end_at)) if spec.end_at else "",
        "JOB_DEPENDENCY": spec.dependency,
        "RESTART_COUNT": str(spec.restarts) if spec.restarts else "",
        "JOB_COMMENT": spec.comment,
        "JOB_RESERVATION": spec.reservation,
        "JOB_LICENSES": spec.licenses,
        "DISTRIBUTION": spec.distribution,
        "UMASK": f"{spec.umask:04o}" if spec.HasField("umask") else "",
    }
    found.update((name, value) for name, value in optional.items() if value)
    return found


def _layout(spec: agent_pb2.LaunchSpec, share: Share) -> dict[str, str]:
    nodes = hostlist.compress_sorted(list(spec.nodes))
    count = str(len(spec.nodes))
    found = {
        "JOB_NODELIST": nodes,
        "NODELIST": nodes,
        "JOB_NUM_NODES": count,
        "NNODES": count,
        "TASKS_PER_NODE": spec.tasks_per_node_text,
        "JOB_CPUS_PER_NODE": spec.cpus_per_node_text,
        "CPUS_ON_NODE": str(cpu_count(share, spec.slice.cpus)),
    }
    # A batch script that was given no task count must not see one: programs take it for a wish.
    if spec.tasks_given:
        found["NTASKS"] = found["NPROCS"] = str(spec.job_tasks or spec.total_tasks)
    if spec.HasField("tasks_per_node"):
        found["NTASKS_PER_NODE"] = str(spec.tasks_per_node)
    if spec.cpus_per_task_given:
        found["CPUS_PER_TASK"] = str(spec.cpus_per_task)
    if spec.HasField("memory_per_node_mb"):
        found["MEM_PER_NODE"] = str(spec.memory_per_node_mb or spec.slice.memory_mb)
    if spec.HasField("memory_per_cpu_mb"):
        found["MEM_PER_CPU"] = str(spec.memory_per_cpu_mb)
    found.update(wishes.variables(spec.wishes, ()))
    if spec.gpus_per_node_text:
        found["GPUS_PER_NODE"] = spec.gpus_per_node_text
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
    """A stand-alone srun's step is its whole job, so what the wire does not say of the step is the job's."""
    step = str(spec.rid.step_id)
    nodes = list(spec.step_nodes) or list(spec.nodes)
    index = spec.step_node_index if spec.step_nodes else spec.node_index
    tasks = str(spec.step_tasks or spec.total_tasks)
    layout = spec.step_tasks_per_node_text or spec.tasks_per_node_text
    found = {
        "STEP_ID": step,
        "STEPID": step,
        "STEP_NODELIST": hostlist.compress_sorted(nodes),
        "STEP_NUM_NODES": str(len(nodes)),
        "STEP_NUM_TASKS": tasks,
        "STEP_TASKS_PER_NODE": layout,
        "NNODES": str(len(nodes)),
        "NTASKS": tasks,
        "NPROCS": tasks,
        "TASKS_PER_NODE": layout,
        "NODEID": str(index),
        # Here and not in each task's own part: thousands of tasks would have it thousands of times.
        "GTIDS": ",".join(map(str, spec.slice.ranks or (0,))),
        "SRUN_COMM_HOST": spec.srun_host or spec.submit_host,
    }
    optional = {
        "LAUNCH_NODE_IPADDR": spec.srun_address,
        "MPI_TYPE": spec.shape.mpi,
        "LABELIO": "1" if spec.label else "",
    }
    found.update((name, value) for name, value in optional.items() if value)
    return found


def _gpus(spec: agent_pb2.LaunchSpec, share: Share) -> dict[str, str]:
    found = {}
    if ids := gpu_ids(share.job):
        found["JOB_GPUS"] = _list(ids)
    if ids := gpu_ids(share.step):
        found["GPUS_ON_NODE"] = str(len(ids))
        if is_numbered(spec.rid.step_id):
            found["STEP_GPUS"] = _list(ids)
    return found


def _list(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def _devices(env: dict[bytes, bytes], share: Share) -> None:
    if ids := gpu_ids(share.step):
        for name in VISIBLE:
            _put(env, name, _list(ids))
        return
    for name in _NO_DEVICE:
        _put(env, name, "-1")
    _put(env, "NVIDIA_VISIBLE_DEVICES", "void")
    if not gpu_ids(share.job):
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
