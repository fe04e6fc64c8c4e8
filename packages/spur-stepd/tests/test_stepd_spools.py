"""The spool of one stream: a full disk, and what is kept of what was delivered."""

import os
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_proto_lite import framing, spool
from spur_stepd.privileges import Privileges
from spur_stepd.spools import TAIL, Spool


@pytest.fixture
def made(tmp_path):
    """(spool, write end of its pipe, directory), with segments of 256 KiB."""
    read, write = os.pipe()
    directory = os.open(tmp_path, os.O_RDONLY)
    privileges = Privileges(os.getuid(), os.getgid(), ())
    own = Spool(directory, framing.DATA_OUT, 0, read, 1 << 20, privileges)
    yield own, write, tmp_path
    own.give_up()
    own.credit(own.end)
    for _, fd in own._segments:
        os.close(fd)
    os.close(directory)
    os.close(write)


@pytest.fixture
def small_files():
    """Call to let no file grow beyond that many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (before[1] if size is None else size, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_nothing(made, small_files):
    own, write, path = made
    data = os.urandom(50_000)
    os.write(write, data)
    small_files(1000)
    for _ in range(3):
        with pytest.raises(OSError, match="File too large"):
            own.pump()
        assert own.is_stuck
        assert own.end == 1000
    small_files(20_000)
    with pytest.raises(OSError, match="File too large"):
        own.pump()
    assert own.end == 20_000
    small_files(None)
    assert own.pump()
    assert not own.is_stuck
    assert own.pump() is False
    assert spool.read_from(str(path), framing.DATA_OUT, 0, 0) == (0, data)


def test_our_own_words_come_behind_what_the_disk_has_refused(made, small_files):
    own, write, path = made
    data = os.urandom(5_000)
    os.write(write, data)
    small_files(1000)
    with pytest.raises(OSError, match="File too large"):
        own.pump()
    own.add(b"slurmstepd: error\n")
    small_files(None)
    assert own.pump()
    assert spool.read_from(str(path), framing.DATA_OUT, 0, 0) == (0, data + b"slurmstepd: error\n")


def test_our_own_words_wait_for_room_too(made, small_files):
    own, write, path = made
    small_files(4)
    with pytest.raises(OSError, match="File too large"):
        own.add(b"slurmstepd: error\n")
    assert own.is_stuck
    small_files(None)
    os.write(write, b"more")
    assert own.pump()
    assert own.pump()
    assert spool.read_from(str(path), framing.DATA_OUT, 0, 0) == (0, b"slurmstepd: error\nmore")


def fill(own, write, size):
    for _ in range(size >> 14):
        os.write(write, b"x" * (1 << 14))
        assert own.pump()


def test_the_last_bytes_outlive_their_credit(made):
    own, write, path = made
    fill(own, write, 1 << 19)
    assert own.tail == (1 << 19) - TAIL
    own.credit(1 << 19)
    assert own.first <= own.tail
    assert own.first == 1 << 18  # the first segment is gone, the second holds the tail
    assert own.read(0, 10) == (own.first, b"x" * 10)
    assert own.read(own.tail, 1 << 20)[1] == b"x" * TAIL
    assert len(spool.segments(str(path))) == 1


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60)), max_size=12))
def test_a_tail_is_always_there(tmp_path_factory, story):
    """Whatever is written and credited: the last 64 KiB, or all there is, can be read."""
    directory = os.open(tmp_path_factory.mktemp("spool"), os.O_RDONLY)
    read, write = os.pipe()
    own = Spool(directory, framing.DATA_OUT, 0, read, 1 << 19, Privileges(os.getuid(), os.getgid(), ()))
    try:
        for written, credited in story:
            for _ in range(written):
                os.write(write, b"y" * (1 << 14))
                if not own.pump():
                    assert own.is_full
                    own.credit(own.end)
                    assert own.pump()
            own.credit(credited << 14)
            assert own.tail == max(0, own.end - TAIL)
            start, data = own.read(own.tail, TAIL)
            assert start == own.tail
            assert bool(data) == (own.end > 0)
    finally:
        own.give_up()
        for _, fd in own._segments:
            os.close(fd)
        os.close(directory)
        os.close(write)
