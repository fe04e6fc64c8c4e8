"""The protocol core, message by message: known traps of the protocol, each with the harm it would do."""

import pytest

from spur_ctld.replication.core import Core
from spur_ctld.replication.memlog import MemLog
from spur_ctld.replication.progress import Flow, Progress
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


def ready_of(member: Core):
    made = member.ready()
    assert made is not None
    return made


# --- elections --------------------------------------------------------------------------------------------


def test_a_candidate_asks_only_when_its_own_vote_is_durable() -> None:
    """Else it forgets the vote in a crash, votes for another, and both win."""
    member = core()
    member.campaign()
    settle(member)
    member.step(VoteReply(2, 1, 1, True, True))
    assert member.role is Role.CANDIDATE
    assert member.take_now() == []
    made = ready_of(member)
    assert made.hard == HardState(1, 1)
    assert made.messages == tuple(VoteRequest(1, peer, 1, ORIGIN) for peer in (2, 3))


def test_a_second_vote_in_a_term_is_refused_in_one_life_too() -> None:
    member = core(2)
    member.step(VoteRequest(1, 2, 1, ORIGIN))
    member.step(VoteRequest(3, 2, 1, ORIGIN))
    assert [reply.granted for reply in of(VoteReply, settle(member))] == [True, False]


def test_a_new_vote_is_written_though_the_term_was_already() -> None:
    member = core(2)
    member.step(VoteRequest(3, 2, 5, Position(0, 0), False))
    # Its log is empty as ours, so it got the vote; another life with the term alone on disk:
    member = core(2, term=5)
    member.step(VoteRequest(1, 2, 5, ORIGIN))
    assert ready_of(member).hard == HardState(5, 1)


def test_who_follows_a_leader_of_the_term_gives_no_vote_in_it() -> None:
    member = core(2, term=4)
    member.step(Heartbeat(1, 2, 4, 0, 0))
    for _ in range(member.timing.election):
        member._elapsed += 1  # silence, but not yet its own election
    member.step(VoteRequest(3, 2, 4, ORIGIN))
    assert [reply.granted for reply in of(VoteReply, settle(member))] == [False]


def test_permission_to_ask_is_no_vote() -> None:
    """A granted pre-vote binds nobody, so counting it would elect two."""
    member = core(size=5)
    member.campaign()
    for peer in (2, 3):
        member.step(VoteReply(peer, 1, 1, True, True))
    assert member.role is Role.CANDIDATE
    for peer in (4, 5):
        member.step(VoteReply(peer, 1, 1, True, True))
    assert member.role is Role.CANDIDATE


def test_votes_of_an_older_term_do_not_count() -> None:
    member = core(term=3)
    member.campaign()
    member.step(VoteReply(2, 1, 4, True, True))
    assert (member.role, member.term) == (Role.CANDIDATE, 4)
    member.step(VoteReply(2, 1, 3, True, False))
    assert member.role is Role.CANDIDATE


def test_a_majority_of_refusals_ends_a_candidacy() -> None:
    member = core()
    member.campaign()
    for peer in (2, 3):
        member.step(VoteReply(peer, 1, 0, False, True))
    assert (member.role, member.term) == (Role.FOLLOWER, 0)


def test_two_leaders_of_one_term_are_not_tolerated() -> None:
    """It cannot happen; should it, going on would spread the damage."""
    member = core()
    elect(member)
    with pytest.raises(AssertionError, match="both lead term 1"):
        member.step(Heartbeat(2, 1, 1, 0, 0))
    follower = core(2)
    follower.step(Heartbeat(1, 2, 1, 0, 0))
    with pytest.raises(AssertionError, match="both lead term 1"):
        follower.step(Append(3, 2, 1, ORIGIN, (), 0))


def test_a_cut_off_member_does_not_disturb_when_it_returns() -> None:
    group = Group(core(1), core(2), core(3))
    group.cores[1].campaign()
    group.run()
    group.lost = lambda msg: 3 in (msg.src, msg.dst)
    group.ticks(200)
    group.lost = lambda msg: False
    group.ticks(10)
    assert [(member.leader, member.term) for member in group.cores.values()] == [(1, 1)] * 3


