"""Taking a foreign process of the job's user into the job, so that it ends and is counted with it."""

from __future__ import annotations

import os

from spur_core.errors import SpurError
from spur_core.linux import cgroup, procfs


class NoSuchProcess(SpurError):
    """The process is not there any more, or was another one all the time."""

    code = "no_such_process"


class NotOfTheJob(SpurError):
    """The process is not the job's user's."""

    code = "not_of_the_job"


def adopt(pid: int, start_ticks: int | None, uid: int, groups: tuple[str, ...]) -> int:
    """Move a process into `groups`.  To be called within a root section.

    Args:
        start_ticks: which process of that number is meant; None: the one that lives now.
        uid: all user ids that it must have.

    Returns:
        Its start ticks.

    Raises:
        NoSuchProcess, NotOfTheJob: nothing was moved.
        OSError: a group would not take it.
    """
    try:
        # Held open, so that the number stays this process's until it is in the groups.
        handle = os.pidfd_open(pid)
    except (OSError, OverflowError):
        raise NoSuchProcess(f"there is no process {pid}") from None
    try:
        ticks = procfs.start_ticks(pid)
        if ticks is None or start_ticks not in (None, ticks):
            raise NoSuchProcess(f"process {pid} is gone; the number may be another's by now")
        ids = procfs.user_ids(pid)
        if pid in (1, os.getpid()) or set(ids) != {uid}:
            raise NotOfTheJob(f"process {pid} does not belong to uid {uid} alone")
        cgroup.adopt(groups, pid)
        if procfs.start_ticks(pid) not in (None, ticks):
            raise NoSuchProcess(f"process {pid} ended while it was being moved")
        return ticks
    finally:
        os.close(handle)
