"""The run of a stand-alone srun: its job waits, starts, and holds step 0."""

import signal
import time
from typing import TYPE_CHECKING, Any

from spur_cli.context import Context
from spur_cli.queue.names import reason_of
from spur_cli.step.run import ABORTED, Placement, StepRun
from spur_cli.step.watch import WATCH_LOST, start_watching
from spur_cli.step.wishes import OutputFactory, Wishes
from spur_cli.transport import Transport
from spur_core.states import TERMINAL_STATES, JobState

if TYPE_CHECKING:
    from spur_proto import common_pb2, controller_pb2

#: An allocation that comes sooner is no wait that anybody must hear about.
QUIET_SECS = 0.5
_STARTED = (JobState.RUNNING, JobState.COMPLETING, JobState.SUSPENDED)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class JobRun(StepRun):
    """Follows one srun job."""

    def __init__(self, ctx: Context, transport: Transport, wishes: Wishes, output: OutputFactory) -> None:
        super().__init__(ctx, transport, wishes, output)
        self.job_id = 0
        self._state: JobState | None = None
        self._began = time.monotonic()
        self._told_waiting = False

    def follow(self, job_id: int) -> int:
        """Run with the job that was submitted; srun's exit code."""
        self.job_id = job_id
        self.step = f"{job_id}.0"
        self.signals.impatient = False
        return self.run()

    def begin(self) -> None:
        """Watch the job."""
        from spur_proto import controller_pb2 as pb

        request = pb.WatchJobRequest(job_id=self.job_id)
        start_watching(self.transport, "WatchJob", request, pb.WatchJobResponse, self.events)

    def target(self) -> "controller_pb2.JobTarget":
        """The job."""
        from spur_proto import controller_pb2 as pb

        return pb.JobTarget(job_id=self.job_id)

    def waiting(self) -> None:
        """Say so once it takes long."""
        late = time.monotonic() - self._began > QUIET_SECS
        if self._state == JobState.PENDING and late and not self._told_waiting:
            self._told_waiting = True
            self.info(f"job {self.job_id} queued and waiting for resources")

    def news(self, part: "controller_pb2.WatchJobResponse") -> int | None:
        """The job has changed."""
        job = part.job
        state = self._state = JobState(int(job.state))
        addresses = {place.node: place.address for place in part.nodes}
        self.moved(addresses)
        started = job.HasField("start_at") and bool(addresses)
        if not self.sessions and started and (state in _STARTED or state in TERMINAL_STATES):
            if self._told_waiting:
                self.info(f"job {self.job_id} has been allocated resources")
            if self.wishes.verbose:
                self.info(_nodes_line(job))
            self.attach(_placement(job, addresses))
        if not self.sessions:
            return self._never_ran(job, state) if state in TERMINAL_STATES else None
        self.state_is(state, job.exit, aborted=state in ABORTED)
        return None

    def _never_ran(self, job: "common_pb2.JobInfo", state: JobState) -> int:
        if state == JobState.CANCELLED:
            self.info(f"Job allocation {self.job_id} has been revoked")
        else:
            self.ctx.error(f"Unable to launch StepId={self.step}: {state.name}: {reason_of(job)}")
        return 1

    def other(self, kind: str, payload: Any) -> int | None:
        """The watch is lost before there was a step."""
        if kind != WATCH_LOST:
            return None
        self.ctx.error(f"Unable to confirm allocation for job {self.job_id}: {payload.text}")
        return 1

    def signalled_early(self, number: int) -> int | None:
        """Whoever ends srun ends the job that waits."""
        if number not in _ENDING:
            return None
        self._cancel()
        self.info(f"Job allocation {self.job_id} has been revoked")
        return 1


def _placement(job: "common_pb2.JobInfo", addresses: dict[str, str]) -> Placement:
    from spur_core.grammar.filepattern import PatternValues

    return Placement(
        (job.job_id, job.run_attempt, 0),
        [(held.node, held.ranks) for held in job.slices],
        addresses,
        job.num_tasks,
        PatternValues(job.job_id, None, None, 0, 0, "", 0, job.user, job.name, job.restarts),
    )


def _nodes_line(job: "common_pb2.JobInfo") -> str:
    from spur_cli.alloc.layout import runs

    cpus = runs([held.cpus for held in job.slices], always=True)
    return f"jobid {job.job_id}: nodes({len(job.slices)}):`{job.nodelist}', cpu counts: {cpus}"