# --- the leader's count -----------------------------------------------------------------------------------


def test_figure_8() -> None:
    """An entry of an old term on a majority can still be replaced, so it must not count as committed."""
    # Term 2: member 1 led, its entry 2 is on 1 and 2.  Term 3: member 5 led, its entry 2 is on 5 alone.
    cores = {id: core(id, 5, term=3, entries=log_of(1, 2) if id < 3 else log_of(1)) for id in range(1, 5)}
    cores[5] = core(5, 5, term=3, entries=log_of(1, 3))
    group = Group(*cores.values())
    noop = (Entry(3, 4, None),)

    def never_the_noop(msg: object) -> bool:
        if not isinstance(msg, Append):
            return msg.dst == 5
        return msg.dst == 5 or (msg.entries[-1:] == noop and cores[msg.dst].log.term_at(2) == 2)

    group.lost = never_the_noop
    leader = cores[1]
    leader.timing = Timing(append_bytes=1)
    leader.campaign()
    group.run()
    assert (leader.role, leader.term) == (Role.LEADER, 4)
    # Entry 2 of term 2 reaches a majority, the entry of term 4 nobody.
    group.ticks(10)
    assert sum(member.log.term_at(2) == 2 for member in cores.values()) >= 3
    assert leader.commit <= 1, "term 3's entry 2 may still win"
    # Member 1 is gone; member 5 has the newest log of the rest and replaces entry 2 everywhere.
    group.lost = lambda msg: 1 in (msg.src, msg.dst)
    group.ticks(25)
    cores[5].campaign()
    group.run()
    group.ticks(10)
    assert cores[5].role is Role.LEADER
    assert {cores[id].log.term_at(2) for id in (2, 3, 4, 5)} == {3}


def test_answers_of_a_newer_term_depose_and_do_not_count() -> None:
    member = core()
    elect(member)
    for peer in (2, 3):
        member.step(AppendReply(peer, 1, 2, True, 1))
    assert (member.role, member.term, member.commit) == (Role.FOLLOWER, 2, 0)


def test_a_majority_is_more_than_half() -> None:
    for size, others in ((3, 1), (4, 2), (5, 2)):
        member = core(size=size)
        elect(member)
        for peer in range(2, 2 + others - 1):
            member.step(AppendReply(peer, 1, 1, True, 1))
        assert member.commit == 0
        member.step(AppendReply(1 + others, 1, 1, True, 1))
        assert member.commit == 1


def test_heartbeats_tell_no_more_than_the_follower_proved() -> None:
    """Its own entries at those places may be stale."""
    member = core()
    elect(member)
    member.step(AppendReply(2, 1, 1, True, 1))
    member.propose([b"x"])
    settle(member)
    member.step(AppendReply(2, 1, 1, True, 2))
    assert member.commit == 2
    for _ in range(member.timing.heartbeat):
        member.tick()
    beats = {beat.dst: beat.commit for beat in of(Heartbeat, member.take_now())}
    assert beats == {2: 2, 3: 0}


# --- the follower's log -----------------------------------------------------------------------------------


def test_a_commit_index_covers_only_what_the_message_proved() -> None:
    member = core(2, term=2, entries=log_of(1, 1, 1))
    member.step(Append(1, 2, 3, Position(1, 1), (), 3))
    assert member.commit == 1, "entries 2 and 3 may be others at the leader"


def test_an_append_of_an_older_term_changes_nothing() -> None:
    member = core(2, term=5, entries=log_of(1, 5))
    member.step(Append(1, 2, 4, Position(1, 1), (Entry(2, 4, b"old"),), 2))
    assert (member.log.last, member.commit) == (Position(2, 5), 0)
    assert settle(member) == [AppendReply(2, 1, 5, False, 0)]


def test_a_late_append_does_not_take_back_what_was_acknowledged() -> None:
    member = core(2, term=1)
    three = tuple(log_of(1, 1, 1))
    member.step(Append(1, 2, 1, ORIGIN, three, 0))
    assert settle(member)[-1] == AppendReply(2, 1, 1, True, 3)
    member.step(Append(1, 2, 1, ORIGIN, three[:1], 0))
    assert settle(member)[-1] == AppendReply(2, 1, 1, True, 1)
    assert member.last_index == 3


