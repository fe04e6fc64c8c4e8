"""A file system that fails: nothing half written is ever taken for whole, and a failed store stays failed."""

import errno
from pathlib import Path

import pytest

from spur_ctld.replication.log import SegmentLog
from spur_ctld.replication.testing.files import FailingFiles
from spur_ctld.replication.types import Entry, HardState


def run(folder: Path, files: FailingFiles, acknowledged: list[int]) -> None:
    """Thirty writes with rolls and compaction; what returned is acknowledged."""
    log = SegmentLog(folder, files, segment_bytes=400)
    try:
        log.load()
        for index in range(1, 31):
            log.write(HardState(1, 1) if index == 1 else None, index, [Entry(index, 1, b"x" * 60)])
            acknowledged.append(index)
            if index % 10 == 0:
                log.compact(index - 5)
    finally:
        log.close()


def test_every_call_may_fail_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    files = FailingFiles()
    (tmp_path / "whole").mkdir()
    run(tmp_path / "whole", files, [])
    assert set(files.calls) == {"create", "write", "datasync", "sync_dir", "unlink"}
    for number in range(len(files.calls)):
        for torn in (False, True):
            folder = tmp_path / f"{number}-{torn}"
            folder.mkdir()
            failing = FailingFiles()
            failing.fail_at, failing.torn = number, torn
            acknowledged: list[int] = []
            with pytest.raises(OSError, match="Input/output error"):
                run(folder, failing, acknowledged)
            log = SegmentLog(folder)
            stored = log.load()
            log.close()
            last = stored.base.index + len(stored.entries)
            assert last >= max(acknowledged, default=0)
            assert last <= len(acknowledged) + 1, "at most the write that failed"


def test_a_write_is_one_write_and_one_sync_and_new_names_are_synced(tmp_path: Path) -> None:
    files = FailingFiles()
    log = SegmentLog(tmp_path, files, segment_bytes=150)
    log.load()
    done = []
    for index in range(1, 5):
        files.calls.clear()
        log.write(HardState(1, 1) if index == 1 else None, index, [Entry(index, 1, b"x" * 60)])
        done.append(list(files.calls))
    begun = ["create", "write", "datasync", "sync_dir"]
    assert done == [begun, ["write", "datasync"], begun, ["write", "datasync"]]
    files.calls.clear()
    log.compact(2)
    assert files.calls == ["unlink", "sync_dir"]
    log.close()


def test_a_failed_store_refuses_everything(tmp_path: Path) -> None:
    files = FailingFiles()
    log = SegmentLog(tmp_path, files)
    log.load()
    log.write(HardState(1, 1), 1, ())
    files.fail_names = frozenset({"datasync"})
    with pytest.raises(OSError, match="Input/output"):
        log.write(None, 1, [Entry(1, 1, b"x")])
    files.fail_names = frozenset()
    with pytest.raises(ValueError, match="failed before"):
        log.write(None, 1, [Entry(1, 1, b"x")])
    with pytest.raises(ValueError, match="failed before"):
        log.compact(0)
    log.close()


def test_a_full_disk_loses_only_the_write_that_met_it(tmp_path: Path) -> None:
    for room in range(0, 400, 13):
        folder = tmp_path / str(room)
        folder.mkdir()
        files = FailingFiles()
        files.room = room
        acknowledged: list[int] = []
        with pytest.raises(OSError) as caught:
            run(folder, files, acknowledged)
        assert caught.value.errno == errno.ENOSPC
        log = SegmentLog(folder)
        assert [entry.index for entry in log.load().entries] == acknowledged
        # Room again: the log goes on where it was.
        log.write(HardState(1, 1), len(acknowledged) + 1, [Entry(len(acknowledged) + 1, 1, b"y")])
        log.close()
