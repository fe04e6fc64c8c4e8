"""How long the event loop's turns take: nothing may hold it for more than ten milliseconds.

The turns are measured where they begin and end, in the selector, so none is missed.  A loop made by
`new_event_loop` measures itself; on another loop nothing is counted.
"""

import asyncio
import logging
import selectors
import time
from typing import Final

_log = logging.getLogger(__name__)

#: Seconds beyond which a turn counts as long.
LONG: Final = 0.010
#: Seconds beyond which it is worth a line in the log.
_WORTH_A_LINE: Final = 0.25


class TimedSelector(selectors.DefaultSelector):
    """Knows the time between its own calls.

    Attributes:
        long_turns: turns longer than `LONG`.
        longest: seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.long_turns = 0
        self.longest = 0.0
        self._began = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As in the base class."""
        if self._began:
            took = time.perf_counter() - self._began
            if took > LONG:
                self._count(took)
        ready = super().select(timeout)
        self._began = time.perf_counter()
        return ready

    def _count(self, took: float) -> None:
        self.long_turns += 1
        self.longest = max(self.longest, took)
        if took > _WORTH_A_LINE:
            _log.warning("long_turn seconds=%.3f", took)


class TimedLoop(asyncio.SelectorEventLoop):
    """An event loop that measures its turns in `turns`."""

    def __init__(self) -> None:
        self.turns = TimedSelector()
        super().__init__(self.turns)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """For `asyncio.Runner(loop_factory=...)`."""
    return TimedLoop()


def measured(loop: asyncio.AbstractEventLoop) -> tuple[int, float]:
    """(long turns, seconds of the longest) of `loop`."""
    return (loop.turns.long_turns, loop.turns.longest) if isinstance(loop, TimedLoop) else (0, 0.0)
