"""When a terminal is hung up, and when its end of input is told again.  Pure: the time comes from outside."""

from __future__ import annotations

#: What `Detachment.tick` says has to be done.
HANG_UP, KILL = "hang_up", "kill"

#: Seconds between the hang-up and the kill.
KILL_PAUSE = 5.0

#: Seconds between two looks whether the end of input has to be told.
FIRST_LOOK = 0.05
LONGEST_LOOK = 1.0


class Detachment:
    """A terminal without a client is kept for a while, then hung up, and at last its step is killed.

    What has been hung up is not saved by a client that comes too late.
    """

    def __init__(self, grace: float) -> None:
        """
        Args:
            grace: seconds for which a terminal without a client is kept.
        """
        self._grace = grace
        self._next = HANG_UP
        self._due: float | None = None
        self._over = False

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        return self._due

    def clients(self, count: int, now: float) -> None:
        """The terminal runs, and so many clients are attached."""
        if self._over or self._next != HANG_UP:
            return
        if count:
            self._due = None
        elif self._due is None:
            self._due = now + self._grace

    def ended(self) -> None:
        """The step is over."""
        self._over = True
        self._due = None

    def tick(self, now: float) -> str:
        """What has to be done now, "" = nothing."""
        if self._due is None or now < self._due:
            return ""
        what = self._next
        if what == HANG_UP:
            self._next, self._due = KILL, now + KILL_PAUSE
        else:
            self._due = None
        return what


class EndOfInput:
    """The input of a terminal is at its end: everybody who reads from it is told so.

    A terminal knows no lasting end of file, only a character that ends one read, and which is lost when a
    program changes the mode of the terminal before it has read it.  So it is written whenever nothing is
    left to be read, less and less often.
    """

    def __init__(self) -> None:
        self._due: float | None = None
        self._pause = FIRST_LOOK

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        return self._due

    def begin(self, now: float) -> None:
        """The last byte of input has gone to the terminal."""
        self._due, self._pause = now, FIRST_LOOK

    def cancel(self) -> None:
        """There is more input after all, or the step is over."""
        self._due = None

    def tick(self, now: float, unread: bool) -> bool:
        """Whether the character has to be written now.

        Args:
            unread: the terminal still holds something that can be read.
        """
        if self._due is None or now < self._due:
            return False
        self._due = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_LOOK)
        return not unread
