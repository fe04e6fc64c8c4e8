"""What the scheduler's last passes found, for whoever asks: expected starts, and figures of the passes.

Memory of the leader: the next pass makes it anew.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spur_core import reasons
from spur_core.grammar.hostlist import compress_sorted, natural_key
from spur_ctld.state import resv_gate
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import Job
from spur_ctld.timers import due
from spur_sched.api import Expected, Plan

_FOR_AN_INSTANT: Final = frozenset({reasons.BEGIN_TIME, reasons.LAUNCH_FAILURE, reasons.RESERVATION})


class Prospect(NamedTuple):
    """When and where a job will start, as far as is known; `at` inf = when work without a limit ends.
    Where "" = nobody knows."""

    at: float
    nodes: str


def opening(state: ClusterState, job: Job, now: float) -> Prospect | None:
    """The first start that a begin time, or the beginning of its reservation, lets a waiting job have."""
    if job.reason not in _FOR_AN_INSTANT:
        return None
    instants = [due.eligible_by_time(job), resv_gate.opens_at(state, job.request, now)]
    if job.reason == reasons.RESERVATION and instants[1] is None:
        return None
    found = max((at for at in instants if at is not None), default=now)
    return Prospect(found, "") if found > now else None


def _ahead(plan: Plan, order: Sequence[int]) -> int:
    """How many runs were placed before a job that ranks higher and waits."""
    if not plan.placements or not plan.waiting:
        return 0
    waiting = {one.job_id for one in plan.waiting} - {one.job_id for one in plan.placements}
    first = next((at for at, job_id in enumerate(order) if job_id in waiting), len(order))
    behind = set(order[first:])
    return sum(1 for one in plan.placements if one.job_id in behind)


@dataclass
class Figures:
    """Of passes since the controller leads."""

    cycles: int = 0
    last_secs: float = 0.0
    most_secs: float = 0.0
    total_secs: float = 0.0
    last_at: float = 0.0
    last_depth: int = 0
    total_depth: int = 0
    queue: int = 0
    #: Of passes that looked for room at a later time.
    backfill_cycles: int = 0
    backfill_last_secs: float = 0.0
    backfill_most_secs: float = 0.0
    backfill_total_secs: float = 0.0
    backfill_last_at: float = 0.0
    backfill_last_depth: int = 0
    backfill_total_depth: int = 0
    #: Runs that passes placed.
    started: int = 0
    #: When the first pass was.
    first_at: float = 0.0
    #: Runs that passes placed although one that ranks higher went on waiting.
    backfilled: int = 0
    #: The same, whatever was reset.
    backfilled_ever: int = 0
    #: Passes that got to the end of the queue.
    whole: int = 0
    total_queue: int = 0
    #: Starts that passes planned for later.
    last_planned: int = 0
    total_planned: int = 0


@dataclass
class Outlook:
    """Filled by the scheduling loop."""

    expected: dict[int, Expected] = field(default_factory=dict)
    #: Those that somebody asked for, with their nodes in a word.
    prospects: dict[int, Prospect] = field(default_factory=dict)
    #: Sentences that say more than a reason does.
    texts: dict[int, str] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)

    def learn(self, plan: Plan, looked_at: Iterable[int], *, whole: bool) -> None:
        """Take in a plan.

        Args:
            looked_at: the jobs that it speaks of.
            whole: they are the whole queue, so nothing older holds.
        """
        self.prospects.clear()
        if whole:
            self.expected.clear()
            self.texts.clear()
        else:
            for job_id in looked_at:
                self.expected.pop(job_id, None)
                self.texts.pop(job_id, None)
        self.expected.update((one.job_id, one) for one in plan.expected)
        for item in plan.waiting:
            if item.text:
                self.texts[item.job_id] = item.text

    def start_of(self, job_id: int) -> Prospect | None:
        """A start that has an instant."""
        found = self.prospects.get(job_id)
        if found is None:
            one = self.expected.get(job_id)
            if one is None or one.at == math.inf:
                return None
            nodes = compress_sorted(sorted(one.nodes, key=natural_key))
            found = self.prospects[job_id] = Prospect(one.at, nodes)
        return found

    def count(self, plan: Plan, order: Sequence[int], queue: int, secs: float, now: float) -> None:
        """One pass took so long.

        Args:
            order: the jobs that it could look at, best first.
        """
        figures = self.figures
        figures.cycles += 1
        figures.first_at = figures.first_at or now
        figures.last_secs = secs
        figures.most_secs = max(figures.most_secs, secs)
        figures.total_secs += secs
        figures.last_at = now
        figures.last_depth = plan.depth
        figures.total_depth += plan.depth
        figures.queue = queue
        figures.total_queue += queue
        figures.whole += plan.complete
        figures.last_planned = len(plan.expected)
        figures.total_planned += len(plan.expected)
        figures.started += len(plan.placements)
        ahead = _ahead(plan, order)
        figures.backfilled += ahead
        figures.backfilled_ever += ahead
        if plan.backfill_depth:
            figures.backfill_cycles += 1
            figures.backfill_last_secs = secs
            figures.backfill_most_secs = max(figures.backfill_most_secs, secs)
            figures.backfill_total_secs += secs
            figures.backfill_last_at = now
            figures.backfill_last_depth = plan.backfill_depth
            figures.backfill_total_depth += plan.backfill_depth
