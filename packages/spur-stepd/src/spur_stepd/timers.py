"""Things to be done at a time, for the parts of a supervisor that the machine does not decide about."""

from __future__ import annotations

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Timers:
    """Keys and the monotonic time at which each one's callback is due."""

    def __init__(self) -> None:
        self._due: dict[object, tuple[float, Callable[[float], None]]] = {}

    def at(self, key: object, when: float, callback: Callable[[float], None]) -> None:
        """Call `callback(now)` once `when` has come; replaces an earlier one of the same key."""
        self._due[key] = (when, callback)

    def cancel(self, key: object) -> None:
        """Forget the callback of this key, if there is one."""
        self._due.pop(key, None)

    def next_deadline(self) -> float | None:
        """When `run` wants to be called next, None = there is nothing to wait for."""
        return min((when for when, _ in self._due.values()), default=None)

    def run(self, now: float) -> None:
        """Call everything that is due."""
        for key, (when, callback) in list(self._due.items()):
            if when <= now and self._due.get(key) == (when, callback):
                del self._due[key]
                callback(now)
