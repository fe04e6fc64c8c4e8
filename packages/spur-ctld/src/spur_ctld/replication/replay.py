"""What a log says when its frames are read in order, and which frame cannot be the next one.  Pure."""

from pathlib import Path

from spur_ctld.replication.frames import Frame
from spur_ctld.replication.types import ORIGIN, Entry, HardState, Position

SUFFIX = ".seg"


class Replay:
    """The log as read so far.

    Attributes:
        hard: newest term and vote.
        base: position before the first retained entry.
        sequence: of the newest frame; 0 = none was read.
    """

    def __init__(self) -> None:
        self.hard = HardState()
        self.base = ORIGIN
        self.entries: list[Entry] = []
        self.sequence = 0
        self._started = False

    @property
    def last_index(self) -> int:
        """Index of the newest entry."""
        return self.base.index + len(self.entries)

    def _term_at(self, index: int) -> int:
        at = index - self.base.index
        return self.entries[at - 1].term if at else self.base.term

    def problem(self, sequence: int, frame: Frame, *, first_in_file: bool) -> str | None:
        """What is wrong with taking `frame` next."""
        if self._started and sequence != self.sequence + 1:
            return f"frame {sequence} follows frame {self.sequence}"
        if first_in_file and (frame.before is None or frame.hard is None):
            return "the first frame of a segment repeats neither position nor term"
        if any(entry.index != frame.first + at for at, entry in enumerate(frame.entries)):
            return "entries do not count up"
        if frame.restart is not None:
            return None if frame.first == frame.restart.index + 1 else "entries do not follow the restart"
        if not self._started:
            fits = frame.before is not None and frame.first == frame.before.index + 1
            return None if fits else "entries do not follow the segment's position"
        if not self.base.index < frame.first <= self.last_index + 1:
            return f"entry {frame.first} does not continue {self.base.index + 1} to {self.last_index}"
        if frame.before is not None and frame.before != Position(
            frame.first - 1, self._term_at(frame.first - 1)
        ):
            return f"the segment continues {frame.before.index}, which the one before does not hold so"
        return None

    def take(self, sequence: int, frame: Frame) -> None:
        """Go on by `frame`, which passed `problem`."""
        start = frame.restart or (None if self._started else frame.before)
        if start is not None:
            self.base = start
            self.entries.clear()
        self._started = True
        self.sequence = sequence
        if frame.hard is not None:
            self.hard = frame.hard
        if frame.entries:
            del self.entries[frame.first - 1 - self.base.index :]
            self.entries += frame.entries


def sequence_of(path: Path) -> int | None:
    """Sequence of the first frame of the segment file at `path`, as its name says; None: not a segment."""
    if path.suffix != SUFFIX:
        return None
    stem = path.name.removesuffix(SUFFIX)
    try:
        return int(stem, 16) if len(stem) == 16 else None
    except ValueError:
        return None
