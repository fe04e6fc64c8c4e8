"""Make the workload of packages/spur-sched/examples/made-up.swf: nobody's jobs, drawn from a seed.

    python tools/make_trace.py > packages/spur-sched/examples/made-up.swf

It has what real traces of batch machines have and schedulers must cope with: more submissions by day than by
night, bursts by one user, sizes that prefer powers of two with many small jobs and a few that take most of
the machine, run times over five orders of magnitude, time limits that are round numbers and far too long,
jobs that fail early, that are killed at their limit, and that are cancelled before they run.

Only `Random.random` is used and everything is rounded to whole numbers, so that the file is the same with
every Python.
"""

import argparse
import math
import random
import sys
from collections.abc import Iterator

NODES = 64
CPUS = 16
#: What users write for -t, seconds.
LIMITS = (300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800)
HEADER = f"""\
; Version: 2.2
; Computer: none
; Installation: none, drawn from a seed by tools/make_trace.py
; Information: for tests and for trying the simulator; nobody ran these jobs
; Note: times are seconds; memory is not told
; MaxJobs: {{jobs}}
; MaxRecords: {{jobs}}
; UnixStartTime: 0
; TimeZoneString: UTC
; MaxNodes: {NODES}
; MaxProcs: {NODES * CPUS}
; Queue: 1 batch
"""


class Chance(random.Random):
    """Draws that need `random` alone."""

    def below(self, bound: int) -> int:
        """A whole number from 0 to `bound` - 1."""
        return int(self.random() * bound)

    def between(self, low: float, high: float) -> float:
        """Evenly spread on a logarithmic scale."""
        return math.exp(math.log(low) + self.random() * (math.log(high) - math.log(low)))


def size(chance: Chance) -> int:
    """Processors of a job."""
    kind = chance.random()
    if kind < 0.25:
        return 1
    if kind < 0.80:
        return int(2 ** (1 + chance.below(7)))
    if kind < 0.95:
        return int(chance.between(2, 400))
    return 256 + 64 * chance.below(9)


def limit_for(chance: Chance, run: int) -> int:
    """What a user who does not know asks for: a round number, mostly several times too long."""
    guess = run * chance.between(1.0, 12.0)
    return next((limit for limit in LIMITS if limit >= guess), LIMITS[-1])


def rate(second: int) -> float:
    """Submissions at this time of the day against those at the busiest."""
    hour = second % 86400 / 3600
    return 0.15 + 0.85 * max(0.0, math.sin(math.pi * (hour - 7) / 14)) if 7 <= hour <= 21 else 0.15


def jobs(seed: int, count: int) -> Iterator[list[int]]:
    """The records, in order of submission."""
    chance = Chance(seed)
    now = 0
    number = 0
    while number < count:
        now += 1 + int(-math.log(1 - chance.random()) * 310)
        if chance.random() > rate(now):
            continue
        user = 1 + int(chance.between(1, 40))
        burst = 1 + chance.below(12) if chance.random() < 0.12 else 1
        shape, scale = size(chance), chance.between(20, 60_000)
        for _ in range(min(burst, count - number)):
            number += 1
            now += chance.below(3) if burst > 1 else 0
            run = max(1, int(scale * chance.between(0.5, 1.5)))
            limit = limit_for(chance, run)
            status, fate = 1, chance.random()
            if fate < 0.04:
                yield _record(number, now, -1, -1, shape, limit, 5, user)
                continue
            if fate < 0.12:
                run, status = max(0, int(run * chance.random() * 0.1)), 0
            elif fate < 0.16:
                run, status = limit + chance.below(30), 0
            yield _record(number, now, run, shape, shape, limit, status, user)


def _record(
    number: int, submit: int, run: int, allocated: int, requested: int, limit: int, status: int, user: int
) -> list[int]:
    unknown = -1
    return [
        number,
        submit,
        unknown,
        run,
        allocated,
        unknown,
        unknown,
        requested,
        limit,
        unknown,
        status,
        user,
        1 + user % 5,
        unknown,
        1,
        unknown,
        unknown,
        unknown,
    ]


def text(seed: int, count: int) -> str:
    """The whole file."""
    lines = [HEADER.format(jobs=count)]
    lines += [" ".join(str(value) for value in record) + "\n" for record in jobs(seed, count)]
    return "".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1000)
    given = parser.parse_args()
    sys.stdout.write(text(given.seed, given.jobs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
