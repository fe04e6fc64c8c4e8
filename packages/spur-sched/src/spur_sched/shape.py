"""What one partition is asked for, and where it finds room now.  Jobs with equal shapes fit or fail alike.

Room only shrinks during a pass: where a shape found nothing, an equal one finds nothing, nor one that asks
for at least as much (`bounds.Failures`); and a shape that goes to one node at a time never looks back.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from spur_core.grammar import features
from spur_sched import kernel
from spur_sched.api import GresMap
from spur_sched.bounds import Failures
from spur_sched.columns import CPUS, MEMORY, Bools, Ints, Vector
from spur_sched.compiled import TOO_MUCH, UNKNOWN, picked_by
from spur_sched.counted import choose_counted, with_features
from spur_sched.demand import Demand
from spur_sched.fits import Fits, greatest
from spur_sched.ground import Ground, Pool
from spur_sched.need import MANY
from spur_sched.rules import Class, Why
from spur_sched.sharing import capped
from spur_sched.spread import Count, Offer, Rule, choose, in_a_row, rows
from spur_sched.topology.picking import Groups, pick, pick_of

_NOTHING: Final[GresMap] = {}
#: (feature, nodes that must have it).
Wants = Sequence[tuple[str, int]]
#: The least room of a column for the job's time.
Room = Callable[[int], list[int]]
#: So many nodes are quicker looked at one by one.
_FEW: Final = 8
_NOBODY: Final[Ints] = np.zeros(0, dtype=np.int64)


class Share(NamedTuple):
    """One node's part: its column, tasks, CPUs, MiB, gres, and the same as a vector."""

    at: int
    tasks: int
    cpus: int
    memory_mb: int
    gres: GresMap
    vector: Vector


