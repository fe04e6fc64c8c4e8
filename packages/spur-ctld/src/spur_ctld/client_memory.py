"""What the leader remembers of clients without replicating it: signs of life, and who waits for a step.

Losing it costs nothing but time: after a start every client gets a full window of silence, and those that
wait line up again.  Times are monotonic seconds, given by the caller.
"""

from collections.abc import Iterable
from typing import Final

#: A place in a line is kept this long for a client that calls again.
PLACE_SECS: Final = 10.0

#: (job id, attempt)
Run = tuple[int, int]


class ClientMemory:
    """Signs of life of srun and salloc."""

    def __init__(self) -> None:
        self._heard: dict[Run, float] = {}

    def heard(self, run: Run, now: float) -> None:
        """The client behind an attempt lives."""
        self._heard[run] = now

    def silent(self, runs: Iterable[Run], limit_secs: float, now: float) -> list[Run]:
        """Of these attempts those whose client has not been heard for longer than the limit.

        One that is asked about for the first time gets a full window.  All others are forgotten.
        """
        self._heard = {run: self._heard.get(run, now) for run in runs}
        return [run for run, at in self._heard.items() if now - at > limit_secs]


class StepLines:
    """Who waits for a step of a job, first come first served.

    `ticket` is the same when a client calls again.
    """

    def __init__(self) -> None:
        #: Job -> ticket -> until when its place is kept; None while its call is open.
        self._lines: dict[int, dict[str, float | None]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def join(self, job_id: int, ticket: str) -> None:
        """Take a place at the end, or the one that was kept."""
        self._lines.setdefault(job_id, {})[ticket] = None

    def step_out(self, job_id: int, ticket: str, now: float) -> None:
        """The call ended without a step; the place is kept for a while."""
        line = self._lines.get(job_id, {})
        if ticket in line:
            line[ticket] = now + PLACE_SECS

    def leave(self, job_id: int, ticket: str) -> None:
        """The place is not needed any more."""
        line = self._lines.get(job_id)
        if line is not None:
            line.pop(ticket, None)
            if not line:
                del self._lines[job_id]

    def first(self, job_id: int, ticket: str, now: float) -> bool:
        """Whether nobody stands before that ticket."""
        line = self._lines.get(job_id, {})
        for other in [name for name, until in line.items() if until is not None and until <= now]:
            del line[other]
        return next(iter(line), ticket) == ticket

    def forget(self, alive: Iterable[int]) -> None:
        """Drop the lines of jobs that are gone."""
        kept = set(alive)
        for job_id in [job_id for job_id in self._lines if job_id not in kept]:
            del self._lines[job_id]
