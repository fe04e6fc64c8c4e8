"""`sbatch --wait`: until every part of the job has ended, then the worst exit code."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed, is_no_such_job
from spur_cli.context import Context
from spur_cli.transport import Transport
from spur_core.states import TERMINAL_STATES, JobState

if TYPE_CHECKING:
    from spur_proto import common_pb2

FIRST_PAUSE, LAST_PAUSE = 0.1, 2.0
#: Who waits so long may see controllers come and go.
LEARN_PAUSE = 0.4


def job_code(job: "common_pb2.JobInfo") -> int:
    """What one ended job adds: its exit code; a signal, a lost or a cancelled job counts 1."""
    if job.exit.signal:
        return 1
    if job.exit.code:
        return job.exit.code & 0xFF
    return 0 if int(job.state) == JobState.COMPLETED else 1


def worst(jobs: Iterable["common_pb2.JobInfo"]) -> int:
    """The highest code."""
    return max((job_code(job) for job in jobs), default=1)


def wait_for(ctx: Context, transport: Transport, job_id: int) -> int:
    """Block until the job, or every task of the array, has ended; the exit code to give."""
    from spur_proto import controller_pb2 as pb

    request = pb.GetJobsRequest(jobs=[pb.JobTarget(job_id=job_id)])
    codes: dict[tuple[int, int], int] = {}
    pause = FIRST_PAUSE
    while True:
        try:
            jobs = list(transport.call("GetJobs", request, pb.GetJobsResponse).jobs)
        except CallFailed as failure:
            if is_no_such_job(failure):
                return max(codes.values(), default=1)
            if not failure.busy:
                ctx.error(failure.text)
                return 1
            jobs = None
        if jobs is not None:
            for job in jobs:
                if int(job.state) in TERMINAL_STATES:
                    codes[job.job_id, job.array_task_id] = job_code(job)
            if not [job for job in jobs if int(job.state) not in TERMINAL_STATES]:
                return max(codes.values(), default=1)
            if pause >= LEARN_PAUSE:
                transport.learn()
        time.sleep(pause)
        pause = min(pause * 2, LAST_PAUSE)
