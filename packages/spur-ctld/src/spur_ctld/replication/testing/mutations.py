"""Deliberate faults in the protocol's modules, by name: each an edit of their text.

Every one that does harm must be caught by a scripted case or by a seed.  A fault whose text is no longer in
the sources fails a test, so that the list keeps up with the code.
"""

from typing import NamedTuple

CORE, PROGRESS, MEMLOG, SEEDING = "core", "progress", "memlog", "seeding"
LOG, SNAPSHOTS, RECOVERY = "log", "snapshots", "recovery"


class Edit(NamedTuple):
    """In `module`, `old`, which is there exactly once, becomes `new`."""

    module: str
    old: str
    new: str


class Mutation(NamedTuple):
    """One fault.

    harmless: why nothing can notice it; empty = it must be caught.
    files: it is in the stores, so the seeds run with those.
    """

    name: str
    fault: str
    edits: tuple[Edit, ...]
    harmless: str = ""
    files: bool = False


def _core(name: str, fault: str, old: str, new: str, harmless: str = "") -> Mutation:
    return Mutation(name, fault, (Edit(CORE, old, new),), harmless)


def _store(name: str, fault: str, module: str, old: str, new: str) -> Mutation:
    return Mutation(name, fault, (Edit(module, old, new),), files=True)


