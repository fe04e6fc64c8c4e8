"""Opening a directory: who may, what it must hold, what is refused in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spur_core.errors import StateError
from spur_ctld.replication.files import Files
from spur_ctld.replication.log import SegmentLog
from spur_ctld.replication.meta import Member, hash_members
from spur_ctld.replication.recovery import Opened, open_directory
from spur_ctld.replication.testing.files import FailingFiles
from spur_ctld.replication.types import ORIGIN, Entry, HardState, Position

ONE = (Member(1),)


def opening(state_dir: Path, member: int = 1, members: tuple[Member, ...] = ONE) -> Opened:
    return open_directory(state_dir, member, members, Files(), schema=1)


def shut(opened: Opened) -> None:
    opened.log.close()
    opened.lock.release()


@pytest.fixture
def used(state_dir: Path) -> Path:
    """A directory with five entries."""
    opened = opening(state_dir)
    opened.log.write(HardState(1, 1), 1, [Entry(index, 1, b"x") for index in range(1, 6)])
    shut(opened)
    return state_dir


def test_a_new_directory_is_made(state_dir: Path) -> None:
    opened = opening(state_dir)
    assert (opened.snapshot, opened.stored.entries) == (ORIGIN, [])
    assert {path.name for path in (state_dir / "raft").iterdir()} == {"lock", "log", "meta", "snap"}
    assert (state_dir / "raft" / "lock").read_text() == f"{os.getpid()}\n"
    assert (state_dir / "raft").stat().st_mode & 0o777 == 0o700
    shut(opened)
    again = opening(state_dir)
    assert again.meta == opened.meta
    shut(again)


def test_a_crash_at_any_stage_of_making_it_is_mended(tmp_path: Path) -> None:
    files = FailingFiles()
    shut(open_directory(tmp_path / "whole", 1, ONE, files, schema=1))
    for number in range(len(files.calls)):
        failing = FailingFiles()
        failing.fail_at, failing.torn = number, True
        with pytest.raises(StateError, match="Input/output error"):
            open_directory(tmp_path / str(number), 1, ONE, failing, schema=1)
        shut(opening(tmp_path / str(number)))


def test_another_process_is_refused_while_the_first_lives(state_dir: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from spur_ctld.replication.files import Files\n"
        "from spur_ctld.replication.meta import Member\n"
        "from spur_ctld.replication.recovery import open_directory\n"
        "held = open_directory(Path(sys.argv[1]), 1, [Member(1)], Files(), schema=1)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(state_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(StateError) as caught:
            opening(state_dir)
        child.kill()
    assert str(caught.value) == (
        f"state directory {state_dir} is in use by another spurctld (pid {child.pid}); stop it first"
    )
    shut(opening(state_dir))


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    state_dir = tmp_path / "file" / "state"
    with pytest.raises(StateError) as caught:
        opening(state_dir)
    assert str(caught.value).startswith(f"state directory {state_dir}: ")
    assert "Not a directory" in str(caught.value)
    assert "--state-dir" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_read_only_directory_is_named_to_an_ordinary_user(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    state_dir.chmod(0o500)
    # Reached as the current directory: the folders above belong to root and stay closed.
    tmp_path.chmod(0o711)
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from spur_core.errors import StateError\n"
        "from spur_ctld.replication.files import Files\n"
        "from spur_ctld.replication.meta import Member\n"
        "from spur_ctld.replication.recovery import open_directory\n"
        "if os.geteuid() == 0:\n"
        "    os.setuid(65534)\n"
        "try:\n"
        "    open_directory(Path(sys.argv[1]), 1, [Member(1)], Files(), schema=1)\n"
        "except StateError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(state_dir)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(
        f"state directory {state_dir}: {state_dir}/raft: Permission denied; make it"
    )
    assert done.stdout.count("\n") == 1


def test_another_member_or_group_is_refused(used: Path) -> None:
    with pytest.raises(StateError, match="belongs to controller 1, this is 2"):
        opening(used, 2, (Member(2),))
    with pytest.raises(StateError, match="another list of controllers"):
        opening(used, 1, (Member(1), Member(2)))
    shut(opening(used))


def test_a_lost_log_is_not_an_empty_one(used: Path) -> None:
    for path in (used / "raft" / "log").iterdir():
        path.unlink()
    with pytest.raises(StateError, match="raft/log: the log of this controller is missing"):
        opening(used)


def test_a_log_without_its_meta_is_refused(used: Path) -> None:
    (used / "raft" / "meta").unlink()
    with pytest.raises(StateError, match="raft/meta: missing, but the directory holds a log"):
        opening(used)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "damaged"),
        (b"{}", "damaged"),
        (b'{"format":2,"cluster_id":"a","member_id":1,"members_hash":"b"}', "use the newer release"),
    ],
)
def test_a_strange_meta_is_refused(used: Path, content: bytes, text: str) -> None:
    (used / "raft" / "meta").write_bytes(content)
    with pytest.raises(StateError, match=f"raft/meta: .*{text}"):
        opening(used)


def test_a_snapshot_ahead_of_the_log_restarts_it(used: Path) -> None:
    opened = opening(used)
    opened.snapshots.write(Position(40, 3), [b"state"])
    shut(opened)
    opened = opening(used)
    assert (opened.snapshot, opened.stored.base, opened.stored.entries) == (
        Position(40, 3),
        Position(40, 3),
        [],
    )
    assert opened.stored.hard == HardState(1, 1)
    opened.log.write(HardState(4, 1), 41, [Entry(41, 4, b"next")])
    shut(opened)
    log = SegmentLog(used / "raft" / "log")
    assert log.load().entries == [Entry(41, 4, b"next")]
    log.close()


def test_a_half_written_snapshot_is_removed(used: Path) -> None:
    half = used / "raft" / "snap" / "snap-0000000000000009-0000000000000001.tmp"
    half.write_bytes(b"SPUR")
    shut(opening(used))
    assert not half.exists()


def test_the_list_hash_knows_ids_and_names_in_any_order() -> None:
    a, b = Member(1, "h1:1", "c1"), Member(2, "h2:1", "c2")
    assert hash_members([a, b]) == hash_members([b, a])
    assert hash_members([a, b]) == hash_members([Member(1, "moved:9", "c1"), b])
    assert hash_members([a]) != hash_members([a, b])
    assert hash_members([a]) != hash_members([Member(1, "h1:1", "other")])
