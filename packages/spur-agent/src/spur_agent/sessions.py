"""The table of sessions: one entry per RuntimeId, nothing keyed by less."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from enum import Enum

from spur_agent.allocation import Owner
from spur_agent.claim import Claim
from spur_agent.link import ControlLink
from spur_core.ids import STEP_EXTERN, RuntimeId
from spur_core.linux import procfs
from spur_proto_lite.exits import EpilogRecord, ExitRecord
from spur_proto_lite.paths import SessionPaths


class Phase(Enum):
    """Where a session is."""

    LAUNCHING = "being launched; no user code is known to run"
    LIVE = "running"
    FINISHED = "its exit is recorded; the controller is to be told"
    LOST = "its supervisor died without an exit; the controller says what becomes of it"


#: What the controller is told of a phase; "live" for all others.
_WORDS = {Phase.FINISHED: "finished", Phase.LOST: "lost"}


class Session:
    """One step of one attempt on this node.

    Attributes:
        stepd: the supervisor process, None before it was spawned or when it is not known.
        watched: the supervisor lives, as far as the watch has seen.
        pidfd: open while its death is an event; None while watched means that it is looked at now and then.
        exit, exit_seq: how it ended, and the journal number that `ack` names (0: not durable yet).
        epilog: how the epilog after it ended, once that is known.
        changed: set whenever something that a delivery may wait for has happened.
        forgotten: the controller wants to hear nothing more of it.
        reported: the controller has the exit; only bookkeeping is left.
        acknowledged: the supervisor knows that, and ends.
        quiet: no process of the step can run any more, its leftovers included.
        ended: it has an exit, or never will.
        settled: its launch has come to an end, this way or that.
        removed: its directory is deleted.
        dead: the supervisor's process has ended while it was watched.
        end_sent: a reader of a spooled step has been sent everything up to the exit.
        output_taken: somebody has received all output of a spooled step.
        suspected: it left a request unanswered and is being asked again.
        corrupt: its files are unreadable; they are kept in quarantine instead of being deleted.
        why_lost: for people.
        rebooted: the machine has booted since its supervisor was started.
        restore_failed: no new supervisor could take it over.
        fenced: the controller has said that this run must not go on.
        lost_at: monotonic seconds.
        told_beats: heartbeats that told the controller of this loss.
    """

    def __init__(
        self, rid: RuntimeId, paths: SessionPaths, claim: Claim, uid: int, user: str, phase: Phase
    ) -> None:
        self.rid = rid
        self.paths = paths
        self.claim = claim
        self.uid = uid
        self.user = user
        self.phase = phase
        self.link = ControlLink(paths.dir, rid)
        self.stepd: procfs.Identity | None = None
        self.watched = False
        self.pidfd: int | None = None
        self.cgroup: tuple[str, ...] = ()
        self.exit: ExitRecord | None = None
        self.exit_seq = 0
        self.epilog: EpilogRecord | None = None
        self.changed = asyncio.Event()
        self.forgotten = False
        self.started_at = 0.0
        self.stdout_path = ""
        self.stderr_path = ""
        self.reported = False
        self.acknowledged = False
        self.quiet = asyncio.Event()
        self.ended = asyncio.Event()
        self.end_sent = False
        self.output_taken = asyncio.Event()
        self.settled = asyncio.Event()
        self.dead = asyncio.Event()
        self.removed = asyncio.Event()
        self.suspected = False
        self.corrupt = False
        self.why_lost = ""
        self.rebooted = False
        self.restore_failed = False
        self.fenced = False
        self.lost_at = 0.0
        self.told_beats = 0
        #: Suspended: nothing of it runs until it is resumed.
        self.asleep = False

    @property
    def owner(self) -> Owner:
        """Key of its holding in the allocation table."""
        return (self.rid.job_id, self.rid.run_attempt)

    @property
    def active(self) -> bool:
        """Something of it runs here, or its end is still to be reported."""
        return self.phase is not Phase.LOST and not self.reported

    @property
    def lives(self) -> bool:
        """It runs, or is about to."""
        return self.phase in (Phase.LAUNCHING, Phase.LIVE)

    @property
    def epilog_known(self) -> bool:
        """Nothing more is to come of the epilog after it."""
        return self.epilog is not None or not (self.job_lifetime and self.claim.epilog)

    @property
    def restorable(self) -> bool:
        """A new supervisor may take it over when its own is lost: it has no task whose end was missed."""
        whole = not (self.corrupt or self.rebooted or self.fenced or self.restore_failed)
        return whole and self.rid.step_id == STEP_EXTERN

    @property
    def undecided(self) -> bool:
        """Its supervisor is lost, what it held goes on until the controller has said what becomes of it."""
        return self.phase is Phase.LOST and self.restorable

    @property
    def job_lifetime(self) -> bool:
        """The attempt's part on this node ends with it."""
        return self.claim.job_lifetime


class SessionTable:
    """All sessions of the node."""

    def __init__(self) -> None:
        self._by_rid: dict[RuntimeId, Session] = {}

    def __len__(self) -> int:
        return len(self._by_rid)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_rid.values()))

    def get(self, rid: RuntimeId) -> Session | None:
        """The session of exactly that identity."""
        return self._by_rid.get(rid)

    def add(self, session: Session) -> None:
        """Enter a session; its identity must not be there yet."""
        assert session.rid not in self._by_rid, session.rid
        self._by_rid[session.rid] = session

    def remove(self, session: Session) -> None:
        """Take exactly this session out."""
        if self._by_rid.get(session.rid) is session:
            del self._by_rid[session.rid]

    def of_job(self, job_id: int) -> list[Session]:
        """Every session of the job, whatever the attempt."""
        return [s for s in self._by_rid.values() if s.rid.job_id == job_id]

    def of_attempt(self, job_id: int, attempt: int) -> list[Session]:
        """Every step of exactly that attempt."""
        return [s for s in self.of_job(job_id) if s.rid.run_attempt == attempt]

    def asleep(self) -> frozenset[Owner]:
        """Attempts of which every step that lives is suspended."""
        awake = {s.owner for s in self._by_rid.values() if s.active and not s.asleep}
        return frozenset({s.owner for s in self._by_rid.values() if s.asleep} - awake)

    def snapshot(self) -> Sequence[tuple[RuntimeId, str]]:
        """What the controller should know to be here."""
        return [
            (s.rid, _WORDS.get(s.phase, "live"))
            for s in self._by_rid.values()
            if s.active or s.phase is Phase.LOST
        ]


#: In the session directory: its client has been sent all output and the exit.
_SENT = "output.sent"


def mark_output_sent(session: Session) -> None:
    """Let a later agent know, too; without the mark it only keeps the output for longer."""
    try:
        with open(f"{session.paths.dir}/{_SENT}", "wb"):
            pass
    except OSError:
        pass


def output_sent(session: Session) -> bool:
    """Whether this agent or an earlier one has sent the client everything."""
    return os.path.exists(f"{session.paths.dir}/{_SENT}")  # noqa: PTH110
