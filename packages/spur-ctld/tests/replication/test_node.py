"""A group of one: commands, reads, restarts, limits."""

import asyncio

import pytest

from spur_core.errors import ConfigError, StateError
from spur_ctld.replication.api import Role
from spur_ctld.replication.errors import Dropped, NotLeader, Overloaded, TooLarge, Unknown
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.meta import Member
from spur_ctld.replication.node import Node
from spur_ctld.replication.testing.files import FailingFiles
from spur_ctld.replication.testing.machine import ListMachine


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


async def test_commands_are_applied_in_order_and_answered(start_node) -> None:
    node = await start_node()
    results = await asyncio.gather(*(node.propose(cmd) for cmd in numbered(300)))
    assert node.machine.commands == numbered(300)
    assert [int(result) for result in results] == list(range(2, 302)), "1 is the no-op"
    metrics = node.metrics()
    assert metrics.written_entries == 301
    assert metrics.writes < 10, "commands of one turn share a sync"
    assert (metrics.commit_index, metrics.applied_index, metrics.pending, metrics.queued) == (301, 301, 0, 0)


async def test_everything_is_there_after_a_restart(start_node) -> None:
    node = await start_node()
    cluster = node.cluster_id
    await asyncio.gather(*(node.propose(cmd) for cmd in numbered(50)))
    await node.stop()
    node = await start_node()
    assert node.machine.commands == numbered(50)
    assert (node.cluster_id, node.term) == (cluster, 2)
    await node.propose(b"more")
    assert node.machine.commands == [*numbered(50), b"more"]


async def test_it_leads_once_its_state_is_complete(start_node) -> None:
    node = await start_node()
    await node.propose(b"a")
    await node.stop()
    seen = []
    machine = ListMachine()
    node = Node(node._state_dir, machine, fatal=seen.append)
    node.on_role_change(lambda role, term: seen.append((role, term, list(machine.commands))))
    await node.start()
    assert seen == [(Role.FOLLOWER, 0, []), (Role.LEADER, 2, [b"a"])]
    assert node.leader() == 1
    late = []
    node.on_role_change(lambda *change: late.append(change))
    assert late == [(Role.LEADER, 2)]
    await node.stop()
    assert node.leader() is None


async def test_a_read_shows_everything_acknowledged(start_node) -> None:
    node = await start_node()
    assert await node.read_barrier() == 1
    await node.propose(b"a")
    assert await node.read_barrier() == 2


async def test_a_read_waits_for_what_is_being_applied(start_node) -> None:
    node = await start_node(limits=Limits(apply_entries=1))
    writes = [asyncio.ensure_future(node.propose(cmd)) for cmd in numbered(20)]
    await writes[3]
    assert node.applied < 21
    index = await node.read_barrier()
    assert index == node.applied == 21
    await asyncio.gather(*writes)


async def test_a_command_too_large_is_refused(start_node) -> None:
    node = await start_node(limits=Limits(command_bytes=100))
    await node.propose(b"x" * 100)
    with pytest.raises(TooLarge, match="command of 101 bytes exceeds the limit of 100 bytes"):
        await node.propose(b"x" * 101)


async def test_large_commands_go_one_a_write(start_node) -> None:
    node = await start_node()
    before = node.metrics().writes
    await asyncio.gather(*(node.propose(bytes(3 << 20)) for _ in range(3)))
    assert node.metrics().writes - before == 3


@pytest.fixture
def slow() -> FailingFiles:
    """A disk whose syncs wait for `gate`."""
    return FailingFiles()


async def test_commands_gather_while_a_write_is_on_its_way(start_node, slow, until) -> None:
    node = await start_node(files=slow)
    writes = node.metrics().writes
    slow.gate.clear()
    slow.syncing.clear()
    first = asyncio.ensure_future(node.propose(b"first"))
    await until(slow.syncing.is_set)
    rest = [asyncio.ensure_future(node.propose(cmd)) for cmd in numbered(100)]
    await until(lambda: node.metrics().queued == 100)
    assert not first.done()
    slow.gate.set()
    await asyncio.gather(first, *rest)
    assert node.metrics().writes == writes + 2


