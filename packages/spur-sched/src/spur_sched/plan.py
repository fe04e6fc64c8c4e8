"""One scheduling pass: place what fits, best job first, and say of everything else why it waits.  Pure.

1. A job whose partitions are closed to it, or whose nodes do not exist or are away, waits for that and
   holds nobody up.
2. Otherwise it starts when room is free for its whole time that is not promised to somebody before it.
3. A job that finds no room may get a promise: the earliest instant at which it has its room for its whole
   time, and that room.  EASY promises to the first waiting job of each partition, conservative backfill to
   each of the first `bf_max_job_test`.  Jobs behind it start only where they leave promised room alone, so
   nobody who waits is overtaken for ever.

Room only shrinks during a pass.  So what was found not to fit is not tried again for an equal request, nor
for a greater one: a queue of ten thousand jobs costs as much as its different shapes.
"""

import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final

from spur_core import reasons
from spur_core.grammar import features
from spur_sched.api import (
    Expected,
    JobView,
    NodeShare,
    Over,
    Placement,
    Plan,
    Preemption,
    Snapshot,
    Waiting,
)
from spur_sched.asks import ask_of
from spur_sched.bounds import Bounds, Failures
from spur_sched.columns import CPUS, FOREVER
from spur_sched.ground import Ground
from spur_sched.kept import Spans
from spur_sched.kinds import Kind, Kinds
from spur_sched.licenses import Licenses
from spur_sched.magnets import drawn, left, magnets
from spur_sched.making_room import MakingRoom
from spur_sched.rules import (
    Why,
    limit_secs,
)
from spur_sched.search import Ask, Found, earliest, rounded
from spur_sched.shape import Shape, longest
from spur_sched.timeline import Part, end_of

#: Work that one pass may take; a unit is some ten microseconds.
DEFAULT_BUDGET: Final = 5_000_000
_RESOURCES: Final = Why(reasons.RESOURCES)
_PRIORITY: Final = Why(reasons.PRIORITY)
#: Columns that cost one unit of work.
_A_LOOK: Final = 1000


def plan(snapshot: Snapshot, now: float, budget: int = DEFAULT_BUDGET) -> Plan:
    """What starts now, and why the rest does not.

    Args:
        now: seconds since the epoch.
        budget: work before the pass stops early; work and not time, so that the answer is the same on every
            machine.
    """
    planner = Planner(snapshot, now, budget)
    while not planner.advance(budget):
        pass
    return planner.result()


