"""A pseudo-terminal that the supervisor keeps: made, sized, signalled, drained.

The supervisor holds the terminal's own end open until no process of the step is left.  So a program that
has closed it can open it again, and the other end tells of the end only when it really is there.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
import time

from spur_stepd.terminal_rules import EndOfInput

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from spur_stepd.privileges import Privileges
    from spur_stepd.timers import Timers

_SIZE = struct.Struct("HHHH")
_MOST = (1 << 16) - 1
#: What a terminal measures when nobody says otherwise.
ROWS, COLS = 24, 80


class Terminal:
    """Both ends of one pseudo-terminal.

    Attributes:
        output: where what programs write comes out; whoever reads from it closes it.
        control: another descriptor of the same end, for input and orders.
        slave: the end that programs have open, -1 once it is closed here.
    """

    def __init__(self, privileges: Privileges, rows: int, cols: int) -> None:
        """Make one that belongs to the user.

        Raises:
            OSError: none can be had.
        """
        self._privileges = privileges
        with privileges.root():
            self.output, self.slave = os.openpty()
            try:
                _give(self.slave, privileges)
                self.control = fcntl.fcntl(self.output, fcntl.F_DUPFD_CLOEXEC, 3)
            except OSError:
                os.close(self.output)
                os.close(self.slave)
                raise
        self.resize(rows or ROWS, cols or COLS)

    def resize(self, rows: int, cols: int) -> None:
        """Set the size; the kernel tells the programs in the foreground when it is another one.  A 0 leaves
        everything as it is."""
        if rows > 0 and cols > 0:
            size = _SIZE.pack(min(rows, _MOST), min(cols, _MOST), 0, 0)
            fcntl.ioctl(self.control, termios.TIOCSWINSZ, size)

    def foreground(self) -> int:
        """The process group that reads from it, 0 = none."""
        try:
            group = os.tcgetpgrp(self.control)
        except OSError:
            return 0
        return group if group > 1 else 0

    def signal(self, number: int) -> int:
        """Send a signal to the foreground group; how many groups were reached.  Within a root section."""
        group = self.foreground()
        return int(bool(group) and send_group(group, number))

    @property
    def unread(self) -> bool:
        """Whether a program could read something from it now."""
        poller = select.poll()
        poller.register(self.slave, select.POLLIN)
        return bool(poller.poll(0))

    def write_eof(self) -> None:
        """Write the character that ends a read, if there is room for it."""
        character = termios.tcgetattr(self.slave)[6][termios.VEOF]
        if not isinstance(character, bytes) or character == b"\0":
            character = b"\x04"  # switched off: what it usually is
        try:
            os.write(self.control, character)
        except OSError:
            pass

    def close_slave(self) -> None:
        """No process of the step is left."""
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def close(self) -> None:
        """Close all that is still open but `output`."""
        self.close_slave()
        if self.control >= 0:
            os.close(self.control)
            self.control = -1


class EndTeller:
    """Tells whoever reads from a terminal that its input is at its end, when `EndOfInput` says so."""

    def __init__(self, terminal: Terminal, timers: Timers) -> None:
        self._terminal = terminal
        self._timers = timers
        self._rules = EndOfInput()

    def begin(self) -> None:
        """The terminal has all the input; nothing happens when it was told already."""
        if self._rules.deadline is None:
            now = time.monotonic()
            self._rules.begin(now)
            self._on_time(now)

    def cancel(self) -> None:
        """There is more input after all, or the terminal is done with."""
        self._rules.cancel()
        self._timers.cancel(self)

    def _on_time(self, now: float) -> None:
        if self._terminal.slave < 0:
            return
        if self._rules.tick(now, self._terminal.unread):
            self._terminal.write_eof()
        if self._rules.deadline is not None:
            self._timers.at(self, self._rules.deadline, self._on_time)


def send_group(group: int, number: int) -> bool:
    """Signal a process group; whether anybody was reached."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _give(slave: int, privileges: Privileges) -> None:
    """Owner: the user, who alone may read; the group of terminals may write (as `write` and `wall` do)."""
    if privileges.is_root:
        os.fchown(slave, privileges.uid, _tty_group())
    found = os.fstat(slave)
    # Without a group of its own the user's primary group would be let in.
    os.fchmod(slave, 0o620 if found.st_gid not in (privileges.gid, os.getgid()) else 0o600)


def _tty_group() -> int:
    """The number of the group "tty"; -1 (leave as it is) on a host without one."""
    try:
        fd = os.open("/etc/group", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        text = os.read(fd, 1 << 20)
    finally:
        os.close(fd)
    for line in text.splitlines():
        name, _, rest = line.partition(b":")
        if name == b"tty":
            number = rest.split(b":")[1]
            return int(number) if number.isdigit() else -1
    return -1
