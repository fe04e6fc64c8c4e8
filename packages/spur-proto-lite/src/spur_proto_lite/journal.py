"""The obligation log of one session: what has happened, and so what is still owed.

Append-only, one JSON object a line, each written with a single `write` and synced where `SYNCED` says so.
A torn last line is ignored and cut off by the next append; damage before it makes the session corrupt.
The supervisor writes; once it is dead the agent writes acknowledgement records.
"""

from __future__ import annotations

import errno
import os

from spur_core import faults
from spur_core.lean import namedtuple
from spur_proto_lite import jsontext
from spur_proto_lite.errors import BadDocument, CorruptJournal
from spur_proto_lite.exits import EpilogRecord, ExitRecord

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Entry(NamedTuple):
        seq: int
        #: Wall clock, seconds.
        at: float
        event: str
        #: Everything else in the record.
        data: dict[str, object]

    class Loaded(NamedTuple):
        entries: tuple[Entry, ...]
        #: Length of the good part; what follows is a torn line.
        good_bytes: int
        torn: bool

    class Story(NamedTuple):
        """What a journal says about its session; None or False = it does not."""

        prepared: bool
        started_at: float | None
        exit: ExitRecord | None
        #: Sequence number of the exit, which `ack` must name.
        exit_seq: int
        epilog: EpilogRecord | None
        teardown_reason: str | None
        acknowledged: bool
        fenced: bool
        abandoned: bool
else:
    Entry = namedtuple("Entry", ("seq", "at", "event", "data"))
    Loaded = namedtuple("Loaded", ("entries", "good_bytes", "torn"))
    Story = namedtuple(
        "Story",
        (
            "prepared",
            "started_at",
            "exit",
            "exit_seq",
            "epilog",
            "teardown_reason",
            "acknowledged",
            "fenced",
            "abandoned",
        ),
    )

PREPARED = "Prepared"
STARTED = "Started"
TEARDOWN_REQUESTED = "TeardownRequested"
SIGNALLED = "Signalled"
EXIT_OBSERVED = "ExitObserved"
CLEANUP_DONE = "CleanupDone"
EPILOG_RESULT = "EpilogResult"
REPORTED = "Reported"
ACKNOWLEDGED = "Acknowledged"
FENCED = "Fenced"
ABANDONED = "Abandoned"

#: Event -> whether it must be on the disk before anything else happens.
SYNCED = {
    PREPARED: True,
    STARTED: True,
    TEARDOWN_REQUESTED: True,
    SIGNALLED: False,
    EXIT_OBSERVED: True,
    CLEANUP_DONE: False,
    EPILOG_RESULT: True,
    REPORTED: True,
    ACKNOWLEDGED: True,
    FENCED: True,
    ABANDONED: True,
}


def load(data: bytes) -> Loaded:
    """The entries in the bytes of a journal.  Pure; any prefix of a valid journal loads.

    Raises:
        CorruptJournal: a bad line that is not the last, or sequence numbers with a hole.
    """
    entries: list[Entry] = []
    good = 0
    while good < len(data):
        end = data.find(b"\n", good)
        last = end < 0 or end + 1 == len(data)
        if end < 0:
            return Loaded(tuple(entries), good, True)
        try:
            entry = _entry(data[good:end])
        except BadDocument as error:
            if last:
                return Loaded(tuple(entries), good, True)
            raise CorruptJournal(f"record {len(entries) + 1}: {error}") from None
        if entry.seq != len(entries) + 1:
            raise CorruptJournal(f"record {len(entries) + 1} has the number {entry.seq}")
        entries.append(entry)
        good = end + 1
    return Loaded(tuple(entries), good, False)


def _entry(line: bytes) -> Entry:
    try:
        value = jsontext.decode(line)
    except (ValueError, RecursionError):
        raise BadDocument("not JSON") from None
    if not isinstance(value, dict):
        raise BadDocument("not an object")
    seq, at, event = value.pop("seq", None), value.pop("at", None), value.pop("event", None)
    if not isinstance(seq, int) or isinstance(seq, bool):
        raise BadDocument("no sequence number")
    if not isinstance(at, int | float) or not isinstance(event, str):
        raise BadDocument("no time or no event")
    return Entry(seq, float(at), event, value)


def story(entries: tuple[Entry, ...]) -> Story:
    """What the entries add up to.  Events unknown here are passed over.

    Raises:
        CorruptJournal: an exit or an epilog result cannot be read.
    """
    known: dict[str, Entry] = {}
    for entry in entries:
        known.setdefault(entry.event, entry)
    ended, epilog = known.get(EXIT_OBSERVED), known.get(EPILOG_RESULT)
    started, teardown = known.get(STARTED), known.get(TEARDOWN_REQUESTED)
    try:
        exit_record = ExitRecord.from_json(ended.data.get("exit")) if ended else None
        epilog_record = EpilogRecord.from_json(epilog.data) if epilog else None
    except BadDocument as error:
        raise CorruptJournal(str(error)) from None
    return Story(
        prepared=PREPARED in known,
        started_at=started.at if started else None,
        exit=exit_record,
        exit_seq=ended.seq if ended else 0,
        epilog=epilog_record,
        teardown_reason=str(teardown.data.get("reason", "")) if teardown else None,
        acknowledged=ACKNOWLEDGED in known,
        fenced=FENCED in known,
        abandoned=ABANDONED in known,
    )


def read(path: str) -> Loaded:
    """`load` of the file at `path`; a missing file is an empty journal.

    Raises:
        CorruptJournal: see `load`.
        OSError: it cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return Loaded((), 0, False)
    try:
        return load(_read_all(fd))
    finally:
        os.close(fd)


def _read_all(fd: int) -> bytes:
    data = bytearray()
    while part := os.pread(fd, 1 << 16, len(data)):
        data += part
    return bytes(data)


class JournalWriter:
    """Appends to a journal.  Opening it reads it, so a torn line of a previous writer is cut off."""

    def __init__(self, path: str) -> None:
        """Open or make the journal at `path`.

        Raises:
            CorruptJournal: it is damaged in the middle; nobody may append to it.
            OSError: it cannot be opened.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        try:
            loaded = load(_read_all(self._fd))
        except CorruptJournal:
            os.close(self._fd)
            raise
        self._length = loaded.good_bytes
        self._torn = loaded.torn
        self._seq = len(loaded.entries)
        self.entries = loaded.entries

    def append(self, event: str, at: float, data: dict[str, object] | None = None) -> int:
        """Write one record and, where `SYNCED` says so, wait until it is on the disk.

        Returns:
            Its sequence number.

        Raises:
            OSError: not written (disk full); the journal is as before and the call may be repeated.
        """
        faults.before(event)
        seq = self._seq + 1
        record: dict[str, object] = {"seq": seq, "at": at, "event": event, **(data or {})}
        line = jsontext.encode(record) + b"\n"
        if self._torn:
            os.ftruncate(self._fd, self._length)
        self._torn = True  # until the line is whole and safe
        if os.write(self._fd, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if SYNCED[event]:
            os.fsync(self._fd)
        self._torn = False
        self._length += len(line)
        self._seq = seq
        faults.after(event)
        return seq

    def close(self) -> None:
        os.close(self._fd)
