"""What jobs ask for, worked out once for all that ask for the same: partitions to try, and why not others."""

import math
from operator import itemgetter
from typing import Final, NamedTuple

from spur_core import reasons
from spur_core.errors import GrammarError
from spur_sched.api import JobView, PartitionView
from spur_sched.ground import Ground
from spur_sched.need import Need
from spur_sched.rules import (
    NODES_MISSING,
    Class,
    Why,
    class_of,
    count_of,
    limit_secs,
    needs_in,
    partition_gate,
    unavailable,
)
from spur_sched.shape import Shape
from spur_sched.spread import Count

#: Everything but who asks and since when, and what can be in no key as it is.
_ASKED: Final = itemgetter(*range(4, 13), *range(14, 19), *range(26, len(JobView._fields)))
_UNKNOWN: Final = Why("")
TOO_SMALL: Final = "The reservation {} is too small for the job, even with nothing else in it"


class Kind(NamedTuple):
    """Jobs that ask for the same: the shapes to try, and the first obstacle of the partitions left out."""

    opened: tuple[Shape, ...]
    why: Why


class Kinds:
    """All kinds of one pass.

    Attributes:
        made: how many there are.
    """

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.made = 0
        self._kinds: dict[tuple[object, ...], Kind] = {}
        self._shapes: dict[tuple[Class, Need, Count, float], Shape] = {}
        self._missing: dict[tuple[Class, Need, Count], Why | None] = {}

    def of(self, job: JobView) -> Kind:
        """The job's kind, worked out once for all jobs that ask for the same."""
        key = _ASKED(job)
        if job.gres or job.gres_total or job.gres_per_task or job.gres_per_socket:
            counts = (job.gres, job.gres_total, job.gres_per_task, job.gres_per_socket)
            key = (*key, *map(_frozen, counts))
        if self.ground.sharing.by_user:
            key = (*key, job.uid)
        kind = self._kinds.get(key)
        if kind is None:
            self.made += 1
            try:
                kind = self._open_partitions(job)
            except GrammarError:
                kind = Kind((), Why(reasons.BAD_CONSTRAINTS))
            self._kinds[key] = kind
        return kind

    def _open_partitions(self, job: JobView) -> Kind:
        first: Why | None = None
        opened = []
        limit = limit_secs(job)
        secs = math.inf if limit is None else float(limit)
        for part in self._in_order(job):
            view = self.ground.partitions.get(part)
            why = partition_gate(job, view)
            if why is None and view is not None:
                wanted = class_of(job, view, by_user=self.ground.sharing.by_user)
                counts = count_of(job, view)
                for need in needs_in(job, view):
                    shape = self.shape(wanted, need, counts, secs)
                    why = shape.missing
                    if why is not None:
                        # Layers are all alike when they are empty.
                        break
                    opened.append(shape)
            first = first or why
        return Kind(tuple(opened), first or Why(reasons.PARTITION_CONFIG))

    def shape(self, wanted: Class, need: Need, counts: Count, secs: float) -> Shape:
        key = (wanted, need, counts, secs)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(self.ground, wanted, self.ground.demand(need), counts, secs)
            # For how long does not matter to that.
            known = self._missing.get(key[:3], _UNKNOWN)
            if known is _UNKNOWN:
                known = self._missing[key[:3]] = self._find_missing(shape)
            shape.missing = known
        return shape

    def _in_order(self, job: JobView) -> list[str]:
        """The job's partitions, higher tiers first, else as it named them."""
        if len(job.partitions) < 2:
            return list(job.partitions)

        def tier(name: str) -> int:
            view: PartitionView | None = self.ground.partitions.get(name)
            return -view.priority_tier if view is not None else 0

        return sorted(job.partitions, key=tier)

    def _find_missing(self, shape: Shape) -> Why | None:
        wanted, ground = shape.wanted, self.ground
        members = ground.members(wanted.partition)
        if shape.required is None or not all(members[at] for at in shape.required):
            return Why(reasons.BAD_CONSTRAINTS)
        if not any(shape.could(pool, tree, up_only=False) for tree, pool in ground.pools(wanted)):
            return Why(reasons.BAD_CONSTRAINTS)
        within = ground.kept.inside(wanted.reservation) if wanted.reservation else None
        if within is not None and not any(
            shape.could(pool, tree, up_only=False, within=one)
            for one in within
            for tree, pool in ground.pools(wanted)
        ):
            return Why(reasons.RESERVATION, text=TOO_SMALL.format(wanted.reservation))
        views = ground.columns.views
        away = [views[at].name for at in sorted(shape.required) if not views[at].schedulable]
        if away:
            return unavailable(sorted(away))
        if all(pool.all_up for _, pool in ground.pools(wanted)):
            return None
        if not any(shape.could(pool, tree, up_only=True) for tree, pool in ground.pools(wanted)):
            return Why(reasons.NODE_DOWN, NODES_MISSING)
        return None


def _frozen(gres: dict[tuple[str, str], int]) -> object:
    return tuple(sorted(gres.items()))
