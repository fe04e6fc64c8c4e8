"""`spurctld raft reconfigure`: give the directory of a stopped controller the configured group.

The log and its terms stay.  A directory that is a copy of another member's gets a new term with the vote
spent: what the lost one promised in the old terms is not known.  `meta` is written last, so after a crash the
tool is simply run again.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from spur_core.errors import StateError
from spur_ctld.raft_tools.place import Place
from spur_ctld.replication.errors import BadSnapshot
from spur_ctld.replication.files import Files
from spur_ctld.replication.log import SegmentLog
from spur_ctld.replication.meta import DirectoryLock, Meta, hash_members, read_meta, write_meta
from spur_ctld.replication.recovery import choose_snapshot
from spur_ctld.replication.snapshots import SnapshotStore, read_header
from spur_ctld.replication.types import HardState

Say = Callable[[str], None]


def reconfigure(place: Place, copy_of: int | None, say: Say, files: Files | None = None) -> None:
    """Write the configured members into the directory.

    Args:
        copy_of: id of the member whose directory was copied here.

    Raises:
        StateError: not a member's directory, in use, damaged, or another member's; one line.
    """
    files = files or Files()
    folder = place.state_dir / "raft"
    if read_meta(folder / "meta") is None:
        raise StateError(
            f"{folder}: is not the directory of a controller; copy that of a healthy one here and run"
            " `spurctld raft reconfigure --copy-of N`, see docs/replication.md"
        )
    place.require_own()
    lock = DirectoryLock(folder / "lock", place.state_dir)
    try:
        # Again: somebody may have been at it until the lock was free.
        found = read_meta(folder / "meta")
        assert found is not None
        _reconfigure(place, found, copy_of, say, files)
    except OSError as error:
        raise StateError(f"{error.filename or folder}: {error.strerror}; run it again") from None
    finally:
        lock.release()


def _reconfigure(place: Place, found: Meta, copy_of: int | None, say: Say, files: Files) -> None:
    folder = place.state_dir / "raft"
    _check_owner(folder, found, place.member_id, copy_of)
    wanted = msgspec.structs.replace(
        found,
        member_id=place.member_id,
        members_hash=hash_members(place.members),
        cluster_id=place.cluster_id() or found.cluster_id,
    )
    if wanted == found:
        say(f"{folder}: is that of controller {place.member_id} in this group already")
        return
    log = SegmentLog(folder / "log", files)
    try:
        stored = log.load()
        if not log.segments:
            raise StateError(f"{folder / 'log'}: the log is missing; copy the whole directory")
        _rename_snapshots(folder / "snap", found.cluster_id, wanted.cluster_id, files)
        choose_snapshot(SnapshotStore(folder / "snap", wanted.cluster_id, files, schema=_ANY), stored)
        if wanted.member_id != found.member_id:
            if stored.hard.abstain:
                raise StateError(
                    f"{folder}: is a copy of a directory that is being filled itself; copy that of another"
                    " controller"
                )
            hard = HardState(stored.hard.term + 1, wanted.member_id)
            log.write(hard, stored.base.index + len(stored.entries) + 1, ())
    finally:
        log.close()
    write_meta(folder / "meta", wanted, files)
    say(
        f"{folder}: now controller {wanted.member_id} of {len(place.members)} of cluster {wanted.cluster_id};"
        " start it when every other controller is reconfigured too"
    )


#: The tool does not look into the state.
_ANY = 1 << 31


def _check_owner(folder: Path, found: Meta, member_id: int, copy_of: int | None) -> None:
    if found.member_id == member_id:
        return
    if copy_of is None:
        raise StateError(
            f"{folder / 'meta'}: belongs to controller {found.member_id}, this is {member_id}; if it is a"
            f" copy of that controller's directory, say --copy-of {found.member_id}"
        )
    if copy_of != found.member_id:
        raise StateError(
            f"{folder / 'meta'}: belongs to controller {found.member_id}, not to {copy_of} as --copy-of says"
        )


def _rename_snapshots(folder: Path, old: str, new: str, files: Files) -> None:
    """Every readable snapshot of cluster `old` becomes one of `new`, each whole or not at all."""
    if old == new:
        return
    before = SnapshotStore(folder, old, files, schema=_ANY)
    before.clean()
    for meta in before.list():
        try:
            footer = before.verify(meta)
            schema = read_header(before.path(meta)).schema
        except BadSnapshot:
            # Done before a crash, or of no use anyway; what is left is judged afterwards.
            continue
        after = SnapshotStore(folder, new, files, schema=schema)
        after.write(meta, before.read(meta), lambda footer=footer: footer.digest)  # type: ignore[misc]
