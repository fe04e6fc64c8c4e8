"""The SlurmAccounting service: history with the cluster's visibility rule."""

import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from spur_ctld.accounting import history
from spur_ctld.accounting.engine import AccountingUnavailable
from spur_ctld.accounting.writer import OutboxWriter
from spur_proto import accounting_pb2 as pb
from spur_proto import accounting_pb2_grpc

#: A reader waits this long at most for rows that were acknowledged before it asked.
CATCH_UP_SECS = 5.0


class HistoryService(accounting_pb2_grpc.SlurmAccountingServicer):
    """Answers `GetJobHistory`.

    Args:
        writer: owns the engine; the service waits for it to catch up before it reads.
        cluster: whose rows.
        may_see_all: given the user name of a row, whether the present caller sees it whole.
        visibility: `full`, `redacted` or `owner_only` (`[controller] job_info_visibility`).
    """

    def __init__(
        self,
        writer: OutboxWriter,
        cluster: str,
        may_see_all: Callable[[str], bool],
        visibility: Callable[[], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._writer = writer
        self._cluster = cluster
        self._may_see_all = may_see_all
        self._visibility = visibility
        self._clock = clock

    async def GetJobHistory(self, request: pb.GetJobHistoryRequest, context: Any) -> pb.GetJobHistoryResponse:
        if self._writer.running:
            await self._writer.flushed(CATCH_UP_SECS)
        try:
            response = await history.find(self._writer.engine, self._cluster, request)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            raise AccountingUnavailable(type(error).__name__) from error
        response.server_time = self._clock()
        hide(response, self._visibility(), self._may_see_all)
        return response


def hide(response: pb.GetJobHistoryResponse, visibility: str, may_see: Callable[[str], bool]) -> None:
    """Remove, or blank, what the caller may not see of other people's jobs."""
    if visibility == "full":
        return
    kept = []
    for job in response.jobs:
        if may_see(job.user):
            kept.append(job)
        elif visibility == "redacted":
            for name in ("work_dir", "submit_line", "comment", "stdout_path", "stderr_path", "stdin_path"):
                job.ClearField(name)
            for step in job.steps:
                step.ClearField("name")
            kept.append(job)
    if len(kept) != len(response.jobs):
        del response.jobs[:]
        response.jobs.extend(kept)
