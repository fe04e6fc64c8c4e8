"""Between members: one listener with mutual TLS, and a `Peer` for each other member.

The caller's certificate decides who sent something.  A stream on which anything is wrong is closed, with a
reason that names it; the protocol copes with what is lost.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final, NoReturn, Protocol

import grpc
from grpc import aio

from spur_core.config.address import join_address, split_address
from spur_core.errors import ConfigError, SpurError
from spur_core.linux.connections import listener_options
from spur_ctld.replication import wire
from spur_ctld.replication.identity import Identity, Refused, identify
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.meta import Member
from spur_ctld.replication.peer import OPTIONS, Peer
from spur_ctld.replication.tls import Tls, names_of
from spur_ctld.replication.types import AnyMessage
from spur_proto import raft_internal_pb2 as pb
from spur_proto.raft_internal_pb2_grpc import RaftInternalServicer, add_RaftInternalServicer_to_server

_log = logging.getLogger(__name__)

#: Seconds for answers at a stop.
_ANSWERS_SECS: Final = 0.05
#: Characters of a refusal.
_MOST_TEXT: Final = 500


class Receiver(Protocol):
    """Who takes what other members send."""

    async def deliver(self, messages: Sequence[AnyMessage], size: int) -> None:
        """Checked messages of one frame; returns when there is room for more."""

    async def forwarded(self, items: Sequence[pb.ForwardItem]) -> list[pb.ForwardAnswer]:
        """One answer for each item."""

    async def snapshot(self, src: int, header: pb.SnapshotHeader, parts: AsyncIterator[bytes]) -> None:
        """Take a snapshot file; durable on return.  Raises SpurError to refuse it."""

    def status(self) -> pb.StatusReply:
        """What is known here; without the greeting."""

    def greet(self, hello: pb.Hello) -> None:
        """Add what this member says at this moment."""

    def greeted(self, member: Member, hello: pb.Hello) -> None:
        """Hear what `member` says.  Raises Refused to have nothing to do with it."""

    def digests(self, member: int, digests: Sequence[pb.StateDigest]) -> None:
        """What the states of `member` were."""

    def connected(self) -> None:
        """A stream to a member opened."""

    def lost(self, peer: int) -> None:
        """Messages to `peer` were dropped."""


class Transport:
    """The other members of the group, from `start` to `stop`.

    Args:
        listen: HOST:PORT of this member's listener; port 0 = a free one.
    """

    def __init__(self, listen: str, tls: Tls, limits: Limits | None = None) -> None:
        self._listen = listen
        self._tls = tls
        self._limits = limits or Limits()
        self._server: aio.Server | None = None
        self._peers: dict[int, Peer] = {}
        self._heard: dict[int, pb.Hello] = {}
        self._open: Counter[int] = Counter()
        #: HOST:PORT with the real port, once started.
        self.address = ""

    async def start(self, identity: Identity, members: Sequence[Member], receiver: Receiver) -> None:
        """Listen, and begin to connect to the others.

        Raises:
            ConfigError: the address cannot be bound, or the certificate cannot be used.
        """
        options = (
            *OPTIONS,
            *listener_options(8),
            # Two controllers on one port would each get half of the calls.
            ("grpc.so_reuseport", 0),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 300),
            ("grpc.http2.max_ping_strikes", 0),
        )
        self._server = aio.server(options=options)
        service = _Service(identity, members, receiver, self._limits, self._heard, self._open)
        add_RaftInternalServicer_to_server(service, self._server)
        host, _ = split_address(self._listen)
        target = self._listen if host else "[::]" + self._listen
        try:
            port = self._server.add_secure_port(target, self._tls.server())
        except RuntimeError:
            port = 0
        if not port:
            raise ConfigError(
                f"[controller] raft_listen_addr: cannot listen on {self._listen}: the port is in use, the"
                " address is not this host's, or the certificate cannot be used"
            )
        self.address = join_address(host or "::", port)
        await self._server.start()
        self._peers = {
            member.id: Peer(
                member,
                partial(_hello, identity, receiver, member.id),
                self._tls,
                self._limits,
                receiver.connected,
                receiver.lost,
            )
            for member in members
            if member.id != identity.id
        }

    async def stop(self) -> None:
        """Close everything; messages on their way are lost."""
        for peer in self._peers.values():
            await peer.close()
        if self._server is not None:
            # Streams do not end by themselves, but answers that are ready may leave.
            await self._server.stop(_ANSWERS_SECS)
            self._server = None

    def send(self, msg: AnyMessage) -> None:
        """Queue a message for the member it names, or drop it."""
        self._peers[msg.dst].send(msg)

    def peer(self, member: int) -> Peer:
        """The way to `member`."""
        return self._peers[member]

    def connected(self, member: int) -> bool:
        """Messages and calls to `member` have a way."""
        peer = self._peers.get(member)
        return peer is not None and peer.connected

    def greeting(self, member: int) -> pb.Hello | None:
        """How `member` presented itself last."""
        return self._heard.get(member)

    def present(self, member: int) -> bool:
        """The stream from `member` is open, so it is still as it presented itself."""
        return self._open.get(member, 0) > 0

    @property
    def dropped(self) -> int:
        """Messages dropped since the start."""
        return sum(peer.dropped for peer in self._peers.values())


def _hello(identity: Identity, receiver: Receiver, dst: int) -> pb.Hello:
    """This member's greeting of member `dst`, as of now."""
    hello = identity.hello(dst)
    receiver.greet(hello)
    return hello


