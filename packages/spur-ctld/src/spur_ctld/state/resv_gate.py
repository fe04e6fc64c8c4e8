"""May a pending job use a reservation that it names, and which?  Pure."""

from typing import NamedTuple

from spur_core import reasons
from spur_core.grammar.licenses import parse_licenses
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import UNLIMITED, Job, Request
from spur_ctld.state.reservations import Reservation, is_active, names, rules
from spur_sched.api import JobView
from spur_sched.reservations.access import admits

NO_SUCH = "Requested reservation is invalid"
NOT_YOURS = "Access denied to requested reservation"


class Gate(NamedTuple):
    """The reservation to use ("" = none asked for), or why the job waits ("" = it does not)."""

    name: str = ""
    reason: str = ""


def may_use(one: Reservation, request: Request) -> bool:
    """Whether it lets in the job's user and account; root may use all."""
    return admits(rules(one), request.user, request.account, (request.group,), admin=request.uid == 0)


def gate(state: ClusterState, request: Request, now: float) -> Gate:
    """The first that holds now; a flexible one does not have to."""
    if not request.reservation:
        return Gate()
    for name in names(request.reservation):
        one = state.reservations.get(name)
        if one is None or not may_use(one, request):
            continue
        if is_active(one, now) or ("FLEX" in one.flags and one.floating is None):
            return Gate(name)
    return Gate(reason=reasons.RESERVATION)


def inside(state: ClusterState, view: JobView, name: str, now: float) -> JobView:
    """The job in that reservation ("" = none); one without a limit lasts as long as that holds."""
    if not name:
        return view
    one = state.reservations[name]
    endless = view.time_limit is None or view.time_limit == UNLIMITED
    if endless and one.nodes and "FLEX" not in one.flags:
        return view._replace(reservation=name, time_limit=max(1, int(one.end_at - now)))
    return view._replace(reservation=name)


def opens_at(state: ClusterState, request: Request, now: float) -> float | None:
    """When the first of the reservations that it names and may use begins; None = nobody knows one."""
    starts = []
    for name in names(request.reservation):
        one = state.reservations.get(name)
        if one is not None and one.floating is None and one.start_at > now and may_use(one, request):
            starts.append(one.start_at)
    return min(starts, default=None)


def run_ends(state: ClusterState, job: Job) -> float | None:
    """When the reservation that an attempt runs in ends; None = it runs in none, or may run on after it."""
    one = state.reservations.get(job.reservation) if job.reservation else None
    if one is None or "FLEX" in one.flags or one.floating is not None:
        return None
    return one.end_at


def obstacle(state: ClusterState, request: Request) -> str:
    """Slurm's sentence for a submission whose reservations can none of them ever be used; "" = one can."""
    known = [state.reservations.get(name) for name in names(request.reservation)]
    if any(one is None for one in known):
        return NO_SUCH
    if known and not any(one is not None and may_use(one, request) for one in known):
        return NOT_YOURS
    return ""


def licenses(text: str) -> tuple[tuple[tuple[str, int], ...], bool]:
    """(name and count of each, whether any one of them will do) of a request's licences."""
    if not text:
        return (), False
    parsed = parse_licenses(text)
    return parsed.items, parsed.any_of


def lacking(text: str, total: dict[str, int]) -> bool:
    """Whether the cluster has not so many, or no such licences; of alternatives one must be there."""
    wanted, any_of = licenses(text)
    missing = [count > total.get(name, 0) for name, count in wanted]
    return bool(missing) and (all(missing) if any_of else any(missing))
