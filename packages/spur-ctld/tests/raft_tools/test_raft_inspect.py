"""`spurctld raft inspect`: says what is there, touches nothing, and names what is wrong where."""

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from spur_ctld.raft_tools.survey import survey
from spur_ctld.replication.digests import Difference, write_alarm
from spur_ctld.replication.files import Files
from spur_ctld.replication.log import SegmentLog
from spur_ctld.replication.meta import Member
from spur_ctld.replication.recovery import open_directory
from spur_ctld.replication.types import Entry, HardState, Position
from spur_ctld.state import codec, ops

ONE = (Member(1),)


@pytest.fixture
def used(tools):
    """Two segments, a snapshot, a member that votes."""
    opened = open_directory(tools.state(1), 1, ONE, Files(), schema=9, segment_bytes=300)
    for index in range(1, 9):
        hard = HardState(4, 1) if index == 1 else None
        opened.log.write(hard, index, [Entry(index, 4, b"x" * 60)])
    opened.snapshots.write(Position(6, 4), [b"s"], lambda: "abc")
    opened.log.close()
    opened.lock.release()
    return tools


def files_of(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()
    }


def test_what_is_there(used):
    before = files_of(used.state(1))
    done = used.inspect(1)
    assert (done.code, done.err) == (0, [])
    text = "\n".join(done.out)
    for part in (
        f"directory   {used.state(1)}/raft",
        "member      1 of cluster ",
        "term        4, vote for member 1",
        "log         8 entries, after 0 (term 0) to 8 (term 4)",
        "entry 6 (term 4)",
        "1 chunks, digest abc",
        "state       in order",
    ):
        assert part in text
    assert text.count(".seg: ") > 1
    assert files_of(used.state(1)) == before


def test_as_json(used):
    found = json.loads("\n".join(used.inspect(1, "--json").out))
    assert found["meta"]["member_id"] == 1
    assert found["hard"][:2] == [4, 1]
    assert found["last"] == [8, 4]
    assert found["problems"] == found["entries"] == []
    assert found["snapshots"][0]["digest"] == "abc"
    listed = json.loads("\n".join(used.inspect(1, "--json", "--from", "7").out))
    assert [entry["index"] for entry in listed["entries"]] == [7, 8]


def test_entries_are_listed_one_a_line(tools):
    opened = open_directory(tools.state(1), 1, ONE, Files(), schema=9)
    commands = [
        None,
        codec.encode_op(ops.Cancel(at=12.0, who=ops.Who(uid=7), targets=())),
        b"\x00nonsense",
    ]
    opened.log.write(HardState(1, 1), 1, [Entry(at, 1, data) for at, data in enumerate(commands, 1)])
    opened.log.close()
    opened.lock.release()
    lines = [line for line in tools.inspect(1, "--entries").out if line[0].isdigit()]
    assert lines[0] == "1 term=1 begin of the term"
    assert lines[1].startswith("2 term=1 op=")
    assert "at=12.0" in lines[1]
    assert lines[2].startswith("3 term=1 9 bytes, an operation is unknown to this release")
    assert all(len(line) <= 200 and line.isprintable() for line in lines)
    assert len([line for line in tools.inspect(1, "--from", "3").out if line[0].isdigit()]) == 1


def test_a_torn_end_is_a_note_and_stays(used):
    *_, newest = sorted((used.state(1) / "raft" / "log").iterdir())
    newest.write_bytes(newest.read_bytes() + b"SPLF half a frame")
    before = files_of(used.state(1))
    done = used.inspect(1)
    assert done.code == 0
    assert any(line.startswith("note ") and "17 bytes that are no whole frame" in line for line in done.out)
    assert files_of(used.state(1)) == before


