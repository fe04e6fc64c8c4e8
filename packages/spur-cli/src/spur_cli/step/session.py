"""One node's part of a step: a thread that keeps a session with its agent, through restarts of the agent.

The thread only puts events into the main queue; everything is decided by the main thread.  Input is kept
until the supervisor has it: after a reconnection exactly what is missing is sent again.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from spur_cli.cli_errors import CallFailed
from spur_cli.step.resend import ResendBuffer
from spur_cli.transport import Transport

if TYPE_CHECKING:
    from spur_cli.transport import Parts
    from spur_proto import agent_pb2

#: How long an agent may be away, seconds.
RECONNECT_SECS = 300.0
#: How long an agent that is there may not know a watched step: it looks through its sessions after a start.
UNKNOWN_SECS = 15.0
#: A call that lasted longer than connecting can take was a standing one, even if nothing was ever said on it.
STOOD_SECS = 30.0
FIRST_PAUSE, LAST_PAUSE = 0.05, 2.0
#: Tell the agent what has been delivered after so many bytes.
CREDIT_BYTES = 256 << 10
#: Input that may wait for its confirmation before whoever reads it has to wait.
INPUT_BYTES = 1 << 20
#: Output that may wait for the main thread before no more is taken from the agent.
OUTPUT_BYTES = 8 << 20
CHUNK_BYTES = 64 << 10
#: Answers that another try does not change.
_FINAL = ("PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED")

#: Kinds of events: (kind, node, payload).
OUTPUT, EXIT, FAILED, READY, LOST = "output", "exit", "failed", "ready", "lost"
TASK_EXIT = "task_exit"
Event = tuple[str, str, Any]


class Manner(NamedTuple):
    """How a session joins its step; the default is the step's own client.

    watch: see recent output, then live; give input only while nobody else does.
    want_input: a watcher that would give input.
    argv: run this inside the step's context instead of joining it; () = join.
    environment: "NAME=value" each, laid over the step's for `argv`.
    pty: `argv` gets a terminal.  work_dir: "" = the step's.
    """

    watch: bool = False
    want_input: bool = False
    argv: Sequence[bytes] = ()
    environment: Sequence[bytes] = ()
    pty: bool = False
    work_dir: str = ""


OWNER = Manner()
#: (job id, run attempt, step id); attempt 0 = the present one, no step = the job's own.
Rid = tuple[int, int, int | None]


class _Connection:
    """One call to the agent, as far as it got."""

    __slots__ = ("answered", "cursor", "early", "end_sent", "over", "parts")

    def __init__(self, cursor: int) -> None:
        self.answered = False
        #: Offset of the next byte of input to send.
        self.cursor = cursor
        self.end_sent = False
        #: What was sent before the first answer: if none comes, it never arrived.
        self.early: list[agent_pb2.InteractiveSessionRequest] = []
        self.over = False
        self.parts: Parts[agent_pb2.InteractiveSessionResponse] | None = None


class NodeSession:
    """The session with one node.

    Args:
        address: where the agent is reached; may be set while the thread runs.
        events: OUTPUT with (rank, stream, end offset, bytes), EXIT with a StepExit, FAILED with the
            CallFailed that ends the session, READY with a SessionReady, LOST with the CallFailed after which
            the session is being made anew.  READY after LOST says that it is there again.  TASK_EXIT with a
            RankExit while other tasks may still run; perhaps again after a reconnection.
    """

    def __init__(
        self,
        transport: Transport,
        node: str,
        address: str,
        rid: Rid,
        events: "SimpleQueue[Event]",
        manner: Manner = OWNER,
        window: tuple[int, int] | None = None,
    ) -> None:
        self.node = node
        self.done = False
        #: Nobody answers there at present.
        self.away = False
        #: It has said that it has no such step.
        self.unknown = False
        self._address = address
        self._transport = transport
        self._rid = rid
        self._events = events
        self._manner = manner
        self._window = window
        self._offsets: dict[tuple[int, int], int] = {}
        self._uncredited = 0
        # Everything below is shared between threads and guarded by this.
        self._changed = threading.Condition()
        self._input = ResendBuffer()
        self._controls: deque[agent_pb2.InteractiveSessionRequest] = deque()
        self._connection: _Connection | None = None
        #: Whether the agent confirms input at all (those of the first release do not).
        self._confirms = False
        self._writer = not manner.watch
        #: Somebody else has the keyboard: what is struck here now is not to appear later.
        self._muted = False
        self._undelivered = 0
        self._closing = False
        self._over = False
        self._thread = threading.Thread(target=self._run, name=f"session-{node}", daemon=True)

    # For other threads.

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def address(self) -> str:
        """Where the agent is reached."""
        return self._address

    @address.setter
    def address(self, address: str) -> None:
        with self._changed:
            if address == self._address:
                return
            self._address = address
            connection = self._connection
            self._changed.notify_all()
        if connection is not None and connection.parts is not None:
            # The old place may be a host that is gone, which no packet tells.
            connection.parts.cancel()

    def send_stdin(self, data: bytes) -> None:
        """Bytes for the tasks of this node; none = the end."""
        with self._changed:
            if self._muted:
                return
            if data:
                self._input.put(data)
            else:
                self._input.close()
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Wait while much input is on its way to the step.  Not for the main thread."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._input.waiting < INPUT_BYTES or not self._confirms or self._over or self._closing
            )

    def send_signal(self, number: int) -> None:
        """A signal for the tasks of this node."""
        from spur_proto import agent_pb2 as pb

        self._control(pb.InteractiveSessionRequest(signal=number))

    def send_window(self, rows: int, cols: int) -> None:
        """The terminal has this size now."""
        from spur_proto import agent_pb2 as pb

        self._window = rows, cols
        self._control(pb.InteractiveSessionRequest(resize=pb.WindowSize(rows=rows, cols=cols)))

    def delivered(self, rank: int, stream: int, offset: int, size: int, *, flush: bool = False) -> None:
        """The main thread has written the bytes before `offset`."""
        from spur_proto import agent_pb2 as pb

        if size:
            with self._changed:
                self._undelivered -= size
                self._changed.notify_all()
        if self._manner.watch or self._manner.argv:
            return  # the spool is kept for its owner
        self._uncredited += size
        if self._uncredited >= CREDIT_BYTES or flush:
            self._uncredited = 0
            mark = pb.StreamOffset(rank=rank, stream=stream, offset=offset)  # type: ignore[arg-type]
            self._control(pb.InteractiveSessionRequest(consumed=mark))

    def close(self) -> None:
        """Leave the step; no more events are wanted."""
        with self._changed:
            self._closing = True
            connection = self._connection
            self._changed.notify_all()
        if connection is not None and connection.parts is not None:
            connection.parts.cancel()

    def _control(self, request: "agent_pb2.InteractiveSessionRequest") -> None:
        with self._changed:
            self._controls.append(request)
            self._changed.notify_all()

    # The session's own thread.

    def _run(self) -> None:
        try:
            failure = self._keep()
        except Exception as error:  # whatever it is, the main thread must not wait for ever
            failure = CallFailed("UNKNOWN", "", f"{error}")
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if failure is not None and not self._closing:
            self._events.put((FAILED, self.node, failure))

    def _keep(self) -> CallFailed | None:
        """Connect until the step has ended; None then, otherwise why that will not be seen."""
        pause = FIRST_PAUSE
        lost_at: float | None = None
        while not self._closing:
            connection = _Connection(self._input.base)
            address, began = self._address, time.monotonic()
            try:
                for part in self._open(connection, address):
                    if self._take(part, connection):
                        return None
                failure = CallFailed("UNAVAILABLE", "", f"the session with {self.node} ended early")
            except CallFailed as error:
                failure = error if error.reached else _unreachable()
            finally:
                self._connection = None
            now = time.monotonic()
            self.away = failure.status in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
            self.unknown = failure.status == "NOT_FOUND"
            stood = connection.answered or now - began > STOOD_SECS
            if stood or lost_at is None:
                lost_at = now if stood else began
                pause = FIRST_PAUSE
                if not self._closing:
                    self._events.put((LOST, self.node, failure))
            if self._is_final(failure, now - lost_at):
                return failure
            pause = FIRST_PAUSE if self._pause(pause, address) else min(pause * 2, LAST_PAUSE)
        return None

    def _pause(self, secs: float, address: str) -> bool:
        """Wait before another try; whether there is news that makes waiting pointless."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closing or self._address != address, secs)

    def _is_final(self, failure: CallFailed, away_secs: float) -> bool:
        # Another try might run a command a second time.
        if self._manner.argv or failure.status in _FINAL or away_secs > RECONNECT_SECS:
            return True
        return self._manner.watch and failure.status == "NOT_FOUND" and away_secs > UNKNOWN_SECS

    def _open(
        self, connection: _Connection, address: str
    ) -> "Iterator[agent_pb2.InteractiveSessionResponse]":
        from spur_proto import agent_pb2 as pb

        parts = self._transport.session(
            address,
            "InteractiveSession",
            self._requests(connection),
            pb.InteractiveSessionRequest,
            pb.InteractiveSessionResponse,
        )
        with self._changed:
            connection.parts = parts
            self._connection = connection
            wanted = not self._closing and self._address == address
        try:
            if wanted:
                yield from parts
        finally:
            with self._changed:
                connection.over = True
                if not connection.answered:
                    self._controls.extendleft(reversed(connection.early))
                self._changed.notify_all()
            parts.cancel()

    def _requests(self, connection: _Connection) -> "Iterator[agent_pb2.InteractiveSessionRequest]":
        """What this connection carries to the agent; run by a thread of gRPC's."""
        yield self._init()
        while True:
            with self._changed:
                request = self._next(connection)
                while request is None and not connection.over:
                    self._changed.wait()
                    request = self._next(connection)
            if request is None:
                return
            yield request

    def _init(self) -> "agent_pb2.InteractiveSessionRequest":
        from spur_proto import agent_pb2 as pb

        manner = self._manner
        init = pb.SessionInit(mode=pb.SESSION_MODE_OWNER)
        if manner.argv:
            init.mode = pb.SESSION_MODE_EXEC
            init.argv.extend(manner.argv)
            init.environment.extend(manner.environment)
            init.pty = manner.pty
            init.work_dir = manner.work_dir
        elif manner.watch:
            init.mode = pb.SESSION_MODE_WATCHER
            init.want_input = manner.want_input
        for (rank, stream), offset in self._offsets.items():
            init.offsets.add(rank=rank, stream=stream, offset=offset)
        if self._window is not None:
            init.window.rows, init.window.cols = self._window
        init.rid.job_id, init.rid.run_attempt = self._rid[:2]
        if self._rid[2] is not None:
            init.rid.step_id = self._rid[2]
        return pb.InteractiveSessionRequest(init=init)

    def _next(self, connection: _Connection) -> "agent_pb2.InteractiveSessionRequest | None":
        """The next thing to send, None = nothing now.  The lock is held."""
        from spur_proto import agent_pb2 as pb

        if connection.over:
            return None
        if self._controls:
            request = self._controls.popleft()
            if not connection.answered:
                connection.early.append(request)
            return request
        if not self._writer:
            return None
        source = self._input
        connection.cursor = max(connection.cursor, source.base)
        data = source.after(connection.cursor, CHUNK_BYTES)
        if data:
            at = connection.cursor
            connection.cursor += len(data)
            if connection.answered and not self._confirms:
                source.confirm(connection.cursor)
            return pb.InteractiveSessionRequest(stdin=data, stdin_offset=at)
        if source.closed and not connection.end_sent:
            connection.end_sent = True
            return pb.InteractiveSessionRequest(stdin_eof=True, stdin_offset=source.end)
        return None

    def _take(self, part: "agent_pb2.InteractiveSessionResponse", connection: _Connection) -> bool:
        """Hand on one part; whether it was the last."""
        kind = part.WhichOneof("kind")
        if not connection.answered:
            self._answered(connection, confirms=kind == "ready")
        if kind == "exit":
            self._events.put((EXIT, self.node, part.exit))
            return True
        if kind == "ready":
            self._be_ready(part.ready, connection)
        elif kind == "stdin_accepted":
            with self._changed:
                self._input.confirm(part.stdin_accepted)
                self._changed.notify_all()
        elif kind == "output":
            self._take_output(part.output)
        elif kind == "task_exit":
            self._events.put((TASK_EXIT, self.node, part.task_exit))
        return False

    def _answered(self, connection: _Connection, *, confirms: bool) -> None:
        with self._changed:
            connection.answered = True
            self.away = self.unknown = False
            connection.early.clear()
            self._confirms = confirms
            if not confirms and not self._manner.watch:
                # An agent of the first release: it has what it was sent, and never says so.
                self._input.confirm(connection.cursor)
            self._changed.notify_all()

    def _be_ready(self, ready: "agent_pb2.SessionReady", connection: _Connection) -> None:
        with self._changed:
            gains = ready.writer and not self._writer
            self._writer = ready.writer or not self._manner.watch
            self._muted = not self._writer
            if self._muted:
                self._input.forget()
            elif gains:
                self._input.move(ready.stdin_offset)
                connection.cursor = self._input.base
            else:
                self._input.confirm(ready.stdin_offset)
            self._changed.notify_all()
        self._events.put((READY, self.node, ready))

    def _take_output(self, chunk: "agent_pb2.OutputChunk") -> None:
        key = (chunk.rank, int(chunk.stream))
        # A watcher's first piece begins where the recent output begins.
        have = self._offsets.get(key, 0)
        end = chunk.offset + len(chunk.data)
        if end <= have:
            return
        # After a reconnection the beginning may have been seen already.
        data = chunk.data[max(0, have - chunk.offset) :]
        self._offsets[key] = end
        with self._changed:
            self._undelivered += len(data)
        self._events.put((OUTPUT, self.node, (chunk.rank, int(chunk.stream), end, data)))
        with self._changed:
            self._changed.wait_for(lambda: self._undelivered < OUTPUT_BYTES or self._closing)


def _unreachable() -> CallFailed:
    """The agent, which is no controller, did not answer."""
    return CallFailed("UNAVAILABLE", "unreachable", "the node's agent cannot be reached", reached=False)
