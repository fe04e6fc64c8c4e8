"""Commands whose callers wait: first in the queue, then at an index of the log or with the leader."""

import asyncio
from collections import deque
from collections.abc import Iterable

from spur_ctld.replication.errors import Dropped, NotLeader, Unknown


class Waiting:
    """One proposed command.

    Attributes:
        index: place in the log; 0 = none yet.
        out: on its way to the leader.
        hop: came from another member, so it goes no further.
        deadline: on the loop's clock.
    """

    __slots__ = ("cmd", "deadline", "future", "hop", "index", "out", "term")

    def __init__(
        self,
        cmd: bytes,
        future: "asyncio.Future[bytes]",
        deadline: float | None = None,
        *,
        hop: bool = False,
    ) -> None:
        self.cmd = cmd
        self.future = future
        self.deadline = deadline
        self.hop = hop
        self.index = 0
        self.term = 0
        self.out = False

    @property
    def queued(self) -> bool:
        """Certainly not executed so far."""
        return not self.index and not self.out

    def fail(self, error: Exception) -> None:
        """The caller gets `error`, unless it has something already."""
        if not self.future.done():
            self.future.set_exception(error)

    def succeed(self, result: bytes) -> None:
        """The caller gets `result`, unless it gave up."""
        if not self.future.done():
            self.future.set_result(result)

    def expire(self) -> None:
        """The deadline passed."""
        if self.queued:
            self.fail(Dropped("the deadline passed before the command was written"))
        else:
            self.fail(Unknown("the deadline passed before the command was applied; it may still be"))


class WaitingRoom:
    """All waiting commands of a member, with their number and bytes."""

    def __init__(self) -> None:
        self.queue: deque[Waiting] = deque()
        self._placed: dict[int, Waiting] = {}
        self._out: set[Waiting] = set()
        self._hops = 0
        self.bytes = 0

    @property
    def count(self) -> int:
        return len(self.queue) + len(self._placed) + len(self._out)

    @property
    def placed(self) -> int:
        """How many have an index."""
        return len(self._placed)

    def enter(self, waiting: Waiting) -> None:
        """Into the queue."""
        self.queue.append(waiting)
        self._hops += waiting.hop
        self.bytes += len(waiting.cmd)

    def batch(self, most: int, most_bytes: int) -> list[Waiting]:
        """The oldest queued commands, at least one; those whose callers gave up are dropped."""
        out: list[Waiting] = []
        size = 0
        while self.queue and len(out) < most:
            waiting = self.queue[0]
            if waiting.future.done():
                self._forget(self._leave())
                continue
            size += len(waiting.cmd)
            if out and size > most_bytes:
                break
            out.append(self._leave())
        return out

    def place(self, batch: list[Waiting], term: int, first: int) -> None:
        """The batch is in the log from index `first` on."""
        for at, waiting in enumerate(batch):
            waiting.term = term
            waiting.index = first + at
            if earlier := self._placed.get(first + at):
                # From an earlier time as leader; its entry may live on elsewhere.
                self._forget(earlier)
                earlier.fail(Unknown("another controller led in between; the command may have been executed"))
            self._placed[first + at] = waiting

    def applied(self, index: int, term: int, result: bytes) -> None:
        """The entry at `index` was applied."""
        waiting = self._placed.pop(index, None)
        if waiting is None:
            return
        self._forget(waiting)
        if waiting.term != term:
            waiting.fail(Dropped("another controller became leader before the command was committed"))
        else:
            waiting.succeed(result)

    def displaced(self, index: int, term: int) -> None:
        """The no-op with which `term` begins was applied at `index`.

        Terms only grow along the log, so what older terms placed at `index` or behind it will never be
        committed; its callers must not wait until the log gets there.
        """
        for at in [at for at, waiting in self._placed.items() if at >= index and waiting.term < term]:
            waiting = self._placed.pop(at)
            self._forget(waiting)
            waiting.fail(Dropped("another controller became leader before the command was committed"))

    def skipped(self, index: int) -> None:
        """A snapshot replaced everything up to `index`: what became of those commands cannot be told."""
        for at in [at for at in self._placed if at <= index]:
            waiting = self._placed.pop(at)
            self._forget(waiting)
            waiting.fail(Unknown("a snapshot of another controller took the place of the command"))

    # --- commands with the leader -------------------------------------------------------------------------

    def send(self, batch: Iterable[Waiting]) -> None:
        """The batch leaves for the leader."""
        for waiting in batch:
            waiting.out = True
            self._out.add(waiting)

    def settle(self, waiting: Waiting) -> bool:
        """Its answer is here.  False: it was given up in the meantime."""
        if waiting not in self._out:
            return False
        self._out.discard(waiting)
        self._forget(waiting)
        return True

    def send_again(self, batch: Iterable[Waiting]) -> None:
        """The leader certainly did not execute these: back to the front of the queue, in their order."""
        for waiting in reversed([waiting for waiting in batch if waiting in self._out]):
            self._out.discard(waiting)
            waiting.out = False
            self.queue.appendleft(waiting)

    # --- ends ---------------------------------------------------------------------------------------------

    def refuse_queue(self, error: NotLeader | Dropped) -> None:
        """Nothing queued was written."""
        while self.queue:
            waiting = self._leave()
            self._forget(waiting)
            waiting.fail(error)

    def refuse_hops(self, error: NotLeader) -> None:
        """What other members sent is refused, the rest stays."""
        if not self._hops:
            return
        stay = [waiting for waiting in self.queue if not waiting.hop]
        for waiting in self.queue:
            if waiting.hop:
                self._forget(waiting)
                waiting.fail(error)
        self.queue = deque(stay)
        self._hops = 0

    def abandon(self, error: Unknown) -> None:
        """Nobody will ever tell what became of the placed ones, nor of those with the leader."""
        for waiting in (*self._placed.values(), *self._out):
            self._forget(waiting)
            waiting.fail(error)
        self._placed.clear()
        self._out.clear()

    def _leave(self) -> Waiting:
        waiting = self.queue.popleft()
        self._hops -= waiting.hop
        return waiting

    def _forget(self, waiting: Waiting) -> None:
        self.bytes -= len(waiting.cmd)
