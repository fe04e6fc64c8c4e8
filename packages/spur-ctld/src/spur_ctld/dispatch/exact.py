"""Which run every call to an agent names, and that it names one.

| call                | identity                  |
|---------------------|---------------------------|
| LaunchJob           | job, attempt, step        |
| RunCommand          | job, attempt, step        |
| CancelJob           | job, attempt; with a step only that one |
| SuspendJob          | job, attempt; with a step only that one |
| ProbeStepd          | job, attempt, step        |
Attempt 0 means "not given" and is never sent: an agent must not guess which run was meant.  The streams
belong to the job's owner and are never called from here.
"""

from typing import Any, Final

from spur_core.errors import RequestError

#: Call -> where its identity is, and whether it must name a step.
IDENTITY: Final[dict[str, tuple[str, bool]]] = {
    "LaunchJob": ("spec", True),
    "RunCommand": ("spec", True),
    "CancelJob": ("rid", False),
    "SuspendJob": ("rid", False),
    "ProbeStepd": ("rid", True),
}


def require(name: str, rid: Any) -> None:
    """`rid`, the message, names a run as exactly as the call `name` needs.

    Raises:
        RequestError: it does not; nothing was sent.
    """
    _, needs_step = IDENTITY[name]
    if not rid.job_id or not rid.run_attempt or (needs_step and not rid.HasField("step_id")):
        what = "job, attempt and step" if needs_step else "job and attempt"
        raise RequestError(f"{name}: {what} must be given; nothing was sent")
