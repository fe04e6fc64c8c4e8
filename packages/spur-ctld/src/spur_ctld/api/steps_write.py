"""Making steps, and what the clients behind allocations say."""

import itertools
import logging
from collections.abc import Callable
from typing import Any, Final

from spur_core.errors import AccessDenied, NoSuchJob, RequestError
from spur_core.states import ACTIVE_STATES, JobState
from spur_ctld.api import step_request
from spur_ctld.api.agent_calls import exit_record, peer_host
from spur_ctld.api.grpc_errors import Refused
from spur_ctld.api.jobs_read import Stopping
from spur_ctld.api.step_view import step_message
from spur_ctld.api.steps_read import step_info
from spur_ctld.client_memory import StepLines
from spur_ctld.site import Site
from spur_ctld.state import codec, ops
from spur_ctld.state.apply_steps import interactive_ask, placement, why_not
from spur_ctld.state.records import Job
from spur_ctld.state.step_layout import BUSY
from spur_ctld.state.targets import ALREADY_DONE, may
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

log = logging.getLogger(__name__)

#: A call waits in line for so long at most.
MOST_WAIT_SECS: Final = 60.0
#: Who stands in line looks again after so long: the place before may have been given up.
_LOOK_SECS: Final = 1.0


class StepLaunchFailed(RequestError):
    """The step could not be started on all its nodes; the sentence names the first that failed."""

    code = "launch_failed"


