"""The priorities of the jobs that there are, remembered until something changes.

Ages stand still between two looks at the clock, `period` apart, and all jobs are looked at with the same
clock: of two jobs that are otherwise alike the one that waits for longer is never behind.  After a look the
queue is added up in batches, as somebody asks for one that is not known yet, so that no turn of the event
loop has the whole of it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from spur_core import reasons
from spur_core.states import ACTIVE_STATES, JobState
from spur_ctld.ledger import Ledger
from spur_ctld.priority_rules import PriorityRules
from spur_ctld.scheduling.catalog import Catalog
from spur_ctld.state import resv_gate
from spur_ctld.state.accounting_rows import add_gres, requested_cpus, requested_tres
from spur_ctld.state.events import ConfigChanged, Event, NodeChanged, StateReplaced
from spur_ctld.state.records import UNLIMITED, Job, Partition, Request
from spur_sched.priority import basic, multifactor
from spur_sched.priority.factors import Cluster, Factors, Facts, PartitionFacts
from spur_sched.priority.multifactor import Breakdown
from spur_sched.priority.shares import FairShares, Neutral

#: Totals of the cluster are added up again so seldom, however often nodes change.
_TOTALS_EVERY_SECS: Final = 1.0
#: So many sums are made at once.
_BATCH: Final = 100
_WAITS_FOR_JOBS: Final = frozenset({reasons.DEPENDENCY, reasons.DEPENDENCY_NEVER})
_NOTHING: Final = Cluster(0, 0, {})


class Priorities:
    """What `squeue` shows and the queue is sorted by.

    Args:
        shares: who answers for fair shares.
    """

    def __init__(
        self,
        ledger: Ledger,
        catalog: Catalog,
        rules: PriorityRules,
        clock: Callable[[], float],
        shares: FairShares | None = None,
    ) -> None:
        self._ledger = ledger
        self._catalog = catalog
        self.rules = rules
        self._clock = clock
        self._shares: FairShares = Neutral() if shares is None else shares
        self._shares_seen = self._shares.version
        self._at = -math.inf
        #: Another number = numbers that were given may be others now, though no record changed.
        self.version = 0
        #: Waiting jobs that the sum was not made of since the last look.
        self._todo: list[int] = []
        #: Job -> (request, base, since, priority), and for the sum (request, what of it stands still).
        self._known: dict[int, tuple[Request, int, float, int]] = {}
        self._still: dict[int, tuple[Request, float]] = {}
        self._cluster = _NOTHING
        self._totals_at = -math.inf
        self._totals_stale = True
        ledger.subscribe(self._on_events)

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, (ConfigChanged, StateReplaced)):
                self._at = -math.inf
                self._totals_at = -math.inf
                self._totals_stale = True
            elif isinstance(event, NodeChanged):
                self._totals_stale = True

    def refresh(self) -> None:
        """Look at the clock if it is time, and then at the whole queue.  Before any number is asked for."""
        now = self._clock()
        changed = self._look_at_totals(now)
        due = not self._at <= now < self._at + self.rules.period
        if not (changed or due or self._shares.version != self._shares_seen):
            return
        self._shares_seen = self._shares.version
        if due:
            self._at = now
        if changed:
            self._still.clear()
        self.version += 1
        self._known.clear()
        if self.rules.multifactor:
            state = self._ledger.state
            for job_id in self._still.keys() - state.pending - state.active:
                del self._still[job_id]
            self._todo = list(state.pending)

    def of(self, job: Job) -> int:
        """The job's priority; 0 while it is held."""
        if job.priority == 0 or job.priority_given:
            return job.priority
        if job.state is not JobState.PENDING and not (self.rules.running and job.state in ACTIVE_STATES):
            return job.start_priority or job.priority
        if self._at == -math.inf:
            self.refresh()
        since = self._since(job)
        known = self._known.get(job.job_id)
        if known is not None and known[0] is job.request and known[1] == job.priority and known[2] == since:
            return known[3]
        if not self.rules.multifactor:
            value = self._simple(job.priority, job.request, since)
            self._known[job.job_id] = (job.request, job.priority, since, value)
            return value
        self._sum([job, *self._next_ones()])
        return self._known[job.job_id][3]

    def of_new(self, request: Request, base: int, given: bool, now: float) -> int:
        """What a job would have that came in now."""
        if given:
            return base
        if not self.rules.multifactor:
            return self._simple(base, request, now)
        measured = bool(self.rules.rules.weights.tres)
        facts = [_facts(request, name, now, now, measured=measured) for name in request.partitions]
        share = self._shares.factor(request.user, request.account)
        return max((self._breakdown(one, share).priority for one in facts), default=1)

    def explain(self, job: Job, partition: str) -> Breakdown:
        """What the priority of a waiting job is made of in one of its partitions."""
        if not self.rules.multifactor:
            return self._explain_simple(job, partition)
        share = self._shares.factor(job.request.user, job.request.account)
        found = self._breakdown(self._facts_of(job, partition), share)
        return found._replace(priority=job.priority) if job.priority_given else found

    def weights(self, base: int) -> Factors:
        """What a factor of 1 adds.

        Args:
            base: what most jobs have in the simple formula.
        """
        if not self.rules.multifactor:
            return Factors(age=float(base), partition=float(base))
        own = self.rules.rules.weights
        return Factors(
            float(own.age),
            float(own.assoc),
            float(own.fairshare),
            float(own.job_size),
            float(own.partition),
            float(own.qos),
            tuple((name, float(weight)) for name, weight in own.tres),
        )

    # -- the simple formula

    def _simple(self, base: int, request: Request, since: float) -> int:
        return basic.priority(
            base,
            tier=self._tier(request.partitions),
            since=since,
            now=self._at,
            share=self._shares.ratio(request.user, request.account),
            max_age=self.rules.rules.max_age,
        )

    def _tier(self, names: Iterable[str]) -> int:
        partitions = self._ledger.state.partitions
        return max((partitions[name].priority_tier for name in names if name in partitions), default=1)

    def _explain_simple(self, job: Job, partition: str) -> Breakdown:
        """The product as a sum: what fair share, age and tier each add to the base."""
        if job.priority_given:
            return Breakdown(job.priority, Factors(), Factors())
        share = min(self._shares.ratio(job.request.user, job.request.account), basic.MOST_SHARE)
        max_age = self.rules.rules.max_age
        waited = max(0, math.floor(self._at) - math.floor(self._since(job)))
        age = min(waited / max_age, 1.0)
        tier = max(self._tier([partition]), 1)
        shared = job.priority * share
        aged = shared * (1.0 + age)
        return Breakdown(
            multifactor.whole(aged * tier),
            Factors(age=age, fairshare=share, partition=float(tier)),
            Factors(age=aged - shared, fairshare=shared - job.priority, partition=aged * tier - aged),
        )

    # -- the sum of factors

    def _next_ones(self) -> list[Job]:
        """Some of those of which nobody knows the sum yet."""
        state = self._ledger.state
        found: list[Job] = []
        while self._todo and len(found) < _BATCH:
            job_id = self._todo.pop()
            if job_id in state.pending and job_id not in self._known:
                job = state.jobs[job_id]
                if job.priority and not job.priority_given:
                    found.append(job)
        return found

    def _sum(self, jobs: Sequence[Job]) -> None:
        since = [self._since(job) for job in jobs]
        factor = self._shares.factor
        shares = [0.0] * len(jobs)
        if self.rules.rules.weights.fairshare:
            shares = [factor(job.request.user, job.request.account) for job in jobs]
        still = [self._still_of(job) for job in jobs]
        found = multifactor.priorities(still, since, shares, self.rules.rules, self._at).tolist()
        for job, at, value in zip(jobs, since, found, strict=True):
            self._known[job.job_id] = (job.request, job.priority, at, value)

    def _still_of(self, job: Job) -> float:
        """Of several partitions the one in which it counts most."""
        known = self._still.get(job.job_id)
        if known is not None and known[0] is job.request:
            return known[1]
        rules = self.rules.rules
        names = (job.partition,) if job.partition else job.request.partitions
        facts = [self._facts_of(job, name) for name in names]
        found = max((multifactor.still_sum(one, self._cluster, rules) for one in facts), default=0.0)
        self._still[job.job_id] = (job.request, found)
        return found

    def _breakdown(self, facts: Facts, share: float) -> Breakdown:
        return multifactor.breakdown(facts, self._cluster, self.rules.rules, self._at, share)

    def _facts_of(self, job: Job, partition: str) -> Facts:
        since = self._since(job)
        return _facts(
            job.request,
            partition,
            job.submit_at,
            since if math.isfinite(since) else None,
            measured=bool(self.rules.rules.weights.tres),
        )

    def _since(self, job: Job) -> float:
        """From when on its age counts, inf while it does not."""
        if not self.rules.multifactor:
            return job.eligible_at or job.submit_at
        if self.rules.rules.accrue_always:
            return job.submit_at
        if job.reason in _WAITS_FOR_JOBS and job.state is JobState.PENDING:
            return math.inf
        return max(job.eligible_at or job.submit_at, job.accrue_at)

    # -- what factors are measured by

    def _look_at_totals(self, now: float) -> bool:
        """Add the nodes up again if they changed; whether the sums did."""
        if not self.rules.multifactor or not self._totals_stale:
            return False
        if 0 <= now - self._totals_at < _TOTALS_EVERY_SECS:
            return False
        self._totals_at, self._totals_stale = now, False
        nodes = {name: node for name, node in self._ledger.state.nodes.items() if node.cpus}
        measured = bool(self.rules.rules.weights.tres)
        partitions = {}
        for name, partition in self._catalog.partitions().items():
            tres: dict[str, int] = {}
            for member in partition.nodes if measured else ():
                node = nodes.get(member)
                if node is None:
                    continue
                for kind, count in (("cpu", node.cpus), ("mem", node.memory_mb), ("node", 1)):
                    tres[kind] = tres.get(kind, 0) + count
                for item in node.gres:
                    add_gres(tres, item.name, item.type, item.count)
            if tres:
                tres["billing"] = tres["cpu"]
            partitions[name] = PartitionFacts(
                partition.priority_job_factor,
                _minutes(partition.max_time),
                {k: float(v) for k, v in tres.items()},
            )
        found = Cluster(
            cpus=sum(node.cpus for node in nodes.values()),
            nodes=len(nodes),
            partitions=partitions,
            tres={f"license/{name}": float(total) for name, total in self.rules.licenses.items()},
        )
        changed = found != self._cluster
        self._cluster = found
        return changed


def _facts(
    request: Request, partition: str, submit_at: float, since: float | None, *, measured: bool
) -> Facts:
    """What a priority goes by; without its TRES unless they are `measured`."""
    tres: dict[str, float] = {}
    if measured:
        tres = {name: float(amount) for name, amount in requested_tres(request).items()}
        names, any_will_do = resv_gate.licenses(request.licenses)
        if not any_will_do:
            tres |= {f"license/{name}": float(count) for name, count in names}
    return Facts(
        submit_at=submit_at,
        accrue_at=since,
        cpus=requested_cpus(request),
        min_nodes=request.min_nodes,
        partition=partition,
        time_limit=None if request.time_limit is None else _minutes(request.time_limit),
        tres=tres,
        nice=request.nice,
        site=request.site_factor,
        user=request.user,
        account=request.account,
        qos=request.qos,
    )


def _minutes(limit: int | None) -> float:
    return math.inf if limit is None or limit == UNLIMITED else limit / 60


def partitions_of(job: Job, known: dict[str, Partition]) -> list[str]:
    """The partitions that a waiting job asks for and that there are."""
    return [name for name in job.request.partitions if name in known]
