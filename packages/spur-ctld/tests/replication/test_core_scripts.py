"""The protocol core, message by message: the cases that random runs find too rarely."""

import pytest

from spur_ctld.replication.core import Core
from spur_ctld.replication.roles import Role, Timing
from spur_ctld.replication.testing.script import Group, Shortest, core, elect, log_of, of, settle
from spur_ctld.replication.types import (
    ORIGIN,
    Append,
    AppendReply,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Position,
    ReadResult,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)

# --- elections --------------------------------------------------------------------------------------------


def test_three_members_elect_and_commit() -> None:
    group = Group(core(1), core(2), core(3))
    group.cores[2].campaign()
    group.run()
    leader = group.cores[2]
    assert [member.leader for member in group.cores.values()] == [2, 2, 2]
    assert leader.propose([b"a", b"b"]) == (1, 2)
    group.run()
    assert [member.commit for member in group.cores.values()] == [3, 3, 3]
    for member in group.cores.values():
        assert [entry.data for entry in member.committed(10)] == [None, b"a", b"b"]
        assert [entry.data for entry in member.committed(2)] == [None, b"a"]


def test_one_member_leads_and_commits_only_what_is_durable() -> None:
    member = core(size=1)
    member.campaign()
    assert (member.role, member.propose([b"a"])) == (Role.LEADER, (1, 2))
    ready = member.ready()
    assert ready is not None
    assert (ready.hard, ready.first, len(ready.entries)) == (HardState(1, 1), 1, 2)
    assert member.ready() is None, "one in flight"
    assert not member.committed(10)
    member.propose([b"later"])
    member.persisted(ready)
    assert [entry.index for entry in member.committed(10)] == [1, 2]


def test_asking_first_does_not_raise_the_term() -> None:
    member = core(term=5)
    for _ in range(200):
        member.tick()
    sent = settle(member)
    assert (member.term, member.role) == (5, Role.PRECANDIDATE)
    assert all(msg.pre and msg.term == 6 for msg in of(VoteRequest, sent))
    assert len(sent) == len(of(VoteRequest, sent)) > 0


def test_an_asked_member_keeps_its_term_and_vote() -> None:
    member = core(2, term=5, vote=3)
    member.step(VoteRequest(1, 2, 6, ORIGIN, True))
    assert settle(member) == [VoteReply(2, 1, 6, True, True)]
    assert member.hard == HardState(5, 3)


def test_a_vote_leaves_with_the_step_that_makes_it_durable() -> None:
    member = core(2)
    member.step(VoteRequest(1, 2, 1, ORIGIN))
    assert member.take_now() == []
    ready = member.ready()
    assert ready is not None
    assert ready.hard == HardState(1, 1)
    assert ready.messages == (VoteReply(2, 1, 1, True, False),)


def test_one_vote_a_term_even_after_a_restart() -> None:
    member = core(2, term=4, vote=3)
    member.step(VoteRequest(1, 2, 4, ORIGIN))
    member.step(VoteRequest(3, 2, 4, ORIGIN))
    assert [reply.granted for reply in settle(member)] == [False, True]


@pytest.mark.parametrize("pre", [True, False])
@pytest.mark.parametrize(
    ("last", "granted"),
    [
        (Position(3, 2), True),
        (Position(4, 2), True),
        (Position(1, 3), True),
        (Position(2, 2), False),
        (Position(9, 1), False),
    ],
)
def test_only_a_log_that_lacks_nothing_gets_the_vote(last: Position, granted: bool, pre: bool) -> None:
    member = core(2, term=2, entries=log_of(1, 1, 2))
    member.step(VoteRequest(1, 2, 9, last, pre))
    assert [reply.granted for reply in of(VoteReply, settle(member))] == [granted]


def test_who_hears_a_leader_refuses_votes_unless_it_hands_over() -> None:
    member = core(2, term=1)
    member.step(Heartbeat(1, 2, 1, 0, 0))
    settle(member)
    for pre in (True, False):
        member.step(VoteRequest(3, 2, 2, ORIGIN, pre))
    assert settle(member) == []
    assert member.term == 1
    member.step(VoteRequest(3, 2, 2, ORIGIN, False, True))
    assert settle(member) == [VoteReply(2, 3, 2, True, False)]


def test_silence_ends_the_refusal() -> None:
    member = core(2, term=1)
    member.step(Heartbeat(1, 2, 1, 0, 0))
    for _ in range(member.timing.election - 1):
        member.tick()
    member.step(VoteRequest(3, 2, 2, ORIGIN, True))
    assert not of(VoteReply, settle(member))
    member.tick()
    member.step(VoteRequest(3, 2, 2, ORIGIN, True))
    assert [reply.granted for reply in of(VoteReply, settle(member))] == [True]


