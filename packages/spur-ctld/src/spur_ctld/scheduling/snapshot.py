"""What the scheduler sees: nodes, partitions and eligible jobs at one log index.

Node views are rebuilt only for nodes that something happened to since the last pass; everything handed out
is immutable, so that a plan may be made in another thread.
"""

import copy
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from spur_core.grammar.hostlist import natural_key
from spur_core.states import NodeAvail
from spur_ctld.scheduling import kept, running
from spur_ctld.scheduling.backlog import Backlog
from spur_ctld.scheduling.front import front, neighbours
from spur_ctld.scheduling.views import node_view, partition_view
from spur_ctld.site import Site
from spur_ctld.state.events import (
    ConfigChanged,
    Event,
    JobChanged,
    NodeChanged,
    ReservationChanged,
    RoomFreed,
)
from spur_ctld.state.pending import Place
from spur_ctld.state.records import Job, Node
from spur_sched.api import JobView, License, Limits, NodeView, PartitionView, Policy, Running, Window
from spur_sched.feasible import Fleet


class View:
    """A Snapshot, and what the loop has to know besides.

    Attributes:
        gated: (job id, reason, text) of jobs that something other than room holds back.
        never: jobs to be cancelled because their dependency can never hold.
        starts_matter: some job waits for another one to start.
    """

    def __init__(
        self,
        index: int,
        nodes: list[NodeView],
        partitions: dict[str, PartitionView],
        pending: list[JobView],
        gated: Sequence[tuple[int, str, str]] = (),
        never: Sequence[int] = (),
        starts_matter: bool = False,
    ) -> None:
        self.index = index
        self._nodes = nodes
        self._partitions = partitions
        self._pending = pending
        self.gated = gated
        self.never = never
        self.starts_matter = starts_matter
        self._policy = Policy()
        self._running: list[Running] = []
        self._windows: list[Window] = []
        self._licenses: dict[str, License] = {}
        #: Partitions that have nodes in common.
        self.near: dict[str, frozenset[str]] = {}
        self._order: list[Place] = []
        self._place_of: Mapping[int, Place] = {}
        #: What the loop counts, as it was then.
        self.changes = 0

    def nodes(self) -> list[NodeView]:
        return self._nodes

    def partitions(self) -> dict[str, PartitionView]:
        return self._partitions

    def pending(self) -> list[JobView]:
        return self._pending

    def policy(self) -> Policy:
        return self._policy

    def running(self) -> list[Running]:
        return self._running

    def windows(self) -> list[Window]:
        return self._windows

    def licenses(self) -> dict[str, License]:
        return self._licenses

    def limits(self) -> Limits | None:
        return None

    def _places(self, job_ids: Iterable[int]) -> list[int]:
        found = (self._place_of.get(job_id) for job_id in job_ids)
        return [bisect_left(self._order, place) for place in found if place is not None]

    def only(self, job: JobView) -> "View":
        """The same cluster with a queue of one."""
        return self._with([job])

    def front(self, depth: int, also: Collection[int]) -> "View":
        """The same cluster with what a quick pass looks at; nothing is said of the others.

        Args:
            also: job ids; else as `front` has it.
        """
        return self._with(front(self._pending, depth, self.near, self._places(also)))

    def over(self, nodes: list[NodeView]) -> "View":
        """Other nodes instead, without a queue."""
        other = self._with([])
        other._nodes = nodes
        return other

    def _with(self, pending: list[JobView]) -> "View":
        other = copy.copy(self)
        other._pending = pending
        other.gated, other.never, other.starts_matter = (), (), False
        return other


