"""File layers that fail on request, on top of the real one."""

import errno
import os
import threading
from pathlib import Path

from spur_ctld.replication.files import Files


class FailingFiles(Files):
    """Counts every call that changes something and fails the chosen ones.

    Attributes:
        calls: names of the calls so far, in order.
        fail_at: number (from 0) of the call that fails; None = none.
        fail_names: these calls always fail.
        error: errno of the failure.
        room: bytes that may still be written before the disk is full; None = no limit.
        gate: cleared = `datasync` waits until it is set.
        torn: a failing write leaves half of its bytes.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fail_at: int | None = None
        self.fail_names: frozenset[str] = frozenset()
        self.error = errno.EIO
        self.room: int | None = None
        self.free: int | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.syncing = threading.Event()
        self.torn = False

    def _fails(self, name: str) -> bool:
        number = len(self.calls)
        self.calls.append(name)
        return name in self.fail_names or number == self.fail_at

    def _call(self, name: str) -> None:
        if self._fails(name):
            raise OSError(self.error, os.strerror(self.error))

    def create(self, path: Path) -> int:
        self._call("create")
        return super().create(path)

    def write(self, fd: int, data: bytes | bytearray) -> None:
        failing = self._fails("write")
        if failing and self.torn:
            super().write(fd, data[: len(data) // 2])
        if failing:
            raise OSError(self.error, os.strerror(self.error))
        if self.room is not None:
            fits = min(self.room, len(data))
            self.room -= fits
            super().write(fd, data[:fits])
            if fits < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return
        super().write(fd, data)

    def datasync(self, fd: int) -> None:
        self._call("datasync")
        self.syncing.set()
        self.gate.wait()
        super().datasync(fd)

    def sync_dir(self, path: Path) -> None:
        self._call("sync_dir")
        super().sync_dir(path)

    def truncate(self, path: Path, size: int) -> None:
        self._call("truncate")
        super().truncate(path, size)

    def rename(self, old: Path, new: Path) -> None:
        self._call("rename")
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._call("unlink")
        super().unlink(path)

    def free_bytes(self, path: Path) -> int:
        return super().free_bytes(path) if self.free is None else self.free
