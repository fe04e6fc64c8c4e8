"""Waiting for descriptors: one callback each, requests before the news of children."""

from __future__ import annotations

import select

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

READ = select.POLLIN
WRITE = select.POLLOUT
#: Seconds of one wait; the kernel takes no more than 24 days.
_LONGEST = 86_400.0


class Loop:
    """`watch` descriptors, then `turn` for ever."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._late: set[int] = set()

    def watch(self, fd: int, events: int, callback: Callable[[int], None], late: bool = False) -> None:
        """Call `callback(ready events)` whenever `fd` is ready, or has an error or a hang-up.

        Args:
            late: serve it after all others of the same turn, so that an agent that is just claiming the
                session does not lose the race with a short job.
        """
        self._poll.register(fd, events)
        self._callbacks[fd] = callback
        if late:
            self._late.add(fd)

    def change(self, fd: int, events: int) -> None:
        """Wait for other events; 0 = only errors and hang-ups."""
        self._poll.modify(fd, events)

    def forget(self, fd: int) -> None:
        """Do not watch it any more; nothing happens when it is not watched."""
        if self._callbacks.pop(fd, None) is not None:
            self._poll.unregister(fd)
        self._late.discard(fd)

    def turn(self, timeout: float | None) -> None:
        """Wait at most `timeout` seconds (None: for ever; at most a day) and serve what is ready."""
        milliseconds = None if timeout is None else max(0, int(min(timeout, _LONGEST) * 1000 + 0.999))
        ready = self._poll.poll(milliseconds)
        ready.sort(key=lambda item: item[0] in self._late)
        for fd, events in ready:
            callback = self._callbacks.get(fd)  # an earlier one may have forgotten it
            if callback is not None:
                callback(events)
