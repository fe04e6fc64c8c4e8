"""How bytes become messages on a local stream.

Control, notify and spawner messages: u32 little-endian length, then UTF-8 JSON, at most 1 MiB.
An attached connection carries I/O frames instead: u8 type, u32 little-endian length, payload.

    type            payload
    1 data-out      u32 rank, u64 offset of the first byte in that stream, bytes
    2 data-err      the same
    3 stdin         u64 offset of the first byte in the input, bytes; for every task that takes input
    4 stdin-eof     u64 offset: nothing follows after it
    5 resize        u16 rows, u16 columns
    6 signal        u32 signal number
    7 exit          JSON of the ExitRecord; the last frame
    8 credit        u8 stream (1 or 2), u32 rank, u64 offset: everything before it has been delivered.
                    From the supervisor with stream 0 and rank 0: it has the input before that offset
    9 writer        u8 1 or 0, u64 offset: from now on this client gives the input, from that offset on, or
                    it does not any more (from the supervisor only)
    10 task-exit    JSON of a TaskExit: one task has ended, others of the step may still run (from the
                    supervisor only; a client that attaches later is told of all that have ended)

In protocol 1 stdin is the bytes alone, stdin-eof is empty, the supervisor sends no credit, and there are no
frames 9 and 10.

The giver of input keeps what the supervisor has not confirmed, sends at most `STDIN_WINDOW` bytes beyond
the last confirmed one, and sends the rest again when it has come back after a lost connection.
"""

from __future__ import annotations

import struct

from spur_core.lean import namedtuple
from spur_proto_lite import jsontext
from spur_proto_lite.errors import BadDocument

MESSAGE_LIMIT = 1 << 20
#: Largest payload of an I/O frame.
FRAME_LIMIT = 1 << 20
#: Bytes of input that may be on their way without having been confirmed.
STDIN_WINDOW = 1 << 20

DATA_OUT, DATA_ERR, STDIN, STDIN_EOF, RESIZE, SIGNAL, EXIT, CREDIT, WRITER, TASK_EXIT = range(1, 11)
#: Stream number of the input in a credit frame.
INPUT = 0

_LAST_SIGNAL = 64
_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<BI")
_DATA = struct.Struct("<IQ")
_CREDIT = struct.Struct("<BIQ")
_U32 = struct.Struct("<I")
_OFFSET = struct.Struct("<Q")
_SIZE = struct.Struct("<HH")
_WRITER = struct.Struct("<BQ")

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Frame(NamedTuple):
        kind: int
        payload: bytes

    class Chunk(NamedTuple):
        rank: int
        offset: int
        data: bytes

    class Credit(NamedTuple):
        stream: int
        rank: int
        offset: int

    class Stdin(NamedTuple):
        offset: int
        data: bytes

    class Window(NamedTuple):
        rows: int
        cols: int

    class Writer(NamedTuple):
        writer: bool
        offset: int
else:
    Frame = namedtuple("Frame", ("kind", "payload"))
    Chunk = namedtuple("Chunk", ("rank", "offset", "data"))
    Credit = namedtuple("Credit", ("stream", "rank", "offset"))
    Stdin = namedtuple("Stdin", ("offset", "data"))
    Window = namedtuple("Window", ("rows", "cols"))
    Writer = namedtuple("Writer", ("writer", "offset"))


def encode_message(document: dict[str, object]) -> bytes:
    """Length and JSON of one message.

    Raises:
        BadDocument: it is longer than 1 MiB.
    """
    body = jsontext.encode(document)
    if len(body) > MESSAGE_LIMIT:
        raise BadDocument(f"a message of {len(body)} bytes is over the limit of {MESSAGE_LIMIT}")
    return _LENGTH.pack(len(body)) + body


