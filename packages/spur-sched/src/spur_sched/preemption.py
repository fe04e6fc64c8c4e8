"""Whom a waiting job may push aside, and the smallest sensible set of them.  Pure.

What room the victims would free, and whether the job fits then, is the caller's knowledge: it hands in a
trial.  The order of victims is Slurm's: lowest tier first, then lowest priority (or the youngest, or the
smallest), and of equals the one that ran for the shortest time, so that the least work is lost.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from spur_sched.api import GresMap, NodeShare, Policy, Running

#: Modes in which a victim's room comes free; "off" is none of them.
MODES: Final = frozenset({"cancel", "requeue", "suspend"})
#: The nodes on which the job would run if these were gone; None = it would not fit.
Trial = Callable[[Sequence[Running]], Collection[str] | None]
#: An attempt that takes longer to end is not waited for: whoever needs room may take other victims.
PATIENCE_SECS: Final = 120.0


class Preemptor(NamedTuple):
    """The job that found no room, in one of its partitions."""

    job_id: int
    tier: int
    qos: str = ""
    #: The nodes that it may use.
    nodes: Collection[str] = frozenset()


def candidates(preemptor: Preemptor, running: Iterable[Running], policy: Policy, now: float) -> list[Running]:
    """Attempts that may be ended or stopped for `preemptor`, who goes first standing first."""
    found = [one for one in running if preemptable(preemptor, one, policy, now)]
    found.sort(key=lambda one: _order(one, policy))
    return found


def preemptable(preemptor: Preemptor, victim: Running, policy: Policy, now: float) -> bool:
    """Whether the rules allow it; that it helps is another matter."""
    if victim.preempt_mode not in MODES or victim.ending_since is not None or victim.started is None:
        return False
    # One that is stopped already costs nobody anything more.
    if not victim.lent and (victim.room_for or victim.exempt_until > now):
        return False
    least = policy.preempt_min_exempt_priority
    if least is not None and victim.priority >= least:
        return False
    if policy.preempt_type == "partition_prio":
        allowed = victim.tier < preemptor.tier
    elif policy.preempt_type == "qos":
        allowed = victim.qos in policy.preempt_qos.get(preemptor.qos, ())
        # Inside its own reservation only a higher tier reaches it.
        allowed = allowed and (not victim.reservation or victim.tier < preemptor.tier)
    else:
        allowed = False
    return allowed and any(share.node in preemptor.nodes for share in victim.shares)


def choose(found: Sequence[Running], trial: Trial, policy: Policy) -> tuple[Running, ...] | None:
    """The victims, or None when ending all of `found` would not make room (or takes more than allowed).

    None of them is there in vain: without any one of them the job would not fit.

    Args:
        found: as `candidates` gives them.
        trial: with more victims it never fits less.
    """
    least = _needed(found, trial)
    if least is None:
        return None
    best = _without_bystanders(found[:least], trial)
    if not policy.preempt_strict_order:
        order = list(found)
        for _ in range(max(0, policy.preempt_reorder_count)):
            # The one that made it possible comes first: it may do alone what many small ones did.
            last = order[least - 1]
            order.remove(last)
            order.insert(0, last)
            least = _needed(order, trial)
            if least is None:
                break
            other = _without_bystanders(order[:least], trial)
            if len(other) < len(best):
                best = other
            if len(best) <= 1:
                break
    if policy.preempt_most and len(best) > policy.preempt_most:
        return None
    return tuple(sorted(best, key=lambda one: _order(one, policy)))


def freed(victim: Running) -> tuple[NodeShare, ...]:
    """What its preemption frees: all it has, or the CPUs alone when it is stopped in memory."""
    if victim.ending_since is not None or (victim.preempt_mode != "suspend" and not victim.lent):
        return victim.shares
    none: GresMap = {}
    return tuple(share._replace(memory_mb=0, gres=none) for share in victim.shares)


def coming(running: Iterable[Running], now: float) -> list[Running]:
    """Attempts that are ending: their room is as good as there, so nobody is preempted to have it too."""
    return [
        one
        for one in running
        if (one.ending_since is not None and now - one.ending_since <= PATIENCE_SECS + one.grace_secs)
        or (one.ending_since is None and one.room_for and not one.lent and one.preempt_mode in MODES)
    ]


def _order(one: Running, policy: Policy) -> tuple[float, ...]:
    started = math.inf if one.started is None else one.started
    size = sum(share.cpus for share in one.shares)
    # Lent CPUs cost nobody anything: who is stopped already stays so first.
    asleep = 0 if one.lent else 1
    if policy.preempt_youngest_first:
        return (asleep, one.tier, -started, one.priority, size, -one.job_id)
    if policy.preempt_by_size:
        return (asleep, one.tier, size, one.priority, -started, -one.job_id)
    return (asleep, one.tier, one.priority, -started, size, -one.job_id)


def _needed(order: Sequence[Running], trial: Trial) -> int | None:
    """How many of the first ones suffice; None = not even all."""
    low, high = 0, 1
    while high < len(order) and trial(order[:high]) is None:
        # Mostly few suffice, so the search begins with few.
        low, high = high, high * 2
    if high >= len(order):
        high = len(order)
        if not order or trial(order) is None:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if trial(order[:middle]) is None:
            low = middle
        else:
            high = middle
    return high


def _without_bystanders(victims: Sequence[Running], trial: Trial) -> list[Running]:
    """Those that are needed; who would go last is spared first."""
    kept = list(victims)
    nodes = trial(kept)
    if nodes is not None:
        # Whoever runs elsewhere makes no room there.
        near = [one for one in kept if any(share.node in nodes for share in one.shares)]
        if len(near) < len(kept) and near and trial(near) is not None:
            kept = near
    changed = True
    while changed:
        changed = False
        for one in reversed(kept):
            fewer = [other for other in kept if other is not one]
            if fewer and trial(fewer) is not None:
                kept, changed = fewer, True
    return kept
