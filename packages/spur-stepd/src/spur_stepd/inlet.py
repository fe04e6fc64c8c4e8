"""Input on its way into the pipes of tasks, or into a terminal, as fast as they take it."""

from __future__ import annotations

from spur_core.lean import partial
from spur_proto_lite.framing import STDIN_WINDOW
from spur_stepd.loop import WRITE
from spur_stepd.spools import Input

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spur_stepd.loop import Loop

#: Bytes that may wait for the slowest reader before their giver has to.
HIGH_WATER = 1 << 20


class Inlet:
    """All descriptors get everything."""

    def __init__(self, loop: Loop, moved: Callable[[], None]) -> None:
        """
        Args:
            moved: called whenever readers have taken something.
        """
        self._loop = loop
        self._moved = moved
        self._input = Input()

    def add(self, fd: int) -> None:
        """One more descriptor to write to; it is closed at the end."""
        self._input.add(fd)

    def begin(self) -> None:
        """All descriptors are there."""
        self._input.begin()
        for fd in self._input.pipes:
            self._loop.watch(fd, WRITE, partial(self._on_room, fd))
            self._loop.change(fd, 0)
        self._flush()

    @property
    def is_low(self) -> bool:
        """Whether more may come."""
        return self._input.waiting < HIGH_WATER

    @property
    def is_flooded(self) -> bool:
        """Whether the giver sends beyond what it may, so that it has to be stopped by force."""
        return self._input.waiting > HIGH_WATER + STDIN_WINDOW

    @property
    def is_empty(self) -> bool:
        """Whether the readers have everything."""
        return not self._input.waiting

    @property
    def waiting(self) -> int:
        """Bytes that the slowest reader has not taken."""
        return self._input.waiting

    def feed(self, data: bytes) -> bool:
        """Bytes for every reader; False when far too much is waiting already."""
        if not self._input.feed(data):
            return False
        self._flush()
        return True

    def end(self) -> None:
        """No more will come: the descriptors are closed once their readers have everything."""
        self._input.at_eof = True
        self._flush()

    def close(self) -> None:
        """The readers are gone."""
        for fd in list(self._input.pipes):
            self._loop.forget(fd)
        self._input.close()

    def _on_room(self, fd: int, _events: int) -> None:
        if fd not in self._input.pipes:
            self._loop.forget(fd)
            return
        self._flush_one(fd)
        self._moved()

    def _flush_one(self, fd: int) -> None:
        waiting = self._input.pipes[fd]
        self._loop.forget(fd)
        if self._input.flush(fd):
            self._loop.watch(fd, WRITE, partial(self._on_room, fd))
            if not waiting:
                self._loop.change(fd, 0)

    def _flush(self) -> None:
        for fd in list(self._input.pipes):
            self._flush_one(fd)
        self._moved()