def test_an_append_after_a_gap_or_another_entry_is_refused() -> None:
    member = core(2, term=3, entries=log_of(1, 2))
    member.step(Append(1, 2, 3, Position(4, 3), (Entry(5, 3, b"x"),), 5))
    member.step(Append(1, 2, 3, Position(2, 3), (Entry(3, 3, b"x"),), 3))
    refusals = of(AppendReply, settle(member))
    assert [(reply.ok, reply.index) for reply in refusals] == [(False, 4), (False, 2)]
    assert (member.last_index, member.commit) == (2, 0)


def test_committed_entries_are_not_compared_again() -> None:
    member = core(2, term=1)
    member.step(Append(1, 2, 1, ORIGIN, tuple(log_of(1, 1, 1)), 3))
    settle(member)
    member.applied_to(3)
    member.snapshot_taken(Position(3, 1), keep=0)
    assert member.log.base == Position(3, 1)
    member.step(Append(1, 2, 1, Position(1, 1), (*log_of(1, 1, 1)[1:], Entry(4, 1, b"4")), 3))
    assert settle(member)[-1] == AppendReply(2, 1, 1, True, 4)
    member.step(Append(1, 2, 1, ORIGIN, tuple(log_of(1)), 1))
    assert settle(member)[-1] == AppendReply(2, 1, 1, True, 3), "all that is committed"
    assert member.commit == 3


def test_what_replaces_a_tail_is_written_again() -> None:
    member = core(2, term=1, entries=log_of(1, 1, 1))
    member.step(Append(1, 2, 2, Position(1, 1), (Entry(2, 2, b"new"),), 0))
    made = ready_of(member)
    assert (made.first, made.entries) == (2, (Entry(2, 2, b"new"),))


def test_what_replaces_durable_entries_is_not_durable_yet() -> None:
    member = core(2, term=1, entries=log_of(1, 1, 1))
    member.step(Append(1, 2, 2, Position(1, 1), (Entry(2, 2, b"new"),), 2))
    assert (member.commit, [entry.index for entry in member.committed(10)]) == (2, [1])
    settle(member)
    assert [entry.data for entry in member.committed(10)] == [b"1", b"new"]


def test_a_commit_index_never_goes_back() -> None:
    member = core(2, term=1)
    member.step(Append(1, 2, 1, ORIGIN, tuple(log_of(1, 1)), 2))
    member.step(Append(1, 2, 1, Position(2, 1), (), 1))
    member.step(Heartbeat(1, 2, 1, 0, 0))
    assert member.commit == 2


def test_a_snapshot_of_what_is_here_takes_nothing_away() -> None:
    """The entries behind it were acknowledged."""
    member = core(2, term=1)
    member.step(Append(1, 2, 1, ORIGIN, tuple(log_of(1, 1, 1, 1)), 0))
    settle(member)
    member.step(InstallSnapshot(1, 2, 1, Position(2, 1)))
    assert settle(member) == [AppendReply(2, 1, 1, True, 2)]
    assert (member.last_index, member.commit, member.log.base) == (4, 2, ORIGIN)


def test_a_snapshot_replaces_a_tail_that_contradicts_it() -> None:
    member = core(2, term=1, entries=log_of(1, 1, 1, 1))
    member.step(InstallSnapshot(1, 2, 3, Position(2, 3)))
    made = ready_of(member)
    assert (made.install_snapshot, made.first, made.entries) == (Position(2, 3), 3, ())
    assert (member.last_index, member.log.base) == (2, Position(2, 3))


def test_what_follows_a_snapshot_is_not_durable_because_a_stale_tail_was() -> None:
    member = core(2, term=1, entries=log_of(*[1] * 30))
    member.step(InstallSnapshot(3, 2, 2, Position(20, 2)))
    settle(member)
    member.step(Append(3, 2, 2, Position(20, 2), (Entry(21, 2, b"next"),), 21))
    assert not member.committed(10)
    settle(member)
    assert [entry.index for entry in member.committed(10)] == [21]


