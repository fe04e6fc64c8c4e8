"""Whose age counts: MaxJobsAccrue and GrpJobsAccrue let only so many pending jobs of a group grow older."""

from collections.abc import Sequence

from spur_sched.api import JobView
from spur_sched.limits.counters import GroupKey
from spur_sched.limits.resolve import Resolved, resolve
from spur_sched.limits.tables import Tables


def accruing(tables: Tables, queue: Sequence[JobView]) -> frozenset[int]:
    """Ids of the jobs that may.  Who was submitted first is first; an array counts with one task."""
    counts: dict[GroupKey, int] = {}
    known: dict[tuple[str, int, str, str], Resolved] = {}
    found = []
    for job in sorted(queue, key=lambda job: (job.submit_at, job.job_id)):
        key = (job.account, job.uid, job.qos, job.partitions[0] if job.partitions else "")
        resolved = known.get(key)
        if resolved is None:
            resolved = known[key] = resolve(tables, *key)
        caps = [cap for source in resolved.sources for cap in source.accruals]
        if all(counts.get(group, 0) < limit for group, limit in caps):
            for group, _ in caps:
                counts[group] = counts.get(group, 0) + 1
            found.append(job.job_id)
    return frozenset(found)
