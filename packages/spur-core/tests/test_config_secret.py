"""The cluster key: from the text or from a private file."""

import os

import pytest

from spur_core.config import parse_config, resolve_jwt_key
from spur_core.errors import ConfigError

KEY = "0123456789abcdef0123456789abcdef"


def config_with(line: str):
    """A configuration whose [auth] section has one line."""
    return parse_config(f'cluster_name = "c"\n[auth]\n{line}\n')


def key_file(tmp_path, data: bytes, mode: int = 0o600):
    """A key file and the configuration that names it."""
    path = tmp_path / "key"
    path.write_bytes(data)
    path.chmod(mode)
    return config_with(f'jwt_key_file = "{path}"')


def test_no_key_is_none():
    """Nothing configured, nothing returned."""
    assert resolve_jwt_key(config_with("")) is None


def test_the_text_itself_is_the_key():
    """jwt_key is a secret, never a path."""
    assert resolve_jwt_key(config_with(f'jwt_key = "{KEY}"')) == KEY.encode()


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_file_holds_the_key_with_or_without_its_newline(tmp_path, end):
    """Editors and `echo` end the file with a newline."""
    assert resolve_jwt_key(key_file(tmp_path, KEY.encode() + end)) == KEY.encode()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o601])
def test_a_file_open_to_others_is_refused(tmp_path, mode):
    """Any bit for group or others is too much; the mend is in the text."""
    with pytest.raises(ConfigError, match=f"mode {mode:04o} opens it to others; run chmod 600"):
        resolve_jwt_key(key_file(tmp_path, KEY.encode(), mode))


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"", "empty"), (b"\n", "empty"), (b"short", "5 bytes, at least 16"), (b"x" * 70000, "too long")],
)
def test_a_useless_key_is_refused(tmp_path, data, why):
    """Empty, guessable or no key at all."""
    with pytest.raises(ConfigError, match=why):
        resolve_jwt_key(key_file(tmp_path, data))


def test_a_short_text_is_refused():
    """The same for jwt_key."""
    with pytest.raises(ConfigError, match=r"\[auth\] jwt_key: 5 bytes, at least 16 are needed"):
        resolve_jwt_key(config_with('jwt_key = "short"'))


def test_a_missing_file_is_named(tmp_path):
    """The path and the system's reason."""
    config = config_with(f'jwt_key_file = "{tmp_path}/none"')
    with pytest.raises(ConfigError, match=f"jwt_key_file {tmp_path}/none: No such file"):
        resolve_jwt_key(config)


def test_a_fifo_is_refused_and_does_not_hang(tmp_path):
    """Only a regular file can hold a key."""
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(ConfigError, match="not a regular file"):
        resolve_jwt_key(config_with(f'jwt_key_file = "{tmp_path}/fifo"'))