def test_a_second_snapshot_overtakes_the_first() -> None:
    member = core(2, term=1)
    member.step(InstallSnapshot(1, 2, 1, Position(10, 1)))
    first = ready_of(member)
    member.step(InstallSnapshot(1, 2, 1, Position(20, 1)))
    member.persisted(first)
    assert first.install_snapshot != member.log.base, "the driver must not restore the first"
    assert not member.committed(10)
    second = ready_of(member)
    assert second.install_snapshot == Position(20, 1)
    member.persisted(second)
    member.applied_to(20)
    member.step(Append(1, 2, 1, Position(20, 1), (Entry(21, 1, b"x"),), 21))
    settle(member)
    assert [entry.index for entry in member.committed(10)] == [21]


def test_a_hint_is_the_newest_place_that_may_agree() -> None:
    log = MemLog(Position(3, 1), [Entry(4, 2, b""), Entry(5, 4, b""), Entry(6, 4, b"")])
    assert log.agree_below(9, 4) == Position(6, 4)
    assert log.agree_below(6, 3) == Position(4, 2)
    assert log.agree_below(6, 1) == Position(3, 1)
    assert log.agree_below(4, 9) == Position(4, 2)


# --- flow control -----------------------------------------------------------------------------------------


def test_late_answers_do_not_open_the_window_of_a_probe() -> None:
    """Each would send the whole window once more, and each of those would be answered."""
    peer = Progress(1, 64)
    peer.acknowledged(0)
    assert peer.flow is Flow.REPLICATE
    peer.sent(10, 0)
    peer.acknowledged(2)
    peer.refused(8, 5)
    assert (peer.flow, peer.next) == (Flow.PROBE, 5)
    peer.sent(1, 0)
    peer.acknowledged(4)
    assert (peer.flow, peer.match) == (Flow.PROBE, 4)
    peer.acknowledged(5)
    assert (peer.flow, peer.next) == (Flow.REPLICATE, 6)


def test_late_refusals_are_ignored() -> None:
    peer = Progress(1, 4)
    peer.acknowledged(6)
    peer.refused(5, 2)
    assert (peer.flow, peer.next) == (Flow.REPLICATE, 7)


def test_nothing_but_a_snapshot_travels_until_it_has_arrived() -> None:
    member = core(entries=log_of(1, 1), term=1)
    elect(member)
    member.step(AppendReply(2, 1, 2, True, 3))
    member.applied_to(3)
    member.snapshot_taken(Position(3, 2), keep=0)
    member.step(AppendReply(3, 1, 2, False, 2, ORIGIN))
    assert len(of(InstallSnapshot, member.take_now())) == 1
    member.propose([b"x"])
    member.step(HeartbeatReply(3, 1, 2, 0))
    assert [msg for msg in member.take_now() if msg.dst == 3] == []
    member.step(AppendReply(3, 1, 2, True, 3))
    assert [msg.prev for msg in of(Append, member.take_now()) if msg.dst == 3] == [Position(3, 2)]


# --- reads ------------------------------------------------------------------------------------------------


def test_a_confirmation_that_was_asked_for_earlier_proves_nothing() -> None:
    """Between the question and this read another member may have become leader."""
    member = core()
    elect(member)
    for peer in (2, 3):
        member.step(AppendReply(peer, 1, 1, True, 1))
    member.read_index(1)
    (first, *_) = of(Heartbeat, member.take_now())
    member.step(HeartbeatReply(2, 1, 1, first.round))
    assert member.take_reads() == [ReadResult(1, 1)]
    member.read_index(2)
    member.take_now()
    member.step(HeartbeatReply(3, 1, 1, first.round))
    assert member.take_reads() == []


def test_a_read_shows_all_that_is_committed_though_not_applied() -> None:
    member = core()
    elect(member)
    member.propose([b"x"] * 3)
    settle(member)
    member.step(AppendReply(2, 1, 1, True, 4))
    member.read_index(1)
    member.take_now()
    member.step(HeartbeatReply(2, 1, 1, 1))
    assert (member.applied, member.take_reads()) == (0, [ReadResult(1, 4)])


