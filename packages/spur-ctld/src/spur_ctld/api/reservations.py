"""Reservations and licences: what administrators keep for whom, and what everybody sees of it."""

import asyncio
import grp
import logging
import pwd
from collections.abc import Iterable, Sequence
from typing import Any, Final

from spur_core.errors import AccessDenied, NotFound
from spur_core.grammar.hostlist import compress_sorted
from spur_core.grammar.tres import format_tres
from spur_ctld import users
from spur_ctld.api.grpc_errors import Refused
from spur_ctld.reservations import flags, resolve
from spur_ctld.reservations.nodes import cores_of
from spur_ctld.reservations.zone import local_zone
from spur_ctld.scheduling.kept import licenses_of
from spur_ctld.site import Site
from spur_ctld.state import ops
from spur_ctld.state.apply_reservations import newest
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.reservations import Reservation, is_active, model
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb
from spur_sched.reservations.windows import spans

log = logging.getLogger(__name__)

#: Others may change reservations while one is looked at; so often it is looked at again.
_TRIES: Final = 8


class Reservations:
    """CreateReservation, UpdateReservation, DeleteReservation, ListReservations, GetLicenses."""

    site: Site

    async def CreateReservation(
        self, request: pb.CreateReservationRequest, context: Any
    ) -> pb.CreateReservationResponse:
        who = await self._rule()
        if isinstance(known := self._known(who), ops.ReservationResult):
            return pb.CreateReservationResponse(name=known.name)
        for attempt in range(_TRIES):
            state, now = self.site.ledger.state, self.site.clock()
            seen = newest(state)
            record = resolve.create(request, await self._seen_by(request, now), who.user, who.uid)
            op = ops.ReservationCreate(at=now, reservation=record, who=who, seen=seen)
            try:
                result = await self.site.once(op, who)
            except Refused as refused:
                if refused.code == "outdated" and attempt < _TRIES - 1:
                    continue
                raise
            assert isinstance(result, ops.ReservationResult)
            log.info("reservation_created name=%s by=%s nodes=%d", result.name, who.user, len(record.nodes))
            return pb.CreateReservationResponse(name=result.name)
        raise AssertionError

    async def UpdateReservation(
        self, request: pb.UpdateReservationRequest, context: Any
    ) -> pb.UpdateReservationResponse:
        who = await self._rule()
        if self._known(who) is not None:
            return pb.UpdateReservationResponse()
        for attempt in range(_TRIES):
            state, now = self.site.ledger.state, self.site.clock()
            old = state.reservations.get(request.name)
            if old is None:
                raise resolve.BadReservation
            seen = newest(state)
            record = resolve.update(request, old, await self._seen_by(request, now, old))
            op = ops.ReservationUpdate(at=now, reservation=record, who=who, seen=seen)
            try:
                await self.site.once(op, who)
            except Refused as refused:
                if refused.code == "outdated" and attempt < _TRIES - 1:
                    continue
                raise
            log.info("reservation_updated name=%s by=%s", request.name, who.user)
            break
        return pb.UpdateReservationResponse()

    async def DeleteReservation(
        self, request: pb.DeleteReservationRequest, context: Any
    ) -> pb.DeleteReservationResponse:
        who = await self.site.who()
        op = ops.ReservationDelete(at=self.site.clock(), name=request.name, who=who)
        await self.site.once(op, who)
        log.info("reservation_deleted name=%s by=%s", request.name, who.user)
        return pb.DeleteReservationResponse()

    async def ListReservations(
        self, request: pb.ListReservationsRequest, context: Any
    ) -> pb.ListReservationsResponse:
        state, now = self.site.ledger.state, self.site.clock()
        if request.name and request.name not in state.reservations:
            raise NotFound(f"Reservation {request.name} not found")
        return pb.ListReservationsResponse(
            reservations=[
                message(state, one, now)
                for name, one in sorted(state.reservations.items())
                if request.name in ("", name)
            ],
            server_time=now,
        )

    async def GetLicenses(self, request: pb.GetLicensesRequest, context: Any) -> pb.GetLicensesResponse:
        state, now = self.site.ledger.state, self.site.clock()
        return pb.GetLicensesResponse(
            licenses=[
                common_pb2.LicenseInfo(name=name, total=pool.total, used=pool.used, reserved=pool.reserved)
                for name, pool in sorted(licenses_of(state, now).items())
                if request.name in ("", name)
            ],
            server_time=now,
        )

    async def _rule(self) -> ops.Who:
        who = await self.site.who()
        if not who.admin:
            raise AccessDenied
        return who

    def _known(self, who: ops.Who) -> ops.OpResult | None:
        """Of a repeated request: what was kept for it the first time."""
        return self.site.ledger.answered(self.site.key_of(who, 0))

    async def _seen_by(
        self,
        request: "pb.CreateReservationRequest | pb.UpdateReservationRequest",
        now: float,
        old: Reservation | None = None,
    ) -> resolve.Site:
        named_users, groups = set(old.users if old else ()), set(old.groups if old else ())
        if isinstance(request, pb.CreateReservationRequest):
            named_users.update(request.users)
            groups.update(request.groups)
        else:
            for change, names in ((request.users, named_users), (request.groups, groups)):
                names.update((*change.set, *change.add))
        found, members = await _look_up(named_users, groups)
        return resolve.Site(
            state=self.site.ledger.state,
            partitions=self.site.catalog.partitions(),
            now=now,
            zone=local_zone(),
            members=members,
            known_users=found,
        )


async def _look_up(
    names: Iterable[str], groups: Iterable[str]
) -> tuple[set[str], dict[str, Sequence[str] | None]]:
    """Users that there are, and the members of each group; asked in a thread, it may take a network."""

    def ask() -> tuple[set[str], dict[str, Sequence[str] | None]]:
        plain = {name.strip().removeprefix("-") for name in names}
        known = {name for name in plain if users.look_up(name) is not None}
        return known, {name: _members(name) for name in {one.strip().removeprefix("-") for one in groups}}

    return await asyncio.to_thread(ask)


def _members(group: str) -> Sequence[str] | None:
    try:
        found = grp.getgrnam(group)
    except (KeyError, ValueError):
        return None
    primary = [user.pw_name for user in pwd.getpwall() if user.pw_gid == found.gr_gid]
    return sorted({*found.gr_mem, *primary})


def message(state: ClusterState, one: Reservation, now: float) -> common_pb2.ReservationInfo:
    """The wire form."""
    cores = cores_of(state, one)
    start, end = one.start_at, one.end_at
    if one.floating is not None:
        start, end = next(spans(model(one), now, now))
    return common_pb2.ReservationInfo(
        name=one.name,
        start_at=start,
        end_at=end,
        nodes=compress_sorted(list(one.nodes)),
        node_names=one.nodes,
        node_count=len(one.nodes),
        core_count=cores,
        features=one.features,
        partition=one.partition,
        flags=flags.shown(one),
        users=one.users,
        accounts=one.accounts,
        groups=one.groups,
        licenses=",".join(f"{name}:{count}" for name, count in one.licenses),
        tres=format_tres({"cpu": _cpus(state, one)} if one.nodes else {}),
        state="ACTIVE" if is_active(one, now) else "INACTIVE",
        purge_comp_secs=one.purge_after,
        owner=one.owner,
        comment=one.comment,
    )


def _cpus(state: ClusterState, one: Reservation) -> int:
    if one.cpus is not None:
        return sum(count for _, count in one.cpus)
    return sum(state.nodes[name].cpus for name in one.nodes if name in state.nodes)
