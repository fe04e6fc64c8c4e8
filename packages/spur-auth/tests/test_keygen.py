"""A new cluster key: random, private, never overwritten."""

import os
import re
import stat

import pytest

from spur_auth.keygen import keygen, new_key
from spur_core.errors import AlreadyExists, RequestError


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_the_file_is_private_under_every_umask(umask, tmp_path):
    before = os.umask(umask)
    try:
        path = keygen(tmp_path / "auth.key")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert re.fullmatch(r"[0-9a-f]{64}\n", path.read_text())


def test_keys_differ():
    assert len({new_key() for _ in range(100)}) == 100


def test_never_overwritten(tmp_path):
    path = keygen(tmp_path / "auth.key")
    held = path.read_bytes()
    with pytest.raises(AlreadyExists, match=r"auth\.key exists"):
        keygen(path)
    assert path.read_bytes() == held


def test_a_dangling_link_is_not_followed(tmp_path):
    (tmp_path / "auth.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AlreadyExists):
        keygen(tmp_path / "auth.key")
    assert not (tmp_path / "elsewhere").exists()


def test_no_such_folder(tmp_path):
    with pytest.raises(RequestError, match=r"cannot write .*nowhere/auth\.key: No such file"):
        keygen(tmp_path / "nowhere" / "auth.key")
