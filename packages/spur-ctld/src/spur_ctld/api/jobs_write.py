"""Submitting, cancelling, signalling, changing and requeueing jobs."""

import asyncio
import logging
import signal as signals
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec

from spur_core.errors import AccessDenied, NoSuchJob, RequestError, SpurError
from spur_core.grammar.array import IndexSet
from spur_core.ids import RuntimeId
from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobState
from spur_ctld import submit
from spur_ctld.api import job_update, parse, update_trial
from spur_ctld.api.jobs_read import named
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.scheduling import trial
from spur_ctld.site import Site
from spur_ctld.state import ops, resv_gate, versions
from spur_ctld.state.apply_complete import step_of
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.cluster import deciding_nodes
from spur_ctld.state.records import Job
from spur_ctld.state.step_rows import waits_for
from spur_ctld.state.targets import may
from spur_proto import controller_pb2 as pb

log = logging.getLogger(__name__)

_LAST_SIGNAL = 64
#: Something to be done at a node, or recorded.
_Act = Callable[[], Coroutine[Any, Any, object]]
#: No signal, or one that nothing survives: a step is ended, not only signalled.
_ENDING = (None, signals.SIGKILL)


class JobsWrite:
    """SubmitJob, CancelJob, SuspendJob, ResumeJob, UpdateJob, RequeueJob."""

    site: Site
    _in_background: Callable[[Coroutine[Any, Any, None]], None]

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Any) -> pb.SubmitJobResponse:
        site = self.site
        if not request.HasField("spec"):
            raise RequestError("spec: missing")
        record, admin = await site.caller()
        # Another user's request id must neither collide nor reveal an answer.
        given = site.request_id(request.request_id)
        request_id = f"{record.uid}:{given}" if given else ""
        if isinstance(known := site.ledger.answered(request_id), ops.SubmitResult):
            # Not asked again whether it could start: it may hold what it would need.
            return pb.SubmitJobResponse(job_id=known.job_id)
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
        if site.ledger.state.command_version < versions.COMMAND_VERSION and resolved.op.priority_given:
            # Not every controller can keep that yet: then it is a base like any other.
            plain = msgspec.structs.replace(resolved.op, priority_given=False)
            resolved = resolved._replace(op=plain)
        if problem := resv_gate.obstacle(site.ledger.state, resolved.op.request):
            raise BadReservation(problem)
        trial.require_feasible(site, resolved.op)
        if request.test_only:
            return pb.SubmitJobResponse(
                warnings=resolved.warnings, test_result=trial.estimate(site, resolved.op, now)
            )
        if request.spec.immediate:
            trial.require_now(site, resolved.op, now)
        result = await site.ledger.commit(resolved.op)
        assert isinstance(result, ops.SubmitResult)
        site.tally.submitted += len(IndexSet(resolved.op.array)) or 1
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
            elif message.HasField("step_id"):
                refusal = await self._step_target(message, who, signal)
            else:
                assert signal is not None
                refusal = await self._signal_target(message, request, who, signal)
            response.results.append(_result(message, refusal))
        return response

    async def _cancel(self, messages: Sequence[pb.JobTarget], who: ops.Who) -> "list[ops.Refusal | None]":
        return await _apply_to(
            messages,
            lambda targets: self._targets(ops.Cancel(at=self.site.clock(), targets=targets, who=who), who),
        )

    async def _targets(self, op: ops.AnyOp, who: ops.Who) -> "tuple[ops.Refusal | None, ...]":
        result = await self.site.once(op, who)
        assert isinstance(result, ops.TargetsResult)
        return result.results

    async def _kill_now(self, message: pb.JobTarget, who: ops.Who, signal: int) -> None:
        """KILL was asked for: what the cancel's fence would end gently ends at once."""
        try:
            await self._signal_jobs(message, who, signal, full=True)
        except SpurError as error:
            log.debug("kill_left_to_fence job=%d why=%r", message.job_id, error.text)

    async def _step_target(
        self, message: pb.JobTarget, who: ops.Who, signal: int | None
    ) -> "ops.Refusal | None":
        """One step: to be ended, which is recorded first, or signalled."""
        try:
            await self._signal_step(message, who, signal)
        except SpurError as error:
            return ops.Refusal(error.code, error.text)
        return None

    async def _signal_step(self, message: pb.JobTarget, who: ops.Who, signal: int | None) -> None:
        work: list[_Act] = []
        for job in self._owned(message, who):
            if job.state not in ACTIVE_STATES or job.state is JobState.CONFIGURING:
                continue
            rid = RuntimeId(job.job_id, job.run_attempt, message.step_id)
            step = job.steps.get(rid.step_id)
            if step is not None and signal in _ENDING:
                work.append(partial(self._cancel_step, rid, who, hard=signal is not None))
            elif step is not None:
                work.extend(partial(self._signal_node, rid, node, signal) for node in waits_for(step))
            elif signal in _ENDING and self.site.ledger.answered(self.site.key_of(who, rid)) is not None:
                continue
            elif rid.step_id == step_of(job) and not job.request.alloc_only:
                nodes = set(deciding_nodes(job)) & set(live_nodes(job))
                work.extend(partial(self._signal_node, rid, node, signal) for node in sorted(nodes))
            else:
                known = rid.step_id < job.next_step_id
                raise Already("Job/step already completing or completed") if known else NoSuchJob(rid)
        await _all_of(work)

    async def _cancel_step(self, rid: RuntimeId, who: ops.Who, *, hard: bool) -> None:
        await self.site.once(
            ops.StepCancel(
                at=self.site.clock(),
                job_id=rid.job_id,
                attempt=rid.run_attempt,
                step_id=rid.step_id,
                who=who,
                hard=hard,
            ),
            who,
            rid,
        )

    async def _signal_target(
        self, message: pb.JobTarget, request: pb.CancelJobRequest, who: ops.Who, signal: int
    ) -> "ops.Refusal | None":
        try:
            await self._signal_jobs(message, who, signal, full=request.full, batch_only=request.batch_only)
        except SpurError as error:
            return ops.Refusal(error.code, error.text)
        return None

    def _owned(self, message: pb.JobTarget, who: ops.Who) -> list[Job]:
        """The records that the target means.

        Raises:
            NoSuchJob, AccessDenied, Already: there is none, or none that may be touched.
        """
        jobs = named(self.site.ledger.state, [parse.target(message)])
        if not jobs:
            raise NoSuchJob(message.job_id)
        if not all(may(who, job) for job in jobs):
            raise AccessDenied
        if all(job.state in TERMINAL_STATES for job in jobs):
            raise Already("Job/step already completing or completed")
        return jobs

    async def _signal_jobs(
        self,
        message: pb.JobTarget,
        who: ops.Who,
        signal: int,
        *,
        full: bool = False,
        batch_only: bool = False,
    ) -> None:
        """Deliver a signal to the processes of every active attempt that the target means.

        Without "batch only" or "full" a signal goes to the job's steps, not to the batch shell, as in Slurm.

        Raises:
            NoSuchJob, AccessDenied, RequestError: nothing was sent.
        """
        work: list[_Act] = []
        for job in self._owned(message, who):
            if job.state not in ACTIVE_STATES or job.state is JobState.CONFIGURING:
                continue
            rid = RuntimeId(job.job_id, job.run_attempt, step_of(job))
            if batch_only:
                if not job.request.alloc_only:
                    work.extend(
                        partial(self._signal_node, rid, node, signal, batch_only=True)
                        for node in live_nodes(job)[:1]
                    )
            elif full:
                work.extend(
                    partial(self._signal_node, rid, node, signal, full=True) for node in live_nodes(job)
                )
            else:
                busy = {node for step in job.steps.values() for node in waits_for(step)}
                nodes = [node for node in live_nodes(job) if job.request.srun or node in busy]
                work.extend(partial(self._signal_node, rid, node, signal, steps_only=True) for node in nodes)
        await _all_of(work)

    async def _signal_node(
        self,
        rid: RuntimeId,
        node: str,
        signal: int | None,
        *,
        batch_only: bool = False,
        steps_only: bool = False,
        full: bool = False,
    ) -> None:
        """Deliver to a step of exactly that attempt, or to those that a flag names; no signal = end it."""
        known = self.site.ledger.state.nodes.get(node)
        address = node_address(known) if known is not None else ""
        if signal is None:
            grace = self.site.ledger.state.settings.kill_wait
            await self.site.agents.end_step(address, rid, grace, "cancelled")
            return
        await self.site.agents.signal(
            address,
            rid.job_id,
            rid.run_attempt,
            signal,
            step_id=None if steps_only or full else rid.step_id,
            batch_only=batch_only,
            steps_only=steps_only,
        )

    async def SuspendJob(self, request: pb.SuspendJobRequest, context: Any) -> pb.SuspendJobResponse:
        answers = await self._suspend(request.targets, resume=False)
        return pb.SuspendJobResponse(results=answers)

    async def ResumeJob(self, request: pb.ResumeJobRequest, context: Any) -> pb.ResumeJobResponse:
        answers = await self._suspend(request.targets, resume=True)
        return pb.ResumeJobResponse(results=answers)

    async def _suspend(self, messages: Sequence[pb.JobTarget], *, resume: bool) -> list[pb.TargetResult]:
        who = await self.site.who()
        answers = await _apply_to(
            messages,
            lambda targets: self._targets(
                ops.Suspend(at=self.site.clock(), targets=targets, who=who, resume=resume), who
            ),
        )
        return [_result(message, answer) for message, answer in zip(messages, answers, strict=True)]

    async def UpdateJob(self, request: pb.UpdateJobRequest, context: Any) -> pb.UpdateJobResponse:
        who = await self.site.who()
        now = self.site.clock()
        partitions = self.site.catalog.partitions()
        if request.HasField("partition"):
            record, admin = await self.site.caller()
            wanted = submit.requested_partitions(request.partition, partitions)
            submit.allowed_to_move(wanted, submit.Submitter(record, admin))
        self._check_priority(request, who)
        most_wait = self.site.settings.submit.max_switch_wait
        make = job_update.operation(request, partitions, self.site.ledger.state, now, who, most_wait)

        async def act(targets: tuple[ops.Target, ...]) -> "tuple[ops.Refusal | None, ...]":
            op = make(targets)
            answers = update_trial.refusals(self.site, op)
            good = tuple(t for t, answer in zip(targets, answers, strict=True) if answer is None)
            if good:
                done = iter(await self._targets(msgspec.structs.replace(op, targets=good), who))
                answers = tuple(next(done) if answer is None else answer for answer in answers)
            return answers

        answers = await _apply_to(request.targets, act)
        return pb.UpdateJobResponse(
            results=[_result(m, a) for m, a in zip(request.targets, answers, strict=True)]
        )

    def _check_priority(self, request: pb.UpdateJobRequest, who: ops.Who) -> None:
        """Where priorities are made of factors an owner may only lower his, and nobody adds to a base.

        Raises:
            AccessDenied: it would be raised.
            RequestError: a site factor that nothing would look at.
        """
        priorities, state = self.site.priorities, self.site.ledger.state
        if not priorities.rules.multifactor:
            if request.site_factor:
                raise RequestError('site_factor: has an effect with priority_type = "multifactor" only')
            return
        if who.admin or not request.priority:
            return
        priorities.refresh()
        for message in request.targets:
            for job in named(state, [parse.target(message)]):
                if job.priority and priorities.of(job) < request.priority:
                    raise AccessDenied("Access/permission denied")

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
                ),
                who,
            ),
        )
        return pb.RequeueJobResponse(
            results=[_result(m, a) for m, a in zip(request.targets, answers, strict=True)]
        )


class BadReservation(RequestError):
    """A job names a reservation that is not there, or not for it."""

    code = "bad_reservation"


class Already(RequestError):
    """The job is over, or on its way there."""

    code = "already_done"


async def _all_of(work: Sequence[_Act]) -> None:
    """Do all of it side by side, then raise the first error."""
    failures = [
        e
        for e in await asyncio.gather(*(act() for act in work), return_exceptions=True)
        if isinstance(e, BaseException)
    ]
    if failures:
        raise failures[0]


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
