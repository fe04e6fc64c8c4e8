"""The emulation itself: one server, a few connections to the controller, a membership for each node."""

import asyncio
import logging
import signal
import time
import uuid
from typing import Any, Final

from grpc import aio

from spur_agent import discovery, trust
from spur_agent.controller import CALL_SECS, ControllerLink, NodeCredential
from spur_agent.emulate.service import EmulatedService
from spur_agent.emulate.steps import Steps
from spur_agent.gate import Gate
from spur_agent.logs import value
from spur_agent.membership import Identity, Membership
from spur_agent.resources import offered
from spur_agent.settings import Settings, advertised_address, bound_address
from spur_agent.terms import Terms
from spur_core.config.address import join_address, split_address
from spur_core.errors import StateError
from spur_proto import agent_pb2_grpc

log = logging.getLogger(__name__)

#: Connections to the controllers that all nodes share.
LINKS: Final = 4
#: Which nodes are none.
LABELS: Final = {"emulated": "yes"}
_SAY_SECS: Final = 10.0
_STOP_SECS: Final = 0.2
_OPTIONS: Final = (("grpc.max_receive_message_length", 8 << 20), ("grpc.so_reuseport", 0))


def node_names(prefix: str, count: int) -> list[str]:
    """`e0001`, `e0002`, ...: all of one length."""
    width = len(str(count))
    return [f"{prefix}{number:0{width}d}" for number in range(1, count + 1)]


class NodeLink(ControllerLink):
    """A node's view of a shared link: its calls carry that node's credential."""

    def __init__(self, shared: ControllerLink, credential: NodeCredential) -> None:
        self._shared = shared
        self._own = credential

    @property
    def endpoints(self) -> tuple[str, ...]:
        return self._shared.endpoints

    def learn(self, controllers: Any) -> None:
        self._shared.learn(controllers)

    async def call(
        self, name: str, request: Any, timeout: float = CALL_SECS, credential: NodeCredential | None = None
    ) -> Any:
        return await self._shared.call(name, request, timeout, credential or self._own)

    async def close(self) -> None:
        """The link is shared."""


class Emulation:
    """`count` nodes called after `settings.node`."""

    def __init__(self, settings: Settings, count: int) -> None:
        self._settings = settings
        self._names = node_names(settings.node, count)
        self._rules = trust.rules(settings.config.auth.plugin, settings.config.auth.mode, settings.key)
        self._terms = Terms()
        nobody = NodeCredential(settings.key, self._names[0], settings.config.cluster_name)
        self._links = [ControllerLink(settings.controllers, nobody) for _ in range(min(LINKS, count))]
        self._node_links: dict[str, NodeLink] = {}
        self._steps = Steps(self._call)
        self._members: list[Membership] = []
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Until SIGTERM or SIGINT.

        Raises:
            StateError: the socket cannot be bound.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        log.warning(
            "emulation nodes=%d first=%s last=%s text=%s",
            len(self._names),
            self._names[0],
            self._names[-1],
            value("these nodes are not real: jobs sent to them run nothing"),
        )
        server = aio.server(interceptors=(Gate(self._rules),), options=_OPTIONS)
        port = self._bind(server)
        agent_pb2_grpc.add_SlurmAgentServicer_to_server(
            EmulatedService(frozenset(self._names), self._rules, self._terms, self._steps), server
        )
        await server.start()
        begun = time.monotonic()
        self._members = self._make_members(port)
        tasks = [asyncio.create_task(member.run()) for member in self._members]
        tasks.append(asyncio.create_task(self._say(begun)))
        print(f"READY spurd {bound_address(self._settings.listen, port)}", flush=True)  # noqa: T201
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((stopping, *tasks), return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            self._steps.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.stop(_STOP_SECS)
            for link in self._links:
                await link.close()
            log.info("stopped begun=%d ended=%d", self._steps.begun, self._steps.ended)

    def _bind(self, server: Any) -> int:
        host, port = split_address(self._settings.listen)
        try:
            bound: int = server.add_insecure_port(join_address(host or "::", port))
        except RuntimeError:
            bound = 0
        if not bound:
            raise StateError(f"cannot listen on {self._settings.listen}: the port is taken or not ours")
        return bound

    def _make_members(self, port: int) -> list[Membership]:
        """A membership for each node.  What was on them before is gone with their last boot."""
        settings = self._settings
        config = settings.config
        now = time.time()
        hardware = discovery.hardware()._replace(boot_id=str(uuid.uuid4()), boot_at=now)
        address = advertised_address(settings.address, settings.listen)
        labels = {**settings.labels, **LABELS}
        members = []
        for at, name in enumerate(self._names):
            credential = NodeCredential(settings.key, name, config.cluster_name)
            link = self._node_links[name] = NodeLink(self._links[at % len(self._links)], credential)
            members.append(
                Membership(
                    Identity(name, name, address, port, labels, now),
                    offered(hardware, config, name, labels),
                    link,
                    credential,
                    lambda name=name: self._steps.held(name),  # type: ignore[misc]
                    _nothing,
                    self._heard_term,
                    self._steps.controller_back,
                )
            )
        return members

    def _heard_term(self, term: int, proof: bytes) -> int:
        believed = trust.believed_term(self._rules, term, proof)
        if believed:
            self._terms.see(believed)
        return believed

    async def _call(self, node: str, name: str, request: Any) -> Any:
        return await self._node_links[node].call(name, request)

    async def _say(self, begun: float) -> None:
        """How it goes, for ever."""
        await asyncio.gather(*(member.registered.wait() for member in self._members))
        log.info("all_registered nodes=%d secs=%.2f", len(self._members), time.monotonic() - begun)
        last = -1
        while True:
            await asyncio.sleep(_SAY_SECS)
            if self._steps.ended != last:
                last = self._steps.ended
                log.info("emulating begun=%d ended=%d", self._steps.begun, last)


def _nothing() -> None:
    """Nobody waits for a heartbeat here."""


def run(settings: Settings, count: int) -> None:
    """Emulate until SIGTERM.

    Raises:
        StateError: the socket cannot be bound.
    """

    async def main() -> None:
        await Emulation(settings, count).run()

    asyncio.run(main())