async def test_a_slow_sync_does_not_hold_the_event_loop(start_node, slow, until) -> None:
    node = await start_node(files=slow)
    slow.gate.clear()
    slow.syncing.clear()
    writing = asyncio.ensure_future(node.propose(b"a"))
    await until(slow.syncing.is_set)
    turns = 0
    for _ in range(1000):
        await asyncio.sleep(0)
        turns += 1
    assert turns == 1000
    assert not writing.done(), "not acknowledged before the sync"
    assert node.machine.commands == []
    slow.gate.set()
    await writing


async def test_too_much_waiting_is_refused(start_node, slow, until) -> None:
    node = await start_node(files=slow, limits=Limits(waiting=10, waiting_bytes=1000))
    slow.gate.clear()
    writes = [asyncio.ensure_future(node.propose(cmd)) for cmd in numbered(10)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="10 commands wait"):
        await node.propose(b"x")
    slow.gate.set()
    await asyncio.gather(*writes)
    with pytest.raises(Overloaded):
        await node.propose(bytes(1001))
    await node.propose(b"room again")


async def test_deadlines_tell_what_is_known(start_node, slow, until) -> None:
    node = await start_node(files=slow)
    now = asyncio.get_running_loop().time
    with pytest.raises(Dropped, match="had passed already"):
        await node.propose(b"never", now() - 1)
    slow.gate.clear()
    slow.syncing.clear()
    written = asyncio.ensure_future(node.propose(b"written", now() + 0.05))
    await until(slow.syncing.is_set)
    queued = asyncio.ensure_future(node.propose(b"queued", now() + 0.05))
    with pytest.raises(Unknown):
        await written
    with pytest.raises(Dropped, match="before the command was written"):
        await queued
    slow.gate.set()
    await node.propose(b"last", now() + 10)
    assert node.machine.commands == [b"written", b"last"]


async def test_a_caller_that_gives_up_hurts_nobody(start_node, slow, until) -> None:
    node = await start_node(files=slow)
    slow.gate.clear()
    slow.syncing.clear()
    written = asyncio.ensure_future(node.propose(b"written"))
    await until(slow.syncing.is_set)
    queued = asyncio.ensure_future(node.propose(b"queued"))
    other = asyncio.ensure_future(node.propose(b"other"))
    await asyncio.sleep(0)
    written.cancel()
    queued.cancel()
    slow.gate.set()
    await other
    assert node.machine.commands == [b"written", b"other"]
    assert node._room.bytes == 0
    assert node._room.count == 0


async def test_stopping_finishes_the_write_on_its_way(start_node, slow, until) -> None:
    node = await start_node(files=slow)
    slow.gate.clear()
    slow.syncing.clear()
    written = asyncio.ensure_future(node.propose(b"written"))
    await until(slow.syncing.is_set)
    queued = asyncio.ensure_future(node.propose(b"queued"))
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(node.stop())
    with pytest.raises(Dropped, match="stopping"):
        await queued
    slow.gate.set()
    await stopping
    assert await written == b"2"
    with pytest.raises(Dropped, match="not running"):
        await node.propose(b"late")
    with pytest.raises(NotLeader):
        await node.read_barrier()
    node = await start_node()
    assert node.machine.commands == [b"written"]


async def test_little_free_space_refuses_commands_until_there_is_more(start_node, slow, until) -> None:
    slow.free = 10 << 20
    node = await start_node(files=slow, limits=Limits(free_recheck=0.0))
    with pytest.raises(Overloaded, match="10 MiB free, commands are refused below 64 MiB"):
        await node.propose(b"x")
    assert await node.read_barrier() == 1
    slow.free = 1 << 30

    async def accepted() -> bool:
        try:
            await node.propose(b"x")
        except Overloaded:
            return False
        return True

    async with asyncio.timeout(10):
        while not await accepted():
            await asyncio.sleep(0.002)


async def test_a_group_without_its_transport_is_refused(state_dir) -> None:
    members = [Member(1), Member(2), Member(3)]
    with pytest.raises(ConfigError, match=r"peers: 3 controllers need certificates and a listener"):
        Node(state_dir, ListMachine(), fatal=print, members=members)
    with pytest.raises(ConfigError, match=r"node_id: controller 4 is not among the peers"):
        Node(state_dir, ListMachine(), fatal=print, member_id=4, members=members)
    assert not state_dir.exists()


async def test_a_second_node_on_the_directory_is_refused(start_node, state_dir) -> None:
    node = await start_node()
    with pytest.raises(StateError, match=rf"{state_dir} is in use by another spurctld \(pid \d+\)"):
        await start_node()
    await node.propose(b"still works")
