"""The one interceptor: authenticates every call and turns errors into statuses."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

import grpc
from grpc import aio

from spur_agent import trust
from spur_auth.kinds import NOBODY, Identity
from spur_core import errors

log = logging.getLogger(__name__)

#: A credential that was accepted is accepted again without a second check for so long.
REMEMBER_SECS: Final = 5.0
_MOST_REMEMBERED: Final = 256
#: The stable code of a refusal, in the trailing metadata.
CODE_KEY: Final = "x-spur-code"
#: The caller of the RPC that is being handled.
CALLER: ContextVar[Identity] = ContextVar("spur_agent_caller", default=NOBODY)

#: First match wins, so subclasses stand before their bases.
_STATUS: Final[tuple[tuple[type[errors.SpurError], grpc.StatusCode], ...]] = (
    (errors.NotFound, grpc.StatusCode.NOT_FOUND),
    (errors.AlreadyExists, grpc.StatusCode.ALREADY_EXISTS),
    (errors.WrongState, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.IdentityMismatch, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.AccessDenied, grpc.StatusCode.PERMISSION_DENIED),
    (errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (errors.Unsupported, grpc.StatusCode.UNIMPLEMENTED),
    (errors.RequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.BusyError, grpc.StatusCode.UNAVAILABLE),
)


#: Characters of a sentence; it travels in the trailing metadata, which clients take up to 16 KiB of.
_MOST_TEXT: Final = 1000


class _Malformed:
    """Stands for bytes that are no message of the expected type."""


_MALFORMED: Final = _Malformed()


def _tolerant(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def deserialize(data: bytes) -> Any:
        try:
            return parse(data)
        except Exception:  # protobuf raises its own DecodeError and, for bad UTF-8, others
            return _MALFORMED

    return deserialize


async def _well_formed(method: str, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        _require_well_formed(method, request)
        yield request


def _require_well_formed(method: str, request: Any) -> None:
    if request is _MALFORMED:
        raise errors.RequestError(f"the request is not a valid message for {method.rpartition('/')[2]}")


def clipped(text: str) -> str:
    """`text`, which may quote what the caller sent, no longer than a status can carry."""
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."


def outcome(error: Exception, method: str) -> tuple[grpc.StatusCode, str, str]:
    """(status, details, code) for whatever a handler raised; unexpected things are logged in full."""
    if isinstance(error, errors.SpurError):
        for kind, status in _STATUS:
            if isinstance(error, kind):
                return status, clipped(error.text), error.code
        return grpc.StatusCode.INTERNAL, clipped(error.text), error.code
    log.error("rpc_failed method=%s", method, exc_info=error)
    return grpc.StatusCode.INTERNAL, "internal error of the node agent, see its log", errors.StateError.code


class Gate(aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Stands before every handler.

    Args:
        rules: the `[auth]` settings.
        clock: seconds since the epoch.
    """

    def __init__(self, rules: trust.Rules, clock: Callable[[], float] = time.time) -> None:
        self._rules = rules
        self._clock = clock
        self._handlers: dict[str, Any] = {}
        #: (method, header) -> (when it was checked, whose it is)
        self._known: dict[tuple[str, str], tuple[float, Identity]] = {}

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        method: str = details.method
        handler = self._handlers.get(method)
        if handler is None:
            found = await continuation(details)
            if found is None:
                return None
            handler = self._handlers[method] = self._guard(method, found)
        return handler

    def _guard(self, method: str, inner: Any) -> Any:
        parse, write = _tolerant(inner.request_deserializer), inner.response_serializer
        if inner.unary_unary is not None:
            run = self._unary(method, inner.unary_unary)
            return grpc.unary_unary_rpc_method_handler(run, parse, write)
        if inner.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(method, inner.unary_stream), parse, write
            )
        assert inner.stream_stream is not None, method
        return grpc.stream_stream_rpc_method_handler(self._stream(method, inner.stream_stream), parse, write)

    def _unary(self, method: str, behaviour: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        async def run(request: Any, context: Any) -> Any:
            try:
                self._enter(method, context)
                _require_well_formed(method, request)
                return await behaviour(request, context)
            except aio.AbortError:
                raise
            except Exception as error:
                return await self._abort(method, context, error)

        return run

    def _stream(self, method: str, behaviour: Callable[[Any, Any], AsyncIterator[Any]]) -> Any:
        async def run(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                self._enter(method, context)
                if hasattr(request, "__aiter__"):
                    request = _well_formed(method, request)
                _require_well_formed(method, request)
                async for response in behaviour(request, context):
                    yield response
            except aio.AbortError:
                raise
            except Exception as error:
                await self._abort(method, context, error)

        return run

    def _enter(self, method: str, context: Any) -> None:
        """Put the caller's identity in place, or raise."""
        header = claimed = None
        for key, value in context.invocation_metadata() or ():
            if key == "authorization":
                header = value
            elif key == trust.USER_KEY:
                claimed = value
        now = self._clock()
        known = self._known.get((method, header)) if header is not None else None
        if known is not None and 0 <= now - known[0] < REMEMBER_SECS:
            CALLER.set(known[1])
            return
        identity = trust.identify(self._rules, method, header, claimed, context.peer(), now)
        if header is not None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[method, header] = (now, identity)
        CALLER.set(identity)

    async def _abort(self, method: str, context: Any, error: Exception) -> None:
        status, text, code = outcome(error, method)
        await context.abort(status, text, ((CODE_KEY, code),))
