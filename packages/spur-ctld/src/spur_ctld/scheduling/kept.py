"""What reservations keep and which licences there are, as a scheduling pass sees it.  Pure."""

from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.reservations import Reservation, is_active, model, rules
from spur_sched.api import License, Window
from spur_sched.reservations import windows
from spur_sched.reservations.access import admits
from spur_sched.reservations.windows import LONGEST_PERIOD


def windows_of(state: ClusterState, now: float, ahead_secs: float) -> list[Window]:
    """Occurrences that any start within `ahead_secs` may meet.

    Reservations that are over while jobs still run in them, which have their time to end, keep nothing.
    """
    if not state.reservations:
        return []
    found = windows(map(model, state.reservations.values()), now, now + ahead_secs + LONGEST_PERIOD)
    drawn = {one.name: _drawn(state, one) for one in state.reservations.values() if "MAGNETIC" in one.flags}
    if not drawn:
        return found
    return [window._replace(draws=drawn.get(window.name, window.draws)) for window in found]


def _drawn(state: ClusterState, one: Reservation) -> frozenset[int]:
    """Pending jobs that it lets in and that name none; administrators are not drawn for being that."""
    found = []
    for job_id in state.pending:
        request = state.jobs[job_id].request
        if not request.reservation and admits(rules(one), request.user, request.account, (request.group,)):
            found.append(job_id)
    return frozenset(found)


def licenses_of(state: ClusterState, now: float) -> dict[str, License]:
    """Every pool; `reserved` is what active reservations keep and their own jobs do not hold yet."""
    total = dict(state.settings.licenses)
    if not total:
        return {}
    reserved: dict[str, int] = {}
    for one in state.reservations.values():
        if not one.licenses or not is_active(one, now):
            continue
        own: dict[str, int] = {}
        for job_id in state.active:
            job = state.jobs[job_id]
            if job.reservation == one.name:
                for name, count in job.licenses:
                    own[name] = own.get(name, 0) + count
        for name, count in one.licenses:
            reserved[name] = reserved.get(name, 0) + max(0, count - own.get(name, 0))
    return {
        name: License(count, state.licenses_used.get(name, 0), reserved.get(name, 0))
        for name, count in total.items()
    }
