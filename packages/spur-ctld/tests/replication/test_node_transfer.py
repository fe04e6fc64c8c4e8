"""Snapshots between members: bad files, bad moments, and writes that complete late."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from grpc import aio

from spur_ctld.replication import certs
from spur_ctld.replication.identity import Identity
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.meta import hash_members
from spur_ctld.replication.roles import Timing
from spur_ctld.replication.snapshots import SnapshotStore
from spur_ctld.replication.testing.files import FailingFiles
from spur_ctld.replication.testing.machine import ListMachine
from spur_ctld.replication.tls import read_tls
from spur_ctld.replication.transfer import Sending
from spur_ctld.replication.types import InstallSnapshot, Position
from spur_proto import raft_internal_pb2 as pb
from spur_proto.raft_internal_pb2_grpc import RaftInternalStub

PLACE = Position(7, 3)


class Sender:
    """Member 2, which sends what it likes to member 1."""

    def __init__(self, group, folder: Path) -> None:
        self.group = group
        self.folder = folder
        folder.mkdir()

    def file(self, cluster_id: str | None = None) -> bytes:
        """A good snapshot of three commands at `PLACE`."""
        store = SnapshotStore(self.folder, cluster_id or self.group.cluster_id)
        machine = ListMachine()
        for number in range(3):
            machine.apply(number, b"%d" % number)
        store.write(PLACE, machine.freeze())
        return store.path(PLACE).read_bytes()

    async def send(
        self, data: bytes, *, size: int | None = None, term: int = 5, place: Position = PLACE
    ) -> None:
        """Raises AioRpcError."""
        identity = Identity(self.group.cluster_id, 2, hash_members(self.group.members))
        header = pb.SnapshotHeader(
            hello=identity.hello(1),
            term=term,
            index=place.index,
            index_term=place.term,
            size=len(data) if size is None else size,
        )
        chunks = [pb.SnapshotChunk(header=header)]
        chunks += [pb.SnapshotChunk(data=data[at : at + 50]) for at in range(0, len(data), 50)]
        own = read_tls(certs.member_dir(self.group.tls, 2))
        options = (("grpc.ssl_target_name_override", "spur-controller-1"),)
        async with aio.secure_channel(self.group.members[0].address, own.client(), options) as channel:
            await RaftInternalStub(channel).Snapshot(chunks, timeout=10)

    async def refused(self, data: bytes, **options: object) -> str:
        with pytest.raises(aio.AioRpcError) as caught:
            await self.send(data, **options)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        return str(caught.value.details())


@pytest.fixture
async def sender(group, tmp_path: Path) -> Sender:
    await group.start(1)
    return Sender(group, tmp_path / "made")


def left(group) -> list[str]:
    return [path.name for path in (group.state_dir(1) / "raft" / "snap").iterdir()]


async def test_a_good_file_is_installed(group, sender: Sender, until) -> None:
    await sender.send(sender.file())
    node = group.nodes[1]
    await until(lambda: node.metrics().snapshots_installed == 1)
    assert node.machine.commands == [b"0", b"1", b"2"]
    assert (node.applied, node.term, node.leader()) == (7, 5, 2)
    await group.stop(1)
    await group.start(1)
    assert group.nodes[1].machine.commands == [b"0", b"1", b"2"]
    assert group.nodes[1].metrics().last_index == 7


async def test_bad_files_are_refused(group, sender: Sender) -> None:
    good = sender.file()
    assert "bytes of" in await sender.refused(good[:-1], size=len(good))
    assert "bytes of" in await sender.refused(good, size=len(good) - 1)
    assert "cut off" in await sender.refused(good[:-1])
    assert "is damaged" in await sender.refused(good[:40] + bytes([good[40] ^ 1]) + good[41:])
    assert "not a snapshot file" in await sender.refused(b"x" * len(good))
    assert "not a snapshot file" in await sender.refused(b"")
    assert "holds position 7" in await sender.refused(good, place=Position(8, 3))
    assert "belongs to another cluster" in await sender.refused(sender.file("0" * 32))
    node = group.nodes[1]
    assert (node.machine.commands, node.applied, node.term) == ([], 0, 0)
    assert left(group) == []
    assert group.fatal == []
    await sender.send(good)


async def test_an_old_leader_is_refused(group, sender: Sender, until) -> None:
    good = sender.file()
    await sender.send(good, term=5)
    await until(lambda: group.nodes[1].term == 5)
    assert "leads no longer" in await sender.refused(good, term=4)


async def test_what_is_known_already_is_not_read(group, sender: Sender, until) -> None:
    await sender.send(sender.file())
    await until(lambda: group.nodes[1].applied == 7)
    await sender.send(b"whatever this is", place=Position(6, 3))
    assert len(left(group)) == 1
    assert group.nodes[1].applied == 7


async def test_a_full_disk_takes_no_file(group, tmp_path: Path, until) -> None:
    files = FailingFiles()
    files.free = 64 << 20
    await group.start(1, files=files)
    sender = Sender(group, tmp_path / "made")
    await until(lambda: group.nodes[1]._shared.disk.last.free == 64 << 20)
    assert "no room for a snapshot" in await sender.refused(sender.file())


async def test_the_newer_transfer_takes_over(group, sender: Sender, until) -> None:
    good = sender.file()
    slow = asyncio.Event()
    identity = Identity(group.cluster_id, 2, hash_members(group.members))

    async def chunks():
        yield pb.SnapshotChunk(
            header=pb.SnapshotHeader(hello=identity.hello(1), term=5, index=7, index_term=3, size=len(good))
        )
        yield pb.SnapshotChunk(data=good[:50])
        await slow.wait()

    own = read_tls(certs.member_dir(group.tls, 2))
    options = (("grpc.ssl_target_name_override", "spur-controller-1"),)
    async with aio.secure_channel(group.members[0].address, own.client(), options) as channel:
        call = RaftInternalStub(channel).Snapshot(chunks())
        await until(lambda: [name for name in left(group) if name.endswith(".tmp")])
        await sender.send(good)
        with pytest.raises(aio.AioRpcError, match="given up for another"):
            await call
        slow.set()
    await until(lambda: group.nodes[1].applied == 7)
    assert len(left(group)) == 1


class LogGate(FailingFiles):
    """Only the log's own syncs wait for the gate."""

    def datasync(self, fd: int) -> None:
        if threading.current_thread().name == "spur-log":
            self.syncing.set()
            self.gate.wait()
        super(FailingFiles, self).datasync(fd)


