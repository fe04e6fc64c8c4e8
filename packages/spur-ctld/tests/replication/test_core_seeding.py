"""What a member with a lost directory begins with."""

import pytest

from spur_ctld.replication.roles import Role
from spur_ctld.replication.seeding import JUMP, first_state, needed
from spur_ctld.replication.testing.script import Group, core
from spur_ctld.replication.types import ORIGIN, HardState, VoteReply, VoteRequest

FIVE = range(1, 6)


@pytest.mark.parametrize(("size", "others"), [(2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_of_the_group_must_report(size: int, others: int) -> None:
    assert needed(range(size)) == others


def test_it_begins_far_above_every_reported_term() -> None:
    made = first_state(2, (1, 2, 3), {1: 40, 3: 41, 9: 10**9})
    assert made == HardState(41 + JUMP, 2, 41 + JUMP)


@pytest.mark.parametrize(
    ("member", "members", "terms", "text"),
    [
        (4, (1, 2, 3), {1: 1, 2: 1}, "controller 4 is not in the list"),
        (3, (1, 2, 3), {1: 5}, "1 other controllers answer, 2 of 3 must"),
        (3, (1, 2, 3), {1: 5, 3: 5, 7: 5}, "1 other controllers answer"),
        (2, (1, 2), {1: 5}, "1 other controllers answer, 2 of 2 must"),
        (1, (1,), {}, "0 other controllers answer, 1 of 1 must"),
    ],
)
def test_what_cannot_be_filled(
    member: int, members: tuple[int, ...], terms: dict[int, int], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        first_state(member, members, terms)


def loses_what_was_committed(jump: int) -> bool:
    """The old self of member 5 voted for member 1 in term 8, of which the others have not heard.

    5 is filled and helps to commit; then 1 hears of that vote, and asks 4, who lacks the entry too.
    """
    candidate = core(1, 5, term=7)
    candidate.campaign()
    for peer in (4, 5):
        candidate.step(VoteReply(peer, 1, 8, True, True))
    assert (candidate.role, candidate.term) == (Role.CANDIDATE, 8)
    others = {id: core(id, 5, term=6) for id in (2, 3, 4)}
    hard = first_state(5, FIVE, {id: member.term for id, member in others.items()}, jump)
    others[5] = core(5, 5, term=hard.term, vote=hard.vote, abstain=hard.abstain)
    group = Group(*others.values())
    # 4 takes part in the election and hears nothing of what follows.
    group.lost = lambda msg: 4 in (msg.src, msg.dst) and not isinstance(msg, VoteRequest | VoteReply)
    for _ in range(2):
        others[2].campaign()
        group.run()
    assert others[2].role is Role.LEADER
    others[2].propose([b"precious"])
    for _ in range(3):
        group.run()
        for _ in range(3):
            others[2].tick()
    group.run()
    assert others[2].commit == others[2].last_index
    assert others[5].last_index == others[2].last_index
    others[4].leader = 0
    wire = [VoteRequest(1, 4, 8, ORIGIN)]
    others[4].step(wire[0])
    made = others[4].ready()
    for reply in made.messages if made else ():
        candidate.step(reply)
    candidate.step(VoteReply(5, 1, 8, True))
    return candidate.role is Role.LEADER


def test_why_it_begins_above_terms_that_nobody_reports() -> None:
    assert loses_what_was_committed(jump=0)
    assert not loses_what_was_committed(JUMP)
