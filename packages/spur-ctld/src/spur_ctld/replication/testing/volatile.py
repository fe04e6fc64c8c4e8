"""A file layer that forgets what was not synced when the power goes."""

import os
import random
from collections.abc import Callable
from pathlib import Path

from spur_ctld.replication.files import Files


class PowerLoss(Exception):
    """The power went in the middle of a call."""


class VolatileFiles(Files):
    """Real files, real names, no real syncs: it remembers what a sync would have saved.

    After `power_off` every file has what was synced plus a random part of the rest, perhaps as rubbish; of
    the names created, renamed and removed since the directory's last sync a random number of the oldest
    remain, as in a journal.
    """

    def __init__(self, rng: random.Random, grave: Path) -> None:
        self._rng = rng
        self._grave = grave
        self._graves = 0
        self._open: dict[int, Path] = {}
        self._synced: dict[Path, int] = {}
        #: Directory -> what takes each change of names since its last sync back.
        self._undo: dict[Path, list[Callable[[], None]]] = {}
        self._left: int | None = None

    def cut_in(self, calls: int | None) -> None:
        """The power goes in the call after `calls` more; None = not."""
        self._left = calls

    def _step(self) -> bool:
        """True when this call is the last one."""
        if self._left is None:
            return False
        self._left -= 1
        return self._left < 0

    def _call(self) -> None:
        if self._step():
            raise PowerLoss

    def create(self, path: Path) -> int:
        self._call()
        fd = super().create(path)
        self._open[fd] = path
        self._synced[path] = 0
        self._changed(path, lambda: path.unlink(missing_ok=True))
        return fd

    def open_append(self, path: Path) -> int:
        fd = super().open_append(path)
        self._open[fd] = path
        self._synced.setdefault(path, path.stat().st_size)
        return fd

    def write(self, fd: int, data: bytes | bytearray) -> None:
        if self._step():
            super().write(fd, data[: self._rng.randrange(len(data) + 1)])
            raise PowerLoss
        super().write(fd, data)

    def datasync(self, fd: int) -> None:
        self._call()
        self._synced[self._open[fd]] = os.fstat(fd).st_size

    def sync_dir(self, path: Path) -> None:
        self._call()
        self._undo.pop(path, None)

    def truncate(self, path: Path, size: int) -> None:
        self._call()
        os.truncate(path, size)
        self._synced[path] = size

    def rename(self, old: Path, new: Path) -> None:
        self._call()
        replaced = self._bury(new) if new.exists() else None
        synced = self._synced.get(new)
        old.rename(new)
        self._synced[new] = self._synced.pop(old, 0)

        def undo() -> None:
            new.rename(old)
            self._synced[old] = self._synced.pop(new, 0)
            if replaced is not None:
                replaced.rename(new)
                self._synced[new] = synced or 0

        self._changed(new, undo)

    def unlink(self, path: Path) -> None:
        self._call()
        grave = self._bury(path)
        synced = self._synced.pop(path, grave.stat().st_size)

        def undo() -> None:
            grave.rename(path)
            self._synced[path] = synced

        self._changed(path, undo)

    def close(self, fd: int) -> None:
        super().close(fd)
        del self._open[fd]

    def power_off(self) -> None:
        """Everything that was not synced is at the mercy of chance."""
        self._left = None
        for fd in list(self._open):
            self.close(fd)
        for undo in self._undo.values():
            for back in reversed(undo[self._rng.randrange(len(undo) + 1) :]):
                back()
        self._undo.clear()
        for path, synced in list(self._synced.items()):
            if not path.exists():
                del self._synced[path]
                continue
            size = path.stat().st_size
            if size > synced:
                self._tear(path, synced, size)
            self._synced[path] = path.stat().st_size

    def _tear(self, path: Path, synced: int, size: int) -> None:
        kept = self._rng.randrange(synced, size + 1)
        os.truncate(path, kept)
        if self._rng.random() < 0.3:
            with path.open("r+b") as file:
                file.seek(self._rng.randrange(synced, kept + 1))
                file.write(
                    self._rng.choice((bytes(size - file.tell()), self._rng.randbytes(size - file.tell())))
                )

    def _changed(self, path: Path, undo: Callable[[], None]) -> None:
        self._undo.setdefault(path.parent, []).append(undo)

    def _bury(self, path: Path) -> Path:
        self._graves += 1
        grave = self._grave / str(self._graves)
        path.rename(grave)
        return grave
