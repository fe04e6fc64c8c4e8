"""Submitting, cancelling, signalling, changing and requeueing jobs."""

import asyncio
import logging
import signal as signals
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from spur_auth.kinds import USER, Identity
from spur_auth.ownership import may_act_on
from spur_core.errors import AccessDenied, NoSuchJob, RequestError, SpurError
from spur_core.ids import RuntimeId
from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobState
from spur_ctld import submit
from spur_ctld.api import job_update, parse
from spur_ctld.api.jobs_read import named
from spur_ctld.dispatch.launch_spec import runtime_id
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.scheduling import trial
from spur_ctld.site import Site
from spur_ctld.state import ops
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.records import Job
from spur_proto import controller_pb2 as pb

log = logging.getLogger(__name__)

_LAST_SIGNAL = 64


class JobsWrite:
    """SubmitJob, CancelJob, UpdateJob, RequeueJob."""

    site: Site
    _in_background: Callable[[Coroutine[Any, Any, None]], None]

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Any) -> pb.SubmitJobResponse:
        site = self.site
        if not request.HasField("spec"):
            raise RequestError("spec: missing")
        record, admin = await site.caller()
        # Another user's request id must neither collide nor reveal an answer.
        request_id = f"{record.uid}:{request.request_id}" if request.request_id else ""
        now = site.clock()
        resolved = submit.resolve(
            request.spec,
            site.settings.submit,
            site.catalog.partitions(),
            site.ledger.state.nodes,
            submit.Submitter(record, admin),
            now,
            request_id,
        )
        trial.require_feasible(site, resolved.op)
        if request.test_only:
            return pb.SubmitJobResponse(
                warnings=resolved.warnings, test_result=trial.estimate(site, resolved.op, now)
            )
        if request.spec.immediate:
            trial.require_now(site, resolved.op, now)
        result = await site.ledger.commit(resolved.op)
        assert isinstance(result, ops.SubmitResult)
        log.info("job_submitted job=%d user=%s", result.job_id, record.name)
        return pb.SubmitJobResponse(job_id=result.job_id, warnings=resolved.warnings)

    async def CancelJob(self, request: pb.CancelJobRequest, context: Any) -> pb.CancelJobResponse:
        who = await self.site.who()
        signal = request.signal if request.HasField("signal") else None
        if signal is not None and not 0 < signal <= _LAST_SIGNAL:
            raise RequestError(f"signal: {signal} is not a signal number")
        ending = signal is None or (signal == signals.SIGKILL and not request.batch_only)
        whole = [t for t in request.targets if ending and not t.HasField("step_id")]
        answers = {id(t): a for t, a in zip(whole, await self._cancel(whole, who), strict=True)}
        response = pb.CancelJobResponse()
        for message in request.targets:
            if id(message) in answers:
                refusal = answers[id(message)]
                if refusal is None and signal is not None:
                    self._in_background(self._kill_now(message, who, signal))
            else:
                refusal = await self._signal_target(message, request, who, signal)
            response.results.append(_result(message, refusal))
        return response

    async def _cancel(self, messages: Sequence[pb.JobTarget], who: ops.Who) -> "list[ops.Refusal | None]":
        return await _apply_to(
            messages,
            lambda targets: self._targets(ops.Cancel(at=self.site.clock(), targets=targets, who=who)),
        )

    async def _targets(self, op: ops.AnyOp) -> "tuple[ops.Refusal | None, ...]":
        result = await self.site.ledger.commit(op)
        assert isinstance(result, ops.TargetsResult)
        return result.results

    async def _kill_now(self, message: pb.JobTarget, who: ops.Who, signal: int) -> None:
        """KILL was asked for: what the cancel's fence would end gently ends at once."""
        try:
            await self._signal_jobs(message, who, signal, full=True)
        except SpurError as error:
            log.debug("kill_left_to_fence job=%d why=%r", message.job_id, error.text)

    async def _signal_target(
        self, message: pb.JobTarget, request: pb.CancelJobRequest, who: ops.Who, signal: int | None
    ) -> "ops.Refusal | None":
        try:
            await self._signal_jobs(message, who, signal, full=request.full, batch_only=request.batch_only)
        except SpurError as error:
            return ops.Refusal(error.code, error.text)
        return None

    async def _signal_jobs(
        self,
        message: pb.JobTarget,
        who: ops.Who,
        signal: int | None,
        *,
        full: bool = False,
        batch_only: bool = False,
    ) -> None:
        """Deliver a signal to the processes of every active attempt that the target means.

        Without "batch only" or "full" a signal goes to the job's steps, not to the batch shell, as in Slurm.

        Raises:
            NoSuchJob, AccessDenied, RequestError: nothing was sent.
        """
        jobs = named(self.site.ledger.state, [parse.target(message)])
        if not jobs:
            raise NoSuchJob(message.job_id)
        step = message.step_id if message.HasField("step_id") else None
        for job in jobs:
            require_owner(job, who)
        if all(job.state in TERMINAL_STATES for job in jobs):
            raise Already("Job/step already completing or completed")
        work: list[Any] = []
        for job in jobs:
            main = runtime_id(job).step_id
            if job.state not in ACTIVE_STATES or job.state is JobState.CONFIGURING:
                continue
            if step is not None and step != main:
                raise RequestError("Invalid job id specified")
            if step is None and not (full or batch_only or job.request.srun):
                continue
            nodes = live_nodes(job)[:1] if batch_only else live_nodes(job)
            work.extend(self._signal_node(job, node, signal, main, batch_only) for node in nodes)
        failures = [e for e in await asyncio.gather(*work, return_exceptions=True) if e is not None]
        if failures:
            raise failures[0]

    async def _signal_node(
        self, job: Job, node: str, signal: int | None, step: int, batch_only: bool
    ) -> None:
        known = self.site.ledger.state.nodes.get(node)
        address = node_address(known) if known is not None else ""
        if signal is None:
            rid = RuntimeId(job.job_id, job.run_attempt, step)
            grace = self.site.ledger.state.settings.kill_wait
            await self.site.agents.end_step(address, rid, grace, "cancelled")
            return
        await self.site.agents.signal(
            address, job.job_id, job.run_attempt, signal, step_id=step, batch_only=batch_only
        )

    async def UpdateJob(self, request: pb.UpdateJobRequest, context: Any) -> pb.UpdateJobResponse:
        who = await self.site.who()
        now = self.site.clock()
        make = job_update.operation(request, self.site.catalog.partitions(), self.site.ledger.state, now, who)
        answers = await _apply_to(request.targets, lambda targets: self._targets(make(targets)))
        return pb.UpdateJobResponse(
            results=[_result(m, a) for m, a in zip(request.targets, answers, strict=True)]
        )

    async def RequeueJob(self, request: pb.RequeueJobRequest, context: Any) -> pb.RequeueJobResponse:
        who = await self.site.who()
        answers = await _apply_to(
            request.targets,
            lambda targets: self._targets(
                ops.Requeue(
                    at=self.site.clock(),
                    targets=targets,
                    who=who,
                    hold=request.hold,
                    incomplete_only=request.incomplete_only,
                )
            ),
        )
        return pb.RequeueJobResponse(
            results=[_result(m, a) for m, a in zip(request.targets, answers, strict=True)]
        )


