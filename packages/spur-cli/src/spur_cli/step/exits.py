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


def lines(ends: Iterable[TaskEnd], step: str) -> list[str]:
    """The lines of `srun: error:` (without that prefix), and `Force Terminated` after a kill.

    Args:
        step: `31.0`.
    """
    groups: dict[str, list[TaskEnd]] = {}
    for end in sorted(ends, key=lambda e: e.rank):
        text = describe(end)
        if text:
            groups.setdefault(text, []).append(end)
    out = []
    killed = False
    for text, members in groups.items():
        nodes = hostlist.compress_sorted([end.node for end in members])
        out.append(f"error: {nodes}: {tasks_text(end.rank for end in members)}: {text}")
        killed = killed or any(end.signal for end in members)
    if killed:
        out.append(f"Force Terminated StepId={step}")
    return out


def running_lines(ranks: Mapping[int, bool], step: str) -> list[str]:
    """What the first interrupt tells: `StepId=1.0 tasks 0-1: running`.

    Args:
        ranks: rank -> whether it still runs.
    """
    out = []
    for state, wanted in (("running", True), ("exited", False)):
        found = [rank for rank, runs in ranks.items() if runs is wanted]
        if found:
            out.append(f"StepId={step} {tasks_text(found)}: {state}")
    return out
