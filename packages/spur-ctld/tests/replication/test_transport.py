"""The listener of a member: whom it believes, what it takes, and what it refuses."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import msgspec
import pytest
from grpc import aio

from spur_core.errors import ConfigError
from spur_ctld.replication import certs, wire
from spur_ctld.replication.identity import Identity
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.meta import Member, hash_members
from spur_ctld.replication.peer import explained
from spur_ctld.replication.tls import read_tls
from spur_ctld.replication.transport import Transport
from spur_ctld.replication.types import Append, Entry, Heartbeat, InstallSnapshot, Position, VoteReply
from spur_proto import raft_internal_pb2 as pb
from spur_proto.raft_internal_pb2_grpc import RaftInternalStub

LIMITS = Limits(command_bytes=2 << 20)


class Taker:
    """A `Receiver` that keeps what it gets."""

    def __init__(self) -> None:
        self.messages = []
        self.lost_peers = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def deliver(self, messages, size) -> None:
        await self.gate.wait()
        self.messages += messages

    async def forwarded(self, items):
        return [pb.ForwardAnswer(result=item.command.upper()) for item in items]

    async def snapshot(self, src, header, parts) -> None:
        self.messages.append((src, header.index, b"".join([part async for part in parts])))

    def status(self) -> pb.StatusReply:
        return pb.StatusReply(role="follower", term=7)

    def digests(self, member, digests) -> None:
        pass

    def greet(self, hello: pb.Hello) -> None:
        pass

    def greeted(self, member: Member, hello: pb.Hello) -> None:
        pass

    def connected(self) -> None:
        pass

    def lost(self, peer: int) -> None:
        self.lost_peers.append(peer)


class Site:
    """Member 1's transport, and callers with certificates of any kind."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.folder = folder
        certs.make_ca(folder / "tls")
        for id in (1, 2, 3, 9):
            certs.make_member(folder / "tls", id)
        self.members = [
            Member(id, f"127.0.0.1:{port}", f"spur-controller-{id}") for id, port in enumerate(ports, 1)
        ]
        self.taker = Taker()
        self.transport = self.make(1)
        self.stack = contextlib.AsyncExitStack()

    def make(self, id: int) -> Transport:
        return Transport(
            self.members[id - 1].address, read_tls(certs.member_dir(self.folder / "tls", id)), LIMITS
        )

    def identity(self, id: int, **changed: str) -> Identity:
        given = {"cluster_id": "cafe", "members_hash": hash_members(self.members), **changed}
        return Identity(id=id, **given)

    def caller(self, id: int = 2, tls: Path | None = None) -> RaftInternalStub:
        channel = aio.secure_channel(
            self.members[0].address,
            read_tls(tls or certs.member_dir(self.folder / "tls", id)).client(),
            (
                ("grpc.ssl_target_name_override", "spur-controller-1"),
                ("grpc.max_send_message_length", 64 << 20),
            ),
        )
        self.stack.push_async_callback(channel.close)
        return RaftInternalStub(channel)

    async def stream(self, *frames: pb.Frame | bytes, id: int = 2, hello: pb.Hello | None = None) -> str:
        """Send frames; how the receiver ended the stream."""
        call = self.caller(id).Messages(None)
        with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(pb.Frame(hello=hello or self.identity(2).hello(1)))
            for frame in frames:
                await call.write(pb.Frame(messages=frame) if isinstance(frame, bytes) else frame)
            await call.done_writing()
        try:
            async with asyncio.timeout(10):
                await call
        except aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return "taken"


@pytest.fixture
async def site(tmp_path: Path, free_ports) -> AsyncIterator[Site]:
    made = Site(tmp_path, free_ports(3))
    await made.transport.start(made.identity(1), made.members, made.taker)
    yield made
    await made.stack.aclose()
    await made.transport.stop()


