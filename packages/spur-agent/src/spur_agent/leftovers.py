"""What a dead supervisor leaves: processes to be killed, groups, scripts and directories to be removed.

Everything here blocks and belongs into a thread.
"""

import logging
import os
import shutil
import signal
import time
from pathlib import Path

from spur_agent.logs import value
from spur_core.ids import RuntimeId
from spur_core.linux import cgroup, pidfd, procfs
from spur_core.linux.cgroup_layout import Root

log = logging.getLogger(__name__)

#: Seconds in which killed processes must be gone.
EMPTY_SECS = 10.0
#: Between two looks whether they are.
_LOOK_PAUSE = 0.005
_GONE_PREFIX = ".gone-"


def groups_of(root: Root | None, rid: RuntimeId) -> tuple[str, ...]:
    """The groups that a step of that identity has, by name; those that are not there are left out."""
    if root is None:
        return ()
    bases = [root.unified, *root.v1.values()]
    found = [f"{base}/job_{rid.job_id}.{rid.run_attempt}/step_{rid.step_id}" for base in bases if base]
    return tuple(dict.fromkeys(path for path in found if os.path.isdir(path)))  # noqa: PTH112


def groups_left(groups: tuple[str, ...]) -> bool:
    """Whether a step's groups are there, or the job's around them."""
    return any(os.path.isdir(path) for path in (*groups, *cgroup.job_dirs(groups)))  # noqa: PTH112


def kill_step(rid: RuntimeId, groups: tuple[str, ...], stepd: procfs.Identity | None, this_boot: str) -> bool:
    """Kill everything of a step whose supervisor is dead; True when certainly nothing is left.

    Through its groups.  Without groups: the processes of the dead supervisor's session, whose number the
    kernel gives to nobody else while one of them lives, as far as they are this job's.

    Args:
        stepd: the dead supervisor, None when nobody knows who it was.
    """
    if groups:
        cgroup.kill(groups)
        empty = cgroup.wait_empty(groups, EMPTY_SECS)
        left = cgroup.remove(groups)
        if left:
            log.warning("groups_left step=%s first=%s", rid, value(left[0]))
        return empty
    if stepd is None or stepd.boot_id != this_boot:
        return True
    deadline = time.monotonic() + EMPTY_SECS
    while members := _session_members(stepd.pid, rid):
        if time.monotonic() > deadline:
            return False
        for pid in members:
            who = procfs.identity(pid)
            if who is not None:
                pidfd.send_checked(who, signal.SIGKILL)
        time.sleep(_LOOK_PAUSE)
    return True


def _session_members(stepd: int, rid: RuntimeId) -> list[int]:
    if procfs.start_ticks(stepd) is not None:
        return []  # the number has a new owner, so no process of the old session can be left
    mark = f"SPUR_JOB_ID={rid.job_id}".encode()
    return [pid for pid in procfs.in_session(stepd) if mark in _environment(pid)]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def remove_session(session_dir: str, script_dir: str, quarantine: str | None = None) -> None:
    """Delete a session: renamed first, so that a half-deleted one is never taken for a session.

    Args:
        quarantine: the directory in which it is kept instead.
    """
    path = Path(session_dir)
    if quarantine is not None:
        quarantined(path, quarantine)
    hidden = path.with_name(_GONE_PREFIX + path.name)
    shutil.rmtree(hidden, ignore_errors=True)
    try:
        path.rename(hidden)
    except FileNotFoundError:
        pass
    shutil.rmtree(hidden, ignore_errors=True)
    shutil.rmtree(script_dir, ignore_errors=True)


def quarantined(path: Path, quarantine: str) -> None:
    """Move something unreadable aside; nobody but an administrator ever deletes it."""
    target = Path(quarantine) / f"{path.name}.{time.time_ns()}"
    try:
        path.rename(target)
    except OSError as error:
        log.error("quarantine_failed path=%s error=%s", value(path), value(error))
    else:
        log.error("quarantined path=%s moved_to=%s", value(path), value(target))


def is_half_deleted(name: str) -> bool:
    """Whether a name in the sessions directory is what `remove_session` had begun to delete."""
    return name.startswith(_GONE_PREFIX)
