"""Accept or refuse a job specification: everything is resolved here, once, in Slurm's order.  Pure.

What can be refused at submit is refused with Slurm's sentence; what only cannot run now is accepted and
waits with a reason.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from spur_core.errors import GrammarError, RequestError
from spur_core.grammar import array, counts, dependency, features, hostlist
from spur_core.grammar.licenses import format_licenses, parse_licenses
from spur_ctld import bounds, submit_shape, submit_wishes
from spur_ctld.state import access, distribution, resv_gate
from spur_ctld.state.ops import Submit
from spur_ctld.state.records import UNLIMITED, IndexRange, Node, Partition, Request
from spur_ctld.users import UserRecord
from spur_proto import common_pb2 as pb

#: Script and environment together with everything else.
MAX_SPEC_BYTES: Final = 4 << 20
MAX_NICE: Final = 2147483645
_CLOSED: Final = frozenset({"DRAIN", "INACTIVE"})


class SubmitRules(NamedTuple):
    """The settings that decide about submissions."""

    max_array_size: int
    default_priority: int
    max_user_priority: int
    #: Fallback limit in seconds; 0 = none.
    default_time_limit: int
    #: "NO", "ANY" or "ALL".
    enforce_part_limits: str
    job_requeue: bool = True
    #: `[auth] allow_root_jobs` is off: agents would refuse every attempt, and rest between them.
    refuse_root: bool = False
    #: Longest wait for as few switches as asked for, seconds.
    max_switch_wait: int = 300
    #: Licences that the cluster has.
    licenses: Mapping[str, int] = MappingProxyType({})
    #: False: priorities are made of factors, and a user's own word does not count.
    users_set_priorities: bool = True


class Submitter(NamedTuple):
    """Who submits: from the credential and the host's user database."""

    record: UserRecord
    admin: bool


class Resolved(NamedTuple):
    """A submission as it enters the log, and what the submitter should be told."""

    op: Submit
    warnings: tuple[str, ...]


def resolve(
    spec: pb.JobSpec,
    rules: SubmitRules,
    partitions: Mapping[str, Partition],
    nodes: Mapping[str, Node],
    who: Submitter,
    now: float,
    request_id: str = "",
) -> Resolved:
    """The operation that queues `spec`.

    Raises:
        RequestError: refused; the sentence is Slurm's where Slurm has one.
    """
    if rules.refuse_root and who.record.uid == 0:
        raise RequestError("Invalid user id: jobs of root are not allowed here ([auth] allow_root_jobs)")
    # Before anything is parsed: what is too large is not even looked at.
    _payload(spec)
    bounds.check_texts(spec)
    warnings: list[str] = []
    wanted = requested_partitions(spec.partition, partitions)
    allowed(wanted, who, spec.account, spec.qos, spec.reservation)
    task_nodes = _task_nodes(spec)
    nodelist = _hosts(spec.nodelist, nodes, "nodelist")
    exclude = _hosts(spec.exclude, nodes, "exclude")
    _members_only(nodelist, exclude, wanted)
    shape = submit_shape.resolve(spec, len(nodelist))
    warnings.extend(shape.warnings)
    given_limit = spec.time_limit_secs if spec.HasField("time_limit_secs") else None
    limit = time_limit(given_limit, wanted, rules.default_time_limit)
    enforce(rules.enforce_part_limits, given_limit, shape.min_nodes, wanted)
    per_node, per_cpu = memory(spec, wanted)
    resources = submit_wishes.parse_gres_list(spec.gres, nodes)
    wishes, shape = submit_wishes.resolve(spec, shape, resources, limit, nodes)
    wishes |= submit_wishes.switch_wait(wishes, rules.max_switch_wait)
    _constraint(spec.constraint)
    check_dependency(spec.dependency)
    indices, throttle = array_of(spec.array, rules.max_array_size)
    begin, deadline = times(spec, now)
    limit_open = deadline is not None and given_limit is None
    least = 1 if limit_open else wishes.get("time_min")
    check_deadline(deadline, max(now, begin or 0.0), limit, least)
    priority, nice, more = priority_of(spec, rules, who.admin)
    asked = spec.priority > 0 and (who.admin or rules.users_set_priorities)
    warnings.extend(more)
    request = Request(
        name=spec.name or ("interactive" if spec.alloc_only else "sbatch"),
        user=who.record.name,
        uid=who.record.uid,
        gid=who.record.gid,
        group=who.record.group,
        account=spec.account,
        qos=spec.qos,
        comment=spec.comment,
        wckey=spec.wckey,
        partitions=tuple(p.name for p in wanted),
        min_nodes=shape.min_nodes,
        max_nodes=shape.max_nodes,
        num_tasks=shape.num_tasks,
        tasks_given=shape.tasks_given,
        by_nodes=shape.by_nodes,
        tasks_per_node=shape.tasks_per_node,
        cpus_per_task=shape.cpus_per_task,
        cpus_per_task_given=spec.HasField("cpus_per_task"),
        memory_per_node_mb=per_node,
        memory_per_cpu_mb=per_cpu,
        gres=resources,
        exclusive=spec.exclusive,
        nodelist=nodelist,
        exclude=exclude,
        constraint=spec.constraint,
        script=spec.script,
        argv=tuple(spec.argv),
        script_args=tuple(spec.script_args),
        env=environment(spec.environment),
        work_dir=_work_dir(spec.work_dir),
        stdout=spec.stdout_path,
        stderr=spec.stderr_path,
        stdin=spec.stdin_path,
        open_mode=_open_mode(spec.open_mode),
        umask=_umask(spec),
        rlimits=tuple(map(bounds.rlimit, spec.rlimits)),
        srun=spec.srun_job,
        label=spec.label,
        command=spec.command,
        submit_line=spec.submit_line,
        submit_host=spec.submit_host,
        submit_dir=spec.submit_dir,
        time_limit=limit,
        begin_at=begin,
        deadline_at=deadline,
        dependency=spec.dependency,
        requeue=not spec.alloc_only and (spec.requeue if spec.HasField("requeue") else rules.job_requeue),
        kill_on_invalid_dependency=spec.kill_on_invalid_dependency,
        nice=nice,
        warn_signal=_warn_signal(spec.warn_signal),
        alloc_only=spec.alloc_only,
        distribution=spec.distribution,
        task_nodes=task_nodes,
        reservation=reservation_names(spec.reservation),
        licenses=license_text(spec.licenses, rules.licenses),
        shape=step_shape(spec.step) if spec.HasField("step") else b"",
        limit_open=limit_open,
        **wishes,
    )
    op = Submit(
        at=now,
        request=request,
        request_id=bounds.bounded(request_id, "request_id", 256),
        array=indices,
        array_throttle=throttle,
        priority=priority,
        priority_given=asked,
        held=spec.hold or (spec.HasField("priority") and spec.priority == 0),
    )
    return Resolved(op, tuple(warnings))


