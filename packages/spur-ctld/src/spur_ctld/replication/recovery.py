"""Opening a member's directory: who owns it, what is durable, where the state starts from.

In this order: directories, lock, log, `meta`, snapshots, restart frame.  A new directory gets the log's first
frame before `meta`, so `meta` without a log means that the log was lost, and such a member must not start: it
could break promises it made.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from spur_core.errors import StateError
from spur_ctld.replication.api import Stored
from spur_ctld.replication.errors import BadSnapshot
from spur_ctld.replication.files import Files
from spur_ctld.replication.log import SEGMENT_BYTES, SegmentLog
from spur_ctld.replication.meta import (
    DirectoryLock,
    Member,
    Meta,
    check_meta,
    new_meta,
    read_meta,
    write_meta,
)
from spur_ctld.replication.snapshots import SnapshotStore
from spur_ctld.replication.types import ORIGIN, HardState, SnapshotMeta

_log = logging.getLogger(__name__)
#: How a member of a larger group comes back.
LOST = "move the directory away and run `spurctld raft seed`"


class Opened(msgspec.Struct, frozen=True, eq=False):
    """A directory that this process owns.  `snapshot` is verified; Position(0, 0) = start from nothing."""

    folder: Path
    lock: DirectoryLock
    meta: Meta
    log: SegmentLog
    snapshots: SnapshotStore
    stored: Stored
    snapshot: SnapshotMeta


def open_directory(
    state_dir: Path,
    member_id: int,
    members: Sequence[Member],
    files: Files,
    *,
    schema: int,
    segment_bytes: int = SEGMENT_BYTES,
    cluster_id: str | None = None,
) -> Opened:
    """Lock and read `<state_dir>/raft`; a group of one creates it when it is new.

    Args:
        cluster_id: what the group's CA says; None = not compared (a group of one has no CA).

    Raises:
        StateError: not writable, in use, somebody else's, lost or damaged; one line that names the path.
    """
    fresh = new_meta(member_id, members) if len(members) == 1 else None
    with _naming(state_dir):
        opened = _open(state_dir, member_id, members, files, schema, segment_bytes, fresh)
    if cluster_id is not None and opened.meta.cluster_id != cluster_id:
        opened.log.close()
        opened.lock.release()
        raise StateError(
            f"{opened.folder / 'meta'}: belongs to cluster {opened.meta.cluster_id}, the group's CA says"
            f" {cluster_id}; use the certificates that the directory was made with"
        )
    return opened


def init_directory(
    state_dir: Path,
    member_id: int,
    members: Sequence[Member],
    files: Files,
    cluster_id: str | None = None,
    hard: HardState | None = None,
) -> Meta:
    """Make the directory of a member of a new cluster, or of one that was lost.

    Args:
        cluster_id: of a group with certificates; None = a random one.
        hard: what a lost member begins with (`seeding.first_state`); None = a new cluster.

    Raises:
        StateError: there is anything of a member already, or it cannot be made; one line.
    """
    folder = state_dir / "raft"
    fresh = new_meta(member_id, members)
    if cluster_id is not None:
        fresh = msgspec.structs.replace(fresh, cluster_id=cluster_id)
    with _naming(state_dir):
        if (folder / "meta").exists():
            raise StateError(
                f"{folder}: belongs to a controller already; a new cluster needs an empty directory"
            )
        opened = _open(state_dir, member_id, members, files, 0, SEGMENT_BYTES, fresh, hard)
    opened.log.close()
    opened.lock.release()
    return opened.meta


@contextlib.contextmanager
def _naming(state_dir: Path) -> Iterator[None]:
    """System errors become one line that names the directory and the mend."""
    try:
        yield
    except OSError as error:
        where = error.filename or state_dir
        raise StateError(
            f"state directory {state_dir}: {where}: {error.strerror}; "
            f"make it writable for uid {os.geteuid()} or choose another with --state-dir"
        ) from error


def _open(
    state_dir: Path,
    member_id: int,
    members: Sequence[Member],
    files: Files,
    schema: int,
    segment_bytes: int,
    fresh: Meta | None,
    hard: HardState | None = None,
) -> Opened:
    folder = state_dir / "raft"
    for path in (folder, folder / "log", folder / "snap"):
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.sync_dir(path.parent)
    lock = DirectoryLock(folder / "lock", state_dir)
    log = SegmentLog(folder / "log", files, segment_bytes=segment_bytes)
    try:
        stored = log.load()
        meta = _identify(folder, stored, log, member_id, members, files, fresh, hard)
        snapshots = SnapshotStore(folder / "snap", meta.cluster_id, files, schema=schema)
        snapshots.clean()
        snapshot = choose_snapshot(snapshots, stored)
        stored = _join(log, stored, snapshot)
    except BaseException:
        log.close()
        lock.release()
        raise
    return Opened(folder, lock, meta, log, snapshots, stored, snapshot)


def _identify(
    folder: Path,
    stored: Stored,
    log: SegmentLog,
    member_id: int,
    members: Sequence[Member],
    files: Files,
    fresh: Meta | None,
    first: HardState | None,
) -> Meta:
    """The directory's `meta`; a new directory gets `fresh`, and is refused when that is None."""
    path = folder / "meta"
    meta = read_meta(path)
    if meta is not None:
        check_meta(path, meta, member_id, members)
        if not log.segments:
            mend = "restore it from a copy" if len(members) == 1 else LOST
            raise StateError(f"{folder / 'log'}: the log of this controller is missing; {mend}")
        return meta
    # A `raft seed` that was cut off left its own first frame; it begins anew, a new cluster never does there.
    promised = stored.hard.term and not (first is not None and stored.hard.abstain)
    if stored.base != ORIGIN or stored.entries or promised or any((folder / "snap").iterdir()):
        raise StateError(f"{path}: missing, but the directory holds a log; restore it from a copy")
    if fresh is None:
        raise StateError(
            f"{folder}: is empty; run `spurctld raft init` for a new cluster, "
            "`spurctld raft seed` for a lost directory"
        )
    if first is not None:
        # Never below what an earlier attempt began with.
        above = max(first.term, stored.hard.term)
        log.write(HardState(above, member_id, above), 1, ())
    elif not log.segments:
        log.write(HardState(), 1, ())
    write_meta(path, fresh, files)
    return fresh


