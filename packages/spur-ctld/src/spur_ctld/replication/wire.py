"""Messages of the protocol as bytes, and what is believed of bytes that arrive.

A frame carries a msgpack array of messages.  Decoding is typed, and what the core takes for granted (who
sends, that entries follow each other) is checked here: the core would otherwise end the process.
"""

from collections.abc import Sequence

import msgspec

from spur_ctld.replication.types import AnyMessage, Append, InstallSnapshot, Message

#: Messages are packed together up to about this size; a larger one goes alone.
FRAME_BYTES = 1 << 20
#: What the encoding of one frame may add to the bytes of its entries.
SLACK = 128 << 10
#: Limit of one gRPC message.
MESSAGE_LIMIT = 16 << 20
#: Bytes one message counts for beside its entries.
_BASE = 64
_MOST = 1 << 62

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyMessage])


class BadFrame(Exception):
    """What arrived cannot come from a member that follows the protocol; the text says why."""


def size_of(msg: AnyMessage) -> int:
    """Bytes `msg` counts for in frames and queues."""
    if isinstance(msg, Append):
        return _BASE + sum(entry.size for entry in msg.entries)
    return _BASE


def encode(messages: Sequence[AnyMessage]) -> bytes:
    """One frame."""
    return _encoder.encode(messages)


def decode(data: bytes, src: int, dst: int, command_bytes: int) -> list[AnyMessage]:
    """The messages of one frame that `src` sent to `dst`.

    Args:
        command_bytes: the largest command.

    Raises:
        BadFrame: too large, not decodable, from or to somebody else, or against the protocol.
    """
    if len(data) > max(FRAME_BYTES, command_bytes) + SLACK:
        raise BadFrame(f"frame of {len(data)} bytes is too large")
    try:
        messages = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise BadFrame(f"malformed frame: {error}") from None
    if len(data) > FRAME_BYTES + SLACK and not _one_entry(messages):
        raise BadFrame(f"frame of {len(data)} bytes carries more than one entry")
    for msg in messages:
        _check(msg, src, dst, command_bytes)
    return messages


def check_snapshot(term: int, index: int, index_term: int) -> None:
    """Raises BadFrame when a leader of `term` cannot have a snapshot at that position."""
    if max(term, index) > _MOST or not 0 < index_term <= term or not index:
        raise BadFrame(f"a snapshot of entry {index} of term {index_term} cannot come from term {term}")


def _one_entry(messages: Sequence[Message]) -> bool:
    return len(messages) == 1 and isinstance(messages[0], Append) and len(messages[0].entries) == 1


def _check(msg: AnyMessage, src: int, dst: int, command_bytes: int) -> None:
    if msg.src != src or msg.dst != dst:
        raise BadFrame(f"message from {msg.src} to {msg.dst} on the stream from {src} to {dst}")
    if isinstance(msg, InstallSnapshot):
        raise BadFrame("a snapshot's message comes with its file only")
    numbers = [msg.term]
    for name in ("commit", "round", "index"):
        numbers.append(getattr(msg, name, 0))
    for name in ("prev", "last", "hint"):
        place = getattr(msg, name, None)
        if place is not None:
            numbers += (place.index, place.term)
    if min(numbers) < 0 or max(numbers) > _MOST:
        raise BadFrame(f"a number of {type(msg).__name__} is out of range")
    if isinstance(msg, Append):
        index, term = msg.prev.index, msg.prev.term
        for entry in msg.entries:
            index += 1
            if entry.index != index or not term <= entry.term <= msg.term:
                raise BadFrame(f"entry {entry.index} of term {entry.term} does not follow {index - 1}")
            term = entry.term
            if entry.data is not None and len(entry.data) > command_bytes:
                raise BadFrame(f"entry {entry.index} of {len(entry.data)} bytes is too large")