def test_damage_is_named_with_its_place_and_the_rest_is_still_shown(used):
    first, *_ = sorted((used.state(1) / "raft" / "log").iterdir())
    data = bytearray(first.read_bytes())
    data[40] ^= 1
    first.write_bytes(data)
    (snapshot,) = (used.state(1) / "raft" / "snap").iterdir()
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    done = used.inspect(1)
    assert done.code == 1
    text = "\n".join(done.out)
    assert f"PROBLEM     {first}: offset " in text
    assert "damaged frame, a valid one follows at " in text
    assert f"PROBLEM     {snapshot}: cut off in record" in text
    assert "UNREADABLE" in text
    assert "state       in order" not in text


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lambda raft: (raft / "meta").unlink(), "raft/meta: missing"),
        (lambda raft: (raft / "meta").write_text("x"), "raft/meta: damaged"),
        (lambda raft: shutil.rmtree(raft / "log"), "raft/log: missing"),
        (lambda raft: [path.unlink() for path in (raft / "log").iterdir()], "holds no segment"),
        (lambda raft: (raft / "log" / "notes.txt").touch(), "notes.txt: not a log segment"),
        (lambda raft: sorted((raft / "log").iterdir())[1].unlink(), "follows frame"),
        (
            lambda raft: sorted((raft / "log").iterdir())[0].write_bytes(b""),
            "empty, but it is not the newest",
        ),
        (lambda raft: sorted((raft / "log").iterdir())[0].unlink(), None),
        (
            lambda raft: (
                sorted((raft / "log").iterdir())[0].unlink(),
                [path.unlink() for path in (raft / "snap").iterdir()],
            ),
            "no readable snapshot reaches entry",
        ),
    ],
)
def test_every_loss_is_named(used, harm, text):
    harm(used.state(1) / "raft")
    done = used.inspect(1)
    problems = [line for line in done.out if line.startswith("PROBLEM")]
    if text is None:
        assert (done.code, problems) == (0, []), "compaction removes whole segments too"
    else:
        assert done.code == 1
        assert any(text in line for line in problems), problems


def test_a_snapshot_ahead_of_the_log_is_where_the_member_is(used):
    opened = open_directory(used.state(1), 1, ONE, Files(), schema=9)
    opened.snapshots.write(Position(40, 6), [b"from the leader"])
    opened.log.close()
    opened.lock.release()
    done = used.inspect(1)
    assert done.code == 0
    assert "log         8 entries, after 0 (term 0) to 40 (term 6)" in done.out
    assert any(line.startswith("note ") and "is ahead of the log" in line for line in done.out)
    assert json.loads("\n".join(used.inspect(1, "--json").out))["last"] == [40, 6]


def test_an_alarm_of_the_members_is_shown(used):
    folder = used.state(1) / "raft"
    write_alarm(folder, Difference(50, 1, "v-a", 3, "v-b"))
    with (folder / "alarms").open("ab") as file:
        file.write(b"half a li")
    done = used.inspect(1)
    assert done.code == 1
    text = "at entry 50 the state of controller 1 differs from that of controller 3"
    assert f"PROBLEM     {folder}/alarms: {text}" in done.out


def test_a_live_directory_needs_no_lock(used):
    opened = open_directory(used.state(1), 1, ONE, Files(), schema=9)
    try:
        done = used.inspect(1)
        assert done.code == 0
        assert f"in use by   pid {os.getpid()}" in done.out
    finally:
        opened.log.close()
        opened.lock.release()


def test_a_log_that_grows_and_shrinks_meanwhile_is_read_in_order(tmp_path):
    (tmp_path / "raft" / "log").mkdir(parents=True)
    (tmp_path / "raft" / "snap").mkdir()
    log = SegmentLog(tmp_path / "raft" / "log", segment_bytes=2000)
    log.load()
    log.write(HardState(1, 1), 1, [])
    stop = threading.Event()

    def write() -> None:
        index = 1
        while not stop.is_set():
            log.write(None, index, [Entry(index, 1, b"y" * 100)])
            if index % 50 == 0:
                log.compact(index - 30)
            index += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        newest = 0
        deadline = time.monotonic() + 60
        while newest < 200:
            assert time.monotonic() < deadline
            found = survey(tmp_path)
            assert [problem for problem in found.problems if "segment" in problem or "frame" in problem] == []
            assert found.last.index >= newest
            newest = found.last.index
    finally:
        stop.set()
        thread.join()
        log.close()