async def test_a_write_that_completes_during_an_install_proves_nothing(group, until) -> None:
    limits = Limits(snapshot_entries=100, keep_entries=10, catch_up_entries=20, segment_bytes=2000)
    timing = Timing(heartbeat=2, election=10, window=4)
    files = LogGate()
    await group.start(1, 2, limits=limits, timing=timing)
    await group.leader()
    await group.start(3, limits=limits, timing=timing, files=files)
    leader = await group.leader()
    while leader.member_id == 3:
        await leader.transfer_leadership()
        leader = await group.leader()
    slow = group.nodes[3]
    await group.level()
    files.gate.clear()
    files.syncing.clear()
    for at in range(0, 1000, 50):
        await asyncio.gather(*(leader.propose(b"%d" % number) for number in range(at, at + 50)))
    await until(files.syncing.is_set)
    # Its log has a write on its way; the entries it needs next are gone at the leader, whose stream breaks.
    await until(lambda: leader._core.log.base.index > 500)
    leader._door.lost(3)
    await until(lambda: slow._core.log.base.index > 100)
    assert slow.applied < 100
    assert slow.machine.commands == []
    files.gate.set()
    await group.level()
    assert slow.metrics().snapshots_installed >= 1
    expected = leader.machine.commands
    assert slow.machine.commands == expected
    await group.stop(3)
    await group.start(3, limits=limits)
    await group.level()
    assert group.nodes[3].machine.commands == expected
    assert group.fatal == []


async def test_whatever_ends_a_sending_the_member_is_sent_to_again(tmp_path: Path) -> None:
    """An error that nobody expected must not leave the member waiting for a file until the leader changes."""
    (tmp_path / "file").write_bytes(b"snapshot")
    told: list[tuple[int, bool]] = []
    woken: list[None] = []

    class Peer:
        async def snapshot(self, *_: object) -> None:
            raise ValueError("unexpected")

    shared = SimpleNamespace(
        loop=asyncio.get_running_loop(),
        opened=SimpleNamespace(snapshots=SimpleNamespace(path=lambda _: tmp_path / "file")),
        core=SimpleNamespace(snapshot_sent=lambda peer, ok: told.append((peer, ok))),
        wake=lambda: woken.append(None),
    )
    sending = Sending(shared, SimpleNamespace(peer=lambda _: Peer()))
    sending.send(InstallSnapshot(1, 2, 5, PLACE))
    (task,) = sending._tasks.values()
    with pytest.raises(ValueError, match="unexpected"):
        await task
    assert (told, woken, sending._tasks) == ([(2, False)], [None], {})
