"""What srun says about the ends of its tasks, and with which code it exits.  Pure."""

import signal
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spur_core.grammar import hostlist
from spur_core.grammar.array import IndexSet

OOM_CODE = 125


class TaskEnd(NamedTuple):
    """How one task ended, and where it ran."""

    node: str
    rank: int
    code: int
    signal: int
    oom: bool
    core: bool


def exit_code(end: TaskEnd) -> int:
    """What one task adds to srun's own code."""
    if end.oom:
        return OOM_CODE
    return 128 + end.signal if end.signal else end.code & 0xFF


def overall(ends: Iterable[TaskEnd]) -> int:
    """srun's exit code: the highest of its tasks'."""
    return max((exit_code(end) for end in ends), default=1)


def describe(end: TaskEnd) -> str:
    """`Exited with exit code 3`, `Killed`, `Segmentation fault (core dumped)`; "" for a good end."""
    if end.oom:
        return "Out Of Memory"
    if end.signal:
        text = signal.strsignal(end.signal) or f"Signal {end.signal}"
        return f"{text} (core dumped)" if end.core else text
    return f"Exited with exit code {end.code}" if end.code else ""


def tasks_text(ranks: Iterable[int]) -> str:
    """`task 0` or `tasks 0-1,3`."""
    found = sorted(ranks)
    return f"{'task' if len(found) == 1 else 'tasks'} {IndexSet.of(found).text()}"


def lines(ends: Iterable[TaskEnd]) -> list[str]:
    """The lines of `srun: error:` (without that prefix); tasks with the same end share one."""
    groups: dict[str, list[TaskEnd]] = {}
    for end in sorted(ends, key=lambda e: e.rank):
        text = describe(end)
        if text:
            groups.setdefault(text, []).append(end)
    out = []
    for text, members in groups.items():
        nodes = hostlist.compress_sorted([end.node for end in members])
        out.append(f"{nodes}: {tasks_text(end.rank for end in members)}: {text}")
    return out


def state_lines(places: Iterable[int], ends: Mapping[int, TaskEnd], step: str) -> list[str]:
    """What an interrupt or the end of `--wait` tells: `StepId=1.0 tasks 0-1: running`.

    Args:
        places: every rank.
        ends: how those that have ended did.
    """
    groups: dict[str, list[int]] = {"running": [], "exited abnormally": [], "exited": []}
    for rank in places:
        end = ends.get(rank)
        state = "running" if end is None else "exited abnormally" if exit_code(end) else "exited"
        groups[state].append(rank)
    return [f"StepId={step} {tasks_text(ranks)}: {state}" for state, ranks in groups.items() if ranks]
