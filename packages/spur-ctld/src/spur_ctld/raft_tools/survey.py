"""What a member's directory holds, found by reading alone: no lock, no repair, on a live directory too.

While the controller runs, the end of the newest segment may be half written and old segments may go; the
first is a note, for the second the reading starts over.
"""

import stat
from pathlib import Path

import msgspec

from spur_core.errors import StateError
from spur_ctld.replication.digests import ALARMS, read_alarms
from spur_ctld.replication.errors import BadSnapshot
from spur_ctld.replication.frames import find_valid, read
from spur_ctld.replication.meta import Meta, read_meta
from spur_ctld.replication.replay import Replay, sequence_of
from spur_ctld.replication.snapshots import SnapshotStore, read_header
from spur_ctld.replication.types import Entry, HardState, Position

#: Segments go only after a snapshot; nobody takes so many in the time of one reading.
_TRIES = 5
#: Any version of the state's encoding is only measured here, never decoded.
_ANY_SCHEMA = 1 << 31


class SegmentView(msgspec.Struct, frozen=True):
    """One file of the log.  `first`, `last`: entries that its frames speak of; 0 = none."""

    path: str
    size: int
    frames: int
    sequence: int
    first: int
    last: int


class SnapshotView(msgspec.Struct, frozen=True):
    """One snapshot.  `digest`: of the state, empty when the file has none; `problem`: empty = readable."""

    path: str
    size: int
    index: int
    term: int
    chunks: int = 0
    digest: str = ""
    problem: str = ""


class Survey(msgspec.Struct):
    """Everything found.

    Attributes:
        pid: process that the lock file names, None when there is none or it is gone.
        base, last: the log holds the entries after `base` up to `last`, or to a snapshot that is ahead of it.
        problems: each says what is wrong where; notes are no faults.
        entries: those of the log, newest version of each; not part of the JSON document.
    """

    folder: str
    meta: Meta | None = None
    pid: int | None = None
    hard: HardState = HardState()
    base: Position = Position()
    last: Position = Position()
    segments: list[SegmentView] = []
    snapshots: list[SnapshotView] = []
    problems: list[str] = []
    notes: list[str] = []
    entries: list[Entry] = []

    @property
    def log_bytes(self) -> int:
        """Size of all segments."""
        return sum(segment.size for segment in self.segments)


def survey(state_dir: Path) -> Survey:
    """Read `<state_dir>/raft`.

    Raises:
        StateError: there is no such directory, or it cannot be read.
    """
    folder = state_dir / "raft"
    if not folder.is_dir():
        raise StateError(f"{folder}: no such directory; name the controller's state directory by --state-dir")
    for _ in range(_TRIES):
        try:
            return _survey(folder)
        except FileNotFoundError:
            # The controller removed an old segment or snapshot meanwhile.
            continue
        except OSError as error:
            raise StateError(f"{error.filename or folder}: {error.strerror}") from None
    raise StateError(f"{folder}: changes all the time; try again")


def _survey(folder: Path) -> Survey:
    found = Survey(str(folder))
    _require_files(folder)
    try:
        found.meta = read_meta(folder / "meta")
        if found.meta is None:
            found.problems.append(f"{folder / 'meta'}: missing")
    except StateError as error:
        found.problems.append(error.text)
    found.pid = _holder(folder / "lock")
    found.problems += [f"{folder / ALARMS}: {alarm.text}" for alarm in read_alarms(folder)]
    _read_log(found, folder / "log")
    _read_snapshots(found, folder / "snap")
    readable = [one for one in found.snapshots if not one.problem]
    newest = max((one.index for one in readable), default=0)
    if readable and newest > found.last.index:
        # Received from the leader, and the power went before the log said so.
        found.last = Position(newest, readable[0].term)
        found.notes.append(
            f"{readable[0].path}: is ahead of the log, which goes on after it at the next start"
        )
    if found.base.index and newest < found.base.index:
        found.problems.append(
            f"{folder / 'snap'}: no readable snapshot reaches entry {found.base.index}, where the log begins"
        )
    return found


