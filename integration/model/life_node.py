"""A node in a model: what lies on its disk, its supervisors, its agent.

The decisions are the product's own: `spur_stepd.machine`, `spur_proto_lite.journal`, `spur_agent.classify`,
and `spur_agent.report.judge`.  Only what carries them out is made up here: a disk that survives everything,
processes that are entries of a dictionary, a clock that is a number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum

from spur_agent.classify import Evidence, Found, classify
from spur_agent.report import Verdict, judge
from spur_core.errors import IllegalTransition
from spur_core.ids import STEP_BATCH, RuntimeId
from spur_proto_lite import journal, notify
from spur_proto_lite.exits import ExitRecord, TaskExit, combine
from spur_stepd import actions
from spur_stepd import machine as m


class Broken(AssertionError):
    """Something that must never happen has happened."""


class Session:
    """A session directory."""

    def __init__(self, rid: RuntimeId) -> None:
        self.rid = rid
        self.journal = b""
        self.descriptor = False

    def append(self, event: str, data: dict[str, object]) -> int:
        """One record; its number."""
        seq = len(journal.load(self.journal).entries) + 1
        record = {"seq": seq, "at": 0.0, "event": event, **data}
        self.journal += json.dumps(record).encode() + b"\n"
        return seq

    @property
    def story(self) -> journal.Story:
        """What the journal adds up to."""
        return journal.story(journal.load(self.journal).entries)


class Supervisor:
    """One supervisor process and the task under it."""

    def __init__(self, node: Node, session: Session) -> None:
        self.node = node
        self.session = session
        self.machine = m.Machine((0,), 60.0, 5.0)
        self.gone = False
        self.started = False
        self.running = False
        self.code = 0
        self.signal = 0
        self.exit: ExitRecord | None = None
        self.push_wanted = False
        session.append(journal.PREPARED, {})
        session.descriptor = True
        self.do(self.machine.ready(node.now))

    @property
    def rid(self) -> RuntimeId:
        return self.session.rid

    def do(self, planned: list[actions.Action]) -> None:
        """Carry out; what an action leads to comes before what was planned after it."""
        queue = list(planned)
        while queue and not self.gone:
            queue[:0] = self._one(queue.pop(0))

    def _one(self, action: actions.Action) -> list[actions.Action]:
        machine, now = self.machine, self.node.now
        match action:
            case actions.Launch():
                return machine.tasks_ready()
            case actions.RecordStart():
                self.session.append(journal.STARTED, {})
                return machine.start_recorded()
            case actions.OpenGate():
                self.node.user_code_runs(self.rid)
                self.running = True
                return machine.execed()
            case actions.AnswerStart():
                self.started = machine.state not in (m.FAILED, m.ABANDONED)
            case actions.KillAll():
                self.end_task(0, 9)
            case actions.Record():
                self.session.append(action.event, action.data)
            case actions.Acknowledge():
                self.session.append(journal.ACKNOWLEDGED, {"by": action.by})
                return machine.ack_written()
            case actions.ObserveExit():
                return self._observe()
            case actions.Push():
                self.push_wanted = True
            case actions.KillLeftovers():
                return machine.leftovers(0, now)
            case actions.Cleanup():
                return machine.cleaned(now) if self.exit is not None else []
            case actions.CheckSession():
                return machine.session_checked(self.rid in self.node.disk, now)
            case actions.Quit():
                self.gone = True
                self.node.supervisors.pop(self.rid, None)
            case _:
                pass
        return []

    def _observe(self) -> list[actions.Action]:
        task = TaskExit(rank=0, code=self.code, signal=self.signal)
        self.exit = combine((task,), teardown_reason=self.machine.teardown_reason)
        seq = self.session.append(journal.EXIT_OBSERVED, {"exit": self.exit.to_json()})
        self.node.exits[self.rid] = (self.code, self.signal)
        return self.machine.exit_written(seq, self.node.now)

    def end_task(self, code: int, signal: int) -> None:
        """The task is reaped."""
        if self.running:
            self.running = False
            self.code, self.signal = code, signal
            self.do(self.machine.task_ended(0))

    def push(self) -> None:
        """Tell the agent, if one listens."""
        self.push_wanted = False
        if self.exit is not None:
            agent = self.node.agent
            answer = agent.notified(self.rid, self.exit, self.machine.exit_seq) if agent else None
            self.do(self.machine.pushed(answer, self.node.now))

    def ended_by_force(self) -> None:
        """End the step now: a teardown without grace."""
        self.do(self.machine.teardown("cancelled", "agent", 0.0, self.node.now))
        self.do(self.machine.tick(self.node.now))


class Phase(Enum):
    LIVE = "live"
    FINISHED = "finished"
    LOST = "lost"


class Entry:
    """What the agent has in memory of a session."""

    def __init__(self, phase: Phase) -> None:
        self.phase = phase
        self.exit: ExitRecord | None = None
        self.seq = 0


class Agent:
    """One agent process; a new one knows only the disk."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.table: dict[RuntimeId, Entry] = {}
        for session in list(node.disk.values()):
            self._found(session)

    def _found(self, session: Session) -> None:
        """The scan's classification and what follows from it."""
        rid, story = session.rid, session.story
        supervisor = self.node.supervisors.get(rid)
        kind = classify(
            Evidence(
                descriptor="ok" if session.descriptor else "missing",
                alive=supervisor is not None,
                answer=supervisor.machine.state if supervisor else "",
                started=story.started_at is not None,
                exited=story.exit is not None,
                acknowledged=story.acknowledged,
                abandoned=story.abandoned,
            )
        )
        if kind in (Found.DONE, Found.UNSTARTED):
            self.node.kill(rid)
            self._delete(rid)
        elif kind is Found.LIVE:
            self.table[rid] = Entry(Phase.LIVE)
        elif kind is Found.FINISHED:
            self._finish(rid, story)
        else:
            self._lose(rid)

    def _finish(self, rid: RuntimeId, story: journal.Story) -> None:
        entry = self.table.setdefault(rid, Entry(Phase.FINISHED))
        entry.phase, entry.exit, entry.seq = Phase.FINISHED, story.exit, story.exit_seq

    def _lose(self, rid: RuntimeId) -> None:
        self.node.kill(rid)
        self.table[rid] = Entry(Phase.LOST)

    def supervisor_died(self, rid: RuntimeId) -> None:
        """The watchdog: the journal says what is owed."""
        entry = self.table.get(rid)
        if entry is None or entry.phase is not Phase.LIVE:
            return
        story = self.node.disk[rid].story
        if story.exit is not None:
            self.node.kill(rid)
            self._finish(rid, story)
        else:
            self._lose(rid)

    def notified(self, rid: RuntimeId, exit_record: ExitRecord, seq: int) -> str:
        """The answer to a push."""
        entry = self.table.get(rid)
        if entry is None:
            return notify.KNOWN if rid in self.node.ledger else notify.DEFERRED
        if entry.phase is Phase.LIVE:
            entry.phase, entry.exit, entry.seq = Phase.FINISHED, exit_record, seq
        return notify.ACCEPTED

    # -- the controller's orders

    def launch(self, rid: RuntimeId) -> bool:
        """LaunchJob or RunCommand; whether the step is here now."""
        if rid in self.table:
            supervisor = self.node.supervisors.get(rid)
            if supervisor is not None:
                supervisor.do(supervisor.machine.start())  # an answer may have been lost: asked again
            return self.table[rid].phase is not Phase.LOST
        if rid in self.node.ledger or any(r.run_attempt > rid.run_attempt for r in self.table):
            return False
        if rid.step_id != STEP_BATCH and not self._attempt_is_here(rid):
            return False
        for older in [r for r in self.table if r.run_attempt < rid.run_attempt]:
            self.end(older)
        session = self.node.disk[rid] = Session(rid)
        supervisor = self.node.supervisors[rid] = Supervisor(self.node, session)
        supervisor.do(supervisor.machine.start())
        self.table[rid] = Entry(Phase.LIVE)
        return True

    def _attempt_is_here(self, rid: RuntimeId) -> bool:
        batch = self.table.get(rid._replace(step_id=STEP_BATCH))
        return batch is not None and batch.phase is Phase.LIVE

    def end(self, rid: RuntimeId) -> None:
        """Kill exactly this step."""
        entry = self.table.get(rid)
        if entry is None:
            return
        supervisor = self.node.supervisors.get(rid)
        if entry.phase is Phase.LIVE and supervisor is not None:
            self.node.signalled(rid, supervisor.rid)
            supervisor.ended_by_force()

    def cancel(self, job_id: int, attempt: int, step_id: int | None) -> bool:
        """CancelJob; whether anything of it is here still."""
        wanted = [
            r
            for r in self.table
            if (r.job_id, r.run_attempt) == (job_id, attempt) and step_id in (None, r.step_id)
        ]
        for rid in wanted:
            self.end(rid)
        return any(self.table[rid].phase is not Phase.LOST for rid in wanted)

    def probe(self, rid: RuntimeId) -> bool:
        """ProbeStepd."""
        entry = self.table.get(rid)
        return entry is not None and entry.phase is not Phase.LOST

    # -- reports

    def owed(self) -> Iterator[RuntimeId]:
        """Steps whose end the controller has not confirmed."""
        yield from [rid for rid, entry in self.table.items() if entry.phase is Phase.FINISHED]

    def lost(self) -> Iterator[RuntimeId]:
        """Steps whose supervisor died without an exit."""
        yield from [rid for rid, entry in self.table.items() if entry.phase is Phase.LOST]

    def answered(self, rid: RuntimeId, said: int) -> None:
        """The controller's verdict on a completion has come."""
        entry = self.table[rid]
        if judge(said, None) is not Verdict.SETTLED:
            return
        supervisor = self.node.supervisors.get(rid)
        if supervisor is not None:
            try:
                supervisor.do(supervisor.machine.ack(entry.seq, "controller"))
            except IllegalTransition:
                return  # the exit is not durable yet: again later
        else:
            self.node.disk[rid].append(journal.ACKNOWLEDGED, {"by": "controller"})
        self._delete(rid)
        self.node.ledger.add(rid)
        del self.table[rid]

    def forget(self, rid: RuntimeId) -> None:
        """The controller's verdict on a lost step: nobody wants it."""
        self._delete(rid)
        del self.table[rid]

    def _delete(self, rid: RuntimeId) -> None:
        story = self.node.disk[rid].story
        if story.exit is not None and not story.acknowledged:
            raise Broken(f"{rid}: deleted with an exit that nobody acknowledged")
        del self.node.disk[rid]


