"""Counts of what happened, for the log at the end of the agent."""

from collections import Counter
from typing import Final

#: What is counted, in the order in which it is shown.
NAMES: Final = (
    "adopted",
    "pushed",
    "deferred",
    "known",
    "superseded",
    "replayed",
    "reported",
    "lost",
    "fenced",
    "restored",
    "epilogs_run",
    "drains",
)


class Counters:
    """Counts by name.  `replayed` counts completions that no push told: 0 unless something is broken."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Count one more, or several."""
        assert name in NAMES, name
        self._counts[name] += count

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def line(self) -> str:
        """`NAME=COUNT` of everything."""
        return " ".join(f"{name}={self._counts[name]}" for name in NAMES)
