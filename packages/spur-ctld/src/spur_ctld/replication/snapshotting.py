"""Own snapshots: when one is due, and writing it beside everything else."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from spur_ctld.replication.shared import Shared
from spur_ctld.replication.types import Position, SnapshotMeta

_log = logging.getLogger(__name__)


class _Stopping(Exception):
    """Ends the encoding of a snapshot that nobody waits for."""


class _Written(NamedTuple):
    """One that was written.  `oldest`: index up to which the disk's log may go; `digest`: of the state."""

    meta: SnapshotMeta
    oldest: int
    size: int
    seconds: float
    digest: str


class Snapshotting:
    """Takes snapshots of the running state; the log behind them goes.

    Attributes:
        busy: one is being written.
        since: bytes applied since the last.
        count, seconds: written since the start.
        size: bytes of the newest.
    """

    def __init__(self, shared: Shared, size: int) -> None:
        self._shared = shared
        self.busy = False
        self.since = 0
        self.count = 0
        self.seconds = 0.0
        self.size = size
        #: Members that can be reached.
        self.in_touch: Callable[[], Iterable[int]] = lambda: ()
        #: Called when one was written; others may be asked for theirs.
        self.taken: Callable[[], None] = lambda: None
        #: One is due, but there is no room for it.
        self._cramped = False

    def maybe(self) -> None:
        """Begin one if it is due."""
        shared = self._shared
        core, limits = shared.core, shared.limits
        fresh = core.applied - core.snapshot.index
        if self.busy or shared.stopping or fresh <= 0:
            return
        # At the same places on all members, so that their states can be compared.
        together = core.applied % limits.snapshot_entries == 0
        if fresh < limits.snapshot_entries and self.since < limits.snapshot_bytes and not together:
            return
        term = core.log.term_at(core.applied)
        if term is None:
            return  # a snapshot of another member is being installed
        # A snapshot that fills the disk would end the process, again after every restart; without one the
        # log grows until commands are refused, and everything else goes on.
        cramped = not shared.disk.holds(self.size)
        if cramped != self._cramped:
            self._cramped = cramped
            if cramped:
                _log.warning("snapshot_put_off path=%s free=%d", shared.opened.folder, shared.disk.last.free)
        if cramped:
            return
        self.busy = True
        self.since = 0
        meta = Position(core.applied, term)
        chunks = shared.machine.freeze()
        shared.snapshot_thread.submit(lambda: self._write(meta, chunks), self._written, self._failed)

    def until(self, applied: int, most: int) -> int:
        """How many entries, at most `most`, may follow `applied` in one go: not past the next place."""
        every = self._shared.limits.snapshot_entries
        return min(most, every - applied % every)

    def _write(self, meta: SnapshotMeta, chunks: Iterator[bytes]) -> "_Written":
        """In the snapshot thread."""
        began = time.perf_counter()
        store = self._shared.opened.snapshots
        digest = getattr(chunks, "digest", str)()
        size = store.write(meta, self._unless_stopping(chunks), lambda: digest)
        store.prune()
        # The older of the two must stay usable too.
        return _Written(meta, store.list()[-1].index, size, time.perf_counter() - began, digest)

    def _unless_stopping(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if self._shared.stopping:
                raise _Stopping
            yield chunk

    def _written(self, done: "_Written") -> None:
        meta, oldest, size, seconds, digest = done
        shared = self._shared
        self.busy = False
        self.count += 1
        self.size = size
        self.seconds += seconds
        _log.info("snapshot_written index=%d bytes=%d seconds=%.3f", meta.index, size, seconds)
        shared.digests.record(meta.index, digest)
        self.taken()
        keep = shared.core.snapshot_taken(meta, self._keep(meta.index))
        if shared.usable:
            shared.log_thread.submit(
                lambda: shared.opened.log.compact(min(keep, oldest)), lambda _: None, shared.fail
            )
            shared.wake()

    def _keep(self, index: int) -> int:
        """Entries to keep behind a snapshot at `index`.

        More than usual while a member that is in touch has yet to get there: the snapshot on its way to it
        would otherwise be too old when it arrives, for ever.
        """
        limits = self._shared.limits
        behind = index - self._shared.core.needed(self.in_touch())
        return max(limits.keep_entries, min(behind, limits.catch_up_entries))

    def _failed(self, error: BaseException) -> None:
        self.busy = False
        if not isinstance(error, _Stopping):
            self._shared.fail(error)
