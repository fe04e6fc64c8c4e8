"""From the controller's launch spec to the supervisor's.  Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from spur_agent.allocation import Grant
from spur_core.errors import RequestError
from spur_core.grammar import hostlist
from spur_core.grammar.gres import format_gres
from spur_core.ids import RuntimeId, is_numbered
from spur_proto import agent_pb2
from spur_proto_lite.launch_spec import LaunchSpec, RlimitSpec, TaskSpec

_UNLIMITED_WORDS: Final = ("unlimited", "-1", "18446744073709551615")


class NodeRules(NamedTuple):
    """What this node adds to every spec."""

    node: str
    allow_root_jobs: bool
    cgroup_root: str
    #: CPU numbers are real, so a step may be bound to its own.
    pinned: bool


def rid_of(message: "agent_pb2.LaunchSpec") -> RuntimeId:
    """The identity in a launch spec.

    Raises:
        RequestError: a part is missing; attempt 0 is never launched.
    """
    rid = message.rid
    if not rid.job_id or not rid.run_attempt or not rid.HasField("step_id"):
        raise RequestError("rid: job, attempt and step must be given")
    return RuntimeId(rid.job_id, rid.run_attempt, rid.step_id)


def build(
    wire: agent_pb2.LaunchSpec,
    environment: Sequence[bytes],
    groups: Sequence[int],
    grant: Grant,
    rules: NodeRules,
) -> LaunchSpec:
    """The spec for the supervisor.

    Args:
        environment: complete, `NAME=value` each.
        groups: of the user, the primary one included.

    Raises:
        RequestError: the wire spec holds something that cannot be run.
    """
    rid = rid_of(wire)
    if not wire.script and not wire.argv:
        raise RequestError("neither a script nor a command to run")
    part = wire.slice
    gpus = sorted(i for one in grant.gres if one.name == "gpu" for i in one.indices)
    array = wire.HasField("array_job_id")
    return LaunchSpec(
        rid=rid,
        node=rules.node,
        node_id=wire.node_index,
        nodelist=hostlist.compress_sorted(list(wire.nodes)),
        n_nodes=max(len(wire.nodes), 1),
        partition=wire.partition,
        job_name=wire.job_name,
        array_job_id=wire.array_job_id if array else None,
        array_task_id=wire.array_task_id if array else None,
        restart_count=wire.restarts,
        script=text(wire.script),
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
        cpus=part.cpus,
        cpu_ids=grant.cpu_ids if rules.pinned else (),
        memory_mb=part.memory_mb,
        gpu_ids=tuple(gpus),
        gres=format_gres([(g.name, g.type, len(g.indices)) for g in grant.gres]),
        tasks=_tasks(wire, rid),
        cohort=tuple(wire.nodes),
        kill_wait_secs=wire.kill_wait_secs,
        cgroup_root=rules.cgroup_root,
    )


def _tasks(wire: agent_pb2.LaunchSpec, rid: RuntimeId) -> tuple[TaskSpec, ...]:
    """The tasks of a numbered step; a batch script runs once, whatever it asked for."""
    if not is_numbered(rid.step_id):
        return ()
    ranks = list(wire.slice.ranks) or [0]
    return tuple(TaskSpec(rank=r, local_rank=i, env=task_env(r, i, ranks)) for i, r in enumerate(ranks))


def task_env(rank: int, local: int, ranks: Sequence[int]) -> dict[str, str]:
    """What one task's environment has beside the step's."""
    env = {
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(len(ranks)),
        "NPROC_PER_NODE": str(len(ranks)),
        "SPUR_TASK_OFFSET": str(ranks[0]),
    }
    for name, value in (
        ("PROCID", str(rank)),
        ("LOCALID", str(local)),
        ("GTIDS", ",".join(map(str, ranks))),
    ):
        env[f"SLURM_{name}"] = env[f"SPUR_{name}"] = value
    return env


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


def text(data: bytes) -> str:
    """Bytes of the user's as Python keeps them in texts."""
    return data.decode("utf-8", "surrogateescape")


def _pair(entry: bytes) -> tuple[str, str]:
    name, _, value = entry.partition(b"=")
    return text(name), text(value)
