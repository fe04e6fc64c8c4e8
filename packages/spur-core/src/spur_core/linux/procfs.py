"""Who a process is: pid, start ticks and boot id together, since a pid alone is soon somebody else's."""

from __future__ import annotations

import os

from spur_core.lean import namedtuple

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Stat(NamedTuple):
        """The parts of `/proc/PID/stat` that matter here."""

        state: str
        ppid: int
        pgrp: int
        session: int
        #: Field 22, clock ticks since boot.
        start_ticks: int

    class Identity(NamedTuple):
        """One process for ever."""

        pid: int
        start_ticks: int
        boot_id: str
else:
    Stat = namedtuple("Stat", ("state", "ppid", "pgrp", "session", "start_ticks"))
    Identity = namedtuple("Identity", ("pid", "start_ticks", "boot_id"))

_DEAD = "ZXx"


def parse_stat(text: str) -> Stat:
    """The fields of a `stat` line, counted after the last `)` since a program's name may hold anything.

    Raises:
        ValueError: it is no such line.
    """
    _, found, rest = text.rpartition(")")
    fields = rest.split()
    if not found or len(fields) < 20:
        raise ValueError("not a stat line")
    return Stat(fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def stat(pid: int) -> Stat | None:
    """The process `pid`, None when there is none."""
    try:
        return parse_stat(_read(f"/proc/{pid}/stat"))
    except (OSError, ValueError):
        return None


def start_ticks(pid: int) -> int | None:
    """Start ticks of a living process; None for none, and for a zombie, which counts as dead."""
    found = stat(pid)
    return None if found is None or found.state in _DEAD else found.start_ticks


def user_ids(pid: int) -> tuple[int, ...]:
    """Real, effective, saved and file system uid of a process; empty when it is gone."""
    try:
        text = _read(f"/proc/{pid}/status")
    except OSError:
        return ()
    for line in text.splitlines():
        if line.startswith("Uid:"):
            return tuple(map(int, line.split()[1:]))
    return ()


def boot_id() -> str:
    """Changes with every boot of the machine."""
    return _read("/proc/sys/kernel/random/boot_id").strip()


def identity(pid: int) -> Identity | None:
    """The living process `pid` as an identity that can be kept."""
    ticks = start_ticks(pid)
    return None if ticks is None else Identity(pid, ticks, boot_id())


def is_alive(who: Identity, this_boot: str | None = None) -> bool:
    """Whether exactly this process lives: same boot, pid there, same ticks, no zombie."""
    if who.pid <= 0 or who.boot_id != (boot_id() if this_boot is None else this_boot):
        return False
    return start_ticks(who.pid) == who.start_ticks


def children(pid: int) -> list[int]:
    """The direct children of a process; empty when it is gone."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found.extend(map(int, _read(f"/proc/{pid}/task/{task}/children").split()))
    except OSError:
        pass
    return found


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, parents before their children, without zombies."""
    found: list[int] = []
    queue = children(pid)
    while queue:
        at = queue.pop(0)
        if start_ticks(at) is not None:
            found.append(at)
        queue.extend(children(at))
    return found


def in_session(session: int) -> list[int]:
    """Every living process whose session is `session` (a scan of the whole of `/proc`)."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            at = stat(int(name))
            if at is not None and at.session == session and at.state not in _DEAD:
                found.append(int(name))
    return found


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = bytearray()
        while part := os.read(fd, 4096):
            data += part
        return data.decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)
