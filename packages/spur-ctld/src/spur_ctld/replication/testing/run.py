"""Simulate groups of controllers: `hatch run sim -- [--seeds N] [--seed S [--trace]] [--mutations]`.

Without options 250 seeds from a random one.  A failure prints its seed; `--seed S --trace` replays it.
`--report FILE` writes the figures between the marks in that file.  Exit status 0 when nothing was violated,
or every mutation that does harm was caught.
"""

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from spur_ctld.replication.testing import mutate
from spur_ctld.replication.testing.sweep import Outcome, Sweep, Totals, run_seed, sweep
from spur_ctld.replication.testing.weather import draw

SEEDS = 250


def say(line: str) -> None:
    """To standard output, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def failure(outcome: Outcome) -> str:
    """What happened and how to see it again."""
    kind = f"{outcome.weather}, {outcome.size} members{', files' if outcome.files else ''}"
    again = f"hatch run sim -- --seed {outcome.seed} --trace"
    return f"seed {outcome.seed} ({kind}): {outcome.problem}; see it: {again}"


def replay(seed: int, *, trace: bool) -> int:
    """One seed, perhaps line by line."""
    say(f"seed {seed}: {draw(seed)}")
    outcome = run_seed(seed, say if trace else None)
    say(", ".join(f"{count} {name}" for name, count in outcome.counts.items()))
    say(f"VIOLATED: {outcome.problem}" if outcome.problem else "nothing was violated")
    return 1 if outcome.problem else 0


def table(result: Sweep) -> list[str]:
    """The figures of a sweep as Markdown."""
    columns = ("acknowledged", "refused", "reads", "elections", "crashes", "installs", "losses")
    heads = ("weather", "runs", "with files", *columns[:-1], "lost directories")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]

    def row(name: str, totals: Totals) -> str:
        counts = " | ".join(f"{totals.counts[column]:,}" for column in columns)
        return f"| {name} | {totals.runs:,} | {totals.files:,} | {counts} |"

    lines += [row(name, result.by_weather[name]) for name in sorted(result.by_weather)]
    lines.append(row("all", result.totals))
    return lines


def report(result: Sweep) -> list[str]:
    """The section of a document."""
    totals = result.totals
    verdict = "no violation" if not result.problems else f"{len(result.problems)} VIOLATIONS"
    return [
        f"{totals.runs:,} seeds from {result.first} on in {result.seconds / 60:.0f} minutes on "
        f"{os.cpu_count()} processors: {verdict} in {totals.counts['events']:,} events, "
        f"{totals.counts['acknowledged']:,} acknowledged commands, {totals.counts['elections']:,} elections, "
        f"{totals.counts['crashes']:,} crashes.",
        "",
        *table(result),
        *(f"\n* {failure(outcome)}" for outcome in result.problems),
    ]


def put_into(file: Path, mark: str, lines: Sequence[str]) -> None:
    """Replace what is between `<!-- mark -->` and `<!-- /mark -->`, or append both."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    text = file.read_text() if file.exists() else ""
    before, found, rest = text.partition(begin)
    after = rest.partition(end)[2] if found else ""
    gap = "" if found or not text else "\n"
    file.write_text(f"{before}{gap}{begin}\n" + "\n".join(lines) + f"\n{end}{after or chr(10)}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sim", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, metavar="N", help="how many (default %(default)s)"
    )
    parser.add_argument("--first", type=int, metavar="S", help="the first of them (default random)")
    parser.add_argument("--seed", type=int, metavar="S", help="one run")
    parser.add_argument("--trace", action="store_true", help="with --seed: everything that happens")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default as many as processors)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the figures into this document")
    parser.add_argument("--mutations", action="store_true", help="whether deliberate faults are caught")
    parser.add_argument("--only", default="", metavar="NAMES", help="with --mutations: some, by comma")
    words = list(sys.argv[1:] if arguments is None else arguments)
    given = parser.parse_args(words[1:] if words[:1] == ["--"] else words)
    if given.seed is not None:
        return replay(given.seed, trace=given.trace)
    if given.mutations:
        names = [name for name in given.only.split(",") if name]
        try:
            verdicts = mutate.run(names, given.jobs, say)
        except mutate.Unusable as error:
            say(f"sim: {error}")
            return 2
        if given.report:
            put_into(given.report, "mutations", mutate.table(verdicts))
        return mutate.status(verdicts)
    first = secrets.randbelow(1 << 31) if given.first is None else given.first
    say(f"{given.seeds} seeds from {first} on")
    result = sweep(first, given.seeds, given.jobs, lambda outcome: say(failure(outcome)))
    for line in table(result):
        say(line)
    counts = result.totals.counts
    verdict = f"{len(result.problems)} FAILED" if result.problems else "nothing was violated"
    say(f"{result.totals.runs} runs, {counts['events']:,} events, {result.seconds:.1f} s: {verdict}")
    if given.report:
        put_into(given.report, "sweep", report(result))
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
