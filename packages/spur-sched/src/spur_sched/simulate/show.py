"""Figures and starts as tables, CSV and JSON.  Pure text."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spur_core.grammar.hostlist import compress_sorted
from spur_sched.simulate.figures import Figures, slowdown
from spur_sched.simulate.replay import Outcome

#: Policy as the scheduler calls it -> as it is shown.
LABELS = {"none": "none (FCFS)", "easy": "easy", "conservative": "conservative"}
_STARTS = ("policy", "order", "job", "submit", "start", "end", "wait", "run", "slowdown", "cpus", "nodes")


class Result(NamedTuple):
    """The replay under one policy; `names`: job id -> name in the trace."""

    policy: str
    figures: Figures
    outcome: Outcome
    names: Mapping[int, str]


def span(seconds: float) -> str:
    """`1-02:03:04`, `02:03:04`; below a minute `12.5s`."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def table(results: Sequence[Result]) -> str:
    """A line a policy."""
    head = (
        "POLICY JOBS WAIT_MEAN WAIT_MEDIAN WAIT_P95 WAIT_MAX SLOWDOWN_MEAN SLOWDOWN_P95 UTILISATION MAKESPAN"
        " OVERTAKES"
    )
    rows = [head.split()]
    for result in results:
        found = result.figures
        rows.append(
            [
                LABELS[result.policy],
                str(found.jobs),
                span(found.wait_mean),
                span(found.wait_median),
                span(found.wait_p95),
                span(found.wait_max),
                f"{found.slowdown_mean:.2f}",
                f"{found.slowdown_p95:.2f}",
                f"{found.utilisation:.1%}",
                span(found.makespan),
                str(found.overtakes),
            ]
        )
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def as_json(head: Mapping[str, object], results: Sequence[Result]) -> str:
    """Everything but the starts."""
    policies = [
        {
            "policy": result.policy,
            **result.figures._asdict(),
            "passes": result.outcome.passes,
            "never_started": [
                {"job": result.names[stuck.job.job_id], "reason": stuck.reason}
                for stuck in result.outcome.stuck
            ],
        }
        for result in results
    ]
    return json.dumps({**head, "policies": policies}, indent=2) + "\n"


def _starts(results: Sequence[Result], bound: float) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for result in results:
        for order, start in enumerate(result.outcome.starts, 1):
            wait, run = start.start - start.job.submit_at, start.end - start.start
            values = (
                result.policy,
                order,
                result.names[start.job.job_id],
                _number(start.job.submit_at),
                _number(start.start),
                _number(start.end),
                _number(wait),
                _number(run),
                round(slowdown(wait, run, bound), 4),
                start.cpus,
                compress_sorted(list(start.nodes)),
            )
            rows.append(dict(zip(_STARTS, values, strict=True)))
    return rows


def starts_csv(results: Sequence[Result], bound: float) -> str:
    """A line a start, in order of starting."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _STARTS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_starts(results, bound))
    return out.getvalue()


def starts_json(results: Sequence[Result], bound: float) -> str:
    """The same as a list of objects."""
    return json.dumps(_starts(results, bound), indent=1) + "\n"


def _number(seconds: float) -> int | float:
    return int(seconds) if seconds == int(seconds) else seconds
