"""The agent's side of a supervisor's control socket, on the event loop."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Self

from spur_core.errors import Unreachable
from spur_core.ids import RuntimeId
from spur_proto_lite import control, framing, unixsock
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.paths import SessionPaths
from spur_proto_lite.versions import PROTOCOL_MIN, negotiate

#: Both directions of a connection.
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_LENGTH = struct.Struct("<I")
#: Seconds that connecting may take; the socket is local and a supervisor accepts at once.
_CONNECT_SECS = 1.0
#: Bytes that one attached stream may hold in memory before its reading stops.
_BUFFER = 256 << 10


async def read_message(reader: asyncio.StreamReader) -> dict[str, object]:
    """The next message of a stream.

    Raises:
        Unreachable: the stream ended.
        BadDocument: something that is no message.
    """
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > framing.MESSAGE_LIMIT:
            raise BadDocument(f"a message of {length} bytes is over the limit")
        return framing.decode_body(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError) as error:
        raise Unreachable(f"the connection ended: {error}") from None


class ControlLink:
    """One connection to a supervisor, kept open and made again when it breaks.  Requests go in order.

    Attributes:
        version: protocol that both sides speak, once a `hello` has told; 0 before.
    """

    def __init__(self, session_dir: str, rid: RuntimeId) -> None:
        self.rid = rid
        self.patience = control.TIMEOUT
        self._path = SessionPaths(session_dir).control
        self._lock = asyncio.Lock()
        self._streams: Streams | None = None
        self._next_id = 1
        self.version = 0

    async def _connect(self) -> Streams:
        sock = socket.socket(fileno=unixsock.connect(self._path, _CONNECT_SECS))
        sock.setblocking(False)
        return await asyncio.open_connection(sock=sock, limit=_BUFFER)

    def close(self) -> None:
        """Close the connection; the next call makes a new one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def call(self, op: str, timeout: float | None = None, **args: object) -> dict[str, object]:
        """One request and the fields of its answer.

        Raises:
            Refused: the supervisor said no.
            Unreachable: no answer within `timeout` seconds (None: `patience`), or nobody listens.
        """
        timeout = self.patience if timeout is None else timeout
        async with self._lock:
            try:
                async with asyncio.timeout(timeout):
                    return await self._exchange(op, args)
            except TimeoutError:
                self.close()
                raise Unreachable(f"{self.rid}: no answer to {op} within {timeout:g} s") from None
            except (Unreachable, BadDocument, OSError) as error:
                self.close()
                raise Unreachable(f"{self.rid}: {op}: {error}") from None
            except asyncio.CancelledError:
                self.close()
                raise

    async def _exchange(self, op: str, args: dict[str, object]) -> dict[str, object]:
        if self._streams is None:
            self._streams = await self._connect()
        request_id = self._next_id
        self._next_id += 1
        if op == control.HELLO:
            return await self._greet(self._streams, request_id)
        if not self.version:
            await self._greet(self._streams, request_id)
        return await _ask(self._streams, control.encode_request(request_id, op, self.rid, args, self.version))

    async def _greet(self, streams: Streams, request_id: int) -> dict[str, object]:
        """The answer to `hello`, which says what is spoken.  It is understood whatever its number."""
        request = control.encode_request(request_id, control.HELLO, self.rid, {}, PROTOCOL_MIN)
        answer = await _ask(streams, request)
        hello = control.HelloReply.from_json(answer)
        version = negotiate(hello.min, hello.max)
        if version is None:
            text = f"the supervisor speaks protocol {hello.min} to {hello.max} only"
            raise control.Refused(control.VERSION, text)
        self.version = version
        return answer

    async def hello(self, timeout: float | None = None) -> control.HelloReply:
        """Who it is; the version is agreed on with that.

        Raises:
            Refused: also when no version is spoken by both.
        """
        return control.HelloReply.from_json(await self.call(control.HELLO, timeout))

    async def start(self, timeout: float) -> control.StartReply:
        """Run the step."""
        return control.StartReply.from_json(await self.call(control.START, timeout))

    async def query(self) -> control.QueryReply:
        return control.QueryReply.from_json(await self.call(control.QUERY))

    async def signal(self, number: int, scope: str) -> control.SignalReply:
        return control.SignalReply.from_json(await self.call(control.SIGNAL, signal=number, scope=scope))

    async def suspend(self) -> None:
        """Stop every process of the step; it stays so until `resume`."""
        await self.call(control.SUSPEND)

    async def resume(self) -> None:
        """Let a suspended step go on."""
        await self.call(control.RESUME)

    async def teardown(self, reason: str, grace: float | None) -> None:
        """End the step: TERM, `grace` seconds, KILL."""
        await self.call(control.TEARDOWN, reason=reason, grace=grace, requester="agent")

    async def ack(self, seq: int) -> None:
        """The controller has the exit of that journal number: the supervisor ends."""
        await self.call(control.ACK, seq=seq, by="controller")

    async def attach(self, how: control.AttachArgs) -> "Attached":
        """The step's I/O channel, on a connection of its own.

        Args:
            how: with mode ONLY_OUTPUT everything that is not named comes from its beginning.

        Raises:
            Refused, Unreachable: as `call`.
        """

        def request(version: int) -> tuple[str, dict[str, object]]:
            if version >= 2 and how.mode:
                return control.ATTACH, how.to_json()
            return control.ATTACH, {"offsets": how.to_json()["offsets"], "stdin": how.mode == OWNER}

        # Without a mode it is what the first version knows: from the offsets on, or from the beginning.
        return await self._turn(request, 0 if how.mode else PROTOCOL_MIN)

    async def execute(self, what: control.ExecArgs) -> "Attached":
        """Run a command inside the step; the connection carries its I/O and it ends with it.

        Raises:
            Refused: also when the supervisor is of a release that cannot do that.
            Unreachable: as `call`.
        """

        def request(version: int) -> tuple[str, dict[str, object]]:
            if version < 2:
                raise control.Refused(
                    control.VERSION, "the step was started by a release that cannot do that"
                )
            return control.EXEC, what.to_json()

        return await self._turn(request, 0)

    async def _turn(
        self, request: Callable[[int], tuple[str, dict[str, object]]], version: int
    ) -> "Attached":
        """Turn a fresh connection into an I/O channel."""
        try:
            streams = await self._connect()
        except OSError as error:
            raise Unreachable(f"{self.rid}: {error}") from None
        try:
            async with asyncio.timeout(control.TIMEOUT):
                if not version:
                    await self._greet(streams, 1)
                    version = self.version
                op, arguments = request(version)
                answer = await _ask(streams, control.encode_request(2, op, self.rid, arguments, version))
        except BaseException as error:
            streams[1].close()
            if isinstance(error, TimeoutError | OSError):
                raise Unreachable(f"{self.rid}: no answer to attach") from None
            raise
        return Attached(*streams, version, answer)