def beat(src: int = 2, dst: int = 1, **fields: int) -> bytes:
    return wire.encode([Heartbeat(src, dst, **{"term": 3, "commit": 2, "round": 1, **fields})])


def append(*entries: Entry) -> bytes:
    return wire.encode([Append(2, 1, 3, Position(4, 2), entries, 4)])


async def test_messages_of_a_member_arrive_in_order(site: Site) -> None:
    messages = [Heartbeat(2, 1, 3, 0, number) for number in range(50)]
    frames = [wire.encode(messages[at : at + 7]) for at in range(0, 50, 7)]
    assert await site.stream(*frames) == "taken"
    assert site.taker.messages == messages


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"cluster_id": "beef"}, "FAILED_PRECONDITION: controller 2 belongs to cluster beef, this is cafe"),
        ({"members_hash": "x"}, "FAILED_PRECONDITION: controller 2 is configured with another list"),
    ],
)
async def test_a_member_of_another_group_is_refused(site: Site, changed, says: str) -> None:
    assert (await site.stream(beat(), hello=site.identity(2, **changed).hello(1))).startswith(says)
    assert site.taker.messages == []


async def test_the_certificate_decides_who_sends(site: Site) -> None:
    says = await site.stream(beat(), id=3)
    assert says == "PERMISSION_DENIED: controller 3 says that it is controller 2"
    says = await site.stream(beat(), id=9)
    assert "certificate for spur-controller-9 names no other controller" in says
    says = await site.stream(beat(), id=1)
    assert "certificate for spur-controller-1 names no other controller" in says
    says = await site.stream(beat(), hello=site.identity(2).hello(3))
    assert says == "FAILED_PRECONDITION: controller 2 looks for controller 3, this is 1"
    assert site.taker.messages == []