class StepsWrite:
    """CreateJobStep, CompleteJob, JobKeepalive."""

    site: Site
    lines: StepLines
    stopping: bool
    step_addresses: Callable[[common_pb2.StepInfo], list[pb.NodeAddress]]
    _tickets = itertools.count(1)

    async def CreateJobStep(self, request: pb.CreateJobStepRequest, context: Any) -> pb.CreateJobStepResponse:
        site = self.site
        who = await site.who()
        wanted = step_request.resolve(request, peer_host(context.peer()))
        job_id = request.job_id
        # Another user's request id must neither collide nor reveal an answer.
        key = f"step:{who.uid}:{job_id}:{request.request_id}" if request.request_id else ""
        ticket = key or f"#{next(self._tickets)}"
        ends = site.monotonic() + min(max(request.wait_secs, 0.0), MOST_WAIT_SECS)
        ask = interactive_ask(wanted.ask) if request.interactive else wanted.ask
        kept = bool(key)
        try:
            while True:
                if self.stopping:
                    raise Stopping("the controller is stopping; ask again")
                answer = site.ledger.state.answers.get(key) if key else None
                if answer is not None:
                    known = codec.decode_result(answer.result)
                    assert isinstance(known, ops.StepResult)
                    made = await self._launched(job_id, known)
                    if made is not None:
                        kept = False
                        return made
                    continue
                job = site.ledger.state.jobs.get(job_id)
                refusal = self._why_wait(job, who, ask, ticket)
                if refusal is None and job is not None:
                    op = ops.StepCreate(
                        at=site.clock(),
                        job_id=job_id,
                        attempt=job.run_attempt,
                        who=who,
                        ask=wanted.ask,
                        request_id=key,
                        name=wanted.name,
                        interactive=request.interactive,
                        pty=request.shape.pty,
                        time_limit=wanted.time_limit,
                        submit_host=request.submit_host,
                        submit_line=request.submit_line,
                    )
                    result = await self._create(op)
                    if result is not None:
                        self.lines.leave(job_id, ticket)
                        self._begin(job_id, result, wanted)
                        made = await self._launched(job_id, result)
                        kept = False
                        if made is None:
                            raise StepLaunchFailed("the step was taken back; ask again")
                        return made
                if refusal is not None and refusal.code != BUSY.code:
                    kept = False
                    raise Refused(refusal.code, refusal.text)
                left = ends - site.monotonic()
                configuring = job is not None and job.state is JobState.CONFIGURING
                if left <= 0 or (request.immediate and not configuring):
                    return pb.CreateJobStepResponse(busy=True, text=BUSY.text)
                await site.ledger.job_changed(job_id, min(left, _LOOK_SECS))
        finally:
            if kept and not request.immediate:
                self.lines.step_out(job_id, ticket, site.monotonic())
            else:
                self.lines.leave(job_id, ticket)

    def _why_wait(self, job: Job | None, who: ops.Who, ask: Any, ticket: str) -> ops.Refusal | None:
        """Why no step can be made for this caller now; None when it can.  Takes a place in line."""
        if job is None:
            return ops.Refusal(NoSuchJob.code, str(NoSuchJob()))
        if not may(who, job):
            return ops.Refusal(AccessDenied.code, str(AccessDenied()))
        refusal = why_not(job)
        if refusal is not None:
            return refusal
        place = placement(job, ask)
        if ask.overlap:
            return place if isinstance(place, ops.Refusal) else None
        if isinstance(place, ops.Refusal) and place.code != BUSY.code:
            return place
        self.lines.join(job.job_id, ticket)
        if isinstance(place, ops.Refusal):
            return place
        return None if self.lines.first(job.job_id, ticket, self.site.monotonic()) else BUSY

    async def _create(self, op: ops.StepCreate) -> ops.StepResult | None:
        """The step, or None when another one was faster."""
        try:
            result = await self.site.ledger.commit(op)
        except Refused as error:
            if error.code == BUSY.code:
                return None
            raise
        assert isinstance(result, ops.StepResult)
        return result

    def _begin(self, job_id: int, result: ops.StepResult, wanted: step_request.Wanted) -> None:
        job = self.site.ledger.state.jobs.get(job_id)
        if job is None or job.run_attempt != result.attempt or result.step_id not in job.steps:
            return
        step = job.steps[result.step_id]
        log.info(
            "step_created step=%d.%d nodes=%d tasks=%d",
            job_id,
            step.step_id,
            len(step.slices),
            step.num_tasks,
        )
        self.site.steps.launch(job, step, wanted.inputs)

    async def _launched(self, job_id: int, made: ops.StepResult) -> pb.CreateJobStepResponse | None:
        """The answer once the step runs, or has run; None when it was taken back.

        Raises:
            StepLaunchFailed: it could not be started everywhere.
            Refused: its job is over.
        """
        while True:
            if self.stopping:
                raise Stopping("the controller is stopping; ask again")
            job = self.site.ledger.state.jobs.get(job_id)
            if job is None or job.run_attempt != made.attempt:
                raise Refused(ALREADY_DONE.code, ALREADY_DONE.text)
            step = job.steps.get(made.step_id)
            if step is not None and step.stop is not None and step.start_at is None:
                raise StepLaunchFailed(step.stop.text or ALREADY_DONE.text)
            if step is not None and step.start_at is not None:
                info = step_message(job, step, self.site.clock())
                return pb.CreateJobStepResponse(step=info, nodes=self.step_addresses(info))
            if step is None:
                past = next((p for p in job.past_steps if p.row.step_id == made.step_id), None)
                if past is None:
                    if job.state not in ACTIVE_STATES:
                        raise Refused(ALREADY_DONE.code, ALREADY_DONE.text)
                    return None
                if past.stop is not None and past.stop.why == "launch":
                    raise StepLaunchFailed(past.stop.text)
                past_info, _ = step_info(job, made.step_id, self.site.clock())
                assert past_info is not None
                # Its nodes keep what it printed until the client has it.
                return pb.CreateJobStepResponse(step=past_info, nodes=self.step_addresses(past_info))
            await self.site.ledger.job_changed(job_id, _LOOK_SECS)

    async def CompleteJob(self, request: pb.CompleteJobRequest, context: Any) -> pb.CompleteJobResponse:
        who = await self.site.who()
        await self.site.ledger.commit(
            ops.AllocComplete(
                at=self.site.clock(), job_id=request.job_id, who=who, exit=exit_record(request.exit)
            )
        )
        return pb.CompleteJobResponse()

    async def JobKeepalive(self, request: pb.JobKeepaliveRequest, context: Any) -> pb.JobKeepaliveResponse:
        site = self.site
        who = await site.who()
        job = site.ledger.state.jobs.get(request.job_id)
        if job is None:
            raise NoSuchJob(request.job_id)
        if not may(who, job):
            raise AccessDenied
        if job.state in ACTIVE_STATES and (job.request.srun or job.request.alloc_only):
            site.clients.heard((job.job_id, job.run_attempt), site.monotonic())
            if not job.client_seen and job.fence is None:
                await site.ledger.commit(
                    ops.ClientSeen(at=site.clock(), job_id=job.job_id, attempt=job.run_attempt)
                )
        return pb.JobKeepaliveResponse()
