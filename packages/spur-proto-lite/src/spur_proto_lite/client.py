"""A blocking client of a supervisor's control socket, for tests and for threads.

Not imported by the supervisor.  An event loop uses `unixsock`, `framing` and `control` directly.
"""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Self

from spur_core.errors import Unreachable
from spur_core.ids import RuntimeId
from spur_proto_lite import control, framing, notify, spawn, unixsock
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.exits import ExitRecord
from spur_proto_lite.paths import SessionPaths


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

    def call(self, op: str, **args: object) -> dict[str, object]:
        """One request and its answer's fields.

        Raises:
            Refused: the supervisor said no.
            Unreachable: no answer in time, or the connection is gone.
        """
        request_id = self._next_id
        self._next_id += 1
        self._stream.send(control.encode_request(request_id, op, self.rid, args))
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

    def update(
        self, memory_mb: int | None = None, cpus: int | None = None, cpu_ids: tuple[int, ...] | None = None
    ) -> None:
        """Change limits of the running step."""
        ids = None if cpu_ids is None else list(cpu_ids)
        self.call(control.UPDATE, memory_mb=memory_mb, cpus=cpus, cpu_ids=ids)

    def attach(self, offsets: tuple[tuple[int, int, int], ...] = (), stdin: bool = False) -> Attached:
        """Turn this connection into the step's I/O channel; the client is used up.

        Args:
            offsets: (rank, stream, offset) from where on output is wanted; what is not named: from 0.
            stdin: this connection gives the tasks their input.
        """
        self.call(control.ATTACH, offsets=[list(offset) for offset in offsets], stdin=stdin)
        return Attached(self._stream.sock, self._stream.rest())


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


def exit_of(frame: framing.Frame) -> ExitRecord:
    """The record in an exit frame.

    Raises:
        BadDocument: it is no exit frame, or cannot be read.
    """
    if frame.kind != framing.EXIT:
        raise BadDocument("not an exit frame")
    return ExitRecord.from_json(json.loads(frame.payload))


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
