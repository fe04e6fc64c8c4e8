"""Damage anywhere in a member's directory: refused, or exactly what was acknowledged."""

import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spur_core.errors import StateError
from spur_ctld.raft_tools.survey import survey
from spur_ctld.replication.api import Stored
from spur_ctld.replication.errors import CorruptLog
from spur_ctld.replication.files import Files
from spur_ctld.replication.frames import read
from spur_ctld.replication.log import SegmentLog
from spur_ctld.replication.meta import Member
from spur_ctld.replication.recovery import Opened, open_directory
from spur_ctld.replication.types import Entry, HardState, Position

ONE = (Member(1),)
LAST = 14


def load(folder: Path) -> Stored:
    log = SegmentLog(folder)
    try:
        return log.load()
    finally:
        log.close()


def reset(folder: Path, content: dict[str, bytes]) -> None:
    for path in folder.iterdir():
        if path.name not in content:
            path.unlink()
    for name, data in content.items():
        (folder / name).write_bytes(data)


def frames(data: bytes) -> list[int]:
    """Where each frame begins, and the end."""
    found = [0]
    while found[-1] < len(data):
        step = read(data, found[-1])
        assert step is not None
        found.append(step[2])
    return found


@pytest.fixture
def rolled(tmp_path: Path) -> Path:
    """Four segments; votes, replaced entries and frames without entries among them."""
    folder = tmp_path / "log"
    folder.mkdir()
    log = SegmentLog(folder, segment_bytes=140)
    log.load()
    log.write(HardState(1, 1), 1, [Entry(1, 1, None), Entry(2, 1, b"a" * 30)])
    log.write(HardState(2, 0), 3, [])
    log.write(None, 3, [Entry(3, 2, b"b" * 40)])
    log.write(HardState(3, 2), 3, [Entry(3, 3, b"c" * 40), Entry(4, 3, b"")])
    log.write(None, 5, [Entry(index, 3, b"d" * index) for index in range(5, 10)])
    log.write(None, 8, [Entry(8, 3, b"again")])
    log.write(HardState(5, 1), 9, [Entry(index, 5, b"e" * 20) for index in range(9, 13)])
    log.write(None, 13, [Entry(13, 5, b"f" * 50)])
    log.write(HardState(6, 3), 14, [Entry(14, 6, b"g" * 25)])
    log.close()
    return folder


def test_every_bit_before_the_last_frame_matters(rolled: Path) -> None:
    content = {path.name: path.read_bytes() for path in rolled.iterdir()}
    newest = max(content)
    assert len(content) >= 4
    flipped = 0
    for name, data in content.items():
        end = frames(data)[-2] if name == newest else len(data)
        changed = bytearray(data)
        for at in range(end):
            for bit in range(8):
                changed[at] ^= 1 << bit
                (rolled / name).write_bytes(changed)
                with pytest.raises(CorruptLog, match=name):
                    load(rolled)
                changed[at] ^= 1 << bit
                flipped += 1
        (rolled / name).write_bytes(data)
    assert flipped > 2353
    assert load(rolled).entries[-1] == Entry(LAST, 6, b"g" * 25)


def test_every_cut_of_each_frame_while_it_was_the_last(rolled: Path) -> None:
    """Each write in turn is the one that the power interrupts: what was before it is there, and only that."""
    content = {path.name: path.read_bytes() for path in rolled.iterdir()}
    names = sorted(content)
    cuts = 0
    for number, name in enumerate(names):
        data = content[name]
        older = {one: content[one] for one in names[:number]}
        edges = frames(data)
        for start, end in itertools.pairwise(edges):
            reset(rolled, {**older, name: data[:start]} if start else older)
            before = load(rolled)
            for size in range(start, end):
                reset(rolled, {**older, name: data[:size]})
                assert load(rolled) == before, (name, size)
                left = {path.name: path.stat().st_size for path in rolled.iterdir()}
                assert left == {one: len(rest) for one, rest in older.items()} | (
                    {name: start} if start else {}
                )
                cuts += 1
    assert cuts > 500


def test_every_cut_of_a_restart_leads_back_to_the_snapshot(tmp_path: Path) -> None:
    """The file of a received snapshot is durable before the restart frame is."""
    state_dir = tmp_path / "state"
    opened = open_directory(state_dir, 1, ONE, Files(), schema=1)
    opened.log.write(HardState(2, 1), 1, [Entry(index, 2, b"old") for index in range(1, 6)])
    opened.snapshots.write(Position(50, 4), [b"received"])
    opened.log.write(HardState(5, 0), 51, (), Position(50, 4))
    opened.log.close()
    opened.lock.release()
    folder = state_dir / "raft" / "log"
    *_, newest = sorted(folder.iterdir())
    whole = newest.read_bytes()
    for size in range(len(whole) + 1):
        for path in folder.iterdir():
            if path.name > newest.name:
                path.unlink()
        newest.write_bytes(whole[:size])
        opened = open_directory(state_dir, 1, ONE, Files(), schema=1)
        assert (opened.snapshot, opened.stored.base) == (Position(50, 4), Position(50, 4))
        assert opened.stored.entries == []
        assert opened.stored.hard == (HardState(5, 0) if size == len(whole) else HardState(2, 1))
        opened.log.write(None, 51, [Entry(51, 5, b"next")])
        opened.log.close()
        opened.lock.release()
        again = open_directory(state_dir, 1, ONE, Files(), schema=1)
        assert again.stored.entries == [Entry(51, 5, b"next")]
        again.log.close()
        again.lock.release()


