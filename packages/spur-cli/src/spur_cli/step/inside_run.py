"""The run of a step inside an allocation: the controller makes it, in its turn, and tells how it does."""

import threading
import time
from queue import Empty
from typing import TYPE_CHECKING, Any

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.step.exits import TaskEnd, overall
from spur_cli.step.run import ABORTED, Placement, StepRun
from spur_cli.step.watch import WATCH_LOST, start_watching
from spur_cli.step.wishes import OutputFactory, Wishes
from spur_cli.transport import Transport
from spur_core.ids import step_name
from spur_core.states import JobState

if TYPE_CHECKING:
    from spur_proto import common_pb2, controller_pb2

CREATED, BUSY, REFUSED, AWAY = "created", "busy", "refused", "away"
BUSY_TEXT = "Requested nodes are busy"
#: How long the controller keeps a call that must wait: short at first, so that the wait is told soon.
FIRST_WAIT_SECS, WAIT_SECS = 0.3, 20.0
#: An answer may take so long beyond that.
ANSWER_SECS = 60.0
#: How long the controller may be away while a step is asked for.
AWAY_SECS = 300.0
#: A restart of the controller takes less; who would care?
AWAY_QUIET_SECS = 3.0
FIRST_PAUSE, LAST_PAUSE = 0.1, 2.0
#: After a signal a call may still bring a step that must be ended.
LAST_CALL_SECS = 1.0


class Surroundings:
    """What the allocation's environment says and a step does not: for names of files."""

    __slots__ = ("job_name", "restarts", "user")

    def __init__(self, job_name: str, user: str, restarts: int) -> None:
        self.job_name = job_name
        self.user = user
        self.restarts = restarts


