"""Whether a job may start now as far as limits are concerned.

One `Checker` serves one pass: it begins with what is running, and every job that the pass starts is charged,
so that the next one sees it.  `admit` looks at the request before room is looked for; `charge` looks at the
place that was found, exactly, and takes the job in.
"""

from collections.abc import Iterable, Sequence

from spur_sched.api import JobView, Near, Over, Placement, Running
from spur_sched.limits import tokens
from spur_sched.limits.counters import Counters
from spur_sched.limits.footprint import Footprint, asked, held, minutes_of, placed
from spur_sched.limits.resolve import Resolved, Single, Source, resolve
from spur_sched.limits.tables import Tables


class Checker:
    """Limits of one pass.

    Args:
        running: every active attempt, suspended ones too.
        now: seconds since the epoch.
        queue: pending jobs; given them, the later ones of a user who has too many submitted wait.
    """

    def __init__(
        self, tables: Tables, running: Iterable[Running], now: float, queue: Sequence[JobView] = ()
    ) -> None:
        self._tables = tables
        self._counters = Counters()
        self._resolved: dict[tuple[str, int, str, str], Resolved] = {}
        self._charged: dict[tuple[int, int | None], tuple[Footprint, Resolved]] = {}
        for one in running:
            found = held(one, now)
            for key in self._of(one.account, one.uid, one.qos, one.partition).keys:
                self._counters.of(key).put(found, +1)
        self._ahead = self._count_ahead(queue)

    def admit(self, job: JobView, partition: str = "") -> Over | None:
        """Why the job may not start, whatever nodes it would get; None = it may.

        Args:
            partition: where it would start; "" = the first that it asks for.
        """
        resolved = self._of(job.account, job.uid, job.qos, partition or _first(job))
        return self._verdict(resolved, asked(job), self._ahead.get(job.job_id))

    def charge(self, job: JobView, placement: Placement) -> Over | None:
        """Take the placed job in; or why it may not have this place, and then nothing is taken."""
        resolved = self._of(job.account, job.uid, job.qos, placement.partition)
        limit = placement.time_limit if placement.time_limit is not None else job.time_limit
        found = placed(placement.shares, placement.licenses, limit)
        verdict = self._verdict(resolved, found, None)
        if verdict is None:
            self._put(resolved, found, +1)
            self._charged[job.job_id, placement.task] = (found, resolved)
        return verdict

    def refund(self, job: JobView, placement: Placement) -> None:
        """The charged job does not start after all."""
        charged = self._charged.pop((job.job_id, placement.task), None)
        if charged is not None:
            self._put(charged[1], charged[0], -1)

    def near(self, job: JobView, partition: str = "") -> Near | None:
        """Where an admitted job has to stay because of limits of nodes in use; None = anywhere."""
        resolved = self._of(job.account, job.uid, job.qos, partition or _first(job))
        count = max(1, job.min_nodes)
        found: Near | None = None
        for source in resolved.sources:
            for cap in (*source.shares, *source.groups):
                if cap.name != "node":
                    continue
                counter = self._counters.of(cap.key)
                used = len(counter.nodes)
                fresh = int(max(0, cap.limit - used))
                if fresh >= count:
                    continue
                text = f"{_who(cap.key)} uses {used} of at most {cap.limit:g} nodes"
                one = Near(frozenset(counter.nodes), fresh, Over(cap.reason, text))
                if found is None:
                    found = one
                else:
                    tighter = min(found, one, key=lambda near: near.fresh)
                    found = tighter._replace(nodes=found.nodes & one.nodes)
        return found

    def _of(self, account: str, uid: int, qos: str, partition: str) -> Resolved:
        # Partitions matter by their QOS only.
        own = partition if partition in self._tables.partition_qos else ""
        key = (account, uid, qos, own)
        found = self._resolved.get(key)
        if found is None:
            found = self._resolved[key] = resolve(self._tables, account, uid, qos, own)
        return found

    def _put(self, resolved: Resolved, found: Footprint, sign: int) -> None:
        for key in resolved.keys:
            self._counters.of(key).put(found, sign)

    def _verdict(self, resolved: Resolved, found: Footprint, ahead: int | None) -> Over | None:
        for source in resolved.sources:
            verdict = (
                self._counts(source, ahead)
                or alone(source.single, found)
                or self._shares(source, found)
                or self._minutes(source, found)
            )
            if verdict is not None:
                return verdict
        return None

    def _counts(self, source: Source, ahead: int | None) -> Over | None:
        for key, limit, reason in source.counts:
            jobs = self._counters.of(key).jobs
            if jobs >= limit:
                return Over(reason, f"{_who(key)} has {jobs} of at most {limit} jobs running")
        if ahead is not None:
            for key, limit, reason in source.submits:
                if reason == tokens.ASSOC_MAX_SUBMIT and ahead >= limit:
                    return Over(reason, f"{_who(key)} has {ahead} of at most {limit} jobs before this one")
        for used, most, reason in source.walls:
            if used >= most:
                return Over(reason, f"{used:g} of at most {most:g} minutes of wall time are used up")
        return None

    def _shares(self, source: Source, found: Footprint) -> Over | None:
        for cap in (*source.shares, *source.groups):
            counter = self._counters.of(cap.key)
            more = counter.more(cap.name, found)
            used = counter.used(cap.name)
            if more > 0 and used + more > cap.limit:
                return Over(
                    cap.reason,
                    f"{_who(cap.key)} uses {used:g} of at most {cap.limit:g} {cap.name},"
                    f" this job needs {more:g} more",
                )
        return None

    def _minutes(self, source: Source, found: Footprint) -> Over | None:
        for cap in source.group_mins:
            needed = 0.0
            if self._tables.safe:
                needed = minutes_of(found.tres.get(cap.name, 0.0), found.minutes)
                needed += self._counters.of(cap.key).run_mins(cap.name)
            if cap.past >= cap.limit or cap.past + needed > cap.limit:
                return Over(
                    cap.reason,
                    f"{_who(cap.key)} used {cap.past:g} of at most {cap.limit:g} {cap.name}-minutes",
                )
        for cap in source.group_run_mins:
            more = minutes_of(found.tres.get(cap.name, 0.0), found.minutes)
            used = self._counters.of(cap.key).run_mins(cap.name)
            if more > 0 and used + more > cap.limit:
                return Over(
                    cap.reason,
                    f"running jobs of {_who(cap.key)} may still use {used:g} of at most {cap.limit:g}"
                    f" {cap.name}-minutes",
                )
        return None

    def _count_ahead(self, queue: Sequence[JobView]) -> dict[int, int]:
        """Of each pending job how many of its user's in the account are active or were submitted before."""
        found: dict[int, int] = {}
        sums: dict[tuple[str, int], int] = {}
        for job in sorted(queue, key=lambda job: job.job_id):
            key = (job.account, job.uid)
            if key not in sums:
                sums[key] = self._counters.of(("user", *key)).jobs
            found[job.job_id] = sums[key]
            sums[key] += len(job.tasks) if job.tasks is not None else 1
        return found


