"""Names and states of jobs as commands print and read them."""

from typing import TYPE_CHECKING

from spur_core.grammar.array import BITSTR_LEN, bracket
from spur_core.states import JOB_CODE, JobState

if TYPE_CHECKING:
    from spur_proto import common_pb2

UNLIMITED = 0xFFFFFFFF
#: Shown instead of the nodes when such a job has a reason.
REASONED = frozenset(
    {
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.OUT_OF_MEMORY,
        JobState.DEADLINE,
        JobState.CANCELLED,
        JobState.NODE_FAIL,
        JobState.BOOT_FAIL,
    }
)
_CODES = {int(state): code for state, code in JOB_CODE.items()}
_NAMES = {int(state): state.name for state in JobState}


def state_code(state: int) -> str:
    """`PD`, `R`, ..."""
    return _CODES.get(state, "?")


def state_name(state: int) -> str:
    """`PENDING`, `RUNNING`, ..."""
    return _NAMES.get(state, "UNKNOWN")


def bitstr_len(text: str | None) -> int:
    """How many characters of a task list are shown (`SLURM_BITSTR_LEN`); 0 = all."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else BITSTR_LEN


def pending_bracket(pending: str, length: int) -> str:
    """`[4-9%2]` of `4-9%2`."""
    indices, _, throttle = pending.partition("%")
    return bracket(indices, int(throttle) if throttle.isdigit() else 0, length)


def display_id(job: "common_pb2.JobInfo", length: int = BITSTR_LEN) -> str:
    """`12`, `12_3` or `12_[4-9%2]`."""
    if not job.HasField("array_job_id"):
        return str(job.job_id)
    if job.array_pending:
        return f"{job.array_job_id}_{pending_bracket(job.array_pending, length)}"
    if job.HasField("array_task_id"):
        return f"{job.array_job_id}_{job.array_task_id}"
    return str(job.job_id)


def reason_of(job: "common_pb2.JobInfo") -> str:
    """The free text when there is one, else the token; `None` for nothing."""
    return job.state_desc or job.reason or "None"


def nodes_or_reason(job: "common_pb2.JobInfo") -> str:
    """squeue's last column."""
    reason = reason_of(job)
    state = int(job.state)
    if state == JobState.PENDING or (state in REASONED and reason != "None"):
        return f"({reason})"
    return job.nodelist


def time_limit(job: "common_pb2.JobInfo") -> int | None:
    """Seconds, None for no limit.  Only meaningful when the field is set."""
    return None if job.time_limit_secs == UNLIMITED else job.time_limit_secs
