"""Which jobs of a long queue a quick pass looks at.  Pure.

A quick pass must not start a job where one that it does not look at, and that stands before it, could have
started.  So it takes the first jobs of the queue, and of those behind them who share no node with anybody who
was left out.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from spur_sched.api import JobView, PartitionView


def neighbours(partitions: Mapping[str, PartitionView]) -> dict[str, frozenset[str]]:
    """Of each partition those that have nodes with it in common, itself included."""
    members = {name: one.nodes for name, one in partitions.items()}
    return {
        name: frozenset(other for other, theirs in members.items() if not nodes.isdisjoint(theirs)) | {name}
        for name, nodes in members.items()
    }


def front(
    queue: Sequence[JobView],
    depth: int,
    near: Mapping[str, frozenset[str]],
    also: Iterable[int] = (),
) -> list[JobView]:
    """The first `depth` jobs, at most as many more that meet nobody who is left out, and those named.

    Args:
        near: as `neighbours`.
        also: places in the queue of jobs that may be looked at although others before them are not: those
            have been looked at since anything came free, and got nothing.
    """
    first = queue[:depth]
    chosen = {at for at in also if at >= depth}
    counts = Counter(job.partitions for job in first)
    left = depth
    shut: set[str] = set()
    #: Whether jobs of such partitions meet nobody who is left out; until `shut` grows.
    apart: dict[tuple[str, ...], bool] = {}
    for at, job in enumerate(itertools.islice(queue, depth, None), depth):
        names = job.partitions
        free = apart.get(names)
        if free is None:
            free = apart[names] = shut.isdisjoint(names)
        if not free or at in chosen:
            continue
        # Licences are everybody's.
        if left and counts[names] < depth and not (shut and job.licenses):
            counts[names] += 1
            left -= 1
            chosen.add(at)
            continue
        shut.update(*(near.get(name, (name,)) for name in names))
        if shut >= near.keys():
            break
        apart.clear()
    return [*first, *(queue[at] for at in sorted(chosen))]
