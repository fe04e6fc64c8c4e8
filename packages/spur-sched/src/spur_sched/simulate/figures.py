"""What a replay amounts to: waiting, slowdown, utilisation.  Pure."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from spur_sched.simulate.replay import Start


class Figures(NamedTuple):
    """Of one policy; seconds, except the slowdowns and `utilisation`, which are ratios.

    `slowdown_*`: bounded slowdown, max(1, (wait + run) / max(run, bound)).
    `utilisation`: CPU seconds held, over the CPUs of the cluster times `makespan`.
    `makespan`: from the first submission to the last end.
    `overtakes`: jobs that started while one submitted before them was still waiting.
    """

    jobs: int
    wait_mean: float
    wait_median: float
    wait_p95: float
    wait_max: float
    slowdown_mean: float
    slowdown_median: float
    slowdown_p95: float
    utilisation: float
    makespan: float
    overtakes: int


def figures(starts: Sequence[Start], cpus: int, bound: float) -> Figures:
    """The figures of a replay.

    Args:
        cpus: of the whole cluster.
        bound: run times below this many seconds count as this many in slowdowns.
    """
    if not starts:
        return Figures(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    waits = [start.start - start.job.submit_at for start in starts]
    slowed = [
        slowdown(wait, start.end - start.start, bound) for wait, start in zip(waits, starts, strict=True)
    ]
    makespan = max(start.end for start in starts) - min(start.job.submit_at for start in starts)
    work = math.fsum(start.cpus * (start.end - start.start) for start in starts)
    return Figures(
        jobs=len(starts),
        wait_mean=math.fsum(waits) / len(waits),
        wait_median=statistics.median(waits),
        wait_p95=nearest_rank(waits, 0.95),
        wait_max=max(waits),
        slowdown_mean=math.fsum(slowed) / len(slowed),
        slowdown_median=statistics.median(slowed),
        slowdown_p95=nearest_rank(slowed, 0.95),
        utilisation=work / (cpus * makespan) if makespan > 0 and cpus else 0.0,
        makespan=makespan,
        overtakes=_overtakes(starts),
    )


def slowdown(wait: float, run: float, bound: float) -> float:
    """Bounded slowdown of one job."""
    return max(1.0, (wait + run) / max(run, bound)) if max(run, bound) > 0 else 1.0


def nearest_rank(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that at least `share` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _overtakes(starts: Sequence[Start]) -> int:
    """From the last start to the first: who started before somebody that came earlier."""
    found = 0
    earliest = math.inf
    at = len(starts)
    while at > 0:
        # Those that started at one instant overtook nobody among themselves.
        since = at
        while since > 0 and starts[since - 1].start == starts[at - 1].start:
            since -= 1
        group = [start.job.submit_at for start in starts[since:at]]
        found += sum(submit > earliest for submit in group)
        earliest = min(earliest, *group)
        at = since
    return found
