"""One gRPC call with one answer over a fresh HTTP/2 connection, standard library only.

Importing grpcio costs a command more than everything else it does.  This is the small part of HTTP/2
(RFC 9113) and HPACK (RFC 7541) that a unary call needs.  `Exchange` does no I/O: bytes in, bytes out.
Whatever it does not know (a Huffman-coded header, say) raises `Unfamiliar`; the caller then uses grpcio.
"""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_STREAM = 1
#: Settings by number: no dynamic table, no pushes, a window that one answer does not fill.
_TABLE_SIZE, _PUSH, _WINDOW_SIZE, _FRAME_SIZE = 1, 2, 4, 5
_BIG_WINDOW = 1 << 30
_MAX_FRAME = 16384
_FRAME = struct.Struct(">HBBBL")

#: RFC 7541 appendix A; only what responses carry has a value here.
_STATIC = (
    ":authority", ":method GET", ":method POST", ":path /", ":path /index.html", ":scheme http",
    ":scheme https", ":status 200", ":status 204", ":status 206", ":status 304", ":status 400",
    ":status 404", ":status 500", "accept-charset", "accept-encoding gzip, deflate", "accept-language",
    "accept-ranges", "accept", "access-control-allow-origin", "age", "allow", "authorization",
    "cache-control", "content-disposition", "content-encoding", "content-language", "content-length",
    "content-location", "content-range", "content-type", "cookie", "date", "etag", "expect", "expires",
    "from", "host", "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since",
    "last-modified", "link", "location", "max-forwards", "proxy-authenticate", "proxy-authorization",
    "range", "referer", "refresh", "retry-after", "server", "set-cookie", "strict-transport-security",
    "transfer-encoding", "user-agent", "vary", "via", "www-authenticate",
)  # fmt: skip

#: Numbers of gRPC's statuses.
STATUS = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
    "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip


class Unfamiliar(Exception):
    """The other side speaks something that this client does not; nothing is wrong with it."""


class Broken(Exception):
    """The connection or the stream ended without a status."""


