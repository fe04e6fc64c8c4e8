"""Whether the scripted cases and the seeds catch every deliberate fault of `mutations`."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from spur_ctld.replication.testing.mutations import MUTATIONS, Mutation

#: Where the scripted cases are, in the source tree.
TESTS = Path(__file__).resolve().parents[4] / "tests" / "replication"
#: Tests of the stores.
STORES = ("test_log_store.py", "test_log_failures.py", "test_recovery.py", "test_snapshot_files.py")
#: Seeds tried on each fault, the same every time.
FIRST, SEEDS = 0, 40
#: Seconds for one fault; one that makes everything hang was noticed.
PATIENCE = 600


class Unusable(Exception):
    """Not a source tree, or no such mutation."""


class Verdict(msgspec.Struct, frozen=True):
    """What became of one fault.  `case`, `seed`, `problem` as `mutant` prints them."""

    mutation: Mutation
    case: str = ""
    seed: int | None = None
    problem: str = ""

    @property
    def caught(self) -> bool:
        return bool(self.case) or bool(self.problem)

    @property
    def good(self) -> bool:
        """Caught, unless nothing can catch it."""
        return self.caught != bool(self.mutation.harmless)


def cases(mutation: Mutation) -> list[str]:
    """Files of scripted cases: the core's, or the stores'."""
    names = STORES if mutation.files else ("test_core_*.py",)
    found = [str(path) for name in names for path in sorted(TESTS.glob(name))]
    if not found:
        raise Unusable(f"{TESTS}: no scripted cases; run this in a source tree")
    return found


def judge(mutation: Mutation, files: Sequence[str], seeds: int, first: int = FIRST) -> Verdict:
    """Run the cases and the seeds with the fault, in a process of its own."""
    command = [sys.executable, "-m", "spur_ctld.replication.testing.mutant", mutation.name]
    command += ["--first", str(first), "--seeds", str(seeds), "--cases", *files]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return Verdict(mutation, problem=f"did not end in {PATIENCE} s")
    if done.returncode:
        raise Unusable(f"{mutation.name}: {(done.stderr.strip() or 'ended').splitlines()[-1]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return Verdict(mutation, answer["case"], answer["seed"], answer["problem"])


def run(names: Sequence[str], jobs: int | None, say: Callable[[str], None]) -> list[Verdict]:
    """All mutations, or those named; a line for each.

    Raises:
        Unusable: a name is unknown, a fault does not fit the sources, or there are no cases.
    """
    unknown = set(names) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        raise Unusable(f"no such mutation: {', '.join(sorted(unknown))}")
    chosen = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    verdicts = []
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        for verdict in pool.map(lambda mutation: judge(mutation, cases(mutation), SEEDS), chosen):
            verdicts.append(verdict)
            say(line(verdict))
    bad = [verdict.mutation.name for verdict in verdicts if not verdict.good]
    caught = sum(verdict.caught for verdict in verdicts)
    by_seed = sum(verdict.seed is not None for verdict in verdicts)
    harmless = sum(bool(verdict.mutation.harmless) for verdict in verdicts)
    say(f"{len(verdicts)} faults: {caught} caught ({by_seed} by one of {SEEDS} seeds), {harmless} harmless")
    if bad:
        say(f"NOT AS EXPECTED: {', '.join(bad)}")
    return verdicts


def status(verdicts: Sequence[Verdict]) -> int:
    """Exit status."""
    return 0 if all(verdict.good for verdict in verdicts) else 1


def line(verdict: Verdict) -> str:
    """For a person at a terminal."""
    mutation = verdict.mutation
    if not verdict.caught:
        found = f"harmless: {mutation.harmless}" if mutation.harmless else "SURVIVED"
    else:
        found = "; ".join(_catchers(verdict))
    return f"{mutation.name:28} {found}"


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """Markdown."""
    lines = ["| fault | what is wrong | scripted case | seed |", "|---|---|---|---|"]
    for verdict in verdicts:
        mutation = verdict.mutation
        seed = "" if verdict.seed is None else f"{verdict.seed}: {_short(verdict.problem)}"
        case = f"`{verdict.case}`" if verdict.case else ("" if verdict.seed is not None else "none")
        if not verdict.caught and mutation.harmless:
            case, seed = f"harmless: {mutation.harmless}", ""
        lines.append(f"| {mutation.name} | {mutation.fault} | {case} | {seed} |")
    return lines


def _catchers(verdict: Verdict) -> list[str]:
    found = [verdict.case] if verdict.case else []
    if verdict.problem:
        found.append(f"seed {verdict.seed}: {_short(verdict.problem)}")
    return found


def _short(problem: str) -> str:
    text = re.sub(r"/\S*spursim\w+/", "", problem.partition(": 1: ")[0]).replace("|", "/")
    return text if len(text) <= 90 else f"{text[:87]}..."
