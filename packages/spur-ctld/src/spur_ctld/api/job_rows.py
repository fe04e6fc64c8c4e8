"""Encoded rows of job listings, remembered per record.

A record never changes (a change replaces it), so its encoded row can be used until the record is replaced.
What moves with time, like the run time of a running job, is appended: in protobuf the last value of a field
counts.  A listing of ten thousand jobs then costs little more than copying them.
"""

import struct
from typing import Final

from spur_core.states import ACTIVE_STATES
from spur_ctld.api.job_view import job_message, redact, run_seconds
from spur_ctld.scheduling.outlook import Prospect
from spur_ctld.state.records import Job
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb


def varint(number: int) -> bytes:
    """Protobuf's encoding of a non-negative number."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_JOBS_TAG: Final = bytes([pb.GetJobsResponse.DESCRIPTOR.fields_by_name["jobs"].number << 3 | 2])
_PRIORITY_TAG: Final = varint(common_pb2.JobInfo.DESCRIPTOR.fields_by_name["priority"].number << 3)
_RUN_SECS_TAG: Final = varint(common_pb2.JobInfo.DESCRIPTOR.fields_by_name["run_secs"].number << 3 | 1)

_PREEMPTABLE_TAG: Final = varint(
    common_pb2.JobInfo.DESCRIPTOR.fields_by_name["preempt_eligible_at"].number << 3 | 1
)


_START_TAG: Final = varint(common_pb2.JobInfo.DESCRIPTOR.fields_by_name["start_at"].number << 3 | 1)
_END_TAG: Final = varint(common_pb2.JobInfo.DESCRIPTOR.fields_by_name["end_at"].number << 3 | 1)
_NODES_TAG: Final = varint(common_pb2.JobInfo.DESCRIPTOR.fields_by_name["sched_nodes"].number << 3 | 2)


class JobRows:
    """The rows of listings without detail, for jobs without a dependency."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, bool], tuple[Job, bytes]] = {}

    def row(
        self,
        job: Job,
        now: float,
        *,
        redacted: bool,
        preemptable_at: float | None = None,
        prospect: Prospect | None = None,
        end_at: float | None = None,
        priority: int | None = None,
    ) -> bytes:
        """`job` as one entry of `GetJobsResponse.jobs`, with its tag and length.

        Args:
            prospect: when and where it is expected to start.
            end_at: when it ends at the latest, if that is not what its record says.
            priority: what the record's base comes to now; None = the base.
        """
        key = (job.job_id, redacted)
        held = self._rows.get(key)
        if held is not None and held[0] is job:
            row = held[1]
        else:
            message = job_message(job, now)
            if redacted:
                redact(message)
            row = message.SerializeToString()
            self._rows[key] = (job, row)
        if job.state in ACTIVE_STATES:
            row += _RUN_SECS_TAG + struct.pack("<d", run_seconds(job, now))
            if preemptable_at is not None:
                row += _PREEMPTABLE_TAG + struct.pack("<d", preemptable_at)
        if end_at is not None:
            row += _END_TAG + struct.pack("<d", end_at)
        if prospect is not None:
            nodes = prospect.nodes.encode()
            row += _START_TAG + struct.pack("<d", prospect.at) + _NODES_TAG + varint(len(nodes)) + nodes
        if priority is not None and priority != job.priority:
            row += _PRIORITY_TAG + varint(priority)
        return framed(row)

    def forget(self, alive: "dict[int, Job]") -> None:
        """Drop rows of records that are gone, once they are many."""
        if len(self._rows) > 2 * len(alive) + 1000:
            self._rows = {key: held for key, held in self._rows.items() if alive.get(key[0]) is held[0]}


def framed(row: bytes) -> bytes:
    """An encoded JobInfo as an entry of the answer."""
    return _JOBS_TAG + varint(len(row)) + row