class Shape:
    """A request against one partition, for one time limit.

    Attributes:
        secs: how long it runs at most; inf = no limit.
        failed: no room now for the rest of the pass.
        missing: why the partition's nodes would not do even if all were free.
        searched: no earlier start than this exists.
    """

    __slots__ = (
        "_each",
        "_excluded",
        "_fits",
        "_found",
        "_queues",
        "ask",
        "counts",
        "demand",
        "failed",
        "failures",
        "ground",
        "missing",
        "networked",
        "picky",
        "pools",
        "required",
        "restricted",
        "searched",
        "secs",
        "uncovered",
        "wanted",
    )

    def __init__(self, ground: Ground, wanted: Class, demand: Demand, counts: Count, secs: float) -> None:
        self.ground = ground
        self.wanted = wanted
        self.demand = demand
        self.counts = counts
        self.secs = secs
        self.failed = False
        #: Its sizes, to be compared with those of others.
        self.ask: tuple[tuple[object, ...], tuple[float, ...]] | None = None
        #: The pools and the failures that concern it, once they were asked for.
        self.pools: list[tuple[features.Node, Pool]] | None = None
        self.failures: Failures | None = None
        self.missing: Why | None = None
        self.searched = -math.inf
        at = ground.columns.at
        #: None = a node of the list does not exist.
        self.required: frozenset[int] | None = None
        if wanted.nodelist <= at.keys():
            self.required = frozenset(at[name] for name in wanted.nodelist)
        self._excluded = _NOBODY
        if wanted.exclude:
            self._excluded = np.array([at[name] for name in wanted.exclude if name in at], dtype=np.int64)
        closed = ground.closed(wanted.reservation)
        self.restricted = ground.sharing.restricts(wanted) or bool(closed is not None and closed.parts)
        self.picky = bool(
            wanted.nodelist
            or (wanted.constraint and "*" in wanted.constraint)
            or demand.total
            or wanted.contiguous
            or wanted.by_load
            or counts.spread
            or counts.fewest
            or self.restricted
        )
        #: On which switches its nodes are matters.
        self.networked = ground.network is not None and counts.max_nodes > 1
        self._each = -1
        #: Of each alternative of the constraint: the nodes that may hold all of it, the best last.
        self._queues: dict[int, list[int]] = {}
        #: So many failures of others did not cover it.
        self.uncovered = 0
        #: It was looked for room before; what was found then.
        self._found = False
        self._fits: dict[int, Fits] = {}

    # -- whether it could ever run

    def could(
        self, pool: Pool, tree: features.Node, *, up_only: bool, within: Mapping[int, int] | None = None
    ) -> bool:
        """Whether the pool's nodes, all empty, would do; with `up_only` only those in service.

        Args:
            within: the only columns, and how many CPUs of each.
        """
        ground, count = self.ground, self.counts
        if any(number < count.min_nodes for number in self.demand.total.values()):
            # At least one on each node.
            return False
        if not self.demand.possible and not any(
            not ground.columns.views[at].known for at in ground.columns.makes
        ):
            return False
        plain = not self.picky and not len(self._excluded) and not (self.networked and ground.apart)
        if plain and within is None:
            return ground.enough(pool, self.demand.need, count, up_only=up_only)
        columns = ground.columns
        named = self._allowed(pool.named)
        if up_only:
            named = named & columns.schedulable
        if within is not None:
            named = named & ground.only(within)
        holds = np.array(ground.holds_empty(self.demand.need), dtype=np.int64)
        holds[holds < 0] = count.num_tasks
        nodes = named.nonzero()[0]
        tasks = holds[columns.make_at[nodes]]
        able = tasks >= max(1, count.each)
        nodes, tasks = nodes[able], tasks[able]
        if self.wanted.most_cpus is not None or within is not None:
            most = {} if within is None else within
            rooms = columns.total[:, nodes].T.tolist()
            tasks = np.array(
                [
                    min(held, self.demand.holds(at, capped(self.wanted, room, most.get(at))))
                    if columns.views[at].known
                    else held
                    for at, held, room in zip(nodes.tolist(), tasks.tolist(), rooms, strict=True)
                ],
                dtype=np.int64,
            )
            able = tasks >= max(1, count.each)
            nodes, tasks = nodes[able], tasks[able]
        offers = self._offers(nodes.tolist(), tasks.tolist())
        if offers is None:
            return False
        if self.demand.total and not self._total_there(nodes, count.max_nodes):
            return False
        return self._choose(offers, math.inf, features.counts(tree)) is not None

    def _total_there(self, nodes: Ints, most: int) -> bool:
        """Whether the nodes named and the roomiest others have the number asked for the whole job."""
        columns = self.ground.columns
        if any(not columns.views[at].known for at in nodes.tolist()):
            return True
        named = np.isin(nodes, list(self.required or ()))
        first, others = nodes[named], nodes[~named]
        more = max(0, most - len(first))
        return all(
            columns.total[row][first].sum() + np.sort(columns.total[row][others])[::-1][:more].sum() >= number
            for row, number in self.demand.total.items()
        )

    def _allowed(self, named: Bools) -> Bools:
        if not len(self._excluded):
            return named
        allowed = named.copy()
        allowed[self._excluded] = False
        return allowed

    def member(self, pool: Pool) -> Bools:
        """Columns that may be used once they have room."""
        allowed = self._allowed(pool.member)
        closed = self.ground.closed(self.wanted.reservation)
        return allowed if closed is None else allowed & closed.open

    def each(self) -> int:
        """With fewer tasks than this on one of its nodes the others could never hold the rest."""
        if self._each < 0:
            count = self.counts
            self._each = count.each
            if count.tasks_given:
                most = min(count.max_nodes, count.num_tasks)
                held = max((0, *self.ground.holds_empty(self.demand.need)))
                self._each = max(1, count.num_tasks - (most - 1) * held)
        return self._each

    # -- room now

    def hopeless(self, pool: Pool) -> bool:
        """Whether no node has even the room for one task."""
        live = pool.live()
        most = pool.most
        return not len(live) or any(most[row] < number for row, number in self.demand.least)

    def find(self, pool: Pool, tree: features.Node, now: float) -> list[tuple[int, int]] | None:
        """(column, tasks) of the nodes to start on now, or None."""
        count, ground = self.counts, self.ground
        live = pool.live()
        end = now + self.secs
        if len(self._excluded):
            live = live[~np.isin(live, self._excluded)]
        closed = ground.closed(self.wanted.reservation)
        if closed is not None:
            live = live[closed.until[live] >= end]
        if not self.picky and count.min_nodes == 1 and (count.tasks_given or count.max_nodes == 1):
            found = self._find_one(pool, live, end)
            if found is not None or count.max_nodes == 1 or count.num_tasks == 1:
                return found
        if not self._found or not ground.shrinks:
            where, tasks = self._room(live, end)
        else:
            # Not for the first time: who had room is known.
            fits = self._fits.get(id(pool))
            if fits is None:
                fits = self._fits[id(pool)] = Fits(ground.only(live))
            where, tasks = fits.now(ground.timeline.touched, lambda places: self._room(places, end))
        self._found = True
        if len(where) < count.min_nodes:
            return None
        if self.restricted:
            where, tasks = self.beside(where, tasks)
        if len(where) < count.min_nodes:
            return None
        if self.networked and not self.picky:
            return self._near(where, tasks, now)
        if self.picky:
            return self.pick(where.tolist(), tasks.tolist(), tree, self._now_room(end), now)
        return _pick(count, where, tasks)

    def _room(self, live: Ints, end: float) -> tuple[Ints, Ints]:
        """Of these columns those that hold enough until `end`, and tasks for each."""
        demand, each, free = self.demand, self.each(), self.ground.columns.free
        where = live[demand.fitting(live, lambda row: free[row][live], each)]
        if self.ground.timeline.promises:
            where, tasks = self._until(where, end)
        else:
            tasks = demand.tasks(where, lambda row: free[row][where])
        good = tasks >= each
        return (where, tasks) if good.all() else (where[good], tasks[good])

    def _find_one(self, pool: Pool, live: Ints, end: float) -> list[tuple[int, int]] | None:
        """The first node that holds everything.  Room only shrinks, so who has room is worked out once, and
        what lies before the node of the last time is never looked at again."""
        demand, count = self.demand, self.counts
        least = count.num_tasks if count.tasks_given else count.each
        if least > demand.need.tasks_per_node:
            return None
        timeline = self.ground.timeline
        queue = self._queues.get(id(pool))
        if queue is None:
            queue = self._queues[id(pool)] = self._one_by_one(live, end, least)
            # Taken from the end.
            queue.reverse()
        while queue:
            at = queue[-1]
            if demand.holds(at, timeline.room_now(at, end)) >= least:
                return [(at, least)]
            queue.pop()
        return None

    def _one_by_one(self, live: Ints, end: float, least: int) -> list[int]:
        """Columns that may hold everything, best first."""
        demand, timeline, free = self.demand, self.ground.timeline, self.ground.columns.free
        found = live[demand.fitting(live, lambda row: free[row][live], least)]
        if timeline.promises and len(found) > _FEW:
            over = timeline.promised[found] & (timeline.first[found] < end)
            low = timeline.low
            fits = np.zeros(len(found), dtype=np.bool_)
            fits[demand.fitting(found, lambda row: low[row][found], least)] = True
            # Beside all promises of a node is exact when all of them begin before the end.
            found = found[~over | fits | (timeline.last[found] >= end)]
        columns: list[int] = found.tolist()
        return columns

    def _until(self, where: Ints, end: float) -> tuple[Ints, Ints]:
        """The nodes that have room until `end` beside the promises, and tasks for each."""
        demand = self.demand
        timeline, free = self.ground.timeline, self.ground.columns.free
        over = timeline.promised[where] & (timeline.first[where] < end)
        if not over.any():
            return where, demand.tasks(where, lambda row: free[row][where])
        low = timeline.low
        # Beside all promises of a node is always right, and exact when all of them begin before the end.
        tasks = np.zeros(len(where), dtype=np.int64)
        plain = (~over).nonzero()[0]
        mine = where[plain]
        tasks[plain] = demand.tasks(mine, lambda row: free[row][mine])
        tight = over.nonzero()[0]
        mine = where[tight]
        fits = demand.fitting(mine, lambda row: low[row][mine], self.each())
        good = tight[fits]
        mine = where[good]
        tasks[good] = demand.tasks(mine, lambda row: low[row][mine])
        unsure = tight[timeline.last[where[tight]] >= end]
        if len(unsure) > _FEW and not self.ground.columns.parts:
            mine = where[unsure]
            room = timeline.rows().least(mine.tolist(), end)
            fits = demand.fitting(mine, room.__getitem__, self.each())
            good = unsure[fits]
            tasks[unsure] = 0
            tasks[good] = demand.tasks(mine[fits], lambda row: room[row][fits])
            return where, tasks
        for place, at in zip(unsure.tolist(), where[unsure].tolist(), strict=True):
            least, _ = timeline.window(at, self.ground.now, end)
            tasks[place] = demand.holds(at, least)
        return where, tasks

    def beside(self, where: Ints, tasks: Ints) -> tuple[Ints, Ints]:
        """The nodes whose users and whose other jobs of the partition leave room, and tasks for each."""
        ground, wanted = self.ground, self.wanted
        sharing, free = ground.sharing, ground.columns.free
        found = []
        for at, held in zip(where.tolist(), tasks.tolist(), strict=True):
            if not sharing.allowed(wanted, at):
                continue
            room = free[:, at].tolist()
            left = sharing.left(wanted, at, room[CPUS])
            clipped = ground.kept.clip(wanted.reservation, at, room, ground.now, ground.now + self.secs)
            left = min(left, clipped[CPUS])
            if left < room[CPUS]:
                held = min(held, self.demand.holds(at, [left, *clipped[CPUS + 1 :]]))
            if held >= max(1, self.counts.each):
                found.append((at, held))
        return (
            np.array([at for at, _ in found], dtype=np.int64),
            np.array([held for _, held in found], dtype=np.int64),
        )

    def _now_room(self, end: float) -> Room:
        return lambda at: self.ground.timeline.window(at, self.ground.now, end)[0]

    # -- choosing

    def _offers(self, nodes: list[int], tasks: list[int]) -> list[Offer] | None:
        required = self.required
        if required is None:
            return None
        offers = [Offer(at, held, at in required) for at, held in zip(nodes, tasks, strict=True)]
        if sum(offer.required for offer in offers) < len(required):
            return None
        return offers

    @property
    def plain(self) -> Callable[[Ints, Ints], list[tuple[int, int]] | None] | None:
        """The choice among columns and their tasks, if nothing but these decides."""
        if self.picky or self.networked:
            return None
        return partial(_pick, self.counts)

    def pick_later(
        self, active: dict[int, int], tree: features.Node, room: Room, start: float
    ) -> list[tuple[int, int]] | None:
        """The choice among nodes (column -> tasks) at a later instant."""
        nodes = sorted(active)
        tasks = [active[at] for at in nodes]
        if self.picky:
            return self.pick(nodes, tasks, tree, room, start)
        where, held = np.array(nodes, dtype=np.int64), np.array(tasks, dtype=np.int64)
        return self.pick_plain(where, held, start)

    def pick_plain(self, where: Ints, tasks: Ints, start: float) -> list[tuple[int, int]] | None:
        """The choice among many nodes, for a job that is not `picky`."""
        if len(where) < self.counts.min_nodes:
            return None
        return self._near(where, tasks, start) if self.networked else _pick(self.counts, where, tasks)

    def pick(
        self,
        nodes: list[int],
        tasks: list[int],
        tree: features.Node,
        room: Room,
        start: float,
    ) -> list[tuple[int, int]] | None:
        """The choice among nodes that hold so many tasks, in order of preference."""
        offers = self._offers(nodes, tasks)
        if offers is None:
            return None
        wants = features.counts(tree)
        if self.demand.total:
            marked = self._covered(offers, wants)
            return None if marked is None else self._pick_total(marked, room)
        return self._choose(offers, start, wants)

    def _features(self, at: int) -> frozenset[str]:
        return self.ground.columns.views[at].features

    def _covered(self, offers: list[Offer], wants: Wants) -> list[Offer] | None:
        """The offers with the fewest marked by which so many nodes have each feature."""
        if not wants:
            return offers
        return with_features(self.counts._replace(tasks_given=False, each=1), offers, self._features, wants)

    def _choose(self, offers: list[Offer], start: float, wants: Wants) -> list[tuple[int, int]] | None:
        """The choice among offers, in the order and the row that the job or its partition wants."""
        rule: Rule = partial(choose_counted, names=self._features, wants=wants) if wants else choose
        if self.wanted.contiguous:
            return in_a_row(self.counts, offers, self.ground.places(), rule)
        if self.wanted.by_load:
            offers = sorted(offers, key=lambda offer: self._load(offer.at))
        if self.networked and self.ground.network is not None:
            # All nodes are fixed only where the fewest that have the features leave no choice.
            marked = self._covered(offers, wants)
            found = None if marked is None else self._on_switches(marked, start)
            if found is not None or not wants:
                return found
            marked = with_features(self.counts, offers, self._features, wants)
            return None if marked is None else self._on_switches(marked, start)
        return rule(self.counts, offers)

    def _on_switches(self, offers: list[Offer], start: float) -> list[tuple[int, int]] | None:
        network = self.ground.network
        assert network is not None
        near = pick(network, offers, self.ground.switch_of, self.counts, self._most_switches(start))
        return None if near is None else choose(self.counts, near)

    def _most_switches(self, start: float) -> int | None:
        switches = self.wanted.switches
        if switches is None or (switches[1] is not None and start >= switches[1]):
            return None
        return switches[0]

    def _near(self, where: Ints, tasks: Ints, start: float) -> list[tuple[int, int]] | None:
        """The choice among many nodes of which none is special but by its switch."""
        network = self.ground.network
        assert network is not None
        leaves, ids = self.ground.leaves()
        groups = Groups.of_columns(leaves, ids[where], where, tasks)
        near = pick_of(network, groups, self.counts, self._most_switches(start))
        return None if near is None else choose(self.counts, near)

    def _load(self, at: int) -> int:
        columns = self.ground.columns
        load = int(columns.total[CPUS, at] - columns.free[CPUS, at])
        if columns.layers is not None:
            rows = list(columns.layers.row_of.values())
            load += int(columns.total[rows, at].sum() - columns.free[rows, at].sum())
        return load

    def _pick_total(self, offers: list[Offer], room: Room) -> list[tuple[int, int]] | None:
        """Of a job that asks for a number in all: the fewest of the nodes with most of it free."""
        count = self.counts
        most = min(count.max_nodes, len(offers), min(self.demand.total.values()))
        if count.tasks_given:
            most = min(most, count.num_tasks)
        free = {offer.at: self.gpus_free(offer.at, room(offer.at)) for offer in offers}
        order = sorted(offers, key=lambda o: (not o.required, -min(free[o.at].values()), -o.tasks, o.at))
        least = max(count.min_nodes, sum(offer.required for offer in offers))
        sizes = range(least, most + 1)
        for size in sizes[::-1] if count.spread else sizes:
            for chosen in self._rows(order, size):
                if all(
                    sum(free[offer.at][row] for offer in chosen) >= number
                    for row, number in self.demand.total.items()
                ):
                    picked = sorted(chosen, key=lambda offer: offer.at)
                    exact = count._replace(min_nodes=max(size, count.min_nodes), max_nodes=size)
                    found = choose(exact, picked)
                    if found is not None and len(found) == size:
                        return found
        return None

    def _rows(self, order: list[Offer], size: int) -> Iterable[Sequence[Offer]]:
        """The first ones, or those that stand in a row."""
        if not self.wanted.contiguous:
            return (order[:size],)
        places = self.ground.places()
        return rows(sorted(order, key=lambda offer: places[offer.at]), places, size)

    def gpus_free(self, at: int, room: list[int]) -> dict[int, int]:
        """How much of the job's total a node can give, by row."""
        need = self.demand.need
        most = MANY
        if need.cpus_per_gpu:
            most = min(most, room[self.demand.cpu_row] // need.cpus_per_gpu)
        if need.memory_per_gpu_mb:
            most = min(most, room[MEMORY] // need.memory_per_gpu_mb)
        return {row: min(room[row], most) for row in self.demand.total}

    # -- what is taken

    def shares(self, chosen: list[tuple[int, int]], room: Room) -> list[Share]:
        """What the job takes on each of the chosen nodes."""
        demand = self.demand
        if demand.regular:
            same = {tasks: demand.regularly(tasks) for _, tasks in chosen}
            return [Share(at, tasks, *same[tasks]) for at, tasks in chosen]
        parts = self._divide(chosen, room) if demand.total else [_NOTHING] * len(chosen)
        found = []
        for (at, tasks), part in zip(chosen, parts, strict=True):
            cpus, memory, gres = demand.take(at, room(at), tasks, part)
            found.append(Share(at, tasks, cpus, memory, gres, demand.vector(cpus, memory, gres)))
        return found

    def _divide(self, chosen: list[tuple[int, int]], room: Room) -> list[GresMap]:
        """A total over the nodes, as Slurm does: those with most free give all they can, and leave at least
        one for each later one."""
        parts: list[GresMap] = [{} for _ in chosen]
        for name, kind, number in self.demand.need.gres_total:
            row = self.ground.columns.kinds[name, kind] if kind else self.ground.columns.names[name]
            free = [self.gpus_free(at, room(at))[row] for at, _ in chosen]
            left = number
            order = sorted(range(len(chosen)), key=lambda place: -free[place])
            for done, place in enumerate(order):
                part = min(free[place], left - (len(order) - done - 1))
                parts[place][name, kind] = part
                left -= part
        return parts


def longest(shape: Shape, chosen: list[tuple[int, int]], now: float, least: float, most: float) -> float:
    """For how many seconds, up to `most`, the nodes hold what they hold for `least`."""
    if shape.demand.total:
        return least
    timeline, demand = shape.ground.timeline, shape.demand
    ends = {now + most}
    for at, _ in chosen:
        ends.update(instant for instant in timeline.steps(at).times if now + least < instant < now + most)
    for end in sorted(ends, reverse=True):
        if all(demand.holds(at, timeline.window(at, now, end)[0]) >= tasks for at, tasks in chosen):
            return end - now
    return least


def _pick(count: Count, where: Ints, tasks: Ints) -> list[tuple[int, int]] | None:
    """`spread.choose` for many nodes of which none is special."""
    if not count.tasks_given:
        picked = where[: count.max_nodes].tolist()
        return [(at, count.each) for at in picked]
    most = min(count.max_nodes, count.num_tasks, len(where))
    least = count.min_nodes
    if least > most:
        return None
    library = kernel.library()
    if library is not None and count.num_tasks < TOO_MUCH:
        found = picked_by(library, count, most, where, tasks)
        if found is not UNKNOWN:
            return found
    if least == 1:
        enough = (tasks >= count.num_tasks).nonzero()[0]
        if len(enough):
            return [(int(where[enough[0]]), count.num_tasks)]
    chosen: Ints = np.arange(least)
    if int(tasks[:least].sum()) < count.num_tasks:
        # The biggest first, of equals the first.
        order = np.sort(greatest(tasks, most)) if len(tasks) > most else np.arange(most)
        biggest = tasks[order]
        if int(biggest.sum()) < count.num_tasks:
            return None
        if least < most:
            order = order[(-biggest).argsort(kind="stable")]
            held = tasks[order].cumsum()
            order = np.sort(order[: max(least, int((held < count.num_tasks).sum()) + 1)])
        chosen = order
    offers = [
        Offer(at, held) for at, held in zip(where[chosen].tolist(), tasks[chosen].tolist(), strict=True)
    ]
    exact = count._replace(min_nodes=count.min_nodes, max_nodes=len(offers))
    return choose(exact, offers)
