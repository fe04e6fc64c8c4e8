"""CPUs that jobs share, as rows of the columns.

A partition whose jobs share CPUs (`OverSubscribe`) has every CPU of its nodes several times: once in each
layer.  A job has CPUs of one layer, each of them alone in it; so no more jobs meet on a CPU than there are
layers.  On a node there are either jobs that share, all of one partition, or jobs that do not.

Each layer is a row with all CPUs of a node.  Two more rows keep jobs apart, in the manner of EMPTY: minus
the number of jobs that share, which who does not share needs at 0; and for each partition minus the number of
jobs that do not share with its own, which those need at 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from spur_sched.api import GresMap, JobView, Layer, NodeView, PartitionView

Ints = npt.NDArray[np.int64]
#: One entry of `NodeView.running`.
Run = tuple[float | None, int, int, GresMap]


def layers_of(job: JobView, part: PartitionView) -> int:
    """How many layers the partition has for the job; 0 = it gets CPUs of its own."""
    if part.share < 2:
        return 0
    asked = part.oversubscribe == "YES" and job.oversubscribe and not job.exclusive
    return part.share if asked or part.oversubscribe == "FORCE" else 0


def seen_layers(views: Iterable[NodeView], partitions: Mapping[str, PartitionView]) -> list[Layer]:
    """All that partitions have, and those that jobs are in although their partition has changed since."""
    sharing = [
        part for part in partitions.values() if part.share > 1 and part.oversubscribe in ("YES", "FORCE")
    ]
    found = {(part.name, layer) for part in sharing for layer in range(1, part.share + 1)}
    for view in views:
        if view.layers:
            found.update(layer for layer in view.layers if layer is not None)
    return sorted(found)


def with_layers(view: NodeView) -> Iterator[tuple[Run, Layer | None]]:
    """What runs on a node, each with its layer."""
    layers = view.layers or (None,) * len(view.running)
    return zip(view.running, layers, strict=True)


class Layers:
    """The rows.

    Attributes:
        row_of: of each layer.
        sharing: minus the number of jobs that share.
        others: of each partition minus the number of jobs that do not share with its own.
        size: how many rows there are.
    """

    def __init__(self, layers: Sequence[Layer], first: int) -> None:
        self.row_of = {layer: first + place for place, layer in enumerate(layers)}
        self.sharing = first + len(layers)
        names = dict.fromkeys(name for name, _ in layers)
        self.others = {name: self.sharing + 1 + place for place, name in enumerate(names)}
        self.size = len(layers) + 1 + len(names)

    def mark(self, vector: list[int], cpus: int, layer: Layer | None) -> None:
        """Turn what somebody with CPUs of its own takes into what somebody takes who has them in `layer`."""
        row = None if layer is None else self.row_of.get(layer)
        for other in self.others.values():
            vector[other] = 1
        if row is not None and layer is not None:
            vector[0] = 0
            vector[row] = cpus
            vector[self.sharing] = 1
            vector[self.others[layer[0]]] = 0

    def mark_all(self, change: Ints, first: int, layered: Sequence[tuple[int, Layer]]) -> None:
        """As `mark`, of many vectors side by side, from the column `first` on.

        Args:
            layered: the columns of those that are in a layer.
        """
        change[list(self.others.values()), first:] = 1
        for place, layer in layered:
            change[self.row_of[layer], place] = change[0, place]
            change[0, place] = 0
            change[self.sharing, place] = 1
            change[self.others[layer[0]], place] = 0

    def fill(self, views: Sequence[NodeView], total: Ints, used: Ints) -> None:
        """What nodes have and what is taken."""
        for row in self.row_of.values():
            total[row] = total[0]
        jobs = [view.jobs for view in views]
        for row in self.others.values():
            used[row] = jobs
        for at, view in enumerate(views):
            for (_, cpus, _, _), layer in with_layers(view) if view.layers else ():
                if layer is not None:
                    used[self.row_of[layer], at] += cpus
                    used[self.sharing, at] += 1
                    used[self.others[layer[0]], at] -= 1

    def clip(self, room: list[int], cpus: int) -> None:
        """Take so many CPUs out of all layers."""
        for row in self.row_of.values():
            room[row] = max(0, room[row] - cpus)