def _require_files(folder: Path) -> None:
    """Raises StateError when anything stands in a file's place that has no end, or waits for a writer."""
    parts = [folder / name for name in ("meta", "lock", ALARMS)]
    parts += [
        path for name in ("log", "snap") if (folder / name).is_dir() for path in (folder / name).iterdir()
    ]
    for path in parts:
        try:
            regular = stat.S_ISREG(path.lstat().st_mode)
        except FileNotFoundError:
            continue
        if not regular:
            raise StateError(f"{path}: is not a regular file; this is no directory of a controller")


def _holder(path: Path) -> int | None:
    try:
        pid = int(path.read_text())
    except (OSError, ValueError):
        return None
    return pid if Path(f"/proc/{pid}").exists() else None


def _read_log(found: Survey, folder: Path) -> None:
    if not folder.is_dir():
        found.problems.append(f"{folder}: missing")
        return
    replay = Replay()
    paths = sorted(folder.iterdir())
    for path in [path for path in paths if sequence_of(path) is None]:
        found.problems.append(f"{path}: not a log segment; move it out of the log directory")
        paths.remove(path)
    if not paths:
        found.problems.append(f"{folder}: holds no segment; the log is lost")
    usable = True
    for path in paths:
        usable = _read_segment(found, replay, path, newest=path == paths[-1], usable=usable)
    found.hard, found.base = replay.hard, replay.base
    found.entries = replay.entries
    last = replay.entries[-1] if replay.entries else None
    found.last = Position(last.index, last.term) if last else replay.base


def _read_segment(found: Survey, replay: Replay, path: Path, *, newest: bool, usable: bool) -> bool:
    """Go on through one file; whether what follows can still be believed."""
    data = path.read_bytes()
    offset = frames = first = last = 0
    while offset < len(data):
        step = read(data, offset)
        if step is None:
            later = find_valid(data, offset + 1)
            if newest and later is None:
                what = f"{len(data) - offset} bytes that are no whole frame: a write on its way or cut off"
                found.notes.append(f"{path}: offset {offset}: {what}")
            else:
                what = "a newer segment follows" if later is None else f"a valid one follows at {later}"
                found.problems.append(f"{path}: offset {offset}: damaged frame, {what}")
                usable = False
            if later is None:
                break
            offset = later
            continue
        sequence, frame, end = step
        if usable:
            problem = replay.problem(sequence, frame, first_in_file=frames == 0)
            if frames == 0 and sequence != sequence_of(path):
                problem = f"holds frame {sequence}, its name says {sequence_of(path)}"
            if problem:
                found.problems.append(f"{path}: offset {offset}: {problem}")
                usable = False
            else:
                replay.take(sequence, frame)
        frames += 1
        if frame.entries:
            first = min(first or frame.first, frame.first)
            last = frame.first + len(frame.entries) - 1
        offset = end
    if not data and not newest:
        found.problems.append(f"{path}: empty, but it is not the newest segment")
        usable = False
    found.segments.append(SegmentView(str(path), len(data), frames, sequence_of(path) or 0, first, last))
    return usable


def _read_snapshots(found: Survey, folder: Path) -> None:
    if not folder.is_dir():
        found.problems.append(f"{folder}: missing")
        return
    for meta in SnapshotStore(folder, "").list():
        cluster_id = found.meta.cluster_id if found.meta else None
        path = SnapshotStore(folder, "").path(meta)
        size = path.stat().st_size
        try:
            store = SnapshotStore(folder, cluster_id or read_header(path).cluster_id, schema=_ANY_SCHEMA)
            footer = store.verify(meta)
        except BadSnapshot as error:
            found.snapshots.append(SnapshotView(str(path), size, meta.index, meta.term, problem=error.text))
            found.problems.append(error.text)
        else:
            found.snapshots.append(
                SnapshotView(str(path), size, meta.index, meta.term, footer.chunks, footer.digest)
            )
    for path in sorted(folder.glob("*.tmp")):
        found.notes.append(f"{path}: a snapshot being written, or left by a crash")
