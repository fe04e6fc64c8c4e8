"""A blocking client of a supervisor's control socket, for tests and measurements.

Without pytest: programs use it as well.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from spur_core.errors import Unreachable
from spur_core.ids import RuntimeId
from spur_proto_lite import control, framing, notify, spawn, unixsock
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.paths import SessionPaths
from spur_proto_lite.versions import PROTOCOL_MIN


class MessageStream:
    """One JSON message after the other over a connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = framing.MessageBuffer()

    def send(self, document: dict[str, object]) -> None:
        """Send one message.

        Raises:
            Unreachable: the connection is gone.
        """
        try:
            self.sock.sendall(framing.encode_message(document))
        except OSError as error:
            raise Unreachable(f"connection lost: {error}") from error

    def receive(self) -> dict[str, object]:
        """The next message.

        Raises:
            Unreachable: end of the connection, or nothing within the socket's time-out.
            BadDocument: something that is no message.
        """
        while (message := self._buffer.take()) is None:
            try:
                data = self.sock.recv(1 << 16)
            except OSError as error:
                raise Unreachable(f"no answer: {error}") from error
            if not data:
                raise Unreachable("the other side closed the connection")
            self._buffer.feed(data)
        return message

    def rest(self) -> bytes:
        """Bytes received but not taken yet."""
        return self._buffer.rest()

    def close(self) -> None:
        self.sock.close()


class ControlClient:
    """Talks to the supervisor of one session, several requests on one connection."""

    def __init__(self, session_dir: str, rid: RuntimeId, timeout: float = control.TIMEOUT) -> None:
        """Connect.

        Raises:
            Unreachable: nobody listens.
        """
        self.rid = rid
        self._timeout = timeout
        sock = socket.socket(fileno=unixsock.connect(SessionPaths(session_dir).control, timeout))
        sock.settimeout(timeout)
        self._stream = MessageStream(sock)
        self._next_id = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()

    def call(self, op: str, v: int = PROTOCOL_MIN, /, **args: object) -> dict[str, object]:
        """One request of protocol `v` and its answer's fields.

        Raises:
            Refused: the supervisor said no.
            Unreachable: no answer in time, or the connection is gone.
        """
        request_id = self._next_id
        self._next_id += 1
        self._stream.send(control.encode_request(request_id, op, self.rid, args, v))
        return control.decode_reply(self._stream.receive(), request_id)

    def hello(self) -> control.HelloReply:
        return control.HelloReply.from_json(self.call(control.HELLO))

    def start(self, timeout: float = 30.0) -> control.StartReply:
        """Run the step; `timeout` seconds, since a work directory may lie on a slow file system."""
        self._stream.sock.settimeout(timeout)
        try:
            return control.StartReply.from_json(self.call(control.START))
        finally:
            self._stream.sock.settimeout(self._timeout)

    def query(self) -> control.QueryReply:
        return control.QueryReply.from_json(self.call(control.QUERY))

    def signal(self, number: int, scope: str = control.ALL) -> control.SignalReply:
        return control.SignalReply.from_json(self.call(control.SIGNAL, signal=number, scope=scope))

    def suspend(self) -> None:
        self.call(control.SUSPEND)

    def resume(self) -> None:
        self.call(control.RESUME)

    def teardown(self, reason: str, grace: float | None = None, requester: str = "agent") -> None:
        """End the step: TERM, `grace` seconds (None: the spec's), KILL."""
        self.call(control.TEARDOWN, reason=reason, grace=grace, requester=requester)

    def wait(self, timeout: float) -> control.WaitReply:
        """Until an exit is recorded, at most `timeout` seconds."""
        self._stream.sock.settimeout(timeout + self._timeout)
        try:
            return control.WaitReply.from_json(self.call(control.WAIT, timeout=timeout))
        finally:
            self._stream.sock.settimeout(self._timeout)

    def ack(self, seq: int, by: str = "agent") -> None:
        """The controller has the exit of journal number `seq`: the supervisor ends."""
        self.call(control.ACK, seq=seq, by=by)

    def adopt_pid(self, pid: int, start_ticks: int | None = None) -> int:
        """Take a process of the job's user into the job (extern steps only); its start ticks."""
        reply = self.call(control.ADOPT_PID, pid=pid, start_ticks=start_ticks)
        return int(str(reply["start_ticks"]))

    def update(
        self, memory_mb: int | None = None, cpus: int | None = None, cpu_ids: tuple[int, ...] | None = None
    ) -> None:
        """Change limits of the running step."""
        ids = None if cpu_ids is None else list(cpu_ids)
        self.call(control.UPDATE, memory_mb=memory_mb, cpus=cpus, cpu_ids=ids)

    def attach(self, offsets: tuple[tuple[int, int, int], ...] = (), stdin: bool = False) -> Attached:
        """Turn this connection into the step's I/O channel of protocol 1; the client is used up.

        Args:
            offsets: (rank, stream, offset) from where on output is wanted; what is not named: from 0.
            stdin: this connection gives the tasks their input.
        """
        self.call(control.ATTACH, offsets=[list(offset) for offset in offsets], stdin=stdin)
        return Attached(self._stream.sock, self._stream.rest())

    def join(
        self,
        mode: str = control.OWNER,
        offsets: tuple[tuple[int, int, int], ...] = (),
        *,
        want_input: bool | None = None,
        rows: int = 0,
        cols: int = 0,
        source: Unconfirmed | None = None,
    ) -> Channel:
        """The same of protocol 2: `control.AttachArgs`.

        Args:
            source: the input of a channel before, to be gone on with; what was not confirmed is sent again.

        Raises:
            Refused: the supervisor said no.
        """
        source = source if source is not None else Unconfirmed()
        args = control.AttachArgs(
            mode=mode,
            offsets=offsets,
            want_input=want_input,
            rows=rows,
            cols=cols,
            stdin_offset=source.confirmed,
        )
        reply = control.AttachReply.from_json(self.call(control.ATTACH, 2, **args.to_json()))
        channel = Channel(self._stream.sock, self._stream.rest(), source)
        channel.pty = reply.pty
        channel.ready(reply.writer, reply.stdin_offset)
        return channel

    def execute(
        self,
        argv: tuple[str, ...],
        *,
        env: Mapping[str, str] | None = None,
        pty: bool = False,
        rows: int = 0,
        cols: int = 0,
        work_dir: str = "",
    ) -> Channel:
        """Run a command inside the step and turn this connection into its I/O channel.

        Raises:
            Refused: the supervisor said no.
        """
        args = control.ExecArgs(argv=argv, env=env or {}, pty=pty, rows=rows, cols=cols, work_dir=work_dir)
        reply = control.ExecReply.from_json(self.call(control.EXEC, 2, **args.to_json()))
        channel = Channel(self._stream.sock, self._stream.rest(), Unconfirmed())
        channel.pid, channel.pty = reply.pid, pty
        channel.ready(True, 0)
        return channel


