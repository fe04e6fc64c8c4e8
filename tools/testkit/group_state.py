"""What the directories of a group's members hold: their states at one place of the log, and its history.

Only reads; the controllers may run meanwhile.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from spur_ctld.raft_tools.survey import Survey, survey
from spur_ctld.replication.snapshots import SnapshotStore
from spur_ctld.replication.types import Entry
from spur_ctld.state import codec
from spur_ctld.state.log_machine import LogMachine
from spur_ctld.state.ops import DispatchAbort


def digest_at(state_dir: Path, index: int) -> str:
    """Digest of the state after entry `index`, made from the member's newest fitting snapshot and its log.

    Raises:
        AssertionError: the directory is damaged or does not reach that far.
    """
    found = _sound(state_dir)
    machine = LogMachine()
    snapshots = [one.index for one in found.snapshots if one.index <= index]
    start = max(snapshots, default=0)
    assert start >= found.base.index, f"{found.folder}: nothing before entry {found.base.index}"
    if start:
        assert found.meta is not None
        store = SnapshotStore(Path(found.folder) / "snap", found.meta.cluster_id)
        (place,) = [meta for meta in store.list() if meta.index == start]
        machine.restore(store.read(place))
    for entry in found.entries:
        if start < entry.index <= index and entry.data is not None:
            machine.apply(entry.index, entry.data)
    assert found.last.index >= index, f"{found.folder} ends with entry {found.last.index}, not {index}"
    return machine.freeze().digest()


def same_log(state_dirs: Sequence[Path], index: int) -> list[str]:
    """Differences between the members' logs up to `index`, where two of them hold the same entry."""
    logs = [{entry.index: entry for entry in _upto(_sound(path), index)} for path in state_dirs]
    first = logs[0]
    return [
        f"entry {at} of {path} differs from that of {state_dirs[0]}"
        for path, log in zip(state_dirs[1:], logs[1:], strict=True)
        for at in sorted(first.keys() & log.keys())
        if first[at] != log[at]
    ]


def undone_launches(state_dir: Path) -> set[tuple[str, int]]:
    """(job, attempt) of every launch that was taken back; of a member that has all of its log.

    Raises:
        AssertionError: its log does not begin with the first entry.
    """
    found = _sound(state_dir)
    assert found.base.index == 0, f"{found.folder} begins after entry {found.base.index}"
    machine = LogMachine()
    undone = set()
    for entry in found.entries:
        if entry.data is None:
            continue
        result = codec.decode_result(machine.apply(entry.index, entry.data))
        op = codec.decode_op(entry.data)
        if isinstance(op, DispatchAbort) and getattr(result, "refusal", None) is None:
            undone.add((str(op.job_id), op.attempt))
    return undone


def _sound(state_dir: Path) -> Survey:
    found = survey(state_dir)
    assert not found.problems, found.problems
    return found


def _upto(found: Survey, index: int) -> Iterator[Entry]:
    return (entry for entry in found.entries if entry.index <= index)
