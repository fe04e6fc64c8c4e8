"""Private directories, whole files, passed descriptors."""

import os
import socket

import pytest

from spur_core.linux import fdpass, fsync, private_dir
from spur_core.linux.private_dir import NotPrivate

pytestmark = pytest.mark.node


def test_made_private_with_parents_that_are_not_judged(tmp_path):
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    old = os.umask(0o277)
    try:
        os.close(private_dir.ensure(str(loose / "leaf")))
    finally:
        os.umask(old)
    assert (loose / "leaf").stat().st_mode & 0o7777 == 0o700
    os.close(private_dir.ensure(str(loose / "leaf")))
    os.close(private_dir.open_verified(str(loose / "leaf")))
    os.close(private_dir.ensure(str(tmp_path / "a" / "b" / "c")))
    assert (tmp_path / "a").stat().st_mode & 0o055


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777, 0o710])
def test_a_loose_one_is_refused_and_left_alone(tmp_path, mode):
    leaf = tmp_path / "leaf"
    leaf.mkdir()
    leaf.chmod(mode)
    with pytest.raises(NotPrivate, match=f"leaf: has mode {mode:04o}"):
        private_dir.ensure(str(leaf))
    assert leaf.stat().st_mode & 0o7777 == mode


def test_a_link_or_a_file_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(NotPrivate, match="is a symbolic link"):
        private_dir.ensure(str(tmp_path / "link"))
    (tmp_path / "file").write_text("")
    with pytest.raises(NotPrivate, match="not a directory"):
        private_dir.ensure(str(tmp_path / "file"))
    with pytest.raises(NotPrivate, match="is not there"):
        private_dir.open_verified(str(tmp_path / "none"))


@pytest.mark.root
def test_a_foreign_one_is_refused(tmp_path):
    leaf = tmp_path / "leaf"
    leaf.mkdir(mode=0o700)
    os.chown(leaf, 12345, 12345)
    with pytest.raises(NotPrivate, match="belongs to uid 12345, not 0"):
        private_dir.ensure(str(leaf))
    os.close(private_dir.ensure(str(leaf), owner=12345))


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    fsync.write_whole(str(path), b"new" * 100_000, 0o640)
    assert path.read_bytes() == b"new" * 100_000
    assert path.stat().st_mode & 0o777 == 0o640
    directory = os.open(tmp_path, os.O_RDONLY)
    fsync.write_whole("y", b"1", directory=directory)
    os.close(directory)
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]
    with pytest.raises(FileNotFoundError):
        fsync.write_whole(str(tmp_path / "none" / "z"), b"1")


def test_a_failed_replacement_leaves_the_old_file(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(IsADirectoryError):
        fsync.write_whole(str(tmp_path / "x"), b"1")
    assert os.listdir(tmp_path) == ["x"]


def test_descriptors_pass(tmp_path):
    one, two = socket.socketpair()
    read, write = os.pipe()
    fdpass.send(one.fileno(), b"hello", (write,))
    os.close(write)
    data, fds = fdpass.receive(two.fileno())
    assert data == b"hello"
    assert not os.get_inheritable(fds[0])
    os.write(fds[0], b"through")
    os.close(fds[0])
    assert os.read(read, 100) == b"through"
    os.close(read)
    fdpass.send(one.fileno(), b"none", ())
    assert fdpass.receive(two.fileno()) == (b"none", [])
    one.close()
    assert fdpass.receive(two.fileno()) == (b"", [])
    two.close()
