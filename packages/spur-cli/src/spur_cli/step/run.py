"""A step from its attachment to its exit code: the main thread's loop.

Threads bring news into one queue: the watch of the job or step, one session per node, signals.  How
a step comes to be is the business of the two kinds of runs (`job_run`, `inside_run`).
"""

import signal
import threading
import time
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context
from spur_cli.signals import SIGNAL as SIGNAL
from spur_cli.signals import Caught
from spur_cli.step import exits, session
from spur_cli.step.input import pump
from spur_cli.step.link_notices import LinkNotices
from spur_cli.step.output import Output
from spur_cli.step.pty_run import RESIZED
from spur_cli.step.session import NodeSession
from spur_cli.step.watch import WATCH, WATCH_LOST
from spur_cli.step.wishes import OutputFactory, Wishes
from spur_cli.transport import Transport
from spur_core.states import TERMINAL_STATES, JobState

if TYPE_CHECKING:
    from spur_core.grammar.filepattern import PatternValues
    from spur_proto import agent_pb2, common_pb2, controller_pb2

#: Two interrupts within this time end the step.
INTERRUPT_SECS = 1.0
#: An ended step whose nodes do not give its output and exit any more.
LAST_WORDS_SECS = 15.0
#: Of nodes that say that they have nothing of it (any more) none come.
UNKNOWN_SECS = 1.0
#: What an agent says of a step whose supervisor died without an exit.
SUPERVISOR_LOST = "supervisor_lost"
#: Ends of tasks that come within this time are told in one line.
GATHER_SECS = 0.1
TICK_SECS = 0.2
CAUGHT = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM,
)  # fmt: skip
ABORTED = (
    JobState.CANCELLED,
    JobState.TIMEOUT,
    JobState.PREEMPTED,
    JobState.NODE_FAIL,
    JobState.DEADLINE,
)


class Placement(NamedTuple):
    """Where a step runs.

    rid: (job, attempt, step).  slices: (node, its ranks) in the step's node order; addresses: of the agents.
    """

    rid: tuple[int, int, int]
    slices: Sequence[tuple[str, Sequence[int]]]
    addresses: Mapping[str, str]
    tasks: int
    values: "PatternValues"