# --- handing over -----------------------------------------------------------------------------------------


def test_leadership_is_handed_only_to_who_has_everything() -> None:
    member = core()
    elect(member)
    for peer in (2, 3):
        member.step(AppendReply(peer, 1, 1, True, 1))
    member.propose([b"x"])
    settle(member)
    assert member.transfer(2)
    assert not of(TimeoutNow, member.take_now())
    assert not member.can_propose
    member.step(AppendReply(2, 1, 1, True, 2))
    assert of(TimeoutNow, member.take_now()) == [TimeoutNow(1, 2, 1)]


def test_a_lost_word_to_take_over_is_said_again() -> None:
    group = Group(core(1), core(2), core(3))
    group.cores[1].campaign()
    group.run()
    group.lost = lambda msg: isinstance(msg, TimeoutNow)
    group.cores[1].transfer(2)
    group.run()
    assert group.cores[1].role is Role.LEADER
    group.lost = lambda msg: False
    group.ticks(group.cores[1].timing.heartbeat)
    assert group.cores[2].role is Role.LEADER


def test_handing_over_again_and_again_does_not_put_off_the_look_at_the_majority() -> None:
    member = core()
    elect(member)
    for _ in range(2 * member.timing.election):
        member.transfer(2)
        member.tick()
    assert member.role is not Role.LEADER


# --- a lost directory -------------------------------------------------------------------------------------


def test_a_member_being_filled_neither_votes_nor_stands() -> None:
    member = core(3, term=9, vote=3, abstain=9)
    for pre in (True, False):
        member.step(VoteRequest(1, 3, 12, Position(50, 8), pre))
    assert [reply.granted for reply in of(VoteReply, settle(member))] == [False, False]
    assert member.hard == HardState(12, 0, 9)
    for _ in range(100):
        member.tick()
    member.step(TimeoutNow(1, 3, 12))
    assert (settle(member), member.role) == ([], Role.FOLLOWER)


def test_it_is_whole_when_a_newer_term_is_committed_here() -> None:
    member = core(3, term=9, vote=3, abstain=9)
    member.step(Append(1, 3, 11, ORIGIN, tuple(log_of(8, 8, 11)), 2))
    settle(member)
    member.step(VoteRequest(2, 3, 12, Position(3, 11), False, True))
    assert not of(VoteReply, settle(member))[0].granted, "entry 2 is of an older term"
    member.step(Append(1, 3, 12, Position(3, 11), (), 3))
    made = ready_of(member)
    assert member.abstain == 9, "not before it is durable"
    member.persisted(made)
    settle(member)
    assert member.hard == HardState(12, 0, 0)
    member.step(VoteRequest(2, 3, 13, Position(3, 11), False, True))
    assert of(VoteReply, settle(member))[0].granted


def test_it_is_whole_by_a_snapshot_too() -> None:
    member = core(3, term=9, vote=3, abstain=9)
    member.step(InstallSnapshot(1, 3, 11, Position(70, 11)))
    settle(member)
    assert (member.abstain, member.hard) == (0, HardState(11, 0, 0))


def test_its_term_makes_the_leader_stand_again() -> None:
    group = Group(core(1), core(2))
    group.cores[1].campaign()
    group.run()
    group.cores[3] = core(3, term=9, vote=3, abstain=9)
    group.ticks(60)
    leader = max(group.cores.values(), key=lambda member: member.role is Role.LEADER)
    assert leader.term > 9
    assert [member.leader for member in group.cores.values()] == [leader.id] * 3
    group.ticks(10)
    assert group.cores[3].hard == HardState(leader.term, group.cores[3].vote, 0)


def test_what_abstains_survives_a_restart() -> None:
    member = Core(3, (1, 2, 3), HardState(9, 3, 9), ORIGIN, log_of(8, 8), Shortest())
    member.campaign()
    assert (settle(member), member.hard) == ([], HardState(9, 3, 9))
