"""Cores driven by hand, message by message, for scripted cases."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from spur_ctld.replication.core import Core
from spur_ctld.replication.roles import Role, Timing
from spur_ctld.replication.types import ORIGIN, AnyMessage, Entry, HardState, VoteReply

M = TypeVar("M")


class Shortest:
    """Chance that always gives the least."""

    def randrange(self, start: int, stop: int, /) -> int:
        return start


def log_of(*terms: int) -> list[Entry]:
    """Entries 1, 2, ... of these terms."""
    return [Entry(index, term, b"%d" % index) for index, term in enumerate(terms, 1)]


def core(
    id: int = 1,
    size: int = 3,
    term: int = 0,
    entries: Iterable[Entry] = (),
    vote: int = 0,
    timing: Timing | None = None,
    abstain: int = 0,
) -> Core:
    """A member of a group 1..size."""
    hard = HardState(term, vote, abstain)
    return Core(id, range(1, size + 1), hard, ORIGIN, entries, Shortest(), timing)


def settle(member: Core) -> list[AnyMessage]:
    """Let the disk finish everything; all messages that left."""
    sent = member.take_now()
    while (ready := member.ready()) is not None:
        member.persisted(ready)
        if ready.install_snapshot:
            member.applied_to(ready.install_snapshot.index)
        sent += ready.messages
        sent += member.take_now()
    return sent


def elect(member: Core) -> list[AnyMessage]:
    """Make it leader by votes of everybody; what it sent as leader."""
    member.campaign()
    settle(member)
    for peer in member.members:
        if peer != member.id:
            member.step(VoteReply(peer, member.id, member.term + 1, True, True))
    settle(member)
    for peer in member.members:
        if peer != member.id:
            member.step(VoteReply(peer, member.id, member.term, True, False))
    assert member.role is Role.LEADER
    return settle(member)


class Group:
    """Cores that exchange messages until nothing moves."""

    def __init__(self, *members: Core) -> None:
        self.cores = {member.id: member for member in members}
        self.lost: Callable[[AnyMessage], bool] = lambda msg: False
        self.log: list[AnyMessage] = []

    def run(self) -> None:
        wire: list[AnyMessage] = []
        while True:
            for member in self.cores.values():
                wire += settle(member)
            if not wire:
                return
            for msg in wire:
                self.log.append(msg)
                if msg.dst in self.cores and not self.lost(msg):
                    self.cores[msg.dst].step(msg)
            wire = []

    def ticks(self, count: int) -> None:
        for _ in range(count):
            for member in self.cores.values():
                member.tick()
            self.run()


def of(kind: type[M], messages: Iterable[object]) -> list[M]:
    """Those of one kind."""
    return [msg for msg in messages if type(msg) is kind]
