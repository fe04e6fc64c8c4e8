"""Random operations give the same `load()` from the segment log and from a reference kept in SQLite."""

import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from spur_ctld.replication.api import LogStore, Stored
from spur_ctld.replication.log import SegmentLog
from spur_ctld.replication.types import Entry, HardState, Position


class SqliteLog:
    """The reference: the same contract, said in SQL."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("create table if not exists entry (idx integer primary key, body blob)")
        self._db.execute("create table if not exists said (name text primary key, body blob)")

    def _get(self, name: str, kind: type) -> object:
        row = self._db.execute("select body from said where name = ?", (name,)).fetchone()
        return msgspec.msgpack.decode(row[0], type=kind) if row else kind()

    def _set(self, name: str, value: object) -> None:
        self._db.execute("replace into said values (?, ?)", (name, msgspec.msgpack.encode(value)))

    def load(self) -> Stored:
        rows = self._db.execute("select body from entry order by idx").fetchall()
        entries = [msgspec.msgpack.decode(row[0], type=Entry) for row in rows]
        return Stored(self._get("hard", HardState), self._get("base", Position), entries)

    def write(
        self,
        hard: HardState | None,
        first: int,
        entries: Sequence[Entry],
        restart_at: Position | None = None,
    ) -> None:
        self._db.execute("begin")
        if hard is not None:
            self._set("hard", hard)
        if restart_at is not None:
            self._db.execute("delete from entry")
            self._set("base", restart_at)
        if entries:
            self._db.execute("delete from entry where idx >= ?", (first,))
            rows = [(entry.index, msgspec.msgpack.encode(entry)) for entry in entries]
            self._db.executemany("insert into entry values (?, ?)", rows)
        self._db.execute("commit")

    def compact(self, index: int) -> None:
        row = self._db.execute("select body from entry where idx = ?", (index,)).fetchone()
        if row:
            entry = msgspec.msgpack.decode(row[0], type=Entry)
            self._set("base", Position(index, entry.term))
            self._db.execute("delete from entry where idx <= ?", (index,))

    def close(self) -> None:
        self._db.close()


OPERATION = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6), st.booleans(), st.integers(0, 80)),
    st.tuples(st.just("replace"), st.integers(0, 12), st.integers(1, 4)),
    st.tuples(st.just("vote"), st.integers(0, 3)),
    st.tuples(st.just("restart"), st.integers(0, 20), st.integers(0, 3)),
    st.tuples(st.just("compact"), st.integers(0, 30)),
    st.tuples(st.just("reopen")),
)


class Pair:
    """Both stores under the same operations."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "log").mkdir()
        self.term = 1
        self.committed = 0
        self._open()

    def _stores(self) -> tuple[LogStore, LogStore]:
        return self._segments, self._sqlite

    def _open(self) -> None:
        self._segments = SegmentLog(self._folder / "log", segment_bytes=250)
        self._sqlite = SqliteLog(self._folder / "reference.db")
        mine, reference = self._segments.load(), self._sqlite.load()
        # The segment log may keep more than it must, never less.
        assert mine.hard == reference.hard
        assert mine.base.index <= reference.base.index
        kept = [entry for entry in mine.entries if entry.index > reference.base.index]
        assert kept == reference.entries
        skipped = mine.entries[: len(mine.entries) - len(kept)]
        known = [mine.base, *(Position(entry.index, entry.term) for entry in skipped)]
        assert known[-1] == reference.base
        self.base = reference.base
        self.last = reference.base.index + len(reference.entries)

    def reopen(self) -> None:
        for store in self._stores():
            store.close()
        self._open()

    def _write(self, first: int, sizes: list[int], hard: HardState | None, restart: Position | None) -> None:
        entries = [
            Entry(first + at, self.term, None if size == 0 else b"e" * size) for at, size in enumerate(sizes)
        ]
        for store in self._stores():
            store.write(hard, first, entries, restart)
        if restart:
            self.base = restart
        self.last = first + len(sizes) - 1 if sizes else restart.index if restart else self.last

    def do(self, operation: tuple) -> None:
        match operation:
            case ("append", count, new_term, size):
                self.term += new_term
                hard = HardState(self.term, 1) if new_term else None
                self._write(self.last + 1, [size] * count, hard, None)
            case ("replace", back, count):
                # As in the protocol: never what was committed, so never what may be compacted.
                first = max(self.last + 1 - back, self.base.index + 1, self.committed + 1)
                self.term += 1
                self._write(first, [5] * count, HardState(self.term, 2), None)
            case ("vote", vote):
                self._write(self.last + 1, [], HardState(self.term, vote), None)
            case ("restart", ahead, count):
                at = Position(max(self.last - 3, self.committed, self.base.index) + ahead, self.term)
                self.committed = at.index
                self._write(at.index + 1, [7] * count, None, at)
            case ("compact", index):
                index = min(index + self.base.index, self.last)
                self.committed = max(self.committed, index)
                for store in self._stores():
                    store.compact(index)
                self.base = Position(max(index, self.base.index), 0)
            case ("reopen",):
                self.reopen()


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATION, max_size=40))
def test_both_stores_agree(operations: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(Path(folder))
        try:
            for operation in operations:
                pair.do(operation)
        finally:
            pair.reopen()
            for store in pair._stores():
                store.close()
