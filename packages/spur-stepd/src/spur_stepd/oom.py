"""Whether a step was short of memory: the evidence, and news of it while it runs.

On v1 the kernel kills one process and leaves the rest; the supervisor then ends those.
"""

from __future__ import annotations

import os

from spur_core.lean import signal
from spur_core.linux import cgroup
from spur_stepd.log import say
from spur_stepd.loop import READ

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spur_proto_lite.exits import TaskExit
    from spur_stepd.loop import Loop


class OomWatch:
    """Calls back each time the step runs into its limit; on v2 never, the kernel ends the whole group."""

    def __init__(self, loop: Loop, on_short: Callable[[], None]) -> None:
        self._loop = loop
        self._on_short = on_short
        self._fd = -1
        self._groups: tuple[str, ...] = ()
        self._kills = 0
        self._failures = 0

    def killed(self) -> int:
        """Processes that the kernel has killed since `begin`.  To be called within a root section."""
        return max(0, cgroup.oom_kills(self._groups) - self._kills)

    def killed_among(self, ends: tuple[TaskExit, ...], kill_ordered: bool) -> int:
        """As `killed`, once all tasks have ended.  A kernel that does not count its kills says only that the
        limit was reached: a SIGKILL that nobody has ordered is then its own."""
        killed = self.killed()
        if killed or kill_ordered or cgroup.failures(self._groups) <= self._failures:
            return killed
        return sum(end.signal == signal.SIGKILL for end in ends)

    def begin(self, groups: tuple[str, ...]) -> None:
        """Watch these groups, which may have a past.  To be called within a root section."""
        self._groups = groups
        self._kills = cgroup.oom_kills(groups)
        self._failures = cgroup.failures(groups)
        directory = cgroup.oom_control(groups)
        if directory is None:
            return
        try:
            self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            source = os.open(f"{directory}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            sink = os.open(f"{directory}/cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC)
            os.write(sink, f"{self._fd} {source}".encode())
            os.close(sink)
            os.close(source)
        except OSError as error:
            say("no_oom_events", error=error)
            return
        self._loop.watch(self._fd, READ, self._on_event)

    def _on_event(self, _events: int) -> None:
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return
        self._on_short()

    def close(self) -> None:
        """The groups are about to go."""
        if self._fd >= 0:
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._fd = -1
