"""Requests and replies on a supervisor's control socket.

A request is `{v, id, op, rid, ...}`; a reply `{v, id, ok: true, ...}` or
`{v, id, ok: false, error, detail, held}`.  The identity is compared before anything else.
"""

from __future__ import annotations

from spur_core.errors import SpurError
from spur_core.ids import RuntimeId
from spur_core.lean import namedtuple
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.exits import EpilogRecord, ExitRecord
from spur_proto_lite.record import EMPTY, Record, rid_from_json, rid_to_json
from spur_proto_lite.versions import PROTOCOL_MAX, PROTOCOL_MIN

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple

    class Request(NamedTuple):
        v: int
        id: int
        op: str
        rid: RuntimeId
        args: dict[str, object]
else:
    Request = namedtuple("Request", ("v", "id", "op", "rid", "args"))

HELLO, START, QUERY, SIGNAL = "hello", "start", "query", "signal"
SUSPEND, RESUME, TEARDOWN, WAIT = "suspend", "resume", "teardown", "wait"
ACK, ATTACH, UPDATE, EXEC, ADOPT_PID = "ack", "attach", "update", "exec", "adopt_pid"

#: Scopes of `signal`: the first task only, its process group, every process of the step.
LEADER, GROUP, ALL = "leader", "group", "all"
SCOPES = frozenset({LEADER, GROUP, ALL})

IDENTITY_MISMATCH = "identity_mismatch"
BAD_STATE = "bad_state"
BAD_REQUEST = "bad_request"
VERSION = "version"
NO_SUCH_PROCESS = "no_such_process"
INTERNAL = "internal"

#: Failure kinds of `start`: the job's own files, another fault of the job, a fault of this node.
FAIL_IO, FAIL_JOB, FAIL_NODE = "io", "job", "node"

#: Seconds an agent waits for any answer but that of `wait`.
TIMEOUT = 5.0


class Refused(SpurError):
    """The supervisor said no.

    Attributes:
        code: one of the error words above.
        held: the identity it holds, after `identity_mismatch`.
    """

    def __init__(self, code: str, detail: str, held: RuntimeId | None = None) -> None:
        super().__init__(detail or code)
        self.code = code
        self.held = held


class HelloReply(Record):
    rid: RuntimeId
    #: Of `spur_stepd.machine`: ready, starting, running, suspended, exiting, exited, failed, ...
    state: str
    min: int = PROTOCOL_MIN
    max: int = PROTOCOL_MAX
    stepd_pid: int
    stepd_start_ticks: int
    boot_id: str
    #: Release of the supervisor program.
    program_version: str = ""
    task_pid: int | None = None


class StartReply(Record):
    """What `start` did.  A repeated one after success gets the same answer and starts nothing."""

    #: "" on success, else one of FAIL_IO, FAIL_JOB, FAIL_NODE, with `text`.
    failure_kind: str = ""
    text: str = ""
    #: errno behind the failure, 0 if there is none.
    failure_errno: int = 0
    task_pid: int | None = None
    task_pids: tuple[int, ...] = ()
    pgid: int | None = None
    #: Resolved, of the first task; "" when output is spooled.
    stdout_path: str = ""
    stderr_path: str = ""
    stdin_path: str = ""
    work_dir: str = ""
    cgroup: tuple[str, ...] = ()
    #: Wall clock, seconds.
    started_at: float = 0.0
    #: errno of a failed exec per task, 0 = running.  Such a task ends by itself with that code.
    exec_errnos: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()


class QueryReply(Record):
    state: str
    #: Processes of the step that are alive now.
    pids: int = 0
    exit: ExitRecord | None = None
    #: Journal number of the exit, 0 without one; with an exit: the disk (full) has refused it so far, and it
    #: is retried each second.
    exit_seq: int = 0
    epilog: EpilogRecord | None = None
    #: Leftovers are gone, cgroups and script removed.
    cleaned: bool = False
    memory_bytes: int = 0
    cpu_usec: int = 0


class SignalReply(Record):
    #: Processes signalled.
    count: int
    #: How they were found: "cgroup", "children", "group", "leader", or "none".
    path: str


class WaitReply(Record):
    """`exit` is None when the time was over first."""

    exit: ExitRecord | None = None
    exit_seq: int = 0


#: How a client is attached: the step's own one, which takes its output for good and gives its input; or a
#: further one, which looks on and gives input only while nobody else does.
OWNER, WATCHER = "owner", "watcher"
MODES = frozenset({OWNER, WATCHER})