async def _ask(streams: Streams, request: dict[str, object]) -> dict[str, object]:
    """One request and the fields of its answer."""
    reader, writer = streams
    writer.write(framing.encode_message(request))
    await writer.drain()
    request_id = request["id"]
    assert isinstance(request_id, int)
    return control.decode_reply(await read_message(reader), request_id)


#: How a client joins a step: as its own, or as a further one.
OWNER, WATCHER = control.OWNER, control.WATCHER
#: The mode of a client that has no part in the step and only reads; it is never sent.
ONLY_OUTPUT = ""


class Attached:
    """The I/O channel of a step: frames of `framing`.

    Attributes:
        version: protocol of the frames.
        answer: what the supervisor said to the request.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        version: int,
        answer: dict[str, object],
    ) -> None:
        self.version = version
        self.answer = answer
        self._reader = reader
        self._writer = writer
        self._buffer = framing.FrameBuffer()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> framing.Frame:
        """The next frame; iteration ends with the connection.

        Raises:
            BadDocument: the other side sends something that is no frame.
        """
        while (frame := self._buffer.take()) is None:
            try:
                data = await self._reader.read(1 << 16)
            except OSError:
                data = b""
            if not data:
                raise StopAsyncIteration
            self._buffer.feed(data)
        return frame

    async def send(self, frame: bytes) -> None:
        """Send one frame.

        Raises:
            Unreachable: the supervisor is gone.
        """
        try:
            self._writer.write(frame)
            await self._writer.drain()
        except OSError as error:
            raise Unreachable(f"attached stream: {error}") from None

    def close(self) -> None:
        self._writer.close()
