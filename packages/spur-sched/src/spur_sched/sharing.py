"""Who may be beside whom on a node: nodes kept for one user, and CPUs of a node that a partition may use.

Neither is a resource that is simply counted, so both stand beside the columns; during a pass they only get
tighter for everybody but their owner.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from spur_sched.api import JobView, NodeView, PartitionView
from spur_sched.columns import CPUS, FOREVER, Bools, Ints
from spur_sched.rules import Class

_NOBODY: Final = -1
#: Work without an end, or of unknown end, is away for so long.
_LONG: Final = FOREVER


class Sharing:
    """The state of all nodes.

    Attributes:
        by_user: some job, or some partition, keeps nodes for one user.
    """

    def __init__(
        self, views: list[NodeView], partitions: Mapping[str, PartitionView], queue: Iterable[JobView]
    ) -> None:
        self._partitions = partitions
        self.by_user = (
            any(view.owner is not None for view in views)
            or any(part.exclusive_user for part in partitions.values())
            or any(job.exclusive_user for job in queue)
        )
        self._views = views
        #: Of each column: its only user; everybody who is there.
        self._owner = [_NOBODY if view.owner is None else view.owner for view in views]
        self._users = [set(view.users) for view in views] if self.by_user else []
        self._held: dict[str, Ints] = {}
        #: Columns where something started in this pass.
        self._fresh: set[int] = set()

    def restricts(self, wanted: Class) -> bool:
        """Whether `allowed` or `left` may say no to such jobs."""
        return wanted.uid is not None or wanted.most_cpus is not None

    def allowed(self, wanted: Class, at: int) -> bool:
        """Whether the users of a node permit the job beside them."""
        uid = wanted.uid
        if uid is None:
            return True
        owner = self._owner[at]
        if owner not in (_NOBODY, uid):
            return False
        return not wanted.alone or self._users[at] <= {uid}

    def left(self, wanted: Class, at: int, free: int) -> int:
        """CPUs of `free` on a node that the job's partition may still use."""
        if wanted.most_cpus is None:
            return free
        return min(free, wanted.most_cpus - int(self._used(wanted.partition)[at]))

    def _used(self, partition: str) -> Ints:
        found = self._held.get(partition)
        if found is None:
            numbers = [dict(view.partition_cpus).get(partition, 0) for view in self._views]
            found = self._held[partition] = np.array(numbers, dtype=np.int64)
        return found

    def put(self, wanted: Class, at: int, uid: int, cpus: int) -> None:
        """A job starts on a node."""
        self._fresh.add(at)
        if self.by_user:
            self._users[at].add(uid)
            if wanted.alone:
                self._owner[at] = uid
        partition = self._partitions.get(wanted.partition)
        if partition is not None and partition.max_cpus_per_node is not None:
            self._used(wanted.partition)[at] += cpus

    def away(
        self, wanted: Class, member: Bools, now: float, cpus: int = 0
    ) -> dict[int, tuple[tuple[float, float], ...]]:
        """Until when nodes are not to be had because of who is there now: (from, to) by column.

        Args:
            cpus: CPUs of a node that the job needs at least.
        """
        found: dict[int, tuple[tuple[float, float], ...]] = {}
        if not self.restricts(wanted):
            return found
        for at in member.nonzero()[0].tolist():
            if not self.allowed(wanted, at) or self.left(wanted, at, cpus) < cpus:
                ends = [_LONG if end is None else end for end, *_ in self._views[at].running]
                if at in self._fresh:
                    ends.append(_LONG)
                found[at] = ((now, max(ends, default=now + 1.0)),)
        return found


def capped(wanted: Class, total: list[int], most: int | None = None) -> list[int]:
    """An empty node's resources as far as the partition's jobs may use them, `most` CPUs at best."""
    bounds = [bound for bound in (wanted.most_cpus, most) if bound is not None]
    return [min(total[CPUS], *bounds), *total[CPUS + 1 :]] if bounds else total
