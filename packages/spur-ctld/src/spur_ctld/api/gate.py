"""The one interceptor: authenticates every call of every service and turns errors into statuses."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NamedTuple

import grpc
from grpc import aio

from spur_auth.kinds import Identity
from spur_core.errors import RequestError
from spur_ctld.api import grpc_errors
from spur_ctld.api.caller import CALLER, USER_KEY, GateRules, identify

#: A checked credential is taken again without a second check for this many seconds.
REMEMBER_SECS: Final = 5.0
_MOST_REMEMBERED: Final = 4096


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


class Gate(aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Stands before every handler.

    Args:
        rules: the `[auth]` settings.
        clock: seconds since the epoch.
    """

    def __init__(self, rules: GateRules, clock: Callable[[], float] = time.time) -> None:
        self._rules = rules
        self._clock = clock
        self._handlers: dict[str, Any] = {}
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
        if inner.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._unary(method, inner.unary_unary), parse, _or_bytes(inner.response_serializer)
            )
        if inner.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(method, inner.unary_stream), parse, inner.response_serializer
            )
        raise NotImplementedError(f"{method}: calls with a request stream are not guarded yet")

    def _unary(self, method: str, behaviour: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        async def run(request: Any, context: Any) -> Any:
            try:
                self._enter(method, request, context)
                return await behaviour(request, context)
            except aio.AbortError:
                raise
            except Exception as error:
                return await _abort(context, error, method)

        return run

    def _stream(self, method: str, behaviour: Callable[[Any, Any], AsyncIterator[Any]]) -> Any:
        async def run(request: Any, context: Any) -> AsyncIterator[Any]:
            self._streams += 1
            self._quiet.clear()
            try:
                self._enter(method, request, context)
                async for response in behaviour(request, context):
                    yield response
            except aio.AbortError:
                raise
            except Exception as error:
                await _abort(context, error, method)
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

    def _enter(self, method: str, request: Any, context: Any) -> None:
        """Put the caller's identity in place, or raise."""
        header = claimed = None
        for key, value in context.invocation_metadata() or ():
            if key == "authorization":
                header = value
            elif key == USER_KEY:
                claimed = value
        CALLER.set(self._identity(method, header, claimed, context.peer()))
        if isinstance(request, _TooLarge):
            raise RequestError(f"the request has {request.size} bytes, {request.most} are the most")
        if request is _MALFORMED:
            raise RequestError(f"the request is not a valid message for {method.rpartition('/')[2]}")

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


async def _abort(context: Any, error: Exception, method: str) -> None:
    status, text, code = grpc_errors.outcome(error, method)
    await context.abort(status, text, ((grpc_errors.CODE_KEY, code),))
