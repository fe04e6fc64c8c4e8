"""Passing a call on to the leader: the bytes as they came, the caller's credential, one hop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import grpc
from grpc import aio

from spur_core.errors import BusyError, SpurError
from spur_ctld.api.caller import USER_KEY
from spur_ctld.api.routing import LEADER_KEY

#: Set on calls that a controller passes on; its value is that controller's seal over what it says of the
#: caller.
FORWARDED_KEY: Final = "x-spur-forwarded"
#: The original caller's address, believed only beside a good seal.
PEER_KEY: Final = "x-spur-peer"
#: Seconds that a deposed leader gets to answer what was under way.
AFTERMATH_SECS: Final = 3.0
#: A call without a deadline of its own is given up after this many seconds.
MOST_SECS: Final = 120.0

_OPTIONS: Final = (
    ("grpc.max_send_message_length", 16 << 20),
    ("grpc.max_receive_message_length", 32 << 20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)

#: gRPC's words for a call that it could not even begin to send.
_UNSENT: Final = "failed to connect to all addresses"

Metadata = Sequence[tuple[str, Any]]


def sealed_of(peer: str, told: Mapping[str, Any]) -> tuple[str, ...]:
    """What a controller vouches for: where a call came from, and what it says of its caller."""
    return (peer, *(str(told.get(key, "")) for key in ("authorization", USER_KEY)))


class LeaderLost(BusyError):
    """The call was under way to a controller that leads no longer; it may have been carried out."""

    code = "leader_lost"

    def __init__(self) -> None:
        super().__init__("the leading controller was lost during the call; ask again")


class LeaderUnreached(BusyError):
    """The call never left: nothing listens at the leader's address."""

    code = "leader_unreached"

    def __init__(self) -> None:
        super().__init__("the leading controller does not answer; ask again")


class Answered(SpurError):
    """The leader's answer was a status; it goes to the caller as it is."""

    code = "answered"

    def __init__(self, error: aio.AioRpcError) -> None:
        super().__init__(error.details() or "")
        self.status = error.code()
        #: What the caller shall see, with the stable code in it.
        trailing: Any = error.trailing_metadata() or ()
        self.trailing = tuple((key, value) for key, value in trailing if key.startswith("x-spur-"))


class _Flight:
    """One call under way."""

    __slots__ = ("address", "call", "lost")

    def __init__(self, address: str, call: Any) -> None:
        self.address = address
        self.call = call
        self.lost = False


class Forwarder:
    """Calls another controller in the name of a caller.

    Args:
        seal: over an address and a caller; gives nothing on a cluster without a key.
    """

    def __init__(self, seal: Callable[..., str]) -> None:
        self._seal = seal
        self._channels: dict[str, Any] = {}
        self._flights: set[_Flight] = set()
        self._closed = False

    def leader_is(self, address: str) -> None:
        """Calls to any other controller are given up soon: a deposed one tells how they ended, one that hangs
        never does.
        """
        left = [flight for flight in self._flights if flight.address != address]
        if left:
            asyncio.get_running_loop().call_later(AFTERMATH_SECS, self._give_up, left)

    def _give_up(self, flights: Sequence[_Flight]) -> None:
        for flight in flights:
            if flight in self._flights:
                flight.lost = True
                flight.call.cancel()

    async def close(self) -> None:
        """End every call, close every channel; calls that come yet are told to ask elsewhere."""
        self._closed = True
        self._give_up(tuple(self._flights))
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    def _channel(self, address: str) -> Any:
        if self._closed:
            raise LeaderLost
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = aio.insecure_channel(address, options=_OPTIONS)
        return channel

    def _metadata(self, context: Any, peer: str) -> Metadata:
        kept = [
            (key, value)
            for key, value in context.invocation_metadata() or ()
            if key == "authorization" or (key.startswith("x-spur-") and key not in (FORWARDED_KEY, PEER_KEY))
        ]
        return [*kept, (FORWARDED_KEY, self._seal(*sealed_of(peer, dict(kept))) or "-"), (PEER_KEY, peer)]

    async def unary(self, address: str, method: str, data: bytes, context: Any, peer: str) -> bytes:
        """The leader's answer, as bytes.

        Raises:
            Answered: it is a status.
            LeaderUnreached: the call never left.
            LeaderLost: the leader changed meanwhile, or the connection broke.
        """
        call = self._channel(address).unary_unary(method)(
            data, metadata=self._metadata(context, peer), timeout=time_left(context)
        )
        flight = _Flight(address, call)
        self._flights.add(flight)
        try:
            answer: bytes = await call
        except aio.AioRpcError as error:
            raise await _outcome(error, flight, context) from None
        except asyncio.CancelledError:
            if flight.lost or self._closed:
                raise LeaderLost from None
            call.cancel()
            raise
        finally:
            self._flights.discard(flight)
        await _name_leader(context, address)
        return answer

    async def stream(
        self, address: str, method: str, data: bytes, context: Any, peer: str
    ) -> AsyncIterator[bytes]:
        """The leader's answers, as bytes, one by one.  Raises as `unary` does."""
        call = self._channel(address).unary_stream(method)(
            data, metadata=self._metadata(context, peer), timeout=time_left(context, None)
        )
        flight = _Flight(address, call)
        self._flights.add(flight)
        named = False
        try:
            async for answer in call:
                if not named:
                    await _name_leader(context, address)
                    named = True
                yield answer
        except aio.AioRpcError as error:
            raise await _outcome(error, flight, None if named else context) from None
        except asyncio.CancelledError:
            if flight.lost or self._closed:
                raise LeaderLost from None
            raise
        finally:
            call.cancel()
            self._flights.discard(flight)


async def _name_leader(context: Any, address: str) -> None:
    """The caller shall go there directly next time."""
    await context.send_initial_metadata(((LEADER_KEY, address),))


async def _outcome(error: aio.AioRpcError, flight: _Flight, context: Any | None) -> SpurError:
    """What a failed call means.  `context`: of a caller that has not been told who leads."""
    answered = Answered(error)
    if not answered.trailing and error.code() is grpc.StatusCode.UNAVAILABLE:
        return LeaderUnreached() if _UNSENT in answered.text else LeaderLost()
    if flight.lost or (not answered.trailing and error.code() is grpc.StatusCode.CANCELLED):
        return LeaderLost()
    if context is not None:
        await _name_leader(context, flight.address)
    return answered


def time_left(context: Any, otherwise: float | None = MOST_SECS) -> float | None:
    """Seconds that the caller waits; `otherwise` when it never said."""
    left = context.time_remaining()
    if left is None or left > 10**8:
        return otherwise
    return float(max(left, 0.0))
