"""The protocol's clock: how many ticks are due."""

import asyncio
from collections.abc import Callable


class Ticker:
    """Counts on the event loop's clock.

    After a stall (a long turn, a stopped process, a paused machine) most of the time that passed is
    forgotten: a member must not act on a silence that is only its own.

    Args:
        interval: seconds of one tick.
        most: ticks that one stall may count for.
        wake: asks for a turn.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, interval: float, most: int, wake: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._interval = interval
        self._most = most
        self._wake = wake
        self._last = loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to ask for turns."""
        self._last = self._loop.time()
        self._arm()

    def stop(self) -> None:
        """No more turns from here."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def due(self) -> int:
        """Ticks that passed since the last call."""
        now = self._loop.time()
        # Timers ring at the tick, not after it, and the loop's clock is a float.
        passed = int((now - self._last) / self._interval + 1e-6)
        if passed > self._most:
            self._last = now
            return self._most
        self._last += passed * self._interval
        return passed

    def _arm(self) -> None:
        self._timer = self._loop.call_at(self._last + self._interval, self._ring)

    def _ring(self) -> None:
        self._wake()
        # The turn comes first and moves `_last`.
        self._timer = self._loop.call_later(self._interval / 2, self._arm)
