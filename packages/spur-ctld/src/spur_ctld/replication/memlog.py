"""The log as the protocol core sees it: entries after a base position, in memory."""

from collections.abc import Iterable, Sequence

from spur_ctld.replication.types import Entry, Position


class MemLog:
    """Entries `base.index + 1 ... last.index`, without gaps."""

    def __init__(self, base: Position, entries: Iterable[Entry] = ()) -> None:
        self.base = base
        self._entries: list[Entry] = []
        self.append(entries)

    @property
    def last(self) -> Position:
        """The newest entry's position, or the base."""
        if not self._entries:
            return self.base
        newest = self._entries[-1]
        return Position(newest.index, newest.term)

    @property
    def last_index(self) -> int:
        return self.base.index + len(self._entries)

    def term_at(self, index: int) -> int | None:
        """None: compacted away, or not there yet."""
        at = index - self.base.index
        if at == 0:
            return self.base.term
        if at < 0 or at > len(self._entries):
            return None
        return self._entries[at - 1].term

    def between(self, first: int, last: int) -> Sequence[Entry]:
        """Entries first..last, both included; empty when first > last."""
        return self._entries[first - self.base.index - 1 : max(last - self.base.index, 0)]

    def portion(self, first: int, limit: int) -> tuple[Entry, ...]:
        """Entries from `first` worth at most `limit` bytes, but at least one if there is one."""
        taken: list[Entry] = []
        size = 0
        start = first - self.base.index - 1
        for at in range(start, len(self._entries)):
            entry = self._entries[at]
            size += entry.size
            if taken and size > limit:
                break
            taken.append(entry)
        return tuple(taken)

    def append(self, entries: Iterable[Entry]) -> None:
        """Entries must follow the last one."""
        for entry in entries:
            if entry.index != self.last_index + 1:
                raise ValueError(f"entry {entry.index} does not follow {self.last_index}")
            self._entries.append(entry)

    def cut(self, index: int) -> None:
        """Forget `index` and everything after it."""
        del self._entries[max(index - self.base.index - 1, 0) :]

    def compact(self, index: int) -> None:
        """Forget everything up to and including `index`, which becomes the base."""
        term = self.term_at(index)
        if term is None or index <= self.base.index:
            return
        del self._entries[: index - self.base.index]
        self.base = Position(index, term)

    def reset(self, base: Position) -> None:
        """Forget everything and continue after `base`."""
        self._entries.clear()
        self.base = base

    def agree_below(self, index: int, term: int) -> Position:
        """The newest place at or before `index` whose term is not above `term`.

        Nothing after it can equal an entry of another log that has `term` at `index`, so a whole term is
        skipped in one step.  The base when nothing newer fits.
        """
        at = min(index, self.last_index)
        while at > self.base.index:
            here = self.term_at(at)
            if here is not None and here <= term:
                return Position(at, here)
            at -= 1
        return self.base
