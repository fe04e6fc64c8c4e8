"""GetStatistics: what the leader counted."""

import time
from typing import Any, Final

from spur_core.errors import AccessDenied
from spur_core.grammar.array import IndexSet
from spur_core.states import JobState
from spur_ctld.api.controllers import Controllers
from spur_ctld.scheduling.outlook import Figures
from spur_ctld.tally import Calls
from spur_proto import controller_pb2 as pb

_READINGS: Final = 1000


class Statistics(Controllers):
    """What sdiag shows."""

    async def GetStatistics(self, request: pb.GetStatisticsRequest, context: Any) -> pb.GetStatisticsResponse:
        site = self.site
        if request.reset and not (await site.who()).admin:
            raise AccessDenied
        found = site.tally
        state = site.ledger.state
        waiting = (state.jobs[job_id] for job_id in state.pending)
        active = (state.jobs[job_id] for job_id in state.active)
        answer = pb.GetStatisticsResponse(
            at=site.clock(),
            since=found.since,
            calls_open=found.open,
            agent_calls_open=site.agents.calling,
            accounting_queue=len(state.outbox) + len(state.step_outbox),
            jobs_submitted=found.submitted,
            jobs_started=found.started,
            jobs_completed=found.completed,
            jobs_canceled=found.canceled,
            jobs_failed=found.failed,
            jobs_pending=sum(len(IndexSet(job.array_pending)) if job.array_pending else 1 for job in waiting),
            jobs_running=sum(1 for job in active if job.state is JobState.RUNNING),
            clock_micros=_clock_micros(),
            scheduler=self._figures(),
            by_method=[_count(name, calls) for name, calls in found.methods.items()],
            by_user=[_count(name, calls) for name, calls in found.users.items()],
        )
        if request.reset:
            found.reset()
            site.outlook.figures = Figures(backfilled_ever=site.outlook.figures.backfilled_ever)
        return answer


def _count(name: str, calls: Calls) -> pb.CallCount:
    return pb.CallCount(
        name=name,
        uid=calls.uid,
        count=calls.count,
        total_secs=calls.total_secs,
        most_secs=calls.most_secs,
        last_secs=calls.last_secs,
    )


def _clock_micros() -> int:
    began = time.perf_counter()
    for _ in range(_READINGS):
        time.time()
    return round((time.perf_counter() - began) * 1e6)
