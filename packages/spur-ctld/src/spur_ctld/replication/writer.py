"""Threads that do the slow file work, so that a disk never holds the event loop."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """One thread.  Runs jobs one after the other; their ends are reported on the event loop, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, job: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Run `job` in the thread, then `done(result)` or `failed(error)` on the loop."""

        def work() -> None:
            try:
                result = job()
            except BaseException as error:
                self._report(failed, error)
            else:
                self._report(done, result)

        self._jobs.put(work)

    def close(self) -> None:
        """Finish what was submitted and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _report(self, callback: Callable[[T], None], value: T) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, value)
        except RuntimeError:
            # The loop is closed: the process is on its way out and nobody listens.
            if not self._loop.is_closed():
                raise

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
