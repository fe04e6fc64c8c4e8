"""The factors of one job's priority: numbers from 0 to 1, before their weights.

What moves by itself, age and fair share, is apart from the rest, which stays as it is until the job, the
nodes or the configuration change.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from spur_sched.priority.rules import Rules

_NO_TRES: Final[Mapping[str, float]] = {}


class Facts(NamedTuple):
    """What the priority of a job in one partition goes by.

    Attributes:
        submit_at: when it was submitted.
        accrue_at: since when its age counts; None while it does not (a dependency, a hold).
        time_limit: minutes; None = not set, the partition's maximum counts; inf = unlimited.
        tres: what it asks for by TRES name; memory in MiB.
        nice: taken off the priority.
        site: added to it, by an administrator's word.
        assoc: priority of its association.
    """

    submit_at: float
    accrue_at: float | None
    cpus: int
    min_nodes: int
    partition: str
    time_limit: float | None = None
    tres: Mapping[str, float] = _NO_TRES
    nice: int = 0
    site: int = 0
    user: str = ""
    account: str = ""
    qos: str = ""
    assoc: int = 0


class PartitionFacts(NamedTuple):
    """`max_time` in minutes, inf = unlimited; `tres` are totals of its nodes."""

    job_factor: int = 1
    max_time: float = math.inf
    tres: Mapping[str, float] = _NO_TRES


class Cluster(NamedTuple):
    """What factors are measured by.

    Attributes:
        tres: totals of what belongs to no partition (licences).
        qos: priority of each QOS.
        most_assoc: the highest priority of any association.
    """

    cpus: int
    nodes: int
    partitions: Mapping[str, PartitionFacts]
    tres: Mapping[str, float] = _NO_TRES
    qos: Mapping[str, int] = {}
    most_assoc: int = 0


class Factors(NamedTuple):
    """One number for each factor, with or without weights; `tres` by name, in the order of the weights."""

    age: float = 0.0
    assoc: float = 0.0
    fairshare: float = 0.0
    job_size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    tres: tuple[tuple[str, float], ...] = ()


def age(facts: Facts, rules: Rules, now: float) -> float:
    """How much of `max_age` the job has waited, 1 at most.  Whole seconds count, as in Slurm."""
    since = facts.submit_at if rules.accrue_always else facts.accrue_at
    if since is None:
        return 0.0
    waited = math.floor(now) - math.floor(since)
    return min(1.0, max(0.0, waited / rules.max_age))


def job_size(facts: Facts, cluster: Cluster, rules: Rules) -> float:
    """The part of the cluster that the job asks for.

    The mean of its parts of the nodes and of the CPUs, or what is left of them for `favor_small`.  With
    `relative_to_time` its CPUs (whole nodes' worth for what it asks in nodes) by the minutes of its limit.
    """
    if cluster.nodes <= 0 or cluster.cpus <= 0:
        return 0.0
    if rules.relative_to_time:
        size = max(facts.min_nodes * cluster.cpus / cluster.nodes, float(facts.cpus))
        limit = facts.time_limit
        if limit is None:
            part = cluster.partitions.get(facts.partition)
            limit = part.max_time if part is not None else math.inf
        found = size / max(1.0, limit) / cluster.cpus
        return _unit(1.0 - found if rules.favor_small else found)
    nodes = facts.min_nodes / cluster.nodes
    cpus = facts.cpus / cluster.cpus
    if rules.favor_small:
        nodes, cpus = 1.0 - nodes, 1.0 - cpus
    return _unit((nodes + cpus) / 2 if facts.cpus else nodes)


def partition(facts: Facts, cluster: Cluster, rules: Rules) -> float:
    """The partition's factor by the highest of all partitions."""
    own = cluster.partitions.get(facts.partition)
    if own is None:
        return 0.0
    if not rules.normal_partition:
        return float(own.job_factor)
    return _part(own.job_factor, max(part.job_factor for part in cluster.partitions.values()))


def qos(facts: Facts, cluster: Cluster, rules: Rules) -> float:
    """The QOS's priority by the highest of all QOS."""
    own = cluster.qos.get(facts.qos, 0)
    return _part(own, max(cluster.qos.values(), default=0)) if rules.normal_qos else float(own)


def assoc(facts: Facts, cluster: Cluster, rules: Rules) -> float:
    """The association's priority by the highest of all associations."""
    return _part(facts.assoc, cluster.most_assoc) if rules.normal_assoc else float(facts.assoc)


def tres(facts: Facts, cluster: Cluster, rules: Rules) -> tuple[tuple[str, float], ...]:
    """Of each TRES with a weight the part of the partition's, or of the cluster's if it belongs to none."""
    own = cluster.partitions.get(facts.partition)
    found = []
    for name, weight in rules.weights.tres:
        if not weight:
            continue
        asked = float(facts.tres.get(name, 0.0))
        if rules.normal_tres:
            total = own.tres.get(name, 0.0) if own is not None else 0.0
            asked = _unit(asked / total) if (total := total or cluster.tres.get(name, 0.0)) > 0 else 0.0
        found.append((name, asked))
    return tuple(found)


def still(facts: Facts, cluster: Cluster, rules: Rules) -> Factors:
    """The factors that do not move by themselves; age and fair share are 0 in it.

    One without a weight is worked out all the same, for whoever looks.
    """
    return Factors(
        assoc=assoc(facts, cluster, rules),
        job_size=job_size(facts, cluster, rules),
        partition=partition(facts, cluster, rules),
        qos=qos(facts, cluster, rules),
        tres=tres(facts, cluster, rules),
    )


def _part(own: float, most: float) -> float:
    return own / most if most > 0 else 0.0


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))
