"""`spurctld raft reconfigure`: one controller becomes three, three become one, a lost one is replaced."""

import os
import shutil

import pytest

from spur_ctld.replication.files import Files
from spur_ctld.replication.meta import Member, read_meta
from spur_ctld.replication.recovery import open_directory
from spur_ctld.replication.testing.files import FailingFiles
from spur_ctld.replication.types import Entry, HardState, Position

ONE = (Member(1),)
GROUP = tuple(Member(at, f"127.0.0.1:700{at}", f"spur-controller-{at}") for at in (1, 2, 3))


def opening(tools, member, members=GROUP):
    opened = open_directory(tools.state(member), member, members, Files(), schema=9)
    opened.log.close()
    opened.lock.release()
    return opened


def fill(tools, member, members, last, snapshots=(5, 8)):
    """Entries 1 to `last` of term 3, with snapshots."""
    opened = open_directory(tools.state(member), member, members, Files(), schema=9)
    opened.log.write(
        HardState(3, member), 1, [Entry(index, 3, b"e%d" % index) for index in range(1, last + 1)]
    )
    for index in snapshots:
        opened.snapshots.write(Position(index, 3), [b"state of %d" % index], lambda: "d")
    opened.log.close()
    opened.lock.release()


@pytest.fixture
def grown(tools):
    """A single controller with a past, and the certificates of three."""
    tools.group("")
    fill(tools, 1, ONE, 12)
    shutil.copytree(tools.state(1), tools.state(2))
    tools.group(
        'peers = ["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"]\n'
        'client_addrs = ["127.0.0.1:6001", "127.0.0.1:6002", "127.0.0.1:6003"]\n'
    )
    tools.make_certs(1, 2, 3)
    return tools


def test_one_controller_becomes_a_member_of_three(grown):
    done = grown.member("reconfigure", 1)
    assert (done.code, done.err) == (0, [])
    assert "now controller 1 of 3 of cluster" in done.out[0]
    opened = opening(grown, 1)
    assert opened.stored.hard == HardState(3, 1), "its own promises stay"
    assert [entry.index for entry in opened.stored.entries] == list(range(1, 13))
    assert opened.snapshot == Position(8, 3)
    assert list(opened.snapshots.read(Position(8, 3))) == [b"state of 8"]
    assert opened.snapshots.verify(Position(5, 3)).digest == "d"
    again = grown.member("reconfigure", 1)
    assert (again.code, again.out) == (
        0,
        [f"{grown.state(1)}/raft: is that of controller 1 in this group already"],
    )


def test_a_copy_becomes_another_member_with_its_vote_spent(grown):
    done = grown.member("reconfigure", 2)
    assert done.code == 1
    assert "belongs to controller 1, this is 2; if it is a copy of that controller's directory" in done.err[0]
    done = grown.member("reconfigure", 2, "--copy-of", "3")
    assert "belongs to controller 1, not to 3 as --copy-of says" in done.err[0]
    assert grown.member("reconfigure", 2, "--copy-of", "1").code == 0
    opened = opening(grown, 2)
    assert opened.stored.hard == HardState(4, 2)
    assert opened.stored.entries == [Entry(index, 3, b"e%d" % index) for index in range(1, 13)]
    assert opened.snapshot == Position(8, 3)


def test_three_become_one_again(grown):
    grown.member("reconfigure", 1)
    cluster_id = read_meta(grown.state(1) / "raft" / "meta").cluster_id
    grown.group("")
    assert grown.member("reconfigure", 1).code == 0
    opened = opening(grown, 1, ONE)
    assert opened.meta.cluster_id == cluster_id
    assert opened.snapshot == Position(8, 3)


def test_a_crash_anywhere_is_mended_by_running_it_again(grown, tmp_path):
    from spur_ctld.raft_tools import place, reconfiguring

    found = place.find(grown.config, grown.state(2), 2)
    files = FailingFiles()
    shutil.copytree(grown.state(2), tmp_path / "kept")
    reconfiguring.reconfigure(found, 1, lambda line: None, files)
    assert len(files.calls) > 20
    for number in range(len(files.calls)):
        shutil.rmtree(grown.state(2))
        shutil.copytree(tmp_path / "kept", grown.state(2))
        failing = FailingFiles()
        failing.fail_at, failing.torn = number, True
        with pytest.raises(Exception, match="Input/output error"):
            reconfiguring.reconfigure(found, 1, lambda line: None, failing)
        reconfiguring.reconfigure(found, 1, lambda line: None)
        opened = opening(grown, 2)
        assert opened.stored.hard.term > 3
        assert opened.stored.hard.vote == 2
        assert len(opened.stored.entries) == 12
        assert opened.snapshot == Position(8, 3)
        assert [opened.snapshots.verify(meta).chunks for meta in opened.snapshots.list()] == [1, 1]


def test_a_running_controller_is_left_alone(grown):
    opened = open_directory(grown.state(1), 1, ONE, Files(), schema=9)
    done = grown.member("reconfigure", 1)
    assert done.code == 1
    assert f"in use by another spurctld (pid {os.getpid()}); stop it first" in done.err[0]
    opened.log.close()
    opened.lock.release()


@pytest.mark.parametrize("prepare", ["nothing", "empty", "no log"])
def test_what_is_no_members_directory_is_refused(grown, prepare):
    if prepare == "empty":
        (grown.state(3) / "raft").mkdir(parents=True)
    elif prepare == "no log":
        shutil.copytree(grown.state(1) / "raft", grown.state(3) / "raft")
        for path in (grown.state(3) / "raft" / "log").iterdir():
            path.unlink()
    done = grown.member("reconfigure", 3, "--copy-of", "1")
    assert (done.code, len(done.err)) == (1, 1)
    assert "raft" in done.err[0]
    assert "copy" in done.err[0]


def test_a_damaged_log_is_refused(grown):
    (segment,) = (grown.state(2) / "raft" / "log").iterdir()
    data = bytearray(segment.read_bytes())
    data[30] ^= 1
    segment.write_bytes(data)
    done = grown.member("reconfigure", 2, "--copy-of", "1")
    assert done.code == 1
    assert "damaged frame, a valid one follows" in done.err[0]
    assert read_meta(grown.state(2) / "raft" / "meta").member_id == 1
