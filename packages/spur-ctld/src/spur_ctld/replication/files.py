"""The few file operations that durability rests on, in one place so that tests can make them fail.

Nothing here retries: after a failed write or sync the contents of the page cache are unknown.
"""

import os
from pathlib import Path


class Files:
    """The real file system.  Every method raises OSError as the system reports it."""

    def create(self, path: Path) -> int:
        """A new file for appending, mode 0600; FileExistsError when it is there."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def open_append(self, path: Path) -> int:
        """An existing file for appending."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def write(self, fd: int, data: bytes | bytearray) -> None:
        """All of `data`; one system call unless the system takes less."""
        done = os.write(fd, data)
        while done < len(data):
            done += os.write(fd, memoryview(data)[done:])

    def datasync(self, fd: int) -> None:
        """Contents and length reach the disk."""
        os.fdatasync(fd)

    def sync_dir(self, path: Path) -> None:
        """Names created, renamed or removed in the directory reach the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def truncate(self, path: Path, size: int) -> None:
        """Cut the file and make the cut durable."""
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        """Atomic within a directory."""
        old.rename(new)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        path.unlink()

    def close(self, fd: int) -> None:
        """Close without syncing."""
        os.close(fd)

    def free_bytes(self, path: Path) -> int:
        """Bytes an ordinary user may still write below `path`."""
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize
