"""What the priorities of waiting jobs are made of, for `sprio`."""

import asyncio
from typing import Any, Final

from spur_core import reasons
from spur_ctld.api import parse
from spur_ctld.api.jobs_read import PAGE_BYTES, in_order
from spur_ctld.scheduling.priorities import partitions_of
from spur_ctld.site import Site
from spur_ctld.state.pending import too_early
from spur_ctld.state.records import Job
from spur_proto import controller_pb2 as pb
from spur_sched.priority.factors import Factors

#: A long answer lets others run after so many records.
_BREATHE_AFTER: Final = 200
_WAITS_FOR_JOBS: Final = frozenset({reasons.DEPENDENCY, reasons.DEPENDENCY_NEVER})


class PrioritiesRead:
    """GetPriorities."""

    site: Site

    async def GetPriorities(self, request: pb.GetPrioritiesRequest, context: Any) -> pb.GetPrioritiesResponse:
        site = self.site
        state, now = site.ledger.state, site.clock()
        priorities = site.priorities
        priorities.refresh()
        after = parse.page_token(request.page_token)
        ids, users = frozenset(request.job_ids), frozenset(request.users)
        names = frozenset(request.partitions)
        answer = pb.GetPrioritiesResponse(
            weights=_message(priorities.weights(state.settings.default_priority)),
            priority_type="multifactor" if priorities.rules.multifactor else "basic",
            server_time=now,
        )
        size = last = 0
        for number, job in enumerate(in_order(state.jobs[job_id] for job_id in state.pending)):
            if number % _BREATHE_AFTER == _BREATHE_AFTER - 1:
                await asyncio.sleep(0)
            if job.job_id <= after or state.jobs.get(job.job_id) is not job or not _competes(job, now):
                continue
            if ids and not ids & {job.job_id, job.array_job_id}:
                continue
            if users and not users & {job.request.user, str(job.request.uid)}:
                continue
            if not site.may_see(job) and site.settings.visibility == "owner_only":
                continue
            if size > PAGE_BYTES:
                answer.next_page_token = str(last)
                break
            for partition in partitions_of(job, state.partitions):
                if not names or partition in names:
                    row = self._priority(job, partition)
                    size += row.ByteSize()
                    answer.jobs.append(row)
            last = job.job_id
        return answer

    def _priority(self, job: Job, partition: str) -> pb.JobPriority:
        request = job.request
        found = self.site.priorities.explain(job, partition)
        return pb.JobPriority(
            job_id=job.job_id,
            array_job_id=job.array_job_id,
            user=request.user,
            uid=request.uid,
            account=request.account,
            qos=request.qos,
            partition=partition,
            priority=found.priority,
            nice=request.nice,
            site_factor=request.site_factor,
            normalized=_message(found.normalized),
            weighted=_message(found.weighted),
            set_by_hand=job.priority_given,
        )


def _competes(job: Job, now: float) -> bool:
    """Whether it is in the queue in earnest: not held, its time has come, and nobody else must end first."""
    return job.priority > 0 and job.reason not in _WAITS_FOR_JOBS and not too_early(job, now)


def _message(found: Factors) -> pb.PriorityFactors:
    return pb.PriorityFactors(
        age=found.age,
        assoc=found.assoc,
        fairshare=found.fairshare,
        job_size=found.job_size,
        partition=found.partition,
        qos=found.qos,
        tres=dict(found.tres),
    )
