"""Commands whose callers wait: first in the queue, then at an index of the log."""

import asyncio
from collections import deque

from spur_ctld.replication.errors import Dropped, NotLeader, Unknown


class Waiting:
    """One proposed command.  `index` 0 = still queued, so certainly not executed."""

    __slots__ = ("cmd", "future", "index", "term")

    def __init__(self, cmd: bytes, future: "asyncio.Future[bytes]") -> None:
        self.cmd = cmd
        self.future = future
        self.index = 0
        self.term = 0

    def fail(self, error: Exception) -> None:
        """The caller gets `error`, unless it has something already."""
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self) -> None:
        """The deadline passed."""
        if self.index:
            self.fail(Unknown("the deadline passed before the command was applied; it may still be"))
        else:
            self.fail(Dropped("the deadline passed before the command was written"))


class WaitingRoom:
    """All waiting commands of a member, with their number and bytes."""

    def __init__(self) -> None:
        self.queue: deque[Waiting] = deque()
        self._placed: dict[int, Waiting] = {}
        self.bytes = 0

    @property
    def count(self) -> int:
        return len(self.queue) + len(self._placed)

    @property
    def placed(self) -> int:
        """How many have an index."""
        return len(self._placed)

    def enter(self, waiting: Waiting) -> None:
        """Into the queue."""
        self.queue.append(waiting)
        self.bytes += len(waiting.cmd)

    def batch(self, most: int, most_bytes: int) -> list[Waiting]:
        """The oldest queued commands, at least one; those whose callers gave up are dropped."""
        out: list[Waiting] = []
        size = 0
        while self.queue and len(out) < most:
            waiting = self.queue[0]
            if waiting.future.done():
                self._forget(self.queue.popleft())
                continue
            size += len(waiting.cmd)
            if out and size > most_bytes:
                break
            out.append(self.queue.popleft())
        return out

    def place(self, batch: list[Waiting], term: int, first: int) -> None:
        """The batch is in the log from index `first` on."""
        for at, waiting in enumerate(batch):
            waiting.term = term
            waiting.index = first + at
            self._placed[first + at] = waiting

    def applied(self, index: int, term: int, result: bytes) -> None:
        """The entry at `index` was applied."""
        waiting = self._placed.pop(index, None)
        if waiting is None:
            return
        self._forget(waiting)
        if waiting.term != term:
            waiting.fail(Dropped("another controller became leader before the command was committed"))
        elif not waiting.future.done():
            waiting.future.set_result(result)

    def refuse_queue(self, error: NotLeader | Dropped) -> None:
        """Nothing queued was written."""
        while self.queue:
            waiting = self.queue.popleft()
            self._forget(waiting)
            waiting.fail(error)

    def abandon(self, error: Unknown) -> None:
        """Nobody will ever tell what became of the placed ones."""
        for waiting in self._placed.values():
            self._forget(waiting)
            waiting.fail(error)
        self._placed.clear()

    def _forget(self, waiting: Waiting) -> None:
        self.bytes -= len(waiting.cmd)
