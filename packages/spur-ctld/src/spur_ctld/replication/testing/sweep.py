"""Many seeds on all processors, and what they add up to."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from spur_ctld.replication.testing.sim import Simulator, Teller
from spur_ctld.replication.testing.weather import draw

#: Attributes of a simulator that are added up.
COUNTED = (
    "acknowledged",
    "refused",
    "reads",
    "forwards",
    "elections",
    "crashes",
    "installs",
    "transfers",
    "losses",
    "events",
)


class Outcome(msgspec.Struct, frozen=True):
    """One seed.  `problem`: None = nothing was violated."""

    seed: int
    weather: str
    size: int
    files: bool
    problem: str | None
    counts: dict[str, int]


class Totals(msgspec.Struct):
    """Several seeds."""

    runs: int = 0
    files: int = 0
    counts: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(COUNTED, 0))

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.files += outcome.files
        for name, count in outcome.counts.items():
            self.counts[name] += count


def run_seed(seed: int, tell: Teller | None = None, *, files: bool = False) -> Outcome:
    """One run; whatever it raises is the problem.  `files`: with the real stores, whatever the seed says."""
    setup = draw(seed)
    sim = Simulator(seed, msgspec.structs.replace(setup, files=files or setup.files), tell)
    problem = None
    try:
        sim.run()
    except Exception as error:
        problem = str(error) if isinstance(error, AssertionError) else repr(error)
    setup = sim.setup
    counts = {name: getattr(sim, name) for name in COUNTED}
    return Outcome(seed, setup.name, setup.size, setup.files, problem or None, counts)


def run_seeds(first: int, count: int, jobs: int | None = None) -> Iterator[Outcome]:
    """Outcomes in the order of the seeds.  `jobs`: processes; default as many as processors."""
    jobs = jobs or os.cpu_count() or 1
    seeds = range(first, first + count)
    if jobs == 1:
        yield from map(run_seed, seeds)
        return
    size = max(10, min(200, count // (4 * jobs)))
    with ThreadPoolExecutor(jobs) as pool:
        for outcomes in pool.map(_elsewhere, (seeds[at : at + size] for at in range(0, count, size))):
            yield from outcomes


def _elsewhere(seeds: range) -> list[Outcome]:
    """Run them in a process of its own."""
    command = [sys.executable, "-m", "spur_ctld.replication.testing.sweep", str(seeds.start), str(len(seeds))]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=list[Outcome])


class Sweep(msgspec.Struct):
    """The result of many seeds."""

    first: int
    seconds: float = 0.0
    totals: Totals = msgspec.field(default_factory=Totals)
    by_weather: dict[str, Totals] = msgspec.field(default_factory=dict)
    problems: list[Outcome] = msgspec.field(default_factory=list)


def sweep(
    first: int, count: int, jobs: int | None = None, failed: Callable[[Outcome], None] = lambda _: None
) -> Sweep:
    """Run `count` seeds from `first` on; each failure is told at once."""
    began = time.monotonic()
    result = Sweep(first)
    for outcome in run_seeds(first, count, jobs):
        result.totals.add(outcome)
        result.by_weather.setdefault(outcome.weather, Totals()).add(outcome)
        if outcome.problem is not None:
            result.problems.append(outcome)
            failed(outcome)
    result.seconds = time.monotonic() - began
    return result


def main() -> None:
    """One process of a sweep: FIRST COUNT; the outcomes as JSON."""
    first, count = map(int, sys.argv[1:])
    outcomes = list(run_seeds(first, count, jobs=1))
    sys.stdout.buffer.write(msgspec.json.encode(outcomes))


if __name__ == "__main__":
    main()
