"""The agent's own directories and its lock: private, and one agent per state directory."""

import fcntl
import os
from typing import NamedTuple

from spur_core.errors import StateError
from spur_core.linux import private_dir
from spur_proto_lite.paths import StatePaths


class RuntimeHeld(StateError):
    """Another agent works in this state directory."""

    code = "state_dir_in_use"


class Runtime(NamedTuple):
    """Keep it alive: the lock goes with the descriptor."""

    paths: StatePaths
    lock_fd: int


def open_runtime(state_dir: str) -> Runtime:
    """Make or verify everything below the state directory and take the lock.

    Raises:
        NotPrivate: something there is not private; nothing is repaired.
        RuntimeHeld: another agent holds the lock.
        StateError: it cannot be made or written.
    """
    paths = StatePaths(state_dir)
    try:
        os.makedirs(state_dir, exist_ok=True)  # noqa: PTH103 - the state directory itself is not judged
        os.close(private_dir.ensure(paths.runtime))
        lock_fd = os.open(paths.agent_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except private_dir.NotPrivate:
        raise
    except OSError as error:
        raise StateError(f"state directory {error.filename or state_dir}: {error.strerror}") from None
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock_fd)
        raise RuntimeHeld(f"{state_dir}: another spurd works in this state directory") from None
    try:
        for path in (paths.sessions, paths.quarantine):
            os.close(private_dir.ensure(path))
    except OSError as error:
        raise StateError(f"state directory {error.filename or state_dir}: {error.strerror}") from None
    return Runtime(paths, lock_fd)