def test_a_leader_that_hears_no_majority_steps_down() -> None:
    member = core(size=5)
    elect(member)
    for _ in range(member.timing.election):
        member.step(HeartbeatReply(2, 1, 1, 0))
        member.step(HeartbeatReply(3, 1, 1, 0))
        member.tick()
    assert member.role is Role.LEADER, "itself and two others"
    for _ in range(member.timing.election):
        member.step(HeartbeatReply(2, 1, 1, 0))
        member.tick()
    assert (member.role, member.leader, member.term) == (Role.FOLLOWER, 0, 1)
    assert member.propose([b"x"]) is None


def test_a_stale_leader_learns_of_the_new_term() -> None:
    old, member = core(1), core(2, term=7)
    elect(old)
    member.step(Heartbeat(1, 2, 1, 0, 0))
    (reply,) = settle(member)
    assert (reply.term, reply.ok) == (7, False)
    old.step(reply)
    assert (old.role, old.term) == (Role.FOLLOWER, 7)


def test_a_term_begins_with_a_no_op() -> None:
    member = core(entries=log_of(1, 1), term=1)
    sent = elect(member)
    assert [append.entries for append in of(Append, sent)] == [(Entry(3, 2, None),)] * 2
    assert [append.prev for append in of(Append, sent)] == [Position(2, 1)] * 2


# --- the leader's log -------------------------------------------------------------------------------------


def test_old_entries_are_not_committed_by_counting_copies() -> None:
    member = core(size=5, term=3, entries=log_of(1, 2))
    elect(member)
    assert member.term == 4
    for peer in (2, 3):
        member.step(AppendReply(peer, 1, 4, True, 2))
    assert member.commit == 0, "a majority holds entry 2, but it is of term 2"
    for peer in (2, 3):
        member.step(AppendReply(peer, 1, 4, True, 3))
    assert member.commit == 3


def test_acknowledgements_of_an_older_term_do_not_count() -> None:
    member = core(term=3)
    elect(member)
    for peer in (2, 3):
        member.step(AppendReply(peer, 1, 3, True, 1))
    assert member.commit == 0


def test_the_leaders_own_copy_counts_when_it_is_durable() -> None:
    member = core()
    elect(member)
    member.propose([b"a"])
    member.take_now()
    ready = member.ready()
    assert ready is not None
    member.step(AppendReply(2, 1, 1, True, 2))
    assert member.commit == 1
    member.persisted(ready)
    assert member.commit == 2


def test_followers_may_commit_before_the_leader_is_durable() -> None:
    member = core()
    elect(member)
    member.propose([b"a"])
    assert len(of(Append, member.take_now())) == 0, "both peers are still being probed"
    for peer in (2, 3):
        member.step(AppendReply(peer, 1, 1, True, 1))
    assert len(of(Append, member.take_now())) == 2, "sent before the local write"
    for peer in (2, 3):
        member.step(AppendReply(peer, 1, 1, True, 2))
    assert member.commit == 2
    assert [entry.index for entry in member.committed(10)] == [1], "but applied only when durable here"


def test_the_window_bounds_what_is_unacknowledged() -> None:
    member = core(timing=Timing(window=3, append_bytes=1))
    elect(member)
    member.step(AppendReply(2, 1, 1, True, 1))
    member.propose([b"x"] * 10)
    sent = [msg for msg in of(Append, settle(member)) if msg.dst == 2]
    assert [[entry.index for entry in msg.entries] for msg in sent] == [[2], [3], [4]]
    member.step(AppendReply(2, 1, 1, True, 3))
    sent = [msg for msg in of(Append, settle(member)) if msg.dst == 2]
    assert [[entry.index for entry in msg.entries] for msg in sent] == [[5], [6]]


def test_a_lost_append_is_sent_again_on_an_idle_group() -> None:
    group = Group(core(1), core(2), core(3))
    group.cores[1].campaign()
    group.run()
    group.lost = lambda msg: isinstance(msg, Append) and msg.dst == 3
    group.cores[1].propose([b"a"])
    group.run()
    assert group.cores[3].last_index == 1
    group.lost = lambda msg: False
    group.ticks(2 * group.cores[1].timing.heartbeat)
    assert (group.cores[3].last_index, group.cores[3].commit) == (2, 2)


