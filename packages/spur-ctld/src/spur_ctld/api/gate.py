"""The one interceptor: authenticates every call of every service, sends it to the controller that answers it
and turns errors into statuses.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NamedTuple

import grpc
from grpc import aio

from spur_auth.kinds import USER, Identity
from spur_auth.passing import sealed
from spur_core.errors import BusyError, RequestError
from spur_ctld.api import grpc_errors
from spur_ctld.api.caller import CALLER, FORWARDED, PEER, REQUEST, USER_KEY, GateRules, identify
from spur_ctld.api.forward import (
    FORWARDED_KEY,
    PEER_KEY,
    Answered,
    Forwarder,
    LeaderUnreached,
    sealed_of,
    time_left,
)
from spur_ctld.api.routing import LEADER_KEY, LEADER_WAIT_SECS, ROUTES, NoLeader, Route, Router
from spur_ctld.replication.errors import NotLeader, Overloaded, Unknown
from spur_ctld.tally import Tally

#: A checked credential is taken again without a second check for this many seconds.
REMEMBER_SECS: Final = 5.0
_MOST_REMEMBERED: Final = 4096
#: The caller's own name for its request, the same when it repeats it.
REQUEST_KEY: Final = "x-spur-request-id"
_MOST_REQUEST_ID: Final = 64
#: The caller takes what this controller has, however old.
STALE_OK_KEY: Final = "x-spur-stale-ok"
STALE_KEY: Final = "x-spur-stale"


class _Malformed:
    """Stands for bytes that are no message of the expected type."""


_MALFORMED: Final = _Malformed()


class _TooLarge(NamedTuple):
    """Stands for a request that was not parsed."""

    size: int
    most: int


#: Bytes of a request.  A submission carries a script and an environment, a node's list all that it holds;
#: whatever else is longer is a mistake that would keep everybody waiting.
MOST_BYTES: Final = {
    "SubmitJob": 8 << 20,
    "CreateJobStep": 8 << 20,
    "RegisterAgent": 4 << 20,
    "Heartbeat": 4 << 20,
    "DeregisterAgent": 4 << 20,
    "ReportStepdRecovery": 4 << 20,
}
MOST_OTHER_BYTES: Final = 256 << 10
#: Bytes of one user's requests that are under way here, or wait for a leader.
MOST_HELD_BYTES: Final = 64 << 20


def _tolerant(parse: Callable[[bytes], Any], most: int) -> Callable[[bytes], Any]:
    def deserialize(data: bytes) -> Any:
        if len(data) > most:
            return _TooLarge(len(data), most)
        try:
            return parse(data)
        except Exception:  # protobuf raises its own DecodeError and, for bad UTF-8, others
            return _MALFORMED

    return deserialize


def _or_bytes(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """A handler may answer with the encoded message itself."""
    return lambda response: response if isinstance(response, bytes) else serialize(response)


class Ways(NamedTuple):
    """How a member of a group answers what it cannot answer alone.

    Attributes:
        fresh: returns when the state shows everything acknowledged before; takes a time of the running loop.
        age: how old the state may be, for people.
    """

    router: Router
    forwarder: Forwarder
    fresh: Callable[[float], Awaitable[object]]
    age: Callable[[], str]


class Gate(aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Stands before every handler.

    Args:
        rules: the `[auth]` settings.
        clock: seconds since the epoch.
        ways: to the other controllers; None = there are none, so every call is answered here.
        tally: counts the calls.
    """

    def __init__(
        self,
        rules: GateRules,
        clock: Callable[[], float] = time.time,
        ways: Ways | None = None,
        tally: Tally | None = None,
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._ways = ways
        self._tally = tally or Tally(clock)
        self._handlers: dict[str, Any] = {}
        self._held = Counter[str]()
        self._streams = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._known: dict[tuple[str, str | None, str | None, str], tuple[float, Identity]] = {}

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        method: str = details.method
        handler = self._handlers.get(method)
        if handler is None:
            found = await continuation(details)
            if found is None:
                return None
            handler = self._guard(method, found)
            self._handlers[method] = handler
        return handler

    def _guard(self, method: str, inner: Any) -> Any:
        name = method.rpartition("/")[2]
        parse = _tolerant(inner.request_deserializer, MOST_BYTES.get(name, MOST_OTHER_BYTES))
        write = _or_bytes(inner.response_serializer)
        ways = self._ways
        route = Route.LOCAL if ways is None else ROUTES[method]
        if inner.unary_unary is not None:
            behaviour = inner.unary_unary
            if ways is not None and route in (Route.LEADER, Route.HEARD):
                # The request stays as it came until it is known who reads it.
                led = self._led_unary(method, behaviour, parse, write, ways, aged=route is Route.HEARD)
                return grpc.unary_unary_rpc_method_handler(self._unary(method, led))
            if ways is not None and route is Route.READ:
                behaviour = self._fresh(behaviour, ways)
            return grpc.unary_unary_rpc_method_handler(self._unary(method, behaviour), parse, write)
        if inner.unary_stream is not None:
            if ways is not None and route is Route.LEADER:
                stream = self._led_stream(method, inner.unary_stream, parse, inner.response_serializer, ways)
                return grpc.unary_stream_rpc_method_handler(self._stream(method, stream))
            return grpc.unary_stream_rpc_method_handler(
                self._stream(method, inner.unary_stream), parse, inner.response_serializer
            )
        raise NotImplementedError(f"{method}: calls with a request stream are not guarded yet")

    def _unary(self, method: str, behaviour: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        name = method.rpartition("/")[2]
        tally = self._tally

        async def run(request: Any, context: Any) -> Any:
            began = time.perf_counter()
            tally.open += 1
            caller = None
            try:
                caller = self._enter(method, context)
                _require_whole(method, request)
                return await behaviour(request, context)
            except aio.AbortError:
                raise
            except Exception as error:
                return await self._abort(context, error, method)
            finally:
                tally.open -= 1
                user = caller.name if caller is not None and caller.kind == USER else ""
                uid = caller.uid if caller is not None else None
                tally.called(name, user, uid, time.perf_counter() - began)

        return run

    def _fresh(self, behaviour: Callable[[Any, Any], Awaitable[Any]], ways: Ways) -> Any:
        async def run(request: Any, context: Any) -> Any:
            if _asked(context, STALE_OK_KEY) == "1":
                context.set_trailing_metadata(((STALE_KEY, ways.age()),))
                return await behaviour(request, context)
            wait = min(time_left(context) or 0.0, LEADER_WAIT_SECS)
            try:
                await ways.fresh(asyncio.get_running_loop().time() + wait)
            except (NotLeader, Unknown):
                raise NoLeader from None
            return await behaviour(request, context)

        return run

    def _led_unary(
        self,
        method: str,
        behaviour: Callable[[Any, Any], Awaitable[Any]],
        parse: Callable[[bytes], Any],
        write: Callable[[Any], bytes],
        ways: Ways,
        *,
        aged: bool,
    ) -> Any:
        """`aged`: a caller may have what is here, however old."""

        async def run(data: bytes, context: Any) -> bytes:
            loop = asyncio.get_running_loop()
            end = loop.time() + min(time_left(context) or 0.0, LEADER_WAIT_SECS)
            caller = CALLER.get()
            if caller.kind != USER:
                return await carried_out(data, context, end)
            if self._held[caller.name] + len(data) > MOST_HELD_BYTES:
                raise Overloaded(
                    f"requests of {caller.name} of {MOST_HELD_BYTES} bytes are under way; ask again"
                )
            self._held[caller.name] += len(data)
            try:
                return await carried_out(data, context, end)
            finally:
                self._held[caller.name] -= len(data)
                if not self._held[caller.name]:
                    del self._held[caller.name]

        async def carried_out(data: bytes, context: Any, end: float) -> bytes:
            request = parse(data)
            _require_whole(method, request)
            loop = asyncio.get_running_loop()
            if aged and _asked(context, STALE_OK_KEY) == "1":
                context.set_trailing_metadata(((STALE_KEY, ways.age()),))
                return write(await behaviour(request, context))
            while place := await ways.router.place(end - loop.time(), forwarded=FORWARDED.get()):
                try:
                    return await ways.forwarder.unary(place, method, data, context, PEER.get())
                except LeaderUnreached:
                    # It has certainly not been carried out; soon there is another leader.
                    await ways.router.other_than(place, end - loop.time())
            return write(await behaviour(request, context))

        return run

    def _led_stream(
        self,
        method: str,
        behaviour: Callable[[Any, Any], AsyncIterator[Any]],
        parse: Callable[[bytes], Any],
        write: Callable[[Any], bytes],
        ways: Ways,
    ) -> Any:
        async def run(data: bytes, context: Any) -> AsyncIterator[bytes]:
            place = await ways.router.place(time_left(context) or 0.0, forwarded=FORWARDED.get())
            request = parse(data)
            _require_whole(method, request)
            if place:
                async for answer in ways.forwarder.stream(place, method, data, context, PEER.get()):
                    yield answer
                return
            async for response in behaviour(request, context):
                yield write(response)

        return run

    def _stream(self, method: str, behaviour: Callable[[Any, Any], AsyncIterator[Any]]) -> Any:
        async def run(request: Any, context: Any) -> AsyncIterator[Any]:
            self._streams += 1
            self._quiet.clear()
            try:
                self._enter(method, context)
                _require_whole(method, request)
                async for response in behaviour(request, context):
                    yield response
            except aio.AbortError:
                raise
            except Exception as error:
                await self._abort(context, error, method)
            finally:
                self._streams -= 1
                if not self._streams:
                    self._quiet.set()

        return run

    async def streams_ended(self, wait_secs: float) -> bool:
        """Wait until every open stream has sent its status; False when `wait_secs` were not enough."""
        try:
            async with asyncio.timeout(wait_secs):
                await self._quiet.wait()
        except TimeoutError:
            return False
        return True

    def _enter(self, method: str, context: Any) -> Identity:
        """Put in place who calls, from where and with which request id, or raise."""
        told: dict[str, Any] = dict(context.invocation_metadata() or ())
        peer: str = context.peer()
        passed_on = told.get(FORWARDED_KEY)
        if passed_on is not None and self._vouched(passed_on, told):
            peer = told[PEER_KEY]
        caller = self._identity(method, told.get("authorization"), told.get(USER_KEY), peer)
        CALLER.set(caller)
        PEER.set(peer)
        FORWARDED.set(passed_on is not None)
        request_id = told.get(REQUEST_KEY, "")
        if len(request_id) > _MOST_REQUEST_ID:
            raise RequestError(f"{REQUEST_KEY}: more than {_MOST_REQUEST_ID} characters")
        REQUEST.set(f"{method.rpartition('/')[2]}:{request_id}" if request_id else "")
        return caller

    def _vouched(self, seal: str, told: dict[str, Any]) -> bool:
        """Whether another controller says where the call came from."""
        peer = told.get(PEER_KEY)
        return isinstance(peer, str) and sealed(
            self._rules.keys, str(seal), self._clock(), *sealed_of(peer, told)
        )

    def _identity(self, method: str, header: str | None, claimed: str | None, peer: str) -> Identity:
        now = self._clock()
        # The port changes with every connection and says nothing.
        key = (method, header, claimed, peer.rpartition(":")[0])
        held = self._known.get(key)
        if held is not None and 0 <= now - held[0] < REMEMBER_SECS:
            return held[1]
        identity = identify(self._rules, method, header, claimed, peer, now)
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[key] = (now, identity)
        return identity

    async def _abort(self, context: Any, error: Exception, method: str) -> None:
        if isinstance(error, Answered):
            await context.abort(error.status, error.text, error.trailing)
        status, text, code = grpc_errors.outcome(error, method)
        trailing = [(grpc_errors.CODE_KEY, code)]
        if self._ways is not None and isinstance(error, BusyError) and (hint := self._ways.router.hint()):
            trailing.append((LEADER_KEY, hint))
        await context.abort(status, text, tuple(trailing))


def _require_whole(method: str, request: Any) -> None:
    """Raises RequestError when the request was not parsed."""
    if isinstance(request, _TooLarge):
        raise RequestError(f"the request has {request.size} bytes, {request.most} are the most")
    if request is _MALFORMED:
        raise RequestError(f"the request is not a valid message for {method.rpartition('/')[2]}")


def _asked(context: Any, key: str) -> Any:
    return next((value for name, value in context.invocation_metadata() or () if name == key), None)
