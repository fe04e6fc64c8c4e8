"""Snapshot files: whole or refused, wherever they are cut, and named only when durable."""

from pathlib import Path

import pytest

from spur_core.errors import StateError
from spur_ctld.replication.api import Stored
from spur_ctld.replication.errors import BadSnapshot
from spur_ctld.replication.recovery import choose_snapshot
from spur_ctld.replication.snapshots import SnapshotStore
from spur_ctld.replication.testing.files import FailingFiles
from spur_ctld.replication.types import ORIGIN, Entry, HardState, Position

META = Position(7, 2)
CHUNKS = [b"one", b"", b"three" * 20]


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path, "cluster")


def log_of(base: int, last: int, term: int = 2) -> Stored:
    entries = [Entry(index, term, b"") for index in range(base + 1, last + 1)]
    return Stored(HardState(term, 1), Position(base, term if base else 0), entries)


def test_what_is_written_is_read(store: SnapshotStore) -> None:
    size = store.write(META, CHUNKS)
    assert list(store.read(META)) == CHUNKS
    assert store.list() == [META]
    assert store.path(META).stat().st_size == size
    assert store.path(META).stat().st_mode & 0o777 == 0o600


def test_an_empty_state_is_a_snapshot_too(store: SnapshotStore) -> None:
    store.write(META, [])
    assert list(store.read(META)) == []


def test_every_cut_is_refused(store: SnapshotStore) -> None:
    store.write(META, CHUNKS)
    path = store.path(META)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(BadSnapshot, match="snap-"):
            store.verify(META)
    path.write_bytes(whole + b"\0")
    with pytest.raises(BadSnapshot, match="follows the footer"):
        store.verify(META)


def test_every_flipped_bit_is_refused(store: SnapshotStore) -> None:
    store.write(META, CHUNKS)
    path = store.path(META)
    whole = bytearray(path.read_bytes())
    for at in range(len(whole)):
        for bit in range(8):
            whole[at] ^= 1 << bit
            path.write_bytes(whole)
            with pytest.raises(BadSnapshot):
                store.verify(META)
            whole[at] ^= 1 << bit


def test_chunks_cannot_change_places(store: SnapshotStore) -> None:
    store.write(META, [b"aaaa", b"bbbb"])
    path = store.path(META)
    data = path.read_bytes()
    size = 9 + 4
    start = data.index(b"C", 8)
    first, second = data[start : start + size], data[start + size : start + 2 * size]
    path.write_bytes(data[:start] + second + first + data[start + 2 * size :])
    with pytest.raises(BadSnapshot, match="record 1 is damaged"):
        store.verify(META)


@pytest.mark.parametrize(
    ("cluster", "schema", "text"),
    [("other", 3, "belongs to another cluster"), ("cluster", 2, "written by a newer release")],
)
def test_a_foreign_file_is_refused(tmp_path: Path, cluster: str, schema: int, text: str) -> None:
    SnapshotStore(tmp_path, "cluster", schema=3).write(META, CHUNKS)
    with pytest.raises(BadSnapshot, match=text):
        SnapshotStore(tmp_path, cluster, schema=schema).verify(META)


def test_a_renamed_file_is_refused(store: SnapshotStore) -> None:
    store.write(META, CHUNKS)
    store.path(META).rename(store.path(Position(8, 2)))
    with pytest.raises(BadSnapshot, match="holds position 7, its name says 8"):
        store.verify(Position(8, 2))


def test_a_failure_at_any_stage_leaves_no_snapshot_but_the_old_one(tmp_path: Path) -> None:
    files = FailingFiles()
    store = SnapshotStore(tmp_path, "cluster", files)
    store.write(Position(3, 1), CHUNKS)
    stages = list(files.calls)
    assert stages[-3:] == ["datasync", "rename", "sync_dir"]
    for number in range(len(stages)):
        files.calls.clear()
        files.fail_at, files.torn = number, True
        with pytest.raises(OSError, match="Input/output"):
            store.write(META, CHUNKS)
        files.fail_at = None
        store.clean()
        if stages[number] == "sync_dir":
            assert store.list() == [META, Position(3, 1)], "renamed, though not known to be durable"
            store.path(META).unlink()
        assert [path.name for path in tmp_path.iterdir()] == [store.path(Position(3, 1)).name]
    store.write(META, CHUNKS)
    assert store.list() == [META, Position(3, 1)]


def test_the_newest_two_are_kept(store: SnapshotStore) -> None:
    for index in (5, 9, 7, 300):
        store.write(Position(index, 1), CHUNKS)
    store.prune()
    assert store.list() == [Position(300, 1), Position(9, 1)]


def test_an_unreadable_newest_falls_back_when_the_log_reaches_back(
    store: SnapshotStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.write(Position(10, 2), [b"old"])
    store.write(Position(20, 2), [b"new"])
    assert choose_snapshot(store, log_of(5, 30)) == Position(20, 2)
    store.path(Position(20, 2)).write_bytes(b"torn")
    assert choose_snapshot(store, log_of(5, 30)) == Position(10, 2)
    assert "snapshot_unreadable" in caplog.text
    with pytest.raises(StateError, match="begins only after 15"):
        choose_snapshot(store, log_of(15, 30))


def test_without_snapshots_the_log_must_begin_at_the_beginning(store: SnapshotStore) -> None:
    assert choose_snapshot(store, log_of(0, 30)) == ORIGIN
    with pytest.raises(StateError, match="there is none"):
        choose_snapshot(store, log_of(3, 30))


def test_an_older_snapshot_that_the_log_does_not_contain_is_not_used(store: SnapshotStore) -> None:
    store.write(Position(10, 1), [b"old"])
    store.write(Position(20, 2), [b"new"])
    store.path(Position(20, 2)).write_bytes(b"torn")
    with pytest.raises(StateError, match="does not contain its position"):
        choose_snapshot(store, log_of(5, 30))