async def test_a_certificate_of_another_ca_gets_no_connection(site: Site, tmp_path: Path) -> None:
    certs.make_ca(tmp_path / "other")
    stranger = certs.make_member(tmp_path / "other", 2)
    # It believes the right CA but shows a certificate of its own.
    (stranger / "ca.pem").write_bytes((site.folder / "tls" / "ca.pem").read_bytes())
    with pytest.raises(aio.AioRpcError) as caught:
        await site.caller(tls=stranger).Status(pb.StatusRequest(hello=site.identity(2).hello(1)), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_nobody_without_a_certificate_is_heard(site: Site) -> None:
    ca = (site.folder / "tls" / "ca.pem").read_bytes()
    options = (("grpc.ssl_target_name_override", "spur-controller-1"),)
    async with (
        aio.secure_channel(site.members[0].address, grpc.ssl_channel_credentials(ca), options) as bare,
        aio.insecure_channel(site.members[0].address) as plain,
    ):
        for channel in (bare, plain):
            with pytest.raises(aio.AioRpcError) as caught:
                await RaftInternalStub(channel).Status(pb.StatusRequest(), timeout=5)
            assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


async def test_a_listener_with_another_name_is_not_believed(site: Site, until) -> None:
    """Member 2 looks for member 3 and reaches the listener of member 1."""
    site.members[2] = Member(3, site.members[0].address, "spur-controller-3")
    second = site.make(2)
    taker = Taker()
    await second.start(site.identity(2), site.members, taker)
    try:
        await until(lambda: second.connected(1))
        second.send(Heartbeat(2, 3, 1, 0, 0))
        assert not second.connected(3)
        assert taker.lost_peers[-1] == 3
    finally:
        await second.stop()


GOOD = Entry(5, 3, b"x")
BAD_FRAMES = {
    "not msgpack": (b"\xc1", "malformed frame"),
    "empty": (b"", "malformed frame"),
    "no messages": (msgspec.msgpack.encode({"a": 1}), "malformed frame"),
    "unknown kind": (msgspec.msgpack.encode([["shout", 2, 1, 3]]), "malformed frame"),
    "a field of another type": (msgspec.msgpack.encode([["beat", 2, 1, 3, "x", 1]]), "malformed frame"),
    "too few fields": (msgspec.msgpack.encode([["beat", 2, 1, 3]]), "malformed frame"),
    "another sender": (beat(src=3), "message from 3 to 1 on the stream from 2 to 1"),
    "another receiver": (beat(dst=3), "message from 2 to 3 on the stream from 2 to 1"),
    "a negative term": (beat(term=-1), "a number of Heartbeat is out of range"),
    "a negative commit": (beat(commit=-1), "a number of Heartbeat is out of range"),
    "a huge round": (beat(round=1 << 63), "a number of Heartbeat is out of range"),
    "a snapshot without its file": (
        wire.encode([InstallSnapshot(2, 1, 3, Position(9, 3))]),
        "comes with its file only",
    ),
    "a gap": (append(GOOD, Entry(7, 3, b"")), "entry 7 of term 3 does not follow 5"),
    "a wrong begin": (append(Entry(6, 3, b"")), "entry 6 of term 3 does not follow 4"),
    "a term that falls": (append(GOOD, Entry(6, 2, b"")), "entry 6 of term 2 does not follow 5"),
    "a term that is not begun": (append(Entry(5, 4, b"")), "entry 5 of term 4 does not follow 4"),
    "an entry too large": (
        append(Entry(5, 3, bytes((2 << 20) + 1))),
        "entry 5 of 2097153 bytes is too large",
    ),
    "too many large entries": (
        append(Entry(5, 3, bytes(1 << 20)), Entry(6, 3, bytes(1 << 20))),
        "carries more than one entry",
    ),
    "a frame too large": (append(Entry(5, 3, bytes(3 << 20))), "bytes is too large"),
}


#: What grpcio tells a writer whose write met the stream's end before the receiver's last word came.
WRITTEN_AFTER_THE_END = "INTERNAL: Internal error from Core"


@pytest.mark.parametrize("name", BAD_FRAMES)
async def test_a_bad_frame_ends_the_stream(site: Site, name: str, caplog: pytest.LogCaptureFixture) -> None:
    frame, says = BAD_FRAMES[name]
    ended = await site.stream(beat(), frame, beat(round=9))
    if ended != WRITTEN_AFTER_THE_END:
        assert ended.startswith("INVALID_ARGUMENT: "), ended
        assert says in ended
    assert says in caplog.text
    # What came before it was taken, nothing after it was.
    assert site.taker.messages == [Heartbeat(2, 1, 3, 2, 1)]
    assert await site.stream(beat(round=10)) == "taken", "a new stream is welcome"


async def test_more_than_grpc_takes_ends_the_stream(site: Site) -> None:
    ended = await site.stream(append(Entry(5, 3, bytes(17 << 20))))
    assert ended.startswith("RESOURCE_EXHAUSTED"), ended
    assert site.taker.messages == []


async def test_one_large_entry_goes_alone(site: Site) -> None:
    large = Entry(5, 3, bytes(2 << 20))
    assert await site.stream(append(large)) == "taken"
    assert site.taker.messages[0].entries == (large,)


async def test_messages_before_the_greeting_are_refused(site: Site) -> None:
    call = site.caller().Messages(None)
    await call.write(pb.Frame(messages=beat()))
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert site.taker.messages == []


async def test_calls_are_checked_as_streams_are(site: Site) -> None:
    good, bad = site.identity(2).hello(1), site.identity(2, cluster_id="beef").hello(1)
    stub = site.caller()
    items = [pb.ForwardItem(command=b"abc")]
    reply = await stub.Forward(pb.ForwardRequest(hello=good, items=items))
    assert [answer.result for answer in reply.answers] == [b"ABC"]
    assert (await stub.Status(pb.StatusRequest(hello=good))).term == 7
    header = pb.SnapshotHeader(hello=good, term=3, index=9, index_term=3, size=4)
    chunks = [pb.SnapshotChunk(header=header), pb.SnapshotChunk(data=b"ab"), pb.SnapshotChunk(data=b"cd")]
    await stub.Snapshot(chunks)
    assert site.taker.messages == [(2, 9, b"abcd")]
    header.hello.CopyFrom(bad)
    for call in (
        stub.Forward(pb.ForwardRequest(hello=bad, items=items)),
        stub.Status(pb.StatusRequest(hello=bad)),
        stub.Snapshot([pb.SnapshotChunk(header=header), pb.SnapshotChunk(data=b"x")]),
    ):
        with pytest.raises(aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert len(site.taker.messages) == 1


async def test_a_full_queue_drops_and_tells(site: Site, until) -> None:
    """Member 2 sends more than member 1 takes."""
    second = Transport(
        site.members[1].address,
        read_tls(certs.member_dir(site.folder / "tls", 2)),
        Limits(outbox_messages=10, outbox_bytes=8 << 20),
    )
    taker = Taker()
    await second.start(site.identity(2), site.members, taker)
    try:
        await until(lambda: second.connected(1))
        taker.lost_peers.clear()
        for number in range(11):
            second.send(VoteReply(2, 1, number, True))
        assert taker.lost_peers == [1]
        assert second.dropped == 1 + second.peer(3).dropped
        await until(lambda: len(site.taker.messages) == 10)
        for _ in range(10):
            second.send(Append(2, 1, 3, Position(4, 2), (Entry(5, 3, bytes(1 << 20)),), 4))
        assert 1 <= taker.lost_peers.count(1) <= 4
    finally:
        await second.stop()


async def test_streams_come_back(site: Site, until) -> None:
    second = site.make(2)
    taker = Taker()
    await second.start(site.identity(2), site.members, taker)
    try:
        await until(lambda: second.connected(1))
        await site.transport.stop()
        await until(lambda: not second.connected(1))
        assert 1 in taker.lost_peers
        site.transport = site.make(1)
        await site.transport.start(site.identity(1), site.members, site.taker)
        await until(lambda: second.connected(1))
        second.send(Heartbeat(2, 1, 3, 0, 1))
        await until(lambda: site.taker.messages)
        assert site.transport.greeting(2).src == 2
    finally:
        await second.stop()


async def test_a_port_in_use_is_named(site: Site) -> None:
    again = site.make(1)
    with pytest.raises(ConfigError, match=rf"raft_listen_addr: cannot listen on {site.members[0].address}"):
        await again.start(site.identity(1), site.members, site.taker)
    await again.stop()


def test_missing_certificates_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"raft_tls_dir: .*/ca.pem: No such file.*gen-certs"):
        read_tls(tmp_path)


@pytest.mark.parametrize(("at", "served_by", "mend"), [(2, 3, "same order everywhere"), (2, 0, "same CA")])
async def test_a_certificate_that_does_not_fit_is_told_with_what_to_look_at(
    tmp_path: Path, at: int, served_by: int, mend: str
) -> None:
    """`served_by`: the member that answers in the place of `at`; 0 = one of another group."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        certs.make_ca(tmp_path / name)
        for member in (1, 2, 3):
            certs.make_member(tmp_path / name, member)
    other = certs.member_dir(tmp_path / ("ours" if served_by else "theirs"), served_by or at)
    server = aio.server()
    port = server.add_secure_port("127.0.0.1:0", read_tls(other).server())
    await server.start()
    tls = read_tls(certs.member_dir(tmp_path / "ours", 1))
    options = (("grpc.ssl_target_name_override", f"spur-controller-{at}"),)
    try:
        async with aio.secure_channel(f"127.0.0.1:{port}", tls.client(), options=options) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await RaftInternalStub(channel).Status(pb.StatusRequest(), timeout=20)
    finally:
        await server.stop(None)
    details = str(caught.value.details())
    assert mend in explained(details)
    assert details in explained(details)
    assert explained("Connection refused") == "Connection refused"
