"""Files that are there whole or not at all, also after a power cut."""

from __future__ import annotations

import os


def write_whole(path: str, data: bytes, mode: int = 0o600, directory: int | None = None) -> None:
    """Replace the file `path` by `data`: temporary name, fsync, rename, fsync of the directory.

    Args:
        directory: descriptor that `path` is relative to; None = the current directory or absolute.

    Raises:
        OSError: nothing was replaced.
    """
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.new-{name}" if folder else f".new-{name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(temporary, flags, mode, dir_fd=directory)
    try:
        try:
            os.fchmod(fd, mode)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        try:
            os.unlink(temporary, dir_fd=directory)
        except OSError:
            pass
        raise
    sync_dir(folder or ("." if directory is None else ""), directory)


def sync_dir(path: str, directory: int | None = None) -> None:
    """Wait until the names in a directory are on the disk; "" = `directory` itself."""
    if directory is not None and not path:
        os.fsync(directory)
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
