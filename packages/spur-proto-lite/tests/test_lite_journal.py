"""The journal: what a crash can leave, and what must be refused."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_proto_lite import journal
from spur_proto_lite.errors import CorruptJournal
from spur_proto_lite.exits import EpilogRecord, ExitRecord, TaskExit, combine


def line(seq, event=journal.SIGNALLED, **data):
    return json.dumps({"seq": seq, "at": 1.5, "event": event, **data}).encode() + b"\n"


WHOLE = (
    line(1, journal.PREPARED, spec_sha256="ab")
    + line(2, journal.STARTED, task_pid=77)
    + line(3, signal=15, note="zwölf\n")
    + line(4, journal.EXIT_OBSERVED, exit=ExitRecord(code=3).to_json())
    + line(5, journal.ACKNOWLEDGED, by="agent")
)


@given(cut=st.integers(0, len(WHOLE)))
def test_any_prefix_of_a_valid_journal_loads(cut):
    """Cut at any byte, the whole records before the cut count, in order and nothing else."""
    loaded = journal.load(WHOLE[:cut])
    whole_lines = WHOLE[:cut].count(b"\n")
    assert [entry.seq for entry in loaded.entries] == list(range(1, whole_lines + 1))
    assert loaded.torn == (loaded.good_bytes != cut)
    journal.story(loaded.entries)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_RECORDS = st.lists(
    st.tuples(
        st.sampled_from(sorted(set(journal.SYNCED) - {journal.EXIT_OBSERVED, journal.EPILOG_RESULT})),
        st.floats(0, 2e9),
        st.dictionaries(
            st.text(max_size=8).filter(lambda k: k not in ("seq", "at", "event")), _JSON, max_size=4
        ),
    ),
    max_size=6,
)


@given(records=_RECORDS, cut=st.floats(0, 1), fresh=st.booleans())
def test_any_journal_cut_anywhere_can_be_read_and_written_on(tmp_path_factory, records, cut, fresh):
    """Whatever was written, a cut at any byte leaves the whole records before it, and the next writer goes on
    behind them."""
    path = str(tmp_path_factory.mktemp("j") / "journal")
    writer = journal.JournalWriter(path)
    for event, at, data in records:
        writer.append(event, at, data)
    writer.close()
    with open(path, "rb+") as file:
        whole = file.read()
        keep = round(cut * len(whole))
        file.truncate(keep)
    lines = whole[:keep].count(b"\n")
    loaded = journal.read(path)
    assert [(e.seq, e.event, e.at, e.data) for e in loaded.entries] == [
        (number, event, at, data) for number, (event, at, data) in enumerate(records[:lines], 1)
    ]
    journal.story(loaded.entries)
    if fresh:
        again = journal.JournalWriter(path)
        assert again.append(journal.FENCED, 5.0, {"reason": "x"}) == lines + 1
        again.close()
        assert not journal.read(path).torn
        assert journal.story(journal.read(path).entries).fenced


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail_in_another_way(data):
    with contextlib.suppress(CorruptJournal):
        journal.load(data)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (line(1) + b"{oops\n" + line(3), "record 2"),
        (line(1) + line(3), "record 2 has the number 3"),
        (line(2), "record 1 has the number 2"),
        (line(1) + b'{"seq":2}\n' + line(3), "record 2"),
        (line(1) + b"\n" + line(2), "record 2"),
    ],
)
def test_damage_before_the_end_is_corruption(data, word):
    with pytest.raises(CorruptJournal, match=word):
        journal.load(data)


@pytest.mark.parametrize("tail", [b"{", b"not json\n", b'{"seq":6,"at":1,"event":"Signalled"}', b"\n"])
def test_a_torn_last_line_is_ignored(tail):
    loaded = journal.load(WHOLE + tail)
    assert len(loaded.entries) == 5
    assert loaded.torn
    assert loaded.good_bytes == len(WHOLE)


def test_story_of_a_finished_session():
    told = journal.story(journal.load(WHOLE).entries)
    assert told.exit == ExitRecord(code=3)
    assert told.exit_seq == 4
    assert told.acknowledged
    assert not told.fenced
    assert told.started_at == 1.5


def test_a_second_writer_cuts_the_torn_line_and_goes_on(tmp_path):
    path = str(tmp_path / "journal")
    first = journal.JournalWriter(path)
    assert first.append(journal.PREPARED, 1.0) == 1
    assert first.append(journal.STARTED, 2.0, {"task_pid": 5}) == 2
    first.close()
    with open(path, "ab") as file:
        file.write(b'{"seq":3,"at":3')
    second = journal.JournalWriter(path)
    assert second.append(journal.FENCED, 4.0, {"reason": "lost"}) == 3
    second.close()
    loaded = journal.read(path)
    assert [entry.event for entry in loaded.entries] == ["Prepared", "Started", "Fenced"]
    assert not loaded.torn


def test_a_missing_journal_is_empty(tmp_path):
    assert journal.read(str(tmp_path / "none")).entries == ()


def test_an_append_that_found_the_disk_full_can_be_repeated():
    """/dev/full takes nothing: the number is not used up."""
    writer = journal.JournalWriter.__new__(journal.JournalWriter)
    import os

    writer._fd = os.open("/dev/full", os.O_RDWR)
    writer._length = writer._seq = 0
    writer._torn = False
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            writer.append(journal.EXIT_OBSERVED, 1.0)
        writer._torn = False
    assert writer._seq == 0
    writer.close()


@pytest.mark.parametrize(
    ("tasks", "code", "signal"),
    [
        ([TaskExit(rank=0, code=7)], 7, 0),
        ([TaskExit(rank=0, signal=9)], 0, 9),
        ([TaskExit(rank=0), TaskExit(rank=1, code=4)], 4, 0),
        ([TaskExit(rank=0, code=4), TaskExit(rank=1, signal=15)], 143, 15),
        ([TaskExit(rank=0, code=200), TaskExit(rank=1, signal=15)], 200, 0),
        ([TaskExit(rank=0), TaskExit(rank=1)], 0, 0),
    ],
)
def test_exit_of_a_step(tasks, code, signal):
    record = combine(tuple(tasks))
    assert (record.code, record.signal) == (code, signal)
    assert ExitRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_epilog_record_round_trip():
    assert EpilogRecord.from_json(EpilogRecord(ok=False, text="x").to_json()).text == "x"