def choose_snapshot(snapshots: SnapshotStore, stored: Stored) -> SnapshotMeta:
    """The newest readable snapshot that the log continues; an unreadable one is logged and passed over.

    Raises:
        StateError: there is none, and the log does not reach back to the beginning.
    """
    problems: list[str] = []
    for meta in snapshots.list():
        if meta.index < stored.base.index:
            problems.append(f"{snapshots.path(meta)}: the log begins only after {stored.base.index}")
            continue
        if problems and not _contains(stored, meta):
            problems.append(f"{snapshots.path(meta)}: the log does not contain its position")
            continue
        try:
            snapshots.verify(meta)
        except BadSnapshot as error:
            problems.append(error.text)
            _log.warning("snapshot_unreadable error=%s", error.text)
            continue
        return meta
    if stored.base == ORIGIN:
        return ORIGIN
    raise StateError(
        f"no usable snapshot, and the log begins only after entry {stored.base.index}: "
        f"{'; '.join(problems) or 'there is none'}; restore the state directory from a copy"
    )


def _contains(stored: Stored, meta: SnapshotMeta) -> bool:
    at = meta.index - stored.base.index
    if at == 0:
        return stored.base == meta
    return 0 < at <= len(stored.entries) and stored.entries[at - 1].term == meta.term


def _join(log: SegmentLog, stored: Stored, snapshot: SnapshotMeta) -> Stored:
    """A crash between a received snapshot and its restart frame: write the frame now."""
    if _contains(stored, snapshot):
        return stored
    log.write(None, snapshot.index + 1, (), snapshot)
    return Stored(stored.hard, snapshot, [])
