"""A stand-alone srun from the submitted job to its exit code: the main thread's loop.

Threads bring news into one queue: the watch of the job, one session per node, standard input, signals.
"""

import os
import signal
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context
from spur_cli.queue.names import reason_of
from spur_cli.step import exits, session
from spur_cli.step.output import Output
from spur_cli.step.session import NodeSession
from spur_cli.transport import Transport
from spur_core.states import TERMINAL_STATES, JobState

if TYPE_CHECKING:
    from spur_proto import agent_pb2, common_pb2, controller_pb2

WATCH, STDIN, SIGNAL, WATCH_LOST = "watch", "stdin", "signal", "watch_lost"
#: An allocation that comes sooner is no wait that anybody must hear about.
QUIET_SECS = 0.5
#: Two interrupts within this time end the job.
INTERRUPT_SECS = 1.0
#: An ended job whose nodes do not give its output and exit any more.
LAST_WORDS_SECS = 15.0
WAIT_SECS = 300.0
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGALRM)
_STARTED = (JobState.RUNNING, JobState.COMPLETING, JobState.SUSPENDED)
_ABORTED = (
    JobState.CANCELLED,
    JobState.TIMEOUT,
    JobState.PREEMPTED,
    JobState.NODE_FAIL,
    JobState.DEADLINE,
)


class Wishes:
    """What the options say about input, output and interrupts."""

    __slots__ = ("one_interrupt", "quiet", "stdin")

    def __init__(self, *, quiet: bool, one_interrupt: bool, stdin: int | None) -> None:
        self.quiet = quiet
        self.one_interrupt = one_interrupt
        #: Descriptor to read from, None = the tasks get an empty input.
        self.stdin = stdin


