"""Reservations in the state: who may, what happens to jobs, occurrences, licences."""

from typing import Any

import msgspec
import pytest

from spur_ctld.state import codec, ops
from spur_ctld.state.events import JobQueued, ReservationChanged, RoomFreed
from spur_ctld.state.reservations import Reservation, covering
from spur_ctld.state.settings import Settings

ALICE = ops.Who(uid=1000, user="alice")
BOB = ops.Who(uid=1001, user="bob")
ADMIN = ops.Who(uid=0, user="root", admin=True)


def resv(name: str = "r", **more: Any) -> Reservation:
    fields = {"start_at": 2000.0, "end_at": 3000.0, "nodes": ("n1",), "users": ("alice",), **more}
    first = {"first_start": fields["start_at"], "first_end": fields["end_at"]}
    return Reservation(name=name, **{**first, **fields})


def create(sim: Any, one: Reservation, who: ops.Who = ADMIN, seen: int = 10**9) -> Any:
    return sim.do(ops.ReservationCreate(at=0, reservation=one, who=who, seen=seen))


def delete(sim: Any, name: str = "r", who: ops.Who = ADMIN) -> Any:
    return sim.do(ops.ReservationDelete(at=0, name=name, who=who))


def begin(sim: Any, job_id: int, **more: Any) -> Any:
    op = ops.DispatchBegin(
        at=0,
        job_id=job_id,
        attempt=1,
        partition="main",
        slices=(ops.Slice(node="n1", cpus=1),),
        everywhere=True,
        **more,
    )
    return sim.do(op)


def test_names_are_made_and_are_unique(sim: Any) -> None:
    assert create(sim, resv("")).name == "alice_1"
    assert create(sim, resv("")).name == "alice_2"
    assert create(sim, resv("", users=(), accounts=("-phys",))).name == "phys_1"
    assert create(sim, resv("alice_1")).refusal.text == "Duplicate reservation name"


@pytest.mark.parametrize(
    "one", [resv(end_at=2000.0), resv(nodes=("nope",))], ids=["without length", "unknown node"]
)
def test_what_cannot_be_is_refused(sim: Any, one: Reservation) -> None:
    assert create(sim, one).refusal.text == "Requested reservation is invalid"


def test_only_administrators(sim: Any) -> None:
    assert create(sim, resv(), ALICE).refusal.code == "access_denied"
    create(sim, resv())
    assert delete(sim, who=ALICE).refusal.code == "access_denied"
    changed = ops.ReservationUpdate(at=0, reservation=resv(end_at=4000.0), who=ALICE, seen=10**9)
    assert sim.do(changed).refusal.code == "access_denied"


def test_users_may_delete_their_own_where_that_is_allowed(sim: Any) -> None:
    create(sim, resv(flags=("USER_DELETE",)))
    assert delete(sim, who=BOB).refusal.code == "access_denied"
    assert delete(sim, who=ALICE).refusal is None


def test_a_proposal_that_did_not_see_another_one_is_looked_at_again(sim: Any) -> None:
    create(sim, resv("a"))
    seen = sim.state.reservations["a"].changed
    assert seen == sim.index
    assert create(sim, resv("b"), seen=seen - 1).refusal.code == "outdated"
    assert create(sim, resv("b"), seen=seen).refusal is None
    op = ops.ReservationUpdate(at=0, reservation=resv("a", end_at=4000.0), who=ADMIN, seen=seen)
    assert sim.do(op).refusal.code == "outdated"


def test_changes_free_what_is_given_up(sim: Any) -> None:
    create(sim, resv(nodes=("n1", "n2")))
    op = ops.ReservationUpdate(at=0, reservation=resv(nodes=("n2",)), who=ADMIN, seen=10**9)
    assert sim.do(op).refusal is None
    assert RoomFreed(("n1",)) in sim.events
    assert ReservationChanged("r") in sim.events


