"""What survives a crash of a simulated member: a model of a disk, and the real stores on volatile files."""

import random
import shutil
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import msgspec

from spur_ctld.replication.errors import BadSnapshot
from spur_ctld.replication.log import SegmentLog
from spur_ctld.replication.recovery import _join, choose_snapshot
from spur_ctld.replication.snapshots import SnapshotStore
from spur_ctld.replication.testing.invariants import Violation
from spur_ctld.replication.testing.volatile import PowerLoss, VolatileFiles
from spur_ctld.replication.types import ORIGIN, Entry, HardState, Position, Ready

CLUSTER = "simulated"


class State(msgspec.Struct, frozen=True, array_like=True):
    """A state machine that is nothing but the digest of all commands up to `index`."""

    index: int = 0
    digest: bytes = b""

    def after(self, entry: Entry) -> "State":
        if entry.data is None:
            return State(entry.index, self.digest)
        return State(entry.index, blake2b(self.digest + entry.data, digest_size=8).digest())


class Loaded(msgspec.Struct, frozen=True):
    """What a member starts with."""

    hard: HardState
    base: Position
    entries: list[Entry]
    snapshot: Position
    state: State


class Disk(Protocol):
    """One member's directory.  Calls take no simulated time: the member calls when the time has passed.

    `torn...`: the power goes during it; `power_off` always follows a life.
    """

    hard: HardState

    def load(self) -> Loaded: ...
    def write(self, ready: Ready) -> None: ...
    def torn(self, ready: Ready) -> None: ...
    def power_off(self) -> None: ...
    def format(self, hard: HardState) -> None: ...
    def holds(self, index: int, term: int) -> bool: ...
    def take(self, meta: Position, state: State, *, prune: bool) -> int: ...
    def prune(self) -> None: ...
    def torn_snapshot(self, meta: Position, state: State) -> None: ...
    def compact(self, index: int) -> None: ...
    def torn_compact(self, index: int) -> None: ...
    def state_at(self, meta: Position) -> State | None: ...


class Terms:
    """The terms that a disk holds durably, for the invariants."""

    def __init__(self) -> None:
        self._covered = 0
        self._terms: list[int] = []

    def set(self, base: int, entries: Iterable[Entry]) -> None:
        """All of it."""
        self._covered = base
        self._terms = [entry.term for entry in entries]

    def put(self, first: int, entries: Iterable[Entry]) -> None:
        """Replace everything from `first` on."""
        del self._terms[first - 1 - self._covered :]
        self._terms += [entry.term for entry in entries]

    def holds(self, index: int, term: int) -> bool:
        at = index - self._covered - 1
        return at < 0 or (at < len(self._terms) and self._terms[at] == term)


