"""The cluster during one pass: nodes as columns, their time ahead, and the pools that classes of jobs use."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from spur_core.grammar import features
from spur_core.grammar.hostlist import natural_key
from spur_sched.api import JobView, NodeView, PartitionView, Running, Window
from spur_sched.columns import CPUS, Bools, Columns, Ints
from spur_sched.demand import Demand
from spur_sched.kept import Closed, Kept
from spur_sched.need import Need, cores_of
from spur_sched.rules import Class, constraint_trees
from spur_sched.sharing import Sharing
from spur_sched.spread import Count
from spur_sched.timeline import Timeline
from spur_sched.topology.tree import Topology

#: Full nodes are dropped from a pool when so many have become full since it was last looked through.
_REFRESH = 32


class Pool:
    """The nodes of one partition that a class of jobs may use, for one alternative of its constraint.

    Attributes:
        member: columns that may be used once they have room.
        named: columns that the class allows, in service or not.
        all, up: how many nodes of each make there are, and how many of them are in service.
    """

    def __init__(self, ground: "Ground", named: Bools) -> None:
        self._ground = ground
        columns = ground.columns
        self.named = named
        self.member: Bools = named & ground.usable
        makes = len(columns.makes)
        self.all = np.bincount(columns.make_at[named], minlength=makes).tolist()
        self.up = np.bincount(columns.make_at[named & columns.schedulable], minlength=makes).tolist()
        #: Makes that are there: (make, how many, how many in service).
        self.present = [
            (make, number, up)
            for make, (number, up) in enumerate(zip(self.all, self.up, strict=True))
            if number
        ]
        self.all_up = self.all == self.up
        self._live: Ints = self.member.nonzero()[0]
        self._seen = -_REFRESH
        #: Most of each row that one node has free; never less than the truth.
        self.most: list[int] = []

    def live(self) -> Ints:
        """Columns with free CPUs, best first; some may have become full since."""
        ground = self._ground
        if ground.filled >= self._seen + _REFRESH:
            free = ground.columns.free
            self._live = live = self._live[free[CPUS][self._live] > 0]
            self.most = free[:, live].max(axis=1).tolist() if len(live) else [0] * len(free)
            self._seen = ground.filled
        return self._live


class Ground:
    """All nodes of the pass and the pools made from them so far."""

    def __init__(self, nodes: Iterable[NodeView], partitions: dict[str, PartitionView], now: float) -> None:
        self.columns = Columns(nodes, partitions)
        self.partitions = partitions
        self.now = now
        #: How often a node has become full in this pass.
        self.filled = 0
        self.network: Topology | None = None
        self._leaves: tuple[list[str], Ints] | None = None
        #: Some nodes never share a job, because nothing joins them.
        self.apart = False
        #: Room only shrinks during the pass.
        self.shrinks = True
        self._windows: Sequence[Window] = ()
        self._running: Sequence[Running] = ()
        self._members: dict[str, Bools] = {}
        self._pools: dict[tuple[str, str, tuple[int | None, ...]], list[tuple[features.Node, Pool]]] = {}
        self._places: dict[int, int] = {}
        self._demands: dict[Need, Demand] = {}
        self._makes: dict[Need, list[int]] = {}

    def keep(self, windows: Sequence[Window], running: Sequence[Running]) -> None:
        """What reservations keep; said before `build`."""
        self._windows, self._running = windows, running

    def connect(self, switches: Sequence[tuple[str, str]]) -> None:
        """The network, as `Policy.topology` has it; said before `build`."""
        self.network = Topology(dict(switches)) if switches else None

    def leaves(self) -> tuple[list[str], Ints]:
        """The leaf switches, and the place among them of each column's; -1 = none."""
        if self._leaves is None:
            known = self.network.by_level[0] if self.network is not None and self.network.parents else []
            places = {name: place for place, name in enumerate(known)}
            ids = [places.get(view.switch, -1) for view in self.columns.views]
            self._leaves = known, np.array(ids, dtype=np.int64)
        return self._leaves

    def switch_of(self, at: int) -> str:
        """The leaf switch of a column, "" = none."""
        return self.columns.views[at].switch

    def only(self, places: Iterable[int] | Ints) -> Bools:
        """These columns."""
        found: Bools = np.zeros(self.columns.size, dtype=np.bool_)
        found[places if isinstance(places, np.ndarray) else list(places)] = True
        return found

    def closed(self, reservation: str) -> Closed | None:
        """What is closed to jobs that name this reservation; None = nothing is to anybody."""
        return self.kept.of(reservation) if self.kept or reservation else None

    def share(self, queue: Iterable[JobView]) -> None:
        """Who may be beside whom, for the jobs of this queue."""
        self.sharing = Sharing(self.columns.views, self.partitions, queue)

    def build(self) -> Iterator[int]:
        """Make the columns, a piece at a time; yields the work of each."""
        yield from self.columns.build()
        columns = self.columns
        cooling = np.array([view.cooling for view in columns.views], dtype=np.bool_)
        self.usable: Bools = columns.schedulable & ~cooling
        self.timeline = Timeline(columns, self.now, self.usable, shrinks=self.shrinks)
        if self.network is not None:
            roots = sum(not above for above in self.network.parents.values())
            self.apart = roots > 1 or any(view.switch not in self.network.parents for view in columns.views)
        self.kept = Kept(columns, self._windows, self._running, self.now)
        yield columns.size

    def demand(self, need: Need) -> Demand:
        """The need against these columns."""
        found = self._demands.get(need)
        if found is None:
            found = self._demands[need] = Demand(need, self.columns)
        return found

    def places(self) -> dict[int, int]:
        """Where each column stands among all nodes in the order of their names."""
        if not self._places:
            views = self.columns.views
            order = sorted(range(len(views)), key=lambda at: natural_key(views[at].name))
            self._places = {at: place for place, at in enumerate(order)}
        return self._places

    def members(self, partition: str) -> Bools:
        """Columns of the partition."""
        found = self._members.get(partition)
        if found is None:
            names = self.partitions[partition].nodes
            found = self._members[partition] = np.array(
                [view.name in names for view in self.columns.views], dtype=np.bool_
            )
        return found

    def pools(self, wanted: Class) -> list[tuple[features.Node, Pool]]:
        """One pool for each alternative of the constraint; nodes excluded by name are still in it."""
        key = (wanted.partition, wanted.constraint, wanted.hardware)
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = [
                (tree, Pool(self, self._named(wanted, tree))) for tree in constraint_trees(wanted.constraint)
            ]
        return found

    def _named(self, wanted: Class, tree: features.Node) -> Bools:
        columns = self.columns
        named = self.members(wanted.partition)
        if wanted.constraint:
            fits = np.array([features.matches(tree, have) for have in columns.feature_sets], dtype=np.bool_)
            unknown = np.array([not columns.views[at].known for at in columns.makes], dtype=np.bool_)
            # Features of a node that never registered are not known.
            named = named & (fits[columns.feature_at] | unknown[columns.make_at])
        if wanted.hardware:
            does = np.array(
                [has_hardware(columns.views[at], wanted.hardware) for at in columns.makes], dtype=np.bool_
            )
            named = named & does[columns.make_at]
        return named

    def holds_empty(self, need: Need) -> list[int]:
        """Tasks that an empty node of each make holds; -1 = nobody knows the node yet."""
        found = self._makes.get(need)
        if found is None:
            demand, columns = self.demand(need), self.columns
            found = self._makes[need] = [
                demand.holds(at, room) if columns.views[at].known else -1
                for at, room in zip(columns.makes, columns.specimens, strict=True)
            ]
        return found

    def enough(self, pool: Pool, need: Need, count: Count, *, up_only: bool) -> bool:
        """Whether the pool's nodes, all empty, would do; with `up_only` only those in service."""
        nodes = tasks = 0
        holds = []
        held = self.holds_empty(need)
        for make, number, up in pool.present:
            each, number = held[make], up if up_only else number
            if number and (each >= count.each or each < 0):
                holds.append((each if each >= 0 else count.num_tasks, number))
                nodes += number
        if nodes < count.min_nodes:
            return False
        if not count.tasks_given:
            return True
        left = max(count.max_nodes, count.min_nodes)
        for each, number in sorted(holds, reverse=True):
            used = min(left, number)
            tasks += each * used
            left -= used
        return tasks >= count.num_tasks


def has_hardware(view: NodeView, hardware: tuple[int | None, ...]) -> bool:
    """Whether the node is of the make asked for: (CPUs, sockets, cores of a socket, threads, MiB on disk)."""
    if not view.known:
        return True
    cpus, sockets, cores, threads, disk = hardware
    if cpus and view.cpus < cpus:
        return False
    if sockets and view.sockets < sockets:
        return False
    if cores and (view.cores_per_socket or cores_of(view) // max(1, view.sockets)) < cores:
        return False
    if threads and view.threads_per_core < threads:
        return False
    return not disk or view.tmp_disk_mb >= disk
