"""Calls to the controller and to agents.

The border is small on purpose: `call` (one request, one answer), `stream` (an answer in parts) and `session`
(both in parts).  `call` needs no gRPC (`h2_unary`); the others import it, behind `grpc_setup`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

from spur_cli import cli_errors, credentials, endpoints
from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context
from spur_cli.h2_unary import Unfamiliar

CONNECT_SECS = 2.0
CALL_SECS = 60.0
CONTROLLER = "slurm.SlurmController"
ACCOUNTING = "slurm.SlurmAccounting"
AGENT = "slurm.SlurmAgent"


class Message(Protocol):
    """What protobuf messages can do that is needed here."""

    def SerializeToString(self) -> bytes: ...

    @classmethod
    def FromString(cls, s: bytes) -> Self: ...


M = TypeVar("M", bound=Message)


class Transport:
    """Calls in the name of one command's caller."""

    def __init__(self, ctx: Context, option: str | None = None) -> None:
        """`option`: the value of `--controller`.

        Raises:
            ConfigError: the configuration cannot be used.
        """
        self._ctx = ctx
        self.where = endpoints.find(option, ctx.env)
        self._metadata: credentials.Metadata | None = None
        self._channels: dict[str, Any] = {}
        self._current = 0

    def only(self, address: str) -> "Transport":
        """The same caller, asking one controller."""
        twin = object.__new__(Transport)
        twin._ctx = self._ctx
        twin.where = endpoints.Endpoints((address,), self.where.config, self.where.client)
        twin._metadata = self.metadata()
        twin._channels = self._channels
        twin._current = 0
        return twin

    def metadata(self) -> credentials.Metadata:
        """The caller's credential."""
        if self._metadata is None:
            ctx = self._ctx
            self._metadata = credentials.metadata(self.where, ctx.env, ctx.clock(), ctx.warning)
        return self._metadata

    def call(
        self,
        method: str,
        request: Message,
        answer: type[M],
        *,
        service: str = CONTROLLER,
        timeout: float = CALL_SECS,
    ) -> M:
        """One call to the first controller that can be reached.

        Raises:
            CallFailed: nobody could be reached, or the call was refused.
        """

        try:
            return self._each_address(f"/{service}/{method}", request, answer, timeout)
        except Unfamiliar:
            return self._call_grpc(f"/{service}/{method}", request, answer, timeout)

    def _each_address(self, path: str, request: Message, answer: type[M], timeout: float) -> M:
        """As `_each`, over connections of our own that need no gRPC."""
        from spur_cli import h2_call

        addresses = self.where.addresses
        failure = cli_errors.unreachable()
        metadata = tuple((str(key), str(value)) for key, value in self.metadata())
        message = request.SerializeToString()
        for offset in range(len(addresses)):
            at = (self._current + offset) % len(addresses)
            try:
                body = h2_call.call(addresses[at], path, message, metadata, timeout)
            except CallFailed as error:
                failure = error
                if error.reached:
                    raise
                continue
            self._current = at
            return answer.FromString(body)
        raise failure

    def _call_grpc(self, path: str, request: Message, answer: type[M], timeout: float) -> M:
        def attempt(channel: Any) -> Any:
            method_of = channel.unary_unary(
                path,
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            return method_of(request, timeout=timeout, metadata=self.metadata())

        found: M = self._each(attempt)
        return found

    def stream(
        self, method: str, request: Message, answer: type[M], *, service: str = CONTROLLER
    ) -> "Parts[M]":
        """The parts of the answer of the first controller that can be reached.

        Iterating raises CallFailed when the stream breaks.
        """

        def attempt(channel: Any) -> Any:
            method_of = channel.unary_stream(
                f"/{service}/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            return method_of(request, metadata=self.metadata())

        return Parts(self._each(attempt))

    def session(
        self, address: str, method: str, requests: Iterable[Message], request: type[Message], answer: type[M]
    ) -> "Parts[M]":
        """A call to the agent at `address` with requests and answers in parts."""
        from spur_cli.grpc_setup import open_channel

        channel = open_channel(address)
        method_of = channel.stream_stream(
            f"/{AGENT}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return Parts(method_of(iter(requests), metadata=self.metadata()), channel)

    def _each(self, attempt: Callable[[Any], Any]) -> Any:
        """Run `attempt` against the controllers in turn; the one that answered stays the first."""
        addresses = self.where.addresses
        failure = cli_errors.unreachable()
        for offset in range(len(addresses)):
            at = (self._current + offset) % len(addresses)
            channel = self._channel(addresses[at])
            if channel is None:
                continue
            try:
                found = attempt(channel)
            except Exception as error:
                failure = _failure(error)
                if not failure.reached:
                    failure.lost = True
                    continue
                raise failure from None
            self._current = at
            return found
        raise failure

    def _channel(self, address: str) -> Any:
        """The open channel to `address`, None when nobody listens there."""
        if address not in self._channels:
            if not listens(address):
                return None
            from spur_cli.grpc_setup import open_channel

            self._channels[address] = open_channel(address)
        return self._channels[address]

    def close(self) -> None:
        """Close every channel."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


class Parts(Generic[M]):
    """The answer of a call, part by part."""

    def __init__(self, call: Any, channel: Any = None) -> None:
        self._call = call
        self._channel = channel

    def __iter__(self) -> Iterator[M]:
        try:
            yield from self._call
        except Exception as error:
            raise _failure(error) from None

    def cancel(self) -> None:
        """End the call from this side."""
        self._call.cancel()
        if self._channel is not None:
            self._channel.close()


def _failure(error: Exception) -> CallFailed:
    """What a failed attempt means; anything but gRPC's own error is a fault of ours and goes up as it is."""
    import grpc

    from spur_cli.grpc_setup import describe

    if isinstance(error, grpc.RpcError):
        return cli_errors.translate(*describe(error))
    raise error


def listens(address: str, timeout: float = CONNECT_SECS) -> bool:
    """Whether a TCP connection to `host:port` is accepted within `timeout` seconds."""
    import socket

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout).close()
    except OSError:
        return False
    return True