class Unconfirmed:
    """The input that a client has given and that the step has not confirmed yet.  Pure."""

    def __init__(self) -> None:
        #: Everything before it is the step's.
        self.confirmed = 0
        #: Everything before it was sent over the present connection.
        self.sent = 0
        self.ended = False
        self._end_sent = False
        self._kept = bytearray()

    @property
    def end(self) -> int:
        """Offset after the last byte that was given."""
        return self.confirmed + len(self._kept)

    def push(self, data: bytes) -> None:
        """More input."""
        self._kept += data

    def finish(self) -> None:
        """No more input will come."""
        self.ended = True

    def confirm(self, offset: int) -> None:
        """The step has everything before `offset`."""
        if offset > self.confirmed:
            del self._kept[: offset - self.confirmed]
            self.confirmed = offset
            self.sent = max(self.sent, offset)

    def resume(self, offset: int) -> None:
        """A new connection, or the turn to give input: it goes on from `offset`.

        What was sent and lies before it has arrived; everything else is sent from there on.
        """
        arrived = min(max(offset, self.confirmed), self.sent) - self.confirmed
        del self._kept[:arrived]
        self.confirmed = self.sent = offset
        self._end_sent = False

    def frames(self, piece: int = 1 << 16) -> bytes:
        """What may be sent now, as frames."""
        until = min(self.end, self.confirmed + framing.STDIN_WINDOW)
        parts = []
        while self.sent < until:
            at = self.sent - self.confirmed
            data = bytes(self._kept[at : at + min(piece, until - self.sent)])
            parts.append(framing.encode_stdin(self.sent, data))
            self.sent += len(data)
        if self.ended and self.sent == self.end and not self._end_sent:
            parts.append(framing.encode_stdin_eof(self.end))
            self._end_sent = True
        return b"".join(parts)