def test_hints_skip_whole_terms() -> None:
    leader = core(1, entries=log_of(*[1] * 10, *[5] * 50), term=5)
    follower = core(2, entries=log_of(*[1] * 10, *[2] * 30, *[3] * 40), term=5)
    group = Group(leader, follower)
    leader.campaign()
    group.run()
    assert follower.log.between(1, 61) == leader.log.between(1, 61)
    assert len([reply for reply in of(AppendReply, group.log) if not reply.ok]) <= 2


# --- the follower's log -----------------------------------------------------------------------------------


def test_an_append_proves_nothing_about_a_stale_tail() -> None:
    member = core(2, term=1, entries=log_of(1, 1, 1, 1))
    member.step(Append(1, 2, 2, Position(1, 1), (Entry(2, 1, b"2"),), 4))
    assert settle(member) == [AppendReply(2, 1, 2, True, 2)]
    assert (member.commit, member.last_index) == (2, 4), "nothing conflicts, so nothing is cut"


def test_a_late_write_does_not_mark_what_was_replaced() -> None:
    member = core(2)
    member.step(Append(1, 2, 1, ORIGIN, tuple(log_of(1, 1, 1)), 0))
    late = member.ready()
    assert late is not None
    member.step(Append(3, 2, 2, Position(1, 1), (Entry(2, 2, b"new"),), 2))
    member.persisted(late)
    assert [entry.index for entry in member.committed(10)] == [1]
    again = member.ready()
    assert again is not None
    assert (again.first, again.entries) == (2, (Entry(2, 2, b"new"),))
    assert again.messages == (AppendReply(2, 3, 2, True, 2),)
    member.persisted(again)
    assert [entry.data for entry in member.committed(10)] == [b"1", b"new"]


def test_a_late_write_does_not_mark_a_snapshot_being_installed() -> None:
    member = core(2)
    member.step(Append(1, 2, 1, ORIGIN, tuple(log_of(*[1] * 50)), 50))
    late = member.ready()
    assert late is not None
    member.step(InstallSnapshot(1, 2, 1, Position(40, 1)))
    assert member.log.base == ORIGIN, "entry 40 is here: nothing to install"
    member.step(InstallSnapshot(1, 2, 1, Position(90, 1)))
    member.persisted(late)
    assert not member.committed(100)
    install = member.ready()
    assert install is not None
    assert (install.install_snapshot, install.first, install.entries) == (Position(90, 1), 91, ())
    assert install.messages[-1] == AppendReply(2, 1, 1, True, 90)
    member.step(Append(1, 2, 1, Position(90, 1), (Entry(91, 1, b"next"),), 91))
    member.persisted(install)
    assert not member.committed(100), "the state is not restored yet"
    member.applied_to(90)
    assert not member.committed(100), "entry 91 is not durable yet"
    settle(member)
    assert [entry.index for entry in member.committed(100)] == [91]


def test_a_late_write_of_a_longer_stale_log_does_not_mark_what_follows_a_snapshot() -> None:
    member = core(2)
    member.step(Append(1, 2, 1, ORIGIN, tuple(log_of(*[1] * 50)), 0))
    late = member.ready()
    assert late is not None
    member.step(InstallSnapshot(3, 2, 2, Position(20, 2)))
    member.persisted(late)
    install = member.ready()
    assert install is not None
    member.persisted(install)
    member.applied_to(20)
    member.step(Append(3, 2, 2, Position(20, 2), (Entry(21, 2, b"next"),), 21))
    assert not member.committed(100), "entry 21 of the new log is not durable yet"
    settle(member)
    assert [entry.index for entry in member.committed(100)] == [21]


def test_an_old_snapshot_does_not_harm_a_newer_log() -> None:
    member = core(2)
    member.step(Append(1, 2, 1, ORIGIN, tuple(log_of(*[1] * 50)), 45))
    settle(member)
    member.step(InstallSnapshot(1, 2, 1, Position(30, 1)))
    assert settle(member) == [AppendReply(2, 1, 1, True, 45)]
    assert (member.log.base, member.last_index) == (ORIGIN, 50)


def test_a_member_that_fell_behind_the_log_gets_a_snapshot() -> None:
    group = Group(core(1), core(2))
    third = core(3)
    group.cores[1].campaign()
    group.run()
    leader = group.cores[1]
    leader.propose([b"x"] * 100)
    group.run()
    leader.applied_to(101)
    assert leader.snapshot_taken(Position(101, 1), keep=5) == 96
    group.cores[3] = third
    group.lost = lambda msg: isinstance(msg, InstallSnapshot)
    group.ticks(leader.timing.heartbeat)
    (offer,) = of(InstallSnapshot, group.log)
    assert offer.meta == Position(101, 1)
    third.step(offer)
    leader.snapshot_sent(3, ok=True)
    leader.propose([b"after"])
    group.run()
    assert (third.log.base, third.last_index) == (Position(101, 1), 102)
    group.ticks(leader.timing.heartbeat)
    assert third.commit == 102


