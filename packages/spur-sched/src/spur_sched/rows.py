"""All steps of all usable nodes as one table, so that one look finds every step that could hold a task.

Each node has a row of slots of its own, in order of time.  Slots that are not in use have no CPUs and begin
never, and the last slot of a node is never in use: so the next step that has too little room for something
is the next slot that has too little, whatever node that belongs to.
"""

import math
from collections.abc import Sequence
from operator import lt
from typing import Final, NamedTuple

import numpy as np

from spur_sched.api import Layer
from spur_sched.columns import CPUS, EMPTY, FOREVER, MEMORY, Bools, Columns, Floats, Ints

#: Of so many slots one may be given up before they are taken together.
_LOST: Final = 4


class Steps(NamedTuple):
    """A node's room from each instant on; the first instant is now."""

    times: list[float]
    rooms: list[list[int]]


class Rows:
    """The table.

    Attributes:
        size: slots given to nodes.
        where: the column.
        begins, lasts: from when, and when the node's next step begins.
        falls: when less is free on the node the next time.
        room: what is free.
    """

    def __init__(self, columns: Columns, usable: Bools, now: float, overdue: float) -> None:
        self.columns = columns
        nodes = usable.nonzero()[0]
        where, begins, change = _ends(columns, nodes, now, overdue)
        order = np.lexsort((begins, where))
        where, begins, change = where[order], begins[order], change[:, order]
        room = np.cumsum(change, axis=1)
        count = len(where)
        #: Where each node's rows begin.
        heads = np.searchsorted(where, nodes)
        before = room[:, heads] - change[:, heads]
        numbers = np.diff(np.append(heads, count))
        room -= np.repeat(before, numbers, axis=1)
        # One more slot for each node.
        slots = np.arange(count) + np.repeat(np.arange(len(nodes)), numbers)
        size = count + len(nodes)
        room_for = size + 1024
        self.size = size
        self.where: Ints = np.zeros(room_for, dtype=np.int64)
        self.begins: Floats = np.full(room_for, math.inf)
        self.lasts: Floats = np.full(room_for, math.inf)
        self.falls: Floats = np.full(room_for, math.inf)
        self.room: Ints = np.full((columns.rows, room_for), -1, dtype=np.int64)
        self.where[slots] = where
        self.begins[slots] = begins
        self.lasts[slots[:-1]] = np.where(where[1:] == where[:-1], begins[1:], math.inf)
        self.room[:, slots] = room
        # Of steps with one beginning only the last one holds; the others are no steps.
        double = slots[self.lasts[slots] == self.begins[slots]]
        self.lasts[double] = -math.inf
        starts = heads + np.arange(len(nodes))
        #: Of each column the first slot, slots, and how many are in use.
        self.heads: Ints = np.zeros(columns.size, dtype=np.int64)
        self.given: Ints = np.zeros(columns.size, dtype=np.int64)
        self.used: Ints = np.zeros(columns.size, dtype=np.int64)
        self.heads[nodes], self.given[nodes], self.used[nodes] = starts, numbers + 1, numbers
        #: Slots that nodes gave up.
        self.lost = 0
        #: How often the arrays were others.
        self.version = 0

    def replace(self, changed: Sequence[tuple[int, Steps]]) -> None:
        """The time of these columns has changed."""
        dead: list[int] = []
        slots: list[int] = []
        where: list[int] = []
        times: list[float] = []
        lasts: list[float] = []
        falls: list[float] = []
        rooms: list[list[int]] = []
        places = [at for at, _ in changed]
        spans = [span[places].tolist() for span in (self.heads, self.given, self.used)]
        heads: list[int] = []
        for (at, steps), head, given, used in zip(changed, *spans, strict=True):
            count = len(steps.times)
            if count >= given:
                dead += range(head, head + used)
                self.lost += given
                head, self.given[at] = self.size, count + 1
                self.size += count + 1
            elif used > count:
                dead += range(head + count, head + used)
            heads.append(head)
            slots += range(head, head + count)
            where += [at] * count
            times += steps.times
            lasts += steps.times[1:]
            lasts.append(math.inf)
            falls += _falls(steps)
            rooms += steps.rooms
        self.heads[places] = heads
        self.used[places] = [len(steps.times) for _, steps in changed]
        if self.size > len(self.begins):
            self.grow()
        if dead:
            self.room[CPUS, dead] = -1
            self.begins[dead] = math.inf
        self.where[slots] = where
        self.begins[slots] = times
        self.lasts[slots] = lasts
        self.falls[slots] = falls
        self.room[:, slots] = np.array(rooms, dtype=np.int64).T
        self.tidy()

    def least(self, places: Sequence[int], end: float) -> Ints:
        """The least room of each of these columns from now to `end`, one column each."""
        at = np.array(places, dtype=np.int64)
        heads, used = self.heads[at], self.used[at]
        first = used.cumsum() - used
        slots = np.repeat(heads - first, used) + np.arange(int(used.sum()))
        room = self.room[:, slots]
        room[:, self.begins[slots] >= end] = np.iinfo(np.int64).max
        return np.asarray(np.minimum.reduceat(room, first, axis=1))

    def grow(self) -> None:
        """More slots."""
        more = max(0, self.size - len(self.begins)) + self.size // 2 + 1024
        self.where = np.append(self.where, np.zeros(more, dtype=np.int64))
        for name in ("begins", "lasts", "falls"):
            setattr(self, name, np.append(getattr(self, name), np.full(more, math.inf)))
        blank = np.full((self.columns.rows, more), -1, dtype=np.int64)
        self.room = np.concatenate([self.room, blank], axis=1)
        self.version += 1

    def tidy(self) -> None:
        """Leave out the slots that nodes gave up, if they are many."""
        if self.lost <= self.size // _LOST:
            return
        nodes = self.given.nonzero()[0]
        heads, given = self.heads[nodes], self.given[nodes]
        after = np.cumsum(given) - given
        keep = np.repeat(heads - after, given) + np.arange(int(given.sum()))
        self.heads[nodes] = after
        self.where = self.where[keep]
        for name in ("begins", "lasts", "falls"):
            setattr(self, name, getattr(self, name)[keep])
        # A row's numbers stay next to each other.
        self.room = self.room.take(keep, axis=1)
        self.version += 1
        self.size = len(keep)
        self.lost = 0


