"""Calls to the controllers: one channel per endpoint, tried in order, with this node's credential."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
from grpc import aio

from spur_agent.node_proof import NodeProof
from spur_auth import mint
from spur_core.errors import RequestError, Unauthenticated, Unreachable
from spur_proto import controller_pb2_grpc

log = logging.getLogger(__name__)

CONNECT_SECS: Final = 2.0
CALL_SECS: Final = 10.0
#: Life of a credential the agent makes for itself until the controller has given it a token.
_OWN_TTL_SECS: Final = 3600.0

_OPTIONS: Final = (
    ("grpc.max_send_message_length", 8 << 20),
    ("grpc.max_receive_message_length", 32 << 20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 60000),
    # An endpoint must not share the back-off of another channel to it.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
_TRY_NEXT: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class Refused(RequestError):
    """The controller answered, and it said no.

    Attributes:
        status: the gRPC status.
    """

    code = "controller_refused"

    def __init__(self, status: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.status = status


class NodeCredential:
    """What the agent shows to the controller: the token it was given, else one it makes from the cluster key.

    Args:
        clock: seconds since the epoch.
        proof: what this agent knows of the node's earlier registrations; None = nothing.
    """

    def __init__(
        self,
        key: bytes | None,
        node: str,
        cluster: str,
        clock: Callable[[], float] = time.time,
        proof: NodeProof | None = None,
    ) -> None:
        self._key = key
        self._node = node
        self._cluster = cluster
        self._clock = clock
        self._proof = proof
        # With the key a fresh one can be made at any time; without it the kept one is all there is.
        self._given = proof.token if proof is not None and key is None else ""
        self._own = ""
        self._own_until = 0.0

    def given(self, token: str) -> None:
        """The controller's own token for this node; empty = it gave none.  Blocks until it is on the disk."""
        self._given = token
        if self._proof is not None and token:
            self._proof.keep(token)

    def forget(self) -> None:
        """The given token is not accepted any more."""
        self._given = ""

    def metadata(self) -> Sequence[tuple[str, str]]:
        """What goes with every call; nothing on a cluster without a key."""
        token = self.token()
        return (("authorization", f"Bearer {token}"),) if token else ()

    def token(self) -> str:
        """The credential itself; empty on a cluster without a key."""
        token = self._given
        if not token and self._key is not None:
            now = self._clock()
            if not self._own or now >= self._own_until:
                self._own = mint.mint_node(
                    self._key,
                    self._node,
                    now=now,
                    ttl=_OWN_TTL_SECS,
                    cluster=self._cluster,
                    holder=self._proof.holder if self._proof is not None else "",
                )
                self._own_until = now + _OWN_TTL_SECS / 2
            token = self._own
        return token


async def _connected(channel: Any, endpoint: str) -> None:
    """Wait for the connection.

    Raises:
        Unreachable: it failed; gRPC tries again by itself, the caller elsewhere.
    """
    while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            raise Unreachable(f"{endpoint}: no connection")
        await channel.wait_for_state_change(state)


class ControllerLink:
    """Talks to whichever controller answers, beginning with the one that answered last.

    Args:
        endpoints: HOST:PORT each, at least one.
    """

    def __init__(self, endpoints: Sequence[str], credential: NodeCredential) -> None:
        self._endpoints = tuple(endpoints)
        self._credential = credential
        self._channels: dict[str, Any] = {}
        self._stubs: dict[str, controller_pb2_grpc.SlurmControllerStub] = {}
        self._preferred = 0

    async def call(self, name: str, request: Any, timeout: float = CALL_SECS) -> Any:
        """The answer to one RPC of the controller.

        Raises:
            Unauthenticated: the credential is not accepted.
            Refused: another definite refusal.
            Unreachable: no controller answers.
        """
        last = "no controller is configured"
        for turn in range(len(self._endpoints)):
            index = (self._preferred + turn) % len(self._endpoints)
            endpoint = self._endpoints[index]
            try:
                answer = await self._call_at(endpoint, name, request, timeout)
            except Unreachable as error:
                last = error.text
                continue
            self._preferred = index
            return answer
        raise Unreachable(last)

    async def _call_at(self, endpoint: str, name: str, request: Any, timeout: float) -> Any:
        stub = self._stub(endpoint)
        channel = self._channels[endpoint]
        try:
            async with asyncio.timeout(CONNECT_SECS):
                await _connected(channel, endpoint)
        except TimeoutError:
            raise Unreachable(f"{endpoint}: no connection within {CONNECT_SECS:g} s") from None
        try:
            return await getattr(stub, name)(request, timeout=timeout, metadata=self._credential.metadata())
        except aio.AioRpcError as error:
            text = f"{name} at {endpoint}: {error.details() or error.code().name}"
            if error.code() in _TRY_NEXT:
                raise Unreachable(text) from None
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                self._credential.forget()
                raise Unauthenticated(text) from None
            raise Refused(error.code(), text) from None

    def _stub(self, endpoint: str) -> controller_pb2_grpc.SlurmControllerStub:
        stub = self._stubs.get(endpoint)
        if stub is None:
            channel = aio.insecure_channel(endpoint, options=_OPTIONS)
            self._channels[endpoint] = channel
            stub = self._stubs[endpoint] = controller_pb2_grpc.SlurmControllerStub(channel)
        return stub

    async def close(self) -> None:
        """Close every channel; calls in flight end."""
        channels = list(self._channels.values())
        self._channels.clear()
        self._stubs.clear()
        for channel in channels:
            await channel.close(grace=None)
