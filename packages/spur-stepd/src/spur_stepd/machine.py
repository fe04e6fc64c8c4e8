"""What a supervisor decides: events in, actions out, no I/O and no clock.

Each method is an event.  It takes the monotonic time where time matters and returns what the shell has to
do, in order; the shell answers some of them with another event.  `TRANSITIONS` holds every change of state.

    Launch ──► start_failed | tasks_ready ──► RecordStart ──► start_failed | start_recorded ──► OpenGate
    ObserveExit ──► exit_written | exit_not_written
    Push ──► pushed          KillLeftovers ──► leftovers          Cleanup ──► cleaned
    CheckHeld ──► held       Acknowledge ──► ack_written | ack_not_written

A step without tasks ("hold") runs from its start until somebody ends it.

Of the step on which the attempt's stay on the node hangs more is owed once it is cleaned up:

    EndOthers ──► others_ended ──► RunEpilog ──► epilog_ended ──► WriteEpilog
    WriteEpilog ──► epilog_written | epilog_not_written

An acknowledgement that comes before all of that is written down at once, but the supervisor stays until
its epilog has ended and somebody has been told how: by an answered push or a query.
"""

from __future__ import annotations

from spur_core.errors import IllegalTransition
from spur_core.lean import signal
from spur_proto_lite import notify
from spur_stepd.actions import (
    AbortTasks,
    Acknowledge,
    AnswerStart,
    AnswerWaits,
    CheckHeld,
    CheckOom,
    CheckSession,
    Cleanup,
    Deliver,
    EndOthers,
    Freeze,
    KillAll,
    KillLeftovers,
    LastWords,
    Launch,
    ObserveExit,
    OpenGate,
    Push,
    Quit,
    Record,
    RecordStart,
    RunEpilog,
    RunTaskEpilog,
    Thaw,
    WriteEpilog,
)

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from spur_stepd.actions import Action

INIT = "init"
READY = "ready"
STARTING = "starting"
RUNNING = "running"
SUSPENDED = "suspended"
EXITING = "exiting"
EXITED = "exited"
ACKNOWLEDGED = "acknowledged"
FAILED = "failed"
ABANDONED = "abandoned"

#: state -> event -> next state.  A pair that is not here is an error and changes nothing.
TRANSITIONS: Final[dict[str, dict[str, str]]] = {
    INIT: {"ready": READY},
    READY: {"start": STARTING, "teardown": ABANDONED, "timeout": ABANDONED},
    STARTING: {"started": RUNNING, "failed": FAILED},
    RUNNING: {"suspend": SUSPENDED, "ended": EXITING},
    SUSPENDED: {"resume": RUNNING, "ended": EXITING},
    EXITING: {"cleaned": EXITED},
    EXITED: {"acknowledged": ACKNOWLEDGED, "forgotten": ACKNOWLEDGED},
    ACKNOWLEDGED: {},
    FAILED: {},
    ABANDONED: {},
}

#: States in which tasks of the step run.
ALIVE = frozenset({RUNNING, SUSPENDED})
#: States after the last task.
OVER = frozenset({EXITING, EXITED, ACKNOWLEDGED})

#: Exit codes of the program.
EXIT_DONE = 0
EXIT_NOT_STARTED = 3

#: Signals that reach a suspended step only after it was thawed.
TERMINATING = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGTERM, signal.SIGKILL}
)

#: Seconds.
PUSH_FIRST_PAUSE = 1.0
PUSH_LONGEST_PAUSE = 30.0
WRITE_PAUSE = 1.0
KILL_PAUSE = 1.0
LEFTOVER_FIRST_PAUSE = 0.005
LEFTOVER_LONGEST_PAUSE = 0.2
LEFTOVER_PATIENCE = 10.0
HELD_PAUSE = 0.02
OOM_FIRST_PAUSE = 0.01
OOM_PATIENCE = 2.0
SESSION_PAUSE = 30.0

_ABANDON, _KILL, _WRITE, _PUSH = "abandon", "kill", "write", "push"
_LEFTOVERS, _OOM, _SESSION, _HELD = "leftovers", "oom", "session", "held"
_EPILOG = "epilog"