class StepRun:
    """Follows one step until it has ended.  `step`: its name in messages, `12.0`."""

    step = ""
    #: How sessions join the step.
    manner = session.OWNER

    def __init__(self, ctx: Context, transport: Transport, wishes: Wishes, output: OutputFactory) -> None:
        self.ctx = ctx
        self.transport = transport
        self.wishes = wishes
        self.events: SimpleQueue[session.Event] = SimpleQueue()
        #: To be entered around `run`, and around what brings the job about.
        self.signals = Caught(CAUGHT, self.events)
        self.rid: tuple[int, int, int] | None = None
        self.sessions: dict[str, NodeSession] = {}
        self.places: dict[int, tuple[str, int]] = {}
        self.ends: dict[int, exits.TaskEnd] = {}
        self.waiting_nodes: set[str] = set()
        self.links = LinkNotices("the step")
        self.terminated = False
        self._make_output = output
        self._output: Output | None = None
        self._untold: list[exits.TaskEnd] = []
        self._untold_since = 0.0
        self._told_aborted = False
        self._last_interrupt = float("-inf")
        self._interrupts = 0
        self._cancelled = False
        self._over_at: float | None = None
        #: How it ended as the controller has it, for nodes that do not tell.
        self._fate: common_pb2.ExitStatus | None = None
        self._last_output = 0.0
        self._marks: dict[tuple[int, int], tuple[str, int]] = {}

    # What the kinds of runs differ in.

    def begin(self) -> None:
        """Start the threads that bring the step about."""
        raise NotImplementedError

    def news(self, part: Any) -> int | None:
        """A part of the watch; the exit code when there is nothing to wait for."""
        raise NotImplementedError

    def other(self, kind: str, payload: Any) -> int | None:
        """An event that only this kind of run knows."""
        raise NotImplementedError

    def waiting(self) -> None:
        """Called again and again while there is no step yet."""

    def signalled_early(self, number: int) -> int | None:
        """A signal before there is a step."""
        raise NotImplementedError

    def target(self) -> "controller_pb2.JobTarget":
        """What an interrupt or a failure of ours cancels."""
        raise NotImplementedError

    # The loop.

    def run(self) -> int:
        """Until the end; srun's exit code."""
        try:
            self.begin()
            while True:
                try:
                    event = self.events.get(timeout=TICK_SECS if not self._untold else GATHER_SECS)
                except Empty:
                    event = None
                code = self._handle(event) if event is not None else None
                if code is None:
                    code = self._tick()
                if code is not None:
                    return code
        except OSError as error:
            self._cancel()
            if not isinstance(error, BrokenPipeError):
                where = f"{error.filename}: " if error.filename else ""
                self.ctx.error(f"cannot write output: {where}{error.strerror}")
            return 1
        finally:
            if self.wishes.pty is not None:
                self.wishes.pty.end()

    def _handle(self, event: session.Event) -> int | None:
        kind, node, payload = event
        if kind == WATCH:
            return self.news(payload)
        if kind == session.OUTPUT:
            self._write(node, *payload)
        elif kind == session.TASK_EXIT:
            self._task_ended(node, payload.rank, payload.exit)
        elif kind == session.EXIT:
            return self._node_ended(node, payload)
        elif kind == session.FAILED:
            return self._node_failed(node, payload)
        elif kind == session.LOST:
            self.links.lost(node, time.monotonic())
        elif kind == session.READY:
            self.info(self.links.ready(node))
        elif kind == RESIZED and self.wishes.pty is not None:
            self.wishes.pty.resize(self.sessions.values())
        elif kind == SIGNAL:
            return self._signalled(payload)
        elif kind == WATCH_LOST and self.sessions:
            # The nodes tell how it ends; only when they do not either, this is the end.
            if payload.code in ("not_found", "no_such_job"):
                self._over_at = self._over_at or time.monotonic()
        else:
            return self.other(kind, payload)
        return None

    def _tick(self) -> int | None:
        """What the passing of time decides."""
        now = time.monotonic()
        for text in self.links.due(now):
            self.ctx.error(text)
        if not self.sessions:
            self.waiting()
            return None
        if self._untold and now - self._untold_since >= GATHER_SECS:
            self._tell_ends()
        if self.wishes.rules.time_passed(now):
            self._tell_ends()
            self.info(f"First task exited {self.wishes.rules.wait_secs}s ago")
            for line in exits.state_lines(self.places, self.ends, self.step):
                self.info(line)
            self._terminate()
        quiet_since = max(self._over_at or 0.0, self._last_output)
        unknown = all(self.sessions[node].unknown for node in self.waiting_nodes)
        patience = UNKNOWN_SECS if unknown else LAST_WORDS_SECS
        if self._over_at is not None and now - quiet_since > patience and not self._may_come_back():
            nodes = ",".join(sorted(self.waiting_nodes))
            self.ctx.error(f"the end of StepId={self.step} could not be read from {nodes}")
            for node in list(self.waiting_nodes):
                self._give_up(node)
            return self._finish()
        return None

    def _may_come_back(self) -> bool:
        """Whether an agent that is away keeps the end of the step for us: it will tell it when it is back."""
        return not self._told_aborted and any(self.sessions[node].away for node in self.waiting_nodes)

    # The step's life.

    def attach(self, placement: Placement) -> None:
        """There is a step: open its sessions and give it its input.

        Raises:
            OSError: a file for output cannot be made.
        """
        self.rid = placement.rid
        self.links = LinkNotices(f"StepId={self.step}")
        for index, (node, ranks) in enumerate(placement.slices):
            for rank in ranks:
                self.places[rank] = (node, index)
        busy = {node for node, _ in self.places.values()}
        for node, address in placement.addresses.items():
            if node in busy or not busy:
                window = self.wishes.pty.terminal.size() if self.wishes.pty is not None else None
                self.sessions[node] = NodeSession(
                    self.transport, node, address, placement.rid, self.events, self.manner, window
                )
        self.waiting_nodes = set(self.sessions)
        self._output = self._make_output(placement.values, len(self.places) or placement.tasks)
        self._output.begin(self.places)
        self._give_input()
        for one in self.sessions.values():
            one.start()
        if self.wishes.pty is not None:
            self.wishes.pty.begin(self.sessions.values(), self.events)

    def _give_input(self) -> None:
        wishes = self.wishes
        givers = list(self.sessions.values()) if wishes.stdin is not None else []
        if wishes.stdin_rank is not None:
            node = self.places.get(wishes.stdin_rank, ("", 0))[0]
            givers = [one for one in givers if one.node == node]
        for one in self.sessions.values():
            if one not in givers:
                one.send_stdin(b"")
        if givers:
            threading.Thread(target=pump, args=(wishes.stdin, givers), name="stdin", daemon=True).start()

    def moved(self, addresses: Mapping[str, str]) -> None:
        """Agents may have other addresses now."""
        for node, address in addresses.items():
            if node in self.sessions and address:
                self.sessions[node].address = address

    def state_is(self, state: JobState, end: "common_pb2.ExitStatus", *, aborted: bool) -> None:
        """The controller says how the attached step (or its job) does.

        Args:
            end: how it ended, once it has.
        """
        if state in TERMINAL_STATES:
            self._over_at = self._over_at or time.monotonic()
            self._fate = end
        if aborted and not self._told_aborted and not self.terminated and self.waiting_nodes:
            self._told_aborted = True
            self.info("Job step aborted: Waiting up to 32 seconds for job step to finish.")

    def _write(self, node: str, rank: int, stream: int, end: int, data: bytes) -> None:
        assert self._output is not None
        index = self.places.get(rank, (node, 0))[1]
        self._output.write(rank, stream, node, index, data)
        # Only now: writing may have waited long for a slow reader.
        self._last_output = time.monotonic()
        self._marks[rank, stream] = (node, end)
        self.sessions[node].delivered(rank, stream, end, len(data))

    def _task_ended(self, node: str, rank: int, found: Any) -> None:
        if rank in self.ends:
            return
        end = exits.TaskEnd(node, rank, found.code, found.signal, found.oom, found.core_dumped)
        self.ends[rank] = end
        now = time.monotonic()
        if self.wishes.verbose and not exits.exit_code(end):
            self.info(f"{node}: task {rank}: Completed")
        if exits.describe(end):
            self._untold_since = self._untold_since if self._untold else now
            self._untold.append(end)
        if self.wishes.rules.task_ended(bad=bool(exits.exit_code(end)), now=now):
            self._tell_ends()
            if len(self.ends) < len(self.places):
                self._terminate()

    def _tell_ends(self) -> None:
        for line in exits.lines(self._untold):
            self.ctx.error(line)
        self._untold.clear()

    def _node_ended(self, node: str, end: "agent_pb2.StepExit") -> int | None:
        for part in end.ranks:
            self._task_ended(node, part.rank, part.exit)
        for rank in [rank for rank, (where, _) in self.places.items() if where == node]:
            self._task_ended(node, rank, end.exit)
        for (rank, stream), (where, offset) in self._marks.items():
            if where == node:
                self.sessions[node].delivered(rank, stream, offset, 0, flush=True)
        self.sessions[node].done = True
        self.links.over(node)
        self.waiting_nodes.discard(node)
        return None if self.waiting_nodes else self._finish()

    def _node_failed(self, node: str, failure: CallFailed) -> int | None:
        self.links.over(node)
        self.ctx.error(f"{node}: lost contact with StepId={self.step}: {failure.text}")
        self._give_up(node, killed=failure.code == SUPERVISOR_LOST)
        return None if self.waiting_nodes else self._finish()

    def _give_up(self, node: str, *, killed: bool = False) -> None:
        """The ends of its tasks will not be known; what the controller has of the whole step stands for them.

        Args:
            killed: the node has killed what was left of them.
        """
        code, number = (0, signal.SIGKILL) if killed else (1, 0)
        if not killed and self._fate is not None and (self._fate.code or self._fate.signal):
            code, number = self._fate.code, self._fate.signal
        for rank, (where, _) in self.places.items():
            if where == node and rank not in self.ends:
                self.ends[rank] = exits.TaskEnd(node, rank, code, int(number), False, False)
        self.waiting_nodes.discard(node)

    def _finish(self) -> int:
        if self._output is not None:
            self._output.finish(self.places)
        self._tell_ends()
        if any(end.signal and not end.oom for end in self.ends.values()):
            self.ctx.info(f"Force Terminated StepId={self.step}")
        code = exits.overall(self.ends.values())
        # Who aborted the step has ended it by his interrupts, whichever of the signals was the faster.
        return 128 + signal.SIGINT if self._interrupts and code > 128 else code

    # Signals and ends from here.

    def _signalled(self, number: int) -> int | None:
        if not self.sessions:
            return self.signalled_early(number)
        if number != signal.SIGINT or self.wishes.pty is not None:
            self._send(number)
            return None
        now = time.monotonic()
        first = now - self._last_interrupt > INTERRUPT_SECS
        self._last_interrupt = now
        if first and not self.wishes.one_interrupt:
            if self.wishes.silent_interrupt:
                self.info(f"sending Ctrl-C to StepId={self.step}")
                self._send(signal.SIGINT)
                return None
            self.info("interrupt (one more within 1 sec to abort)")
            for line in exits.state_lines(self.places, self.ends, self.step):
                self.info(line)
            return None
        self._interrupts += 1
        if self._interrupts == 1:
            self.info(f"sending Ctrl-C to StepId={self.step}")
            self._send(signal.SIGINT)
        # The tasks may have ended by themselves by now; what has not is ended by the controller.
        self._cancel()
        return None

    def _send(self, number: int) -> None:
        for one in self.sessions.values():
            one.send_signal(number)

    def _terminate(self) -> None:
        """End the step by a rule of its own."""
        from spur_proto import controller_pb2 as pb

        assert self.rid is not None
        self.terminated = True
        self.info(f"Terminating StepId={self.step}")
        self._cancel(pb.JobTarget(job_id=self.rid[0], step_id=self.rid[2]))

    def _cancel(self, target: "controller_pb2.JobTarget | None" = None) -> None:
        """End the step; that this does not work is said, since it then goes on without us."""
        from spur_proto import controller_pb2 as pb

        if self._cancelled:
            return
        self._cancelled = True
        target = target or self.target()
        request = pb.CancelJobRequest(targets=[target])
        try:
            answer = self.transport.call("CancelJob", request, pb.CancelJobResponse, timeout=10.0)
            text = next((r.text for r in answer.results if r.code not in ("", *_OVER)), "")
        except CallFailed as failure:
            text = failure.text
        if text:
            what = f"StepId={self.step}" if target.HasField("step_id") else f"job {target.job_id}"
            self.ctx.error(f"{what} could not be cancelled: {text}")

    def info(self, text: str) -> None:
        """Say it unless nothing is to be said."""
        if text and not self.wishes.quiet:
            self.ctx.info(text)


#: Answers to a cancel that say that there is nothing left to end.
_OVER = ("no_such_job", "already_done", "wrong_state", "not_found", "illegal_transition")
