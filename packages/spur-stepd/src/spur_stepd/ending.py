"""The record of a step's end."""

from __future__ import annotations

import resource
import time

from spur_proto_lite import exits


def record(
    ends: tuple[exits.TaskExit, ...], oom: bool, teardown_reason: str, started_at: float
) -> exits.ExitRecord:
    """How the step has ended just now, with what all processes that were collected have used.

    Args:
        ends: of every task.
        oom: the kernel has killed some process for want of memory.
        teardown_reason: why the supervisor itself was ending the step, "" if it was not.
        started_at: wall clock.
    """
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return exits.combine(
        ends,
        oom=oom,
        teardown_reason=teardown_reason,
        started_at=started_at,
        ended_at=time.time(),
        user_secs=usage.ru_utime,
        system_secs=usage.ru_stime,
        max_rss_kb=usage.ru_maxrss,
    )
