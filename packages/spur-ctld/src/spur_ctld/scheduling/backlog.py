"""The queue from pass to pass: only jobs whose record or priority changed are looked at again.

Records are immutable, so whether a job changed is whether its record is another one; no event is needed for
that.  Jobs that wait for other jobs, for a reservation or for room in their array are looked at every time.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from spur_ctld.ledger import Ledger
from spur_ctld.scheduling.priorities import Priorities
from spur_ctld.state import dependencies
from spur_ctld.state.pending import Doors, Look, Memo, Place, Queue, doors, look
from spur_ctld.state.records import Job, Partition
from spur_sched.api import JobView

#: So many jobs are looked at between two chances for others to run; a look takes some 10 microseconds.
_BATCH: Final = 100
#: With more changes than this the queue is sorted anew, which is cheap for one that is nearly sorted.
_FEW: Final = 32
#: While others run more may change; what is left after so many rounds is looked at without them.
_MOST_ROUNDS: Final = 3


class Backlog:
    """What `pending_views` finds, kept.

    Attributes:
        order: places of all eligible jobs, sorted.
        places: the same by job.
    """

    def __init__(self, ledger: Ledger, priorities: Priorities) -> None:
        self._ledger = ledger
        self._priorities = priorities
        self._memo: Memo = {}
        #: Job -> the record that the last look saw.
        self._seen: dict[int, Job] = {}
        #: All jobs that were looked at.
        self._known: set[int] = set()
        #: Jobs that are looked at in every pass.
        self._restless: set[int] = set()
        #: (instant, job) at which another look is due.
        self._turns: list[tuple[float, int]] = []
        self.places: dict[int, Place] = {}
        self.order: list[Place] = []
        #: In that order.
        self._views: list[JobView] = []
        #: What has to be put into the order still, and places that are void.
        self._new: dict[int, tuple[Place, JobView]] = {}
        self._void: dict[int, Place] = {}
        self._gated: dict[int, str] = {}
        self._never: set[int] = set()
        self._for_starts: set[int] = set()
        #: What changed at one index of the log, that nobody has looked at yet.
        self._left: tuple[int, list[int]] = (-1, [])
        self._version = -1
        self._partitions: list[Partition] = []
        self._doors = Doors({}, frozenset())

    def asks_otherwise(self, job: Job) -> bool:
        """Whether the job asks for something else than it did at the last look."""
        known = self._memo.get(job.job_id)
        return known is not None and known[0] is not job.request

    def catch_up(self, now: float) -> Iterator[None]:
        """Look at what may have changed; others may run whenever this yields."""
        for job_id in self._restless:
            self._seen.pop(job_id, None)
        self._restless.clear()
        while self._turns and self._turns[0][0] <= now:
            self._seen.pop(heapq.heappop(self._turns)[1], None)
        for _ in range(_MOST_ROUNDS):
            changed = self._changed()
            if len(changed) <= _BATCH:
                self._left = (self._ledger.state.applied, changed)
                return
            for done, job_id in enumerate(changed):
                if done % _BATCH == 0:
                    yield
                state = self._ledger.state
                if job_id in state.pending:
                    self._look(state.jobs[job_id], now)

    def queue(self, now: float) -> Queue:
        """The whole queue, with what changed since `catch_up`."""
        state = self._ledger.state
        at, changed = self._left
        if at != state.applied or self._version != self._priorities.version:
            changed = self._changed()
        self._left = (-1, [])
        for job_id in changed:
            self._look(state.jobs[job_id], now)
        if len(self._known) != len(state.pending):
            for job_id in self._known - state.pending:
                self._drop(job_id)
        self._sort()
        gated = [(job_id, reason, "") for job_id, reason in self._gated.items()]
        return Queue(list(self._views), gated, sorted(self._never), bool(self._for_starts))

    def _changed(self) -> list[int]:
        state = self._ledger.state
        partitions = list(state.partitions.values())
        others = len(partitions) != len(self._partitions) or any(
            one is not other for one, other in zip(partitions, self._partitions, strict=True)
        )
        if others or self._version != self._priorities.version:
            self._version, self._partitions = self._priorities.version, partitions
            self._doors = doors(state)
            self._seen.clear()
        jobs, seen = state.jobs, self._seen
        return [job_id for job_id in state.pending if seen.get(job_id) is not jobs[job_id]]

    def _look(self, job: Job, now: float) -> None:
        job_id = job.job_id
        found = look(self._ledger.state, job, now, self._doors, self._memo, self._priorities.of)
        self._seen[job_id] = job
        self._known.add(job_id)
        if found.until == -math.inf:
            self._restless.add(job_id)
        elif found.until < math.inf:
            heapq.heappush(self._turns, (found.until, job_id))
        self._note(job_id, found)
        if found.until == -math.inf and dependencies.waits_for_starts(job):
            self._for_starts.add(job_id)
        else:
            self._for_starts.discard(job_id)

    def _note(self, job_id: int, found: Look) -> None:
        if found.reason:
            self._gated[job_id] = found.reason
        else:
            self._gated.pop(job_id, None)
        if found.never:
            self._never.add(job_id)
        else:
            self._never.discard(job_id)
        if found.view is None:
            self._take_out(job_id)
        elif job_id in self._new or self.places.get(job_id) != found.key or not self._same(found):
            self._take_out(job_id)
            self._new[job_id] = (found.key, found.view)

    def _same(self, found: Look) -> bool:
        at = bisect_left(self.order, found.key)
        return self._views[at] is found.view or self._views[at] == found.view

    def _take_out(self, job_id: int) -> None:
        self._new.pop(job_id, None)
        place = self.places.pop(job_id, None)
        if place is not None:
            self._void[job_id] = place

    def _drop(self, job_id: int) -> None:
        """The job waits no more."""
        for known in (self._seen, self._gated, self._memo):
            known.pop(job_id, None)
        for some in (self._known, self._never, self._for_starts, self._restless):
            some.discard(job_id)
        self._take_out(job_id)

    def _sort(self) -> None:
        """Bring `_order` and `_views` up to date."""
        order, views, void, new = self.order, self._views, self._void, self._new
        if not void and not new:
            return
        if len(void) <= _FEW:
            for place in void.values():
                at = bisect_left(order, place)
                del order[at], views[at]
        else:
            kept = [at for at, place in enumerate(order) if place[5] not in void]
            order, views = [order[at] for at in kept], [views[at] for at in kept]
        if len(new) > _FEW:
            by_id = {place[5]: view for place, view in zip(order, views, strict=True)}
            by_id.update((job_id, view) for job_id, (_, view) in new.items())
            order = sorted([*order, *sorted(place for place, _ in new.values())])
            views = [by_id[place[5]] for place in order]
        else:
            for place, view in new.values():
                at = bisect_left(order, place)
                order.insert(at, place)
                views.insert(at, view)
        self.places.update((job_id, place) for job_id, (place, _) in new.items())
        self.order, self._views = order, views
        void.clear()
        new.clear()
