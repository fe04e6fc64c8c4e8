"""Ending supervisors: by exact identity, and never one that has begun to run somebody's code unseen."""

import asyncio
import logging
import os
import signal
import time
from typing import Final

from spur_agent.logs import value
from spur_core.errors import Unreachable
from spur_core.linux import pidfd, procfs
from spur_proto_lite import journal, unixsock
from spur_proto_lite.errors import CorruptJournal
from spur_proto_lite.paths import SessionPaths

log = logging.getLogger(__name__)

#: A signal that cannot be refused has worked within this time.
_STOP_SECS: Final = 5.0
_STOPPED: Final = "Tt"


async def stop(who: procfs.Identity, patience: float = 1.0) -> None:
    """TERM, `patience` seconds, KILL: to exactly this supervisor.

    Args:
        patience: 0 = KILL at once.  After TERM a supervisor ends its step in order and records an exit that
            nobody but us has caused, so that is for one that has no step or whose exit is wanted.
    """
    for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, _STOP_SECS)):
        if not wait:
            continue
        if not pidfd.send_checked(who, number):
            return
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            if not procfs.is_alive(who, who.boot_id):
                return
            await asyncio.sleep(0.01)
    log.error("supervisor_survives pid=%d", who.pid)


async def put_down(who: procfs.Identity, paths: SessionPaths) -> bool:
    """End a supervisor that has not started its step; False when it has, and then it goes on.

    A `start` that a dead agent sent may still lie unread in its socket.  So it is stopped first: what its
    journal says then stays true, and either it is killed without having begun, or it is let go on.
    """
    if not pidfd.send_checked(who, signal.SIGSTOP):
        return not _has_started(paths)
    deadline = time.monotonic() + _STOP_SECS
    while procfs.is_alive(who, who.boot_id) and time.monotonic() < deadline:
        found = procfs.stat(who.pid)
        if found is not None and found.state in _STOPPED:
            break
        await asyncio.sleep(0.001)
    if _has_started(paths):
        pidfd.send_checked(who, signal.SIGCONT)
        return False
    await stop(who, 0.0)
    return not _has_started(paths)


def _has_started(paths: SessionPaths) -> bool:
    try:
        return journal.story(journal.read(paths.journal).entries).started_at is not None
    except (CorruptJournal, OSError) as error:
        log.error("journal_unreadable journal=%s error=%s", value(paths.journal), value(error))
        return True


def listener(paths: SessionPaths) -> procfs.Identity | None:
    """Whoever listens on a session's control socket, when nothing else tells who its supervisor is."""
    try:
        fd = unixsock.connect(paths.control, 1.0)
    except Unreachable:
        return None
    try:
        pid, uid, _ = unixsock.peer(fd)
    finally:
        os.close(fd)
    return procfs.identity(pid) if pid > 0 and uid in (0, os.geteuid()) else None
