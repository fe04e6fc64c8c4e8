"""The cluster during one pass: what is free on each node now, and what is promised to a waiting job."""

import math
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from spur_core.grammar import features
from spur_sched.api import GresMap, NodeView, PartitionView
from spur_sched.need import Need, Room, tasks_that_fit, total_room
from spur_sched.rules import Class, constraint_trees, could_ever, usable
from spur_sched.spread import Count


def outlasts(end: float, instant: float) -> bool:
    """Whether work until `end` is still there after `instant`; work without an end (inf) always is."""
    return end > instant or end == math.inf


class Promise:
    """What is left over on a node from the instant on at which a waiting job is to start there."""

    __slots__ = ("spare", "until")

    def __init__(self, until: float, spare: Room) -> None:
        #: Work that ends by then, seconds since the epoch, is not bound by `spare`.
        self.until = until
        self.spare = spare


class Floor:
    """One node during the pass."""

    __slots__ = ("at", "ends", "promise", "room", "view")

    def __init__(self, at: int, view: NodeView) -> None:
        self.at = at
        self.view = view
        self.room = Room(
            view.cpus - view.used_cpus,
            view.memory_mb - view.used_memory_mb,
            _less(view.gres, view.used_gres),
            view.jobs,
        )
        #: (end, cpus, MiB, gres) of everything that runs here, placements of this pass included.
        self.ends = list(view.running)
        self.promise: Promise | None = None

    def room_until(self, end: float) -> Room:
        """What work that runs until `end` (inf = no limit) may use."""
        promise = self.promise
        if promise is None or not outlasts(end, promise.until):
            return self.room
        free, spare = self.room, promise.spare
        return Room(
            min(free.cpus, spare.cpus),
            min(free.memory_mb, spare.memory_mb),
            {key: min(count, spare.gres.get(key, 0)) for key, count in free.gres.items()},
            # A node with a promise is never empty enough for exclusive work that outlasts it.
            max(1, free.jobs),
        )

    def put(self, cpus: int, memory_mb: int, gres: GresMap, end: float) -> None:
        """Something starts here now."""
        self.room = _shrunk(self.room, cpus, memory_mb, gres)
        self.ends.append((None if end == math.inf else end, cpus, memory_mb, gres))
        if self.promise is not None and outlasts(end, self.promise.until):
            self.promise.spare = _shrunk(self.promise.spare, cpus, memory_mb, gres)


class Hardware(NamedTuple):
    """Nodes of one make: a specimen, how many there are, and how many may be used now."""

    specimen: NodeView
    all: int
    up: int


Counts = npt.NDArray[np.int64]
#: Floors whose free counts are compared at a time.
_BLOCK: Final = 512
#: Free memory of a node that nobody stated the memory of.
_UNSTATED: Final = 1 << 62


class Pool:
    """The nodes of one partition that a class of jobs may use, for one alternative of its constraint."""

    def __init__(self, floors: list[Floor], makes: list[Hardware], ground: "Ground") -> None:
        #: Usable now, best first.
        self.floors = floors
        self.makes = makes
        self._ground = ground
        self._at = np.array([floor.at for floor in floors], dtype=np.int64)
        #: Need -> blocks before this one have no room for it for the rest of the pass.
        self._start: dict[Need, int] = {}

    def with_room(self, need: Need) -> Iterator[Floor]:
        """Floors that have the CPUs and the memory for one task, best first; the rest is not looked at."""
        ground = self._ground
        memory = need.memory_per_node_mb or (need.memory_per_cpu_mb or 0) * need.cpus_per_task
        start = self._start.get(need, 0)
        for at in range(start, len(self.floors), _BLOCK):
            places = self._at[at : at + _BLOCK]
            fits = ground.free_cpus[places] >= need.cpus_per_task
            if memory:
                fits &= ground.free_memory[places] >= memory
            found = fits.nonzero()[0].tolist()
            if not found and at == start:
                start = self._start[need] = at + _BLOCK
            for place in found:
                yield self.floors[at + place]

    def enough(self, need: Need, count: Count, *, up_only: bool) -> bool:
        """Whether the nodes, all empty, would do; with `up_only` only those that may be used now."""
        nodes = tasks = 0
        holds = []
        for make in self.makes:
            number = make.up if up_only else make.all
            if number and could_ever(need, make.specimen, count.each):
                each = tasks_that_fit(need, make.specimen, total_room(make.specimen))
                holds.append((each if make.specimen.known else count.num_tasks, number))
                nodes += number
        if nodes < count.min_nodes:
            return False
        left = max(count.max_nodes, count.min_nodes)
        for each, number in sorted(holds, reverse=True):
            used = min(left, number)
            tasks += each * used
            left -= used
        return tasks >= count.num_tasks if count.tasks_given else True