class Already(RequestError):
    """The job is over, or on its way there."""

    code = "already_done"


def require_owner(job: Job, who: ops.Who) -> None:
    """The shared ownership rule, for a caller whose account the controller looked up.

    Raises:
        AccessDenied: neither owner nor administrator.
    """
    identity = Identity(USER, who.user, who.uid, verified=True)
    if not (who.admin or may_act_on(identity, job.request.uid, job.request.user)):
        raise AccessDenied


async def _apply_to(messages: Sequence[pb.JobTarget], act: Any) -> "list[ops.Refusal | None]":
    """Parse each target, act once on those that parsed, and answer for each in order."""
    answers: list[ops.Refusal | None] = [None] * len(messages)
    good: list[tuple[int, ops.Target]] = []
    for at, message in enumerate(messages):
        try:
            good.append((at, await parse.patient_target(message, at)))
        except SpurError as error:
            answers[at] = ops.Refusal(error.code, error.text)
    if good:
        results = await act(tuple(target for _, target in good))
        for (at, _), result in zip(good, results, strict=True):
            answers[at] = result
    return answers


def _result(message: pb.JobTarget, refusal: "ops.Refusal | None") -> pb.TargetResult:
    if refusal is None:
        return pb.TargetResult(target=message)
    return pb.TargetResult(target=message, code=refusal.code, text=refusal.text)
