"""Licences over time: who may take how many, now or later."""

from collections.abc import Iterable, Mapping

from spur_sched.api import JobView, License, Running
from spur_sched.columns import FOREVER
from spur_sched.reservations.shade import Shade
from spur_sched.timeline import OVERDUE_SECS

Taken = tuple[tuple[str, int], ...]
_Hold = tuple[float, float, int]


class Licenses:
    """Every pool during one pass: what runs, what the pass starts, what it promises."""

    def __init__(
        self, pools: Mapping[str, License], shade: Shade, running: Iterable[Running], now: float
    ) -> None:
        self._pools = pools
        self._shade = shade
        self._now = now
        self._holds: dict[str, list[_Hold]] = {name: [] for name in pools}
        #: (reservation, licence) -> what its jobs hold.
        self._own: dict[tuple[str, str], int] = {}
        #: Held by work that nobody knows the end of.
        self._others = {name: pool.used for name, pool in pools.items()}
        if pools:
            for one in running:
                self._note_running(one)
        #: Of each pool what is kept beside what the windows of reservations tell.
        self._reserved = {
            name: max(0, pool.reserved - shade.licenses(name, now, now, "", self._own))
            if pool.reserved
            else 0
            for name, pool in pools.items()
        }

    def _note_running(self, one: Running) -> None:
        for name, count in one.licenses:
            if name in self._holds:
                end = FOREVER if one.end is None else max(one.end, self._now + OVERDUE_SECS)
                self._holds[name].append((self._now, end, count))
                self._others[name] = max(0, self._others[name] - count)
                if one.reservation:
                    self._own[one.reservation, name] = self._own.get((one.reservation, name), 0) + count

    def instants(self, job: JobView) -> list[float]:
        """When some that the job wants may come free."""
        found = {end for name, _ in job.licenses for _, end, _ in self._holds.get(name, ())}
        if self._shade:
            found.update(self._shade.license_ends({name for name, _ in job.licenses}, job.reservation))
        return sorted(instant for instant in found if instant > self._now)

    def free(self, name: str, start: float, end: float, reservation: str = "") -> int:
        """The least that a job may take during the time."""
        pool = self._pools.get(name)
        if pool is None:
            return 0
        holds = self._holds[name]
        edges = {start, *(begin for begin, _, _ in holds if start < begin < end)}
        most = max(sum(count for begin, over, count in holds if begin <= edge < over) for edge in edges)
        kept = self._shade.licenses(name, start, end, reservation, self._own) if self._shade else 0
        return pool.total - self._others[name] - self._reserved[name] - most - kept

    def choose(self, job: JobView, start: float, end: float) -> Taken | None:
        """The licences for that time, nothing taken yet; of alternatives the first that is free.

        Returns:
            None when they are not free; () for a job that asks for none.
        """
        if not job.licenses:
            return ()
        free = [count <= self.free(name, start, end, job.reservation) for name, count in job.licenses]
        if job.licenses_any:
            return next(((item,) for item, good in zip(job.licenses, free, strict=True) if good), None)
        return job.licenses if all(free) else None

    def take(self, job: JobView, taken: Taken, start: float, end: float) -> None:
        """The job has these from `start` to `end`."""
        for name, count in taken:
            self._holds[name].append((start, min(end, FOREVER) if start < FOREVER else end, count))
            if job.reservation and start <= self._now:
                self._own[job.reservation, name] = self._own.get((job.reservation, name), 0) + count
