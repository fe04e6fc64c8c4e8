"""Whether a submission may come in.  Refused as a whole, an array with all its tasks."""

from collections.abc import Mapping
from typing import NamedTuple

from spur_sched.api import JobView, Over
from spur_sched.limits import tokens
from spur_sched.limits.check import alone
from spur_sched.limits.counters import GroupKey
from spur_sched.limits.footprint import asked, minutes_of
from spur_sched.limits.resolve import Source, resolve
from spur_sched.limits.tables import Tables


class Refused(NamedTuple):
    """Slurm's sentence for the user, and the token behind it."""

    text: str
    over: Over


_POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


def refused(
    tables: Tables, job: JobView, tasks: int, submitted: Mapping[GroupKey, int], partition: str = ""
) -> Refused | None:
    """Why the submission is refused; None = it may come in.

    A time limit above that of the association, and more jobs than may be submitted, are always refused; what
    can never run by itself only under a QOS that denies on limits, or under none.

    Args:
        tasks: how many jobs it is.
        submitted: pending and active jobs of each group; those that are missing have none.
    """
    first = partition or (job.partitions[0] if job.partitions else "")
    resolved = resolve(tables, job.account, job.uid, job.qos, first)
    found = asked(job)
    own = tables.qos.get(job.qos)
    deny = own is None or own.deny
    for source in resolved.sources:
        for key, limit, reason in source.submits:
            count = submitted.get(key, 0)
            if count + tasks > limit:
                return _refused(
                    reason, f"{count} of at most {limit} jobs are submitted, this is {tasks} more"
                )
        verdict = alone(source.single, found)
        if verdict is not None and (deny or verdict.reason == tokens.ASSOC_MAX_WALL):
            return _refused(*verdict)
        if deny:
            for cap in (*source.shares, *source.groups):
                if found.tres.get(cap.name, 0.0) > cap.limit:
                    return _refused(cap.reason, f"it asks for more than {cap.limit:g} {cap.name}")
            verdict = _never(source, found.tres, found.minutes)
            if verdict is not None:
                return _refused(*verdict)
    return None


def _never(source: Source, tres: Mapping[str, float], minutes: float) -> Over | None:
    for cap in source.group_run_mins:
        if minutes_of(tres.get(cap.name, 0.0), minutes) > cap.limit:
            return Over(cap.reason, f"it may use more than {cap.limit:g} {cap.name}-minutes")
    return None


def _refused(reason: str, text: str) -> Refused:
    return Refused(_POLICY, Over(reason, text))