class Machine:
    """The state of one supervisor."""

    def __init__(
        self,
        ranks: tuple[int, ...],
        start_timeout: float,
        grace: float,
        *,
        hangs_up: bool = False,
        slow_exec: bool = False,
        task_epilog: bool = False,
        job_lifetime: bool = False,
        has_epilog: bool = False,
    ) -> None:
        """
        Args:
            ranks: the step's tasks on this node; none = it holds its place until it is ended.
            start_timeout: seconds after readiness in which `start` must come.
            grace: seconds between SIGTERM and SIGKILL of a teardown that names none.
            hangs_up: the task has a terminal.  A shell at one ignores SIGTERM, but not SIGHUP.
            slow_exec: something runs in the tasks before their programs: `start` is answered without
                waiting for those.
            task_epilog: something runs behind the end of each task.
            job_lifetime: the attempt's other steps here, and its group, end after this one.
            has_epilog: an epilog runs after that.
        """
        self.state = INIT
        self.teardown_reason = ""
        self.exit_seq = 0
        self.acknowledged = False
        self._running = set(ranks)
        self._holds = not ranks
        self._hangs_up = hangs_up
        self._answers_early = slow_exec or self._holds
        self._task_epilog = task_epilog
        #: Ended tasks behind which something still runs.
        self._epilogs: set[int] = set()
        self._job_lifetime = job_lifetime
        self._has_epilog = has_epilog
        #: The end of the job on this node is going on.
        self._winding_up = False
        #: There is an epilog result that nobody has been told.
        self._untold = False
        self._start_timeout = start_timeout
        self._grace = grace
        self._deadlines: dict[str, float] = {}
        self._push_pause = PUSH_FIRST_PAUSE
        self._told_not_durable = False
        self._leftover_pause = LEFTOVER_FIRST_PAUSE
        self._leftovers_until = 0.0
        self._oom_until = 0.0
        self._oom_pause = OOM_FIRST_PAUSE

    def _move(self, event: str) -> None:
        try:
            self.state = TRANSITIONS[self.state][event]
        except KeyError:
            raise IllegalTransition(self.state, event) from None

    def next_deadline(self) -> float | None:
        """When `tick` wants to be called next, None = there is nothing to wait for."""
        return min(self._deadlines.values(), default=None)

    def tick(self, now: float) -> list[Action]:
        """Everything whose time has come."""
        due = [name for name, at in self._deadlines.items() if at <= now]
        actions: list[Action] = []
        for name in due:
            if self._deadlines.pop(name, None) is None:
                continue  # an earlier one has put an end to it
            if name == _ABANDON:
                self._move("timeout")
                actions += self._give_up("start did not come in time")
            elif name == _KILL:
                actions += self._kill(now)
            elif name == _HELD:
                actions.append(CheckHeld())
            elif name == _WRITE:
                actions.append(ObserveExit())
            elif name == _PUSH:
                actions.append(Push())
            elif name == _LEFTOVERS:
                actions.append(KillLeftovers())
            elif name == _OOM:
                actions.append(CheckOom())
            elif name == _EPILOG:
                actions.append(WriteEpilog())
            elif name == _SESSION:
                actions.append(CheckSession())
        return actions

    def _kill(self, now: float) -> list[Action]:
        if self.state == EXITING:
            self._epilogs.clear()
            return self._clear(now) if self.exit_seq else []
        if self._holds:
            return self._end()
        self._deadlines[_KILL] = now + KILL_PAUSE
        return [KillAll()]

    # -- start -------------------------------------------------------------------------------------

    def ready(self, now: float) -> list[Action]:
        """The control socket listens."""
        self._move("ready")
        self._deadlines[_ABANDON] = now + self._start_timeout
        return []

    def start(self) -> list[Action]:
        """Somebody asks for `start`; a repeated one starts nothing and gets the same answer.

        Raises:
            IllegalTransition: it has failed, or was given up.
        """
        if self.state == STARTING:
            return []
        if self.state in ALIVE or self.state in OVER:
            return [AnswerStart()]
        self._move("start")
        self._deadlines.pop(_ABANDON, None)
        return [Launch()]

    def start_failed(self) -> list[Action]:
        """Something before the gate went wrong.  Nothing of the user's has run; nothing may be left."""
        self._move("failed")
        return [AbortTasks(), AnswerStart(), *self._give_up("start failed")]

    def tasks_ready(self) -> list[Action]:
        """All tasks wait at the gate."""
        return [RecordStart()] if self.state == STARTING else []

    def start_recorded(self) -> list[Action]:
        """`Started` is on the disk."""
        self._move("started")
        return [OpenGate(), AnswerStart()] if self._answers_early else [OpenGate()]

    def execed(self) -> list[Action]:
        """Every task has become the user's program, or has failed to."""
        return [AnswerStart()]

    def _give_up(self, reason: str) -> list[Action]:
        self._deadlines.clear()
        return [Record("Abandoned", {"reason": reason}), Cleanup(0), Quit(EXIT_NOT_STARTED)]

    # -- the end -----------------------------------------------------------------------------------

    def task_ended(self, rank: int) -> list[Action]:
        """A task was reaped."""
        if rank not in self._running or self.state not in ALIVE:
            return []
        self._running.discard(rank)
        actions: list[Action] = []
        if self._task_epilog:
            self._epilogs.add(rank)
            actions.append(RunTaskEpilog(rank))
        return actions if self._running else actions + self._end()

    def task_epilog_ended(self, rank: int, now: float) -> list[Action]:
        """What ran behind the end of a task is over.  The exit has not waited for it, the cleanup has."""
        if rank not in self._epilogs:
            return []
        self._epilogs.discard(rank)
        return self._clear(now) if self.state == EXITING and self.exit_seq and not self._epilogs else []

    def _clear(self, now: float) -> list[Action]:
        self._deadlines.pop(_KILL, None)
        self._leftovers_until = now + LEFTOVER_PATIENCE
        return [KillLeftovers()]

    def held(self, count: int, now: float) -> list[Action]:
        """`count` processes are in a step without tasks that is being ended: they have until the kill."""
        if self.state not in ALIVE:
            return []
        if not count:
            return self._end()
        self._deadlines[_HELD] = now + HELD_PAUSE
        return []

    def _end(self) -> list[Action]:
        self._move("ended")
        for name in (_OOM, _HELD) if self._epilogs else (_KILL, _OOM, _HELD):
            self._deadlines.pop(name, None)
        return [ObserveExit()]

    def exit_written(self, seq: int, now: float) -> list[Action]:
        """`ExitObserved` is on the disk: only now may anybody hear of it and anything be removed."""
        self.exit_seq = seq
        return [AnswerWaits(), Push(), *([] if self._epilogs else self._clear(now))]

    def exit_not_written(self, now: float) -> list[Action]:
        """The disk is full.  The exit stays in memory, is tried again, and is at least told."""
        self._deadlines[_WRITE] = now + WRITE_PAUSE
        if self._told_not_durable:
            return []
        self._told_not_durable = True
        return [Push()]

    def leftovers(self, count: int, now: float) -> list[Action]:
        """`count` processes of the step were still there after the last kill."""
        if count and now < self._leftovers_until:
            self._deadlines[_LEFTOVERS] = now + self._leftover_pause
            self._leftover_pause = min(2 * self._leftover_pause, LEFTOVER_LONGEST_PAUSE)
            return []
        return [Cleanup(count)]

    def cleaned(self, now: float) -> list[Action]:
        """Groups, script and scratch are gone (not called after a start that failed)."""
        self._move("cleaned")
        self._deadlines[_SESSION] = now + SESSION_PAUSE
        self._winding_up = self._job_lifetime
        return [EndOthers()] if self._winding_up else self._quit_when_done()

    def others_ended(self) -> list[Action]:
        """Nothing of the attempt but this supervisor is on the node any more."""
        if self._has_epilog:
            return [RunEpilog()]
        self._winding_up = False
        return self._quit_when_done()

    def epilog_ended(self) -> list[Action]:
        """The epilog has a result."""
        return [WriteEpilog()]

    def epilog_written(self) -> list[Action]:
        """The result is on the disk: it can be told, and somebody has to hear it."""
        self._winding_up = False
        self._untold = True
        self._deadlines.pop(_PUSH, None)
        self._push_pause = PUSH_FIRST_PAUSE
        return [Push()]

    def epilog_not_written(self, now: float) -> list[Action]:
        """The disk is full.  The result stays in memory and is tried again."""
        self._deadlines[_EPILOG] = now + WRITE_PAUSE
        return []

    def epilog_told(self) -> list[Action]:
        """Somebody has got the epilog's result in answer to a query."""
        return self._told() if self._untold else []

    def _told(self) -> list[Action]:
        self._untold = False
        return self._quit_when_done()

    def session_checked(self, exists: bool, now: float) -> list[Action]:
        """A session that somebody has deleted can be acknowledged by nobody: nothing is owed any more."""
        if self.state != EXITED:
            return []
        if exists or self._winding_up:
            self._deadlines[_SESSION] = now + SESSION_PAUSE
            return []
        self._move("forgotten")
        self._deadlines.clear()
        return [Quit(EXIT_DONE)]

    def pushed(self, answer: str | None, now: float) -> list[Action]:
        """The agent answered a notification; None: nobody listened, or the connection was lost."""
        if self.acknowledged and not self._untold:
            return []
        if answer == notify.KNOWN and not self.acknowledged:
            self._untold = False
            return self._acknowledge("agent's ledger")
        if answer in (notify.KNOWN, notify.ACCEPTED, notify.SUPERSEDED):
            return self._told()
        self._deadlines[_PUSH] = now + self._push_pause
        self._push_pause = min(2 * self._push_pause, PUSH_LONGEST_PAUSE)
        return []

    def ack(self, seq: int, by: str) -> list[Action]:
        """The controller has the exit.

        Raises:
            IllegalTransition: there is no exit of that number on the disk.
        """
        if not self.exit_seq or seq != self.exit_seq:
            raise IllegalTransition(self.state, f"ack of {seq}")
        return [] if self.acknowledged else self._acknowledge(by)

    def _acknowledge(self, by: str) -> list[Action]:
        if not self.exit_seq:
            return []  # told before it was durable; the disk comes first
        return [Acknowledge(by)]

    def ack_written(self) -> list[Action]:
        """`Acknowledged` is on the disk."""
        self.acknowledged = True
        if not self._untold:
            self._deadlines.pop(_PUSH, None)
        return self._quit_when_done()

    def ack_not_written(self, now: float) -> list[Action]:
        """The disk is full.  Whoever acknowledged is told so and comes again, or answers the next push."""
        self._deadlines[_PUSH] = now + WRITE_PAUSE
        return []

    def _quit_when_done(self) -> list[Action]:
        if not self.acknowledged or self.state != EXITED or self._winding_up or self._untold:
            return []
        self._move("acknowledged")
        self._deadlines.clear()
        return [Quit(EXIT_DONE)]

    # -- orders from outside -----------------------------------------------------------------------

    def teardown(self, reason: str, requester: str, grace: float | None, now: float) -> list[Action]:
        """End the step.  Repeated: a shorter grace shortens the running one, the first reason stays."""
        if self.state == READY:
            self._move("teardown")
            return self._give_up(f"torn down before start: {reason}")
        if self.state == STARTING:
            self.teardown_reason = reason or "teardown"
            return self.start_failed()
        if self.state not in ALIVE and not self._epilogs:
            return []
        patience = self._grace if grace is None else grace
        kill_at = min(now + patience, self._deadlines.get(_KILL, now + patience))
        self._deadlines[_KILL] = kill_at
        if self.teardown_reason or self.state not in ALIVE:
            return []
        self.teardown_reason = reason or "teardown"
        actions: list[Action] = [
            Record("TeardownRequested", {"reason": self.teardown_reason, "requester": requester}),
            LastWords(self.teardown_reason),
        ]
        if patience > 0:
            actions += self._thaw()
            actions.append(Deliver(signal.SIGTERM))
            if self._hangs_up:
                actions.append(Deliver(signal.SIGHUP))
            actions.append(Deliver(signal.SIGCONT))
        if self._holds:
            actions.append(CheckHeld())
        return actions

    def suspend(self) -> list[Action]:
        """Stop the step; a stopped one stays so.

        Raises:
            IllegalTransition: nothing runs.
        """
        if self.state == SUSPENDED:
            return []
        self._move("suspend")
        return [Freeze()]

    def resume(self) -> list[Action]:
        """Let a stopped step go on.

        Raises:
            IllegalTransition: nothing runs.
        """
        if self.state == RUNNING:
            return []
        self._move("resume")
        return [Thaw()]

    def _thaw(self) -> list[Action]:
        return self.resume() if self.state == SUSPENDED else []

    def before_signal(self, number: int) -> list[Action]:
        """Somebody wants a signal sent; what must come before it.

        Raises:
            IllegalTransition: nothing runs.
        """
        if self.state not in ALIVE:
            raise IllegalTransition(self.state, f"signal {number}")
        return self._thaw() if number in TERMINATING else []

    def memory_short(self, now: float) -> list[Action]:
        """The step is at its limit (v1, where nobody else ends the rest of it after a kill)."""
        if self.state not in ALIVE:
            return []
        self._oom_until = now + OOM_PATIENCE
        self._oom_pause = OOM_FIRST_PAUSE
        return [CheckOom()]

    def oom_checked(self, killed: int, now: float) -> list[Action]:
        """`killed` processes have been killed so far; the count comes a moment after the want."""
        if self.state not in ALIVE:
            return []
        if killed:
            return [*self._thaw(), KillAll()]
        if now < self._oom_until:
            self._deadlines[_OOM] = now + self._oom_pause
            self._oom_pause *= 2
        return []
