"""What a dead supervisor leaves: processes to be killed, groups, scripts and directories to be removed.

Everything here blocks and belongs into a thread.
"""

import logging
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from spur_agent.logs import value
from spur_core.errors import GrammarError
from spur_core.ids import RuntimeId
from spur_core.linux import cgroup, pidfd, procfs
from spur_core.linux.cgroup_layout import Root
from spur_proto_lite import paths
from spur_proto_lite.descriptor import Descriptor
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.paths import SessionPaths, StatePaths

log = logging.getLogger(__name__)

#: Seconds in which killed processes must be gone.
EMPTY_SECS = 10.0
#: Between two looks whether they are.
_LOOK_PAUSE = 0.005
_GONE_PREFIX = ".gone-"
#: Where supervisors put what has no better place.
TMP_DIR: Final = "/tmp"  # noqa: S108
#: (the user's directory, the job's in it).
Scratch = tuple[str, str]


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


def kill_step(
    session: SessionPaths,
    rid: RuntimeId,
    groups: tuple[str, ...],
    stepd: procfs.Identity | None,
    this_boot: str,
) -> bool:
    """Kill everything of a step whose supervisor is dead; True when certainly nothing is left.

    Through its groups.  Without groups: the processes of the dead supervisor's session and of the one that a
    task with a terminal leads.  The kernel gives the number of a session to nobody else while one of its
    processes lives; of those found, the ones that carry this job's mark are killed.

    Args:
        session: its files; the descriptor tells who its first task was.
        stepd: the dead supervisor, None when nobody knows who it was.
    """
    if groups:
        cgroup.kill(groups)
        empty = cgroup.wait_empty(groups, EMPTY_SECS)
        left = cgroup.remove(groups)
        if left:
            log.warning("groups_left step=%s first=%s", rid, value(left[0]))
        return empty
    leaders = [
        who for who in (stepd, _first_task(session, rid)) if who is not None and who.boot_id == this_boot
    ]
    deadline = time.monotonic() + EMPTY_SECS
    while members := {pid for who in leaders for pid in _session_members(who, rid)}:
        if time.monotonic() > deadline:
            return False
        for pid in members:
            who = procfs.identity(pid)
            if who is not None:
                pidfd.send_checked(who, signal.SIGKILL)
        time.sleep(_LOOK_PAUSE)
    return True


def _session_members(leader: procfs.Identity, rid: RuntimeId) -> list[int]:
    if procfs.start_ticks(leader.pid) not in (None, leader.start_ticks):
        return []  # the number has a new owner, so no process of the old session can be left
    mark = f"SPUR_JOB_ID={rid.job_id}".encode()
    return [pid for pid in procfs.in_session(leader.pid) if mark in _environment(pid)]


def _first_task(session: SessionPaths, rid: RuntimeId) -> procfs.Identity | None:
    """The step's first task on this node as its descriptor has it; None: it names none, or is unreadable."""
    try:
        found = Descriptor.decode(Path(session.descriptor).read_bytes(), rid)
    except (BadDocument, OSError):
        return None
    if found.task_pid is None or found.task_start_ticks is None:
        return None
    return procfs.Identity(found.task_pid, found.task_start_ticks, found.boot_id)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def remove_session(
    session_dir: str,
    scripts: Iterable[str],
    quarantine: str | None = None,
    scratch: Scratch | None = None,
) -> None:
    """Delete a session: renamed first, so that a half-deleted one is never taken for a session.

    Args:
        scripts: where its batch script may lie; they go with whatever the job has put beside it.
        quarantine: the directory in which it is kept instead.
        scratch: the job's scratch directory, which goes if nothing is in it.
    """
    path = Path(session_dir)
    if quarantine is not None:
        quarantined(path, quarantine)
    hidden = path.with_name(_GONE_PREFIX + path.name.removeprefix(_GONE_PREFIX))
    if path != hidden:
        shutil.rmtree(hidden, ignore_errors=True)
        try:
            path.rename(hidden)
        except FileNotFoundError:
            pass
    if scratch is not None:
        _remove_scratch(*scratch)
    # The session is the last to go: until then the next start does all this again.
    for script_dir in scripts:
        shutil.rmtree(script_dir, ignore_errors=True)
    shutil.rmtree(hidden, ignore_errors=True)


def script_dirs(state: StatePaths, rid: RuntimeId) -> tuple[str, str]:
    """Where the batch script of a step may lie."""
    return state.script_dir(rid), paths.spare_script_dir(TMP_DIR, os.getuid(), state.spool, rid)


def scratch_of(uid: int, rid: RuntimeId) -> Scratch:
    """The scratch directory that a job of that user has, if it has one."""
    return paths.scratch_top(TMP_DIR, uid), paths.scratch_name(rid)


def _remove_scratch(top: str, name: str) -> None:
    """If it is empty.  The one above is the user's, who may have put anything into its place."""
    try:
        fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.rmdir(name, dir_fd=fd)
    except OSError:
        pass  # there is none, or the user left something in it
    finally:
        os.close(fd)


def quarantined(path: Path, quarantine: str) -> None:
    """Move something unreadable aside; nobody but an administrator ever deletes it."""
    target = Path(quarantine) / f"{path.name}.{time.time_ns()}"
    try:
        path.rename(target)
    except OSError as error:
        log.error("quarantine_failed path=%s error=%s", value(path), value(error))
    else:
        log.error("quarantined path=%s moved_to=%s", value(path), value(target))


def half_deleted(name: str) -> RuntimeId | None:
    """What `remove_session` had begun to delete under that name in the sessions directory; None: nothing."""
    if not name.startswith(_GONE_PREFIX):
        return None
    try:
        return RuntimeId.from_dirname(name.removeprefix(_GONE_PREFIX))
    except GrammarError:
        return None
