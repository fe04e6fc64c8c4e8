"""What members of a group say to each other and write down: plain frozen values.

Everything here is a msgspec array (position decides, no names on the wire or on disk), so fields are only
ever appended, each with a default.  Member ids are 1 or more; 0 means "nobody".
"""

from typing import TypeAlias

import msgspec

NOBODY = 0


class Position(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A place in the log: index 0, term 0 is the place before the first entry ever."""

    index: int = 0
    term: int = 0


#: What a snapshot holds: everything up to and including this position.
SnapshotMeta: TypeAlias = Position

ORIGIN = Position()


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One place of the log.  `data` None = the leader's no-op at the start of its term."""

    index: int
    term: int
    data: bytes | None

    @property
    def size(self) -> int:
        """Bytes this entry counts for in limits."""
        return 24 if self.data is None else 24 + len(self.data)


class HardState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member must never forget: the newest term it saw and whom it voted for in it.

    `abstain`: a member whose directory was lost neither votes nor stands until it holds a committed entry of
    a term above this one (`seeding`); 0 = an ordinary member.
    """

    term: int = 0
    vote: int = NOBODY
    abstain: int = 0


class Message(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """Base.  `term` is the sender's, except in a pre-vote, where it is the term it would campaign in."""

    src: int
    dst: int
    term: int


class VoteRequest(Message, frozen=True, array_like=True, tag="vote"):
    """Asks for a vote.  `pre`: only asks whether it would be given.  `transfer`: the leader wants it so."""

    last: Position
    pre: bool = False
    transfer: bool = False


class VoteReply(Message, frozen=True, array_like=True, tag="voted"):
    """`term` of a granted pre-vote is the asked one; of any other reply the sender's own."""

    granted: bool
    pre: bool = False


class Append(Message, frozen=True, array_like=True, tag="append"):
    """Entries that follow `prev`; none = only tells the commit index or asks where the follower is."""

    prev: Position
    entries: tuple[Entry, ...]
    commit: int


class AppendReply(Message, frozen=True, array_like=True, tag="appended"):
    """ok: the follower's log equals the leader's up to `index`, durably.

    Not ok: `index` is the refused `prev.index` and `hint` the newest place at which the logs may agree.
    """

    ok: bool
    index: int
    hint: Position = ORIGIN


class Heartbeat(Message, frozen=True, array_like=True, tag="beat"):
    """`commit` never exceeds what the follower acknowledged; `round` counts confirmations of leadership."""

    commit: int
    round: int


class HeartbeatReply(Message, frozen=True, array_like=True, tag="beaten"):
    """Echoes the round."""

    round: int


class InstallSnapshot(Message, frozen=True, array_like=True, tag="snapshot"):
    """The follower needs entries that are gone.

    The driver sends the file first; the receiver's driver steps this only when the file is durable.
    """

    meta: Position


class TimeoutNow(Message, frozen=True, array_like=True, tag="now"):
    """The leader hands over: campaign at once."""


AnyMessage: TypeAlias = (
    VoteRequest | VoteReply | Append | AppendReply | Heartbeat | HeartbeatReply | InstallSnapshot | TimeoutNow
)


class Ready(msgspec.Struct, frozen=True, eq=False):
    """One durable step: write `hard`, `entries` from index `first`, restart the log if asked; then send.

    Attributes:
        hard: None = unchanged since the last step.
        first: index of `entries[0]`; anything durable from there on is replaced.
        install_snapshot: the log restarts after this position and the state is restored from that snapshot.
        messages: may leave only after everything above is durable.
    """

    hard: HardState | None
    first: int
    entries: tuple[Entry, ...]
    install_snapshot: SnapshotMeta | None
    messages: tuple[AnyMessage, ...]

    @property
    def writes(self) -> bool:
        """True when something must reach the disk before the messages leave."""
        return self.hard is not None or bool(self.entries) or self.install_snapshot is not None


class ReadResult(msgspec.Struct, frozen=True):
    """Answer to a read request: apply up to `index`, then read.  None = not leader, ask again elsewhere."""

    token: int
    index: int | None
