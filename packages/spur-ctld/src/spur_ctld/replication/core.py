"""The replication protocol of one member: decides, and does nothing else.

No input or output, no clock, no threads, no source of chance: the driver delivers messages (`step`), ticks,
commands and read requests, and takes out what is to be sent (`take_now`), what is to be made durable before
more is sent (`ready`, `persisted`), and what is to be applied (`committed`, `applied_to`).

The rules that keep it safe:

* A term, a vote, an entry acknowledged to a leader: durable before the message that tells of it leaves
  (`Ready.messages`).  Only a leader's appends and heartbeats may leave earlier, because a leader counts its
  own log only after `persisted`.
* A leader commits by counting only entries of its own term; the no-op it starts with makes that possible.
* A member that hears a leader refuses votes, unless that leader hands over.  A member asks (pre-vote) before
  it raises its term, so one that was cut off does not disturb the others.
* A leader that hears from no majority for one election time-out steps down.
* A read is answered only after a majority confirmed the leader's term in a round that began after the read.
* A member whose directory was lost takes part in no election until it is whole again (`HardState.abstain`).
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from spur_ctld.replication.memlog import MemLog
from spur_ctld.replication.progress import Flow, Progress
from spur_ctld.replication.roles import Role, Timing
from spur_ctld.replication.types import (
    NOBODY,
    AnyMessage,
    Append,
    AppendReply,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Position,
    ReadResult,
    Ready,
    SnapshotMeta,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)

#: Messages that only a leader sends.
FROM_LEADER = (Append, Heartbeat, InstallSnapshot)


class Chance(Protocol):
    """The injected source of chance; `random.Random` is one."""

    def randrange(self, start: int, stop: int, /) -> int: ...


class Core:
    """One member's protocol state.

    Args:
        id: this member, one of `members`.
        members: every member's id.
        hard: as loaded; HardState() for a new member.
        snapshot: position of the newest usable snapshot; Position() = none.
        entries: the loaded log after `base`.
        base: position before `entries[0]`; default: the snapshot's.
    """

    def __init__(
        self,
        id: int,
        members: Sequence[int],
        hard: HardState,
        snapshot: SnapshotMeta,
        entries: Iterable[Entry],
        rng: Chance,
        timing: Timing | None = None,
        *,
        base: Position | None = None,
    ) -> None:
        if id not in members or NOBODY in members or len(set(members)) != len(members):
            raise ValueError(f"bad member list {members} for member {id}")
        self.id = id
        self.members = tuple(members)
        self.timing = timing or Timing()
        self.role = Role.FOLLOWER
        self.leader = NOBODY
        self.term = hard.term
        self.vote = hard.vote
        self.abstain = hard.abstain
        self.snapshot = snapshot
        self.log = MemLog(snapshot if base is None else base, entries)
        if self.log.term_at(snapshot.index) != snapshot.term:
            raise ValueError(f"the log does not contain the snapshot's position {snapshot}")
        self.commit = self.applied = snapshot.index
        self._rng = rng
        self._quorum = len(members) // 2 + 1
        self._peers: dict[int, Progress] = {peer: Progress(1, 1) for peer in members if peer != id}
        self._votes: dict[int, bool] = {}
        # What is durable: `_stable` = the in-memory log up to here equals the durable one.
        self._durable_hard = hard
        self._stable = self.log.last_index
        self._next_write = self._stable + 1
        self._inflight: Ready | None = None
        self._inflight_last = 0
        self._install: SnapshotMeta | None = None
        # Outgoing: `_now` may leave at once, `_after` with the next Ready.
        self._now: list[AnyMessage] = []
        self._after: list[AnyMessage] = []
        # Reads: not yet in a round; waiting for their round; answered.
        self._reads_new: list[int] = []
        self._reads_out: list[tuple[int, int, int]] = []
        self._read_results: list[ReadResult] = []
        self._round = 0
        # Time, in ticks.
        self._elapsed = 0
        self._beat_elapsed = 0
        self._beat_due = False
        self._transferee = NOBODY
        self._transfer_elapsed = 0
        self._timeout = 0
        self._new_timeout()

    # --- what the driver asks -----------------------------------------------------------------------------

    @property
    def last_index(self) -> int:
        """Index of the newest entry, durable or not."""
        return self.log.last_index

    @property
    def hard(self) -> HardState:
        """What must be durable before anything more is said."""
        return HardState(self.term, self.vote, self.abstain)

    @property
    def can_propose(self) -> bool:
        """Leads and is not handing over."""
        return self.role is Role.LEADER and not self._transferee

    @property
    def committed_own_term(self) -> bool:
        """A leader that has committed an entry of its term knows everything that was committed before."""
        return self.role is Role.LEADER and self.log.term_at(self.commit) == self.term

    def match(self, peer: int) -> int:
        """Index up to which the log of `peer` is known to equal ours; 0 = unknown, or not leader."""
        return self._peers[peer].match if self.role is Role.LEADER else 0

    def needed(self, peers: Iterable[int]) -> int:
        """Index after which one of `peers` still needs entries, so far as is known."""
        known = [max(self._peers[peer].match, self._peers[peer].pending_snapshot) for peer in peers]
        return min([self.log.last_index, *known]) if self.role is Role.LEADER else self.log.last_index

    # --- input --------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """One tick of the driver's clock passed."""
        self._elapsed += 1
        if self.role is not Role.LEADER:
            if self._elapsed >= self._timeout:
                self.campaign()
            return
        self._beat_elapsed += 1
        if self._beat_elapsed >= self.timing.heartbeat:
            self._beat_elapsed = 0
            self._beat_due = True
        if self._transferee:
            self._transfer_elapsed += 1
            if self._transfer_elapsed >= self.timing.election:
                self._transferee = NOBODY
        if self._elapsed >= self.timing.election:
            self._elapsed = 0
            heard = 1 + sum(peer.active for peer in self._peers.values())
            if heard < self._quorum:
                self._follow(self.term, NOBODY)
                return
            for peer in self._peers.values():
                peer.active = False

    def campaign(self) -> None:
        """Try to become leader: first by asking, or at once when there is nobody to ask."""
        if self.role is Role.LEADER:
            return
        if self.abstain:
            self.leader = NOBODY
            return
        if not self._peers:
            self._stand(transfer=False)
            return
        self.role = Role.PRECANDIDATE
        self.leader = NOBODY
        self._new_timeout()
        self._votes = {self.id: True}
        self._ask_votes(self.term + 1, pre=True, transfer=False)

    def propose(self, commands: Sequence[bytes]) -> tuple[int, int] | None:
        """Append commands; their term and the first one's index.  None: not leader, or handing over."""
        if not self.can_propose:
            return None
        first = self.log.last_index + 1
        term = self.term
        self.log.append(Entry(first + at, term, data) for at, data in enumerate(commands))
        return term, first

    def read_index(self, token: int) -> None:
        """Ask for an index that shows everything acknowledged so far; the answer comes by `take_reads`."""
        if self.role is Role.LEADER:
            self._reads_new.append(token)
        else:
            self._read_results.append(ReadResult(token, None))

    def transfer(self, to: int) -> bool:
        """Hand leadership to `to`; commands are refused until it took over or an election time-out passed.

        False: not leader, or `to` is not another member.
        """
        peer = self._peers.get(to)
        if self.role is not Role.LEADER or peer is None:
            return False
        self._transferee = to
        self._transfer_elapsed = 0
        self._maybe_hand_over(to, peer)
        return True

    def unreachable(self, peer: int) -> None:
        """Messages to `peer` were lost."""
        progress = self._peers.get(peer)
        if self.role is Role.LEADER and progress is not None and progress.flow is Flow.REPLICATE:
            progress.probe()

    def snapshot_sent(self, peer: int, ok: bool) -> None:
        """The transfer of the snapshot file to `peer` ended."""
        progress = self._peers.get(peer)
        if self.role is Role.LEADER and progress is not None and progress.flow is Flow.SNAPSHOT:
            progress.probe(progress.pending_snapshot + 1 if ok else None)
            # The peer installs first; its answer to a heartbeat starts the probe.
            progress.asked = True

    def step(self, msg: AnyMessage) -> None:
        """A message arrived.  Messages from strangers or for others are ignored."""
        if msg.src not in self._peers or msg.dst != self.id:
            return
        if isinstance(msg, VoteRequest) and self._hears_leader() and not msg.transfer:
            return
        if msg.term > self.term:
            if not _keeps_term(msg):
                self._follow(msg.term, msg.src if isinstance(msg, FROM_LEADER) else NOBODY)
        elif msg.term < self.term:
            self._answer_old(msg)
            return
        if isinstance(msg, VoteRequest):
            self._on_vote_request(msg)
        elif isinstance(msg, VoteReply):
            self._on_vote_reply(msg)
        elif isinstance(msg, AppendReply):
            self._on_append_reply(msg)
        elif isinstance(msg, HeartbeatReply):
            self._on_heartbeat_reply(msg)
        elif isinstance(msg, TimeoutNow):
            if self.role is not Role.LEADER and not self.abstain:
                self._stand(transfer=True)
        else:
            self._hear(msg.src)
            if isinstance(msg, Append):
                self._on_append(msg)
            elif isinstance(msg, Heartbeat):
                self.commit = max(self.commit, min(msg.commit, self.log.last_index))
                self._after.append(HeartbeatReply(self.id, msg.src, self.term, msg.round))
            else:
                self._on_snapshot(msg)

    # --- output -------------------------------------------------------------------------------------------

    def take_now(self) -> list[AnyMessage]:
        """Messages that need not wait for the local disk: a leader's appends and heartbeats."""
        if self.role is Role.LEADER:
            self._start_reads()
            if self._beat_due:
                self._beat_due = False
                self._beat()
            for id, peer in self._peers.items():
                self._fill(id, peer)
        out, self._now = self._now, []
        return out

    def ready(self) -> Ready | None:
        """The next durable step; None = nothing to do, or the last one is not `persisted` yet."""
        if self._inflight is not None:
            return None
        hard = None if self.hard == self._durable_hard else self.hard
        last = self.log.last_index
        entries = tuple(self.log.between(self._next_write, last))
        if hard is None and not entries and self._install is None and not self._after:
            return None
        made = Ready(hard, self._next_write, entries, self._install, tuple(self._after))
        self._after = []
        self._install = None
        self._inflight = made
        self._inflight_last = last
        self._next_write = last + 1
        return made

    def persisted(self, ready: Ready) -> None:
        """`ready` is durable: its messages may leave, and our own log counts."""
        if ready is not self._inflight:
            raise ValueError("only the Ready in flight can be persisted")
        self._inflight = None
        if ready.hard is not None:
            self._durable_hard = ready.hard
        # 0 when the log was cut or restarted below what was written.
        self._stable = max(self._stable, self._inflight_last)
        if self.abstain and (self.log.term_at(min(self.commit, self._stable)) or 0) > self.abstain:
            self.abstain = 0
        if self.role is Role.LEADER:
            self._count_commit()

    def committed(self, limit: int) -> Sequence[Entry]:
        """At most `limit` entries to apply next: committed, and durable here."""
        if self.applied < self.log.base.index:
            return ()  # a snapshot is being installed
        return self.log.between(self.applied + 1, min(self.commit, self._stable, self.applied + limit))

    def applied_to(self, index: int) -> None:
        """The state now shows everything up to `index`."""
        self.applied = max(self.applied, index)

    def take_reads(self) -> list[ReadResult]:
        """Answers to `read_index`, each once."""
        out, self._read_results = self._read_results, []
        return out

    def snapshot_taken(self, meta: SnapshotMeta, keep: int) -> int:
        """A snapshot is durable.  Keeps `keep` entries behind it; the index up to which the log may go."""
        if meta.index > self.snapshot.index:
            self.snapshot = meta
        index = min(self.snapshot.index - keep, self._stable, self.applied)
        self.log.compact(index)
        return self.log.base.index

    # --- elections ----------------------------------------------------------------------------------------

    def _new_timeout(self) -> None:
        self._elapsed = 0
        self._timeout = self._rng.randrange(self.timing.election, 2 * self.timing.election)

    def _hears_leader(self) -> bool:
        """A leader itself counts: its quorum check decides when it stops being one."""
        return self.leader != NOBODY and self._elapsed < self.timing.election

    def _follow(self, term: int, leader: int) -> None:
        if term > self.term:
            self.term = term
            self.vote = NOBODY
        self.role = Role.FOLLOWER
        self.leader = leader
        self._transferee = NOBODY
        self._now.clear()
        for token in (*self._reads_new, *(token for token, _, _ in self._reads_out)):
            self._read_results.append(ReadResult(token, None))
        self._reads_new.clear()
        self._reads_out.clear()
        self._new_timeout()

    def _hear(self, leader: int) -> None:
        if self.leader not in (NOBODY, leader):
            raise AssertionError(f"members {self.leader} and {leader} both lead term {self.term}")
        if self.role is not Role.FOLLOWER:
            self._follow(self.term, leader)
        self.leader = leader
        self._elapsed = 0

    def _ask_votes(self, term: int, *, pre: bool, transfer: bool) -> None:
        last = self.log.last
        for peer in self._peers:
            self._after.append(VoteRequest(self.id, peer, term, last, pre, transfer))

    def _stand(self, *, transfer: bool) -> None:
        """Raise the term and ask for real votes."""
        self.term += 1
        self.vote = self.id
        self.role = Role.CANDIDATE
        self.leader = NOBODY
        self._new_timeout()
        self._votes = {self.id: True}
        self._ask_votes(self.term, pre=False, transfer=transfer)
        self._count_votes()

    def _count_votes(self) -> None:
        for_us = sum(self._votes.values())
        if for_us >= self._quorum:
            if self.role is Role.PRECANDIDATE:
                self._stand(transfer=False)
            else:
                self._lead()
        elif len(self._votes) - for_us >= self._quorum:
            self._follow(self.term, NOBODY)

    def _lead(self) -> None:
        self.role = Role.LEADER
        self.leader = self.id
        self._transferee = NOBODY
        self._elapsed = self._beat_elapsed = 0
        self._round = 0
        next_index = self.log.last_index + 1
        self._peers = {id: Progress(next_index, self.timing.window) for id in self._peers}
        self.log.append([Entry(next_index, self.term, None)])

    def _on_vote_request(self, msg: VoteRequest) -> None:
        mine = self.log.last
        current = (msg.last.term, msg.last.index) >= (mine.term, mine.index) and not self.abstain
        if msg.pre:
            granted = current and msg.term > self.term
            term = msg.term if granted else self.term
            self._after.append(VoteReply(self.id, msg.src, term, granted, True))
            return
        free = self.vote == msg.src or (self.vote == NOBODY and self.leader == NOBODY)
        if granted := current and free:
            self.vote = msg.src
            self._elapsed = 0
        self._after.append(VoteReply(self.id, msg.src, self.term, granted, False))

    def _on_vote_reply(self, msg: VoteReply) -> None:
        wanted = Role.PRECANDIDATE if msg.pre else Role.CANDIDATE
        if self.role is not wanted:
            return
        if msg.pre and msg.granted and msg.term != self.term + 1:
            return
        self._votes[msg.src] = msg.granted
        self._count_votes()

    def _answer_old(self, msg: AnyMessage) -> None:
        """The sender's term is over: tell it the present one, so that a stale leader steps down."""
        if isinstance(msg, FROM_LEADER):
            self._after.append(AppendReply(self.id, msg.src, self.term, False, 0))
        elif isinstance(msg, VoteRequest):
            self._after.append(VoteReply(self.id, msg.src, self.term, False, msg.pre))

    # --- the follower's log -------------------------------------------------------------------------------

    def _on_append(self, msg: Append) -> None:
        prev, entries = msg.prev, msg.entries
        if prev.index < self.commit:
            # What is committed here is the same everywhere: only the rest needs comparing.
            entries = entries[self.commit - prev.index :]
        elif self.log.term_at(prev.index) != prev.term:
            hint = self.log.agree_below(prev.index, prev.term)
            self._after.append(AppendReply(self.id, msg.src, self.term, False, prev.index, hint))
            return
        for at, entry in enumerate(entries):
            if self.log.term_at(entry.index) != entry.term:
                self._cut(entry.index)
                self.log.append(entries[at:])
                break
        # Not our last index: a stale tail may follow what this message proved equal.
        match = max(prev.index + len(msg.entries), self.commit if prev.index < self.commit else 0)
        self.commit = max(self.commit, min(msg.commit, match))
        self._after.append(AppendReply(self.id, msg.src, self.term, True, match))

    def _cut(self, index: int) -> None:
        if index > self.log.last_index:
            return
        if index <= self.commit:
            raise AssertionError(f"a leader wants to replace the committed entry {index}")
        self.log.cut(index)
        self._stable = min(self._stable, index - 1)
        self._inflight_last = min(self._inflight_last, index - 1)
        self._next_write = min(self._next_write, index)

    def _on_snapshot(self, msg: InstallSnapshot) -> None:
        meta = msg.meta
        if meta.index > self.commit:
            if self.log.term_at(meta.index) == meta.term:
                self.commit = meta.index  # nothing is missing here
            else:
                self.log.reset(meta)
                self.snapshot = meta
                self.commit = meta.index
                self._install = meta
                self._stable = 0
                self._inflight_last = 0
                self._next_write = meta.index + 1
        self._after.append(AppendReply(self.id, msg.src, self.term, True, max(meta.index, self.commit)))

    # --- the leader ---------------------------------------------------------------------------------------

    def _on_append_reply(self, msg: AppendReply) -> None:
        if self.role is not Role.LEADER:
            return
        peer = self._peers[msg.src]
        peer.active = True
        if not msg.ok:
            # Our log, too, may jump over a whole term that the peer does not have.
            agree = self.log.agree_below(msg.hint.index, msg.hint.term)
            peer.refused(msg.index, agree.index + 1)
            return
        if peer.acknowledged(msg.index):
            self._count_commit()
        self._maybe_hand_over(msg.src, peer)

    def _on_heartbeat_reply(self, msg: HeartbeatReply) -> None:
        if self.role is not Role.LEADER:
            return
        peer = self._peers[msg.src]
        peer.beaten(self.log.last_index)
        peer.round = max(peer.round, msg.round)
        self._confirm_reads()
        # The word that told it to take over may have been lost.
        self._maybe_hand_over(msg.src, peer)

    def _count_commit(self) -> None:
        matches = sorted([self._stable, *(peer.match for peer in self._peers.values())], reverse=True)
        index = matches[self._quorum - 1]
        if index > self.commit and self.log.term_at(index) == self.term:
            self.commit = index

    def _maybe_hand_over(self, id: int, peer: Progress) -> None:
        if self._transferee == id and peer.match == self.log.last_index:
            self._now.append(TimeoutNow(self.id, id, self.term))

    def _beat(self) -> None:
        for id, peer in self._peers.items():
            self._now.append(Heartbeat(self.id, id, self.term, min(self.commit, peer.match), self._round))

    def _fill(self, id: int, peer: Progress) -> None:
        """Send `id` what it lacks, as far as its window allows."""
        while not peer.blocked and peer.wants(self.log.last_index, self.commit):
            before = peer.next - 1
            term = self.log.term_at(before)
            if term is None:
                peer.snapshot(self.snapshot.index)
                self._now.append(InstallSnapshot(self.id, id, self.term, self.snapshot))
                return
            entries = self.log.portion(peer.next, self.timing.append_bytes)
            self._now.append(Append(self.id, id, self.term, Position(before, term), entries, self.commit))
            peer.sent(len(entries), self.commit)

    def _start_reads(self) -> None:
        """All reads asked for since the last turn share one round of confirmations."""
        if not self._reads_new or not self.committed_own_term:
            return
        self._round += 1
        self._reads_out += [(token, self.commit, self._round) for token in self._reads_new]
        self._reads_new.clear()
        self._beat()
        self._confirm_reads()

    def _confirm_reads(self) -> None:
        rounds = sorted([self._round, *(peer.round for peer in self._peers.values())], reverse=True)
        confirmed = rounds[self._quorum - 1]
        kept = []
        for token, index, round in self._reads_out:
            if round <= confirmed:
                self._read_results.append(ReadResult(token, index))
            else:
                kept.append((token, index, round))
        self._reads_out = kept


def _keeps_term(msg: AnyMessage) -> bool:
    """Pre-votes name a term that nobody has begun yet."""
    return (isinstance(msg, VoteRequest) and msg.pre) or (
        isinstance(msg, VoteReply) and msg.pre and msg.granted
    )
