"""Signals as events of a main loop, from before its job exists."""

import signal
import threading
from collections.abc import Iterable
from queue import SimpleQueue
from types import FrameType
from typing import Any, Self

SIGNAL = "signal"


class Caught:
    """While entered, each signal becomes an event (SIGNAL, "", number).

    impatient: a second ^C raises KeyboardInterrupt; for calls that no loop watches.
    """

    def __init__(self, numbers: Iterable[int], events: "SimpleQueue[Any]") -> None:
        self.impatient = True
        self._numbers = tuple(numbers)
        self._events = events
        self._previous: dict[int, Any] = {}
        self._seen = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.impatient and self._seen:
            raise KeyboardInterrupt
        self._seen = True
        self._events.put((SIGNAL, "", number))
