"""Nothing holds the event loop for long: listings let others run, and so on."""

import asyncio
import gc
from collections.abc import Callable, Sequence
from typing import Any

from spur_ctld.state.ops import NodeRegister
from spur_ctld.state.records import Node, Record
from spur_proto import controller_pb2 as pb


async def until(condition: Callable[[], Any], what: str) -> None:
    """Poll a condition with a deadline."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)
    assert condition(), what


async def filled(cluster: Any, names: Sequence[str]) -> None:
    """Nodes without agents."""
    for name in names:
        node = Node(name=name, cpus=1, memory_mb=1000)
        await cluster.controller.ledger.commit(NodeRegister(at=cluster.clock.time(), node=node))


async def test_a_listing_of_many_nodes_lets_others_run(cluster: Any) -> None:
    await filled(cluster, [f"n{at}" for at in range(250)])
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    await asyncio.sleep(0)
    before = turns
    answer = await cluster.controller.service.GetNodes(pb.GetNodesRequest(), None)
    assert len(answer.nodes) == 250
    assert turns - before >= 2
    beside.cancel()


async def test_records_are_nothing_to_the_garbage_collector(cluster: Any) -> None:
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(array="0-3%2", comment="x")
    await until(lambda: agent.held, "it runs")
    assert cluster.state.jobs[job].request.comment == "x"
    assert [one for one in gc.get_objects() if isinstance(one, Record)] == []
