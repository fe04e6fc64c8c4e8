"""Reservations that draw jobs in (MAGNETIC), for the slow scheduler."""

from typing import TYPE_CHECKING

from spur_sched.api import JobView, Placement
from testkit.slow_amounts import claim

if TYPE_CHECKING:
    from testkit.slow_scheduler import Slow


def draw_in(slow: "Slow", job: JobView, starts: list[Placement]) -> None:
    """Whether the job starts in reservations that draw it as far as there is room."""
    tasks = (None,) if job.tasks is None else job.tasks
    done = 0
    for window in slow.windows:
        if job.reservation or job.job_id not in window.draws or not window.start <= slow.now < window.end:
            continue
        inside = job._replace(reservation=window.name)
        opened = [name for name in slow.in_order(job) if not slow.gate(inside, name)]
        while done < len(starts) and starts[done].reservation == window.name:
            claim(starts[done].task == tasks[done], f"job {job.job_id}: tasks out of order")
            slow.start(inside, starts[done], opened)
            done += 1
        claim(
            done == len(tasks)
            or not any(
                slow.may_start(name) and slow.fits(inside, slow.partitions[name], slow.now) for name in opened
            ),
            f"job {job.job_id}: is not drawn into {window.name}",
        )
    claim(not any(one.reservation for one in starts[done:]), f"job {job.job_id}: drawn in for no reason")
