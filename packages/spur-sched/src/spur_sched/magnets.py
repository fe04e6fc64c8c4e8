"""Reservations that draw jobs in that do not name them (MAGNETIC).

Before anybody is looked at who names no reservation, those whom one draws are tried in it, best first.  Who
finds room starts there; for everybody else it is as if there was none: nothing is promised to them in it, and
they are looked at again in their own place of the queue.
"""

from collections.abc import Iterable, Iterator

from spur_sched.api import JobView, Window


def magnets(windows: Iterable[Window], now: float) -> list[Window]:
    """Those that draw somebody now, earliest first."""
    return [window for window in windows if window.draws and window.start <= now < window.end]


def drawn(job: JobView, windows: Iterable[Window]) -> Iterator[JobView]:
    """The job as it would be in each of them that draws it.

    Who named a reservation knows that it ends with it; who is drawn in does not, so without a limit he is in
    none that ends.
    """
    for window in windows:
        if job.job_id in window.draws:
            yield job._replace(reservation=window.name)


def left(job: JobView, started: int) -> JobView | None:
    """What is left of a job of which so many runs were drawn in."""
    if job.tasks is None or started >= len(job.tasks):
        return None
    return job._replace(tasks=job.tasks[started:])