def make_directory(state_dir: Path) -> dict[str, bytes]:
    """Two snapshots and a compacted log of several segments; every file by its path."""
    opened = open_directory(state_dir, 1, ONE, Files(), schema=1, segment_bytes=150)
    for index in range(1, LAST + 1):
        opened.log.write(
            HardState(1, 1) if index == 1 else None, index, [Entry(index, 1, b"%d" % index * 20)]
        )
    for at in (6, 11):
        opened.snapshots.write(Position(at, 1), [b"state %d" % at, b"x" * 40])
    opened.log.compact(6)
    opened.log.close()
    opened.lock.release()
    raft = state_dir / "raft"
    return {str(path.relative_to(raft)): path.read_bytes() for path in raft.rglob("*") if path.is_file()}


def open_or_say(state_dir: Path) -> Opened | str:
    """The directory, or why it is refused."""
    try:
        return open_directory(state_dir, 1, ONE, Files(), schema=1)
    except StateError as error:
        return error.text


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_no_damage_is_taken_for_less_than_was_acknowledged(data: st.DataObject) -> None:
    """Bytes changed, files cut, grown, emptied or gone: a start is refused, or it has everything.

    Everything but the last frame, of which nobody can tell whether it was acknowledged, and but what a newest
    segment loses that ends early as a whole.
    """
    with tempfile.TemporaryDirectory() as folder:
        state_dir = Path(folder) / "state"
        content = make_directory(state_dir)
        content.pop("lock")
        name = data.draw(st.sampled_from(sorted(content)))
        whole = content[name]
        harm = data.draw(st.sampled_from(["flip", "zero", "cut", "grow", "empty", "gone", "swap"]))
        path = state_dir / "raft" / name
        at = data.draw(st.integers(0, len(whole) - 1))
        if harm == "flip":
            path.write_bytes(
                whole[:at] + bytes([whole[at] ^ (1 << data.draw(st.integers(0, 7)))]) + whole[at + 1 :]
            )
        elif harm == "zero":
            width = data.draw(st.integers(1, 600))
            path.write_bytes(whole[:at] + bytes(len(whole[at : at + width])) + whole[at + width :])
        elif harm == "cut":
            path.write_bytes(whole[:at])
        elif harm == "grow":
            path.write_bytes(whole + data.draw(st.binary(min_size=1, max_size=40)))
        elif harm == "empty":
            path.write_bytes(b"")
        elif harm == "gone":
            path.unlink()
        else:
            other = data.draw(st.sampled_from(sorted(content)))
            path.write_bytes(content[other])
        seen = survey(state_dir)
        opened = open_or_say(state_dir)
        if isinstance(opened, str):
            # Whose directory it should be is known to the configuration alone.
            assert seen.problems or name == "meta", "what refuses a start is shown beforehand"
            assert "\n" not in opened
            assert str(state_dir) in opened
            return
        assert all("/snap/" in problem for problem in seen.problems), "the older snapshot is enough"
        assert (seen.hard, seen.base, seen.entries) == (
            opened.stored.hard,
            opened.stored.base,
            opened.stored.entries,
        )
        opened.log.close()
        opened.lock.release()
        last = opened.stored.base.index + len(opened.stored.entries)
        newest_log = max(one for one in content if one.startswith("log/"))
        step = read(content[newest_log], 0)
        assert step is not None
        newest_first = step[1].first
        if name != newest_log:
            assert last == LAST
        elif harm == "flip":
            assert last >= LAST - 1
        else:
            # A file that ends early at the right place looks as if nothing had followed.
            assert last >= newest_first - 1
        assert opened.snapshot.index in (6, 11)
        assert list(opened.snapshots.read(opened.snapshot)) == [
            b"state %d" % opened.snapshot.index,
            b"x" * 40,
        ]
        assert opened.stored.base.index <= opened.snapshot.index
        for entry in opened.stored.entries:
            assert entry == Entry(entry.index, 1, b"%d" % entry.index * 20)


def test_the_newest_snapshot_unreadable_and_the_log_reaching_back(state_dir: Path) -> None:
    """The older one and the log together are the same state; only without both is a start refused."""
    content = make_directory(state_dir)
    newest = max(name for name in content if name.startswith("snap/"))
    older = min(name for name in content if name.startswith("snap/"))
    raft = state_dir / "raft"
    (raft / newest).write_bytes(b"torn")
    opened = open_directory(state_dir, 1, ONE, Files(), schema=1)
    assert opened.snapshot == Position(6, 1)
    replayed = [entry.index for entry in opened.stored.entries if entry.index > 6]
    assert replayed == list(range(7, LAST + 1))
    opened.log.close()
    opened.lock.release()
    (raft / older).unlink()
    with pytest.raises(StateError, match="no usable snapshot, and the log begins only after entry"):
        open_directory(state_dir, 1, ONE, Files(), schema=1)
    shutil.rmtree(raft)
