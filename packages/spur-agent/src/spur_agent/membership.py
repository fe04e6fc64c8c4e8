"""Being a node of the cluster: registration, heartbeats, renewal of the node's token, farewell.

Registration is tried for ever, and again when the controller does not know the node or its token any more,
and at half of the token's life.  Nothing here stops work on the node.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from spur_agent import __version__, discovery, inventory
from spur_agent.controller import ControllerLink, NodeCredential, Refused
from spur_agent.logs import value
from spur_agent.resources import NodeResources
from spur_auth.kinds import NODE_TTL_SECS
from spur_core.errors import SpurError, Unauthenticated
from spur_core.ids import RuntimeId
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 1.0
_LAST_PAUSE: Final = 30.0
#: The same with several controllers, of which one leads again soon.
_LAST_GROUP_PAUSE: Final = 5.0
_DEFAULT_BEAT: Final = 30.0
#: Between two tries of a heartbeat that nobody heard.
_BEAT_RETRY: Final = 3.0
#: A heartbeat that takes longer was not heard.
_BEAT_SECS: Final = 3.0
#: What a farewell may take of the five seconds that a stop has.
_FAREWELL_SECS: Final = 2.0


class Identity(NamedTuple):
    """What does not change while the agent runs."""

    node: str
    hostname: str
    address: str
    port: int
    labels: dict[str, str]
    started_at: float


#: What is on the node: identity and "live", "finished" or "lost"; None = no consistent list now.
Snapshot = Callable[[], "Sequence[tuple[RuntimeId, str]] | None"]


def held_messages(held: Iterable[tuple[RuntimeId, str]]) -> list[pb.HeldStep]:
    """The wire form of a snapshot."""
    return [pb.HeldStep(rid=rid_message(rid), state=state) for rid, state in held]


def rid_message(rid: RuntimeId) -> common_pb2.RuntimeId:
    """The wire form; the step is always present."""
    return common_pb2.RuntimeId(job_id=rid.job_id, run_attempt=rid.run_attempt, step_id=rid.step_id)


class Membership:
    """Keeps the node known.

    Args:
        snapshot: what is held now.
        on_beat: called after each heartbeat whose snapshot the controller has.
        on_term: called with the term of the controller that leads and the proof of it, at each registration
            and heartbeat; what is believed of it.
        on_back: called when a controller answers again, or another one leads: what waits can be told now.
    """

    def __init__(
        self,
        identity: Identity,
        resources: NodeResources,
        link: ControllerLink,
        credential: NodeCredential,
        snapshot: Snapshot,
        on_beat: Callable[[], None],
        on_term: Callable[[int, bytes], int],
        on_back: Callable[[], None],
    ) -> None:
        self._identity = identity
        self._resources = resources
        self._link = link
        self._credential = credential
        self._snapshot = snapshot
        self._on_beat = on_beat
        self._on_term = on_term
        self._on_back = on_back
        self._term = 0
        self._beat_secs = _DEFAULT_BEAT
        self._renew_at = 0.0
        self._heard = True
        self._now = asyncio.Event()
        self.registered = asyncio.Event()

    def beat_now(self) -> None:
        """Do not wait for the interval: something changed that the controller should know."""
        self._now.set()

    async def run(self) -> None:
        """Register and beat, for ever."""
        while True:
            await self._register()
            while await self._beat():
                self._now.clear()
                try:
                    async with asyncio.timeout(self._beat_secs if self._heard else self._retry_secs()):
                        await self._now.wait()
                except TimeoutError:
                    pass

    async def _register(self) -> None:
        pause = _FIRST_PAUSE
        complaint = ""
        while True:
            try:
                answer: pb.RegisterAgentResponse = await self._link.call("RegisterAgent", self._request())
                break
            except SpurError as error:
                if error.text != complaint:
                    log.warning("register_failed error=%s", value(error.text))
                    complaint = error.text
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_GROUP_PAUSE if len(self._link.endpoints) > 1 else _LAST_PAUSE)
        await asyncio.to_thread(self._credential.given, answer.node_token)
        if answer.heartbeat_secs:
            self._beat_secs = float(answer.heartbeat_secs)
        self._renew_at = time.monotonic() + NODE_TTL_SECS / 2
        self._link.learn(answer.controllers)
        log.info(
            "registered node=%s cluster=%s term=%d", self._identity.node, answer.cluster_name, answer.term
        )
        self._led_by(answer, back=True)
        self.registered.set()

    async def _beat(self) -> bool:
        """One heartbeat; False when the node has to register again."""
        if time.monotonic() >= self._renew_at:
            return False
        held, heard, self._heard = self._snapshot(), self._heard, False
        request = pb.HeartbeatRequest(
            node=self._identity.node,
            cpu_load=discovery.load_times_100(),
            free_memory_mb=discovery.free_memory_mb(),
            boot_id=self._resources.hardware.boot_id,
            has_snapshot=held is not None,
            held=held_messages(held or ()),
        )
        try:
            answer: pb.HeartbeatResponse = await self._link.call("Heartbeat", request, _BEAT_SECS)
        except Unauthenticated as error:
            log.warning("heartbeat_refused error=%s", value(error.text))
            return False
        except Refused as error:
            log.warning("heartbeat_refused error=%s", value(error.text))
            return error.status.name != "NOT_FOUND"
        except SpurError as error:
            log.warning("heartbeat_failed error=%s", value(error.text))
            return True
        if answer.register_again:
            log.info("register_again node=%s", self._identity.node)
            return False
        self._heard = True
        self._led_by(answer, back=not heard)
        if held is not None:
            self._on_beat()
        return True

    def _led_by(self, answer: pb.RegisterAgentResponse | pb.HeartbeatResponse, *, back: bool) -> None:
        """A controller answered, in that term."""
        term = self._on_term(answer.term, answer.term_proof)
        if back or term > self._term:
            self._on_back()
        self._term = max(self._term, term)

    def _retry_secs(self) -> float:
        """After a beat that nobody heard: a controller that is back should not wait a whole interval."""
        return min(self._beat_secs, _BEAT_RETRY)

    def _request(self) -> pb.RegisterAgentRequest:
        me, have, host = self._identity, self._resources, self._resources.hardware
        return pb.RegisterAgentRequest(
            node=me.node,
            hostname=me.hostname,
            version=__version__,
            address=me.address,
            port=me.port,
            boot_id=host.boot_id,
            boot_at=host.boot_at,
            agent_start_at=me.started_at,
            arch=host.arch,
            os=host.os,
            cpus=len(have.cpu_ids),
            memory_mb=have.memory_mb,
            sockets=have.topology.sockets,
            cores_per_socket=have.topology.cores_per_socket,
            threads_per_core=have.topology.threads_per_core,
            tmp_disk_mb=host.tmp_disk_mb,
            gres=[
                common_pb2.GresCount(name=name, type=kind, count=count)
                for (name, kind), count in have.gres.items()
            ],
            labels=me.labels,
            inventory=inventory.message(have),
            held=held_messages(self._snapshot() or ()),
        )

    async def farewell(self) -> None:
        """Tell the controller that the agent goes for a restart and the jobs stay; it may be deaf."""
        if not self.registered.is_set():
            return
        request = pb.DeregisterAgentRequest(
            node=self._identity.node,
            reason="agent restarting",
            held=held_messages(self._snapshot() or ()),
        )
        try:
            async with asyncio.timeout(_FAREWELL_SECS):
                await self._link.call("DeregisterAgent", request, _FAREWELL_SECS)
        except (SpurError, TimeoutError) as error:
            log.warning("farewell_failed error=%s", value(error or "time-out"))

    async def drain(self, reason: str) -> None:
        """Ask the controller for no new work here."""
        try:
            await self._link.call("DrainNode", pb.DrainNodeRequest(node=self._identity.node, reason=reason))
        except SpurError as error:
            log.error("drain_failed reason=%s error=%s", value(reason), value(error.text))
