"""What must hold in every run of a group, checked from outside after every event."""

from collections.abc import Callable

from spur_ctld.replication.core import Core
from spur_ctld.replication.roles import Role
from spur_ctld.replication.testing import trace
from spur_ctld.replication.types import (
    AnyMessage,
    AppendReply,
    Entry,
    HardState,
    Ready,
    VoteReply,
    VoteRequest,
)

#: How many members hold an entry of this index and term durably.
Holders = Callable[[int, int], int]


class Violation(AssertionError):
    """An invariant does not hold; the text says which."""


class Invariants:
    """Sees everything.

    Args:
        holders: None = what is durable is not looked at.
        quorum: how many members are a majority.

    Attributes:
        chosen: index -> the entry that was committed there first.
        leaders: term -> who led it.
        acknowledged: newest index of which a client was told.
        shown: newest index that a finished read showed.
    """

    def __init__(self, holders: Holders | None = None, quorum: int = 0) -> None:
        self.chosen: dict[int, Entry] = {}
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.acknowledged = 0
        self.shown = 0
        self._holders = holders
        self._quorum = quorum
        self._chosen_in: dict[int, int] = {}
        self._where: dict[bytes, int] = {}
        self._refused: set[bytes] = set()
        self._written: dict[tuple[int, int], tuple[Entry, int | None]] = {}
        self._digests: dict[int, bytes] = {}
        self._commits: dict[int, int] = {}

    # --- votes and leaders --------------------------------------------------------------------------------

    def sent(self, msg: AnyMessage) -> None:
        """No member votes for two in a term, on the wire, restarts included."""
        if isinstance(msg, VoteReply) and msg.granted and not msg.pre:
            self._vote(msg.src, msg.term, msg.dst)
        elif isinstance(msg, VoteRequest) and not msg.pre:
            self._vote(msg.src, msg.term, msg.src)

    def _vote(self, voter: int, term: int, vote: int) -> None:
        if self.votes.setdefault((voter, term), vote) != vote:
            raise Violation(f"member {voter} voted twice in term {term}")

    def promised(
        self, core: Core, msg: AnyMessage, hard: HardState, holds: Callable[[int, int], bool]
    ) -> None:
        """What a message of `core` promises is on its disk when it leaves."""
        if isinstance(msg, VoteReply) and msg.granted and not msg.pre:
            kept = hard.term > msg.term or (hard.term, hard.vote) == (msg.term, msg.dst)
        elif isinstance(msg, VoteRequest) and not msg.pre:
            kept = hard.term > msg.term or (hard.term, hard.vote) == (msg.term, msg.src)
        elif isinstance(msg, AppendReply) and msg.ok and msg.term == core.term:
            term = core.log.term_at(msg.index)
            kept = term is None or not msg.index or holds(msg.index, term)
        else:
            return
        if not kept:
            raise Violation(f"member {core.id} promises what its disk does not hold: {trace.message(msg)}")

    def started(self, core: Core) -> None:
        """A member begins a life: what it knows as committed is what its snapshot holds."""
        self._commits[core.id] = 0
        self.observe(core)

    def observe(self, core: Core) -> None:
        """To be called after whatever happened to `core`."""
        if core.role is Role.LEADER and self.leaders.get(core.term) != core.id:
            self._leads(core)
        if core.commit > self._commits.get(core.id, 0):
            self._committed(core)
        if core.applied > core.commit:
            raise Violation(f"member {core.id} applied {core.applied}, but only {core.commit} is committed")

    def _leads(self, core: Core) -> None:
        """One leader per term, and it holds everything that earlier terms committed."""
        if self.leaders.setdefault(core.term, core.id) != core.id:
            raise Violation(f"two leaders in term {core.term}")
        for index in range(core.log.base.index + 1, max(self.chosen, default=0) + 1):
            entry = self.chosen[index]
            if self._chosen_in[index] < core.term and core.log.term_at(index) != entry.term:
                raise Violation(f"leader {core.id} of term {core.term} lacks committed entry {index}")

    # --- the log ------------------------------------------------------------------------------------------

    def _committed(self, core: Core) -> None:
        """Equal index means equal entry; only a leader decides, and only of what a majority holds."""
        base = core.log.base
        before = self._commits.get(core.id, 0)
        self._commits[core.id] = core.commit
        if base.index > before and self.chosen[base.index].term != base.term:
            raise Violation(f"member {core.id}: another entry {base.index} lies behind its log")
        news = False
        for entry in core.log.between(max(before, base.index) + 1, core.commit):
            known = self.chosen.get(entry.index)
            if known is None:
                news = True
                self._choose(core, entry)
            elif known != entry:
                raise Violation(f"member {core.id} committed another entry {entry.index}")
        if news and self._holders is not None:
            term = self.chosen[core.commit].term
            holders = self._holders(core.commit, term)
            if holders < self._quorum:
                raise Violation(f"entry {core.commit} was committed, but only {holders} disks hold it")

    def _choose(self, core: Core, entry: Entry) -> None:
        if core.role is not Role.LEADER:
            raise Violation(f"member {core.id}, not a leader, committed entry {entry.index} first")
        self.chosen[entry.index] = entry
        self._chosen_in[entry.index] = core.term
        if entry.data is None:
            return
        if entry.data in self._refused:
            raise Violation(f"command {entry.data!r} was refused and yet committed at {entry.index}")
        if self._where.setdefault(entry.data, entry.index) != entry.index:
            raise Violation(f"command {entry.data!r} was committed twice")

    def wrote(self, core: Core, ready: Ready) -> None:
        """Two entries of one index and term are the same and follow the same."""
        before = core.log.term_at(ready.first - 1)
        for entry in ready.entries:
            known = self._written.setdefault((entry.index, entry.term), (entry, before))
            if known[0] != entry or (known[1] is not None and before is not None and known[1] != before):
                raise Violation(f"two different entries {entry.index} of term {entry.term}")
            before = entry.term

    def applied(self, member: int, before: int, entry: Entry, digest: bytes) -> None:
        """In order, without gaps, and with the same effect everywhere."""
        if entry.index != before + 1:
            raise Violation(f"member {member} applied {entry.index} after {before}")
        if self.chosen.get(entry.index) != entry:
            raise Violation(f"member {member} applied another entry {entry.index}")
        self.same_state(member, entry.index, digest)

    def same_state(self, member: int, index: int, digest: bytes) -> None:
        """Equal index means equal state, built or restored."""
        if self._digests.setdefault(index, digest) != digest:
            raise Violation(f"member {member} has another state at {index}")

    # --- clients ------------------------------------------------------------------------------------------

    def acknowledge(self, command: bytes, index: int) -> None:
        """A client was told that its command was executed at `index`."""
        entry = self.chosen.get(index)
        if entry is None or entry.data != command:
            raise Violation(f"command {command!r} was acknowledged at {index}, which holds {entry}")
        self.acknowledged = max(self.acknowledged, index)

    def refuse(self, command: bytes) -> None:
        """A client was told that its command certainly was not and will not be executed."""
        if command in self._where:
            raise Violation(f"command {command!r} was refused, but committed at {self._where[command]}")
        self._refused.add(command)

    @property
    def floor(self) -> int:
        """A read that begins now must show at least this."""
        return max(self.acknowledged, self.shown)

    def read(self, member: int, index: int, floor: int) -> None:
        """A read shows every command acknowledged, and everything shown, before it began."""
        if index < floor:
            raise Violation(f"member {member} read at {index}, {floor} was known before")
        self.shown = max(self.shown, index)
