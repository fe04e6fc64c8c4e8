"""Spooled output: the stream of one task in segment files of the session directory.

    out.N       the first segment of task N's standard output (err.N for standard error)
    out.N@S     a later one, whose first byte has the offset S in the stream

A segment that ends well before what has been credited is deleted, so a long stream stays bounded, nothing
that nobody has read is lost, and who joins late still finds its last bytes.  The files can be read after the
supervisor is gone.
"""

from __future__ import annotations

import os

from spur_core.lean import namedtuple
from spur_proto_lite.framing import DATA_ERR, DATA_OUT

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Segment(NamedTuple):
        stream: int
        rank: int
        #: Offset of its first byte in the stream.
        start: int
else:
    Segment = namedtuple("Segment", ("stream", "rank", "start"))

#: Bytes after which a segment is closed and the next one begun.
SEGMENT_SIZE = 4 << 20

_PREFIX = {DATA_OUT: "out", DATA_ERR: "err"}
_STREAM = {"out": DATA_OUT, "err": DATA_ERR}


def segment_name(segment: Segment) -> str:
    """File name of a segment."""
    name = f"{_PREFIX[segment.stream]}.{segment.rank}"
    return name if segment.start == 0 else f"{name}@{segment.start}"


def parse_segment(name: str) -> Segment | None:
    """The segment a file name stands for, None for any other file."""
    prefix, _, rest = name.partition(".")
    stream = _STREAM.get(prefix)
    rank, at, start = rest.partition("@")
    if stream is None or not _decimal(rank) or (at and not _decimal(start)):
        return None
    return Segment(stream, int(rank), int(start) if at else 0)


def _decimal(text: str) -> bool:
    return text.isascii() and text.isdigit()


def segments(session_dir: str) -> list[Segment]:
    """Every segment in a session directory, in stream, rank and offset order."""
    return sorted(found for name in os.listdir(session_dir) if (found := parse_segment(name)))


def read_from(
    session_dir: str, stream: int, rank: int, offset: int, limit: int = 1 << 16
) -> tuple[int, bytes]:
    """At most `limit` bytes of a stream, from `offset` on or from the first byte that is still there.

    Returns:
        (offset of the first byte returned, the bytes); no bytes: there are none there now.
    """
    own = [s for s in segments(session_dir) if s.stream == stream and s.rank == rank]
    for at, segment in enumerate(own):
        following = own[at + 1].start if at + 1 < len(own) else None
        if following is not None and offset >= following:
            continue
        start = max(offset, segment.start)
        with open(f"{session_dir}/{segment_name(segment)}", "rb") as file:
            file.seek(start - segment.start)
            return start, file.read(limit)
    return offset, b""