class SnapshotBuilder:
    """Builds views of the live state."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._views: dict[str, NodeView] = {}
        self._dirty: set[str] = set()
        self._all_dirty = True
        self._backlog = Backlog(site.ledger, site.priorities)
        self._partitions: tuple[object, dict[str, PartitionView]] = (None, {})
        self._near: dict[str, frozenset[str]] = {}
        self._attempts: running.Memo = {}
        self._network: tuple[object, Policy] = (None, Policy())
        self._able: Fleet | None = None
        #: What each node of it can do, and nodes that changed since.
        self._abilities: dict[str, object] = {}
        self._unsure: set[str] = set()
        site.ledger.subscribe(self._on_events)

    def stop(self) -> None:
        """Hear no more of changes; what was built is not used again."""
        self._site.ledger.unsubscribe(self._on_events)

    def _on_events(self, events: Sequence[Event]) -> None:
        state = self._site.ledger.state
        for event in events:
            if isinstance(event, JobChanged):
                job = state.jobs.get(event.job_id)
                if job is not None:
                    self._dirty.update(part.node for part in job.slices)
            elif isinstance(event, ReservationChanged):
                inside = (job for job in map(state.jobs.get, state.active) if job is not None)
                self._dirty.update(
                    part.node for job in inside if job.reservation == event.name for part in job.slices
                )
            elif isinstance(event, RoomFreed):
                self._dirty.update(event.nodes)
            elif isinstance(event, NodeChanged):
                self._dirty.add(event.name)
                self._unsure.add(event.name)
            elif isinstance(event, ConfigChanged):
                self._all_dirty = True
                self._able = None

    def able(self) -> Fleet:
        """What the nodes could do if they were all up and empty; kept for as long as that stays the same."""
        nodes = self._site.ledger.state.nodes
        if self._network[0] is not self._site.network.shape() or any(
            self._abilities.get(name) != _ability(nodes.get(name)) for name in self._unsure
        ):
            self._able = None
        self._unsure.clear()
        if self._able is None:
            view = self.fleet()
            self._able = Fleet(view.nodes(), view.partitions(), view.policy().topology)
            self._abilities = {name: _ability(node) for name, node in nodes.items()}
        return self._able

    def fleet(self, cooling: frozenset[str] = frozenset()) -> View:
        """Nodes and partitions alone, for what has nothing to do with time or with what runs."""
        state = self._site.ledger.state
        network = self._site.network.shape()
        if self._network[0] is not network:
            above = tuple(network.topology.parents.items())
            self._network = (network, self._site.settings.policy._replace(topology=above))
            self._all_dirty = True
            self._able = None
        if self._all_dirty:
            self._views.clear()
            self._dirty = set(state.nodes)
            self._all_dirty = False
        new = not self._dirty <= self._views.keys()
        for name in self._dirty:
            node = state.nodes.get(name)
            if node is None:
                self._views.pop(name, None)
            else:
                self._views[name] = node_view(state, node)._replace(switch=network.leaves.get(name, ""))
        self._dirty.clear()
        if new:
            # Among equals nodes are used in the order of their names, by every leader.
            self._views = {name: self._views[name] for name in sorted(self._views, key=natural_key)}
        nodes = list(self._views.values())
        if cooling:
            nodes = [view._replace(schedulable=False) if view.name in cooling else view for view in nodes]
        known = self._site.catalog.partitions()
        if self._partitions[0] is not known:
            self._partitions = (known, {name: partition_view(p) for name, p in known.items()})
            self._near = neighbours(self._partitions[1])
        view = View(state.applied, nodes, self._partitions[1], [])
        view.near = self._near
        view._policy = self._network[1]
        return view

    def cluster(self, cooling: frozenset[str] = frozenset()) -> View:
        """Everything but a queue."""
        state = self._site.ledger.state
        view = self.fleet(cooling)
        now = self._site.clock()
        view._windows = kept.windows_of(state, now, view.policy().bf_window)
        view._licenses = kept.licenses_of(state, now)
        if view._windows or view._licenses or view.policy().preempt_type != "none":
            # Else nodes say all that matters of what runs on them.
            rules = running.Rules(self._site.settings.preempt_exempt_secs, self._site.priorities.of)
            view._running = running.running_views(state, self._attempts, rules)
        return view

    def asks_otherwise(self, job: Job) -> bool:
        """Whether the job asks for something else than it did when the queue was looked at last."""
        return self._backlog.asks_otherwise(job)

    def catch_up(self, now: float) -> Iterator[None]:
        """Look at what changed in the queue, before `build`; others may run whenever this yields."""
        if self._site.ledger.state.pending:
            self._site.priorities.refresh()
            yield from self._backlog.catch_up(now)

    def build(self, now: float, cooling: frozenset[str] = frozenset()) -> View:
        """Everything a pass needs, in one go.

        Args:
            cooling: nodes that refused work a moment ago and are left alone, unless a job names them.
        """
        if not self._site.ledger.state.pending:
            return self.cluster(cooling)
        queue = self._backlog.queue(now)
        if cooling:
            cooling -= {name for job in queue.views for name in job.nodelist}
        view = self.cluster(cooling)._with(queue.views)
        # These are of this very moment: `front` is asked at once.
        view._order, view._place_of = self._backlog.order, self._backlog.places
        view.gated, view.never, view.starts_matter = queue.gated, queue.never, queue.starts_matter
        return view


def _ability(node: Node | None) -> object:
    """What of a node decides what could run on it."""
    if node is None:
        return None
    return (
        *(node.cpus, node.memory_mb, node.gres, node.tmp_disk_mb),
        *(node.sockets, node.cores_per_socket, node.threads_per_core),
        *(node.features, node.labels, node.avail is NodeAvail.UNKNOWN),
    )
