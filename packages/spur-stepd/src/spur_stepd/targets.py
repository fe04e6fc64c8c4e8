"""Whom a signal reaches: the groups first, then descendants, the process group, the first task.

"Nobody found" is not "delivered": between the fork and the move into a group the list is empty, and a
signal must then still arrive by one of the later ways.
"""

from __future__ import annotations

import os

from spur_core.lean import namedtuple, signal
from spur_core.linux import cgroup, procfs

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Sent(NamedTuple):
        reached: int
        #: "cgroup", "children", "group", "leader" or "none".
        path: str
else:
    Sent = namedtuple("Sent", ("reached", "path"))

#: Rounds in which processes that were forked meanwhile are looked for.
ROUNDS = 10
_FREEZABLE = frozenset({signal.SIGSTOP, signal.SIGCONT})


class Targets:
    """The processes of one step.  Every call belongs into a root section."""

    def __init__(self, groups: tuple[str, ...] = ()) -> None:
        self.groups = groups
        #: Living tasks: pid -> start ticks.
        self.tasks: dict[int, int] = {}
        self.pgid = 0

    def members(self) -> tuple[list[int], str]:
        """Every process of the step and how it was found."""
        if self.groups:
            try:
                found = cgroup.procs(self.groups)
            except OSError:
                found = []
            if found:
                return _without_me(found), "cgroup"
        return _without_me(procfs.descendants(os.getpid())), "children"

    def count(self) -> int:
        """How many processes of the step are alive; zombies do not count."""
        return len([pid for pid in self.members()[0] if procfs.start_ticks(pid) is not None])

    def send(self, number: int, scope: str = "all") -> Sent:
        """Send a signal to everybody in `scope` ("leader", "group" or "all")."""
        if scope == "all":
            sent = self._send_to_members(number)
            if sent.reached:
                return sent
        if scope in ("all", "group") and self.pgid:
            try:
                os.killpg(self.pgid, number)
            except (ProcessLookupError, PermissionError):
                pass
            else:
                return Sent(max(1, len(self.tasks)), "group")
        leaders = sum(
            _kill(pid, number) for pid, ticks in self.tasks.items() if procfs.start_ticks(pid) == ticks
        )
        return Sent(leaders, "leader" if leaders else "none")

    def _send_to_members(self, number: int) -> Sent:
        """Signal each one once, and whoever appears while we are at it."""
        done: set[int] = set()
        count, path = 0, "none"
        quiet = 0
        for _ in range(ROUNDS):
            pids, how = self.members()
            fresh = [pid for pid in pids if pid not in done]
            if not fresh:
                quiet += 1
                if quiet == 2 or number in _FREEZABLE:
                    break
                continue
            quiet, path = 0, how
            for pid in fresh:
                done.add(pid)
                count += _kill(pid, number)
        return Sent(count, path if count else "none")

    def kill(self) -> Sent:
        """SIGKILL to everybody: through the group where there is one, so that nobody escapes by a fork."""
        if self.groups and cgroup.is_populated(self.groups):
            found = len(self.members()[0])
            if cgroup.kill(self.groups):
                return Sent(max(1, found), "cgroup")
        return self.send(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop everybody."""
        if not (self.groups and cgroup.freeze(self.groups, True)):
            self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let everybody go on."""
        if not (self.groups and cgroup.freeze(self.groups, False)):
            self.send(signal.SIGCONT)


def _without_me(pids: list[int]) -> list[int]:
    me = os.getpid()
    return [pid for pid in pids if pid != me]


def _kill(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
