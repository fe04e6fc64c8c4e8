"""Slurm's multifactor priority: the weighted sum of the factors, for one job or for a whole queue at once.

    priority = site + age_weight * age + ... + sum(tres_weight * tres) - nice

cut down to a whole number from 1 to 4294967295; 0 is left to held jobs.  Both ways add in the same order, so
that they give the same number.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spur_sched.priority import factors
from spur_sched.priority.factors import Cluster, Factors, Facts
from spur_sched.priority.rules import HIGHEST, Rules


class Breakdown(NamedTuple):
    """A priority and what it is made of."""

    priority: int
    normalized: Factors
    weighted: Factors


def still_sum(facts: Facts, cluster: Cluster, rules: Rules) -> float:
    """What of a job's priority stays as it is until the job, the nodes or the configuration change."""
    return _sum(weighted(factors.still(facts, cluster, rules), rules), facts)


def weighted(found: Factors, rules: Rules) -> Factors:
    """The factors times their weights."""
    weights = rules.weights
    by_name = dict(weights.tres)
    return Factors(
        age=found.age * weights.age,
        assoc=found.assoc * weights.assoc,
        fairshare=found.fairshare * weights.fairshare,
        job_size=found.job_size * weights.job_size,
        partition=found.partition * weights.partition,
        qos=found.qos * weights.qos,
        tres=tuple((name, value * by_name[name]) for name, value in found.tres),
    )


def breakdown(facts: Facts, cluster: Cluster, rules: Rules, now: float, share: float) -> Breakdown:
    """One job's priority with its factors.

    Args:
        share: its fair-share factor, 0 to 1.
    """
    quiet = factors.still(facts, cluster, rules)
    normalized = quiet._replace(age=factors.age(facts, rules, now), fairshare=share)
    heavy = weighted(normalized, rules)
    total = _sum(weighted(quiet, rules), facts) + heavy.age + heavy.fairshare
    return Breakdown(whole(total), normalized, heavy)


def priorities(
    still: Sequence[float],
    since: Sequence[float],
    shares: Sequence[float],
    rules: Rules,
    now: float,
) -> NDArray[np.int64]:
    """The priorities of many jobs.

    Args:
        still: of each its `still_sum`.
        since: the instant from which its age counts, inf while it does not.
        shares: its fair-share factor.
    """
    waited = math.floor(now) - np.floor(np.asarray(since, dtype=np.float64))
    ages = np.clip(waited / rules.max_age, 0.0, 1.0)
    total = (
        np.asarray(still, dtype=np.float64)
        + ages * rules.weights.age
        + np.asarray(shares, dtype=np.float64) * rules.weights.fairshare
    )
    return np.clip(np.floor(total), 1, HIGHEST).astype(np.int64)


def whole(total: float) -> int:
    """A sum as a priority."""
    return int(min(HIGHEST, max(1, math.floor(total))))


def _sum(heavy: Factors, facts: Facts) -> float:
    total = heavy.assoc + heavy.job_size + heavy.partition + heavy.qos
    for _, value in heavy.tres:
        total += value
    return total + facts.site - facts.nice
