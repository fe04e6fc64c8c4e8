"""The caller's terminal while a remote one stands behind it: raw, its size told, always put back."""

import os
import signal
import termios
import threading
from collections.abc import Callable
from typing import Any

from spur_cli.context import Context

_IFLAG, _OFLAG, _CFLAG, _LFLAG, _CC = 0, 1, 2, 3, 6
#: The size when a terminal does not know its own.
_ROWS, _COLS = 24, 80


def raw(attributes: list[Any]) -> list[Any]:
    """These terminal attributes with every byte passed on as it is, in both directions."""
    out = [*attributes[:_CC], list(attributes[_CC])]
    out[_IFLAG] &= ~(termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP)
    out[_IFLAG] &= ~(termios.INLCR | termios.IGNCR | termios.ICRNL | termios.IXON)
    out[_OFLAG] &= ~termios.OPOST
    out[_CFLAG] = out[_CFLAG] & ~(termios.CSIZE | termios.PARENB) | termios.CS8
    out[_LFLAG] &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
    out[_CC][termios.VMIN] = 1
    out[_CC][termios.VTIME] = 0
    return out


class Terminal:
    """A terminal of the caller's.

    Raw between `enter` and `leave`, except while this process is stopped.  In the background it is left as it
    is: it belongs to somebody else then.

    Args:
        fd: a descriptor of it.
        on_size: called when its size may have changed, in a signal handler.
    """

    def __init__(self, fd: int, on_size: Callable[[], None] = lambda: None) -> None:
        self.fd = fd
        self.on_size = on_size
        self.is_raw = False
        self._saved: list[Any] | None = None
        self._handlers: dict[int, Any] = {}

    def size(self) -> tuple[int, int]:
        """(rows, columns)"""
        try:
            rows, cols = termios.tcgetwinsize(self.fd)
        except (OSError, termios.error):
            return _ROWS, _COLS
        return (rows or _ROWS), (cols or _COLS)

    def enter(self) -> None:
        """Make it raw and follow its size."""
        if self._saved is not None:
            return
        try:
            self._saved = termios.tcgetattr(self.fd)
        except termios.error:
            return
        if threading.current_thread() is threading.main_thread():
            for number, handler in (
                (signal.SIGWINCH, self._resized),
                (signal.SIGTSTP, self._stop),
                (signal.SIGCONT, self._continued),
                # A reader that goes away must not end this process before it has put the terminal back.
                (signal.SIGPIPE, signal.SIG_IGN),
            ):
                self._handlers[number] = signal.signal(number, handler)
        self._make_raw()

    def leave(self) -> None:
        """Put it back as it was found."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()
        self._put_back()
        self._saved = None

    def _make_raw(self) -> None:
        if self._saved is None or not self._is_ours():
            return
        try:
            termios.tcsetattr(self.fd, termios.TCSANOW, raw(self._saved))
        except termios.error:
            return
        self.is_raw = True

    def _put_back(self) -> None:
        if self.is_raw and self._saved is not None and self._is_ours():
            try:
                termios.tcsetattr(self.fd, termios.TCSANOW, self._saved)
            except termios.error:
                pass
        self.is_raw = False

    def _is_ours(self) -> bool:
        """Whether this process is in the foreground of it; if it is not our controlling terminal, always."""
        try:
            return os.tcgetpgrp(self.fd) == os.getpgrp()
        except OSError:
            return True

    # Signal handlers.

    def _resized(self, _number: int, _frame: object) -> None:
        self.on_size()

    def _stop(self, number: int, _frame: object) -> None:
        """Stop as asked (`kill -TSTP`; ^Z itself goes to the other side), with the terminal put back."""
        self._put_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        # Goes on here.
        signal.signal(number, self._stop)
        self._continued(signal.SIGCONT, None)

    def _continued(self, _number: int, _frame: object) -> None:
        self._make_raw()
        self.on_size()


class TerminalContext(Context):
    """A context whose diagnostics look right on a raw terminal too: there a line feed only feeds."""

    __slots__ = ("terminal",)

    def __init__(self, ctx: Context, terminal: Terminal) -> None:
        super().__init__(ctx.name, ctx.argv, ctx.env, ctx.cwd, ctx.stdin, ctx.stdout, ctx.stderr, ctx.clock)
        self.terminal = terminal

    def err(self, text: str) -> None:
        """As always, lines ended by what the terminal needs now."""
        if self.terminal.is_raw and os.isatty(self.stderr):
            text = text.replace("\n", "\r\n")
        super().err(text)