class Exchange:
    """One request and its answer.

    Attributes:
        done: the answer is complete.
        body: the answer's message, b"" when there is none.
        trailers: headers of the answer, the trailing ones over the leading ones.
    """

    def __init__(
        self, authority: str, path: str, message: bytes, metadata: tuple[tuple[str, str], ...], timeout: float
    ) -> None:
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "spur"),
            ("grpc-timeout", f"{max(1, int(timeout * 1000))}m"),
            *metadata,
        ]
        # Never indexed: the credential is not for anybody's table.
        block = b"".join(b"\x10" + _text(name.lower()) + _text(value) for name, value in fields)
        settings = ((_TABLE_SIZE, 0), (_PUSH, 0), (_WINDOW_SIZE, _BIG_WINDOW))
        self._out = bytearray(PREFACE)
        self._send(_SETTINGS, 0, 0, b"".join(struct.pack(">HL", *pair) for pair in settings))
        self._send(_WINDOW, 0, 0, struct.pack(">L", _BIG_WINDOW))
        for at in range(0, len(block), _MAX_FRAME):
            flags = _END_HEADERS if at + _MAX_FRAME >= len(block) else 0
            self._send(_CONTINUATION if at else _HEADERS, flags, _STREAM, block[at : at + _MAX_FRAME])
        self._message = memoryview(struct.pack(">BL", 0, len(message)) + message)
        self._window = self._stream_window = self._initial_window = 65535
        self._buffer = bytearray()
        self._headers = bytearray()
        self._headers_end_stream = False
        self._answer = bytearray()
        self._table = _Table()
        self.trailers: dict[str, str] = {}
        self.done = False
        # Whether a first word has come, and no question is unanswered.
        self._there = False
        self._send_message()

    @property
    def body(self) -> bytes:
        return bytes(self._answer[5:])

    def to_send(self) -> bytes:
        """What is to be written now."""
        out, self._out = bytes(self._out), bytearray()
        return out

    def ask(self) -> bool:
        """Ask whether the other side is there; False when it never spoke, or not since it was asked."""
        if not self._there or self._out:
            return False
        self._there = False
        self._send(_PING, 0, 0, b"spur?spu")
        return True

    def receive(self, data: bytes) -> None:
        """Take bytes from the connection.

        Raises:
            Unfamiliar, Broken.
        """
        if not data:
            raise Broken("the connection was closed")
        self._there = True
        self._buffer += data
        while len(self._buffer) >= 9 and not self.done:
            high, low, kind, flags, stream = _FRAME.unpack_from(self._buffer)
            length = high << 8 | low
            if len(self._buffer) < 9 + length:
                return
            payload = bytes(self._buffer[9 : 9 + length])
            del self._buffer[: 9 + length]
            self._frame(kind, flags, stream & 0x7FFFFFFF, payload)

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _SETTINGS:
            if not flags & _ACK:
                self._settings(payload)
        elif kind == _PING:
            if not flags & _ACK:
                self._send(_PING, _ACK, 0, payload)
        elif kind == _WINDOW:
            grown = struct.unpack(">L", payload)[0] & 0x7FFFFFFF
            if stream:
                self._stream_window += grown
            else:
                self._window += grown
            self._send_message()
        elif kind == _GOAWAY:
            if struct.unpack_from(">L", payload)[0] & 0x7FFFFFFF < _STREAM:
                raise Broken("the server goes away")
        elif stream == _STREAM:
            self._stream(kind, flags, payload)

    def _stream(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _DATA:
            self._answer += _unpadded(payload, flags)
            if payload:
                self._send(_WINDOW, 0, 0, struct.pack(">L", len(payload)))
                self._send(_WINDOW, 0, _STREAM, struct.pack(">L", len(payload)))
            self.done = bool(flags & _END_STREAM)
        elif kind == _HEADERS:
            payload = _unpadded(payload, flags)
            self._headers = bytearray(payload[5:] if flags & _PRIORITY else payload)
            self._headers_end_stream = bool(flags & _END_STREAM)
        elif kind == _CONTINUATION:
            self._headers += payload
        elif kind == _RST:
            raise Broken(f"the server reset the stream ({struct.unpack('>L', payload)[0]})")
        if kind in (_HEADERS, _CONTINUATION) and flags & _END_HEADERS:
            self.trailers.update(self._table.decode(bytes(self._headers)))
            self.done = self._headers_end_stream

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            number, value = struct.unpack_from(">HL", payload, at)
            if number == _WINDOW_SIZE:
                self._stream_window += value - self._initial_window
                self._initial_window = value
        self._send(_SETTINGS, _ACK, 0, b"")
        self._send_message()

    def _send_message(self) -> None:
        """As much of the request as the windows allow."""
        while self._message:
            room = min(self._window, self._stream_window, _MAX_FRAME)
            if room <= 0:
                return
            part, self._message = self._message[:room], self._message[room:]
            self._window -= len(part)
            self._stream_window -= len(part)
            self._send(_DATA, 0 if self._message else _END_STREAM, _STREAM, bytes(part))

    def _send(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        size = len(payload)
        self._out += _FRAME.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload

    def status(self) -> tuple[str, str]:
        """(name of gRPC's status, its details) of a complete answer.

        Raises:
            Broken: the answer is none of gRPC's.
        """
        number = self.trailers.get("grpc-status", "")
        if not number.isdigit():
            raise Broken(f"HTTP status {self.trailers.get(':status', 'missing')} without a gRPC status")
        name = STATUS[int(number)] if int(number) < len(STATUS) else "UNKNOWN"
        return name, _percent_decoded(self.trailers.get("grpc-message", ""))


class _Table:
    """HPACK's decoding side."""

    def __init__(self) -> None:
        self._dynamic: list[tuple[str, str]] = []

    def decode(self, block: bytes) -> dict[str, str]:
        """Name → value; of repeated names the last."""
        found: dict[str, str] = {}
        at = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 7)
                name, value = self._entry(index)
            elif first & 0xE0 == 0x20:
                _, at = _integer(block, at, 5)  # a table size, nothing of ours depends on it
                self._dynamic.clear()
                continue
            else:
                bits = 6 if first & 0x40 else 4
                index, at = _integer(block, at, bits)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                if first & 0x40:
                    self._dynamic.insert(0, (name, value))
            found[name] = value
        return found

    def _entry(self, index: int) -> tuple[str, str]:
        if 1 <= index <= len(_STATIC):
            name, _, value = _STATIC[index - 1].partition(" ")
            return name, value
        try:
            return self._dynamic[index - len(_STATIC) - 1]
        except IndexError:
            raise Unfamiliar(f"header index {index}") from None


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    mask = (1 << bits) - 1
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _string(block: bytes, at: int) -> tuple[str, int]:
    if block[at] & 0x80:
        raise Unfamiliar("a Huffman-coded header")
    length, at = _integer(block, at, 7)
    return block[at : at + length].decode("latin-1"), at + length


def _text(value: str) -> bytes:
    raw = value.encode("utf-8")
    return _prefixed(len(raw), 7) + raw


def _prefixed(value: int, bits: int) -> bytes:
    mask = (1 << bits) - 1
    if value < mask:
        return bytes([value])
    out = [mask]
    value -= mask
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _unpadded(payload: bytes, flags: int) -> bytes:
    if not flags & _PADDED:
        return payload
    return payload[1 : len(payload) - payload[0]]


def _percent_decoded(text: str) -> str:
    """`grpc-message` is percent-encoded UTF-8."""
    raw = text.encode("latin-1")
    out, at = bytearray(), 0
    while at < len(raw):
        if raw[at] == 0x25 and at + 3 <= len(raw):
            digits = raw[at + 1 : at + 3].decode("latin-1")
            if all(digit in "0123456789abcdefABCDEF" for digit in digits):
                out.append(int(digits, 16))
                at += 3
                continue
        out.append(raw[at])
        at += 1
    return out.decode("utf-8", "replace")