class _Service(RaftInternalServicer):
    """What other members call."""

    def __init__(
        self,
        identity: Identity,
        members: Sequence[Member],
        receiver: Receiver,
        limits: Limits,
        heard: dict[int, pb.Hello],
        open_: Counter[int],
    ) -> None:
        self._identity = identity
        self._members = members
        self._receiver = receiver
        self._limits = limits
        self._heard = heard
        self._open = open_
        self._complaints: dict[str, str] = {}

    async def Messages(
        self,
        request_iterator: AsyncIterator[pb.Frame],
        context: "aio.ServicerContext[pb.Frame, pb.MessagesEnd]",
    ) -> pb.MessagesEnd:
        async for first in request_iterator:
            member = await self._greet(context, first.hello)
            self._open[member.id] += 1
            try:
                # The caller waits for this.
                await context.send_initial_metadata(())
                await self._take(request_iterator, context, member)
            finally:
                self._open[member.id] -= 1
        return pb.MessagesEnd()

    async def _take(
        self,
        frames: AsyncIterator[pb.Frame],
        context: "aio.ServicerContext[pb.Frame, pb.MessagesEnd]",
        member: Member,
    ) -> None:
        async for frame in frames:
            data = frame.messages
            try:
                messages = wire.decode(data, member.id, self._identity.id, self._limits.command_bytes)
            except wire.BadFrame as error:
                await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
            await self._receiver.deliver(messages, len(data))

    async def Snapshot(
        self,
        request_iterator: AsyncIterator[pb.SnapshotChunk],
        context: "aio.ServicerContext[pb.SnapshotChunk, pb.SnapshotDone]",
    ) -> pb.SnapshotDone:
        async for first in request_iterator:
            header = first.header
            member = await self._greet(context, header.hello)
            try:
                wire.check_snapshot(header.term, header.index, header.index_term)
            except wire.BadFrame as error:
                await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
            try:
                await self._receiver.snapshot(member.id, header, _data(request_iterator))
            except SpurError as error:
                await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, error.text)
            break
        return pb.SnapshotDone()

    async def Forward(
        self, request: pb.ForwardRequest, context: "aio.ServicerContext[pb.ForwardRequest, pb.ForwardReply]"
    ) -> pb.ForwardReply:
        await self._greet(context, request.hello)
        return pb.ForwardReply(answers=await self._receiver.forwarded(request.items))

    async def Status(
        self, request: pb.StatusRequest, context: "aio.ServicerContext[pb.StatusRequest, pb.StatusReply]"
    ) -> pb.StatusReply:
        member = await self._greet(context, request.hello)
        self._receiver.digests(member.id, request.digests)
        reply = self._receiver.status()
        reply.hello.CopyFrom(_hello(self._identity, self._receiver, member.id))
        return reply

    async def _greet(self, context: "aio.ServicerContext[Any, Any]", hello: pb.Hello) -> Member:
        try:
            member = identify(self._identity, self._members, names_of(context.auth_context()), hello)
            self._receiver.greeted(member, hello)
        except Refused as error:
            await self._refuse(context, error.code, str(error))
        self._heard[member.id] = hello
        self._complaints.pop(_host(context), None)
        return member

    async def _refuse(
        self, context: "aio.ServicerContext[Any, Any]", code: grpc.StatusCode, text: str
    ) -> NoReturn:
        """End the call; the log hears of each trouble once, not at each attempt."""
        host = _host(context)
        # What it quotes is the caller's, and a status has to fit into its metadata.
        text = text[:_MOST_TEXT]
        if self._complaints.get(host) != text:
            if len(self._complaints) >= 100:
                self._complaints.clear()
            self._complaints[host] = text
            _log.warning("peer_refused from=%s error=%r", context.peer(), text)
        await context.abort(code, text)


def _host(context: "aio.ServicerContext[Any, Any]") -> str:
    return str(context.peer()).rpartition(":")[0]


async def _data(chunks: AsyncIterator[pb.SnapshotChunk]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield chunk.data
