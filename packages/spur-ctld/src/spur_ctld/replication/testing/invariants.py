"""What must hold in every run of a group, checked from outside while it runs."""

from spur_ctld.replication.core import Core
from spur_ctld.replication.roles import Role
from spur_ctld.replication.types import AnyMessage, Entry, VoteReply, VoteRequest


class Violation(AssertionError):
    """An invariant does not hold; the text says which."""


class Invariants:
    """Sees everything.  `chosen`: index -> the entry that some member applied there first."""

    def __init__(self) -> None:
        self.chosen: dict[int, Entry] = {}
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.acknowledged = 0

    def sent(self, msg: AnyMessage) -> None:
        """No member votes for two in a term, on the wire, restarts included."""
        if isinstance(msg, VoteReply) and msg.granted and not msg.pre:
            self._vote(msg.src, msg.term, msg.dst)
        elif isinstance(msg, VoteRequest) and not msg.pre:
            self._vote(msg.src, msg.term, msg.src)

    def _vote(self, voter: int, term: int, vote: int) -> None:
        if self.votes.setdefault((voter, term), vote) != vote:
            raise Violation(f"member {voter} voted twice in term {term}")

    def leads(self, core: Core) -> None:
        """One leader per term, and it holds everything that was committed before."""
        if core.role is not Role.LEADER or self.leaders.get(core.term) == core.id:
            return
        if self.leaders.setdefault(core.term, core.id) != core.id:
            raise Violation(f"two leaders in term {core.term}")
        for index, entry in self.chosen.items():
            if index > core.log.base.index and core.log.term_at(index) != entry.term:
                raise Violation(f"leader {core.id} of term {core.term} lacks committed entry {index}")

    def applied(self, member: int, before: int, entry: Entry) -> None:
        """In order, without gaps, and the same everywhere."""
        if entry.index != before + 1:
            raise Violation(f"member {member} applied {entry.index} after {before}")
        if self.chosen.setdefault(entry.index, entry) != entry:
            raise Violation(f"member {member} applied another entry {entry.index}")

    def acknowledge(self, index: int) -> None:
        """A client was told that its command at `index` is done."""
        self.acknowledged = max(self.acknowledged, index)

    def read(self, member: int, index: int, asked_when: int) -> None:
        """A read shows every command acknowledged before it began."""
        if index < asked_when:
            raise Violation(f"member {member} read at {index}, {asked_when} was acknowledged before")
