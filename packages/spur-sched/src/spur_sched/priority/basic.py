"""The simple formula: a base that grows with the age and the tier of the partition.

    priority = max(1, floor(base * min(fair share, 10) * age * max(tier, 1)))
    age      = 1 + min(wait / max_age, 1)

With the usual maximal age of 7 days a job counts double after a week.  Fair share here is target by actual
use: 1 = as it should be, more for who got less.
"""

import math
from typing import Final

from spur_sched.priority.rules import HIGHEST

#: However little somebody used, his jobs count no more than so many times.
MOST_SHARE: Final = 10.0


def priority(
    base: int, *, tier: int, since: float, now: float, share: float = 1.0, max_age: float = 7 * 86_400.0
) -> int:
    """The priority of a job that is not held.

    Args:
        base: at least 1.
        tier: the highest tier of the partitions that it asks for.
        since: when it could have started for the first time.
        share: its fair share; 1 where nothing is known.
    """
    waited = max(0, math.floor(now) - math.floor(since))
    age = 1.0 + min(waited / max_age, 1.0)
    total = base * min(share, MOST_SHARE) * age * max(tier, 1)
    return int(min(HIGHEST, max(1, math.floor(total))))