MUTATIONS: tuple[Mutation, ...] = (
    # --- what must be durable before it is told ---
    _core(
        "ack-before-sync",
        "a follower acknowledges entries before they are durable",
        "self._after.append(AppendReply(self.id, msg.src, self.term, True, match))",
        "self._now.append(AppendReply(self.id, msg.src, self.term, True, match))",
    ),
    _core(
        "vote-before-sync",
        "a vote leaves before it is durable",
        "self._after.append(VoteReply(self.id, msg.src, self.term, granted, False))",
        "self._now.append(VoteReply(self.id, msg.src, self.term, granted, False))",
    ),
    _core(
        "stand-before-sync",
        "a candidate asks before its own vote is durable",
        "self._after.append(VoteRequest(",
        "self._now.append(VoteRequest(",
    ),
    _core(
        "vote-not-synced",
        "a vote without a new term is not written",
        "hard = None if self.hard == self._durable_hard else self.hard",
        "hard = None if self.term == self._durable_hard.term else self.hard",
    ),
    _core(
        "own-log-before-sync",
        "a leader counts its own entries before they are durable",
        "sorted([self._stable, *(peer.match",
        "sorted([self.log.last_index, *(peer.match",
    ),
    _core(
        "apply-before-sync",
        "entries are applied that are not durable here",
        "min(self.commit, self._stable, self.applied + limit)",
        "min(self.commit, self.applied + limit)",
    ),
    _core(
        "late-write-after-cut",
        "a write that ends after its entries were replaced marks the new ones as durable",
        "        self._inflight_last = min(self._inflight_last, index - 1)\n",
        "",
    ),
    _core(
        "cut-keeps-durable-mark",
        "entries that replace durable ones count as durable",
        "        self._stable = min(self._stable, index - 1)\n",
        "",
    ),
    _core(
        "cut-not-written",
        "entries that replace others are not written",
        "        self._next_write = min(self._next_write, index)\n",
        "",
    ),
    _core(
        "late-write-during-install",
        "a write that ends while a snapshot is installed marks what follows it as durable",
        "                self._inflight_last = 0\n",
        "",
    ),
    _core(
        "install-keeps-durable-mark",
        "what was durable before a snapshot counts after it",
        "                self._stable = 0\n",
        "",
    ),
    _core(
        "install-not-written",
        "a snapshot is installed without a restart of the log on disk",
        "                self._install = meta\n",
        "",
    ),
    # --- elections ---
    _core(
        "vote-twice",
        "a member votes for everybody who asks",
        "free = self.vote == msg.src or (self.vote == NOBODY and self.leader == NOBODY)",
        "free = True",
    ),
    _core(
        "vote-without-looking",
        "a candidate whose log lacks entries gets the vote",
        "if granted := current and free:",
        "if granted := free and not self.abstain:",
    ),
    _core(
        "vote-by-length",
        "the longer log wins, whatever its last term",
        "(msg.last.term, msg.last.index) >= (mine.term, mine.index)",
        "msg.last.index >= mine.index",
    ),
    _core(
        "old-vote-stays",
        "a vote is kept in the next term",
        "            self.term = term\n            self.vote = NOBODY\n",
        "            self.term = term\n",
    ),
    _core(
        "quorum-of-half",
        "half of the members are a majority",
        "self._quorum = len(members) // 2 + 1",
        "self._quorum = max(1, len(members) // 2)",
    ),
    Mutation(
        "pre-vote-counts",
        "a permission to ask counts as a vote",
        (
            Edit(
                CORE,
                "        if self.role is not wanted:\n",
                "        if self.role not in (wanted, Role.CANDIDATE):\n",
            ),
            Edit(
                CORE,
                "        if msg.pre and msg.granted and msg.term != self.term + 1:\n            return\n",
                "",
            ),
        ),
    ),
    _core(
        "no-pre-vote",
        "a member raises its term without asking first",
        "        if not self._peers:\n            self._stand(transfer=False)\n            return\n",
        "        if self._peers is not None:\n            self._stand(transfer=False)\n            return\n",
    ),
    _core(
        "pre-vote-raises-term",
        "to be asked raises the term",
        "            if not _keeps_term(msg):\n",
        "            if True:\n",
    ),
    _core(
        "vote-beside-a-leader",
        "who hears a leader gives votes",
        "if isinstance(msg, VoteRequest) and self._hears_leader() and not msg.transfer:",
        "if isinstance(msg, VoteRequest) and msg.term < 0:",
    ),
    _core(
        "no-check-quorum",
        "a leader that hears nobody goes on",
        "            if heard < self._quorum:\n",
        "            if heard < 0:\n",
    ),
    _core(
        "check-quorum-remembers",
        "who was heard once counts for ever",
        "                peer.active = False\n",
        "                pass\n",
    ),
    _core(
        "two-leaders-tolerated",
        "a second leader of a term is followed",
        "        if self.leader not in (NOBODY, leader):\n",
        "        if self.leader not in (NOBODY, leader) and self.term < 0:\n",
    ),
    # --- terms ---
    _core(
        "stale-acknowledgements",
        "acknowledgements of an older term count",
        "        elif msg.term < self.term:\n",
        "        elif msg.term < self.term and not isinstance(msg, AppendReply):\n",
    ),
    _core(
        "stale-appends",
        "entries of an older term's leader are taken",
        "        elif msg.term < self.term:\n",
        "        elif msg.term < self.term and not isinstance(msg, Append):\n",
    ),
    _core(
        "stale-votes",
        "votes of an older term count",
        "        elif msg.term < self.term:\n",
        "        elif msg.term < self.term and not isinstance(msg, VoteReply):\n",
    ),
    _core(
        "stale-beats-answered",
        "a heartbeat of an older term is confirmed with its own term",
        "            self._after.append(AppendReply(self.id, msg.src, self.term, False, 0))\n",
        "            self._after.append(HeartbeatReply(self.id, msg.src, msg.term, 1 << 30))\n",
    ),
    _core(
        "leader-ignores-newer-terms",
        "a leader does not step down for a newer term in an answer",
        "            if not _keeps_term(msg):\n",
        "            if not _keeps_term(msg) and self.role is not Role.LEADER:\n",
    ),
    # --- the log ---
    _core(
        "commit-old-term",
        "an entry of an older term is committed by counting its copies",
        "if index > self.commit and self.log.term_at(index) == self.term:",
        "if index > self.commit:",
    ),
    _core(
        "no-no-op",
        "a term begins without an entry",
        "        self.log.append([Entry(next_index, self.term, None)])\n",
        "",
    ),
    _core(
        "ack-beyond-message",
        "a follower acknowledges a tail that the message did not prove",
        "self._after.append(AppendReply(self.id, msg.src, self.term, True, match))",
        "self._after.append(AppendReply(self.id, msg.src, self.term, True, self.log.last_index))",
    ),
    _core(
        "commit-beyond-message",
        "a follower commits a tail that the message did not prove",
        "min(msg.commit, match)",
        "min(msg.commit, self.log.last_index)",
    ),
    _core(
        "beat-commits-unproved",
        "a heartbeat tells a commit index beyond what the follower acknowledged",
        "min(self.commit, peer.match), self._round",
        "self.commit, self._round",
    ),
    _core(
        "prev-not-compared",
        "entries are taken after another entry than the leader's",
        "elif self.log.term_at(prev.index) != prev.term:",
        "elif prev.index > self.log.last_index:",
    ),
    _core(
        "append-always-cuts",
        "a late append takes back what was acknowledged after it",
        "            if self.log.term_at(entry.index) != entry.term:\n",
        "            if entry.index > self.commit:\n",
    ),
    _core(
        "commit-goes-back",
        "a late message takes the commit index back",
        "self.commit = max(self.commit, min(msg.commit, match))",
        "self.commit = min(msg.commit, match)",
    ),
    _core(
        "old-snapshot-resets",
        "a snapshot older than the log replaces it",
        "        if meta.index > self.commit:\n",
        "        if meta.index > self.log.base.index:\n",
    ),
    _core(
        "snapshot-drops-tail",
        "a snapshot of a place that the log holds drops what follows",
        "            if self.log.term_at(meta.index) == meta.term:\n",
        "            if self.log.last == meta:\n",
    ),
    Mutation(
        "no-skipping",
        "a refusal goes back one entry at a time, not a whole term",
        (Edit(MEMLOG, "if here is not None and here <= term:", "if here is not None:"),),
    ),
    Mutation(
        "hint-skips-too-far",
        "the hint of a refusal skips entries that may agree",
        (Edit(MEMLOG, "if here is not None and here <= term:", "if here is not None and here < term:"),),
    ),
    Mutation(
        "window-opens-too-early",
        "any late answer opens the window of a probe",
        (Edit(PROGRESS, "and index >= wanted:", "and index >= 0:"),),
    ),
    Mutation(
        "late-refusals-count",
        "a refusal of what was acknowledged since sends the peer back",
        (
            Edit(
                PROGRESS,
                "if self.flow is Flow.SNAPSHOT or index <= self.match:",
                "if self.flow is Flow.SNAPSHOT:",
            ),
        ),
    ),
    Mutation(
        "probe-not-always-lower",
        "a refusal believes the hint alone, so who lacks the log's beginning never gets a snapshot",
        (Edit(PROGRESS, "self.probe(min(next_index, index))", "self.probe(next_index)"),),
    ),
    Mutation(
        "no-resend",
        "what was lost on an idle group is not sent again",
        (Edit(PROGRESS, "            self.resend = True\n", "            pass\n"),),
    ),
    # --- reads ---
    _core(
        "round-reused",
        "a read is confirmed by a round that began before it",
        "        self._round += 1\n",
        "        self._round = max(self._round, 1)\n",
    ),
    _core(
        "read-by-lease",
        "a leader answers reads because it believes to lead",
        "            if round <= confirmed:\n",
        "            if round:\n",
    ),
    _core(
        "read-before-own-entry",
        "a new leader answers reads before it committed in its term",
        "        if not self._reads_new or not self.committed_own_term:\n",
        "        if not self._reads_new:\n",
    ),
    _core(
        "read-of-the-applied",
        "a read shows what is applied, not what is committed",
        "[(token, self.commit, self._round)",
        "[(token, self.applied, self._round)",
    ),
    _core(
        "reads-outlive-leadership",
        "reads of a deposed leader stay unanswered",
        "            self._read_results.append(ReadResult(token, None))\n        self._reads_new.clear()\n",
        "            pass\n        self._reads_new.clear()\n",
    ),
    # --- handing over, lost directories ---
    _core(
        "transfer-without-catch-up",
        "leadership is handed to a member that lacks entries",
        "if self._transferee == id and peer.match == self.log.last_index:",
        "if self._transferee == id:",
    ),
    _core(
        "transfer-takes-commands",
        "commands are taken while handing over",
        "return self.role is Role.LEADER and not self._transferee",
        "return self.role is Role.LEADER",
    ),
    _core(
        "filled-member-votes",
        "a member with a lost directory votes at once",
        "(mine.term, mine.index) and not self.abstain",
        "(mine.term, mine.index)",
    ),
    _core(
        "filled-too-early",
        "a member with a lost directory votes as soon as anything is committed",
        "(self.log.term_at(min(self.commit, self._stable)) or 0) > self.abstain:",
        "(self.log.term_at(min(self.commit, self._stable)) or 0) > 0:",
    ),
    Mutation(
        "filled-in-a-known-term",
        "a member with a lost directory begins in the newest term reported",
        (Edit(SEEDING, "max(reports.values()) + jump", "max(reports.values())"),),
    ),
    # --- the stores ---
    _store(
        "log-not-synced",
        "a write to the log returns before it is durable",
        LOG,
        "        self._files.datasync(self._fd)\n",
        "",
    ),
    _store(
        "segment-name-not-synced",
        "the name of a new segment is not made durable",
        LOG,
        "        self._put(frame)\n        self._files.sync_dir(self._folder)\n",
        "        self._put(frame)\n",
    ),
    _store(
        "no-restart-frame",
        "an installed snapshot leaves no trace in the log",
        LOG,
        "Frame(self._hard, first, entries, restart_at, before)",
        "Frame(self._hard, first, entries, None, before)",
    ),
    _store(
        "term-not-repeated",
        "a new segment does not repeat term and vote",
        LOG,
        "Frame(self._hard, first, entries, restart_at, before)",
        "Frame(hard or HardState(), first, entries, restart_at, before)",
    ),
    _store(
        "newest-segments-first",
        "old segments are removed in the wrong order",
        LOG,
        "for segment in self._segments[:keep_from]:",
        "for segment in reversed(self._segments[:keep_from]):",
    ),
    _store(
        "torn-end-stays",
        "a torn frame stays in the log, and the next one follows it",
        LOG,
        "                self._files.truncate(path, offset)\n",
        "",
    ),
    _store(
        "snapshot-not-synced",
        "a snapshot gets its name before its contents are durable",
        SNAPSHOTS,
        "            self._files.datasync(fd)\n",
        "",
    ),
    _store(
        "no-frame-after-a-crash",
        "a snapshot that a crash left without a restart frame does not get one",
        RECOVERY,
        "    if _contains(stored, snapshot):\n        return stored\n",
        "    if snapshot:\n        return stored\n",
    ),
    # --- harmless ---
    _core(
        "deposed-leader-sends-on",
        "what a leader had ready leaves though it stepped down",
        "        self._now.clear()\n",
        "",
        "the messages bear the old term, in which they were true",
    ),
    _core(
        "hint-one-too-high",
        "the leader goes on one entry after the hint",
        "peer.refused(msg.index, agree.index + 1)",
        "peer.refused(msg.index, agree.index + 2)",
        "the next message is compared again, and a refusal goes back at least one entry: one round more",
    ),
    Mutation(
        "match-goes-back",
        "a late acknowledgement lowers what the leader counts",
        (Edit(PROGRESS, "        if index <= self.match:\n            return False\n", ""),),
        "counting too little commits later, and the commit index itself never goes back",
    ),
)


def by_name(name: str) -> Mutation:
    """Raises KeyError."""
    return {mutation.name: mutation for mutation in MUTATIONS}[name]