class InsideRun(StepRun):
    """Makes one step and follows it.

    Args:
        request: complete but for `wait_secs`.
        give_up_secs: how long the step may wait for resources, None = as long as it takes.
    """

    def __init__(
        self,
        ctx: Context,
        transport: Transport,
        request: "controller_pb2.CreateJobStepRequest",
        wishes: Wishes,
        output: OutputFactory,
        around: Surroundings,
        give_up_secs: float | None = None,
    ) -> None:
        super().__init__(ctx, transport, wishes, output)
        self.job_id = request.job_id
        self._request = request
        self._around = around
        self._give_up_secs = give_up_secs
        self._told_busy = False
        self._told_away = False
        self._stopped = threading.Event()

    def begin(self) -> None:
        """Ask for the step; meanwhile load what its sessions need."""
        threading.Thread(target=self._create, name="create", daemon=True).start()
        threading.Thread(target=_load_grpc, name="load", daemon=True).start()

    def target(self) -> "controller_pb2.JobTarget":
        """The step."""
        from spur_proto import controller_pb2 as pb

        assert self.rid is not None
        return pb.JobTarget(job_id=self.rid[0], step_id=self.rid[2])

    # The thread that asks.

    def _create(self) -> None:
        from spur_proto import controller_pb2 as pb

        request = self._request
        began = time.monotonic()
        pause, wait, last = FIRST_PAUSE, FIRST_WAIT_SECS, began
        while not self._stopped.is_set():
            request.wait_secs = wait
            try:
                answer = self.transport.call(
                    "CreateJobStep", request, pb.CreateJobStepResponse, timeout=wait + ANSWER_SECS
                )
            except CallFailed as failure:
                if not failure.busy or time.monotonic() - last > AWAY_SECS:
                    self.events.put((REFUSED, "", failure))
                    return
                if time.monotonic() - last > AWAY_QUIET_SECS:
                    self.events.put((AWAY, "", failure.text))
                self._stopped.wait(pause)
                pause = min(pause * 2, LAST_PAUSE)
                continue
            pause, last = FIRST_PAUSE, time.monotonic()
            if not answer.busy:
                self.events.put((CREATED, "", answer))
                return
            left = WAIT_SECS
            if self._give_up_secs is not None:
                left = self._give_up_secs - (last - began)
                if left <= 0:
                    late = CallFailed("FAILED_PRECONDITION", "busy", answer.text or BUSY_TEXT)
                    self.events.put((REFUSED, "", late))
                    return
            self.events.put((BUSY, "", answer.text))
            wait = min(left, WAIT_SECS)

    # The main thread.

    def other(self, kind: str, payload: Any) -> int | None:
        """News of the step that is to be.

        Raises:
            Stop: there will be none.
        """
        if kind == BUSY and not self._told_busy:
            self._told_busy = True
            text = payload or BUSY_TEXT
            self.info(f"Job {self.job_id} step creation temporarily disabled, retrying ({text})")
        elif kind == AWAY and not self._told_away:
            self._told_away = True
            self.ctx.error(f"{payload}, retrying")
        elif kind == CREATED:
            return self._created(payload)
        elif kind == REFUSED:
            raise self._refused(payload)
        elif kind == WATCH_LOST:
            return None
        return None

    def _created(self, answer: "controller_pb2.CreateJobStepResponse") -> int | None:
        from spur_proto import controller_pb2 as pb

        step = answer.step
        self.step = f"{step.rid.job_id}.{step_name(step.rid.step_id)}"
        if self._told_busy:
            self.info(f"Step created for StepId={self.step}")
        if not answer.nodes:
            self.ctx.error(f"StepId={self.step} is over and its nodes are not known: its output is lost")
            end = step.exit
            whole = TaskEnd("", 0, end.code, end.signal, end.oom, end.core_dumped)
            return overall([whole]) or 1
        self.attach(self._placement(step, {place.node: place.address for place in answer.nodes}))
        request = pb.WatchStepRequest(rid=step.rid)
        start_watching(self.transport, "WatchStep", request, pb.WatchStepResponse, self.events)
        return None

    def _placement(self, step: "common_pb2.StepInfo", addresses: dict[str, str]) -> Placement:
        from spur_core.grammar.filepattern import PatternValues

        rid, around = step.rid, self._around
        values = PatternValues(
            rid.job_id,
            step.array_job_id if step.HasField("array_job_id") else None,
            step.array_task_id if step.HasField("array_task_id") else None,
            rid.step_id,
            0,
            "",
            0,
            step.user or around.user,
            around.job_name or step.name,
            around.restarts,
        )
        slices = [(held.node, held.ranks) for held in step.slices]
        return Placement(
            (rid.job_id, rid.run_attempt, rid.step_id), slices, addresses, step.num_tasks, values
        )

    def _refused(self, failure: CallFailed) -> Stop:
        name, job = self.ctx.name, self.job_id
        if failure.code in ("no_such_job", "already_done"):
            text = f"Unable to confirm allocation for job {job}: {failure.text}"
            if failure.code == "already_done":
                text = f"Slurm job {job} has expired."
            hint = f"Check SLURM_JOB_ID environment variable. Expired or invalid job {job}"
            return Stop(1, f"{name}: error: {text}", f"{name}: {hint}")
        return self.ctx.stop(f"Unable to create step for job {job}: {failure.text}")

    def news(self, part: "controller_pb2.WatchStepResponse") -> int | None:
        """The step has changed."""
        step = part.step
        state = JobState(int(step.state))
        self.moved({place.node: place.address for place in part.nodes})
        ending = state == JobState.COMPLETING and (
            step.HasField("kill_uid") or step.reason in ("TimeLimit", "Cancelled")
        )
        self.state_is(state, step.exit, aborted=ending or state in ABORTED)
        return None

    def signalled_early(self, number: int) -> int | None:
        """There is no step yet that could get it: ask no more."""
        self._stopped.set()
        self.info(f"Cancelled pending job step with signal {number}")
        deadline = time.monotonic() + LAST_CALL_SECS
        while (left := deadline - time.monotonic()) > 0:
            try:
                kind, _, payload = self.events.get(timeout=left)
            except Empty:  # no answer any more
                break
            if kind == CREATED:
                step = payload.step
                self.rid = (step.rid.job_id, step.rid.run_attempt, step.rid.step_id)
                self.step = f"{step.rid.job_id}.{step_name(step.rid.step_id)}"
                self._cancel()
            if kind in (CREATED, BUSY, REFUSED):
                break
        raise self.ctx.stop(
            f"Unable to create step for job {self.job_id}: Job/step already completing or completed"
        )


def _load_grpc() -> None:
    import spur_cli.grpc_setup  # noqa: F401
