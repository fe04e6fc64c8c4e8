"""Descriptors of processes: their death is an event, and a signal reaches nobody else."""

from __future__ import annotations

import os

from spur_core.lean import signal
from spur_core.linux import procfs


def open_checked(who: procfs.Identity) -> int | None:
    """A pidfd of exactly this process (readable once it has ended), None when it is not alive.

    It is opened first and the ticks are compared after, so a recycled pid cannot slip in between.
    """
    if who.pid <= 0:
        return None
    try:
        fd = os.pidfd_open(who.pid)
    except OSError:
        return None
    if procfs.is_alive(who):
        return fd
    os.close(fd)
    return None


def send_checked(who: procfs.Identity, number: int) -> bool:
    """Signal exactly this process; False when it is not alive, and then nothing was sent.

    Raises:
        PermissionError: it lives and may not be signalled by us.
    """
    fd = open_checked(who)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True
