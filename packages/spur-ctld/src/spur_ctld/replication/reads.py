"""Readers that wait until the local state shows everything acknowledged before they asked.

All readers of one turn share one question: to the core when this member leads, else to the leader.  Who has
its index waits until that is applied here.  A question that nobody answers is asked again.
"""

import asyncio
from collections.abc import Callable


class Reads:
    """The readers of one member.

    Attributes:
        queue: not asked for yet.
    """

    def __init__(self) -> None:
        self.queue: list[asyncio.Future[int]] = []
        self._asked: dict[int, list[asyncio.Future[int]]] = {}
        self._remote: dict[int, asyncio.Future[int]] = {}
        self._applying: list[tuple[int, list[asyncio.Future[int]]]] = []
        self._next_token = 0

    @property
    def pending(self) -> bool:
        """Somebody waits for an index to be applied."""
        return bool(self._applying)

    def take(self) -> list[asyncio.Future[int]]:
        """Everybody who still waits to be asked for."""
        out = [reader for reader in self.queue if not reader.done()]
        self.queue.clear()
        return out

    def ask(self, read_index: Callable[[int], None]) -> None:
        """Put the queue's question to the core."""
        readers = self.take()
        if readers:
            self._next_token += 1
            self._asked[self._next_token] = readers
            read_index(self._next_token)

    def ask_for_other(self, reader: asyncio.Future[int], read_index: Callable[[int], None]) -> None:
        """The question of another member, which waits for the index alone."""
        self._next_token += 1
        self._remote[self._next_token] = reader
        read_index(self._next_token)

    def answer(self, token: int, index: int | None, refusal: Exception) -> None:
        """The core's answer; None = it does not lead, so own readers ask again and others get `refusal`."""
        other = self._remote.pop(token, None)
        if other is not None:
            if other.done():
                return
            if index is None:
                other.set_exception(refusal)
            else:
                other.set_result(index)
            return
        readers = self._asked.pop(token)
        if index is None:
            self.queue += readers
        else:
            self.wait_applied(index, readers)

    def wait_applied(self, index: int, readers: list[asyncio.Future[int]]) -> None:
        """`readers` may read once `index` is applied."""
        self._applying.append((index, readers))

    def applied(self, index: int) -> None:
        """The state shows `index`."""
        if not self._applying:
            return
        still = []
        for wanted, readers in self._applying:
            if wanted > index:
                still.append((wanted, readers))
                continue
            for reader in readers:
                if not reader.done():
                    reader.set_result(wanted)
        self._applying = still

    def refuse(self, error: Exception) -> None:
        """Nobody will be answered any more."""
        everybody = [*self.queue, *self._remote.values()]
        for readers in (*self._asked.values(), *(readers for _, readers in self._applying)):
            everybody += readers
        for reader in everybody:
            if not reader.done():
                reader.set_exception(error)
        self.queue.clear()
        self._asked.clear()
        self._remote.clear()
        self._applying.clear()