class Attached:
    """The I/O channel of a step: frames of `framing`.  For one thread at a time in each direction."""

    def __init__(self, sock: socket.socket, start: bytes) -> None:
        self.sock = sock
        self._buffer = framing.FrameBuffer(start)

    def receive(self) -> framing.Frame | None:
        """The next frame, None at the end of the connection.

        Raises:
            Unreachable: nothing within the socket's time-out.
        """
        while (frame := self._buffer.take()) is None:
            try:
                data = self.sock.recv(1 << 16)
            except TimeoutError as error:
                raise Unreachable(f"no frame: {error}") from error
            except ConnectionError:
                return None
            if not data:
                return None
            self._buffer.feed(data)
        return frame

    def send(self, frame: bytes) -> None:
        self.sock.sendall(frame)

    def credit(self, stream: int, rank: int, offset: int) -> None:
        """Everything of that stream before `offset` has been delivered for good."""
        self.send(framing.encode_credit(stream, rank, offset))

    def close(self) -> None:
        self.sock.close()


class Channel(Attached):
    """The I/O channel of protocol 2, for one thread: it looks after the input while it receives.

    Attributes:
        source: the input; hand it to `join` to go on over another connection.
        writer: whether this client gives the input.
        pty: whether the other side is a terminal.
        pid: of a command that was executed, else 0.
    """

    def __init__(self, sock: socket.socket, start: bytes, source: Unconfirmed) -> None:
        super().__init__(sock, start)
        self.source = source
        self.writer = False
        self.pty = False
        self.pid = 0

    def ready(self, writer: bool, offset: int) -> None:
        """The supervisor has said who gives the input, and from where on."""
        self.writer = writer
        if writer:
            self.source.resume(offset)
            self._send_input()

    def receive(self) -> framing.Frame | None:
        """The next frame; those about the input have been heeded already."""
        frame = super().receive()
        if frame is None:
            return None
        if frame.kind == framing.CREDIT:
            self.source.confirm(framing.decode_credit(frame.payload).offset)
            self._send_input()
        elif frame.kind == framing.WRITER:
            self.ready(*framing.decode_writer(frame.payload))
        return frame

    def write(self, data: bytes) -> None:
        """Give input.  What may not be sent yet goes out during `receive`."""
        self.source.push(data)
        self._send_input()

    def write_eof(self) -> None:
        """The input ends here."""
        self.source.finish()
        self._send_input()

    def _send_input(self) -> None:
        if self.writer and (frames := self.source.frames()):
            self.send(frames)

    def resize(self, rows: int, cols: int) -> None:
        """The terminal here has this size now."""
        self.send(framing.encode_resize(rows, cols))

    def signal(self, number: int) -> None:
        """A signal for the step, or for whoever is in the foreground of its terminal."""
        self.send(framing.encode_signal(number))


class SpawnerClient:
    """Asks a spawner for supervisors.  One request at a time."""

    def __init__(self, sock: socket.socket, timeout: float = 10.0) -> None:
        """Wait for the spawner to say that it is ready.

        Args:
            sock: the agent's end of the socketpair.

        Raises:
            Unreachable: it ended or did not get ready in time.
        """
        sock.settimeout(timeout)
        self._stream = MessageStream(sock)
        self._next_id = 1
        self.ready = spawn.SpawnerReady.from_json(self._stream.receive())

    def spawn(self, session_dir: str, cgroup_root: str = "auto") -> spawn.SpawnReply:
        """A supervisor for the prepared session directory; `errno` in the reply tells a failure.

        Raises:
            Unreachable: the spawner is gone; start another one.
        """
        request = spawn.SpawnRequest(id=self._next_id, session=session_dir, cgroup_root=cgroup_root)
        self._next_id += 1
        self._stream.send(request.to_json())
        reply = spawn.SpawnReply.from_json(self._stream.receive())
        if reply.id != request.id:
            raise BadDocument(f"the spawner answered request {reply.id} instead of {request.id}")
        return reply

    def close(self) -> None:
        self._stream.close()


def push(notify_path: str, notification: notify.Notification, timeout: float = 5.0) -> str:
    """Send one notification as a supervisor does and return the answer (for tests of an agent).

    Raises:
        Unreachable: nobody listens, or no answer.
    """
    sock = socket.socket(fileno=unixsock.connect(notify_path, timeout))
    sock.settimeout(timeout)
    stream = MessageStream(sock)
    try:
        stream.send(notification.to_json())
        return notify.decode_answer(stream.receive())
    finally:
        stream.close()
