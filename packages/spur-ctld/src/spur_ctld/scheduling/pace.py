"""Long work in the event loop, a few milliseconds at a time."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

#: Of a turn of the event loop, which should not last more than 10 ms with whatever else comes in it.
SLICE_SECS: Final = 0.002


class Pace:
    """Lets others run when a slice is over.

    Attributes:
        worked: seconds spent so far, without those in which others ran.
    """

    def __init__(self, slice_secs: float = SLICE_SECS) -> None:
        self._slice = slice_secs
        self._worked = 0.0
        self._began = time.perf_counter()

    @property
    def worked(self) -> float:
        return self._worked + time.perf_counter() - self._began

    @property
    def over(self) -> bool:
        """Whether the slice is over."""
        return time.perf_counter() - self._began >= self._slice

    async def rest(self) -> None:
        """Let others run, and begin another slice."""
        self._worked += time.perf_counter() - self._began
        await asyncio.sleep(0)
        self.resume()

    def resume(self) -> None:
        """Begin another slice; what came since the last one does not count."""
        self._began = time.perf_counter()

    async def through(self, steps: Iterator[object]) -> None:
        """Do all steps."""
        for _ in steps:
            if self.over:
                await self.rest()
