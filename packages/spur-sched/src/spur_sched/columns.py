"""The cluster of one pass as columns: what each node has and what is free on it now.

A resource is a row, a node is a column.  Nodes stand in the order in which they are preferred: higher weight
first, among equals as the snapshot has them, so that equal input gives equal plans.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from spur_sched.api import GresMap, Layer, NodeView, PartitionView
from spur_sched.layers import Layers, seen_layers

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
#: One number a row.
Vector = tuple[int, ...]

#: Rows that every cluster has.
CPUS: Final = 0
MEMORY: Final = 1
#: Minus the number of jobs on the node; 0 = empty, which exclusive work needs.
EMPTY: Final = 2
FIRST_KIND: Final = 3
#: Free memory of a node that nobody stated the memory of.
UNSTATED: Final = 1 << 60
#: Nobody shares CPUs.
NO_PARTITIONS: Final[Mapping[str, PartitionView]] = {}
#: When work without a time limit ends: behind every real instant, before what never ends.
FOREVER: Final = 2.0**60


class Columns:
    """Nodes as columns.

    Attributes:
        views: in order of preference.
        kinds: (name, type) -> row; `any` with a name gives the row that sums the types of that name.
        total: what the nodes have; EMPTY is 0.
        free: what nobody holds now.
    """

    def __init__(
        self, nodes: Iterable[NodeView], partitions: Mapping[str, PartitionView] = NO_PARTITIONS
    ) -> None:
        self.views: list[NodeView] = sorted(nodes, key=_less_wanted)
        self.size = len(self.views)
        self.at: dict[str, int] = {}
        self.kinds: dict[tuple[str, str], int] = {}
        self._partitions = partitions
        #: Rows of partitions whose jobs share CPUs; None = there are none.
        self.layers: Layers | None = None
        self.names: dict[str, int] = {}
        #: Row of a name's sum -> rows of its types.
        self.parts: dict[int, tuple[int, ...]] = {}
        self.rows = FIRST_KIND
        self.total: Ints = np.zeros((0, 0), dtype=np.int64)
        self.free: Ints = self.total
        #: Some nodes do not say how much memory they have.
        self.unstated = False
        self.schedulable: Bools = np.zeros(0, dtype=np.bool_)
        #: Position of each node's features in `feature_sets`.
        self.feature_at: Ints = np.zeros(0, dtype=np.int64)
        self.feature_sets: list[frozenset[str]] = []
        #: Position of each node's make in `makes`; nodes of one make have the same of everything.
        self.make_at: Ints = np.zeros(0, dtype=np.int64)
        #: A specimen of each make.
        self.makes: list[int] = []
        #: What the specimens have, as vectors.
        self.specimens: list[list[int]] = []

    def build(self) -> Iterator[int]:
        """Fill the columns, a piece at a time.

        Yields:
            the work of each piece, in looks at a node.
        """
        views = self.views
        self.at = {view.name: at for at, view in enumerate(views)}
        self.schedulable = np.array([view.schedulable for view in views], dtype=np.bool_)
        kinds = sorted({key for view in views if view.gres for key in view.gres})
        yield self.size
        for key in kinds:
            self.kinds[key] = self.rows
            self.rows += 1
        for name in sorted({name for name, _ in kinds}):
            types = tuple(row for (own, _), row in self.kinds.items() if own == name)
            if len(types) == 1:
                self.names[name] = types[0]
            else:
                self.names[name] = self.rows
                self.parts[self.rows] = types
                self.rows += 1
        layers = seen_layers(views, self._partitions)
        if layers:
            self.layers = Layers(layers, self.rows)
            self.rows += self.layers.size
        total = self.total = np.zeros((self.rows, self.size), dtype=np.int64)
        used = np.zeros((self.rows, self.size), dtype=np.int64)
        total[CPUS] = [view.cpus for view in views]
        used[CPUS] = [view.used_cpus for view in views]
        yield self.size
        stated = np.array([view.memory_mb for view in views], dtype=np.int64)
        self.unstated = bool((stated <= 0).any())
        total[MEMORY] = np.where(stated > 0, stated, UNSTATED)
        used[MEMORY] = [view.used_memory_mb for view in views]
        used[EMPTY] = [view.jobs for view in views]
        yield self.size
        for key, row in self.kinds.items():
            total[row] = [view.gres.get(key, 0) if view.gres else 0 for view in views]
            used[row] = [view.used_gres.get(key, 0) if view.used_gres else 0 for view in views]
            yield self.size
        for row, types in self.parts.items():
            total[row] = total[list(types)].sum(axis=0)
            used[row] = used[list(types)].sum(axis=0)
        if self.layers is not None:
            self.layers.fill(views, total, used)
        # Nobody sees what is held of a kind that the node no longer has.
        self.free = total - used
        yield self.size
        sets: dict[frozenset[str], int] = {}
        self.feature_at = np.array(
            [sets.setdefault(view.features, len(sets)) for view in views], dtype=np.int64
        )
        self.feature_sets = list(sets)
        yield self.size
        makes: dict[object, int] = {}
        held = total.T.tolist()
        self.make_at = np.array(
            [
                makes.setdefault((*view[13:16], view.known, view.tmp_disk_mb, *has), len(makes))
                for view, has in zip(views, held, strict=True)
            ],
            dtype=np.int64,
        )
        first = np.full(len(makes), -1, dtype=np.int64)
        first[self.make_at[::-1]] = np.arange(self.size - 1, -1, -1)
        self.makes = first.tolist()
        self.specimens = [held[at] for at in self.makes]
        yield self.size

    def vector(self, cpus: int, memory_mb: int, gres: GresMap, layer: Layer | None = None) -> Vector:
        """What something takes, one number a row.

        Args:
            layer: the one of which its CPUs are, if it shares them.
        """
        found = [0] * self.rows
        found[CPUS] = cpus
        found[MEMORY] = memory_mb
        found[EMPTY] = 1
        if self.layers is not None:
            self.layers.mark(found, cpus, layer)
        for key, count in gres.items():
            row = self.kinds.get(key)
            if row is None:
                continue
            found[row] += count
            sums = self.names[key[0]]
            if sums != row:
                found[sums] += count
        return tuple(found)

    def gres(self, room: Sequence[int]) -> GresMap:
        """The typed counts of a vector."""
        return {key: room[row] for key, row in self.kinds.items() if room[row] > 0}

    def resum(self, room: list[int]) -> None:
        """Make the sums of a vector of least values what their types really add up to."""
        for row, types in self.parts.items():
            room[row] = sum(max(0, room[kind]) for kind in types)


def _less_wanted(view: NodeView) -> int:
    return -view.weight
