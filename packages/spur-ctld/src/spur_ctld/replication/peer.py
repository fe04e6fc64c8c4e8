"""The way to one other member: a channel, the stream of messages to it, and calls.

Messages wait in a bounded queue while the stream is open.  Without a stream, with a full queue and when the
stream breaks, messages are dropped and the protocol is told: it sends again what is still needed.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from grpc import aio

from spur_ctld.replication import wire
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.meta import Member
from spur_ctld.replication.tls import Tls
from spur_ctld.replication.types import AnyMessage
from spur_proto import raft_internal_pb2 as pb
from spur_proto.raft_internal_pb2_grpc import RaftInternalStub

_log = logging.getLogger(__name__)

#: Seconds between two attempts to open the stream: the first, and the longest.
_PAUSE: Final = 0.05
_PAUSE_MOST: Final = 0.4
#: Seconds that an attempt may take.
_PATIENCE: Final = 3.0

OPTIONS: Final = (
    ("grpc.max_receive_message_length", wire.MESSAGE_LIMIT),
    ("grpc.max_send_message_length", wire.MESSAGE_LIMIT),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    # A member that was cut off or stopped is noticed, so that a fresh connection follows when it is back.
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 400),
    # Also the longest that one attempt to connect may take.
    ("grpc.min_reconnect_backoff_ms", 1500),
)


#: What gRPC says of certificates, and what it comes from.
_EXPLAINED = (
    ("Hostname Verification", "another controller answers there; are `peers` in the same order everywhere?"),
    ("SSL_ERROR_SSL", "its certificate and ours are not of the same CA, expired, or not yet valid here"),
)


def explained(trouble: str) -> str:
    """The words of a failed connection; where it is known, what to look at comes first."""
    for mark, why in _EXPLAINED:
        if mark in trouble:
            return f"{why} ({trouble})"
    return trouble


class Peer:
    """Member `member` as seen from here.

    Args:
        hello: makes this member's greeting.
        changed: called when the stream opens.
        lost: called when messages were dropped.

    Attributes:
        connected: the stream is open and accepted.
        dropped: messages dropped so far.
    """

    def __init__(
        self,
        member: Member,
        hello: Callable[[], pb.Hello],
        tls: Tls,
        limits: Limits,
        changed: Callable[[], None],
        lost: Callable[[int], None],
    ) -> None:
        self.member = member
        self.connected = False
        self.dropped = 0
        self._hello = hello
        self._limits = limits
        self._changed = changed
        self._lost = lost
        self._queue: deque[AnyMessage] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._trouble = ""
        self._channel = aio.secure_channel(
            member.address, tls.client(), (*OPTIONS, ("grpc.ssl_target_name_override", member.name))
        )
        self._stub = RaftInternalStub(self._channel)
        self._task = asyncio.create_task(self._run(), name=f"spur-raft-to-{member.id}")

    async def close(self) -> None:
        """Drop everything."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._channel.close(None)

    # --- messages -----------------------------------------------------------------------------------------

    def send(self, msg: AnyMessage) -> None:
        """Queue `msg`, or drop it and tell."""
        size = wire.size_of(msg)
        limits = self._limits
        full = len(self._queue) >= limits.outbox_messages or self._bytes + size > limits.outbox_bytes
        if not self.connected or (full and self._queue):
            self.dropped += 1
            self._lost(self.member.id)
            return
        self._queue.append(msg)
        self._bytes += size
        self._wake.set()

    async def _run(self) -> None:
        pause = _PAUSE
        while True:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    await self._session(stack)
            except aio.AioRpcError as error:
                self._complain(f"{error.code().name.lower()}: {error.details()}")
            except TimeoutError:
                self._complain("no answer to the greeting")
            except Exception as error:
                # Whatever it is, the next attempt may go well; without one this member would be cut off.
                self._complain(repr(error))
            pause = _PAUSE if self.connected else min(2 * pause, _PAUSE_MOST)
            self._disconnect()
            await asyncio.sleep(pause)

    async def _session(self, stack: contextlib.AsyncExitStack) -> None:
        """One stream from its greeting to its end.

        Raises:
            AioRpcError: refused, or broken.
            TimeoutError: nobody answered.
        """
        call = self._stub.Messages(None)
        stack.callback(call.cancel)
        async with asyncio.timeout(_PATIENCE):
            try:
                await call.write(pb.Frame(hello=self._hello()))
                await call.wait_for_connection()
            except asyncio.InvalidStateError:
                # The stream ended before the greeting left.
                await call
        call.add_done_callback(lambda _: self._wake.set())
        self._connect()
        while not call.done():
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await call.write(pb.Frame(messages=wire.encode(self._portion())))
            except asyncio.InvalidStateError:
                break
        await call

    def _portion(self) -> list[AnyMessage]:
        out: list[AnyMessage] = []
        size = 0
        while self._queue:
            more = wire.size_of(self._queue[0])
            if out and size + more > wire.FRAME_BYTES:
                break
            out.append(self._queue.popleft())
            size += more
        self._bytes -= size
        return out

    def _connect(self) -> None:
        self.connected = True
        self._trouble = ""
        _log.info("peer_connected member=%d address=%s", self.member.id, self.member.address)
        self._changed()

    def _disconnect(self) -> None:
        was, self.connected = self.connected, False
        self.dropped += len(self._queue)
        self._queue.clear()
        self._bytes = 0
        if was:
            self._lost(self.member.id)

    def _complain(self, trouble: str) -> None:
        """Each trouble once, not at each attempt."""
        if trouble != self._trouble:
            self._trouble = trouble
            _log.warning(
                "peer_unreachable member=%d address=%s error=%r",
                self.member.id,
                self.member.address,
                explained(trouble),
            )

    # --- calls --------------------------------------------------------------------------------------------

    async def forward(self, items: list[pb.ForwardItem], timeout: float | None) -> list[pb.ForwardAnswer]:
        """One answer for each item.

        Raises:
            AioRpcError: broken; items may have been executed.
        """
        reply = await self._stub.Forward(pb.ForwardRequest(hello=self._hello(), items=items), timeout=timeout)
        return list(reply.answers)

    async def snapshot(
        self, term: int, index: int, index_term: int, size: int, parts: AsyncIterator[bytes]
    ) -> None:
        """Returns when the other member has the file durably.

        Raises:
            AioRpcError: refused, or broken.
        """
        header = pb.SnapshotHeader(
            hello=self._hello(), term=term, index=index, index_term=index_term, size=size
        )

        async def chunks() -> AsyncIterator[pb.SnapshotChunk]:
            yield pb.SnapshotChunk(header=header)
            async for part in parts:
                yield pb.SnapshotChunk(data=part)

        await self._stub.Snapshot(chunks())

    async def status(self, timeout: float, digests: Sequence[pb.StateDigest] = ()) -> pb.StatusReply:
        """What it knows about itself; it is told `digests` of the caller's states.

        Raises:
            AioRpcError: no answer in time, or refused.
        """
        return await self._stub.Status(
            pb.StatusRequest(hello=self._hello(), digests=digests), timeout=timeout
        )
