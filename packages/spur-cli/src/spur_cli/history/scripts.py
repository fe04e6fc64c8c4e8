"""sacct -B: batch scripts, as far as the controller still has the jobs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed, is_no_such_job

if TYPE_CHECKING:
    from spur_cli.transport import Transport
    from spur_proto import accounting_pb2 as pb

NONE = b"NONE\n"


def texts(transport: "Transport", jobs: "Sequence[pb.JobHistory]") -> bytes:
    """`Batch Script for N`, a line of dashes and the script of each, `NONE` where there is none to be had.

    Raises:
        CallFailed: the controller cannot be asked.
    """
    parts = []
    for number in dict.fromkeys(job.job_id for job in jobs):
        parts.append(f"Batch Script for {number}\n{'-' * 80}\n".encode())
        found = _script(transport, number) or NONE
        parts.append(found if found.endswith(b"\n") else found + b"\n")
    return b"".join(parts)


def _script(transport: "Transport", number: int) -> bytes:
    from spur_proto import controller_pb2 as pb

    request = pb.GetJobsRequest(jobs=[pb.JobTarget(job_id=number)], script=True)
    try:
        found = transport.call("GetJobs", request, pb.GetJobsResponse).jobs
    except CallFailed as failure:
        if not is_no_such_job(failure):
            raise
        return b""
    return next((job.script for job in found if job.job_id == number), b"")
