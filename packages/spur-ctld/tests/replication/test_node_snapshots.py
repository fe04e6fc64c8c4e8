"""Snapshots of a running node: the log shrinks, the state survives."""

import asyncio
import threading
from collections.abc import Iterator

from spur_ctld.replication.limits import Limits
from spur_ctld.replication.testing.files import FailingFiles
from spur_ctld.replication.testing.machine import ListMachine

LIMITS = Limits(snapshot_entries=100, keep_entries=10, segment_bytes=1000)


async def fill(node, start: int, count: int) -> None:
    for number in range(start, start + count, 20):
        await asyncio.gather(*(node.propose(b"%d" % at) for at in range(number, number + 20)))


async def test_the_state_comes_back_from_snapshot_and_log(start_node, state_dir, until) -> None:
    node = await start_node(limits=LIMITS)
    await fill(node, 0, 960)
    await until(lambda: node.metrics().snapshots >= 3)
    await until(lambda: not node._snapshots.busy)
    assert len(node._core.log.between(node._core.log.base.index + 1, node._core.last_index)) < 300
    await node.stop()
    assert len(list((state_dir / "raft" / "snap").iterdir())) == 2
    node = await start_node(limits=LIMITS)
    assert node.machine.commands == [b"%d" % at for at in range(960)]
    assert node.metrics().snapshot_index > 500
    assert node.machine.restores == 1


async def test_bytes_trigger_a_snapshot_too(start_node, until) -> None:
    node = await start_node(limits=Limits(snapshot_bytes=100_000))
    await node.propose(bytes(60_000))
    await node.propose(bytes(60_000))
    await until(lambda: node.metrics().snapshots == 1)


async def test_an_unreadable_newest_snapshot_costs_nothing(start_node, state_dir, until) -> None:
    node = await start_node(limits=LIMITS)
    for batch in range(3):
        await fill(node, batch * 120, 120)
        await until(lambda batch=batch: node.metrics().snapshots > batch)
    await node.stop()
    assert not (state_dir / "raft" / "log" / f"{1:016x}.seg").exists()
    newest = max((state_dir / "raft" / "snap").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    node = await start_node(limits=LIMITS)
    assert node.machine.commands == [b"%d" % at for at in range(360)]


class GatedMachine(ListMachine):
    """Its snapshots wait until `gate` is set; commands go on."""

    def __init__(self) -> None:
        super().__init__(chunk=10)
        self.gate = threading.Event()
        self.encoding = threading.Event()
        self.thread: int | None = None

    def _encode(self, commands: list[bytes]) -> Iterator[bytes]:
        self.thread = threading.get_ident()
        self.encoding.set()
        self.gate.wait()
        yield from super()._encode(commands)


async def test_commands_go_on_while_a_snapshot_is_written(start_node, until) -> None:
    machine = GatedMachine()
    node = await start_node(machine=machine, limits=LIMITS)
    await fill(node, 0, 120)
    await until(machine.encoding.is_set)
    await fill(node, 120, 240)
    assert node.metrics().snapshots == 0
    assert machine.thread != threading.get_ident()
    machine.gate.set()
    await until(lambda: node.metrics().snapshots >= 1)
    await node.stop()
    node = await start_node(limits=LIMITS)
    assert node.machine.commands == [b"%d" % at for at in range(360)]


async def test_stopping_does_not_wait_for_a_snapshot(start_node, state_dir, until, fatal) -> None:
    machine = GatedMachine()
    node = await start_node(machine=machine, limits=LIMITS)
    await fill(node, 0, 120)
    await until(machine.encoding.is_set)
    stopping = asyncio.ensure_future(node.stop())
    await until(lambda: node._shared.stopping)
    machine.gate.set()
    await stopping
    node = await start_node()
    assert node.machine.commands == [b"%d" % at for at in range(120)]
    assert not list((state_dir / "raft" / "snap").glob("*.tmp"))
    assert fatal == []


async def test_a_snapshot_waits_for_room(start_node, until, fatal, caplog) -> None:
    files = FailingFiles()
    node = await start_node(files=files, limits=LIMITS)
    await fill(node, 0, 120)
    await until(lambda: node.metrics().snapshots == 1)
    files.free = LIMITS.free_bytes + node.metrics().snapshot_bytes
    await fill(node, 120, 240)
    assert node.metrics().snapshots == 1
    assert caplog.text.count("snapshot_put_off") == 1
    files.free = None
    await fill(node, 360, 20)
    await until(lambda: node.metrics().snapshots == 2)
    assert fatal == []
