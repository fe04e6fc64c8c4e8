"""Directories that nobody else can get at: made, or verified, never repaired.

A directory that is there already must be a real one, ours, and closed to group and others.  It is never
chmodded or chowned into shape: somebody else may hold a descriptor of it.
"""

from __future__ import annotations

import os
import stat

from spur_core.errors import StateError

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotPrivate(StateError):
    """A directory that must be private is not.

    Attributes:
        path: the directory.
    """

    code = "not_private"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


def ensure(path: str, owner: int | None = None) -> int:
    """Make the directory `path` with mode 0700, or verify the one that is there.

    Missing parents are made with ordinary permissions and are not judged.

    Args:
        owner: uid it must have; None = our effective one.

    Returns:
        A descriptor to work through from here on, not through the path.

    Raises:
        NotPrivate: it is there and one property is wrong; the text names it.
        OSError: it cannot be made.
    """
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)
    return ensure_at(None, path, owner)


def ensure_at(parent: int | None, path: str, owner: int | None = None) -> int:
    """`ensure` of a name below the directory descriptor `parent`, which must exist."""
    made = True
    try:
        os.mkdir(path, 0o700, dir_fd=parent)
    except FileExistsError:
        made = False
    fd = _open(parent, path)
    try:
        if made:
            # The umask may have taken bits away, and a default ACL may have given some.
            os.fchmod(fd, 0o700)
        check(fd, path, owner)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_verified(path: str, owner: int | None = None) -> int:
    """A descriptor of an existing private directory.

    Raises:
        NotPrivate: it is not private, or not there.
    """
    fd = _open(None, path)
    try:
        check(fd, path, owner)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open(parent: int | None, path: str) -> int:
    try:
        return os.open(path, _OPEN, dir_fd=parent)
    except FileNotFoundError:
        raise NotPrivate(path, "is not there") from None
    except OSError as error:
        # O_NOFOLLOW answers ELOOP or ENOTDIR for a symbolic link, depending on the kernel.
        try:
            is_link = stat.S_ISLNK(os.lstat(path).st_mode) if parent is None else False
        except OSError:
            is_link = False
        why = "is a symbolic link" if is_link else (error.strerror or str(error)).lower()
        raise NotPrivate(path, why) from None


def check(fd: int, path: str, owner: int | None = None) -> None:
    """Verify an open directory.

    Raises:
        NotPrivate: it has another owner, or group or others have any right on it.
    """
    found = os.fstat(fd)
    wanted = os.geteuid() if owner is None else owner
    if not stat.S_ISDIR(found.st_mode):
        raise NotPrivate(path, "is not a directory")
    if found.st_uid != wanted:
        raise NotPrivate(path, f"belongs to uid {found.st_uid}, not {wanted}")
    if found.st_mode & 0o077:
        raise NotPrivate(
            path, f"has mode {stat.S_IMODE(found.st_mode):04o}; it must be closed to group and others"
        )
