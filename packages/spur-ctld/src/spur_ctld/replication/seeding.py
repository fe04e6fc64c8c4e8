"""What a member whose directory was lost may promise, so that it can be filled from the others.

Its old self made promises that are forgotten now: votes, and entries it acknowledged.  It comes back with an
empty log and a term that is above every term in which the old self can have voted, stood or acknowledged:

* That term reaches the leader, who steps down, so a new one is elected above it, by a majority of members
  that did not lose anything: the lost one abstains.  Any majority that once committed an entry with the lost
  member's help shares a member with this one even without it, so the new leader has every committed entry.
  Acknowledgements and votes of the old self that still travel are of older terms, which are over.
* It takes entries and snapshots as any member does, and what it acknowledges is true, so it counts.
* It votes and stands again when it durably holds a committed entry of a term above its first: then its log
  contains everything that was committed before, and every promise since is kept.

No waiting is needed, and nothing is copied by hand: an empty log with `first_state` in its first frame is
enough.  Several members may be lost and filled at the same time as long as a majority of the group has lost
nothing; beyond that nobody can be elected, which is safe.

Why a majority's terms and a jump: a candidate that the old self voted for, or the old self as a candidate,
may be in a term that this majority has not heard of.  Terms rise by one for each failed election, of which
each takes at least an election time-out, so nobody runs `JUMP` terms ahead of a majority (12 days of
elections that are won in the asking and lost in the voting).
"""

from collections.abc import Collection, Mapping

from spur_ctld.replication.types import HardState

#: Terms between the newest one reported and the one a lost member begins in.
JUMP = 1 << 20


def needed(members: Collection[int]) -> int:
    """How many other members must report their term."""
    return len(members) // 2 + 1


def first_state(
    member: int, members: Collection[int], terms: Mapping[int, int], jump: int = JUMP
) -> HardState:
    """What the new directory of `member` begins with.

    Args:
        member: the lost one; its program must not be running.
        members: ids of the whole group.
        terms: present term by id, as reported by other members after the old program of `member` had ended.
            Members that are being filled themselves do not count.

    Raises:
        ValueError: not a member, or fewer than `needed` reports.
    """
    if member not in members:
        raise ValueError(f"controller {member} is not in the list of controllers")
    reports = {id: term for id, term in terms.items() if id in members and id != member}
    if len(reports) < needed(members):
        must = f"{needed(members)} of {len(members)} must"
        raise ValueError(f"{len(reports)} other controllers answer, {must}: start them first")
    term = max(reports.values()) + jump
    return HardState(term, member, term)
