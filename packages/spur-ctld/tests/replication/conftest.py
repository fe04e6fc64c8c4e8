"""Nodes and groups of nodes that are stopped, whatever a test did to them."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from spur_ctld.replication import certs
from spur_ctld.replication.files import Files
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.meta import Member
from spur_ctld.replication.node import Node
from spur_ctld.replication.recovery import init_directory
from spur_ctld.replication.roles import Role, Timing
from spur_ctld.replication.testing.machine import ListMachine
from spur_ctld.replication.tls import read_tls
from spur_ctld.replication.transport import Transport

StartNode = Callable[..., Awaitable[Node]]


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def fatal() -> list[BaseException]:
    """What nodes of this test reported as the end."""
    return []


@pytest.fixture
async def start_node(state_dir: Path, fatal: list[BaseException]) -> AsyncIterator[StartNode]:
    """Start a node on `state_dir`; its machine is `node.machine`."""
    started: list[Node] = []

    async def start(**options: object) -> Node:
        machine = options.pop("machine", None) or ListMachine()
        options.setdefault("fatal", fatal.append)
        node = Node(state_dir, machine, **options)
        node.machine = machine
        started.append(node)
        await node.start()
        return node

    yield start
    for node in started:
        # A test that failed may have left its disk or its snapshot waiting.
        for gated in (node._files, node.machine):
            if hasattr(gated, "gate"):
                gated.gate.set()
        await node.stop()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Wait for a condition, at most ten seconds."""

    async def wait(condition: Callable[[], object]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                while not condition():
                    await asyncio.sleep(0.002)
        assert condition()

    return wait


class Group:
    """Members in this process, with real ports, certificates and directories."""

    def __init__(self, folder: Path, ports: list[int], fatal: list[BaseException]) -> None:
        self.folder = folder
        self.fatal = fatal
        self.tls = folder / "tls"
        certs.make_ca(self.tls)
        self.members = [
            Member(id, f"127.0.0.1:{port}", f"spur-controller-{id}", f"client-{id}:6817")
            for id, port in enumerate(ports, 1)
        ]
        for member in self.members:
            certs.make_member(self.tls, member.id)
            self.init(member.id)
        self.nodes: dict[int, Node] = {}

    @property
    def cluster_id(self) -> str:
        return certs.cluster_id(self.tls / "ca.pem")

    def state_dir(self, id: int) -> Path:
        return self.folder / f"state-{id}"

    def init(self, id: int) -> None:
        init_directory(self.state_dir(id), id, self.members, Files(), self.cluster_id)

    def make(
        self, id: int, *, tls: Path | None = None, limits: Limits | None = None, **options: object
    ) -> Node:
        """A node that is not started; its machine is `node.machine`."""
        machine = options.pop("machine", None) or ListMachine()
        members = options.pop("members", self.members)
        own = read_tls(tls or certs.member_dir(self.tls, id))
        node = Node(
            self.state_dir(id),
            machine,
            fatal=self.fatal.append,
            member_id=id,
            members=members,
            transport=Transport(self.members[id - 1].address, own, limits),
            limits=limits,
            **{
                "timing": Timing(heartbeat=2, election=10),
                "command_version": 3,
                "version": "0.1.0",
                **options,
            },
        )
        node.machine = machine
        return node

    async def start(self, *ids: int, **options: object) -> None:
        """Start members, all by default."""
        for id in ids or [member.id for member in self.members]:
            self.nodes[id] = self.make(id, **options)
            await self.nodes[id].start()

    async def stop(self, id: int) -> None:
        await self.nodes.pop(id).stop()

    def leading(self) -> list[int]:
        """Who leads with a complete state."""
        return [id for id, node in self.nodes.items() if node._announcer._role[0] is Role.LEADER]

    async def leader(self) -> Node:
        """Wait until exactly one member leads and all others follow it."""
        async with asyncio.timeout(10):
            while True:
                leading = self.leading()
                if len(leading) == 1 and all(node.leader() == leading[0] for node in self.nodes.values()):
                    return self.nodes[leading[0]]
                await asyncio.sleep(0.005)

    async def followers(self) -> list[Node]:
        leader = await self.leader()
        return [node for node in self.nodes.values() if node is not leader]

    async def level(self) -> None:
        """Wait until every member applied the same."""
        async with asyncio.timeout(10):
            while len({(node.applied, node._core.last_index) for node in self.nodes.values()}) > 1:
                await asyncio.sleep(0.005)


@pytest.fixture
def free_ports() -> Callable[[int], list[int]]:
    """Ports of 127.0.0.1 that nobody listens on."""

    def find(count: int) -> list[int]:
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
            for one in sockets:
                one.bind(("127.0.0.1", 0))
            return [one.getsockname()[1] for one in sockets]

    return find


@pytest.fixture
async def make_group(
    tmp_path: Path, fatal: list[BaseException], free_ports: Callable[[int], list[int]]
) -> AsyncIterator[Callable[[int], Group]]:
    """Groups of any size, not started."""
    made: list[Group] = []

    def make(count: int) -> Group:
        made.append(Group(tmp_path / f"group-{len(made)}", free_ports(count), fatal))
        return made[-1]

    yield make
    for one in made:
        for node in one.nodes.values():
            for gated in (node._files, node.machine):
                if hasattr(gated, "gate"):
                    gated.gate.set()
            await node.stop()


@pytest.fixture
def group(make_group: Callable[[int], Group]) -> Group:
    """Three members, not started."""
    return make_group(3)
