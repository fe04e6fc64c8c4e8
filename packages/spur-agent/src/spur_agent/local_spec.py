"""From the controller's launch spec to the supervisor's.  Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from spur_agent.allocation import Want
from spur_agent.binding import NOWHERE, Places
from spur_agent.share import Share, cpu_count, gpu_ids
from spur_agent.task_plan import TaskPlan, text
from spur_core.errors import RequestError
from spur_core.grammar import hostlist, idlist
from spur_core.grammar.gres import format_gres
from spur_core.ids import RuntimeId
from spur_proto import agent_pb2, common_pb2
from spur_proto_lite.launch_spec import HookSpec, LaunchSpec, RlimitSpec

#: A terminal whose client does not tell its size.
_ROWS: Final = 24
_COLS: Final = 80
#: "No task gets the input", on the wire.
_NO_RANK: Final = 0xFFFFFFFF
_UNLIMITED_WORDS: Final = ("unlimited", "-1", "18446744073709551615")


class NodeRules(NamedTuple):
    """What this node adds to every spec."""

    node: str
    allow_root_jobs: bool
    cgroup_root: str
    #: CPU numbers are real, so a step may be bound to its own.
    pinned: bool
    places: Places = NOWHERE


#: Epilog, task prolog, task epilog.
Scripts = tuple[HookSpec, HookSpec, HookSpec]
NO_SCRIPTS: Final = (HookSpec(), HookSpec(), HookSpec())


def rid_of(message: "agent_pb2.LaunchSpec") -> RuntimeId:
    """The identity in a launch spec.

    Raises:
        RequestError: a part is missing; attempt 0 is never launched.
    """
    rid = message.rid
    if not rid.job_id or not rid.run_attempt or not rid.HasField("step_id"):
        raise RequestError("rid: job, attempt and step must be given")
    return RuntimeId(rid.job_id, rid.run_attempt, rid.step_id)


def want(part: common_pb2.NodeSlice) -> Want:
    """What an attempt is to hold here.

    Raises:
        GrammarError: a list of CPUs or devices is none.
    """
    return Want(
        part.cpus,
        part.memory_mb,
        tuple((item.name, item.type, item.count) for item in part.gres),
        idlist.numbers(idlist.mask_of(part.cpu_ids)),
        {
            (item.name, item.type): idlist.numbers(idlist.mask_of(item.indices))
            for item in part.gres
            if item.indices
        },
        part.layer,
    )


def build(
    wire: agent_pb2.LaunchSpec,
    environment: Sequence[bytes],
    groups: Sequence[int],
    share: Share,
    rules: NodeRules,
    plan: TaskPlan,
    scripts: Scripts = NO_SCRIPTS,
) -> LaunchSpec:
    """The spec for the supervisor.

    Args:
        environment: complete, `NAME=value` each.
        groups: of the user, the primary one included.

    Raises:
        RequestError: the wire spec holds something that cannot be run.
    """
    rid = rid_of(wire)
    own_commands = bool(plan.tasks) and all(task.argv for task in plan.tasks)
    if not (wire.hold or wire.script or wire.argv or own_commands):
        raise RequestError("neither a script nor a command to run")
    part, shape = wire.slice, wire.shape
    job_cpus = part.cpus if share.step is share.job else wire.job_slice.cpus
    array = wire.HasField("array_job_id")
    nodes = list(wire.nodes)
    epilog, task_prolog, task_epilog = scripts
    return LaunchSpec(
        rid=rid,
        node=rules.node,
        node_id=wire.node_index,
        nodelist=hostlist.compress_sorted(nodes),
        n_nodes=max(len(nodes), 1),
        partition=wire.partition,
        job_name=wire.job_name,
        array_job_id=wire.array_job_id if array else None,
        array_task_id=wire.array_task_id if array else None,
        restart_count=wire.restarts,
        script="" if wire.hold else text(wire.script),
        script_args=tuple(map(text, wire.script_args)),
        argv=tuple(map(text, wire.argv)),
        env=dict(_pair(entry) for entry in environment),
        work_dir=wire.work_dir,
        stdout_pattern=wire.stdout_path,
        stderr_pattern=wire.stderr_path,
        stdin_pattern=wire.stdin_path,
        open_mode="append" if wire.open_mode.lower() == "append" else "truncate",
        spool_output=wire.spool_output,
        label=wire.label and wire.spool_output,
        uid=wire.uid,
        gid=wire.gid,
        user=wire.user,
        groups=tuple(groups),
        allow_root_jobs=rules.allow_root_jobs,
        umask=wire.umask if wire.HasField("umask") else 0o022,
        rlimits=tuple(rlimit(item) for item in wire.rlimits),
        cpus=cpu_count(share, part.cpus),
        cpu_ids=share.step.cpu_ids if rules.pinned else (),
        memory_mb=part.memory_mb,
        gpu_ids=tuple(gpu_ids(share.step)),
        gres=format_gres([(g.name, g.type, len(g.indices)) for g in share.step.gres]),
        # Whichever step comes first makes the job's group, so each says what that is to be.
        job_cpus=job_cpus or len(share.job.cpu_ids),
        job_cpu_ids=share.job.cpu_ids if rules.pinned else (),
        job_memory_mb=share.job.memory_mb,
        tasks=plan.tasks,
        hold=wire.hold,
        job_lifetime=wire.job_lifetime,
        step_name=wire.step_name,
        pty=shape.pty,
        pty_rows=shape.pty_rows or _ROWS,
        pty_cols=shape.pty_cols or _COLS,
        stdin_rank=_stdin_rank(shape),
        cpu_bind_verbose=plan.verbose,
        mpi=shape.mpi,
        mpi_size=(wire.step_tasks or wire.total_tasks) if shape.mpi else 0,
        epilog=epilog if wire.job_lifetime else HookSpec(),
        task_prolog=task_prolog,
        task_epilog=task_epilog,
        cohort=tuple(wire.step_nodes or nodes),
        kill_wait_secs=wire.kill_wait_secs,
        cgroup_root=rules.cgroup_root,
    )


def _stdin_rank(shape: common_pb2.StepShape) -> int | None:
    if not shape.HasField("stdin_rank"):
        return None
    return -1 if shape.stdin_rank == _NO_RANK else shape.stdin_rank


def rlimit(item: str) -> RlimitSpec:
    """`NAME=soft:hard` or `NAME=both`; `unlimited` is -1.

    Raises:
        RequestError: it is neither.
    """
    name, equals, values = item.partition("=")
    soft, _, hard = values.partition(":")
    bare = name.removeprefix("SLURM_RLIMIT_").removeprefix("RLIMIT_")
    try:
        if not bare or not equals:
            raise ValueError
        return RlimitSpec(name=bare, soft=_limit(soft), hard=_limit(hard or soft))
    except ValueError:
        raise RequestError(f"resource limit {item!r} is not NAME=SOFT:HARD") from None


def _limit(word: str) -> int:
    if word.lower() in _UNLIMITED_WORDS:
        return -1
    number = int(word)
    if not 0 <= number < 1 << 63:
        raise ValueError
    return number


def _pair(entry: bytes) -> tuple[str, str]:
    name, _, value = entry.partition(b"=")
    return text(name), text(value)