def decode_body(body: bytes) -> dict[str, object]:
    """The JSON object in `body`.

    Raises:
        BadDocument: it is no JSON object.
    """
    try:
        value = jsontext.decode(body)
    except (ValueError, RecursionError) as error:
        raise BadDocument(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadDocument("a message must be a JSON object")
    return value


class MessageBuffer:
    """Cuts a byte stream into messages: `feed` what arrived, `take` until None."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def take(self) -> dict[str, object] | None:
        """The next whole message.

        Raises:
            BadDocument: over-long or no JSON object; the stream cannot be used any more.
        """
        if len(self._bytes) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes)
        if length > MESSAGE_LIMIT:
            raise BadDocument(f"a message of {length} bytes is over the limit of {MESSAGE_LIMIT}")
        end = _LENGTH.size + length
        if len(self._bytes) < end:
            return None
        body = bytes(self._bytes[_LENGTH.size : end])
        del self._bytes[:end]
        return decode_body(body)

    def rest(self) -> bytes:
        """What has not been taken; the buffer is empty afterwards (the stream changes its framing)."""
        rest = bytes(self._bytes)
        self._bytes.clear()
        return rest


class FrameBuffer:
    """Cuts a byte stream into I/O frames: `feed` what arrived, `take` until None."""

    def __init__(self, start: bytes = b"") -> None:
        self._bytes = bytearray(start)

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def take(self) -> Frame | None:
        """The next whole frame.

        Raises:
            BadDocument: over-long; the stream cannot be used any more.
        """
        if len(self._bytes) < _HEAD.size:
            return None
        kind, length = _HEAD.unpack_from(self._bytes)
        if length > FRAME_LIMIT:
            raise BadDocument(f"a frame of {length} bytes is over the limit of {FRAME_LIMIT}")
        end = _HEAD.size + length
        if len(self._bytes) < end:
            return None
        payload = bytes(self._bytes[_HEAD.size : end])
        del self._bytes[:end]
        return Frame(kind, payload)

    def rest(self) -> bytes:
        """What has not been taken; the buffer is empty afterwards."""
        rest = bytes(self._bytes)
        self._bytes.clear()
        return rest


def encode_frame(kind: int, payload: bytes = b"") -> bytes:
    """Head and payload of one I/O frame."""
    return _HEAD.pack(kind, len(payload)) + payload


def encode_data(stream: int, rank: int, offset: int, data: bytes) -> bytes:
    """A data frame; `stream` is DATA_OUT or DATA_ERR."""
    return encode_frame(stream, _DATA.pack(rank, offset) + data)


def decode_data(payload: bytes) -> Chunk:
    """The parts of a data frame.

    Raises:
        BadDocument: too short.
    """
    if len(payload) < _DATA.size:
        raise BadDocument("a data frame is too short")
    rank, offset = _DATA.unpack_from(payload)
    return Chunk(rank, offset, payload[_DATA.size :])


def encode_credit(stream: int, rank: int, offset: int) -> bytes:
    """A credit frame: everything of that stream before `offset` has been delivered for good."""
    return encode_frame(CREDIT, _CREDIT.pack(stream, rank, offset))


def decode_credit(payload: bytes) -> Credit:
    """The parts of a credit frame.

    Raises:
        BadDocument: wrong length or stream.
    """
    if len(payload) != _CREDIT.size:
        raise BadDocument("a credit frame has the wrong length")
    credit = Credit(*_CREDIT.unpack(payload))
    if credit.stream not in (INPUT, DATA_OUT, DATA_ERR):
        raise BadDocument(f"there is no stream {credit.stream}")
    return credit


def encode_signal(number: int) -> bytes:
    """A signal frame."""
    return encode_frame(SIGNAL, _U32.pack(number))


def decode_signal(payload: bytes) -> int:
    """The number in a signal frame.

    Raises:
        BadDocument: wrong length, or there is no such signal.
    """
    if len(payload) != _U32.size:
        raise BadDocument("a signal frame has the wrong length")
    number: int = _U32.unpack(payload)[0]
    if not 1 <= number <= _LAST_SIGNAL:
        raise BadDocument(f"there is no signal {number}")
    return number


def encode_stdin(offset: int, data: bytes) -> bytes:
    """A piece of input (protocol 2)."""
    return encode_frame(STDIN, _OFFSET.pack(offset) + data)


def decode_stdin(payload: bytes) -> Stdin:
    """The parts of a stdin frame of protocol 2.

    Raises:
        BadDocument: too short.
    """
    if len(payload) < _OFFSET.size:
        raise BadDocument("a stdin frame is too short")
    return Stdin(_OFFSET.unpack_from(payload)[0], payload[_OFFSET.size :])


def encode_stdin_eof(offset: int) -> bytes:
    """The end of the input, which is `offset` bytes long (protocol 2)."""
    return encode_frame(STDIN_EOF, _OFFSET.pack(offset))


def decode_stdin_eof(payload: bytes) -> int:
    """The offset in a stdin-eof frame of protocol 2.

    Raises:
        BadDocument: wrong length.
    """
    if len(payload) != _OFFSET.size:
        raise BadDocument("a stdin-eof frame has the wrong length")
    offset: int = _OFFSET.unpack(payload)[0]
    return offset


def encode_resize(rows: int, cols: int) -> bytes:
    """The client's terminal has this size now."""
    return encode_frame(RESIZE, _SIZE.pack(rows, cols))


def decode_resize(payload: bytes) -> Window:
    """The size in a resize frame.

    Raises:
        BadDocument: wrong length.
    """
    if len(payload) != _SIZE.size:
        raise BadDocument("a resize frame has the wrong length")
    return Window(*_SIZE.unpack(payload))


def encode_writer(writer: bool, offset: int) -> bytes:
    """Whether the client that gets it gives the input from now on, and from which offset on."""
    return encode_frame(WRITER, _WRITER.pack(writer, offset))


def decode_writer(payload: bytes) -> Writer:
    """The parts of a writer frame.

    Raises:
        BadDocument: wrong length.
    """
    if len(payload) != _WRITER.size:
        raise BadDocument("a writer frame has the wrong length")
    writer, offset = _WRITER.unpack(payload)
    return Writer(bool(writer), offset)