class StepRun:
    """Follows one job until its step has ended."""

    def __init__(
        self, ctx: Context, transport: Transport, job_id: int, wishes: Wishes, output: "OutputFactory"
    ) -> None:
        self.ctx = ctx
        self.transport = transport
        self.job_id = job_id
        self.wishes = wishes
        self.step = f"{job_id}.0"
        self.events: SimpleQueue[session.Event] = SimpleQueue()
        self.job: common_pb2.JobInfo | None = None
        self.sessions: dict[str, NodeSession] = {}
        self.places: dict[int, tuple[str, int]] = {}
        self.ends: dict[int, exits.TaskEnd] = {}
        self.waiting_nodes: set[str] = set()
        self._make_output = output
        self._output: Output | None = None
        self._began = time.monotonic()
        self._told_waiting = False
        self._told_aborted = False
        self._last_interrupt = float("-inf")
        self._interrupts = 0
        self._cancelled = False
        self._terminal_at: float | None = None
        self._last_output = 0.0
        self._marks: dict[tuple[int, int], tuple[str, int]] = {}

    def run(self) -> int:
        """Until the end; srun's exit code."""
        previous = self._catch_signals()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        try:
            while True:
                try:
                    event = self.events.get(timeout=0.2)
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
                self.ctx.error(f"cannot write output: {error.strerror}")
            return 1
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    # Threads.

    def _watch(self) -> None:
        """Bring the states of the job, through restarts of the controller."""
        from spur_proto import controller_pb2 as pb

        pause, last = 0.1, time.monotonic()
        while True:
            try:
                request = pb.WatchJobRequest(job_id=self.job_id)
                for part in self.transport.stream("WatchJob", request, pb.WatchJobResponse):
                    pause, last = 0.1, time.monotonic()
                    self.events.put((WATCH, "", part))
                    if int(part.job.state) in TERMINAL_STATES:
                        return
                failure = CallFailed("UNAVAILABLE", "", "the controller ended the watch")
            except CallFailed as error:
                failure = error
            if not failure.busy or time.monotonic() - last > WAIT_SECS:
                self.events.put((WATCH_LOST, "", failure))
                return
            time.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _read_stdin(self, fd: int) -> None:
        while True:
            try:
                data = os.read(fd, 1 << 16)
            except OSError:
                data = b""
            self.events.put((STDIN, "", data))
            if not data:
                return

    def _catch_signals(self) -> dict[int, Any]:
        previous: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return previous
        for number in (signal.SIGINT, *FORWARDED):
            previous[number] = signal.signal(
                number, lambda caught, _frame: self.events.put((SIGNAL, "", caught))
            )
        return previous

    # Decisions of the main thread.

    def _handle(self, event: session.Event) -> int | None:
        kind, node, payload = event
        if kind == WATCH:
            return self._job_news(payload)
        if kind == session.OUTPUT:
            self._write(node, *payload)
        elif kind == session.EXIT:
            return self._node_ended(node, payload)
        elif kind == session.FAILED:
            return self._node_failed(node, payload)
        elif kind == STDIN:
            for one in self.sessions.values():
                one.send_stdin(payload)
        elif kind == SIGNAL:
            return self._signalled(payload)
        elif kind == WATCH_LOST and not self.sessions:
            self.ctx.error(f"Unable to confirm allocation for job {self.job_id}: {payload.text}")
            return 1
        return None

    def _tick(self) -> int | None:
        """What the passing of time decides."""
        pending = self.job is not None and int(self.job.state) == JobState.PENDING
        if pending and not self._told_waiting and time.monotonic() - self._began > QUIET_SECS:
            self._told_waiting = True
            self._info(f"job {self.job_id} queued and waiting for resources")
        quiet_since = max(self._terminal_at or 0.0, self._last_output)
        if self._terminal_at is not None and time.monotonic() - quiet_since > LAST_WORDS_SECS:
            nodes = ",".join(sorted(self.waiting_nodes))
            self.ctx.error(f"the end of StepId={self.step} could not be read from {nodes}")
            return self._finish()
        return None

    def _job_news(self, part: "controller_pb2.WatchJobResponse") -> int | None:
        job = self.job = part.job
        state = JobState(int(job.state))
        for place in part.nodes:
            if place.node in self.sessions and place.address:
                self.sessions[place.node].address = place.address
        started = job.HasField("start_at") and bool(part.nodes)
        if not self.sessions and started and (state in _STARTED or state in TERMINAL_STATES):
            self._attach(part)
        if state in TERMINAL_STATES:
            if not self.sessions:
                return self._never_ran(job, state)
            self._terminal_at = self._terminal_at or time.monotonic()
        if state in _ABORTED and not self._told_aborted and self.sessions:
            self._told_aborted = True
            self._info("Job step aborted: Waiting up to 32 seconds for job step to finish.")
        return None

    def _never_ran(self, job: "common_pb2.JobInfo", state: JobState) -> int:
        if state == JobState.CANCELLED:
            self._info(f"Job allocation {self.job_id} has been revoked")
        else:
            self.ctx.error(f"Unable to launch StepId={self.step}: {state.name}: {reason_of(job)}")
        return 1

    def _attach(self, part: "controller_pb2.WatchJobResponse") -> None:
        if self._told_waiting:
            self._info(f"job {self.job_id} has been allocated resources")
        job = part.job
        for index, held in enumerate(job.slices):
            for rank in held.ranks:
                self.places[rank] = (held.node, index)
        busy = {node for node, _ in self.places.values()}
        rid = (self.job_id, job.run_attempt, 0)
        for place in part.nodes:
            if place.node in busy or not busy:
                one = NodeSession(self.transport, place.node, place.address, rid, self.events)
                self.sessions[place.node] = one
        self.waiting_nodes = set(self.sessions)
        self._output = self._make_output(job, len(self.places) or job.num_tasks)
        for one in self.sessions.values():
            if self.wishes.stdin is None:
                one.send_stdin(b"")
            one.start()
        if self.wishes.stdin is not None:
            threading.Thread(
                target=self._read_stdin, args=(self.wishes.stdin,), name="stdin", daemon=True
            ).start()

    def _write(self, node: str, rank: int, stream: int, end: int, data: bytes) -> None:
        assert self._output is not None
        index = self.places.get(rank, (node, 0))[1]
        self._output.write(rank, stream, node, index, data)
        # Only now: writing may have waited long for a slow reader.
        self._last_output = time.monotonic()
        self._marks[rank, stream] = (node, end)
        self.sessions[node].delivered(rank, stream, end, len(data))

    def _node_ended(self, node: str, end: "agent_pb2.StepExit") -> int | None:
        for part in end.ranks:
            found = part.exit
            self.ends[part.rank] = exits.TaskEnd(
                node, part.rank, found.code, found.signal, found.oom, found.core_dumped
            )
        missing = [
            rank for rank, (where, _) in self.places.items() if where == node and rank not in self.ends
        ]
        for rank in missing:
            whole = end.exit
            self.ends[rank] = exits.TaskEnd(
                node, rank, whole.code, whole.signal, whole.oom, whole.core_dumped
            )
        for (rank, stream), (where, offset) in self._marks.items():
            if where == node:
                self.sessions[node].delivered(rank, stream, offset, 0, flush=True)
        self.sessions[node].done = True
        self.waiting_nodes.discard(node)
        return None if self.waiting_nodes else self._finish()

    def _node_failed(self, node: str, failure: CallFailed) -> int | None:
        self.ctx.error(f"{node}: lost contact with StepId={self.step}: {failure.text}")
        for rank, (where, _) in self.places.items():
            if where == node and rank not in self.ends:
                self.ends[rank] = exits.TaskEnd(node, rank, 1, 0, False, False)
        self.waiting_nodes.discard(node)
        return None if self.waiting_nodes else self._finish()

    def _finish(self) -> int:
        if self._output is not None:
            self._output.finish(self.places)
        for line in exits.lines(self.ends.values(), self.step):
            self.ctx.info(line)
        return exits.overall(self.ends.values())

    def _signalled(self, number: int) -> int | None:
        if not self.sessions:
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                self._cancel()
                self._info(f"Job allocation {self.job_id} has been revoked")
                return 1
            return None
        if number != signal.SIGINT:
            for one in self.sessions.values():
                one.send_signal(number)
            return None
        now = time.monotonic()
        first = now - self._last_interrupt > INTERRUPT_SECS
        self._last_interrupt = now
        if first and not self.wishes.one_interrupt:
            self._info("interrupt (one more within 1 sec to abort)")
            alive = {rank: rank not in self.ends for rank in self.places}
            for line in exits.running_lines(alive, self.step):
                self._info(line)
            return None
        self._interrupts += 1
        if self._interrupts == 1:
            self._info(f"sending Ctrl-C to StepId={self.step}")
            for one in self.sessions.values():
                one.send_signal(signal.SIGINT)
        # The tasks may have ended by themselves by now; what has not is ended by the controller.
        self._cancel()
        return None

    def _cancel(self) -> None:
        """End the job; that this does not work is said, since it then goes on without us."""
        from spur_proto import controller_pb2 as pb

        if self._cancelled:
            return
        self._cancelled = True
        request = pb.CancelJobRequest(targets=[pb.JobTarget(job_id=self.job_id)])
        try:
            self.transport.call("CancelJob", request, pb.CancelJobResponse, timeout=10.0)
        except CallFailed as failure:
            self.ctx.error(f"job {self.job_id} could not be cancelled: {failure.text}")

    def _info(self, text: str) -> None:
        if not self.wishes.quiet:
            self.ctx.info(text)


class OutputFactory:
    """Makes the output once the job's shape is known."""

    def __init__(self, ctx: Context, out: str, err: str, *, label: bool, append: bool, work_dir: str) -> None:
        self._ctx = ctx
        self._out = out
        self._err = err
        self._label = label
        self._append = append
        self._work_dir = work_dir

    def __call__(self, job: "common_pb2.JobInfo", tasks: int) -> Output:
        from spur_core.grammar.filepattern import PatternValues

        width = len(str(max(tasks - 1, 0))) if self._label else 0
        values = PatternValues(job.job_id, None, None, 0, 0, "", 0, job.user, job.name, job.restarts)
        return Output(
            self._ctx,
            self._out,
            self._err,
            width=width,
            append=self._append,
            values=values,
            work_dir=self._work_dir,
        )
