"""`spurctld raft inspect`: a survey for people, or as JSON."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from spur_core.errors import StateError
from spur_ctld.raft_tools.survey import Survey, survey
from spur_ctld.replication.types import NOBODY, Entry

Say = Callable[[str], None]
EXIT_DAMAGED = 1
_WIDTH = 200


def run(state_dir: Path, say: Say, *, first: int | None, json: bool) -> int:
    """Print what the directory of a member holds; 1 when something in it is wrong.

    Args:
        first: list the entries from this index on; None = do not list them.
        json: one document, the entries included when they are asked for.

    Raises:
        StateError: there is nothing to read.
    """
    found = survey(state_dir)
    entries = [entry for entry in found.entries if first is not None and entry.index >= first]
    if json:
        found.entries = []
        document = msgspec.to_builtins(found)
        document["entries"] = [_as_dict(entry) for entry in entries]
        say(msgspec.json.format(msgspec.json.encode(document), indent=1).decode())
    else:
        for line in summary(found):
            say(line)
        for entry in entries:
            say(shown(entry))
    return EXIT_DAMAGED if found.problems else 0


def summary(found: Survey) -> Iterator[str]:
    """One line a fact."""
    yield f"directory   {found.folder}"
    if found.meta is not None:
        meta = found.meta
        yield f"member      {meta.member_id} of cluster {meta.cluster_id}, members hash {meta.members_hash}"
    yield f"in use by   {'pid ' + str(found.pid) if found.pid else 'nobody'}"
    vote = "nobody" if found.hard.vote == NOBODY else f"member {found.hard.vote}"
    yield f"term        {found.hard.term}, vote for {vote}"
    if found.hard.abstain:
        yield f"being filled: does not vote until it holds an entry of a term above {found.hard.abstain}"
    count = len(found.entries)
    yield (
        f"log         {count} entries, after {found.base.index} (term {found.base.term})"
        f" to {found.last.index} (term {found.last.term})"
    )
    yield f"segments    {len(found.segments)}, {found.log_bytes} bytes"
    for segment in found.segments:
        span = f"entries {segment.first} to {segment.last}" if segment.last else "no entries"
        yield f"            {segment.path}: {segment.size} bytes, {segment.frames} frames, {span}"
    yield f"snapshots   {len(found.snapshots)}"
    for one in found.snapshots:
        content = f"{one.chunks} chunks, digest {one.digest or 'not recorded'}"
        state = "UNREADABLE" if one.problem else content
        yield f"            {one.path}: entry {one.index} (term {one.term}), {one.size} bytes, {state}"
    for note in found.notes:
        yield f"note        {note}"
    for problem in found.problems:
        yield f"PROBLEM     {problem}"
    if not found.problems:
        yield "state       in order"


def shown(entry: Entry) -> str:
    """One entry on one line; long values are cut."""
    text = _decoded(entry)
    if isinstance(text, dict):
        text = " ".join(f"{key}={_short(value)}" for key, value in text.items())
    line = f"{entry.index} term={entry.term} {text}"
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def _as_dict(entry: Entry) -> dict[str, object]:
    return {"index": entry.index, "term": entry.term, "command": _decoded(entry)}


def _decoded(entry: Entry) -> "dict[str, object] | str":
    from spur_ctld.state import codec

    if entry.data is None:
        return "begin of the term"
    try:
        op = codec.decode_op(entry.data)
    except StateError as error:
        return f"{len(entry.data)} bytes, {error.text}"
    found: dict[str, object] = msgspec.to_builtins(op)
    return found


def _short(value: object) -> str:
    """A value without blanks of its own at the ends, control characters escaped."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
