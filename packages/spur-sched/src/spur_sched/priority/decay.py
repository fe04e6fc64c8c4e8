"""Usage that is forgotten by halves.

A decaying sum is kept as one number and the instant it is of: a use of `amount` counts half of that one
half-life later, a quarter after two.  The sum of uses that decayed each by themselves is the same number.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple


class Usage(NamedTuple):
    """A decayed amount (TRES-seconds) as of `at`."""

    amount: float = 0.0
    at: float = 0.0


def factor(elapsed: float, half_life: float) -> float:
    """What is left of 1 after `elapsed` seconds; half_life 0 = nothing is ever forgotten."""
    if half_life <= 0 or elapsed <= 0:
        return 1.0
    return float(math.exp2(-elapsed / half_life)) if elapsed / half_life < 1074 else 0.0


def at(usage: Usage, now: float, half_life: float) -> Usage:
    """The same usage looked at later; a look back in time changes nothing."""
    if now <= usage.at:
        return usage
    return Usage(usage.amount * factor(now - usage.at, half_life), now)


def add(usage: Usage, amount: float, when: float, half_life: float) -> Usage:
    """`usage` with an amount that was used at `when`, before or after it was last looked at."""
    if when >= usage.at:
        moved = at(usage, when, half_life)
        return Usage(moved.amount + amount, when)
    return Usage(usage.amount + amount * factor(usage.at - when, half_life), usage.at)


def add_span(usage: Usage, rate: float, begin: float, end: float, half_life: float) -> Usage:
    """`usage` with `rate` TRES used evenly from `begin` to `end`, each instant decayed from when it was.

    The result is as of `end`, or as of `usage.at` if that is later.
    """
    if end <= begin:
        return usage
    if half_life <= 0:
        amount = rate * (end - begin)
    else:
        # The integral of rate * 2 ** (-(end - t) / half_life) from begin to end.
        scale = half_life / math.log(2)
        amount = rate * scale * -math.expm1(-(end - begin) / scale)
    return add(usage, amount, end, half_life)


def total(records: Iterable[tuple[float, float]], now: float, half_life: float) -> float:
    """The decayed sum of (instant, amount), each aged from its own instant."""
    return math.fsum(amount * factor(now - when, half_life) for when, amount in records)
