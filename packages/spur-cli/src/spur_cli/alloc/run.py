"""The life of an allocation from its submission to its end: the main thread's loop of salloc."""

import os
import signal
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from spur_cli.alloc.child import Child
from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context
from spur_cli.queue.names import reason_of
from spur_cli.signals import SIGNAL
from spur_cli.step.watch import WATCH, WATCH_LOST, start_watching
from spur_cli.transport import Transport, new_request_id
from spur_core.states import TERMINAL_STATES, JobState

if TYPE_CHECKING:
    from spur_cli.step.session import Event
    from spur_proto import common_pb2, controller_pb2

ENDED, STOPPED = "ended", "stopped"
#: An allocation that comes sooner is no wait that anybody must hear about.
QUIET_SECS = 0.5
#: A bell is wanted after so long a wait.
BELL_SECS = 10.0
KEEPALIVE_SECS = 30.0
#: A job that is being ended for a reason which is not known yet.
ENDING_SECS = 5.0
TICK_SECS = 0.2
#: Tries to tell the controller that the allocation is over, and the pause between them.
TRIES, PAUSE_SECS = 5, 1.0
CAUGHT = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM,
)  # fmt: skip
#: Ends that the user meant.
_MEANT = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)
_HELD = (JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING)


class AllocRun:
    """Waits for one allocation, runs a command in it, and gives it back.

    Args:
        child: what becomes the command; None = only allocate (`--no-shell`).
        environment: of the command, from the job's record.
        events: where signals are put.
        hang_up: signal for the command when the allocation ends.
        bell: ring it: None = after a long wait.
    """

    def __init__(
        self,
        ctx: Context,
        transport: Transport,
        job_id: int,
        child: Child | None,
        environment: "Callable[[common_pb2.JobInfo], dict[str, str]]",
        events: "SimpleQueue[Event]",
        *,
        hang_up: int,
        quiet: bool = False,
        bell: bool | None = None,
    ) -> None:
        self.ctx = ctx
        self.transport = transport
        self.job_id = job_id
        self.child = child
        self.events = events
        self._environment = environment
        self._hang_up = hang_up
        self._quiet = quiet
        self._bell = bell
        self._began = time.monotonic()
        self._state: JobState | None = None
        self._told_waiting = False
        self._granted = False
        self._told_slow = False
        self._ready = False
        self._revoked = False
        self._ending_since: float | None = None
        self._over = threading.Event()

    def run(self) -> int:
        """Until the end; salloc's exit code."""
        from spur_proto import controller_pb2 as pb

        request = pb.WatchJobRequest(job_id=self.job_id)
        start_watching(self.transport, "WatchJob", request, pb.WatchJobResponse, self.events)
        try:
            while True:
                try:
                    event = self.events.get(timeout=TICK_SECS)
                except Empty:
                    event = None
                code = self._handle(event) if event is not None else None
                if code is None:
                    code = self._tick()
                if code is not None:
                    return code
        finally:
            self._over.set()
            if self.child is not None:
                self.child.forget()

    # Decisions.

    def _handle(self, event: "Event") -> int | None:
        kind, _, payload = event
        if kind == WATCH:
            return self._news(payload)
        if kind == ENDED:
            return self._command_ended(payload)
        if kind == STOPPED:
            self._command_stopped()
        elif kind == SIGNAL:
            return self._signalled(payload)
        elif kind == WATCH_LOST:
            return self._watch_lost(payload)
        return None

    def _tick(self) -> int | None:
        now = time.monotonic()
        if self._ending_since is not None and now - self._ending_since > ENDING_SECS:
            return self._revoke(timed_out=False)
        if self._granted or now - self._began < QUIET_SECS:
            return None
        if self._state == JobState.PENDING and not self._told_waiting:
            self._told_waiting = True
            self._info(f"Pending job allocation {self.job_id}")
            self._info(f"job {self.job_id} queued and waiting for resources")
        return None

    def _news(self, part: "controller_pb2.WatchJobResponse") -> int | None:
        job = part.job
        state = self._state = JobState(int(job.state))
        if state == JobState.PENDING and not self._ready:
            self._granted = False  # nothing was begun yet: back to waiting, not the end
        if state in TERMINAL_STATES or (state == JobState.PENDING and self._granted):
            if not self._granted and state != JobState.CANCELLED:
                self.ctx.error(f"Job {self.job_id} ended before its allocation: {reason_of(job)}")
            return self._revoke(timed_out=state == JobState.TIMEOUT)
        if state in _HELD and job.nodelist and not self._granted:
            self._grant()
        if not self._granted:
            return None
        if state == JobState.COMPLETING:
            known = job.reason == "TimeLimit" or job.HasField("kill_uid")
            if known:
                return self._revoke(timed_out=job.reason == "TimeLimit")
            if self._ready:  # before, it may be a launch that failed and is tried again
                self._ending_since = self._ending_since or time.monotonic()
            return None
        if state == JobState.CONFIGURING:
            if not self._told_slow and time.monotonic() - self._began > QUIET_SECS:
                self._told_slow = True
                self._info("Waiting for resource configuration")
            return None
        return self._be_ready(job)

    def _grant(self) -> None:
        self._granted = True
        if self._told_waiting:
            self._info(f"job {self.job_id} has been allocated resources")
        self._info(f"Granted job allocation {self.job_id}")
        long = time.monotonic() - self._began > BELL_SECS
        if (self._bell if self._bell is not None else long) and os.isatty(self.ctx.stdout):
            self.ctx.out("\a")

    def _be_ready(self, job: "common_pb2.JobInfo") -> int | None:
        if self._ready:
            return None
        self._ready = True
        self._info(f"Nodes {job.nodelist} are ready for job")
        if self.child is None:
            return 0
        self.child.go(self._environment(job))
        threading.Thread(target=self._wait, args=(self.child.pid,), name="wait", daemon=True).start()
        threading.Thread(target=self._keep_alive, name="keepalive", daemon=True).start()
        return None

    def _revoke(self, *, timed_out: bool) -> int | None:
        """The allocation is gone; the command is told, and what it then does is its own."""
        self._ending_since = None
        if self._revoked:
            return None
        self._revoked = True
        if timed_out:
            text = f"Job {self.job_id} has exceeded its time limit and its allocation has been revoked."
        else:
            text = f"Job allocation {self.job_id} has been revoked."
        self._info(text)
        if not self._ready or self.child is None:
            if self._state not in TERMINAL_STATES:
                self._cancel()  # nobody would be there to use it
            return 1
        self.child.signal(self._hang_up)
        return None

    def _command_ended(self, status: int) -> int:
        assert self.child is not None
        self.child.take_terminal()
        if not self._revoked:
            self._info(f"Relinquishing job allocation {self.job_id}")
            self._complete(status)
        if os.WIFEXITED(status):
            return os.WEXITSTATUS(status)
        return 0 if os.WTERMSIG(status) in _MEANT else 1

    def _command_stopped(self) -> None:
        """^Z: this process stops too, and whoever continues it continues the command."""
        assert self.child is not None
        if not self.child.terminal:
            return
        self.child.take_terminal()
        os.kill(os.getpid(), signal.SIGSTOP)
        # Goes on here.
        self.child.resume()

    def _signalled(self, number: int) -> int | None:
        if self._ready and self.child is not None:
            self.child.signal(number)
            return None
        if number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
            return None
        self._cancel()
        self._info(f"Job allocation {self.job_id} has been revoked.")
        self._info("Job aborted due to signal")
        return 1

    def _watch_lost(self, failure: CallFailed) -> int | None:
        if failure.code in ("no_such_job", "not_found"):
            return self._revoke(timed_out=False)
        if self._ready:
            self.ctx.error(f"job {self.job_id} cannot be watched any more: {failure.text}")
            return None
        self.ctx.error(f"Unable to confirm allocation for job {self.job_id}: {failure.text}")
        return 1

    # Calls.

    def _complete(self, status: int) -> None:
        from spur_proto import common_pb2
        from spur_proto import controller_pb2 as pb

        exited = os.WIFEXITED(status)
        end = common_pb2.ExitStatus(
            code=os.WEXITSTATUS(status) if exited else 0, signal=0 if exited else os.WTERMSIG(status)
        )
        request = pb.CompleteJobRequest(job_id=self.job_id, exit=end)
        same = new_request_id()
        for attempt in range(TRIES):
            try:
                self.transport.call(
                    "CompleteJob", request, pb.CompleteJobResponse, timeout=10.0, request_id=same
                )
            except CallFailed as failure:
                if failure.code in ("no_such_job", "already_done", "wrong_state"):
                    return
                if not failure.busy or attempt == TRIES - 1:
                    self.ctx.error(f"Unable to clean up job state for job {self.job_id}: {failure.text}")
                    return
                time.sleep(PAUSE_SECS)
            else:
                return

    def _cancel(self) -> None:
        from spur_proto import controller_pb2 as pb

        request = pb.CancelJobRequest(targets=[pb.JobTarget(job_id=self.job_id)])
        try:
            self.transport.call("CancelJob", request, pb.CancelJobResponse, timeout=10.0)
        except CallFailed as failure:
            self.ctx.error(f"job {self.job_id} could not be cancelled: {failure.text}")

    # Threads.

    def _wait(self, pid: int) -> None:
        while True:
            status = os.waitpid(pid, os.WUNTRACED)[1]
            if not os.WIFSTOPPED(status):
                self.events.put((ENDED, "", status))
                return
            self.events.put((STOPPED, "", status))

    def _keep_alive(self) -> None:
        """Tell the controller that somebody stands behind the allocation."""
        from spur_proto import controller_pb2 as pb

        request = pb.JobKeepaliveRequest(job_id=self.job_id)
        while True:
            try:
                self.transport.call("JobKeepalive", request, pb.JobKeepaliveResponse, timeout=10.0)
            except CallFailed:
                pass  # what becomes of the job is told by its watch
            if self._over.wait(KEEPALIVE_SECS):
                return

    def _info(self, text: str) -> None:
        if not self._quiet:
            self.ctx.info(text)
