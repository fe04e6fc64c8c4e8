"""How an agent gets a supervisor that is not its child.

Spawner mode: `spurstepd --spawner` has one end of a stream socketpair as its standard input.  It says
SpawnerReady once, then answers each SpawnRequest with a SpawnReply of the same id; several may be under
way at a time and answers come as they are ready.  It ends at end-of-file.

Exec mode: `spurstepd --session DIR`, standard output a pipe.  The process detaches itself and writes
5-byte records there: `P` + u32 pid, then nothing and end-of-file when all is well, or `E` + u32 errno.
"""

from __future__ import annotations

import struct

from spur_proto_lite.errors import BadDocument
from spur_proto_lite.record import Record
from spur_proto_lite.versions import SPAWN_VERSION

#: The descriptor on which the spawner talks.
SPAWNER_FD = 0

#: Environment of every supervisor and spawner: these names of the agent's environment and no others.
ENVIRONMENT = ("PATH", "LANG", "TZ", "SPUR_LOG")

_RECORD = struct.Struct("<cI")
RECORD_SIZE = _RECORD.size

#: Where a spawn failed.
STAGE_FORK = "fork"
STAGE_SESSION = "session"
STAGE_REQUEST = "request"


class SpawnerReady(Record):
    """First message of a spawner."""

    v: int = SPAWN_VERSION
    pid: int
    #: Release of the program; an agent replaces a spawner of another one than it would start.
    program_version: str


class SpawnRequest(Record):
    """Start a supervisor for the session directory (absolute) that the agent has prepared."""

    v: int = SPAWN_VERSION
    id: int
    session: str
    #: As in the launch spec; the spawner moves itself out of the agent's groups, its children with it.
    cgroup_root: str = "auto"


class SpawnReply(Record):
    """`errno` 0: the supervisor exists; it is ready when it answers `hello`."""

    v: int = SPAWN_VERSION
    id: int
    pid: int = 0
    start_ticks: int = 0
    errno: int = 0
    #: One of the STAGE words when `errno` is not 0.
    stage: str = ""
    detail: str = ""


def pid_record(pid: int) -> bytes:
    """`P` record."""
    return _RECORD.pack(b"P", pid)


def error_record(errno: int) -> bytes:
    """`E` record."""
    return _RECORD.pack(b"E", errno)


def decode_records(data: bytes) -> tuple[int, int]:
    """(pid, errno) of the records in `data`, each 0 if it is not there.

    Raises:
        BadDocument: bytes that are no records.
    """
    pid = errno = 0
    for at in range(0, len(data) - RECORD_SIZE + 1, RECORD_SIZE):
        kind, number = _RECORD.unpack_from(data, at)
        if kind == b"P":
            pid = number
        elif kind == b"E":
            errno = number
        else:
            raise BadDocument(f"not a spawn record: {kind!r}")
    return pid, errno