def _ends(columns: Columns, nodes: Ints, now: float, overdue: float) -> tuple[Ints, Floats, Ints]:
    """(column, when, what becomes free) of all that runs; what is free now comes first."""
    at: list[int] = nodes.tolist()
    ends: list[float] = [now] * len(at)
    cpus: list[int] = []
    memories: list[int] = []
    kinds: list[tuple[int, int, int]] = []
    layered: list[tuple[int, Layer]] = []
    for place in at[:]:
        if columns.views[place].layers:
            layers = enumerate(columns.views[place].layers, len(at))
            layered += [(number, layer) for number, layer in layers if layer is not None]
        for end, own_cpus, memory, gres in columns.views[place].running:
            if gres:
                kinds += [(len(at), columns.kinds[key], n) for key, n in gres.items() if key in columns.kinds]
            at.append(place)
            ends.append(FOREVER if end is None or end == math.inf else max(end, now + overdue))
            cpus.append(own_cpus)
            memories.append(memory)
    first = len(nodes)
    change = np.zeros((columns.rows, len(at)), dtype=np.int64)
    change[:, :first] = columns.free[:, nodes]
    change[CPUS, first:] = cpus
    change[MEMORY, first:] = memories
    change[EMPTY, first:] = 1
    for place, row, count in kinds:
        change[row, place] += count
    if columns.layers is not None:
        columns.layers.mark_all(change, first, layered)
    for row, types in columns.parts.items():
        change[row, first:] = change[list(types), first:].sum(axis=0)
    return np.array(at, dtype=np.int64), np.array(ends, dtype=np.float64), change


def _falls(steps: Steps) -> list[float]:
    """Of each step when less is free the next time."""
    times, rooms = steps
    fall = math.inf
    found = []
    for place in range(len(times) - 1, -1, -1):
        found.append(fall)
        if place and any(map(lt, rooms[place], rooms[place - 1])):
            fall = times[place]
    found.reverse()
    return found
