"""One line for a person about what a simulated member says or does."""

from spur_ctld.replication.core import Core
from spur_ctld.replication.types import (
    AnyMessage,
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Position,
    Ready,
    VoteReply,
    VoteRequest,
)


def place(at: Position) -> str:
    """index/term."""
    return f"{at.index}/{at.term}"


def message(msg: AnyMessage) -> str:
    """Sender, receiver, term, kind and what matters of the rest."""
    return f"{msg.src}>{msg.dst} t{msg.term} {_said(msg)}"


def _said(msg: AnyMessage) -> str:
    if isinstance(msg, VoteRequest):
        kind = "pre-vote?" if msg.pre else "vote?"
        return f"{kind} last {place(msg.last)}{' (hand-over)' if msg.transfer else ''}"
    if isinstance(msg, VoteReply):
        return f"{'pre-vote' if msg.pre else 'vote'} {'yes' if msg.granted else 'no'}"
    if isinstance(msg, Append):
        entries = (
            f"+{msg.entries[0].index}/{msg.entries[0].term}..{msg.entries[-1].index}"
            if msg.entries
            else "empty"
        )
        return f"append after {place(msg.prev)} {entries} commit {msg.commit}"
    if isinstance(msg, AppendReply):
        return f"have {msg.index}" if msg.ok else f"refused {msg.index} hint {place(msg.hint)}"
    if isinstance(msg, Heartbeat):
        return f"beat commit {msg.commit} round {msg.round}"
    if isinstance(msg, HeartbeatReply):
        return f"beaten round {msg.round}"
    if isinstance(msg, InstallSnapshot):
        return f"snapshot {place(msg.meta)}"
    return "take over now"


def member(core: Core) -> str:
    """Where a member stands."""
    log = core.log
    return (
        f"{core.role.value} t{core.term} vote {core.vote} log {place(log.base)}..{place(log.last)} "
        f"commit {core.commit} applied {core.applied}{' abstains' if core.abstain else ''}"
    )


def written(ready: Ready) -> str:
    """What a durable step holds."""
    parts = []
    if ready.hard is not None:
        parts.append(f"term {ready.hard.term} vote {ready.hard.vote}")
    if ready.install_snapshot is not None:
        parts.append(f"restart at {place(ready.install_snapshot)}")
    if ready.entries:
        parts.append(
            f"entries {place(Position(ready.first, ready.entries[0].term))}..{ready.entries[-1].index}"
        )
    return ", ".join(parts) or "nothing"
