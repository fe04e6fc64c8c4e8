"""Nodes and partitions: looking at them, and what administrators do to nodes."""

import asyncio
import logging
from typing import Any, Final

from spur_auth.kinds import NODE
from spur_core.errors import AccessDenied, NotFound, RequestError, Unsupported
from spur_core.grammar.hostlist import expand
from spur_ctld import bounds
from spur_ctld.api import parse
from spur_ctld.api.caller import CALLER
from spur_ctld.api.node_identity import require_speaker
from spur_ctld.api.node_view import members, node_message, partition_message
from spur_ctld.site import Site
from spur_ctld.state.ops import NodeDown, NodeUpdate, Who
from spur_ctld.state.reservations import covering
from spur_ctld.users import user_name
from spur_proto import controller_pb2 as pb

log = logging.getLogger(__name__)

#: Word of `scontrol update NodeName= State=` -> word of the operation.
STATE_WORDS: Final = {
    "DOWN": "down",
    "DRAIN": "drain",
    "FAIL": "fail",
    "IDLE": "idle",
    "RESUME": "resume",
    "UNDRAIN": "undrain",
}
#: Slurm's other words; known, and not in this release.
#: A long listing lets others run after so many nodes.
_BREATHE_AFTER: Final = 100
LATER_WORDS: Final = frozenset(
    {
        "FUTURE",
        "NORESP",
        "POWER_DOWN",
        "POWER_DOWN_ASAP",
        "POWER_DOWN_FORCE",
        "POWER_UP",
        "CANCEL_REBOOT",
    }
)
_NEED_REASON: Final = frozenset({"down", "drain", "fail"})


def state_word(text: str, reason: str) -> str:
    """The operation's word for an administrator's.

    Raises:
        RequestError: no such word, or a reason is missing.
        Unsupported: Slurm's, not ours yet.
    """
    word = text.upper()
    if word in LATER_WORDS:
        raise Unsupported(f"Requested operation not supported on this system: State={word}")
    found = STATE_WORDS.get(word)
    if found is None:
        raise RequestError(f"Invalid node state specified: {text}")
    if found in _NEED_REASON and not reason:
        raise RequestError("You must specify a reason when DOWNING or DRAINING a node. Request denied")
    return found


class Nodes:
    """GetNodes, UpdateNode, DrainNode, GetPartitions."""

    site: Site

    async def GetNodes(self, request: pb.GetNodesRequest, context: Any) -> pb.GetNodesResponse:
        state = self.site.ledger.state
        partitions = self.site.catalog.partitions()
        of = members(partitions.values())
        wanted = parse.hosts(request.names)
        inside = set(request.partitions)
        kept = covering(state.reservations.values(), self.site.clock())
        leaves = self.site.network.shape().leaves
        response = pb.GetNodesResponse(server_time=self.site.clock())
        for number, (name, node) in enumerate(list(state.nodes.items())):
            if number % _BREATHE_AFTER == _BREATHE_AFTER - 1:
                await asyncio.sleep(0)
            if wanted and name not in wanted:
                continue
            own = of.get(name, [])
            if inside and inside.isdisjoint(own):
                continue
            reason_user = user_name(node.reason_uid) if node.reason_uid is not None else "spur"
            message = node_message(
                state,
                node,
                own,
                self.site.loads.get(name),
                reason_user if node.reason else "",
                kept.get(name),
            )
            message.switch_name = leaves.get(name, "")
            response.nodes.append(message)
        return response

    async def GetPartitions(self, request: pb.GetPartitionsRequest, context: Any) -> pb.GetPartitionsResponse:
        partitions = self.site.catalog.partitions()
        if request.name and request.name not in partitions:
            raise NotFound("Invalid partition name specified")
        nodes = self.site.ledger.state.nodes
        return pb.GetPartitionsResponse(
            partitions=[
                partition_message(partition, nodes)
                for name, partition in partitions.items()
                if not request.name or name == request.name
            ],
            server_time=self.site.clock(),
        )

    async def UpdateNode(self, request: pb.UpdateNodeRequest, context: Any) -> pb.UpdateNodeResponse:
        who = await self._administrator()
        bounds.check_texts(request)
        state = self.site.ledger.state
        names = list(state.nodes) if request.names == "ALL" else expand(request.names)
        if not names or any(name not in state.nodes for name in names):
            raise NotFound("Invalid node name specified")
        word = state_word(request.state, request.reason) if request.HasField("state") else ""
        now = self.site.clock()
        if word == "down":
            for name in names:
                await self.site.once(NodeDown(at=now, name=name, reason=request.reason, who=who), who, name)
            word = ""
        has_more = request.HasField("weight") or request.HasField("comment")
        if word or has_more or (request.reason and not request.HasField("state")):
            op = NodeUpdate(
                at=now,
                names=tuple(names),
                who=who,
                state=word,
                reason=request.reason if word or not request.HasField("state") else "",
                weight=request.weight if request.HasField("weight") else None,
                comment=request.comment if request.HasField("comment") else None,
            )
            await self.site.once(op, who)
        elif not request.HasField("state"):
            raise RequestError("No changes specified")
        log.info("node_updated nodes=%s state=%s by=%s", request.names, request.state, who.user)
        return pb.UpdateNodeResponse()

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Any) -> pb.DrainNodeResponse:
        """A node drains itself (a failed epilog, a full disk), or an administrator does."""
        identity = CALLER.get()
        bounds.check_texts(request)
        if not request.reason:
            raise RequestError("reason: a drain needs one")
        if identity.kind == NODE:
            require_speaker(self.site, request.node)
            who = Who(uid=None, user=request.node)
        elif not self.site.rules.keys and not identity.name:
            # Without a key a node cannot prove itself.
            who = Who(uid=None, user=request.node)
        else:
            who = await self._administrator()
        op = NodeUpdate(
            at=self.site.clock(), names=(request.node,), who=who, state="drain", reason=request.reason
        )
        await self.site.once(op, who)
        log.warning("node_drained node=%s by=%s reason=%r", request.node, who.user, request.reason)
        return pb.DrainNodeResponse()

    async def _administrator(self) -> Who:
        who = await self.site.who()
        if not who.admin:
            raise AccessDenied
        return who
