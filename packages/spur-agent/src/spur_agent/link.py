"""The agent's side of a supervisor's control socket, on the event loop."""

import asyncio
import socket
import struct
from typing import Self

from spur_core.errors import Unreachable
from spur_core.ids import RuntimeId
from spur_proto_lite import control, framing, unixsock
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.paths import SessionPaths

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
    """One connection to a supervisor, kept open and made again when it breaks.  Requests go in order."""

    def __init__(self, session_dir: str, rid: RuntimeId) -> None:
        self.rid = rid
        self.patience = control.TIMEOUT
        self._path = SessionPaths(session_dir).control
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._next_id = 1

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
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
        reader, writer = self._streams
        request_id = self._next_id
        self._next_id += 1
        writer.write(framing.encode_message(control.encode_request(request_id, op, self.rid, args)))
        await writer.drain()
        return control.decode_reply(await read_message(reader), request_id)

    async def hello(self, timeout: float | None = None) -> control.HelloReply:
        return control.HelloReply.from_json(await self.call(control.HELLO, timeout))

    async def start(self, timeout: float) -> control.StartReply:
        """Run the step."""
        return control.StartReply.from_json(await self.call(control.START, timeout))

    async def query(self) -> control.QueryReply:
        return control.QueryReply.from_json(await self.call(control.QUERY))

    async def signal(self, number: int, scope: str) -> control.SignalReply:
        return control.SignalReply.from_json(await self.call(control.SIGNAL, signal=number, scope=scope))

    async def teardown(self, reason: str, grace: float | None) -> None:
        """End the step: TERM, `grace` seconds, KILL."""
        await self.call(control.TEARDOWN, reason=reason, grace=grace, requester="agent")

    async def ack(self, seq: int) -> None:
        """The controller has the exit of that journal number: the supervisor ends."""
        await self.call(control.ACK, seq=seq, by="controller")

    async def attach(self, offsets: list[list[int]], stdin: bool) -> "Attached":
        """The step's I/O channel, on a connection of its own.

        Args:
            offsets: [rank, stream, offset] each.

        Raises:
            Refused, Unreachable: as `call`.
        """
        reader, writer = await self._connect()
        try:
            async with asyncio.timeout(control.TIMEOUT):
                request = control.encode_request(
                    1, control.ATTACH, self.rid, {"offsets": offsets, "stdin": stdin}
                )
                writer.write(framing.encode_message(request))
                await writer.drain()
                control.decode_reply(await read_message(reader), 1)
        except BaseException as error:
            writer.close()
            if isinstance(error, TimeoutError | OSError):
                raise Unreachable(f"{self.rid}: no answer to attach") from None
            raise
        return Attached(reader, writer)


class Attached:
    """The I/O channel of a step: frames of `framing`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
