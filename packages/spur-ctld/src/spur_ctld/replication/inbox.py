"""Messages that arrived and wait for the next turn."""

import asyncio
from collections.abc import Callable, Sequence

from spur_ctld.replication.types import AnyMessage


class Inbox:
    """Bounded: whoever brings more waits, and with it the stream it reads from.

    Args:
        wake: asks for a turn.
        most_bytes: beyond it `put` waits.
    """

    def __init__(self, wake: Callable[[], None], most_bytes: int) -> None:
        self._wake = wake
        self._most = most_bytes
        self._messages: list[AnyMessage] = []
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, messages: Sequence[AnyMessage], size: int) -> None:
        """Leave `messages`, together `size` bytes, for the next turn."""
        while self._bytes and self._bytes + size > self._most:
            self._room.clear()
            await self._room.wait()
        self._messages += messages
        self._bytes += size
        self._wake()

    def take(self) -> list[AnyMessage]:
        """Everything there is, in order of arrival."""
        if not self._messages:
            return []
        out, self._messages = self._messages, []
        self._bytes = 0
        self._room.set()
        return out
