"""Making steps, and what the clients behind allocations say."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeVar

from spur_core.errors import AccessDenied, BusyError, NoSuchJob, RequestError
from spur_core.states import ACTIVE_STATES, JobState
from spur_ctld.api import step_request
from spur_ctld.api.agent_calls import exit_record, peer_host
from spur_ctld.api.caller import PEER
from spur_ctld.api.grpc_errors import Refused
from spur_ctld.api.step_view import past_message, step_message
from spur_ctld.site import Site
from spur_ctld.state import ops
from spur_ctld.state.apply_steps import interactive_ask, placement, why_not
from spur_ctld.state.records import Job, StepAsk
from spur_ctld.state.step_layout import BUSY
from spur_ctld.state.targets import ALREADY_DONE, DENIED, NO_SUCH_JOB, may
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

#: A call waits in line for so long at most.
MOST_WAIT_SECS: Final = 60.0
#: Lines of jobs that are over are forgotten once there are so many.
_MOST_LINES: Final = 1000
#: Who stands in line looks again after so long: the place before may have been given up.
_LOOK_SECS: Final = 1.0


_T = TypeVar("_T")


class StepLaunchFailed(RequestError):
    """The step could not be started on all its nodes; the sentence names the first that failed."""

    code = "launch_failed"


class _Call(NamedTuple):
    """One call of CreateJobStep.  `key`: of its stored answer, or empty; `ticket`: of its place in line."""

    request: pb.CreateJobStepRequest
    wanted: step_request.Wanted
    who: ops.Who
    key: str
    ticket: str

    @property
    def ask(self) -> StepAsk:
        """What is to be placed."""
        return interactive_ask(self.wanted.ask) if self.request.interactive else self.wanted.ask


class StepsWrite:
    """CreateJobStep, CompleteJob, JobKeepalive."""

    site: Site
    step_addresses: Callable[[common_pb2.StepInfo], list[pb.NodeAddress]]
    _background: "set[asyncio.Task[Any]]"
    _tickets = itertools.count(1)

    async def CreateJobStep(self, request: pb.CreateJobStepRequest, context: Any) -> pb.CreateJobStepResponse:
        who = await self.site.who()
        job = self.site.ledger.state.jobs.get(request.job_id)
        asked = None if job is None else job.request
        wanted = step_request.resolve(request, peer_host(PEER.get()), asked)
        # Another user's request id must neither collide nor reveal an answer.
        given = self.site.request_id(request.request_id)
        key = f"step:{who.uid}:{request.job_id}:{given}" if given else ""
        call = _Call(request, wanted, who, key, key or f"#{next(self._tickets)}")
        keeps = False
        lines = self.site.lines
        try:
            answer = await self._step(call)
            keeps = answer.busy
            return answer
        except (BusyError, asyncio.CancelledError):
            keeps = True
            raise
        finally:
            if keeps and key and not request.immediate:
                lines.step_out(request.job_id, call.ticket, self.site.monotonic())
            else:
                lines.leave(request.job_id, call.ticket)
            if len(lines) > _MOST_LINES:
                lines.forget(self.site.ledger.state.active)

    async def _step(self, call: "_Call") -> pb.CreateJobStepResponse:
        """The step, as soon as it runs; or that it has to wait longer than the caller does."""
        site, request = self.site, call.request
        ends = site.monotonic() + min(max(request.wait_secs, 0.0), MOST_WAIT_SECS)
        while True:
            self.site.check_here()
            made = self._answered(call.key)
            job = site.ledger.state.jobs.get(request.job_id)
            refusal = None
            if made is None:
                refusal = self._why_wait(job, call)
                if refusal is not None and refusal.code != BUSY.code:
                    raise Refused(refusal.code, refusal.text)
                if refusal is None and job is not None:
                    made = await self._create(call, job.run_attempt)
            if made is not None:
                answer = await self._launched(call, made)
                if answer is not None:
                    return answer
                continue
            left = ends - site.monotonic()
            configuring = job is not None and job.state is JobState.CONFIGURING
            if left <= 0 or (request.immediate and not configuring):
                return pb.CreateJobStepResponse(busy=True, text=BUSY.text)
            await site.ledger.job_changed(request.job_id, min(left, _LOOK_SECS))

    def _answered(self, key: str) -> ops.StepResult | None:
        """What an earlier call of the same request was given."""
        known = self.site.ledger.answered(key)
        assert known is None or isinstance(known, ops.StepResult)
        return known

    def _why_wait(self, job: Job | None, call: "_Call") -> ops.Refusal | None:
        """Why no step can be made for this caller now; None when it can.  Takes a place in line."""
        if job is None:
            return NO_SUCH_JOB
        if not may(call.who, job):
            return DENIED
        refusal = why_not(job)
        if refusal is not None:
            return refusal
        place = placement(job, call.ask)
        if call.ask.overlap:
            return place if isinstance(place, ops.Refusal) else None
        if isinstance(place, ops.Refusal) and place.code != BUSY.code:
            return place
        self.site.lines.join(job.job_id, call.ticket)
        if isinstance(place, ops.Refusal):
            return place
        return None if self.site.lines.first(job.job_id, call.ticket, self.site.monotonic()) else BUSY

    async def _create(self, call: "_Call", attempt: int) -> ops.StepResult | None:
        """The step, or None when another one was faster.  What is recorded is launched, whether or not the
        caller is still there."""
        request = call.request
        op = ops.StepCreate(
            at=self.site.clock(),
            job_id=request.job_id,
            attempt=attempt,
            who=call.who,
            ask=call.wanted.ask,
            request_id=call.key,
            name=call.wanted.name,
            interactive=request.interactive,
            pty=request.shape.pty,
            time_limit=call.wanted.time_limit,
            submit_host=request.submit_host,
            submit_line=request.submit_line,
        )

        async def record() -> ops.StepResult:
            result = await self.site.ledger.commit(op)
            assert isinstance(result, ops.StepResult)
            self._begin(call, result)
            return result

        try:
            made = await asyncio.shield(self._kept(record()))
        except Refused as error:
            if error.code == BUSY.code:
                return None
            raise
        self.site.lines.leave(request.job_id, call.ticket)
        return made

    def _kept(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """A task that outlives the call that began it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        # Its outcome is in the state; nobody may be left to hear of an error.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def _begin(self, call: "_Call", made: ops.StepResult) -> None:
        """Launch the step unless somebody does."""
        job = self.site.ledger.state.jobs.get(call.request.job_id)
        if job is not None and job.run_attempt == made.attempt and made.step_id in job.steps:
            self.site.steps.launch(job, job.steps[made.step_id], call.wanted.inputs)

    async def _launched(self, call: "_Call", made: ops.StepResult) -> pb.CreateJobStepResponse | None:
        """The answer once the step runs, or has run; None when it was taken back.

        Raises:
            StepLaunchFailed: it could not be started everywhere.
            Refused: its job is over.
        """
        job_id = call.request.job_id
        while True:
            self.site.check_here()
            job = self.site.ledger.state.jobs.get(job_id)
            if job is None or job.run_attempt != made.attempt:
                raise Refused(ALREADY_DONE.code, ALREADY_DONE.text)
            step = job.steps.get(made.step_id)
            if step is None:
                return self._over(call, job, made)
            if step.start_at is not None:
                info = step_message(job, step, self.site.clock())
                return pb.CreateJobStepResponse(step=info, nodes=self.step_addresses(info))
            if step.stop is not None:
                raise StepLaunchFailed(step.stop.text or ALREADY_DONE.text)
            # It may have been recorded for an earlier call that never heard of it.
            self._begin(call, made)
            await self.site.ledger.job_changed(job_id, _LOOK_SECS)

    def _over(self, call: "_Call", job: Job, made: ops.StepResult) -> pb.CreateJobStepResponse | None:
        """The answer for a step that is not there any more; None when it was taken back."""
        past = next((p for p in job.past_steps if p.row.step_id == made.step_id), None)
        if past is None:
            if job.state not in ACTIVE_STATES or self._answered(call.key) is not None:
                raise Refused(ALREADY_DONE.code, ALREADY_DONE.text)
            return None
        if past.stop is not None and past.stop.why == "launch":
            raise StepLaunchFailed(past.stop.text)
        info = past_message(job, past)
        # Its nodes keep what it printed until the client has it.
        return pb.CreateJobStepResponse(step=info, nodes=self.step_addresses(info))

    async def CompleteJob(self, request: pb.CompleteJobRequest, context: Any) -> pb.CompleteJobResponse:
        who = await self.site.who()
        op = ops.AllocComplete(
            at=self.site.clock(), job_id=request.job_id, who=who, exit=exit_record(request.exit)
        )
        await self.site.once(op, who)
        return pb.CompleteJobResponse()

    async def JobKeepalive(self, request: pb.JobKeepaliveRequest, context: Any) -> pb.JobKeepaliveResponse:
        site = self.site
        who = await site.who()
        job = site.ledger.state.jobs.get(request.job_id)
        if job is None:
            raise NoSuchJob(request.job_id)
        if not may(who, job):
            raise AccessDenied
        counts = job.request.srun or job.request.alloc_only
        if counts and job.state in ACTIVE_STATES and site.settings.inactive_limit_secs:
            site.clients.heard((job.job_id, job.run_attempt), site.monotonic())
            if not job.client_seen and job.fence is None:
                await site.ledger.commit(
                    ops.ClientSeen(at=site.clock(), job_id=job.job_id, attempt=job.run_attempt)
                )
        return pb.JobKeepaliveResponse()
