"""The controllers themselves: which one answers, who leads, and handing over."""

import asyncio
import dataclasses
import logging
import socket
from typing import Any, Final, NamedTuple

from spur_core.errors import AccessDenied, RequestError
from spur_ctld import __version__
from spur_ctld.api.caller import FORWARDED, PEER
from spur_ctld.api.forward import Forwarder
from spur_ctld.api.routing import LEADER_WAIT_SECS, Router
from spur_ctld.replication.api import Replicator
from spur_ctld.site import Site
from spur_proto import controller_pb2 as pb

log = logging.getLogger(__name__)

#: A hand-over that takes longer has failed.
TAKEOVER_SECS: Final = 5.0
_TAKEOVER: Final = "/slurm.SlurmController/Takeover"


class Group(NamedTuple):
    """This controller among the others.  `forwarder`: None when there are no others."""

    own: int
    node: Replicator
    router: Router
    forwarder: Forwarder | None

    @property
    def clients(self) -> list[str]:
        """HOST:PORT of every controller for clients; empty when nobody said."""
        return [member.client for member in self.node.members() if member.client]


class Controllers:
    """Ping and Takeover."""

    site: Site
    group: Group

    async def Ping(self, request: pb.PingRequest, context: Any) -> pb.PingResponse:
        own, node = self.group.own, self.group.node
        leader = node.leader() or 0
        return pb.PingResponse(
            hostname=socket.gethostname(),
            server_time=self.site.clock(),
            version=__version__,
            cluster_name=self.site.ledger.state.settings.cluster_name,
            role="primary" if leader == own else "backup",
            member_id=own,
            leader_id=leader,
            leader_address=node.leader_client() or "",
            term=node.term,
            members=[
                pb.ControllerInfo(
                    id=member.id,
                    address=member.address,
                    client_address=member.client,
                    leader=member.is_leader,
                    reachable=member.reachable,
                    match=member.match,
                    command_version=member.command_version,
                    version=member.version,
                )
                for member in node.members()
            ],
            applied=node.applied,
            leader_silent_secs=node.seconds_since_leader(),
            alarms=node.alarms(),
            scheduler=self._figures(),
            command_version=self.site.ledger.state.command_version,
        )

    def _figures(self) -> pb.SchedulerFigures | None:
        """Of the scheduler's passes; None = another controller leads."""
        if self.site.office is None:
            return None
        found = self.site.outlook.figures
        return pb.SchedulerFigures(**dataclasses.asdict(found))

    async def Takeover(self, request: pb.TakeoverRequest, context: Any) -> Any:
        who = await self.site.who()
        if not who.admin:
            raise AccessDenied
        own, node, router, forwarder = self.group
        wanted = request.member or own
        known = [member.id for member in node.members()]
        if wanted not in known:
            raise RequestError(f"there is no controller {wanted}: they are numbered 1 to {len(known)}")
        if node.leader() != wanted:
            place = await router.place(LEADER_WAIT_SECS, forwarded=FORWARDED.get())
            if place and forwarder is not None:
                data = pb.TakeoverRequest(member=wanted).SerializeToString()
                return await forwarder.unary(place, _TAKEOVER, data, context, PEER.get())
            if wanted != own:
                log.warning("takeover to=%d by=%s", wanted, who.user)
                await node.transfer_leadership(wanted, asyncio.get_running_loop().time() + TAKEOVER_SECS)
        return pb.TakeoverResponse(leader_id=wanted, leader_address=node.leader_client() or "")