class Node:
    """The machine: what survives an agent, and what is true of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.disk: dict[RuntimeId, Session] = {}
        self.ledger: set[RuntimeId] = set()
        self.supervisors: dict[RuntimeId, Supervisor] = {}
        #: Tasks whose supervisor was killed: they go on until somebody kills them.
        self.orphans: set[RuntimeId] = set()
        self.agent: Agent | None = Agent(self)
        #: Truth, for the invariants.
        self.ran: set[RuntimeId] = set()
        self.exits: dict[RuntimeId, tuple[int, int]] = {}

    def user_code_runs(self, rid: RuntimeId) -> None:
        """A gate was opened."""
        if rid in self.ran:
            raise Broken(f"{rid}: runs twice")
        older = [r for r in self.tasks() if r.run_attempt < rid.run_attempt]
        if older:
            raise Broken(f"{rid} runs beside {older}")
        self.ran.add(rid)

    def signalled(self, wanted: RuntimeId, hit: RuntimeId) -> None:
        """A signal meant for one run reaches another."""
        if wanted != hit:
            raise Broken(f"a signal for {wanted} reached {hit}")

    def tasks(self) -> set[RuntimeId]:
        """Every step that has processes of the user's."""
        return {r for r, s in self.supervisors.items() if s.running} | self.orphans

    def kill(self, rid: RuntimeId) -> None:
        """Through the control group: supervisor and tasks of exactly this step are gone."""
        self.orphans.discard(rid)
        self.supervisors.pop(rid, None)

    def kill_supervisor(self, rid: RuntimeId) -> None:
        """SIGKILL to the supervisor alone."""
        supervisor = self.supervisors.pop(rid)
        supervisor.gone = True
        if supervisor.running:
            self.orphans.add(rid)
        if self.agent is not None:
            self.agent.supervisor_died(rid)

    def pass_time(self, secs: float) -> None:
        """The clock moves; supervisors do what is due, and push."""
        self.now += secs
        for supervisor in list(self.supervisors.values()):
            supervisor.do(supervisor.machine.tick(self.now))
            if supervisor.push_wanted and not supervisor.gone:
                supervisor.push()
