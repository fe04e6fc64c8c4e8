"""Reservations come, change and go, and what that means for the jobs that name them.

Whether two want the same nodes at the same time follows from time zones, which replicas may know in different
editions: the proposer looks at that, and says with `seen` up to where it has seen the others.
"""

import msgspec

from spur_core import reasons
from spur_core.states import JobState
from spur_ctld.state.accounting_rows import put_job_row
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.events import JobChanged, JobQueued, ReservationChanged, RoomFreed
from spur_ctld.state.ops import (
    Done,
    Refusal,
    ReservationCreate,
    ReservationDelete,
    ReservationExpire,
    ReservationResult,
    ReservationUpdate,
)
from spur_ctld.state.records import Job
from spur_ctld.state.reservations import Reservation, names
from spur_ctld.state.targets import DENIED

INVALID = Refusal("bad_reservation", "Requested reservation is invalid")
DUPLICATE = Refusal("already_exists", "Duplicate reservation name")
IN_USE = Refusal("reservation_in_use", "Requested reservation is in use")
#: The proposer looks again.
OUTDATED = Refusal("outdated", "another reservation was changed meanwhile")


def newest(state: ClusterState) -> int:
    """Index of the last change of any that there is."""
    return max((one.changed for one in state.reservations.values()), default=0)


def users_of(state: ClusterState, name: str) -> list[Job]:
    """Active jobs that run in it, by id."""
    return [state.jobs[job_id] for job_id in sorted(state.active) if state.jobs[job_id].reservation == name]


def waiting_for(state: ClusterState, name: str) -> list[Job]:
    """Pending jobs that name it, by id."""
    return [
        state.jobs[job_id]
        for job_id in sorted(state.pending)
        if name in names(state.jobs[job_id].request.reservation)
    ]


def create(state: ClusterState, op: ReservationCreate) -> ReservationResult:
    """A new one; without a name it gets one from its first user or account."""
    if not op.who.admin and op.who.uid is not None:
        return ReservationResult(refusal=DENIED)
    if op.seen < newest(state):
        return ReservationResult(refusal=OUTDATED)
    wanted = op.reservation
    name = wanted.name or _free_name(state, wanted)
    if name in state.reservations:
        return ReservationResult(refusal=DUPLICATE)
    if _unknown(state, wanted):
        return ReservationResult(refusal=INVALID)
    _put(state, msgspec.structs.replace(wanted, name=name))
    return ReservationResult(name=name)


def _free_name(state: ClusterState, wanted: Reservation) -> str:
    named = (*wanted.users, *wanted.accounts, *wanted.groups)
    stem = named[0].removeprefix("-") if named else "resv"
    number = 1
    while f"{stem}_{number}" in state.reservations:
        number += 1
    return f"{stem}_{number}"


def _unknown(state: ClusterState, wanted: Reservation) -> bool:
    """Whether it means nothing, or nodes that are not there."""
    return wanted.end_at <= wanted.start_at or any(name not in state.nodes for name in wanted.nodes)


def _put(state: ClusterState, one: Reservation) -> None:
    state.reservations[one.name] = msgspec.structs.replace(one, changed=state.applied)
    state.emit(ReservationChanged(one.name))


def update(state: ClusterState, op: ReservationUpdate) -> Done:
    """The whole record anew; nodes that it gives up come free."""
    if not op.who.admin and op.who.uid is not None:
        return Done(refusal=DENIED)
    old = state.reservations.get(op.reservation.name)
    if old is None or _unknown(state, op.reservation):
        return Done(refusal=INVALID)
    if op.seen < newest(state):
        return Done(refusal=OUTDATED)
    _put(state, op.reservation)
    _freed(state, old, op.reservation.nodes)
    return Done()


def delete(state: ClusterState, op: ReservationDelete) -> Done:
    """It goes, unless a job runs in it."""
    one = state.reservations.get(op.name)
    if one is None:
        return Done(refusal=INVALID)
    own = op.who.uid is not None and "USER_DELETE" in one.flags and op.who.user in one.users
    if not op.who.admin and op.who.uid is not None and not own:
        return Done(refusal=DENIED)
    if users_of(state, op.name):
        return Done(refusal=IN_USE)
    _drop(state, one)
    return Done()


def expire(state: ClusterState, op: ReservationExpire) -> Done:
    """An occurrence is over: on to the next one, or it goes.  One that jobs still run in waits for them."""
    one = state.reservations.get(op.name)
    if one is None or one.end_at != op.end_at or one.start_at != op.start_at:
        return Done(refusal=Refusal("outdated", f"reservation {op.name} was changed meanwhile"))
    if op.next_start is not None and op.next_end is not None:
        _put(state, msgspec.structs.replace(one, start_at=op.next_start, end_at=op.next_end))
        _freed(state, one, ())
        return Done()
    if users_of(state, op.name):
        return Done(refusal=IN_USE)
    _drop(state, one)
    return Done()


def _freed(state: ClusterState, old: Reservation, kept: tuple[str, ...]) -> None:
    gone = tuple(name for name in old.nodes if name not in set(kept))
    if gone:
        state.emit(RoomFreed(gone))


def _drop(state: ClusterState, one: Reservation) -> None:
    """Jobs that waited for it are held, unless another one will do or its flag lets them go."""
    del state.reservations[one.name]
    for job in waiting_for(state, one.name):
        left = ",".join(name for name in names(job.request.reservation) if name != one.name)
        if left or "NO_HOLD_JOBS_AFTER_END" in one.flags:
            after = with_reservation(job, left)
            state.emit(JobQueued(job.job_id))
        elif job.reason in reasons.HOLDS:
            continue
        else:
            after = msgspec.structs.replace(
                job,
                reason=reasons.RESERVATION_DELETED,
                desc="",
                priority=0,
                prior_priority=job.priority or job.prior_priority,
            )
        state.put_job(after)
        put_job_row(state, after)
        state.emit(JobChanged(job.job_id))
    state.emit(ReservationChanged(one.name))
    _freed(state, one, ())


def with_reservation(job: Job, text: str) -> Job:
    """The job with another list of reservations."""
    return msgspec.structs.replace(job, request=msgspec.structs.replace(job.request, reservation=text))


def released(state: ClusterState, job: Job) -> Job:
    """A job that is let go although its reservation is gone goes without one."""
    if job.state is not JobState.PENDING or job.reason != reasons.RESERVATION_DELETED:
        return job
    left = ",".join(name for name in names(job.request.reservation) if name in state.reservations)
    return with_reservation(job, left)