def alone(single: Single, found: Footprint) -> Over | None:
    """Whether the job by itself is more, or less, than one job may be."""
    if single.wall is not None and found.minutes > single.wall[0]:
        return Over(single.wall[1], f"its time limit is above {single.wall[0]:g} minutes")
    for name, least, reason in single.min_tres:
        if found.tres.get(name, 0.0) < least:
            return Over(reason, f"it asks for less than {least:g} {name}")
    for name, most, reason in single.tres:
        if found.tres.get(name, 0.0) > most:
            return Over(reason, f"it asks for more than {most:g} {name}")
    for name, most, reason in single.per_node:
        if found.per_node.get(name, 0.0) > most:
            return Over(reason, f"it asks for more than {most:g} {name} on one node")
    for name, most, reason in single.mins:
        if minutes_of(found.tres.get(name, 0.0), found.minutes) > most:
            return Over(reason, f"it may use more than {most:g} {name}-minutes")
    return None


def _first(job: JobView) -> str:
    return job.partitions[0] if job.partitions else ""


def _who(key: tuple[str | int, ...]) -> str:
    """A group in words."""
    kind = key[0]
    if kind == "user":
        return f"user {key[2]} in account {key[1]}" if key[1] else f"user {key[2]}"
    if kind == "account":
        return f"account {key[1]}" if key[1] else "the cluster"
    if kind == "qos":
        return f"QOS {key[1]}"
    return f"{'user' if kind == 'qos-user' else 'account'} {key[2]} in QOS {key[1]}"
