"""The segment log: what is written is read back, cuts at the end are forgiven, anything else is refused."""

import re
from pathlib import Path

import pytest

from spur_ctld.replication.errors import CorruptLog
from spur_ctld.replication.frames import HEADER_SIZE, Frame, encode, read
from spur_ctld.replication.log import SegmentLog
from spur_ctld.replication.types import ORIGIN, Entry, HardState, Position


def entries(first: int, count: int, term: int = 1, size: int = 10) -> list[Entry]:
    return [Entry(index, term, b"%d." % index + b"x" * size) for index in range(first, first + count)]


def opened(folder: Path, segment_bytes: int = 1 << 20) -> SegmentLog:
    log = SegmentLog(folder, segment_bytes=segment_bytes)
    log.load()
    return log


def reload(folder: Path):
    log = SegmentLog(folder)
    try:
        return log.load()
    finally:
        log.close()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Three frames in one segment: entries 1..3, 4..5, 6..7."""
    log = opened(tmp_path)
    log.write(HardState(1, 1), 1, entries(1, 3))
    log.write(None, 4, entries(4, 2))
    log.write(HardState(2, 1), 6, entries(6, 2, term=2))
    log.close()
    return tmp_path


def offsets(path: Path) -> list[int]:
    """Where each frame of a segment begins, and the end."""
    data = path.read_bytes()
    found = [0]
    while found[-1] < len(data):
        frame = read(data, found[-1])
        assert frame is not None
        found.append(frame[2])
    return found


def test_a_new_directory_is_empty(tmp_path: Path) -> None:
    stored = reload(tmp_path)
    assert (stored.hard, stored.base, stored.entries) == (HardState(), ORIGIN, [])


def test_what_is_written_is_loaded(written: Path) -> None:
    stored = reload(written)
    assert stored.hard == HardState(2, 1)
    assert stored.entries == entries(1, 5) + entries(6, 2, term=2)


def test_no_ops_and_empty_commands_differ(tmp_path: Path) -> None:
    log = opened(tmp_path)
    both = [Entry(1, 1, None), Entry(2, 1, b"")]
    log.write(HardState(1, 1), 1, both)
    log.close()
    assert reload(tmp_path).entries == both


def test_writing_goes_on_after_a_reload(written: Path) -> None:
    log = opened(written)
    log.write(None, 8, entries(8, 1, term=2))
    log.close()
    assert [entry.index for entry in reload(written).entries] == list(range(1, 9))


def test_a_lower_first_index_replaces_the_tail(written: Path) -> None:
    log = opened(written)
    log.write(HardState(3, 2), 3, entries(3, 1, term=3))
    log.close()
    stored = reload(written)
    assert stored.entries == entries(1, 2) + entries(3, 1, term=3)
    assert stored.hard == HardState(3, 2)


@pytest.mark.parametrize(("first", "given"), [(9, entries(9, 1)), (0, entries(0, 1)), (8, entries(9, 1))])
def test_a_gap_is_the_callers_fault(written: Path, first: int, given: list[Entry]) -> None:
    log = opened(written)
    with pytest.raises(ValueError, match=r"entries"):
        log.write(None, first, given)
    log.write(None, 8, entries(8, 1))
    log.close()
    assert len(reload(written).entries) == 8


def test_segments_roll_and_old_ones_go(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=300)
    for index in range(1, 41):
        log.write(HardState(1, 1) if index == 1 else None, index, entries(index, 1, size=60))
    assert log.segments > 5
    log.compact(25)
    log.compact(25)
    log.write(None, 41, entries(41, 1, size=60))
    segments, size = log.segments, log.size
    log.close()
    assert len(list(tmp_path.iterdir())) == segments
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == size
    stored = reload(tmp_path)
    assert stored.hard == HardState(1, 1)
    assert 0 < stored.base.index <= 25
    assert stored.base.term == 1
    assert stored.entries == entries(stored.base.index + 1, 41 - stored.base.index, size=60)


def test_compaction_keeps_everything_after_the_index(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=200)
    for index in range(1, 31):
        log.write(HardState(1, 1) if index == 1 else None, index, entries(index, 1, size=60))
    for index in range(1, 31):
        log.compact(index)
        stored = reload(tmp_path)
        assert stored.base.index <= index
        assert stored.base.index + len(stored.entries) == 30
    log.close()
    assert len(list(tmp_path.iterdir())) == 1


def test_what_replaced_a_segments_beginning_survives_compaction(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=100)
    log.write(HardState(1, 1), 1, entries(1, 6))
    log.write(None, 7, entries(7, 1))
    log.write(HardState(2, 1), 6, entries(6, 1, term=2))
    log.compact(6)
    log.write(None, 7, entries(7, 1, term=2))
    log.close()
    stored = reload(tmp_path)
    assert stored.base.index <= 6
    assert [entry.term for entry in stored.entries if entry.index > 5] == [2, 2]


def test_a_restart_forgets_what_was_before(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.write(HardState(1, 1), 1, entries(1, 5))
    log.write(HardState(7, 0), 101, entries(101, 2, term=7), Position(100, 6))
    assert log.segments == 2
    log.compact(100)
    assert log.segments == 1
    log.write(None, 103, ())
    log.close()
    stored = reload(tmp_path)
    assert (stored.hard, stored.base) == (HardState(7, 0), Position(100, 6))
    assert stored.entries == entries(101, 2, term=7)


def test_a_restart_is_read_also_when_the_old_segments_are_still_there(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.write(HardState(1, 1), 1, entries(1, 5))
    log.write(None, 4, (), Position(3, 1))
    log.close()
    stored = reload(tmp_path)
    assert (stored.base, stored.entries) == (Position(3, 1), [])


def test_every_cut_of_the_last_frame_gives_what_was_before_it(written: Path) -> None:
    (segment,) = written.iterdir()
    whole = segment.read_bytes()
    start = offsets(segment)[-2]
    for size in range(start, len(whole)):
        segment.write_bytes(whole[:size])
        stored = reload(written)
        assert stored.entries == entries(1, 5), size
        assert stored.hard == HardState(1, 1), size
        assert segment.stat().st_size == start, "the torn end is cut off"


def test_garbage_and_zeros_after_the_end_are_cut_off(written: Path) -> None:
    (segment,) = written.iterdir()
    whole = segment.read_bytes()
    for tail in (b"\0" * 4096, b"SPLF" * 50, whole[5:40]):
        segment.write_bytes(whole + tail)
        assert len(reload(written).entries) == 7
        assert segment.read_bytes() == whole


def test_every_flipped_bit_before_the_last_frame_is_refused(written: Path) -> None:
    (segment,) = written.iterdir()
    whole = bytearray(segment.read_bytes())
    *_, last, _end = offsets(segment)
    where = re.compile(rf"{re.escape(str(segment))}: offset \d+: ")
    for at in range(last):
        for bit in range(8):
            whole[at] ^= 1 << bit
            segment.write_bytes(whole)
            with pytest.raises(CorruptLog, match=where):
                reload(written)
            whole[at] ^= 1 << bit
    segment.write_bytes(whole)
    assert len(reload(written).entries) == 7


def test_a_flipped_bit_in_the_last_frame_looks_like_a_torn_write(written: Path) -> None:
    (segment,) = written.iterdir()
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    assert reload(written).entries == entries(1, 5)


@pytest.fixture
def rolled(tmp_path: Path) -> Path:
    log = opened(tmp_path, segment_bytes=200)
    for index in range(1, 16):
        log.write(HardState(1, 1) if index == 1 else None, index, entries(index, 1, size=60))
    log.close()
    return tmp_path


def test_a_torn_end_of_an_older_segment_is_refused(rolled: Path) -> None:
    first, *_ = sorted(rolled.iterdir())
    first.write_bytes(first.read_bytes()[:-3])
    with pytest.raises(CorruptLog, match=r"offset \d+: damaged frame, and newer segments follow; see"):
        reload(rolled)


def test_an_empty_older_segment_is_refused(rolled: Path) -> None:
    first, *_ = sorted(rolled.iterdir())
    first.write_bytes(b"")
    with pytest.raises(CorruptLog, match="empty"):
        reload(rolled)


def test_a_lost_segment_is_a_jump_in_sequence(rolled: Path) -> None:
    sorted(rolled.iterdir())[1].unlink()
    with pytest.raises(CorruptLog, match=r"frame \d+ follows frame \d+"):
        reload(rolled)


def test_a_lost_frame_is_a_jump_in_sequence(written: Path) -> None:
    (segment,) = written.iterdir()
    data = segment.read_bytes()
    _, second, third, _ = offsets(segment)
    segment.write_bytes(data[:second] + data[third:])
    with pytest.raises(CorruptLog, match="frame 3 follows frame 1"):
        reload(written)


def test_a_renamed_segment_is_refused(written: Path) -> None:
    (segment,) = written.iterdir()
    segment.rename(written / f"{9:016x}.seg")
    with pytest.raises(CorruptLog, match="its name says 9"):
        reload(written)


@pytest.mark.parametrize("name", ["notes.txt", "1.seg", "x" * 16 + ".seg"])
def test_a_strange_file_is_refused(written: Path, name: str) -> None:
    (written / name).touch()
    with pytest.raises(CorruptLog, match="not a log segment"):
        reload(written)


def test_an_index_gap_between_valid_frames_is_refused(written: Path) -> None:
    (segment,) = written.iterdir()
    with segment.open("ab") as file:
        file.write(encode(Frame(None, 9, entries(9, 1)), 4))
    with pytest.raises(CorruptLog, match="entry 9 does not continue 1 to 7"):
        reload(written)


def test_a_segment_that_continues_another_log_is_refused(written: Path) -> None:
    other = written / f"{4:016x}.seg"
    other.write_bytes(encode(Frame(HardState(3, 1), 8, entries(8, 1), None, Position(7, 1)), 4))
    with pytest.raises(CorruptLog, match="does not hold so"):
        reload(written)


def test_a_crash_while_a_segment_began_leaves_no_trace(written: Path) -> None:
    begun = written / f"{4:016x}.seg"
    whole = encode(Frame(HardState(2, 1), 8, entries(8, 1), None, Position(7, 2)), 4)
    for size in (0, 1, HEADER_SIZE, len(whole) - 1):
        begun.write_bytes(whole[:size])
        assert len(reload(written).entries) == 7
        assert not begun.exists()
    log = opened(written, segment_bytes=10)
    log.write(None, 8, entries(8, 1, term=2))
    log.close()
    assert begun.exists()
    assert len(reload(written).entries) == 8
