"""The cluster key: from the file's text or from a file of its own."""

import os
import stat

from spur_core.config.model import Config
from spur_core.errors import ConfigError

#: A shorter key can be guessed; 32 bytes are recommended and what `spur keygen` writes.
MIN_KEY_BYTES = 16
#: Far more than any key; a wrong path must not read a disk image into memory.
_MAX_KEY_BYTES = 65536


def resolve_jwt_key(config: Config) -> bytes | None:
    """The key as bytes, or None when none is configured.

    Raises:
        ConfigError: the file is missing, unreadable, open to group or others, empty or too short.
    """
    auth = config.auth
    if auth.jwt_key and auth.jwt_key_file:
        raise ConfigError("[auth] jwt_key and jwt_key_file are both set; keep one")
    if auth.jwt_key:
        return _checked(auth.jwt_key.encode(), "[auth] jwt_key")
    if auth.jwt_key_file:
        return read_key_file(auth.jwt_key_file)
    return None


def read_key_file(path: str) -> bytes:
    """The key in `path`, its trailing newline stripped.

    Raises:
        ConfigError: as for `resolve_jwt_key`.
    """
    where = f"[auth] jwt_key_file {path}"
    try:
        # Non-blocking, so that a FIFO at this path is an error and not a hang.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}") from None
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{where}: not a regular file")
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            mode = stat.S_IMODE(found.st_mode)
            raise ConfigError(f"{where}: its mode {mode:04o} opens it to others; run chmod 600 {path}")
        data = file.read(_MAX_KEY_BYTES + 1)
    if len(data) > _MAX_KEY_BYTES:
        raise ConfigError(f"{where}: too long for a key")
    return _checked(data.removesuffix(b"\n").removesuffix(b"\r"), where)


def _checked(key: bytes, where: str) -> bytes:
    if not key:
        raise ConfigError(f"{where}: empty; make a key with `spur keygen`")
    if len(key) < MIN_KEY_BYTES:
        raise ConfigError(
            f"{where}: {len(key)} bytes, at least {MIN_KEY_BYTES} are needed; make a key with `spur keygen`"
        )
    return key