class Planner:
    """A pass that is made a slice at a time; the slices do not change the plan."""

    def __init__(self, snapshot: Snapshot, now: float, budget: int = DEFAULT_BUDGET) -> None:
        self.now = now
        self.policy = snapshot.policy()
        self.queue = snapshot.pending()
        self.ground = Ground(snapshot.nodes(), snapshot.partitions(), now)
        self.ground.share(self.queue)
        self._running = snapshot.running()
        self._windows = snapshot.windows()
        self._pools = snapshot.licenses()
        self.ground.keep(self._windows, self._running)
        self.ground.connect(self.policy.topology)
        self.ground.shrinks = self.policy.preempt_type == "none"
        #: Reservations that draw jobs in, until they did; how many runs of a job were drawn in.
        self._magnets = magnets(self._windows, now)
        self._drawn: dict[int, int] = {}
        self.preemptions: list[Preemption] = []
        self._making: MakingRoom | None = None
        #: Licences are what kept the job from starting.
        self._short = False
        self._limits = snapshot.limits()
        #: The limit that the place found for the job would be over.
        self._over: Over | None = None
        self.placements: list[Placement] = []
        self.waiting: list[Waiting] = []
        self.expected: list[Expected] = []
        self._budget = budget
        self._spent = 0
        self._complete = False
        self._depth = 0
        self._tested = 0
        self._tests: Counter[object] = Counter()
        #: Partitions that somebody waits for.
        self._blocked: set[str] = set()
        self._kinds = Kinds(self.ground)
        #: The last job that had to wait was the first one of a partition.
        self._fresh = False
        #: Kinds of which nothing starts any more and nothing more is promised, and why; by identity.
        self._settled: dict[int, Why] = {}
        policy = self.policy
        self._settles = (
            policy.backfill != "conservative"
            and policy.preempt_type == "none"
            and not policy.bf_max_job_user
            and not policy.bf_max_job_part
            and self._limits is None
        )
        self._failures: dict[tuple[object, ...], Failures] = {}
        self._bounds: dict[tuple[object, ...], Bounds] = {}
        #: Nothing becomes free but by the end of what runs.
        self._compares = policy.backfill == "conservative" and policy.preempt_type == "none"
        self._steps = self._run()

    def advance(self, work: int) -> bool:
        """Go on for about that much work.

        Returns:
            whether the pass is over.
        """
        done = 0
        for cost in self._steps:
            done += cost
            if done >= work:
                return False
        return True

    def result(self) -> Plan:
        """The plan so far; `complete` when nothing was left out."""
        return Plan(
            tuple(self.placements),
            tuple(self.waiting),
            complete=self._complete,
            expected=tuple(self.expected),
            preemptions=tuple(self.preemptions),
            depth=self._depth,
            backfill_depth=self._tested,
        )

    def _run(self) -> Iterator[int]:
        """The whole pass; yields the work of each piece."""
        if self.queue:
            for looks in self.ground.build():
                yield 1 + looks // 20
            if self.policy.preempt_type != "none":
                self._making = MakingRoom(self.ground, self.policy, self._running, self.now, self._limits)
            self.licenses = Licenses(self._pools, self.ground.kept.shade, self._running, self.now)
        spent = 0
        for job in self.queue:
            if self._spent >= self._budget:
                return
            if self._magnets and not job.reservation:
                yield from self._draw_in()
            if job.job_id in self._drawn:
                rest = left(job, self._drawn[job.job_id])
                if rest is None:
                    continue
                job = rest
            self._spent += 1
            self._depth += 1
            why = self._job(job)
            if why is not None:
                self.waiting.append(Waiting(job.job_id, why.reason, why.desc, why.text))
            yield self._spent - spent
            spent = self._spent
        self._complete = True

    # -- magnetic reservations

    def _draw_in(self) -> Iterator[int]:
        """Start those that find room in reservations that draw them; yields the work of each."""
        windows, self._magnets = self._magnets, []
        for job in self.queue:
            if job.reservation or (job.deadline_at is not None and self._too_late(job, job.deadline_at)):
                continue
            before, tasks = self._spent, (None,) if job.tasks is None else job.tasks
            for inside in drawn(job, windows):
                done = self._drawn.get(job.job_id, 0)
                for task in tasks[done:]:
                    opened, _ = self._within_limits(inside, self._kinds.of(inside).opened)
                    if not any(
                        not shape.failed and self._in_time(inside, shape) and self._start(inside, task, shape)
                        for shape in opened
                    ):
                        break
                    done += 1
                    self._drawn[job.job_id] = done
                    self.placements[-1] = self.placements[-1]._replace(reservation=inside.reservation)
            yield self._spent - before

    # -- one job

    def _job(self, job: JobView) -> Why | None:
        """Start the job, or all tasks of an array that fit; why it, or its next task, waits."""
        before = self._kinds.made
        kind = self._kinds.of(job)
        self._spent += 2 * (self._kinds.made - before)
        settled = self._settled.get(id(kind))
        if settled is not None:
            return settled
        if not kind.opened:
            return kind.why
        if job.deadline_at is not None and self._too_late(job, job.deadline_at):
            return Why(reasons.DEADLINE)
        self._short = False
        opened, over = self._within_limits(job, kind.opened)
        if not opened:
            return over
        if self._blocked and not self._may_pass(job, kind):
            return _PRIORITY
        pushed = False
        for number, task in enumerate((None,) if job.tasks is None else job.tasks):
            if number:
                opened, over = self._within_limits(job, kind.opened)
            if not opened:
                return over
            for shape in opened:
                if not shape.failed and self._in_time(job, shape) and self._start(job, task, shape):
                    break
            else:
                if job.time_min is not None and self._start_cut(job, task, opened):
                    continue
                if self._over is not None:
                    return Why(self._over.reason, text=self._over.text)
                if self._making is None or self._short or not self._push(self._making, job, task, opened):
                    return (
                        self._settle(job, kind, self._wait(job, opened))
                        if self._over is None
                        else Why(self._over.reason, text=self._over.text)
                    )
                pushed = pushed or self._expects(job)
        return _RESOURCES if pushed else None

    def _settle(self, job: JobView, kind: Kind, why: Why) -> Why:
        """Remember it if all others of the kind would wait for the same, as nothing of it starts any more."""
        if (
            self._settles
            and not self._fresh
            and all(shape.failed for shape in kind.opened)
            and job.time_min is None
            and job.deadline_at is None
            and all(shape.wanted.partition in self._blocked for shape in kind.opened)
            and not job.licenses
        ):
            self._settled[id(kind)] = why
        return why

    def _push(self, making: MakingRoom, job: JobView, task: int | None, opened: tuple[Shape, ...]) -> bool:
        """Let others make room for the job."""
        for shape in opened:
            if self.policy.backfill == "none" and shape.wanted.partition in self._blocked:
                continue
            if not self._in_time(job, shape):
                continue
            before = making.trials
            made = making.for_job(job, task, shape, ask_of(shape))
            self._over = making.over
            self._spent += (making.trials - before) * (5 + self.ground.columns.size // 100)
            if made is None:
                continue
            if made.now:
                return self._place(job, task, shape, made.chosen)
            if made.victims is not None:
                self.preemptions.append(made.victims)
            if not self._expects(job):
                self._expect(job, made.at, made.chosen)
            return True
        return False

    def _expects(self, job: JobView) -> bool:
        return bool(self.expected) and self.expected[-1].job_id == job.job_id

    def _expect(self, job: JobView, start: float, chosen: list[tuple[int, int]]) -> None:
        views = self.ground.columns.views
        nodes = tuple(sorted(views[at].name for at, _ in chosen))
        self.expected.append(Expected(job.job_id, start if start < FOREVER else math.inf, nodes))

    def _within_limits(self, job: JobView, opened: tuple[Shape, ...]) -> tuple[tuple[Shape, ...], Why | None]:
        """The shapes whose partitions have no limit against the job, and why if there are none.  Nothing is
        kept for a job that only a limit holds back."""
        self._over = None
        if self._limits is None:
            return opened, None
        first: Over | None = None
        found = []
        for shape in opened:
            over = self._limits.admit(job, shape.wanted.partition)
            first = first or over
            if over is None:
                found.append(shape)
        near = self._limits.near(job, found[0].wanted.partition) if found else None
        if near is not None:
            first = near.over
            self._over = None if near.fresh else near.over
            others = frozenset(view.name for view in self.ground.columns.views) - near.nodes
            close = self._kinds.of(job._replace(exclude=job.exclude | others)).opened
            found = [*close, *(found if near.fresh else ())]
        return tuple(found), None if first is None else Why(first.reason, text=first.text)

    def _may_pass(self, job: JobView, kind: Kind) -> bool:
        """Whether the job may be tried although somebody before it waits."""
        policy = self.policy
        if not any(shape.wanted.partition in self._blocked for shape in kind.opened):
            return True
        if policy.backfill == "none":
            return not all(shape.wanted.partition in self._blocked for shape in kind.opened)
        for most, key in (
            (policy.bf_max_job_user, job.uid),
            (policy.bf_max_job_part, kind.opened[0].wanted.partition),
        ):
            if most:
                self._tests[key] += 1
                if self._tests[key] > most:
                    return False
        return True

    # -- now

    def _start(self, job: JobView, task: int | None, shape: Shape) -> bool:
        """Place one run if there is room for its whole time from now on."""
        if self.policy.backfill == "none" and shape.wanted.partition in self._blocked:
            return False
        if job.licenses and self.licenses.choose(job, self.now, self.now + shape.secs) is None:
            self._short = True
            return False
        self._spent += 1
        pools = shape.pools
        if pools is None:
            pools = shape.pools = self.ground.pools(shape.wanted)
        if all(shape.hopeless(pool) for _, pool in pools):
            shape.failed = True
            return False
        ask = self._ask(shape)
        failures = shape.failures
        if failures is None:
            failures = self._failures.get(ask[0])
            if failures is None:
                failures = self._failures[ask[0]] = Failures(len(ask[1]))
            shape.failures = failures
        if not failures.cover(ask[1], shape.uncovered):
            shape.uncovered = failures.count
            for tree, pool in pools:
                self._spent += len(pool.live()) // _A_LOOK
                chosen = shape.find(pool, tree, self.now)
                if chosen is not None:
                    return self._place(job, task, shape, chosen)
            failures.add(ask[1])
        shape.failed = True
        return False

    def _too_late(self, job: JobView, deadline: float) -> bool:
        """Whether no start, however soon, would end by the deadline."""
        least = job.time_min or limit_secs(job)
        return deadline <= self.now or (least is not None and self.now + least > deadline)

    def _in_time(self, job: JobView, shape: Shape) -> bool:
        """Whether a start now would end by the job's deadline; without a limit it gets that for one."""
        return job.deadline_at is None or shape.secs == math.inf or self.now + shape.secs <= job.deadline_at

    def _start_cut(self, job: JobView, task: int | None, opened: tuple[Shape, ...]) -> bool:
        """Place one run for less than its time limit, but as long as the room lasts."""
        least = float(job.time_min or 0)
        for shape in opened:
            most = shape.secs if job.deadline_at is None else min(shape.secs, job.deadline_at - self.now)
            if not least < shape.secs or most < least:
                continue
            short = self._kinds.shape(shape.wanted, shape.demand.need, shape.counts, least)
            if short.missing is not None or short.failed:
                continue
            self._spent += 1
            if self.policy.backfill == "none" and shape.wanted.partition in self._blocked:
                continue
            for tree, pool in self.ground.pools(shape.wanted):
                chosen = short.find(pool, tree, self.now)
                if chosen is not None:
                    secs = float(int(longest(short, chosen, self.now, least, most)))
                    cut = self._kinds.shape(shape.wanted, shape.demand.need, shape.counts, secs)
                    return self._place(job, task, cut, chosen, int(secs))
            short.failed = True
        return False

    def _place(
        self,
        job: JobView,
        task: int | None,
        shape: Shape,
        chosen: list[tuple[int, int]],
        time_limit: int | None = None,
    ) -> bool:
        """Give the place away, unless a limit is against it."""
        ground = self.ground
        timeline, columns = ground.timeline, ground.columns
        end = self.now + shape.secs
        shares = []
        rank = 0
        layer = 0 if shape.demand.need.layer is None else shape.demand.need.layer[1]
        parts = list(shape.shares(chosen, lambda at: timeline.room_now(at, end)))
        for share in parts:
            after = rank + share.tasks
            ranks = tuple(range(rank, after))
            name = columns.views[share.at].name
            shares.append(NodeShare(name, share.cpus, share.memory_mb, share.gres, ranks, layer))
            rank = after
        self._spent += len(shares)
        taken = self.licenses.choose(job, self.now, end) or ()
        placement = Placement(job.job_id, task, shape.wanted.partition, tuple(shares), taken, time_limit)
        if self._limits is not None:
            self._over = self._limits.charge(job, placement)
            if self._over is not None:
                return False
        for share in parts:
            timeline.put(share.at, self.now, end, share.vector)
            ground.sharing.put(shape.wanted, share.at, job.uid, share.cpus)
            ground.kept.take(shape.wanted.reservation, share.at, share.cpus)
            if columns.free[CPUS, share.at] <= 0:
                ground.filled += 1
        self.licenses.take(job, taken, self.now, end)
        self.placements.append(placement)
        return True

    # -- later

    def _wait(self, job: JobView, opened: tuple[Shape, ...]) -> Why:
        """The job finds no room: a promise if it gets one, and its place in line."""
        fresh = [shape for shape in opened if shape.wanted.partition not in self._blocked]
        self._fresh = bool(fresh)
        conservative = self.policy.backfill == "conservative"
        if fresh and self.policy.backfill == "easy":
            # Its first partition without a promise; the next job that waits for another one gets its own.
            opened = tuple(shape for shape in fresh if shape.wanted == fresh[0].wanted)
        # Without backfill it is waited for in all of them.
        for shape in fresh[:1] if self.policy.backfill == "easy" else opened:
            self._blocked.add(shape.wanted.partition)
        if self.policy.backfill != "none" and job.priority >= self.policy.bf_min_prio_reserve:
            if fresh:
                self._promise(job, opened, math.inf, 0)
            elif conservative and self._tested < self.policy.bf_max_job_test:
                self._promise(job, opened, self.now + self.policy.bf_window, self.policy.bf_resolution)
        return self._kept_out(opened[0]) or (_RESOURCES if fresh else _PRIORITY)

    def _kept_out(self, shape: Shape) -> Why | None:
        """What others have a claim to, where that alone is why the job cannot start."""
        if self._short:
            return Why(reasons.LICENSES)
        if not self.ground.kept and not shape.wanted.reservation:
            return None
        least = shape.counts.min_nodes
        end = end_of(self.now, shape.secs)
        kept, reservation = self.ground.kept, shape.wanted.reservation
        pools = [pool for _, pool in self.ground.pools(shape.wanted) if int(pool.member.sum()) >= least]
        if not pools:
            return None
        required = self.ground.only(shape.required or ())
        if not kept.leaves_all(reservation, required, end):
            return kept.why(reservation, required, end)
        if any(kept.leaves(reservation, pool.member, end) >= least for pool in pools):
            return None
        return kept.why(reservation, pools[0].member, end)

    def _promise(self, job: JobView, opened: tuple[Shape, ...], horizon: float, resolution: int) -> None:
        """Keep the room that the job will have earliest."""
        self._tested += 1
        best: Found | None = None
        for shape in opened:
            last = horizon
            if job.deadline_at is not None and shape.secs < math.inf:
                last = min(horizon, job.deadline_at - shape.secs)
            found = self._earliest(job, shape, last, resolution)
            if found is not None and (best is None or found.start < best.start):
                best, its = found, shape
        if best is None:
            return
        end = end_of(best.start, its.secs)
        timeline = self.ground.timeline
        rooms: dict[int, list[int]] = {}
        if its.wanted.alone or not its.demand.regular:
            rooms = {at: timeline.window(at, best.start, end)[0] for at, _ in best.chosen}
        parts = []
        for share in its.shares(best.chosen, rooms.__getitem__):
            vector = share.vector
            if its.wanted.alone:
                # Work of others that lasts longer would keep the node from this user.
                vector = tuple(max(pair) for pair in zip(vector, rooms[share.at], strict=True))
            parts.append(Part(share.at, vector))
        timeline.promise(parts, best.start, end)
        self.licenses.take(job, self.licenses.choose(job, best.start, end) or (), best.start, end)
        if not self._expects(job):
            self._expect(job, best.start, best.chosen)

    def _earliest(self, job: JobView, shape: Shape, horizon: float, resolution: int) -> Found | None:
        best: Found | None = None
        timeline = self.ground.timeline
        count = shape.counts
        for tree, pool in self.ground.pools(shape.wanted):
            self._spent += 5 + self.ground.columns.size // 500

            def pick(
                active: dict[int, int], start: float, tree: features.Node = tree
            ) -> list[tuple[int, int]] | None:
                end = end_of(start, shape.secs)
                return shape.pick_later(active, tree, lambda at: timeline.window(at, start, end)[0], start)

            def clear(start: float) -> bool:
                return self.licenses.choose(job, start, end_of(start, shape.secs)) is not None

            member = shape.member(pool)
            away = self.ground.sharing.away(shape.wanted, member, self.now, shape.demand.least[0][1])
            closed = self.ground.closed(shape.wanted.reservation)
            if closed is not None:
                away = _merged(away, closed.away)
            ask = Ask(
                demand=shape.demand,
                secs=shape.secs,
                member=member,
                each=shape.each(),
                most=count.num_tasks if count.tasks_given else count.each,
                enough=(
                    count.min_nodes,
                    count.num_tasks if count.tasks_given else 0,
                    min(count.max_nodes, count.num_tasks),
                ),
                pick=pick,
                plain=shape.plain,
                away=away,
                clear=clear if job.licenses else None,
                instants=self._instants(job),
                clip=partial(self.ground.kept.clip, shape.wanted.reservation),
                odd=frozenset() if closed is None else closed.parts,
            )
            after = self.now if job.licenses else self._after(shape, resolution)
            found = earliest(timeline, ask, after, horizon, resolution)
            if found is not None and (best is None or found.start < best.start):
                best = found
        if not job.licenses:
            shape.searched = max(shape.searched, best.start if best is not None else horizon)
            if self._compares and shape.plain is not None:
                same, sizes = self._ask(shape)
                self._bounds.setdefault(same, Bounds(len(sizes))).add(sizes, shape.searched)
        return best

    def _after(self, shape: Shape, resolution: int) -> float:
        """No earlier start than this exists."""
        if shape.searched > -math.inf or not self._compares or shape.plain is None:
            return max(self.now, shape.searched)
        if resolution != self.policy.bf_resolution:
            # Where starts are exact, those of others that were rounded up say too much.
            return self.now
        same, sizes = self._ask(shape)
        bounds = self._bounds.get(same)
        after = -math.inf if bounds is None else bounds.after(sizes)
        return max(self.now, rounded(after, resolution))

    def _ask(self, shape: Shape) -> tuple[tuple[object, ...], tuple[float, ...]]:
        """The shape's sizes, worked out once."""
        if shape.ask is None:
            shape.ask = ask_of(shape)
        return shape.ask

    def _instants(self, job: JobView) -> list[float]:
        """When something changes for the job that is not of a node."""
        found = self.licenses.instants(job) if job.licenses else []
        if job.switches is not None and job.switches_until is not None and job.switches_until > self.now:
            found.append(job.switches_until)
        return found


def _merged(one: dict[int, Spans], other: dict[int, Spans]) -> dict[int, Spans]:
    return {at: (*one.get(at, ()), *other.get(at, ())) for at in {**one, **other}}
