"""`scontrol update`: key=value words to a request."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.control.show import Connect
from spur_core.errors import GrammarError

if TYPE_CHECKING:
    from spur_cli.transport import Transport

UNLIMITED = 0xFFFFFFFF
MOST_SITE_FACTOR = 2147483645
NO_ENTITY = (
    "No valid entity in update command",
    'Input line must include "NodeName", "PartitionName", "Reservation", "JobId", or "SlurmctldDebug"',
)
NEED_REASON = "You must specify a reason when DOWNING or DRAINING a node. Request denied"
#: Entities of Slurm that this release cannot change.
LATER = ("stepid", "slurmctlddebug")
Fields = dict[str, Any]


def unsupported(word: str) -> Stop:
    """The end for a key that cannot be set."""
    return Stop(1, f"Update of this parameter is not supported: {word}", "Request aborted")


class Pair:
    """One word: key in lower case, "" or the sign of `+=` and `-=`, value, and the word itself."""

    __slots__ = ("key", "sign", "value", "word")

    def __init__(self, word: str) -> None:
        key, equals, self.value = word.partition("=")
        if not equals:
            raise unsupported(word)
        self.sign = key[-1] if key[-1:] in ("+", "-") else ""
        self.key = (key[:-1] if self.sign else key).lower()
        self.word = word


def update(ctx: Context, connect: Connect, words: list[str]) -> int:
    """The command; `words` follow `update`."""
    if words:
        from spur_cli.control import partition

        if partition.about_one(words):
            return partition.update(ctx, connect, words)
    # `update job 12 TimeLimit=5` and `update JobId=12 ...` are both in use.
    if len(words) > 1 and "=" not in words[0] and "=" not in words[1]:
        words = [f"{words[0]}={words[1]}", *words[2:]]
    if not words or "=" not in words[0]:
        raise Stop(1, *NO_ENTITY)
    name = words[0].partition("=")
    if len(name[0]) >= 3 and "reservationname".startswith(name[0].lower()):
        from spur_cli.control import reservation

        return reservation.update(ctx, connect, name[2], words[1:])
    first, *rest = [Pair(word) for word in words]
    if first.key in ("jobid", "job", "jobname", "name"):
        return _job(ctx, connect, first, rest)
    if first.key in ("nodename", "node"):
        return _node(ctx, connect, first, rest)
    if first.key in LATER:
        raise ctx.stop(f"update {first.word.partition('=')[0]} is not supported by this release")
    raise Stop(1, *NO_ENTITY)


def _whole(value: str) -> int:
    if not (value.isascii() and value.isdigit()) or int(value) > UNLIMITED:
        raise GrammarError(f"Invalid integer value: {value}")
    return int(value)


def _nodes(value: str) -> Fields:
    from spur_core.grammar.counts import parse_node_count

    low, high = parse_node_count(value)
    return {"min_nodes": low, "max_nodes": high}


def _yes_no(value: str) -> bool:
    if value.lower() in ("1", "yes", "true"):
        return True
    if value.lower() in ("0", "no", "false"):
        return False
    raise GrammarError(f"Invalid value, use yes or no: {value}")


def _memory(field: str, option: str) -> Callable[[str], Fields]:
    def parse(value: str) -> Fields:
        from spur_core.grammar.size import parse_mem

        return {field: parse_mem(value, option)}

    return parse


def _gres(value: str) -> Fields:
    from spur_core.grammar.gres import format_gres, parse_gres

    return {"gres": format_gres(parse_gres(value.replace("gres/", "").replace("gres:", "")))}


def _wish(field: str, parse: Callable[[str], Any]) -> Callable[[str], Fields]:
    """A value that stands among the wishes."""
    return lambda value: {"wishes": {field: parse(value)}}


def _gres_list(value: str) -> list[str]:
    """What is asked for; an empty value asks for nothing."""
    return [_gres(value or "none")["gres"] or "none"]


def _of_gpus(parse: Callable[[str], int]) -> Callable[[str], int]:
    """`gres/gpu:4` or `gpu:4`."""

    def parsed(value: str) -> int:
        name, colon, count = (
            value.replace("=", ":").removeprefix("gres/").removeprefix("gres:").partition(":")
        )
        if name != "gpu" or not colon:
            raise GrammarError(f"Invalid value, use gres/gpu:N: {value}")
        return parse(count)

    return parsed


def _mebibytes(option: str) -> Callable[[str], int]:
    def parse(value: str) -> int:
        from spur_core.grammar.size import parse_mem

        return parse_mem(value, option)

    return parse


def _seconds(value: str) -> int:
    from spur_core.grammar.timelimit import parse_time_limit

    return parse_time_limit(value, "TimeMin") or 0


def _switches(value: str) -> Fields:
    """`Switches=N[@TIME]`; 0 = any number will do again."""
    from spur_core.grammar.counts import parse_switches

    if value == "0":
        return {"wishes": {"switches": 0}}
    count, wait = parse_switches(value)
    return {"wishes": {"switches": count} | ({} if wait is None else {"switches_wait_secs": wait})}


def _shared(value: str) -> Fields:
    """`OverSubscribe=`: yes asks for sharing, no for whole nodes."""
    yes = _yes_no(value)
    return {"exclusive": not yes, "wishes": {"oversubscribe": yes}}


def _text(field: str) -> Callable[[str], Fields]:
    return lambda value: {field: value}


def _signed(value: str) -> int:
    digits = value[1:] if value[:1] in ("+", "-") else value
    if not (digits.isascii() and digits.isdigit()) or int(digits) > MOST_SITE_FACTOR:
        raise GrammarError(f"Invalid SiteFactor, must be between -{MOST_SITE_FACTOR} and {MOST_SITE_FACTOR}")
    return int(value)


def _number(field: str) -> Callable[[str], Fields]:
    return lambda value: {field: _whole(value)}


#: Keys of a job with how their value becomes fields.
JOB_KEYS: dict[str, Callable[[str], Fields]] = {
    "account": _text("account"),
    "arraytaskthrottle": _number("array_throttle"),
    "comment": _text("comment"),
    "contiguous": _wish("contiguous", _yes_no),
    "cpuspertres": _wish("cpus_per_gpu", _of_gpus(_whole)),
    "cpuspertask": _number("cpus_per_task"),
    "dependency": _text("dependency"),
    "excnodelist": _text("exc_nodelist"),
    "features": _text("constraint"),
    "gres": _gres,
    "jobname": _text("name"),
    "mempertres": _wish("memory_per_gpu_mb", _of_gpus(_mebibytes("MemPerTres"))),
    "mincpusnode": _wish("min_cpus", _whole),
    "minmemorycpu": _memory("memory_per_cpu_mb", "MinMemoryCPU"),
    "minmemorynode": _memory("memory_per_node_mb", "MinMemoryNode"),
    "mintmpdisknode": _wish("tmp_disk_mb", _mebibytes("MinTmpDiskNode")),
    "name": _text("name"),
    "nodelist": _text("req_nodelist"),
    "numnodes": _nodes,
    "numtasks": _number("num_tasks"),
    "oversubscribe": _shared,
    "partition": _text("partition"),
    "priority": _number("priority"),
    "qos": _text("qos"),
    "reqcores": _wish("cores_per_socket", _whole),
    "reqnodelist": _text("req_nodelist"),
    "reqnodes": _nodes,
    "reqswitch": _switches,
    "reqsockets": _wish("sockets_per_node", _whole),
    "reqthreads": _wish("threads_per_core", _whole),
    "requeue": lambda value: {"requeue": _yes_no(value)},
    "reservationname": _text("reservation"),
    "reservation": _text("reservation"),
    "licenses": _text("licenses"),
    "shared": _shared,
    "sitefactor": lambda value: {"site_factor": _signed(value)},
    "switches": _switches,
    "stderr": _text("stderr_path"),
    "stdin": _text("stdin_path"),
    "stdout": _text("stdout_path"),
    "taskspernode": _number("tasks_per_node"),
    "timemin": _wish("time_min_secs", _seconds),
    "tresperjob": _wish("gres_total", _gres_list),
    "trespernode": _gres,
    "trespersocket": _wish("gres_per_socket", _gres_list),
    "trespertask": _wish("gres_per_task", _gres_list),
    "wckey": _text("wckey"),
    "workdir": _text("work_dir"),
}


def job_fields(pair: Pair, now: float) -> Fields:
    """The fields of an `UpdateJobRequest` that one word sets.

    Raises:
        Stop: a key that cannot be set.
        GrammarError: a value that cannot be used.
    """
    if pair.key == "timelimit":
        return _time_limit(pair)
    if pair.sign:
        raise unsupported(pair.word)
    if pair.key in ("starttime", "eligibletime"):
        from spur_core.grammar.instant import parse_instant

        return {"begin_at": parse_instant(pair.value, now)}
    if pair.key == "deadline":
        from spur_core.grammar.instant import parse_instant

        return {"deadline_at": parse_instant(pair.value, now) if pair.value not in ("", "0", "none") else 0.0}
    if pair.key == "nice":
        from spur_core.grammar.counts import parse_nice

        return {"nice": parse_nice(pair.value)}
    parse = JOB_KEYS.get(pair.key)
    if parse is None:
        raise unsupported(pair.word)
    return parse(pair.value)


def _time_limit(pair: Pair) -> Fields:
    from spur_core.grammar.timelimit import parse_time_limit

    sign = pair.sign or (pair.value[:1] if pair.value[:1] in ("+", "-") and pair.value != "-1" else "")
    bad = GrammarError(f"Invalid TimeLimit value: {pair.value}")
    try:
        limit = parse_time_limit(pair.value.removeprefix(sign) if sign and not pair.sign else pair.value)
    except GrammarError:
        raise bad from None
    if sign:
        if limit is None:
            raise bad
        return {"time_limit_delta_secs": -limit if sign == "-" else limit}
    return {"time_limit_secs": UNLIMITED if limit is None else limit}


def _job(ctx: Context, connect: Connect, first: Pair, rest: list[Pair]) -> int:
    from spur_proto import controller_pb2 as pb

    user = [pair.value for pair in rest if pair.key == "userid"]
    rest = [pair for pair in rest if pair.key != "userid"]
    fields: Fields = {}
    for pair in rest:
        try:
            found = job_fields(pair, ctx.clock())
            if "wishes" in found:
                found["wishes"] = {**fields.get("wishes", {}), **found["wishes"]}
            fields.update(found)
        except GrammarError as error:
            raise Stop(1, error.text, "Request aborted") from None
    if not fields:
        raise Stop(1, "No changes specified")
    from spur_cli.control.changes import report, targets

    try:
        transport = connect()
        if first.key in ("jobname", "name"):
            chosen = _named(transport, first.value, user)
        else:
            chosen = targets(ctx, transport, [first.value])
        request = pb.UpdateJobRequest(targets=chosen, **fields)
        answer = transport.call("UpdateJob", request, pb.UpdateJobResponse)
    except CallFailed as failure:
        raise Stop(1, f"slurm_update error: {failure.text}") from None
    return report(ctx, answer.results)


def _named(transport: "Transport", name: str, user: list[str]) -> "list[Any]":
    """The jobs of a name, of one user when that is said."""
    from spur_cli.queue import select
    from spur_cli.users import find_user
    from spur_proto import controller_pb2 as pb

    uid = None
    if user:
        found = find_user(user[-1])
        if found is None:
            raise Stop(1, f"Invalid user name: {user[-1]}")
        uid = found[1]
    jobs = select.fetch(transport, states=select.LIVE_STATES)
    ids = {
        job.array_job_id if job.HasField("array_job_id") else job.job_id
        for job in jobs
        if job.name == name and uid in (None, job.uid)
    }
    if not ids:
        raise Stop(1, f"Job name {name} not found")
    return [pb.JobTarget(job_id=job_id) for job_id in sorted(ids)]


def _node(ctx: Context, connect: Connect, first: Pair, rest: list[Pair]) -> int:
    from spur_proto import controller_pb2 as pb

    fields: Fields = {"names": first.value}
    for pair in rest:
        if pair.sign or pair.key not in ("state", "reason", "weight", "comment"):
            raise unsupported(pair.word)
        try:
            fields[pair.key] = _whole(pair.value) if pair.key == "weight" else pair.value
        except GrammarError as error:
            raise Stop(1, error.text, "Request aborted") from None
    if len(fields) == 1:
        raise Stop(1, "No changes specified")
    if "state" in fields:
        fields["state"] = fields["state"].upper()
        if fields["state"] in ("DOWN", "DRAIN", "FAIL") and not fields.get("reason"):
            raise Stop(1, NEED_REASON)
    try:
        connect().call("UpdateNode", pb.UpdateNodeRequest(**fields), pb.UpdateNodeResponse)
    except CallFailed as failure:
        raise Stop(1, f"slurm_update error: {failure.text}") from None
    return 0
