"""Licences inside one pass: who may take how many, counted as jobs are placed."""

from collections.abc import Iterable, Mapping

from spur_sched.api import JobView, License, Running
from spur_sched.reservations.shade import Shade

Taken = tuple[tuple[str, int], ...]


class Pools:
    """Made once for a pass; `take` is called for each job that is placed, best first.

    Args:
        licenses: the pools as they are now.
        shade: what reservations keep; those of the job's own are its to use.
        running: attempts, to know what a reservation's own jobs hold of what it keeps.
    """

    def __init__(
        self, licenses: Mapping[str, License], shade: Shade, running: Iterable[Running] = ()
    ) -> None:
        self._pools = licenses
        self._shade = shade
        self._used = {name: pool.used for name, pool in licenses.items()}
        #: (reservation, licence) -> what its jobs hold.
        self._own: dict[tuple[str, str], int] = {}
        for one in running:
            self._note(one.reservation, one.licenses)

    def _note(self, reservation: str, taken: Taken) -> None:
        if reservation:
            for name, count in taken:
                self._own[reservation, name] = self._own.get((reservation, name), 0) + count

    def missing(self, job: JobView) -> bool:
        """Whether there are not so many at all, whatever others do."""
        short = [count > self._total(name) for name, count in job.licenses]
        return bool(short) and (all(short) if job.licenses_any else any(short))

    def _total(self, name: str) -> int:
        pool = self._pools.get(name)
        return pool.total if pool is not None else 0

    def free(self, name: str, start: float, end: float, reservation: str = "") -> int:
        """How many a job of that reservation ("" = none) may take from `start` to `end`."""
        return self._total(name) - self._used.get(name, 0) - self._kept(name, start, end, reservation)

    def _kept(self, name: str, start: float, end: float, reservation: str) -> int:
        """What reservations keep and their jobs do not hold; the most at any time of the run."""
        return self._shade.licenses(name, start, end, reservation, self._own)

    def choose(self, job: JobView, start: float, end: float) -> Taken | None:
        """The licences for a start now, nothing taken yet; of alternatives the first that is free.

        Returns:
            None when they are not free; () for a job that asks for none.
        """
        free = [count <= self.free(name, start, end, job.reservation) for name, count in job.licenses]
        if job.licenses_any and job.licenses:
            return next(((item,) for item, good in zip(job.licenses, free, strict=True) if good), None)
        return job.licenses if all(free) else None

    def take(self, job: JobView, taken: Taken) -> None:
        """The job is placed with these."""
        for name, count in taken:
            self._used[name] = self._used.get(name, 0) + count
        self._note(job.reservation, taken)