class AttachArgs(Record):
    """What `attach` is asked with in protocol 2.  An owner takes the place of one that is attached."""

    mode: str = OWNER
    #: [rank, stream, offset] from where on output is wanted; what an owner does not want is delivered, as by
    #: credit.  What is not named comes from the beginning for an owner; a watcher gets the last 64 KiB of it.
    offsets: tuple[tuple[int, ...], ...] = ()
    #: None: an owner gives input, a watcher does not.
    want_input: bool | None = None
    #: Of the client's terminal; 0 = not known.
    rows: int = 0
    cols: int = 0
    #: The client has no input before this offset any more.
    stdin_offset: int = 0


class AttachReply(Record):
    """The answer to `attach` in protocol 2."""

    #: The supervisor has the input before this offset: go on from here.  An owner's input is counted on from
    #: one connection to the next; that of watchers is counted apart from it.
    stdin_offset: int = 0
    #: This client gives the input.
    writer: bool = False
    #: The step has a terminal: stream 1 of rank 0 is all its output.
    pty: bool = False


class ExecArgs(Record):
    """What `exec` is asked with (protocol 2)."""

    argv: tuple[str, ...]
    #: Laid over the step's environment.
    env: Mapping[str, str] = EMPTY
    pty: bool = False
    #: First size of the terminal, 0 = 24 rows and 80 columns.
    rows: int = 0
    cols: int = 0
    #: "" = the step's.
    work_dir: str = ""


class ExecReply(Record):
    """The process is there; the connection carries its I/O as rank 0 and ends with an exit frame."""

    pid: int


def encode_request(
    request_id: int, op: str, rid: RuntimeId, args: Mapping[str, object], v: int = PROTOCOL_MIN
) -> dict[str, object]:
    """The document of one request; None values of `args` are left out.

    Args:
        v: what the answer, and frames that may follow, are to be in.  All but `attach` and `exec` are the
            same in every protocol, so the oldest reaches every supervisor.
    """
    given = {name: value for name, value in args.items() if value is not None}
    return {**given, "v": v, "id": request_id, "op": op, "rid": rid_to_json(rid)}


def decode_request(document: dict[str, object]) -> Request:
    """The request in a document; whether op and version are known is not judged here.

    Raises:
        BadDocument: one of `v`, `id`, `op`, `rid` is missing or malformed.
    """
    args = dict(document)
    rid = rid_from_json(args.pop("rid", None))
    v, request_id, op = args.pop("v", None), args.pop("id", None), args.pop("op", None)
    if not _is_int(v) or not _is_int(request_id) or not isinstance(op, str):
        raise BadDocument("a request needs v, id, op and rid")
    assert isinstance(v, int)
    assert isinstance(request_id, int)
    return Request(v, request_id, op, rid, args)


def encode_reply(request: Request, body: Record | dict[str, object] | None = None) -> dict[str, object]:
    """The document of a reply that says yes."""
    fields = body.to_json() if isinstance(body, Record) else dict(body or {})
    return {**fields, "v": request.v, "id": request.id, "ok": True}


def encode_error(
    v: int, request_id: int, error: str, detail: str = "", held: RuntimeId | None = None
) -> dict[str, object]:
    """The document of a reply that says no."""
    reply: dict[str, object] = {"v": v, "id": request_id, "ok": False, "error": error, "detail": detail}
    if held is not None:
        reply["held"] = rid_to_json(held)
    return reply


def decode_reply(document: dict[str, object], request_id: int) -> dict[str, object]:
    """The fields of a reply that says yes.

    Raises:
        Refused: it says no.
        BadDocument: it is no reply to that request.
    """
    if document.get("id") != request_id or not isinstance(document.get("ok"), bool):
        raise BadDocument(f"not a reply to request {request_id}")
    if document["ok"]:
        return document
    held = document.get("held")
    raise Refused(
        str(document.get("error", INTERNAL)),
        str(document.get("detail", "")),
        None if held is None else rid_from_json(held),
    )


def int_arg(request: Request, name: str, default: int | None = None) -> int:
    """The whole number `name` of a request.

    Raises:
        BadDocument: it is missing without a default, or no whole number.
    """
    value = request.args.get(name, default)
    if not _is_int(value):
        raise BadDocument(f"{request.op}: {name} must be a whole number")
    assert isinstance(value, int)
    return value


def number_arg(request: Request, name: str, default: float | None = None) -> float | None:
    """The number `name` of a request, `default` when it is not given.

    Raises:
        BadDocument: it is no number, or negative.
    """
    value = request.args.get(name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise BadDocument(f"{request.op}: {name} must be a number of at least 0")
    return float(value)


def str_arg(request: Request, name: str, default: str = "") -> str:
    """The text `name` of a request.

    Raises:
        BadDocument: it is no text.
    """
    value = request.args.get(name, default)
    if not isinstance(value, str):
        raise BadDocument(f"{request.op}: {name} must be a text")
    return value


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
