"""The log's unit on disk: one frame = one group commit, valid as a whole or not at all.

    magic "SPLF" | payload length u32 | CRC32 u32 | sequence u64 | payload        (little endian)

The CRC covers sequence, length and payload, so a frame that is moved, repeated or cut never passes.
"""

import struct
import zlib
from collections.abc import Sequence

import msgspec

from spur_ctld.replication.types import Entry, HardState, Position

MAGIC = b"SPLF"
_HEADER = struct.Struct("<4sIIQ")
_SEED = struct.Struct("<QI")
HEADER_SIZE = _HEADER.size
#: No batch comes near it; a larger length is damage.
MAX_PAYLOAD = 256 << 20


class Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Payload of a frame.

    Attributes:
        hard: None = unchanged.
        first: index of `entries[0]`; older entries from there on are replaced.
        restart: forget all entries and continue after it.
        before: only in the first frame of a segment: the position before its first entry.
    """

    hard: HardState | None
    first: int
    entries: Sequence[Entry]
    restart: Position | None = None
    before: Position | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame, sequence: int) -> bytearray:
    """Header and payload in one buffer, for one write."""
    buffer = bytearray(HEADER_SIZE)
    _encoder.encode_into(frame, buffer, HEADER_SIZE)
    size = len(buffer) - HEADER_SIZE
    if size > MAX_PAYLOAD:
        raise ValueError(f"frame of {size} bytes exceeds {MAX_PAYLOAD}")
    check = _check(sequence, size, memoryview(buffer)[HEADER_SIZE:])
    _HEADER.pack_into(buffer, 0, MAGIC, size, check, sequence)
    return buffer


def read(data: bytes, offset: int) -> tuple[int, Frame, int] | None:
    """The frame at `offset`: its sequence, itself and where it ends.  None: there is no valid frame."""
    start = offset + HEADER_SIZE
    if start > len(data):
        return None
    magic, size, check, sequence = _HEADER.unpack_from(data, offset)
    if magic != MAGIC or size > len(data) - start:
        return None
    payload = memoryview(data)[start : start + size]
    if _check(sequence, size, payload) != check:
        return None
    try:
        frame = _decoder.decode(payload)
    except msgspec.MsgspecError:
        return None
    return sequence, frame, start + size


def find_valid(data: bytes, offset: int) -> int | None:
    """Offset of the first valid frame that starts at or after `offset`."""
    at = data.find(MAGIC, offset)
    while at >= 0:
        if read(data, at) is not None:
            return at
        at = data.find(MAGIC, at + 1)
    return None


def _check(sequence: int, size: int, payload: memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(_SEED.pack(sequence, size)))
