"""A per-node request against the columns: which nodes hold how many tasks of it.  Pure numbers.

Every bound is linear in the number of tasks of a node: so much of a row for taking part at all, and so much
for each task.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from spur_sched.api import GresMap, Layer, NodeView
from spur_sched.columns import CPUS, EMPTY, MEMORY, UNSTATED, Columns, Floats, Ints, Vector
from spur_sched.layers import Layers
from spur_sched.need import MANY, GresNeed, Need, cores_of, pick_gres

__all__ = ["Demand", "Floats", "Part"]

#: A row of what is free, for the nodes looked at.
Row = Callable[[int], Ints]
_NONE: Final[GresMap] = {}


class Part(NamedTuple):
    """What is taken of one row: `fixed` by taking part, `each` by every task."""

    row: int
    fixed: int
    each: int


class Demand:
    """A Need worked out for one cluster.

    Attributes:
        possible: False when it names a kind that no node has.
        parts: bounds by row, CPUs first.
        least: what the rows must have at least for one task, as (row, number).
    """

    def __init__(self, need: Need, columns: Columns) -> None:
        self.need = need
        self.columns = columns
        self.possible = True
        self.exclusive = need.exclusive
        self.whole_memory = need.memory_per_node_mb == 0
        #: MiB for each CPU that is held and may be used.
        self.memory_per_cpu = 0
        if need.memory_per_node_mb is None and not need.memory_per_gpu_mb:
            self.memory_per_cpu = need.memory_per_cpu_mb or 0
        #: Rows of the job's total (`--gpus`), and how many of each.
        self.total = self._rows(need.gres_total)
        gpus, gpus_each = _gpus(need.gres), _gpus(need.gres_per_task)
        cpus_each = need.cpus_per_task
        cpus_fixed = 0
        if need.cpus_per_gpu:
            cpus_each = max(cpus_each, need.cpus_per_gpu * gpus_each)
            cpus_fixed = need.cpus_per_gpu * (gpus or (1 if self.total else 0))
        cpus_used = cpus_fixed
        cpus_fixed = max(cpus_fixed, need.min_cpus or 0)
        if not need.threads_per_core:
            cpus_used = cpus_fixed
        # With whole nodes or idle threads it may be more: see `from_nodes` and `cap`.
        memory_fixed = (need.memory_per_node_mb or 0) + self.memory_per_cpu * cpus_used
        memory_each = self.memory_per_cpu * cpus_each
        if need.memory_per_gpu_mb:
            memory_fixed = need.memory_per_gpu_mb * (gpus or (1 if self.total else 0))
            memory_each = need.memory_per_gpu_mb * gpus_each
        parts = [Part(CPUS, cpus_fixed, cpus_each)]
        if memory_fixed or memory_each:
            parts.append(Part(MEMORY, memory_fixed, memory_each))
        fixed, each = self._rows(need.gres), self._rows(need.gres_per_task)
        parts += [
            Part(row, max(fixed.get(row, 0), 1 if row in self.total else 0), each.get(row, 0))
            for row in sorted({*fixed, *each, *self.total})
        ]
        #: Where its CPUs are.
        self.cpu_row = CPUS
        layers = columns.layers
        if layers is not None:
            parts += self._apart(layers, need.layer, parts[0])
        self.parts = tuple(parts)
        #: Nothing but CPUs and memory by numbers.
        self.simple = not (
            self.exclusive
            or need.gres
            or need.gres_per_task
            or need.gres_total
            or need.cpus_per_gpu
            or need.memory_per_gpu_mb
            or need.min_cpus
            or need.threads_per_core
            or need.ntasks_per_core
        )
        #: So many tasks take the same on every node.
        self.regular = self.simple and not self.whole_memory
        #: It binds the sum of types: enough of them at each instant need not be the same ones throughout.
        self.mixes = any(part.row in columns.parts for part in parts)
        self.least = tuple((part.row, max(part.fixed, part.each)) for part in parts)
        #: MiB that each column must have free, where it depends on the node; None = it does not.
        self.from_nodes: Ints | None = None
        if self.whole_memory:
            total = columns.total[MEMORY]
            self.from_nodes = np.where(total == UNSTATED, 0, total)
        elif self.exclusive and self.memory_per_cpu:
            views = columns.views
            makes = [self._for_cpus(views[at], views[at].cpus) for at in columns.makes]
            self.from_nodes = np.array(makes, dtype=np.int64)[columns.make_at]

    def _apart(self, layers: Layers, layer: Layer | None, cpus: Part) -> list[Part]:
        """What keeps those who share CPUs from those who do not; its CPUs' number binds both rows of them."""
        if layer is None or layer not in layers.row_of:
            return [Part(layers.sharing, 0, 0)]
        self.cpu_row = layers.row_of[layer]
        return [cpus._replace(row=self.cpu_row), Part(layers.others[layer[0]], 0, 0)]

    def _rows(self, wanted: GresNeed) -> dict[int, int]:
        """Numbers by row; requests without a type bind the sum of their name, typed ones included."""
        found: dict[int, int] = {}
        for name, kind, count in wanted:
            row = self.columns.kinds.get((name, kind)) if kind else self.columns.names.get(name)
            if row is None:
                self.possible = False
                continue
            found[row] = found.get(row, 0) + count
        for name in {name for name, kind, _ in wanted if not kind} & self.columns.names.keys():
            sums = self.columns.names[name]
            if sums in self.columns.parts:
                found[sums] += sum(count for own, kind, count in wanted if own == name and kind)
        return found

    # -- many nodes at once

    def fitting(self, where: Ints, row: Row, least: int) -> Ints:
        """Positions in `where` of the nodes that hold at least `least` tasks by what `row` gives.

        Args:
            where: columns of the nodes.
        """
        good = None
        for part in self.parts:
            bound = max(part.fixed, part.each * least)
            mask = row(part.row) >= bound
            good = mask if good is None else good & mask
        assert good is not None
        if self.exclusive:
            good &= row(EMPTY) >= 0
        if self.from_nodes is not None:
            good &= row(MEMORY) >= self.from_nodes[where]
        found: Ints = good.nonzero()[0]
        return found

    @property
    def uneven(self) -> bool:
        """Whether more than the bounds decides how many tasks a node holds."""
        need = self.need
        return bool(
            need.ntasks_per_socket or need.ntasks_per_core or need.ntasks_per_gpu or need.threads_per_core
        )

    def tasks(self, where: Ints, row: Row) -> Ints:
        """How many tasks each node holds, where each holds at least one."""
        need = self.need
        found: Ints = np.full(len(where), need.tasks_per_node, dtype=np.int64)
        for part in self.parts:
            if part.each:
                np.minimum(found, row(part.row) // part.each, out=found)
        if self.uneven:
            views = self.columns.views
            cpus = row(CPUS) if self.cpu_row == CPUS else np.minimum(row(CPUS), row(self.cpu_row))
            free = zip(where.tolist(), cpus.tolist(), row(MEMORY).tolist(), strict=True)
            caps = [self.cap(views[at], cpus, memory) for at, cpus, memory in free]
            np.minimum(found, np.array(caps, dtype=np.int64), out=found)
        return found

    # -- one node

    def cap(self, view: NodeView, free: int, memory: int) -> int:
        """Most tasks that the make of the node allows.

        Args:
            free: CPUs that are to be had.
            memory: MiB that are to be had.
        """
        need = self.need
        most = need.tasks_per_node
        threads, cores = view.threads_per_core, free // max(1, view.threads_per_core)
        if need.threads_per_core and need.threads_per_core < threads:
            most = min(most, cores * need.threads_per_core // need.cpus_per_task)
        if need.ntasks_per_core and need.ntasks_per_core < threads:
            most = min(most, cores * need.ntasks_per_core)
        if need.ntasks_per_socket:
            most = min(most, need.ntasks_per_socket * max(1, view.sockets))
        if need.ntasks_per_core:
            most = min(most, need.ntasks_per_core * cores_of(view))
        if need.ntasks_per_gpu and _gpus(need.gres):
            most = min(most, need.ntasks_per_gpu * _gpus(need.gres))
        if self.memory_per_cpu and not self.exclusive and (need.threads_per_core or need.ntasks_per_core):
            most = min(most, free // need.cpus_per_task)
            gpus = _gpus(need.gres)
            while most > 0:
                each = most * _gpus(need.gres_per_task)
                if self._for_cpus(view, self._held(view, most, gpus + each)) <= memory:
                    break
                most -= 1
        return most

    def holds(self, at: int, room: Sequence[int]) -> int:
        """Tasks that `room` (a vector) on one node holds; 0 = it cannot take part."""
        view = self.columns.views[at]
        if not self.possible or (self.exclusive and room[EMPTY] < 0):
            return 0
        if self.from_nodes is not None and room[MEMORY] < self.from_nodes[at]:
            return 0
        most = MANY
        for row, fixed, each in self.parts:
            free = room[row]
            if free < fixed:
                return 0
            if each:
                most = min(most, free // each)
                if most <= 0:
                    return 0
        need = self.need
        if self.uneven:
            return max(0, min(most, self.cap(view, min(room[CPUS], room[self.cpu_row]), room[MEMORY])))
        return min(most, need.tasks_per_node)

    def take(
        self, at: int, room: Sequence[int], tasks: int, total: GresMap = _NONE
    ) -> tuple[int, int, GresMap]:
        """(CPUs, MiB, gres) of `tasks` tasks on a node whose `room` holds them.

        Args:
            total: this node's part of a number asked for the whole job.
        """
        need, view = self.need, self.columns.views[at]
        if self.simple:
            cpus = tasks * need.cpus_per_task
            memory = (need.memory_per_node_mb or 0) + self.memory_per_cpu * cpus
            return cpus, memory or (view.memory_mb if self.whole_memory else 0), {}
        have = self.columns.gres(room)
        wanted = (
            *need.gres,
            *((name, kind, count * tasks) for name, kind, count in need.gres_per_task),
            *((name, kind, count) for (name, kind), count in sorted(total.items())),
        )
        gres = have if self.exclusive else pick_gres(wanted, have)
        assert gres is not None
        gpus = _gpus(wanted)
        cpus = self._held(view, tasks, gpus)
        memory = self._for_cpus(view, cpus)
        if need.memory_per_gpu_mb:
            memory = need.memory_per_gpu_mb * gpus
        elif need.memory_per_node_mb is not None:
            memory = need.memory_per_node_mb or view.memory_mb
        return cpus, memory, {key: count for key, count in gres.items() if count > 0}

    def regularly(self, tasks: int) -> tuple[int, int, GresMap, Vector]:
        """What `tasks` tasks of a regular request take on any node, and the same as a vector."""
        need = self.need
        cpus = tasks * need.cpus_per_task
        memory = (need.memory_per_node_mb or 0) + self.memory_per_cpu * cpus
        return cpus, memory, {}, self.vector(cpus, memory, {})

    def _held(self, view: NodeView, tasks: int, gpus: int) -> int:
        """CPUs that so many tasks with so many GPUs hold."""
        need = self.need
        if self.exclusive:
            return view.cpus
        cpus = max(tasks * need.cpus_per_task, (need.cpus_per_gpu or 0) * gpus)
        return max(self._with_idle(view, cpus, tasks), need.min_cpus or 0)

    def _for_cpus(self, view: NodeView, held: int) -> int:
        """MiB of a job that holds so many CPUs, for those of their threads that it may use."""
        used, threads = self.need.threads_per_core, view.threads_per_core
        if used and used < threads:
            held = min(held, -(-held // threads) * used)
        return self.memory_per_cpu * held

    def _with_idle(self, view: NodeView, cpus: int, tasks: int) -> int:
        """CPUs with the threads that stay idle on cores of which not all may be used."""
        need, threads = self.need, view.threads_per_core
        cores = 0
        if need.threads_per_core and need.threads_per_core < threads:
            cores = -(-cpus // need.threads_per_core)
        if need.ntasks_per_core and need.ntasks_per_core < threads:
            cores = max(cores, -(-tasks // need.ntasks_per_core))
        return max(cpus, cores * threads)

    def vector(self, cpus: int, memory_mb: int, gres: GresMap) -> Vector:
        """What a share takes, one number a row."""
        return self.columns.vector(cpus, memory_mb, gres, self.need.layer)


def _gpus(wanted: GresNeed) -> int:
    return sum(count for name, _, count in wanted if name == "gpu")