class MemoryDisk:
    """The model: a write is on the disk whole or not at all."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.format(HardState())

    def format(self, hard: HardState) -> None:
        self.hard = hard
        self._base = ORIGIN
        self._entries: list[Entry] = []
        self._snapshots = {ORIGIN: State()}

    def load(self) -> Loaded:
        snapshot = max(self._snapshots, key=lambda meta: (meta.index, meta.term))
        at = snapshot.index - self._base.index
        known = at <= len(self._entries) and (at == 0 or self._entries[at - 1].term == snapshot.term)
        if not known:
            # A crash between a received snapshot and its restart frame.
            self._base, self._entries = snapshot, []
        return Loaded(self.hard, self._base, list(self._entries), snapshot, self._snapshots[snapshot])

    def write(self, ready: Ready) -> None:
        if ready.hard is not None:
            self.hard = ready.hard
        if ready.install_snapshot is not None:
            self._base = ready.install_snapshot
            self._entries = []
        if ready.entries:
            if not self._base.index < ready.first <= self._base.index + len(self._entries) + 1:
                raise Violation(f"a write at {ready.first} leaves a gap after {len(self._entries)}")
            del self._entries[ready.first - 1 - self._base.index :]
            self._entries += ready.entries

    def torn(self, ready: Ready) -> None:
        if self._rng.random() < 0.5:
            self.write(ready)

    def power_off(self) -> None:
        pass

    def holds(self, index: int, term: int) -> bool:
        at = index - self._base.index - 1
        return at < 0 or (at < len(self._entries) and self._entries[at].term == term)

    def take(self, meta: Position, state: State, *, prune: bool) -> int:
        self._snapshots[meta] = state
        if prune:
            self.prune()
        return min(meta.index for meta in self._snapshots)

    def prune(self) -> None:
        for old in sorted(self._snapshots, key=lambda meta: (meta.index, meta.term))[:-2]:
            del self._snapshots[old]

    def torn_snapshot(self, meta: Position, state: State) -> None:
        if self._rng.random() < 0.3:
            self.take(meta, state, prune=False)

    def compact(self, index: int) -> None:
        count = index - self._base.index
        if 0 < count <= len(self._entries):
            last = self._entries[count - 1]
            self._base = Position(last.index, last.term)
            del self._entries[:count]

    def torn_compact(self, index: int) -> None:
        if self._rng.random() < 0.5:
            self.compact(index)

    def state_at(self, meta: Position) -> State | None:
        return self._snapshots.get(meta)


class FileDisk:
    """The real stores, on files that forget."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self._rng = rng
        self._folder = folder
        self.format(HardState())

    def format(self, hard: HardState) -> None:
        self.hard = hard
        self._terms = Terms()
        shutil.rmtree(self._folder, ignore_errors=True)
        for name in ("log", "snap", "grave"):
            (self._folder / name).mkdir(parents=True)
        self._files = VolatileFiles(self._rng, self._folder / "grave")
        self._log = self._new_log()
        self._log.load()
        self._log.write(hard, 1, ())
        self._snapshots = self._new_store()
        self.power_off()

    def _new_log(self) -> SegmentLog:
        return SegmentLog(self._folder / "log", self._files, segment_bytes=1000)

    def _new_store(self) -> SnapshotStore:
        return SnapshotStore(self._folder / "snap", CLUSTER, self._files)

    def load(self) -> Loaded:
        while True:
            # The power may go again while the log is being repaired.
            self._files.cut_in(self._rng.randrange(3) if self._rng.random() < 0.2 else None)
            try:
                return self._load()
            except PowerLoss:
                self.power_off()
            finally:
                self._files.cut_in(None)

    def _load(self) -> Loaded:
        self._log = self._new_log()
        stored = self._log.load()
        self._snapshots = self._new_store()
        self._snapshots.clean()
        snapshot = choose_snapshot(self._snapshots, stored)
        stored = _join(self._log, stored, snapshot)
        state = State() if snapshot == ORIGIN else self.state_at(snapshot)
        assert state is not None
        self.hard = stored.hard
        self._terms.set(stored.base.index, stored.entries)
        return Loaded(stored.hard, stored.base, stored.entries, snapshot, state)

    def write(self, ready: Ready) -> None:
        if not ready.writes:
            return
        self._log.write(ready.hard, ready.first, ready.entries, ready.install_snapshot)
        if ready.hard is not None:
            self.hard = ready.hard
        if ready.install_snapshot is not None:
            self._terms.set(ready.install_snapshot.index, ())
        if ready.entries:
            self._terms.put(ready.first, ready.entries)

    def torn(self, ready: Ready) -> None:
        with self._cut(6):
            self._log.write(ready.hard, ready.first, ready.entries, ready.install_snapshot)

    def _cut(self, calls: int) -> "_Cut":
        return _Cut(self._files, self._rng.randrange(calls))

    def power_off(self) -> None:
        self._files.power_off()

    def holds(self, index: int, term: int) -> bool:
        return self._terms.holds(index, term)

    def take(self, meta: Position, state: State, *, prune: bool) -> int:
        self._snapshots.write(meta, _chunks(state))
        if prune:
            self.prune()
        return self._snapshots.list()[-1].index

    def prune(self) -> None:
        self._snapshots.prune()

    def torn_snapshot(self, meta: Position, state: State) -> None:
        with self._cut(12):
            self._snapshots.write(meta, _chunks(state))

    def compact(self, index: int) -> None:
        self._log.compact(index)

    def torn_compact(self, index: int) -> None:
        with self._cut(4):
            self._log.compact(index)

    def state_at(self, meta: Position) -> State | None:
        try:
            return msgspec.msgpack.decode(b"".join(self._snapshots.read(meta)), type=State)
        except BadSnapshot:
            return None


class _Cut:
    """The power goes somewhere in the block, or right after it."""

    def __init__(self, files: VolatileFiles, calls: int) -> None:
        self._files = files
        self._calls = calls

    def __enter__(self) -> None:
        self._files.cut_in(self._calls)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        self._files.cut_in(None)
        return kind is PowerLoss


def _chunks(state: State) -> Iterator[bytes]:
    data = msgspec.msgpack.encode(state)
    yield data[:5]
    yield data[5:]