def test_a_failed_snapshot_is_offered_again() -> None:
    member = core()
    elect(member)
    for peer in (2, 3):
        member.step(AppendReply(peer, 1, 1, True, 1))
    member.applied_to(1)
    member.snapshot_taken(Position(1, 1), keep=0)
    member.step(AppendReply(2, 1, 1, True, 1))
    behind = core(entries=log_of(1), term=1)
    elect(behind)
    behind.step(AppendReply(2, 1, 2, True, 2))
    behind.applied_to(2)
    behind.snapshot_taken(Position(2, 2), keep=0)
    behind.step(AppendReply(3, 1, 2, False, 1, ORIGIN))
    assert len(of(InstallSnapshot, behind.take_now())) == 1
    behind.snapshot_sent(3, ok=False)
    assert not of(InstallSnapshot, behind.take_now())
    behind.step(HeartbeatReply(3, 1, 2, 0))
    assert len(of(InstallSnapshot, behind.take_now())) == 1


# --- reads and transfer -----------------------------------------------------------------------------------


def test_a_read_waits_for_a_majority_of_a_round_that_began_after_it() -> None:
    member = core()
    elect(member)
    for peer in (2, 3):
        member.step(AppendReply(peer, 1, 1, True, 1))
    member.read_index(7)
    beats = of(Heartbeat, member.take_now())
    assert [beat.round for beat in beats] == [1, 1]
    member.read_index(8)
    assert [beat.round for beat in of(Heartbeat, member.take_now())] == [2, 2]
    member.step(HeartbeatReply(2, 1, 1, 1))
    assert member.take_reads() == [ReadResult(7, 1)]
    member.step(HeartbeatReply(2, 1, 1, 1))
    assert member.take_reads() == []
    member.step(HeartbeatReply(3, 1, 1, 2))
    assert member.take_reads() == [ReadResult(8, 1)]


def test_a_read_waits_for_the_terms_own_entry() -> None:
    member = core(entries=log_of(1), term=1)
    elect(member)
    member.read_index(7)
    assert not of(Heartbeat, member.take_now())
    member.step(AppendReply(2, 1, 2, True, 2))
    assert len(of(Heartbeat, member.take_now())) == 2
    member.step(HeartbeatReply(2, 1, 2, 1))
    assert member.take_reads() == [ReadResult(7, 2)]


def test_reads_of_a_leader_that_falls_are_refused() -> None:
    member = core()
    elect(member)
    member.read_index(7)
    member.step(Heartbeat(2, 1, 5, 0, 0))
    member.read_index(8)
    assert member.take_reads() == [ReadResult(7, None), ReadResult(8, None)]


def test_one_member_reads_at_once() -> None:
    member = core(size=1)
    member.campaign()
    settle(member)
    member.read_index(1)
    assert member.take_now() == []
    assert member.take_reads() == [ReadResult(1, 1)]


def test_leadership_is_handed_over_without_waiting_for_silence() -> None:
    group = Group(core(1), core(2), core(3))
    group.cores[1].campaign()
    group.run()
    group.cores[1].propose([b"a"])
    assert group.cores[1].transfer(3)
    assert group.cores[1].propose([b"refused meanwhile"]) is None
    group.run()
    assert len(of(TimeoutNow, group.log)) >= 1
    assert [(member.leader, member.term) for member in group.cores.values()] == [(3, 2)] * 3
    assert group.cores[3].commit == 3


def test_a_hand_over_that_fails_ends() -> None:
    member = core()
    elect(member)
    assert not member.transfer(1)
    assert not member.transfer(9)
    assert member.transfer(2)
    for _ in range(member.timing.election):
        member.step(HeartbeatReply(2, 1, 1, 0))
        member.tick()
    assert member.propose([b"x"]) == (1, 2)


def test_strangers_and_other_addressees_are_ignored() -> None:
    member = core(2)
    for src, dst in ((9, 2), (1, 3), (2, 2)):
        member.step(Append(src, dst, 8, ORIGIN, (Entry(1, 8, b"x"),), 1))
    assert (member.term, member.last_index, settle(member)) == (0, 0, [])


@pytest.mark.parametrize("members", [[2, 3], [1, 1], [0, 1]])
def test_a_senseless_member_list_is_refused(members: list[int]) -> None:
    with pytest.raises(ValueError, match="bad member list"):
        Core(1, members, HardState(), ORIGIN, (), Shortest())
