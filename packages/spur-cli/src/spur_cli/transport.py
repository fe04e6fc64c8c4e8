"""Calls to the controller and to agents.

The border is small on purpose: `call` (one request, one answer), `stream` (an answer in parts) and `session`
(both in parts).  `call` needs no gRPC (`h2_unary`); the others import it, behind `grpc_setup`.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

from spur_cli import cli_errors, credentials, endpoints
from spur_cli.cli_errors import LEADERLESS, CallFailed
from spur_cli.context import Context
from spur_cli.h2_unary import Unfamiliar
from spur_core.route import Route

CALL_SECS = 60.0
#: What asking for the group may take.
LEARN_SECS = 5.0
#: In the first round of a question that changes nothing, for each of several controllers.
GLANCE_SECS = 3.0
#: Between two rounds of all controllers.
FIRST_PAUSE, LAST_PAUSE = 0.1, 1.0
#: The least time for further rounds, however long the first one took.
LEAST_SECS = 5.0
#: Methods that change nothing.
READS = ("Get", "List", "Watch", "Ping", "Stream")
REQUEST_KEY, LEADER_KEY = "x-spur-request-id", "x-spur-leader"
#: Set to 1, listings may be answered by a controller that is out of touch with the others; they then say so.
STALE_NAME, STALE_OK_KEY, STALE_KEY = "SPUR_STALE_OK", "x-spur-stale-ok", "x-spur-stale"
#: The leader of a group that is well is never silent for so long.
STALE_SECS = 2.0
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
    """Calls in the name of one command's caller, to whichever controller answers.

    A call that reaches nobody, or one that does not lead, goes to the leader or to the next controller; when
    all were asked in vain, again from the first, as long as the caller is ready to wait.  A controller that
    is alone and refuses the connection is not waited for.  What changes something carries an id, the same
    one however often it is sent, so that it is done once.
    """

    def __init__(self, ctx: Context, option: str | None = None) -> None:
        """`option`: the value of `--controller`.

        Raises:
            ConfigError: the configuration cannot be used.
        """
        self._ctx = ctx
        self.where = endpoints.find(option, ctx.env)
        self.route = Route(self.where.addresses)
        self._retry_secs = endpoints.retry_secs(ctx.env)
        self._metadata: credentials.Metadata | None = None
        self._channels: dict[str, Any] = {}
        self._learned = False
        self._quick = False
        self._told_stale = False

    @property
    def quick(self) -> bool:
        """Whether a silent controller is given up soon, because there are others."""
        return self._quick or self.route.several

    def only(self, address: str) -> "Transport":
        """The same caller, asking one controller, once."""
        twin = object.__new__(Transport)
        twin._ctx = self._ctx
        twin._quick = self.quick
        twin.where = endpoints.Endpoints((address,), self.where.config, self.where.client)
        twin.route = Route(twin.where.addresses)
        twin._retry_secs = 0.0
        twin._metadata = self.metadata()
        twin._channels = self._channels
        twin._learned = twin._told_stale = True
        return twin

    def metadata(self) -> credentials.Metadata:
        """The caller's credential."""
        if self._metadata is None:
            ctx = self._ctx
            self._metadata = credentials.metadata(self.where, ctx.env, ctx.clock(), ctx.warning)
        return self._metadata

    def learn(self) -> None:
        """Ask for the whole group, so that the loss of the controllers that were configured is none."""
        if self._learned:
            return
        self._learned = True
        from spur_proto import controller_pb2 as pb

        try:
            found = self.call("Ping", pb.PingRequest(), pb.PingResponse, timeout=LEARN_SECS)
        except CallFailed:
            self._learned = False
            return
        if len(found.members) > 1:
            self.route.learn(one.client_address for one in found.members)

    def call(
        self,
        method: str,
        request: Message,
        answer: type[M],
        *,
        service: str = CONTROLLER,
        timeout: float = CALL_SECS,
        request_id: str = "",
    ) -> M:
        """One call to the first controller that can serve it.

        Args:
            timeout: seconds for each controller that is asked.
            request_id: of a change that the caller itself may ask for again; else there is one for each call.

        Raises:
            CallFailed: nobody could be reached, or the call was refused.
        """
        metadata = (*self.metadata(), *_request_id(method, request, request_id), *self._stale_ok(method))
        path, message = f"/{service}/{method}", request.SerializeToString()
        pause, until = FIRST_PAUSE, None
        began = time.monotonic()
        # One that is out of touch with the others keeps a question for some time before it says so.
        wait = min(timeout, GLANCE_SECS) if self.route.several and method.startswith(READS) else timeout
        while True:
            found = self._round(path, message, metadata, wait, glance=wait < timeout)
            wait = timeout
            if isinstance(found, bytes):
                return answer.FromString(found)
            if found.code in LEADERLESS:
                self.learn()
            elif not self.route.several:
                raise found
            now = time.monotonic()
            # A controller may have kept the call for as long as this has patience; another round is due then.
            until = until or max(began + self._retry_secs, now + min(self._retry_secs, LEAST_SECS))
            if now + pause > until:
                found.final = True
                raise found
            time.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)

    def _round(
        self, path: str, message: bytes, metadata: credentials.Metadata, timeout: float, *, glance: bool
    ) -> "bytes | CallFailed":
        """The answer of the first controller that can serve the call, or why none did.

        One that was reached tells that, if any was.

        Args:
            glance: one that takes longer than `timeout` is passed over.

        Raises:
            CallFailed: a refusal.
        """
        failure = cli_errors.unreachable()
        lost, tried = False, set[str]()
        while (address := self.route.next(tried)) is not None:
            tried.add(address)
            try:
                body, said = self._ask(address, path, message, metadata, timeout)
            except CallFailed as error:
                late = glance and error.status == "DEADLINE_EXCEEDED"
                # Those that are down say less than one that is up and knows no leader.
                if not failure.reached or (error.reached and not late):
                    failure = error
                error.reached = error.reached or late
                if not (error.elsewhere or late):
                    raise
                lost = lost or error.lost
                self._failed(address, error)
            else:
                self.route.learn((said.get(LEADER_KEY, ""),))
                self.route.answered(address)
                self._tell_stale(address, said.get(STALE_KEY, ""))
                return body
        failure.lost = lost
        return failure

    def _failed(self, address: str, failure: CallFailed) -> None:
        if failure.reached or failure.leader:
            self.route.refused(address, failure.leader)
        else:
            self.route.lost(address)

    def _ask(
        self, address: str, path: str, message: bytes, metadata: credentials.Metadata, timeout: float
    ) -> tuple[bytes, dict[str, str]]:
        """(answer, its metadata) of one controller, if possible without gRPC."""
        from spur_cli import h2_call

        texts = tuple((str(key), str(value)) for key, value in metadata)
        try:
            return h2_call.call(address, path, message, texts, timeout, quick=self.quick)
        except Unfamiliar:
            return self._ask_grpc(address, path, message, metadata, timeout)

    def _ask_grpc(
        self, address: str, path: str, message: bytes, metadata: credentials.Metadata, timeout: float
    ) -> tuple[bytes, dict[str, str]]:
        try:
            # Without serializers: bytes in, bytes out.
            method_of = self._channel(address).unary_unary(path)
            body, call = method_of.with_call(message, timeout=timeout, metadata=metadata)
        except Exception as error:
            failure = _failure(error)
            if failure.status == "CANCELLED":
                # Not by this side: the server stopped with the call under way.
                failure = cli_errors.unreachable()
                failure.lost = True
            raise failure from None
        from spur_cli.grpc_setup import said

        return bytes(body), {key: said(call, key) for key in (LEADER_KEY, STALE_KEY)}

    def _stale_ok(self, method: str) -> list[tuple[str, str]]:
        """The leave to answer a listing from an old state, if the caller gives it."""
        wanted = self._ctx.env.get(STALE_NAME) == "1" and method.startswith("Get")
        return [(STALE_OK_KEY, "1")] if wanted else []

    def _tell_stale(self, address: str, age: str) -> None:
        """Once a command: what is listed may be old.  `age`: "applied=INDEX silent=SECONDS" or ""."""
        silent = dict(word.partition("=")[::2] for word in age.split()).get("silent", "0")
        if self._told_stale or float(silent) < STALE_SECS:
            return
        self._told_stale = True
        self._ctx.warning(f"{address} has not heard of a leader for {silent} s; what it shows may be old")

    def stream(
        self, method: str, request: Message, answer: type[M], *, service: str = CONTROLLER
    ) -> "Parts[M]":
        """The parts of the answer of the first controller that can be reached.

        Iterating raises CallFailed when the stream breaks; the next one goes elsewhere.

        Raises:
            CallFailed: nobody could be reached.
        """
        from spur_cli import h2_call

        wait = h2_call.QUICK_SECS if self.quick else h2_call.CONNECT_SECS
        tried: set[str] = set()
        while (address := self.route.next(tried)) is not None:
            tried.add(address)
            if h2_call.answers(address, wait):
                break
            self.route.lost(address)
        else:
            raise cli_errors.unreachable()
        method_of = self._channel(address).unary_stream(
            f"/{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        parts: Parts[M] = Parts(method_of(request, metadata=self.metadata()))
        parts.on_failure = lambda failure: self._failed(address, failure)
        return parts

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

    def _channel(self, address: str) -> Any:
        """The channel to a controller; one that was opened while it was alone is replaced."""
        quick = self.route.several
        found = self._channels.get(address)
        if found is None or found[1] is not quick:
            from spur_cli.grpc_setup import open_channel

            found = self._channels[address] = (open_channel(address, quick=quick), quick)
        return found[0]

    def close(self) -> None:
        """Close every channel."""
        for channel, _ in self._channels.values():
            channel.close()
        self._channels.clear()


def _request_id(method: str, request: Message, given: str) -> list[tuple[str, str]]:
    """The metadata that make a change happen once; requests with a field for that need none."""
    if method.startswith(READS) or hasattr(request, "request_id"):
        return []
    return [(REQUEST_KEY, given or new_request_id())]


def new_request_id() -> str:
    """For one change, however often it is asked for."""
    return os.urandom(16).hex()


class Parts(Generic[M]):
    """The answer of a call, part by part.  `on_failure` is told why it broke."""

    def __init__(self, call: Any, channel: Any = None) -> None:
        self._call = call
        self._channel = channel
        self.on_failure: Callable[[CallFailed], None] = lambda failure: None

    def __iter__(self) -> Iterator[M]:
        try:
            yield from self._call
        except Exception as error:
            failure = _failure(error)
            self.on_failure(failure)
            raise failure from None

    def cancel(self) -> None:
        """End the call from this side."""
        self._call.cancel()
        if self._channel is not None:
            self._channel.close()


def _failure(error: Exception) -> CallFailed:
    """What a failed attempt means; anything but gRPC's own error is a fault of ours and goes up as it is."""
    import grpc

    from spur_cli.grpc_setup import LEADER_KEY, describe, said

    if not isinstance(error, grpc.RpcError):
        raise error
    failure = cli_errors.translate(*describe(error))
    failure.leader = said(error, LEADER_KEY)
    failure.lost = not failure.reached
    return failure
