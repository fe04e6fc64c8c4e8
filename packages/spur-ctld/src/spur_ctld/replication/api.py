"""The border of the replicated log: what other packages implement, call and catch.

`spur_ctld.replication.node.Node` is the `Replicator`; the controller's state is the `StateMachine`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from spur_ctld.replication.errors import (
    BadSnapshot,
    CorruptLog,
    Dropped,
    NotLeader,
    Overloaded,
    TooLarge,
    TooNew,
    Unknown,
)
from spur_ctld.replication.roles import Role
from spur_ctld.replication.types import Entry, HardState, Position

__all__ = [
    "EXIT_STORAGE",
    "BadSnapshot",
    "Commands",
    "CorruptLog",
    "Dropped",
    "LeaderChange",
    "LogStore",
    "MemberView",
    "Metrics",
    "NotLeader",
    "Overloaded",
    "Replicator",
    "Restored",
    "Role",
    "RoleChange",
    "StateMachine",
    "Stored",
    "TooLarge",
    "TooNew",
    "Unknown",
]

#: Exit code of a process whose log could not be written; the injected `fatal` ends with it.
EXIT_STORAGE = 74


class StateMachine(Protocol):
    """The state that the log builds.  All three are called on the event loop's thread."""

    def apply(self, index: int, cmd: bytes) -> bytes:
        """Execute one committed command and return its result or refusal.

        Deterministic: no clock, randomness, input, output or environment.  Never raises: an exception here
        ends the process, because every member would meet it at the same index.

        Raises:
            TooNew: the command is of a newer release; nothing of it is done, and the process ends.
        """

    def freeze(self) -> Iterator[bytes]:
        """The whole state in chunks of at most a few hundred records.

        Copies what may change *before it returns*; the iterator is consumed in another thread while
        `apply` goes on.  (So not a bare generator function: its body would run too late.)
        """

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Replace the whole state by what `freeze` gave; no chunks = the empty state.

        Raises:
            TooNew: a newer release wrote it.
        """


class Commands(Protocol):
    """What the state machine says of commands before they are applied."""

    @property
    def version(self) -> int:
        """Version of commands that the group uses, by the state as it is now; it never falls."""

    def check(self, cmd: bytes) -> object:
        """Raises SpurError for bytes of another member that are no command, or one that not all know."""

    def foresee(self, commands: Iterable[bytes]) -> None:
        """Raises TooNew when a log that is about to be applied goes on with a newer release's commands."""


class Stored(msgspec.Struct, frozen=True):
    """What a log store holds: entries follow `base` without a gap."""

    hard: HardState
    base: Position
    entries: list[Entry]


class LogStore(Protocol):
    """A durable log.  Calls come from one thread at a time; after any error no further call is allowed."""

    def load(self) -> Stored:
        """Everything durable, called once before the first write."""

    def write(
        self,
        hard: HardState | None,
        first: int,
        entries: Sequence[Entry],
        restart_at: Position | None = None,
    ) -> None:
        """Make all of it durable together.  Entries from `first` on are replaced.

        `restart_at`: forget every entry, continue after that position.
        """

    def compact(self, index: int) -> None:
        """Entries up to `index` are no longer needed; how many really go is the store's choice."""

    def close(self) -> None:
        """Release the files."""


#: Called on the event loop with the new role and its term.
RoleChange = Callable[[Role, int], None]
#: Called on the event loop with the leader's id; None = nobody is known to lead.
LeaderChange = Callable[[int | None], None]
#: Called on the event loop when a snapshot of another member has replaced the state.
Restored = Callable[[], None]


class Metrics(msgspec.Struct, frozen=True):
    """Numbers of one member; times in seconds, sizes in bytes, counters since start."""

    role: str
    leader: int
    term: int
    last_index: int
    commit_index: int
    applied_index: int
    snapshot_index: int
    queued: int
    pending: int
    writes: int
    written_entries: int
    write_seconds: float
    write_seconds_max: float
    log_bytes: int
    log_segments: int
    free_bytes: int
    snapshots: int
    snapshot_seconds: float
    snapshot_bytes: int
    snapshots_sent: int = 0
    snapshots_installed: int = 0
    messages_dropped: int = 0
    state_differences: int = 0
    long_turns: int = 0
    long_turn_seconds_max: float = 0.0


class MemberView(msgspec.Struct, frozen=True):
    """One member of the group, as this one sees it.

    Attributes:
        client: HOST:PORT at which clients and agents reach it.
        reachable: messages to it have a way; True for oneself.
        match: index up to which its log is known to equal the leader's; known on the leader only.
        command_version: newest version of commands that it can apply; 0 = unknown.
        version: of its program; empty = unknown.
        present: it is there now, so what it said of itself is so; True for oneself.
    """

    id: int
    address: str
    client: str
    reachable: bool
    match: int
    command_version: int
    version: str
    is_leader: bool
    present: bool = False


class Replicator(Protocol):
    """One member of the group, as the rest of the controller sees it."""

    async def propose(self, cmd: bytes, deadline: float | None = None) -> bytes:
        """Commit and apply a command; its result.

        Args:
            deadline: on the running loop's clock (`loop.time()`); None = wait as long as it takes.

        A follower passes it to the leader and waits for one if none is known.

        Raises:
            NotLeader, Dropped: certainly not executed.
            Overloaded, TooLarge: not executed.
            Unknown: may have been executed.
        """

    async def read_barrier(self, deadline: float | None = None) -> int:
        """Return (the index) when the local state shows every command acknowledged before the call.

        On a follower the leader is asked, and the call waits until the local state has caught up.

        Raises:
            NotLeader: nobody was known to lead until the deadline, or this member is stopping.
            Unknown: the deadline passed.
        """

    def leader(self) -> int | None:
        """Id of the member believed to lead."""

    @property
    def term(self) -> int:
        """The current term; every order to a node carries it."""

    @property
    def applied(self) -> int:
        """Index up to which the state was built."""

    def leader_client(self) -> str | None:
        """HOST:PORT at which clients reach the leader; None = nobody is known to lead."""

    def members(self) -> list[MemberView]:
        """Every member, in the order of their ids."""

    def seconds_since_leader(self) -> float:
        """How long the leader has not been heard; 0 on the leader itself.

        What a read without `read_barrier` shows is at least as old.
        """

    async def step_aside(self) -> bool:
        """Try to have another one lead if this member's disk is nearly full or its clock wrong.

        True: this member leads no longer.
        """

    async def transfer_leadership(self, to: int | None = None, deadline: float | None = None) -> int:
        """Hand over to member `to`, or to the one that follows best; the id of the new leader.

        Raises:
            NotLeader: this member does not lead.
            Dropped: nobody took over in time; this member may lead on.
        """

    def on_leader_change(self, callback: LeaderChange) -> None:
        """Call `callback` with the leader's id (None = nobody is known) at each change, and at once."""

    def on_restore(self, callback: Restored) -> None:
        """Call `callback` each time a snapshot of another member has replaced the state."""

    def on_role_change(self, callback: RoleChange) -> None:
        """Call `callback` at each change, and at once with the present role.

        FOLLOWER comes when leadership is lost.  LEADER is announced only when the state holds everything that
        earlier leaders committed.
        """

    def alarms(self) -> list[str]:
        """What must not be and needs people, one line each: members that hold different states, or less than
        they acknowledged, and clocks that differ."""

    def metrics(self) -> Metrics:
        """A consistent set of numbers."""
