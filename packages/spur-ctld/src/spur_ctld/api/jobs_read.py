"""Looking at jobs: listing with filters, and watching one."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import Any, Final

from spur_core.errors import NoSuchJob
from spur_core.grammar.array import IndexSet
from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobState
from spur_ctld.api import parse
from spur_ctld.api.job_rows import JobRows, framed
from spur_ctld.api.job_view import dependency_left, job_message, latest_end, redact
from spur_ctld.api.topology import preemptable_at
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.scheduling.explain import sentence
from spur_ctld.scheduling.outlook import Prospect, opening
from spur_ctld.scheduling.pace import Pace
from spur_ctld.site import Site
from spur_ctld.state import resv_gate
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.dependencies import lookup_for
from spur_ctld.state.ops import Target
from spur_ctld.state.records import Job
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

#: Records of one answer at most.
PAGE: Final = 20_000
#: Bytes after which an answer is full too: far below what a message may have, whatever jobs are called.
PAGE_BYTES: Final = 8 << 20
#: Watchers look again after this long even when they heard nothing.
_WATCH_AGAIN_SECS: Final = 60.0

#: A long listing looks at the clock after so many records, and lets others run when a slice is over.
_LOOK_AFTER: Final = 20

Keep = Callable[[Job], bool]


class JobsRead:
    """GetJobs and WatchJob."""

    site: Site
    rows: JobRows

    async def GetJobs(self, request: pb.GetJobsRequest, context: Any) -> Any:
        """The encoded GetJobsResponse: its rows are put together from remembered ones."""
        state = self.site.ledger.state
        now = self.site.clock()
        self.site.priorities.refresh()
        keep = filters(request)
        after = parse.page_token(request.page_token)
        most = min(request.page_size or PAGE, PAGE)
        wanted = [await parse.patient_target(message, at) for at, message in enumerate(request.jobs)]
        tail = pb.GetJobsResponse(server_time=now)
        rows: list[bytes] = []
        pace = Pace()
        size = last = 0
        for number, job in enumerate(named(state, wanted) if wanted else in_order(state.jobs.values())):
            if number % _LOOK_AFTER == _LOOK_AFTER - 1 and pace.over:
                await pace.rest()
            if job.job_id <= after or not keep(job):
                continue
            if len(rows) == most or size > PAGE_BYTES:
                tail.next_page_token = str(last)
                break
            row = self._row(job, now, detail=request.detail, script=request.script)
            if row:
                rows.append(row)
                size += len(row)
                last = job.job_id
        self.rows.forget(state.jobs)
        rows.append(tail.SerializeToString())
        return b"".join(rows)

    def _row(self, job: Job, now: float, *, detail: bool, script: bool) -> bytes:
        """One encoded entry; empty when the caller must not see the job."""
        if detail or script or job.request.dependency:
            message = self.shown(job, now, detail=detail)
            if message is not None and script and self.site.acts_for(job.request.user, job.request.uid):
                message.script = job.request.script
            return framed(message.SerializeToString()) if message is not None else b""
        visible = self.site.may_see(job)
        if not visible and self.site.settings.visibility == "owner_only":
            return b""
        return self.rows.row(
            job,
            now,
            redacted=not visible,
            preemptable_at=preemptable_at(self.site, job),
            prospect=self._prospect(job, now),
            end_at=self._reserved_end(job),
            priority=self.site.priorities.of(job),
        )

    async def WatchJob(self, request: pb.WatchJobRequest, context: Any) -> AsyncIterator[pb.WatchJobResponse]:
        seen: Job | None = None
        while True:
            self.site.check_here()
            job = self.site.ledger.state.jobs.get(request.job_id)
            if job is None:
                if seen is None:
                    raise NoSuchJob(request.job_id)
                return
            if job is not seen:
                message = self.shown(job, self.site.clock(), detail=True)
                if message is None:
                    raise NoSuchJob(request.job_id)
                seen = job
                yield pb.WatchJobResponse(job=message, nodes=self._addresses(job))
                if job.state in TERMINAL_STATES:
                    return
                continue
            await self.site.ledger.job_changed(request.job_id, _WATCH_AGAIN_SECS)

    def shown(self, job: Job, now: float, *, detail: bool) -> common_pb2.JobInfo | None:
        """The record as the present caller may see it; None when not at all."""
        visible = self.site.may_see(job)
        if not visible and self.site.settings.visibility == "owner_only":
            return None
        left = ""
        if job.request.dependency:
            left = dependency_left(job, lookup_for(self.site.ledger.state, job), now)
        priority = self.site.priorities.of(job)
        message = job_message(job, now, dependency_text=left, detail=detail, priority=priority)
        at = preemptable_at(self.site, job)
        if at is not None:
            message.preempt_eligible_at = at
        end = self._reserved_end(job)
        if end is not None:
            message.end_at = end
        prospect = self._prospect(job, now)
        if prospect is not None:
            message.start_at, message.sched_nodes = prospect
        if detail and job.state is JobState.PENDING and self.site.office is not None:
            text = self.site.outlook.texts.get(job.job_id, "")
            message.waits_for = sentence(job, text, prospect)
        if not visible:
            redact(message)
        return message

    def _prospect(self, job: Job, now: float) -> Prospect | None:
        """When a pending job is expected to start, if anybody knows."""
        if job.state is not JobState.PENDING or self.site.office is None:
            return None
        found = self.site.outlook.start_of(job.job_id)
        return opening(self.site.ledger.state, job, now) if found is None else found

    def _reserved_end(self, job: Job) -> float | None:
        """The end of a run that its reservation ends before its limit does."""
        if not job.reservation or job.end_at is not None or job.start_at is None:
            return None
        end = resv_gate.run_ends(self.site.ledger.state, job)
        if end is None or job.state not in ACTIVE_STATES:
            return None
        end += self.site.settings.resv_overrun_secs
        own = latest_end(job)
        return end if own is None else min(end, own)

    def _addresses(self, job: Job) -> list[pb.NodeAddress]:
        nodes = self.site.ledger.state.nodes
        return [
            pb.NodeAddress(
                node=part.node, address=node_address(nodes[part.node]) if part.node in nodes else ""
            )
            for part in job.slices
        ]


def in_order(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: job.job_id)


def named(state: ClusterState, targets: Collection[Target]) -> list[Job]:
    """The records that any of the targets means, by id."""
    found: dict[int, Job] = {}
    for target in targets:
        members = state.array_members(target.job_id)
        own = state.jobs.get(target.job_id)
        if target.tasks is None:
            # The raw id of a task that kept the array's id names the whole array, as in Slurm.
            for job in members or ([own] if own is not None else []):
                found[job.job_id] = job
            continue
        wanted = IndexSet(target.tasks)
        for job in members:
            pending = IndexSet(job.array_pending)
            if job.array_task_id in wanted or any(index in wanted for index in pending):
                found[job.job_id] = job
    return in_order(found.values())


def filters(request: pb.GetJobsRequest) -> Keep:
    """All filters of a request as one test; an empty filter holds for every job.

    Raises:
        RequestError: a state number that is none.
        GrammarError: a node filter that is no hostlist.
    """
    tests: list[Keep] = []
    states = parse.job_states(request.states)
    if states:
        tests.append(lambda job: job.state in states)
    for values, of in (
        (frozenset(request.users), _users),
        (frozenset(request.accounts), _accounts),
        (frozenset(request.names), _names),
        (frozenset(request.qos), _qos),
        (frozenset(request.partitions), _partitions),
        (parse.hosts(request.nodes), _nodes),
    ):
        if values:
            tests.append(_meets(values, of))
    return lambda job: all(test(job) for test in tests)


def _meets(values: frozenset[str], of: Callable[[Job], Iterable[str]]) -> Keep:
    return lambda job: any(value in values for value in of(job))


def _users(job: Job) -> Iterable[str]:
    return (job.request.user, str(job.request.uid))


def _accounts(job: Job) -> Iterable[str]:
    return (job.request.account,)


def _names(job: Job) -> Iterable[str]:
    return (job.request.name,)


def _qos(job: Job) -> Iterable[str]:
    return (job.request.qos,)


def _partitions(job: Job) -> Iterable[str]:
    return (job.partition,) if job.partition else job.request.partitions


def _nodes(job: Job) -> Iterable[str]:
    return (part.node for part in job.slices)
