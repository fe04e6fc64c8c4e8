"""Who this directory belongs to, and that only one process uses it.

<state>/raft/meta    format, cluster id, member id, hash of the member list; written once, whole
<state>/raft/lock    flock for the life of the process; holds its pid for people to read
"""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec

from spur_core.errors import StateError
from spur_ctld.replication.files import Files

FORMAT = 1


class Member(msgspec.Struct, frozen=True, order=True):
    """One controller of the group.

    Attributes:
        address: HOST:PORT of its replication listener.
        name: what its certificate says; empty in a group of one.
        client: HOST:PORT at which clients, agents and other members reach its service.
    """

    id: int
    address: str = ""
    name: str = ""
    client: str = ""


class Meta(msgspec.Struct, frozen=True):
    """The file `meta`."""

    format: int
    cluster_id: str
    member_id: int
    members_hash: str


def hash_members(members: Sequence[Member]) -> str:
    """Equal for equal lists in any order.  Addresses may change; ids and names decide."""
    text = "\n".join(f"{member.id} {member.name}" for member in sorted(members))
    return hashlib.sha256(text.encode()).hexdigest()


def new_meta(member_id: int, members: Sequence[Member]) -> Meta:
    """For a new group, with a random cluster id."""
    return Meta(FORMAT, secrets.token_hex(16), member_id, hash_members(members))


def read_meta(path: Path) -> Meta | None:
    """None: there is no such file.

    Raises:
        StateError: unreadable, or written by a newer release.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = msgspec.json.decode(data, type=Meta)
    except msgspec.MsgspecError as error:
        raise StateError(f"{path}: damaged ({error}); restore it from a copy") from None
    if found.format != FORMAT:
        raise StateError(f"{path}: format {found.format}, this release reads {FORMAT}; use the newer release")
    return found


def check_meta(path: Path, found: Meta, member_id: int, members: Sequence[Member]) -> None:
    """Raises StateError when the directory belongs to another member or another group."""
    if found.member_id != member_id:
        raise StateError(
            f"{path}: belongs to controller {found.member_id}, this is {member_id}; use its own directory"
        )
    if found.members_hash != hash_members(members):
        raise StateError(
            f"{path}: written for another list of controllers; restore the configured list, or stop all"
            " controllers and run `spurctld raft reconfigure` on each"
        )


def write_meta(path: Path, meta: Meta, files: Files) -> None:
    """Whole or not at all, durable on return."""
    tmp = path.with_name(path.name + ".tmp")
    tmp.unlink(missing_ok=True)
    fd = files.create(tmp)
    try:
        files.write(fd, msgspec.json.format(msgspec.json.encode(meta), indent=1) + b"\n")
        files.datasync(fd)
    finally:
        files.close(fd)
    files.rename(tmp, path)
    files.sync_dir(path.parent)


class DirectoryLock:
    """Held until `release` or the end of the process, however it ends.

    Raises:
        StateError: another process holds it; the text names its pid.
    """

    def __init__(self, path: Path, directory: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise StateError(
                f"state directory {directory} is in use by another spurctld (pid {holder}); stop it first"
            ) from None
        except OSError:
            os.close(self._fd)
            raise
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another process in; calling it again does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
