"""Calls to the controllers, with this node's credential: to the leader if it is known, else in order.

A controller that does not lead passes calls on, or refuses them; either way it names the leader in the
metadata, and the next call goes there.  One that accepts connections and says nothing (it is stopped, or the
way to it is closed) is noticed by the channel's own questions and by the short deadline of a call.
"""

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
from spur_core.route import Route
from spur_proto import controller_pb2_grpc

log = logging.getLogger(__name__)

CONNECT_SECS: Final = 2.0
CALL_SECS: Final = 10.0
#: The same where there is another controller to go to.
QUICK_CONNECT_SECS: Final = 1.0
QUICK_CALL_SECS: Final = 5.0
#: Where a controller that does not lead names the one that does, `host:port`.
LEADER_KEY: Final = "x-spur-leader"
#: With it a refusal is a controller's own word and not the transport's.
CODE_KEY: Final = "x-spur-code"
#: Life of a credential the agent makes for itself until the controller has given it a token.
_OWN_TTL_SECS: Final = 3600.0

_OPTIONS: Final = (
    ("grpc.max_send_message_length", 8 << 20),
    ("grpc.max_receive_message_length", 32 << 20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # An endpoint must not share the back-off of another channel to it.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
#: A call in flight asks a quiet connection whether the other side is there: sooner where that helps.
_ALONE: Final = (("grpc.keepalive_time_ms", 60_000),)
_IN_GROUP: Final = (
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 1000),
    ("grpc.http2.ping_timeout_ms", 1000),
    ("grpc.http2.max_pings_without_data", 0),
)
#: Not answers; what a controller that is going down says too.
_TRY_NEXT: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)


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


def _texts(*parts: Any) -> dict[str, str]:
    """What metadata of an answer say as text; of a repeated key the last."""
    return {key: value for part in parts for key, value in part or () if isinstance(value, str)}


class _Elsewhere(Unreachable):
    """This controller did not answer the call.

    Attributes:
        leader: who does, by its word; "" = not said.
        reached: it is there, but cannot serve.
    """

    def __init__(self, text: str, leader: str = "", *, reached: bool = False) -> None:
        super().__init__(text)
        self.leader = leader
        self.reached = reached


class ControllerLink:
    """Talks to the leading controller, found through whichever one answers.

    Args:
        endpoints: HOST:PORT each, at least one; others are learned.
    """

    def __init__(self, endpoints: Sequence[str], credential: NodeCredential) -> None:
        self._route = Route(endpoints)
        self._credential = credential
        self._channels: dict[str, Any] = {}
        self._stubs: dict[str, controller_pb2_grpc.SlurmControllerStub] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Every controller that is known, in order."""
        return tuple(self._route.known)

    def learn(self, controllers: Sequence[str]) -> None:
        """The whole group, as one of it told.  Of one that is alone the configured address is enough."""
        alone = not self._route.several
        if len(controllers) > 1 and self._route.learn(controllers):
            log.info("controllers known=%s", ",".join(self._route.known))
            if alone:
                # Opened for a controller without a deputy: such channels wait too long.
                self._forget_channels()

    async def call(
        self,
        name: str,
        request: Any,
        timeout: float = CALL_SECS,
        credential: NodeCredential | None = None,
    ) -> Any:
        """The answer to one RPC of the controller.

        Each controller is asked once, so nobody is waited for who may come back: that is the caller's.

        Args:
            timeout: seconds for each of them; less where there are several.
            credential: of the node in whose name it is called; None = the link's own.

        Raises:
            Unauthenticated: the credential is not accepted.
            Refused: another definite refusal.
            Unreachable: no controller answers.
        """
        last = "no controller is configured"
        tried: set[str] = set()
        while (endpoint := self._route.next(tried)) is not None:
            tried.add(endpoint)
            try:
                answer, leader = await self._call_at(
                    endpoint, name, request, timeout, credential or self._credential
                )
            except _Elsewhere as error:
                last = error.text
                if error.reached:
                    self._route.refused(endpoint, error.leader)
                else:
                    self._route.lost(endpoint)
                continue
            self._route.answered(endpoint, leader)
            return answer
        raise Unreachable(last)

    async def _call_at(
        self, endpoint: str, name: str, request: Any, timeout: float, credential: NodeCredential
    ) -> tuple[Any, str]:
        """(answer, the leader if another one passed it on)."""
        several = self._route.several
        stub = self._stub(endpoint)
        channel = self._channels[endpoint]
        connect = QUICK_CONNECT_SECS if several else CONNECT_SECS
        try:
            async with asyncio.timeout(connect):
                await _connected(channel, endpoint)
        except Unreachable as error:
            raise _Elsewhere(error.text) from None
        except TimeoutError:
            raise _Elsewhere(f"{endpoint}: no connection within {connect:g} s") from None
        call = getattr(stub, name)(
            request,
            timeout=min(timeout, QUICK_CALL_SECS) if several else timeout,
            metadata=credential.metadata(),
        )
        try:
            answer = await call
            return answer, _texts(await call.initial_metadata()).get(LEADER_KEY, "")
        except aio.AioRpcError as error:
            text = f"{name} at {endpoint}: {error.details() or error.code().name}"
            if error.code() in _TRY_NEXT:
                said = _texts(error.initial_metadata(), error.trailing_metadata())
                reached = CODE_KEY in said or LEADER_KEY in said
                raise _Elsewhere(text, said.get(LEADER_KEY, ""), reached=reached) from None
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                credential.forget()
                raise Unauthenticated(text) from None
            raise Refused(error.code(), text) from None

    def _stub(self, endpoint: str) -> controller_pb2_grpc.SlurmControllerStub:
        stub = self._stubs.get(endpoint)
        if stub is None:
            options = (*_OPTIONS, *(_IN_GROUP if self._route.several else _ALONE))
            channel = aio.insecure_channel(endpoint, options=options)
            self._channels[endpoint] = channel
            stub = self._stubs[endpoint] = controller_pb2_grpc.SlurmControllerStub(channel)
        return stub

    def _forget_channels(self) -> None:
        """The next call opens new ones; calls in flight on the old ones may end."""
        for channel in self._channels.values():
            task = asyncio.create_task(channel.close(grace=CALL_SECS))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._channels.clear()
        self._stubs.clear()

    async def close(self) -> None:
        """Close every channel; calls in flight end."""
        channels = list(self._channels.values())
        self._channels.clear()
        self._stubs.clear()
        for task in list(self._closing):
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for channel in channels:
            await channel.close(grace=None)
