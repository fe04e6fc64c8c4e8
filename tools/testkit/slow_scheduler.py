"""The scheduler's rules once more, slow and obvious: a judge of plans.

Written from what the scheduler promises its users, not from its code: every set of nodes is tried, time is a
list of instants, there is nothing clever and nothing is remembered.  It walks the queue beside a plan.  Where
several choices are right it follows the plan's, after looking whether it is one of them; so it agrees with
every scheduler that keeps the rules, and with no other:

* a job starts now if, and only if, it can without touching what runs and what is promised before it;
* what waits and may be promised room is promised the earliest instant that there is;
* with a number of tasks the fewest nodes are taken, without one as many as may be; nobody gets a node
  of lower weight alone while one of higher weight would do;
* everybody else has a reason, and the right one.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from spur_core.grammar import features
from spur_core.grammar.hostlist import natural_key
from spur_sched.api import JobView, NodeShare, NodeView, PartitionView, Placement, Plan, Snapshot
from testkit.slow_amounts import (
    Wrong,
    amounts,
    claim,
    gres_fit,
    gres_pick,
    layout,
    limit,
    most_of,
    seen_in,
    ways,
)
from testkit.slow_magnets import draw_in

__all__ = ["Slow", "Wrong"]

#: Work past its end is gone so soon.
OVERDUE = 1.0
#: When work without a limit ends, after everything else; what it is promised to is there from then on.
FOREVER = 2.0**60


class Block(NamedTuple):
    """Something on a node for a while: [start, end).

    Work without a limit ends at FOREVER, so that somebody may be promised its room for then; what comes after
    such a promise may not count on that, and ends at inf.
    """

    node: str
    start: float
    end: float
    cpus: int
    memory: int
    gres: dict[tuple[str, str], int]
    jobs: int = 1
    #: (partition, which) of the layer of shared CPUs that these are of; None = of none.
    layer: tuple[str, int] | None = None


class Free(NamedTuple):
    """The least that is free on a node during a while."""

    cpus: int
    memory: float
    gres: dict[tuple[str, str], int]
    jobs: int


class Hold(NamedTuple):
    """Licences for a while."""

    name: str
    count: int
    start: float
    end: float


class Slow:
    """One pass."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self.now = now
        self.policy = snapshot.policy()
        self.queue = snapshot.pending()
        self.partitions = snapshot.partitions()
        self.windows = snapshot.windows()
        self.licenses = snapshot.licenses()
        #: In order of preference.
        self.nodes = {view.name: view for view in sorted(snapshot.nodes(), key=lambda view: -view.weight)}
        self.blocks = [
            Block(view.name, -math.inf, self._end(end), cpus, memory, gres, layer=layer)
            for view in self.nodes.values()
            for (end, cpus, memory, gres), layer in zip(
                view.running, view.layers or [None] * len(view.running), strict=True
            )
        ]
        self.holds = [
            Hold(name, count, -math.inf, self._end(one.end))
            for one in snapshot.running()
            for name, count in one.licenses
        ]
        #: Partitions in which somebody waits for room.
        self.waited: set[str] = set()
        self.promised = 0

    def _end(self, end: float | None) -> float:
        return FOREVER if end is None else max(end, self.now + OVERDUE)

    def until(self, job: JobView, start: float) -> float:
        """When the job ends at the latest if it starts then."""
        return math.inf if start == FOREVER else start + limit(job)

    # -- what is free

    def free(self, view: NodeView, start: float, end: float, part: PartitionView | None = None) -> Free:
        """The least of everything from `start` until `end`.

        Args:
            part: a layer of shared CPUs; None = CPUs that nobody shares.
        """
        mine = [block for block in self.blocks if block.node == view.name]
        instants = {start} | {block.start for block in mine if start < block.start < end}
        least = Free(view.cpus, view.memory_mb or math.inf, dict(view.gres), 0)
        for instant in instants:
            there = [block for block in mine if block.start <= instant < block.end]
            gres = {
                key: min(least.gres[key], count - sum(block.gres.get(key, 0) for block in there))
                for key, count in view.gres.items()
            }
            least = Free(
                min(least.cpus, _cpus_free(view, there, part)),
                min(least.memory, (view.memory_mb or math.inf) - sum(block.memory for block in there)),
                gres,
                max(least.jobs, sum(block.jobs for block in there)),
            )
        return least

    def licensed(self, job: JobView, start: float, end: float) -> bool:
        """Whether the licences are there for the whole time."""
        if not job.licenses:
            return True
        enough = [self._license(name, start, end) >= count for name, count in job.licenses]
        return any(enough) if job.licenses_any else all(enough)

    def _license(self, name: str, start: float, end: float) -> int:
        pool = self.licenses.get(name)
        if pool is None:
            return 0
        mine = [hold for hold in self.holds if hold.name == name]
        # Held by work that is not listed: for good.
        others = pool.used - sum(hold.count for hold in mine if hold.start == -math.inf)
        instants = {start} | {hold.start for hold in mine if start < hold.start < end}
        most = max(
            sum(hold.count for hold in mine if hold.start <= instant < hold.end) for instant in instants
        )
        return pool.total - pool.reserved - others - most

    # -- whether it fits

    def tasks_held(self, job: JobView, view: NodeView, free: Free) -> int:
        """How many tasks of the job a node with so much free holds, counted one at a time."""
        if job.exclusive and free.jobs:
            return 0
        if job.memory_per_node_mb is not None and (job.memory_per_node_mb or view.memory_mb) > free.memory:
            return 0
        if any(most_of(key, free.gres) < 1 for key in job.gres_total):
            return 0
        if (job.min_cpus or 0) > free.cpus:
            return 0
        tasks = 0
        while tasks < (job.tasks_per_node or 10**6):
            cpus = (tasks + 1) * job.cpus_per_task
            memory = 0
            if job.memory_per_node_mb is None:
                _, memory = amounts(job, view, tasks + 1)
            wanted = Counter(job.gres)
            for key, count in job.gres_per_task.items():
                wanted[key] += count * (tasks + 1)
            if cpus > free.cpus or memory > free.memory or not gres_fit(wanted, free.gres):
                break
            tasks += 1
            if tasks > 10**5:
                break
        return tasks

    def offers(
        self,
        job: JobView,
        part: PartitionView,
        start: float,
        end: float,
        *,
        empty: bool = False,
        up: bool = True,
    ) -> dict[str, int]:
        """Tasks that each usable node of the partition holds, those with none left out."""
        job = seen_in(job, part)
        found = {}
        for view in self.nodes.values():
            if view.name not in part.nodes or view.name in job.exclude or (up and not view.schedulable):
                continue
            if (job.tmp_disk_mb or 0) > view.tmp_disk_mb or (job.min_cpus or 0) > view.cpus:
                continue
            if not empty and not self._allowed(job, view, start, end):
                continue
            whole = Free(view.cpus, view.memory_mb or math.inf, view.gres, 0)
            tasks = self.tasks_held(job, view, whole if empty else self.free(view, start, end, _layer(part)))
            if tasks >= self._each(job):
                found[view.name] = tasks
        return found

    def _each(self, job: JobView) -> int:
        return 1 if job.tasks_given else job.tasks_per_node or 1

    def _allowed(self, job: JobView, view: NodeView, start: float, end: float) -> bool:
        """Whether reservations let the job onto the node for this time."""
        inside = False
        for window in self.windows:
            if view.name not in window.nodes:
                continue
            if window.name == job.reservation:
                inside = inside or (window.start <= start and end <= window.end)
            elif window.start < end and start < window.end:
                return False
        return inside or not job.reservation

    def sets(self, job: JobView, part: PartitionView, offers: dict[str, int]) -> Iterator[tuple[str, ...]]:
        """Sets of nodes that may be given, smallest first; of `[a|b]` those of the first that has any."""
        for tree in _alternatives(job.constraint):
            found = list(self._sets(job, part, offers, tree))
            if found:
                yield from found
                return

    def _sets(
        self, job: JobView, part: PartitionView, offers: dict[str, int], tree: "features.Node | None"
    ) -> Iterator[tuple[str, ...]]:
        most = max(job.max_nodes, job.min_nodes)
        if part.max_nodes is not None:
            most = min(most, part.max_nodes)
        least = max(1, job.min_nodes, len(job.nodelist))
        most = max(most, len(job.nodelist))
        if job.tasks_given:
            most = min(most, job.num_tasks)
        for size in range(least, most + 1):
            for chosen in combinations(offers, size):
                if not job.nodelist <= set(chosen):
                    continue
                if job.tasks_given and sum(offers[name] for name in chosen) < job.num_tasks:
                    continue
                if job.contiguous and not self._in_a_row(chosen):
                    continue
                if tree is None or self._featured(chosen, tree):
                    yield chosen

    def _in_a_row(self, chosen: Sequence[str]) -> bool:
        places = [sorted(self.nodes, key=natural_key).index(name) for name in chosen]
        return max(places) - min(places) == len(places) - 1

    def _featured(self, chosen: Sequence[str], tree: features.Node) -> bool:
        have = [self.nodes[name].features for name in chosen]
        return all(features.matches(tree, one) for one in have) and all(
            sum(name in one for one in have) >= count for name, count in features.counts(tree)
        )

    def fits(self, job: JobView, part: PartitionView, start: float) -> bool:
        """Whether the job could start at `start`."""
        return any(self._fits(job, way, start) for way in ways(job, part))

    def _fits(self, job: JobView, part: PartitionView, start: float) -> bool:
        end = self.until(job, start)
        return self.licensed(job, start, end) and any(
            self._has_total(job, found, start, end)
            for found in self.sets(job, part, self.offers(job, part, start, end))
        )

    def _has_total(self, job: JobView, chosen: Sequence[str], start: float, end: float) -> bool:
        """Whether the nodes give what is asked for the whole job, each at least one."""
        free = [self.free(self.nodes[name], start, end).gres for name in chosen]
        return all(
            len(chosen) <= count <= sum(most_of(key, one) for one in free)
            for key, count in job.gres_total.items()
        )

    def earliest(self, job: JobView, part: PartitionView) -> float | None:
        """The first instant at which it fits; None = never as far as is known."""
        found = [at for way in ways(job, part) if (at := self._earliest(job, way)) is not None]
        return min(found, default=None)

    def _earliest(self, job: JobView, part: PartitionView) -> float | None:
        instants = {block.end for block in self.blocks} | {hold.end for hold in self.holds}
        instants |= {at for window in self.windows for at in (window.start, window.end)}
        for instant in sorted(at for at in instants if self.now < at < math.inf):
            if self._fits(job, part, instant):
                return instant
        return None

    # -- why not

    def gate(self, job: JobView, name: str) -> str:
        """What keeps the job from the partition whatever is free; "" = nothing."""
        part = self.partitions.get(name)
        if part is None:
            return "PartitionConfig"
        if part.state not in ("UP", "DRAIN"):
            return "PartitionDown" if part.state == "DOWN" else "PartitionInactive"
        least = max(1, job.min_nodes, len(job.nodelist))
        if part.max_nodes is not None and least > part.max_nodes:
            return "PartitionNodeLimit"
        if max(job.max_nodes, least) < part.min_nodes:
            return "PartitionNodeLimit"
        if part.max_time is not None and limit(job) > part.max_time:
            return "PartitionTimeLimit"
        if least > len(part.nodes):
            return "PartitionNodeLimit"
        if not job.nodelist <= part.nodes or not self._could(job, part, up=False):
            return "BadConstraints"
        mine = [window.nodes for window in self.windows if window.name == job.reservation]
        if mine and not any(self._could(job, part, up=False, inside=nodes) for nodes in mine):
            return "Reservation"
        if any(not self.nodes[name].schedulable for name in job.nodelist):
            return "ReqNodeNotAvail"
        return "" if self._could(job, part, up=True) else "NodeDown"

    def _could(
        self, job: JobView, part: PartitionView, *, up: bool, inside: frozenset[str] | None = None
    ) -> bool:
        offers = self.offers(job, part, self.now, self.now, empty=True, up=up)
        if inside is not None:
            offers = {name: tasks for name, tasks in offers.items() if name in inside}
        return any(
            all(
                len(found) <= count <= sum(most_of(key, self.nodes[name].gres) for name in found)
                for key, count in job.gres_total.items()
            )
            for found in self.sets(job, part, offers)
        )

    def in_order(self, job: JobView) -> list[str]:
        """The job's partitions: higher tiers first, else as it named them."""

        def tier(name: str) -> int:
            return -self.partitions[name].priority_tier if name in self.partitions else 0

        return sorted(job.partitions, key=tier)

    # -- the judgement

    def judge(self, plan: Plan) -> None:
        """Walk the queue.

        Raises:
            Wrong: at the first broken rule.
        """
        placed: dict[int, list[Placement]] = {}
        for placement in plan.placements:
            placed.setdefault(placement.job_id, []).append(placement)
        waiting = {item.job_id: item.reason for item in plan.waiting}
        expected = {item.job_id: item for item in plan.expected}
        claim(len(waiting) == len(plan.waiting), "a job waits twice")
        claim(len(expected) == len(plan.expected), "a job is expected twice")
        known = {job.job_id for job in self.queue}
        claim(placed.keys() | waiting.keys() <= known, "the plan names jobs that are not in the queue")
        claim(plan.complete, "the plan is not complete")
        drawn = any(window.draws for window in self.windows)
        for job in self.queue:
            if drawn and not job.reservation:
                # All of them at once, before anybody who names none.
                drawn = False
                for one in self.queue:
                    draw_in(self, one, placed.get(one.job_id, []))
            starts = [one for one in placed.get(job.job_id, []) if not one.reservation]
            done = len(placed.get(job.job_id, [])) - len(starts)
            tasks = (None,) if job.tasks is None else job.tasks
            if done < len(tasks):
                rest = job if job.tasks is None else job._replace(tasks=job.tasks[done:])
                self._judge(rest, starts, waiting.get(job.job_id), expected.get(job.job_id))
            else:
                claim(
                    job.job_id not in waiting.keys() | expected.keys(),
                    f"job {job.job_id}: drawn in and waits",
                )

    def _judge(self, job: JobView, starts: list[Placement], reason: str | None, expected) -> None:
        who = f"job {job.job_id}"
        names = self.in_order(job)
        gates = {name: self.gate(job, name) for name in names}
        opened = [name for name in names if not gates[name]]
        tasks = (None,) if job.tasks is None else job.tasks
        claim([one.task for one in starts] == list(tasks[: len(starts)]), f"{who}: tasks out of order")
        for start in starts:
            self.start(job, start, opened)
        if len(starts) == len(tasks):
            claim(reason is None, f"{who}: starts and waits for {reason}")
            claim(expected is None, f"{who}: starts and is expected")
            return
        claim(bool(reason), f"{who}: waits without a reason")
        if not opened:
            claim(reason == gates[names[0]], f"{who}: {reason} instead of {gates[names[0]]}")
            claim(expected is None, f"{who}: expected though {reason}")
            return
        for name in opened:
            claim(
                not self.may_start(name) or not self.fits(job, self.partitions[name], self.now),
                f"{who}: would fit in {name} now and waits for {reason}",
            )
        self._wait(job, reason, expected, opened)

    def may_start(self, name: str) -> bool:
        return self.policy.backfill != "none" or name not in self.waited

    def start(self, job: JobView, start: Placement, opened: list[str]) -> None:
        who = f"job {job.job_id}"
        claim(start.partition in opened, f"{who}: starts in {start.partition}, which is closed to it")
        for name in opened[: opened.index(start.partition)]:
            claim(
                not self.may_start(name) or not self.fits(job, self.partitions[name], self.now),
                f"{who}: would fit in {name}, which comes before {start.partition}",
            )
        claim(self.may_start(start.partition), f"{who}: passes somebody who waits in {start.partition}")
        part = self.partitions[start.partition]
        layer = start.shares[0].layer
        claim(all(share.layer == layer for share in start.shares), f"{who}: in several layers")
        if _layer(ways(job, part)[0]) is None:
            claim(layer == 0, f"{who}: shares CPUs in {part.name}")
        else:
            claim(1 <= layer <= part.share, f"{who}: in layer {layer} of {part.name}")
            for way in ways(job, part)[: layer - 1]:
                claim(
                    not self._fits(job, way, self.now), f"{who}: would fit in an earlier layer than {layer}"
                )
            part = ways(job, part)[layer - 1]
        job = seen_in(job, part)
        end = self.until(job, self.now)
        claim(self.licensed(job, self.now, end), f"{who}: starts without its licences")
        offers = self.offers(job, part, self.now, end)
        given = {share.node: len(share.ranks) for share in start.shares}
        claim(len(given) == len(start.shares), f"{who}: a node twice")
        chosen = self._judge_set(who, job, part, offers, tuple(given), (self.now, end))
        ranks = [rank for share in start.shares for rank in share.ranks]
        claim(ranks == list(range(len(ranks))), f"{who}: ranks {ranks}")
        claim(
            [given[name] for name in chosen] == layout(job, [offers[name] for name in chosen]),
            f"{who}: tasks lie {given}, nodes hold {offers}",
        )
        parts = self._total_parts(job, chosen, (self.now, end))
        for share in start.shares:
            self._judge_share(who, job, share, parts[share.node])
            gres = dict(share.gres)
            self._put(share.node, self.now, end, share.cpus, share.memory_mb, gres, _layer(part))
        for name, count in start.licenses or job.licenses:
            self.holds.append(Hold(name, count, self.now, end))

    def _put(
        self,
        node: str,
        start: float,
        end: float,
        cpus: int,
        memory: int,
        gres: dict[tuple[str, str], int],
        part: PartitionView | None,
    ) -> None:
        after = any(block.node == node and block.start == FOREVER for block in self.blocks)
        if end == math.inf and start < FOREVER and not after:
            end = FOREVER
        layer = None if part is None else (part.name, part.share)
        self.blocks.append(Block(node, start, end, cpus, memory, gres, layer=layer))

    def _judge_set(
        self,
        who: str,
        job: JobView,
        part: PartitionView,
        offers: dict[str, int],
        given: tuple[str, ...],
        when: tuple[float, float],
    ) -> list[str]:
        """The nodes, in order of preference; those of a row as they stand in it."""
        for name in given:
            claim(name in offers, f"{who}: {name} cannot take it")
        chosen = [name for name in offers if name in given]
        if job.contiguous:
            chosen.sort(key=natural_key)
        sizes = {}
        for found in self.sets(job, part, offers):
            if not self._has_total(job, found, *when):
                continue
            sizes.setdefault(len(found), []).append(set(found))
        claim(set(given) in sizes.get(len(given), []), f"{who}: {given} do not suffice or are too many")
        few = job.tasks_given or job.use_min_nodes or job.gres_total
        best = min(sizes) if few else max(sizes)
        claim(len(given) == best, f"{who}: {len(given)} nodes instead of {best}")
        if len(given) == 1 and not job.gres_total and not job.contiguous:
            weight = max(self.nodes[name].weight for found in sizes[1] for name in found)
            claim(self.nodes[given[0]].weight == weight, f"{who}: {given[0]} is not preferred")
        return chosen

    def _total_parts(
        self, job: JobView, chosen: Sequence[str], when: tuple[float, float]
    ) -> dict[str, Counter[tuple[str, str]]]:
        """Of what is asked for the whole job: who has most free gives all it can and leaves one for each
        later one."""
        parts: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in chosen}
        for key, count in job.gres_total.items():
            free = {name: most_of(key, self.free(self.nodes[name], *when).gres) for name in chosen}
            left = count
            order = sorted(chosen, key=lambda name: -free[name])
            for at, name in enumerate(order):
                parts[name][key] = min(free[name], left - (len(order) - at - 1))
                left -= parts[name][key]
        return parts

    def _judge_share(self, who: str, job: JobView, share: NodeShare, total: Counter[tuple[str, str]]) -> None:
        view = self.nodes[share.node]
        free = self.free(view, self.now, self.until(job, self.now))
        cpus, memory = amounts(job, view, len(share.ranks))
        claim(share.cpus == cpus, f"{who}: {share.cpus} CPUs on {share.node} instead of {cpus}")
        claim(share.memory_mb == memory, f"{who}: {share.memory_mb} MiB on {share.node} instead of {memory}")
        wanted = Counter(job.gres)
        wanted += total
        for key, count in job.gres_per_task.items():
            wanted[key] += count * len(share.ranks)
        for key, count in share.gres.items():
            claim(0 < count <= free.gres.get(key, 0), f"{who}: {count} {key} on {share.node}")
        if job.exclusive:
            claim(share.gres == {k: n for k, n in free.gres.items() if n}, f"{who}: not all of {share.node}")
            return
        claim(
            sum(share.gres.values()) == sum(wanted.values()) and gres_fit(wanted, dict(share.gres)),
            f"{who}: {share.gres} instead of {dict(wanted)}",
        )

    def _wait(self, job: JobView, reason: str, expected, opened: list[str]) -> None:
        who = f"job {job.job_id}"
        first = [name for name in opened if name not in self.waited]
        # With EASY the next that waits for the other partitions gets its own promise there.
        self.waited.update(first[:1] if self.policy.backfill == "easy" else opened)
        right = {"Resources"} if first else {"Priority"}
        if self.policy.backfill == "conservative":
            right = {"Resources", "Priority"} if first else {"Priority"}
        if job.licenses:
            right.add("Licenses")
        if self.windows or job.reservation:
            right |= {"ReqNodeNotAvail", "Reservation"}
        claim(reason in right, f"{who}: {reason} instead of {right}")
        may = first[:1] if self.policy.backfill == "easy" else opened
        if self.policy.backfill == "none" or not may:
            claim(expected is None, f"{who}: expected without a promise")
            return
        earliest = {name: self.earliest(job, self.partitions[name]) for name in may}
        if expected is None:
            soonest = min((at for at in earliest.values() if at is not None), default=None)
            beyond = not first and soonest is not None and soonest > self.now + self.policy.bf_window
            claim(soonest is None or beyond, f"{who}: no promise, though it could start at {earliest}")
            return
        name = next((name for name in may if earliest[name] == min(expected.at, FOREVER)), None)
        claim(name is not None, f"{who}: expected at {expected.at}, could start at {earliest}")
        self.promised += 1
        at = min(expected.at, FOREVER)
        part = next(way for way in ways(job, self.partitions[name]) if at == self._earliest(job, way))
        job = seen_in(job, part)
        end = self.until(job, at)
        offers = self.offers(job, part, at, end)
        chosen = self._judge_set(who, job, part, offers, tuple(expected.nodes), (at, end))
        parts = self._total_parts(job, chosen, (at, end))
        for name, tasks in zip(chosen, layout(job, [offers[one] for one in chosen]), strict=True):
            view = self.nodes[name]
            cpus, memory = amounts(job, view, tasks)
            wanted = Counter(job.gres) + parts[name]
            for key, count in job.gres_per_task.items():
                wanted[key] += count * tasks
            free = self.free(view, at, end)
            gres = dict(free.gres) if job.exclusive else gres_pick(wanted, free.gres)
            self._put(name, at, end, cpus, memory, gres, _layer(part))
        for name, count in job.licenses:
            self.holds.append(Hold(name, count, at, end))


def _alternatives(constraint: str) -> "list[features.Node | None]":
    return list(features.alternatives(features.parse(constraint))) if constraint else [None]


def _layer(part: PartitionView) -> PartitionView | None:
    """The partition if it is a layer of shared CPUs."""
    return part if part.oversubscribe == "LAYER" else None


def _cpus_free(view: NodeView, there: Sequence[Block], part: PartitionView | None) -> int:
    """CPUs of a node beside what is there; none where those who share CPUs would meet others."""
    mine = [block for block in there if (block.layer or ("", 0))[0] == ("" if part is None else part.name)]
    if len(mine) < len(there):
        return 0
    layer = None if part is None else (part.name, part.share)
    return view.cpus - sum(block.cpus for block in mine if block.layer == layer)