def test_deleting_holds_who_waits_for_it(sim: Any) -> None:
    create(sim, resv())
    create(sim, resv("other"))
    waits = sim.submit(reservation="r")
    either = sim.submit(reservation="r,other")
    free = sim.submit()
    held = sim.submit(reservation="r", held=True)
    assert delete(sim).refusal is None
    job = sim.job(waits)
    assert (job.reason, job.priority, job.request.reservation) == ("ReservationDeleted", 0, "r")
    assert (sim.job(either).reason, sim.job(either).request.reservation) == ("None", "other")
    assert sim.job(free).priority
    assert sim.job(held).reason == "JobHeldUser"
    # Let go, it goes without the reservation.
    sim.do(ops.Hold(at=0, targets=(ops.Target(job_id=waits),), who=ALICE, mode="release"))
    job = sim.job(waits)
    assert (job.reason, job.request.reservation) == ("None", "")
    assert job.priority


def test_the_flag_lets_them_go(sim: Any) -> None:
    create(sim, resv(flags=("NO_HOLD_JOBS_AFTER_END",)))
    waits = sim.submit(reservation="r")
    delete(sim)
    assert sim.job(waits).request.reservation == ""
    assert sim.job(waits).priority
    assert JobQueued(waits) in sim.events


def test_one_in_use_stays(sim: Any) -> None:
    create(sim, resv())
    job_id = sim.submit(reservation="r")
    assert begin(sim, job_id, reservation="gone").refusal is not None
    assert begin(sim, job_id, reservation="r").refusal is None
    assert delete(sim).refusal.text == "Requested reservation is in use"
    over = ops.ReservationExpire(at=0, name="r", start_at=2000.0, end_at=3000.0)
    assert sim.do(over).refusal.text == "Requested reservation is in use"
    sim.commit(job_id)
    sim.complete(job_id)
    assert sim.job(job_id).reservation == "r"
    assert sim.do(over).refusal is None
    assert not sim.state.reservations


def test_an_occurrence_ends_once(sim: Any) -> None:
    create(sim, resv(repeat="DAILY"))
    over = ops.ReservationExpire(
        at=0, name="r", start_at=2000.0, end_at=3000.0, next_start=88_400.0, next_end=89_400.0
    )
    assert sim.do(over).refusal is None
    one = sim.state.reservations["r"]
    assert (one.start_at, one.end_at, one.first_start) == (88_400.0, 89_400.0, 2000.0)
    assert sim.do(over).refusal.code == "outdated"


def test_a_requeue_leaves_the_reservation_and_the_licences(make_sim: Any) -> None:
    sim = make_sim(settings=Settings(licenses=(("m", 3),)))
    create(sim, resv())
    job_id = sim.submit(reservation="r", licenses="m:2")
    assert begin(sim, job_id, reservation="r", licenses=(("m", 2),)).refusal is None
    assert sim.state.licenses_used == {"m": 2}
    other = sim.submit(licenses="m:2")
    refused = begin(sim, other, licenses=(("m", 2),)).refusal
    assert refused.text == "not enough licences of m are free"
    assert begin(sim, other, licenses=(("x", 1),)).refusal is not None
    sim.commit(job_id)
    sim.do(ops.Requeue(at=0, targets=(ops.Target(job_id=job_id),), who=ADMIN))
    sim.do(ops.FenceConfirm(at=0, job_id=job_id, attempt=1, node="n1"))
    assert sim.state.licenses_used == {}
    assert sim.job(job_id).reservation == ""
    assert sim.job(job_id).request.reservation == "r"


def test_snapshots_keep_them(sim: Any) -> None:
    create(sim, resv(repeat="WEEKLY", zone="Europe/Berlin", cpus=(("n1", 2),), licenses=(("m", 1),)))
    again = codec.restore(list(codec.freeze(sim.state)))
    assert again.reservations == sim.state.reservations
    assert codec.digest(again) == codec.digest(sim.state)


def test_a_snapshot_without_any_says_nothing_of_them(sim: Any) -> None:
    """A release that does not know them reads it."""
    assert not any(b"reservations" in msgspec.msgpack.encode(chunk) for chunk in codec.freeze(sim.state))


def test_covering_prefers_maintenance(sim: Any) -> None:
    both = [resv("a"), resv("m", flags=("MAINT",)), resv("later", start_at=2600.0)]
    assert covering(both, 2500.0)["n1"].name == "m"
    assert covering(both, 1999.0) == {}
    assert covering(both, 3000.0) == {}
