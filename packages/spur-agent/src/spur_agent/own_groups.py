"""Control groups of agents with names of their own: held while the agent lives, removed when nobody is left.

An agent beside another one on the host (with another state directory than the default) keeps its steps in
`spur_HASH`.  It holds a lock on that group, so that whoever finds one that is unlocked, ours and without any
process knows that its agent is dead and has left nothing behind.
"""

import fcntl
import hashlib
import logging
import os
import re
from typing import Final

from spur_agent.logs import value
from spur_core.linux import cgroup, cgroup_layout
from spur_core.linux.cgroup_layout import Root
from spur_proto_lite.paths import DEFAULT_STATE_DIR

log = logging.getLogger(__name__)

_NAME: Final = re.compile(rf"{cgroup_layout.DEFAULT_NAME}_[0-9a-f]{{8}}")
#: What lies in such a group; one that holds anything else is not one of ours.
_CHILD: Final = re.compile(r"stepd|job_\d+\.\d+")


def setting(configured: str, state_dir: str) -> str:
    """Where this agent's groups go.  An agent beside another one on the host (so with another state
    directory than the default) has groups of its own: two nodes of one job have the same run on one host."""
    if configured != "auto" or state_dir == DEFAULT_STATE_DIR:
        return configured
    own = f"{cgroup_layout.DEFAULT_NAME}_{hashlib.sha256(state_dir.encode()).hexdigest()[:8]}"
    root, _ = cgroup_layout.choose_root(cgroup_layout.detect(), own)
    return own if root is not None else configured


def tops(root: Root | None) -> tuple[str, ...]:
    """The topmost group of each hierarchy."""
    if root is None:
        return ()
    return tuple(dict.fromkeys(top for top in (root.unified, *root.v1.values()) if top))


class OwnGroups:
    """The groups of this agent, and its claim to them."""

    def __init__(self, root: Root | None) -> None:
        self._tops = tuple(top for top in tops(root) if _is_named(top))
        # A new v1 cpuset takes nobody, so the group that is made for the lock alone is never one.
        cpusets = {top for name, top in root.v1.items() if name == "cpuset"} if root is not None else set()
        self._lock_at = next((top for top in self._tops if top not in cpusets), None)
        self._lock: int | None = None

    def hold(self) -> None:
        """Lock them."""
        top = self._lock_at
        while top is not None and self._lock is None:
            try:
                os.makedirs(top, exist_ok=True)  # noqa: PTH103
                fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                # Whoever looks whether it is dead holds it for a moment, and may have removed it.
                fcntl.flock(fd, fcntl.LOCK_SH)
                if os.path.exists(top) and os.path.samestat(os.fstat(fd), os.stat(top)):  # noqa: PTH110, PTH116
                    self._lock = fd
                else:
                    os.close(fd)
            except OSError as error:
                log.warning("group_not_held path=%s error=%s", value(top), error.strerror)
                return

    def sweep(self) -> list[str]:
        """Remove the groups of dead agents beside ours; what was removed."""
        by_name: dict[str, list[str]] = {}
        for parent in dict.fromkeys(map(os.path.dirname, self._tops)):
            for name in _names(parent):
                path = f"{parent}/{name}"
                if _is_named(path) and path not in self._tops:
                    by_name.setdefault(name, []).append(path)
        removed = [path for paths in by_name.values() for path in _remove_dead(paths)]
        if removed:
            log.info("dead_groups_removed count=%d first=%s", len(removed), value(removed[0]))
        return removed

    def release(self, empty: bool) -> None:
        """Give them up; with nothing in them they go."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if empty:
            for top in self._tops:
                for path in (f"{top}/stepd", top):
                    try:
                        os.rmdir(path)  # noqa: PTH106
                    except OSError:
                        pass  # not there, or somebody is still in it


def _is_named(path: str) -> bool:
    return _NAME.fullmatch(os.path.basename(path)) is not None  # noqa: PTH119


def _names(parent: str) -> list[str]:
    try:
        return os.listdir(parent)  # noqa: PTH208
    except OSError:
        return []


def _remove_dead(paths: list[str]) -> list[str]:
    """Remove one agent's groups, one for each hierarchy, if it is dead and no process is in any of them."""
    locks: list[int] = []
    try:
        for path in paths:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
            locks.append(fd)
            if os.fstat(fd).st_uid != os.geteuid():
                return []
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            children = [entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
            if not all(_CHILD.fullmatch(child) for child in children) or cgroup.procs((path,)):
                return []
        return [path for path in paths if not cgroup.remove((path,))]
    except OSError:
        return []
    finally:
        for fd in locks:
            os.close(fd)