class Ground:
    """All nodes of the pass and the pools made from them so far."""

    def __init__(self, nodes: Iterable[NodeView], partitions: dict[str, PartitionView]) -> None:
        # A higher weight is preferred; among equals the snapshot's order, so that equal input gives equal
        # plans.
        ordered = sorted(nodes, key=lambda node: -node.weight)
        self.floors = [Floor(at, view) for at, view in enumerate(ordered)]
        self.free_cpus: Counts = np.array([floor.room.cpus for floor in self.floors], dtype=np.int64)
        self.free_memory: Counts = np.array(
            [f.room.memory_mb if f.view.memory_mb else _UNSTATED for f in self.floors], dtype=np.int64
        )
        self.by_name = {floor.view.name: floor for floor in self.floors}
        self.partitions = partitions
        self._members: dict[str, list[Floor]] = {}
        self._pools: dict[Class, list[tuple[features.Node, Pool]]] = {}

    def put(self, floor: Floor, cpus: int, memory_mb: int, gres: GresMap, end: float) -> None:
        """Something starts on `floor` now and runs until `end`."""
        floor.put(cpus, memory_mb, gres, end)
        self.free_cpus[floor.at] -= cpus
        if floor.view.memory_mb:
            self.free_memory[floor.at] -= memory_mb

    def members(self, partition: str) -> list[Floor]:
        """The partition's nodes, best first."""
        found = self._members.get(partition)
        if found is None:
            names = self.partitions[partition].nodes
            found = self._members[partition] = [f for f in self.floors if f.view.name in names]
        return found

    def pools(self, wanted: Class) -> list[tuple[features.Node, Pool]]:
        """One pool for each alternative of the constraint."""
        found = self._pools.get(wanted)
        if found is None:
            found = self._pools[wanted] = [
                (tree, self._pool(wanted, tree)) for tree in constraint_trees(wanted.constraint)
            ]
        return found

    def _pool(self, wanted: Class, tree: features.Node) -> Pool:
        floors: list[Floor] = []
        makes: dict[tuple[object, ...], Hardware] = {}
        for floor in self.members(wanted.partition):
            node = floor.view
            if not usable(node, wanted, tree):
                continue
            key = (node.known, node.cpus, node.memory_mb, tuple(sorted(node.gres.items())))
            make = makes.get(key) or Hardware(node, 0, 0)
            makes[key] = Hardware(make.specimen, make.all + 1, make.up + node.schedulable)
            if node.schedulable:
                floors.append(floor)
        return Pool(floors, list(makes.values()), self)


def _less(total: GresMap, used: GresMap) -> GresMap:
    return {key: count - used.get(key, 0) for key, count in total.items()}


def _shrunk(room: Room, cpus: int, memory_mb: int, gres: GresMap) -> Room:
    left = dict(room.gres)
    for key, count in gres.items():
        left[key] = left.get(key, 0) - count
    return Room(room.cpus - cpus, room.memory_mb - memory_mb, left, room.jobs + 1)
