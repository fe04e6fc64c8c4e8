"""Looking at steps: listing, and watching one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from spur_core.errors import NoSuchJob
from spur_core.states import TERMINAL_STATES, JobState
from spur_ctld.api import parse, step_view
from spur_ctld.api.jobs_read import in_order, named
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.site import Site
from spur_ctld.state.apply_complete import step_of
from spur_ctld.state.records import Job
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

#: Watchers look again after this long even when they heard nothing.
_WATCH_AGAIN_SECS: Final = 60.0
_BREATHE_AFTER: Final = 500
#: States in which a job's steps are listed.
_LISTED: Final = frozenset({JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING})


class StepsRead:
    """GetJobSteps and WatchStep."""

    site: Site

    async def GetJobSteps(self, request: pb.GetJobStepsRequest, context: Any) -> pb.GetJobStepsResponse:
        state, now = self.site.ledger.state, self.site.clock()
        response = pb.GetJobStepsResponse(server_time=now)
        users, partitions = frozenset(request.users), frozenset(request.partitions)
        nodes = parse.hosts(request.nodes)
        only: dict[int, set[int] | None] = {}
        for at, message in enumerate(request.jobs):
            target = await parse.patient_target(message, at)
            for job in named(state, [target]):
                if not message.HasField("step_id"):
                    only[job.job_id] = None
                elif (wanted := only.setdefault(job.job_id, set())) is not None:
                    wanted.add(message.step_id)
        ids = only if request.jobs else state.active
        jobs = in_order(state.jobs[job_id] for job_id in ids)
        for number, job in enumerate(jobs):
            if number % _BREATHE_AFTER == _BREATHE_AFTER - 1:
                await asyncio.sleep(0)
            if job.state not in _LISTED or job.start_at is None:
                continue
            if users and not users & {job.request.user, str(job.request.uid)}:
                continue
            if partitions and job.partition not in partitions:
                continue
            for info in self._visible(job, now):
                steps = only.get(job.job_id)
                if steps is not None and info[0].rid.step_id not in steps:
                    continue
                if nodes and not nodes & info[1]:
                    continue
                response.steps.append(info[0])
        return response

    def _visible(self, job: Job, now: float) -> Iterator[tuple[common_pb2.StepInfo, frozenset[str]]]:
        """The job's steps as the caller may see them, with their nodes."""
        visible = self.site.may_see(job)
        if not visible and self.site.settings.visibility == "owner_only":
            return
        messages = [step_view.step_message(job, step, now) for _, step in sorted(job.steps.items())]
        messages.append(step_view.main_message(job, now))
        for message in sorted(messages, key=lambda one: one.rid.step_id):
            nodes = frozenset(part.node for part in message.slices)
            if not visible:
                step_view.redact(message)
            yield message, nodes

    async def WatchStep(
        self, request: pb.WatchStepRequest, context: Any
    ) -> AsyncIterator[pb.WatchStepResponse]:
        rid = request.rid
        if not rid.HasField("step_id"):
            raise NoSuchJob(rid.job_id)
        attempt = rid.run_attempt
        sent: common_pb2.StepInfo | None = None
        while True:
            self.site.check_here()
            job = self.site.ledger.state.jobs.get(rid.job_id)
            attempt = attempt or (job.run_attempt if job is not None else 0)
            found = self._one(job, attempt, rid.step_id) if job is not None else None
            if job is None or found is None:
                if sent is None:
                    raise NoSuchJob(rid.job_id)
                return
            message, over = found
            # Only what changes by itself may differ.
            message.ClearField("run_secs")
            if sent is None or message != sent:
                sent = common_pb2.StepInfo()
                sent.CopyFrom(message)
                yield pb.WatchStepResponse(step=message, nodes=self.step_addresses(message))
            if over:
                return
            await self.site.ledger.job_changed(rid.job_id, _WATCH_AGAIN_SECS)

    def _one(self, job: Job, attempt: int, step_id: int) -> tuple[common_pb2.StepInfo, bool] | None:
        """(the step as the caller may see it, whether it is over); None when there is none to be seen."""
        if job.run_attempt != attempt or job.dispatch_at is None:
            return None
        visible = self.site.may_see(job)
        if not visible and self.site.settings.visibility == "owner_only":
            return None
        message, over = step_info(job, step_id, self.site.clock())
        if message is not None and not visible:
            step_view.redact(message)
        return None if message is None else (message, over)

    def step_addresses(self, message: common_pb2.StepInfo) -> list[pb.NodeAddress]:
        """Where the agents of the step's nodes can be reached, in its node order."""
        known = self.site.ledger.state.nodes
        return [
            pb.NodeAddress(
                node=part.node, address=node_address(known[part.node]) if part.node in known else ""
            )
            for part in message.slices
        ]


def step_info(job: Job, step_id: int, now: float) -> tuple[common_pb2.StepInfo | None, bool]:
    """(a step of the job's present attempt, whether it is over); None when it has none of that id."""
    step = job.steps.get(step_id)
    if step is not None:
        return step_view.step_message(job, step, now), False
    for past in job.past_steps:
        if past.row.step_id == step_id:
            return step_view.past_message(job, past), True
    if step_id == step_of(job) and job.dispatch_at is not None:
        return step_view.main_message(job, now), job.state in TERMINAL_STATES
    return None, True
