"""Nodes that are stopped, whatever a test did to them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from spur_ctld.replication.node import Node
from spur_ctld.replication.testing.machine import ListMachine

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
