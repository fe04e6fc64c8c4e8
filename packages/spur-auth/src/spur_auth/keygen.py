"""Making a new cluster key."""

import os
from pathlib import Path

from spur_core.errors import AlreadyExists, RequestError

#: Bytes of randomness in a new key.
KEY_BYTES = 32


def new_key() -> str:
    """A new cluster key: 32 random bytes as 64 hex digits (the text itself is the key)."""
    return os.urandom(KEY_BYTES).hex()


def keygen(path: "str | os.PathLike[str]") -> Path:
    """Write a new cluster key to `path`, readable by its owner alone; never replaces a file.

    Raises:
        AlreadyExists: something of that name is there; replacing a key would lock every agent out.
        RequestError: the file cannot be made.
    """
    target = Path(path)
    data = (new_key() + "\n").encode()
    try:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise AlreadyExists(f"{target} exists; a cluster key is never overwritten, remove it first") from None
    except OSError as e:
        raise RequestError(f"cannot write {target}: {e.strerror}") from None
    try:
        os.fchmod(fd, 0o600)  # whatever the umask took away or a default ACL gave
        with os.fdopen(fd, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
    except OSError as e:
        target.unlink(missing_ok=True)
        raise RequestError(f"cannot write {target}: {e.strerror}") from None
    return target