def reservation_names(text: str) -> str:
    """A comma list of reservations without blanks and repeats.

    Raises:
        RequestError: it names none though it is not empty; the job would run without one.
    """
    found = ",".join(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if text and not found:
        error = RequestError(resv_gate.NO_SUCH)
        error.code = "bad_reservation"
        raise error
    return found


def license_text(text: str, total: Mapping[str, int]) -> str:
    """Licences in their plain form.

    Raises:
        RequestError: they mean nothing, or the cluster does not have so many.
    """
    try:
        plain = format_licenses(parse_licenses(text)) if text.strip() else ""
    except GrammarError as error:
        raise RequestError(error.text) from None
    if resv_gate.lacking(plain, dict(total)):
        raise RequestError("Invalid license specification")
    return plain


def requested_partitions(text: str, partitions: Mapping[str, Partition]) -> list[Partition]:
    """The partitions that a comma list names; the default one, else the first, for an empty list.

    In place of one that takes no jobs stands its alternate.
    """
    if not partitions:
        raise RequestError("No partition specified or system default partition")
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        names = [p.name for p in partitions.values() if p.default][:1] or [next(iter(partitions))]
    found: list[Partition] = []
    for name in names:
        if name not in partitions:
            raise RequestError("Invalid partition name specified")
        partition = partitions[name]
        if partition.state in _CLOSED and partition.alternate in partitions:
            partition = partitions[partition.alternate]
        if partition not in found:
            found.append(partition)
    if text.strip() and all(p.state in _CLOSED for p in found):
        raise RequestError("Required partition not available (inactive or drain)")
    return found


def allowed(wanted: Iterable[Partition], who: Submitter, account: str, qos: str, reservation: str) -> None:
    """Refuse a job that one of its partitions is not for.

    Raises:
        RequestError: Slurm's sentence.
    """
    for partition in wanted:
        text = access.refusal(
            partition,
            uid=who.record.uid,
            groups=who.record.groups,
            admin=who.admin,
            account=account,
            qos=qos,
            reservation=reservation,
        )
        if text:
            raise RequestError(text)


def allowed_to_move(wanted: Iterable[Partition], who: Submitter) -> None:
    """Refuse a move of a job to partitions that its owner, who asks for it, may not use.

    Account, QOS and reservation are looked at by every pass; a job that has the wrong ones waits.

    Raises:
        RequestError: Slurm's sentence.
    """
    for partition in wanted:
        text = access.closed_to(partition, who.record.uid, who.record.groups, admin=who.admin)
        if text:
            raise RequestError(text)


def time_limit(given: int | None, wanted: Iterable[Partition], fallback: int) -> int:
    """The limit in seconds, `UNLIMITED` for none.

    What the user gave; else per partition its default, else (with a cluster fallback) the smaller of
    maximum and fallback, else its maximum; of several partitions the smallest.
    """
    if given is not None:
        return given or UNLIMITED
    found = []
    for partition in wanted:
        if partition.default_time is not None:
            found.append(partition.default_time)
        elif fallback:
            found.append(min(fallback, partition.max_time or fallback))
        elif partition.max_time is not None:
            found.append(partition.max_time)
        else:
            found.append(UNLIMITED)
    return min(found)


def enforce(mode: str, given: int | None, min_nodes: int, wanted: list[Partition]) -> None:
    """`enforce_part_limits`: refuse what the partitions' limits forbid instead of letting it wait."""
    if mode not in ("ALL", "ANY"):
        return
    verdicts = []
    for partition in wanted:
        if given is not None and partition.max_time is not None and (given or UNLIMITED) > partition.max_time:
            verdicts.append("Requested time limit is invalid (missing or exceeds some limit)")
        elif min_nodes < partition.min_nodes or (
            partition.max_nodes is not None and min_nodes > partition.max_nodes
        ):
            verdicts.append("Node count specification invalid")
        else:
            verdicts.append("")
    failed = [text for text in verdicts if text]
    if failed and (mode == "ALL" or len(failed) == len(verdicts)):
        raise RequestError(failed[0])


def memory(spec: pb.JobSpec, wanted: list[Partition]) -> tuple[int | None, int | None]:
    """(per node, per CPU) in MiB; at most one is set."""
    per_node = spec.memory_per_node_mb if spec.HasField("memory_per_node_mb") else None
    per_cpu = spec.memory_per_cpu_mb if spec.HasField("memory_per_cpu_mb") else None
    bounds.memory_mb(per_node or per_cpu or 0, "memory")
    if per_node is not None and per_cpu is not None:
        raise RequestError("memory_per_node_mb and memory_per_cpu_mb are mutually exclusive")
    if spec.wishes.HasField("memory_per_gpu_mb"):
        return None, None
    if per_node is None and per_cpu is None:
        for partition in wanted:
            if partition.def_mem_per_cpu is not None:
                return None, partition.def_mem_per_cpu
            if partition.def_mem_per_node is not None:
                return partition.def_mem_per_node, None
        return None, None
    caps = [p.max_mem_per_node for p in wanted]
    if per_node and all(cap is not None and per_node > cap for cap in caps):
        raise RequestError("Memory required by task is not available")
    return per_node, per_cpu


def check_deadline(deadline: float | None, now: float, limit: int | None, least: int | None) -> None:
    """Refuse a job that could not end in time if it started at once.

    Args:
        limit: its time limit.  least: the limit that would do.
    """
    secs = least or limit
    if deadline is not None and secs not in (None, UNLIMITED) and now + (secs or 0) > deadline:
        raise RequestError("Requested time limit is invalid (missing or exceeds some limit)")


def check_dependency(text: str) -> None:
    """Refuse what cannot be parsed, and what this release has nothing to wait for.

    Raises:
        GrammarError, RequestError: why.
    """
    if any(term.kind == "afterburstbuffer" for term in dependency.parse(text).terms):
        raise RequestError("Job dependency problem: afterburstbuffer is not supported by this release")


def array_of(text: str, max_size: int) -> tuple[tuple[IndexRange, ...], int]:
    """(runs of indices, throttle); no runs for a job that is no array."""
    if not text:
        return (), 0
    parsed = array.parse_array(text, max_size)
    return parsed.ranges, parsed.throttle


def times(spec: pb.JobSpec, now: float) -> tuple[float | None, float | None]:
    """(begin, deadline); a deadline that cannot be met is refused."""
    begin = spec.begin_at if spec.HasField("begin_at") else None
    deadline = spec.deadline_at if spec.HasField("deadline_at") else None
    for value in (begin, deadline):
        if value is not None:
            bounds.instant(value)
    if deadline is not None and (deadline <= now or (begin is not None and deadline < begin)):
        raise RequestError("Incompatible begin and deadline time specification")
    return (begin if begin is not None and begin > now else None), deadline


def priority_of(spec: pb.JobSpec, rules: SubmitRules, admin: bool) -> tuple[int, int, list[str]]:
    """(base priority or the one asked for, nice, warnings)."""
    warnings: list[str] = []
    nice = spec.nice if spec.HasField("nice") else 0
    if abs(nice) > MAX_NICE:
        raise RequestError(f"nice: {nice} is not within +-{MAX_NICE}")
    if nice < 0 and not admin:
        warnings.append("nice must not be negative for ordinary users, set to 0")
        nice = 0
    if spec.priority > 0 and not (admin or rules.users_set_priorities):
        warnings.append("priority may be set by administrators only, ignored")
    elif spec.HasField("priority") and spec.priority > 0:
        wanted = spec.priority
        if not admin and wanted > rules.max_user_priority:
            warnings.append(f"priority {wanted} is more than permitted, set to {rules.max_user_priority}")
            wanted = rules.max_user_priority
        return wanted, nice, warnings
    return min(max(1, rules.default_priority - nice), 0xFFFFFFFE), nice, warnings


def environment(entries: Iterable[bytes]) -> bytes:
    """The NUL-joined form."""
    held = list(entries)
    for entry in held:
        name, equals, _ = entry.partition(b"=")
        if not name or not equals or b"\0" in entry:
            raise RequestError("environment: every entry must be NAME=value without NUL")
    return b"\0".join(held)


def _payload(spec: pb.JobSpec) -> None:
    if spec.ByteSize() > MAX_SPEC_BYTES:
        raise RequestError("Job script or environment is too large: more than 4 MiB")
    if spec.alloc_only:
        if spec.script or spec.argv or spec.srun_job or spec.array:
            raise RequestError("alloc_only: an allocation has no script, no command and no array")
    elif not spec.script and not spec.argv:
        raise RequestError("Batch script is empty!")
    if spec.srun_job and not spec.argv:
        raise RequestError("argv: a stand-alone srun needs a command")
    if b"\0" in spec.script:
        raise RequestError("The Slurm controller does not allow scripts that contain a NULL character '\\0'.")
    if any(b"\0" in word for word in [*spec.argv, *spec.script_args]):
        raise RequestError("argv: a word must not contain NUL")


def _task_nodes(spec: pb.JobSpec) -> tuple[str, ...]:
    """The node of each task, where the distribution is by such a list."""
    if distribution.parse(spec.distribution).kind != "arbitrary" or not spec.nodelist:
        return ()
    return tuple(hostlist.expand(spec.nodelist))


def step_shape(shape: pb.StepShape) -> bytes:
    """How tasks are started, as the log keeps it.

    Raises:
        RequestError: a path or a word in it that cannot be.
    """
    for field in ("task_prolog", "task_epilog"):
        path = getattr(shape, field)
        if path and not path.startswith("/"):
            raise RequestError(f"{field}: {path[:80]!r} is not an absolute path")
        bounds.bounded(path, field, bounds.TEXTS["work_dir"])
    for field in ("cpu_bind", "gpu_bind", "mpi"):
        bounds.bounded(getattr(shape, field), field, bounds.TEXTS["gres"])
    if shape.mpi not in ("", "none", "pmi2"):
        raise RequestError(f"mpi: {shape.mpi!r} is not supported by this release; use pmi2 or none")
    words = 0
    for command in shape.commands:
        words += len(command.argv) + len(command.ranks)
        if not command.argv or any(b"\0" in word for word in command.argv):
            raise RequestError("commands: a command must have words, without NUL")
    if words > bounds.ENTRIES["argv"]:
        raise RequestError(f"commands: more than {bounds.ENTRIES['argv']} words and ranks")
    return shape.SerializeToString()


def _hosts(text: str, nodes: Mapping[str, Node], field: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        names = list(dict.fromkeys(hostlist.expand(text)))
    except GrammarError as error:
        raise RequestError(f"{field}: {error.text}") from None
    if any(name not in nodes for name in names):
        raise RequestError("Invalid node name specified")
    return tuple(names)


def _members_only(nodelist: tuple[str, ...], exclude: tuple[str, ...], wanted: list[Partition]) -> None:
    if not nodelist:
        return
    if set(nodelist) & set(exclude):
        raise RequestError("Requested node configuration is not available")
    if not any(set(nodelist) <= set(partition.nodes) for partition in wanted):
        raise RequestError("Requested nodes not in this partition")


def _constraint(text: str) -> None:
    if text:
        try:
            features.parse(text)
        except GrammarError:
            raise RequestError("Invalid feature specification") from None


def _warn_signal(text: str) -> str:
    if text:
        scope, _, _ = counts.parse_warn_signal(text)
        if "R" in scope:
            raise RequestError("--signal=R: is not supported by this release; leave the R out")
    return text


def _open_mode(text: str) -> str:
    if text not in ("", "append", "truncate"):
        raise RequestError(f"open_mode: {text!r} is neither append nor truncate")
    return text


def _umask(spec: pb.JobSpec) -> int | None:
    if not spec.HasField("umask"):
        return None
    if spec.umask > 0o777:
        raise RequestError(f"umask: {spec.umask:#o} is more than 0777")
    return spec.umask


def _work_dir(text: str) -> str:
    if text and not text.startswith("/"):
        raise RequestError(f"work_dir: {text!r} is not an absolute path")
    return text
