"""What each control request does.  The identity is compared before anything else."""

from __future__ import annotations

import errno
import os
import time

import spur_stepd
from spur_core.errors import IllegalTransition
from spur_core.ids import STEP_EXTERN, U32_MAX
from spur_core.lean import signal
from spur_core.linux import cgroup
from spur_proto_lite import control, framing
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.versions import PROTOCOL_MAX, PROTOCOL_MIN
from spur_stepd import adopt, machine
from spur_stepd.log import say

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spur_proto_lite.control import Request
    from spur_proto_lite.record import Record
    from spur_stepd.server import Connection
    from spur_stepd.supervisor import Supervisor

    Body = Record | dict[str, object] | None

#: The longest a `wait` may take, seconds.
_LONGEST_WAIT = 86_400.0


class Later(Exception):
    """The request is answered by an event."""


class Requests:
    """Serves the control connections of one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._starts: list[tuple[Connection, Request]] = []
        self._waits: list[tuple[Connection, Request, float]] = []
        self._ops: dict[str, Callable[[Connection, Request], Body]] = {
            control.HELLO: self._hello,
            control.START: self._start,
            control.QUERY: self._query,
            control.SIGNAL: self._signal,
            control.SUSPEND: self._suspend,
            control.RESUME: self._resume,
            control.TEARDOWN: self._teardown,
            control.WAIT: self._wait,
            control.ACK: self._ack,
            control.ATTACH: self._attach,
            control.UPDATE: self._update,
            control.ADOPT_PID: self._adopt_pid,
            control.EXEC: self._exec,
        }

    def on_message(self, connection: Connection, document: dict[str, object]) -> None:
        """Serve one request.

        Raises:
            BadDocument: it is no request at all; the connection is closed for it.
        """
        request = control.decode_request(document)
        held = self._supervisor.spec.rid
        if request.rid != held:
            say("identity_mismatch", asked=request.rid, held=held, op=request.op)
            detail = f"asked for {request.rid}, held is {held}"
            self._refuse(connection, request, control.IDENTITY_MISMATCH, detail)
            return
        if not PROTOCOL_MIN <= request.v <= PROTOCOL_MAX and request.op != control.HELLO:
            detail = f"version {request.v} is not spoken here: {PROTOCOL_MIN} to {PROTOCOL_MAX}"
            self._refuse(connection, request, control.VERSION, detail)
            return
        op = self._ops.get(request.op)
        if op is None:
            self._refuse(connection, request, control.BAD_REQUEST, f"there is no operation {request.op!r}")
            return
        try:
            body = op(connection, request)
        except Later:
            return
        except adopt.NoSuchProcess as error:
            self._refuse(connection, request, control.NO_SUCH_PROCESS, str(error))
        except (BadDocument, adopt.NotOfTheJob) as error:
            self._refuse(connection, request, control.BAD_REQUEST, str(error))
        except IllegalTransition as error:
            self._refuse(connection, request, control.BAD_STATE, str(error))
        except OSError as error:
            say("request_failed", op=request.op, error=error)
            self._refuse(connection, request, control.INTERNAL, str(error))
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            # Ours to mend; but no request is worth the step.
            say("request_broken", op=request.op, error=repr(error))
            self._refuse(connection, request, control.INTERNAL, f"{request.op}: {error!r}")
        else:
            if not connection.is_attached:
                connection.send(control.encode_reply(request, body))

    def _refuse(self, connection: Connection, request: Request, error: str, detail: str) -> None:
        held = self._supervisor.spec.rid
        connection.send(control.encode_error(request.v, request.id, error, detail, held))

    def on_close(self, connection: Connection) -> None:
        """A client is gone; what it waited for is not answered."""
        self._starts = [start for start in self._starts if start[0] is not connection]
        self._waits = [wait for wait in self._waits if wait[0] is not connection]

    # -- operations --------------------------------------------------------------------------------

    def _hello(self, _connection: Connection, _request: Request) -> Body:
        own = self._supervisor
        return control.HelloReply(
            rid=own.spec.rid,
            state=own.machine.state,
            stepd_pid=os.getpid(),
            stepd_start_ticks=own.start_ticks,
            boot_id=own.boot_id,
            program_version=spur_stepd.__version__,
            task_pid=own.start_reply.task_pid,
        )

    def _start(self, connection: Connection, request: Request) -> Body:
        self._starts.append((connection, request))
        try:
            self._supervisor.tell(self._supervisor.machine.start())
        except IllegalTransition:
            self._starts = [start for start in self._starts if start[1] is not request]
            raise
        raise Later

    def answer_starts(self, reply: control.StartReply) -> None:
        """Answer everybody who asked for `start`."""
        waiting, self._starts = self._starts, []
        for connection, request in waiting:
            connection.send(control.encode_reply(request, reply))

    def _query(self, _connection: Connection, _request: Request) -> Body:
        own = self._supervisor
        groups = own.targets.groups
        with own.privileges.root():
            alive = own.targets.count() if own.launched is not None and not own.cleaned else 0
            memory, cpu = cgroup.memory_bytes(groups), cgroup.cpu_usec(groups)
        reply = control.QueryReply(
            state=own.machine.state,
            pids=alive,
            exit=own.exit,
            exit_seq=own.machine.exit_seq,
            epilog=own.epilog,
            cleaned=own.cleaned,
            memory_bytes=memory,
            cpu_usec=cpu,
        )
        own.tell(own.machine.epilog_told())
        return reply

    def _signal(self, _connection: Connection, request: Request) -> Body:
        number = control.int_arg(request, "signal")
        scope = control.str_arg(request, "scope", control.ALL)
        if not 1 <= number < signal.NSIG or scope not in control.SCOPES:
            raise BadDocument(f"signal: there is no signal {number}, or no scope {scope!r}")
        return self._supervisor.deliver(number, scope)

    def _suspend(self, _connection: Connection, _request: Request) -> Body:
        self._supervisor.tell(self._supervisor.machine.suspend())
        return None

    def _resume(self, _connection: Connection, _request: Request) -> Body:
        self._supervisor.tell(self._supervisor.machine.resume())
        return None

    def _teardown(self, connection: Connection, request: Request) -> Body:
        reason = control.str_arg(request, "reason")
        requester = control.str_arg(request, "requester", "agent")
        grace = control.number_arg(request, "grace")
        # Answered at once: what follows may end this supervisor.
        connection.send(control.encode_reply(request))
        self._supervisor.tell(self._supervisor.machine.teardown(reason, requester, grace, time.monotonic()))
        raise Later

    def _wait(self, connection: Connection, request: Request) -> Body:
        given = control.number_arg(request, "timeout")
        timeout = _LONGEST_WAIT if given is None else given
        if self._supervisor.machine.exit_seq:
            return self._wait_reply()
        until = time.monotonic() + min(timeout, _LONGEST_WAIT)
        self._waits.append((connection, request, until))
        raise Later

    def _wait_reply(self) -> control.WaitReply:
        own = self._supervisor
        return control.WaitReply(
            exit=own.exit if own.machine.exit_seq else None, exit_seq=own.machine.exit_seq
        )

    def answer_waits(self) -> None:
        """Answer everybody who waits for the exit."""
        waiting, self._waits = self._waits, []
        for connection, request, _until in waiting:
            connection.send(control.encode_reply(request, self._wait_reply()))

    def expire_waits(self, now: float) -> None:
        """Answer those whose time is over without an exit."""
        over = [wait for wait in self._waits if wait[2] <= now]
        if over:
            self._waits = [wait for wait in self._waits if wait[2] > now]
            for connection, request, _until in over:
                connection.send(control.encode_reply(request, control.WaitReply()))

    def next_deadline(self) -> float | None:
        """When `expire_waits` wants to be called."""
        return min((until for _, _, until in self._waits), default=None)

    def _ack(self, connection: Connection, request: Request) -> Body:
        seq = control.int_arg(request, "seq")
        by = control.str_arg(request, "by", "agent")
        self._supervisor.tell(self._supervisor.machine.ack(seq, by))
        if not self._supervisor.machine.acknowledged:
            raise OSError(errno.ENOSPC, "the acknowledgement cannot be written; acknowledge again")
        return None

    def _attach(self, connection: Connection, request: Request) -> Body:
        attachments = self._supervisor.attachments
        offsets = _offsets(request)
        body: Body = None
        if request.v < 2:
            stdin = request.args.get("stdin", False)
            if not isinstance(stdin, bool):
                raise BadDocument("attach: stdin must be true or false")
            problem = attachments.listen(connection, offsets, stdin)
        else:
            args = control.AttachArgs.from_json({**request.args, "offsets": []})
            problem = attachments.refusal(args.mode)
            if not problem:
                body = attachments.join(connection, args, offsets)
        if problem:
            self._refuse(connection, request, control.BAD_STATE, problem)
            raise Later
        connection.send(control.encode_reply(request, body))
        attachments.admit(connection)
        raise Later

    def _exec(self, connection: Connection, request: Request) -> Body:
        if request.v < 2:
            raise BadDocument("exec: protocol 2 is needed")
        self._supervisor.execs.begin(connection, request, self._refuse)
        raise Later

    def _update(self, _connection: Connection, request: Request) -> Body:
        limits = cgroup.Limits(
            memory_mb=control.int_arg(request, "memory_mb", 0),
            cpus=control.int_arg(request, "cpus", 0),
            cpu_ids=_cpu_ids(request),
        )
        own = self._supervisor
        if not own.targets.groups:
            raise IllegalTransition(own.machine.state, "update without a control group")
        groups = own.targets.groups
        with own.privileges.root():
            change = cgroup.set_job_limits if own.spec.job_lifetime else cgroup.set_limits
            warnings = change(groups, limits)
        return {"warnings": warnings}

    def _adopt_pid(self, _connection: Connection, request: Request) -> Body:
        own = self._supervisor
        ticks = control.int_arg(request, "start_ticks", 0) or None
        pid = control.int_arg(request, "pid")
        if own.spec.rid.step_id != STEP_EXTERN or own.machine.state not in machine.ALIVE:
            raise IllegalTransition(
                own.machine.state, "adopt_pid of a step that is not a running extern step"
            )
        if not own.targets.groups:
            raise IllegalTransition(own.machine.state, "adopt_pid without a control group")
        with own.privileges.root():
            found = adopt.adopt(pid, ticks, own.spec.uid, own.targets.groups)
        say("adopted", pid=pid, start_ticks=found)
        return {"start_ticks": found}


def _offsets(request: Request) -> dict[tuple[int, int], int]:
    """(rank, stream) -> offset of an attach request.

    Raises:
        BadDocument: malformed.
    """
    given = request.args.get("offsets", [])
    found: dict[tuple[int, int], int] = {}
    if not isinstance(given, list):
        raise BadDocument("attach: offsets must be a list")
    for item in given:
        if not (
            isinstance(item, list)
            and len(item) == 3
            and all(isinstance(number, int) and number >= 0 for number in item)
            and item[0] <= U32_MAX
            and item[1] in (framing.DATA_OUT, framing.DATA_ERR)
        ):
            raise BadDocument("attach: an offset is [rank, stream, bytes]")
        found[item[0], item[1]] = item[2]
    return found


def _cpu_ids(request: Request) -> tuple[int, ...]:
    given = request.args.get("cpu_ids", [])
    if not isinstance(given, list) or not all(isinstance(number, int) and number >= 0 for number in given):
        raise BadDocument("update: cpu_ids must be a list of CPU numbers")
    return tuple(given)
