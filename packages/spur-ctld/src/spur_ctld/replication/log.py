"""The durable log: append-only segments of frames in one directory.

Writing: one `write` and one `fdatasync` a group commit; a segment of 16 MiB or more is followed by a new one.
Nothing is ever overwritten: a frame whose first index is not past the end replaces the tail when the log is
read.  The first frame of a segment repeats term, vote and the position before its first entry, so the
segments before it can be removed.

Reading: a bad frame at the very end is a write that was never acknowledged, and is cut off.  A bad frame with
a valid one after it or in an older segment, a jump in sequence or index: `CorruptLog`.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from spur_ctld.replication.api import Stored
from spur_ctld.replication.errors import CorruptLog
from spur_ctld.replication.files import Files
from spur_ctld.replication.frames import Frame, encode, find_valid, read
from spur_ctld.replication.replay import SUFFIX, Replay, sequence_of
from spur_ctld.replication.types import ORIGIN, Entry, HardState, Position

SEGMENT_BYTES = 16 << 20


#: For whoever reads of a damaged file.
_MEND = '; see "A lost directory" in docs/replication.md'


class _Segment(msgspec.Struct):
    """One file: the sequence of its first frame and the position before its first entry."""

    sequence: int
    before: Position
    path: Path
    size: int


class SegmentLog:
    """A `LogStore` in directory `folder`, which must exist.

    After an error of `write` or `compact` the store refuses every further call: what reached the disk is
    unknown, and only reading it again after a restart can tell.
    """

    def __init__(
        self, folder: Path, files: Files | None = None, *, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._folder = folder
        self._files = files or Files()
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._next_sequence = 1
        self._hard = HardState()
        self._terms = _Terms(ORIGIN)
        self._fd: int | None = None
        self._loaded = False
        self._broken = False

    @property
    def segments(self) -> int:
        """How many files hold the log."""
        return len(self._segments)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    # --- reading ------------------------------------------------------------------------------------------

    def load(self) -> Stored:
        """Read everything, cut off a torn end.

        Raises:
            CorruptLog: the text names file and offset.
        """
        state = Replay()
        paths = self._paths()
        for number, path in enumerate(paths):
            self._load_segment(state, path, newest=number == len(paths) - 1)
        self._hard = state.hard
        self._next_sequence = state.sequence + 1
        self._terms = _Terms(state.base, state.entries)
        if self._segments:
            self._fd = self._files.open_append(self._segments[-1].path)
        self._loaded = True
        return Stored(state.hard, state.base, state.entries)

    def _paths(self) -> list[Path]:
        found = []
        for path in sorted(self._folder.iterdir()):
            if sequence_of(path) is None:
                raise CorruptLog(f"{path}: not a log segment; move it out of the log directory")
            found.append(path)
        return found

    def _load_segment(self, state: Replay, path: Path, *, newest: bool) -> None:
        data = path.read_bytes()
        offset = 0
        segment: _Segment | None = None
        while offset < len(data):
            found = read(data, offset)
            if found is None:
                self._judge_bad(path, data, offset, newest=newest)
                self._files.truncate(path, offset)
                break
            sequence, frame, end = found
            problem = state.problem(sequence, frame, first_in_file=segment is None)
            if segment is None and sequence != sequence_of(path):
                problem = f"holds frame {sequence}, its name says {sequence_of(path)}"
            if problem:
                raise CorruptLog(f"{path}: offset {offset}: {problem}")
            state.take(sequence, frame)
            if segment is None:
                segment = _Segment(sequence, frame.before or ORIGIN, path, 0)
                self._segments.append(segment)
            offset = segment.size = end
        if segment is None:
            if not newest:
                raise CorruptLog(f"{path}: offset 0: empty, but it is not the newest segment")
            # A crash between creating the file and its first frame.
            self._files.unlink(path)
            self._files.sync_dir(self._folder)

    @staticmethod
    def _judge_bad(path: Path, data: bytes, offset: int, *, newest: bool) -> None:
        if not newest:
            raise CorruptLog(f"{path}: offset {offset}: damaged frame, and newer segments follow{_MEND}")
        later = find_valid(data, offset + 1)
        if later is not None:
            raise CorruptLog(f"{path}: offset {offset}: damaged frame, a valid one follows at {later}{_MEND}")

    # --- writing ------------------------------------------------------------------------------------------

    def write(
        self,
        hard: HardState | None,
        first: int,
        entries: Sequence[Entry],
        restart_at: Position | None = None,
    ) -> None:
        """Durable when it returns.

        Raises:
            OSError: the system refused; the store is unusable from here on.
            ValueError: the entries leave a gap, or replace what was compacted (a fault of the caller).
        """
        self._check_usable()
        base = restart_at or self._terms.base
        last = base.index if restart_at else self._terms.last_index
        if not base.index < first <= last + 1:
            raise ValueError(f"entries from {first} do not continue a log of {base.index + 1} to {last}")
        if entries and (entries[0].index != first or entries[-1].index != first + len(entries) - 1):
            raise ValueError(f"entries do not count up from {first}")
        self._broken = True
        if hard is not None:
            self._hard = hard
        if restart_at or self._must_roll(first):
            before = restart_at or Position(first - 1, self._terms.term_at(first - 1))
            self._roll(Frame(self._hard, first, entries, restart_at, before), before)
        else:
            self._put(Frame(hard, first, entries))
        if restart_at:
            self._terms = _Terms(restart_at)
        if entries:
            self._terms.extend(first, entries)
        self._broken = False

    def _must_roll(self, first: int) -> bool:
        """A full segment is followed by another, and so is one whose beginning is being replaced.

        Otherwise a segment could begin after an entry that a later frame in it replaces, and removing the
        segments before it would remove the place where that entry's successor goes.
        """
        if self._fd is None:
            return True
        newest = self._segments[-1]
        return newest.size >= self._segment_bytes or first <= newest.before.index

    def _put(self, frame: Frame) -> None:
        assert self._fd is not None
        data = encode(frame, self._next_sequence)
        self._files.write(self._fd, data)
        self._files.datasync(self._fd)
        self._next_sequence += 1
        self._segments[-1].size += len(data)

    def _roll(self, frame: Frame, before: Position) -> None:
        if self._fd is not None:
            self._files.close(self._fd)
            self._fd = None
        path = self._folder / f"{self._next_sequence:016x}{SUFFIX}"
        self._fd = self._files.create(path)
        self._segments.append(_Segment(self._next_sequence, before, path, 0))
        self._put(frame)
        self._files.sync_dir(self._folder)

    def compact(self, index: int) -> None:
        """Remove the segments that hold nothing after `index`; the newest always stays."""
        self._check_usable()
        keep_from = 0
        for number, segment in enumerate(self._segments):
            if segment.before.index <= index:
                keep_from = number
        if keep_from == 0:
            return
        self._broken = True
        # Oldest first: a crash in between leaves no hole.
        for segment in self._segments[:keep_from]:
            self._files.unlink(segment.path)
        self._files.sync_dir(self._folder)
        del self._segments[:keep_from]
        self._terms.compact(self._segments[0].before)
        self._broken = False

    def close(self) -> None:
        """Release the file; everything written is durable already."""
        if self._fd is not None:
            self._files.close(self._fd)
            self._fd = None
        self._loaded = False

    def _check_usable(self) -> None:
        if not self._loaded or self._broken:
            raise ValueError("the log store is not loaded, closed, or failed before")


class _Terms:
    """The term of every retained index, as runs: the log itself is not kept in memory here."""

    def __init__(self, base: Position, entries: Sequence[Entry] = ()) -> None:
        self.base = base
        self.last_index = base.index
        self._runs: list[Position] = []
        if entries:
            self.extend(entries[0].index, entries)

    def term_at(self, index: int) -> int:
        """`index` is between base and last."""
        for run in reversed(self._runs):
            if run.index <= index:
                return run.term
        return self.base.term

    def extend(self, first: int, entries: Sequence[Entry]) -> None:
        """Replace everything from `first` on."""
        while self._runs and self._runs[-1].index >= first:
            self._runs.pop()
        term = self.term_at(first - 1)
        for entry in entries:
            if entry.term != term:
                term = entry.term
                self._runs.append(Position(entry.index, term))
        self.last_index = first + len(entries) - 1

    def compact(self, base: Position) -> None:
        """Forget what lies before `base`."""
        self._runs = [run for run in self._runs if run.index > base.index]
        self.base = base
