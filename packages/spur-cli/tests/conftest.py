"""Commands run as functions against a real gRPC peer whose answers are scripted."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import pytest

from spur_cli import dispatch
from spur_cli.context import Context
from spur_proto import accounting_pb2, agent_pb2, controller_pb2

#: 2026-11-30T10:00:00 UTC, a Monday.
NOW = 1796032800.0


class Refuse(Exception):
    """A scripted refusal."""

    def __init__(self, status: grpc.StatusCode, text: str, code: str = "", leader: str = "") -> None:
        super().__init__(text)
        self.leader = leader
        self.status = status
        self.text = text
        self.code = code


class Result(NamedTuple):
    code: int
    out: str
    err: str


def no_such_job() -> Refuse:
    return Refuse(grpc.StatusCode.NOT_FOUND, "Invalid job id specified", "no_such_job")


class Peer:
    """A gRPC server with scripted answers.

    answers: method -> message, list of messages for a stream, or a function of the request.
    requests: (method, request, metadata) of every call.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.requests: list[tuple[str, Any, dict[str, str]]] = []
        self.trailing: tuple[tuple[str, str], ...] = ()
        self.lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def last(self, method: str) -> Any:
        """The newest request of a method."""
        found = [request for name, request, _ in self.requests if name == method]
        assert found, f"{method} was never called"
        return found[-1]

    def metadata(self, method: str) -> dict[str, str]:
        return next(data for name, _, data in reversed(self.requests) if name == method)

    def stop(self) -> None:
        self._server.stop(None).wait()


_MODULES = {
    "slurm.SlurmController": controller_pb2,
    "slurm.SlurmAccounting": accounting_pb2,
    "slurm.SlurmAgent": agent_pb2,
}


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        _, service, method = details.method.split("/")
        module = _MODULES[service]
        kinds = {m.name: m for m in module.DESCRIPTOR.services_by_name[service.rpartition(".")[2]].methods}
        request_type = getattr(module, kinds[method].input_type.name)
        metadata = dict(details.invocation_metadata)

        def prepare(request: Any, context: grpc.ServicerContext) -> Any:
            with self._peer.lock:
                self._peer.requests.append((method, request, metadata))
            answer = self._peer.answers.get(method)
            if answer is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not scripted")
            context.set_trailing_metadata(self._peer.trailing)
            try:
                return answer(request) if callable(answer) else answer
            except Refuse as refusal:
                told = (("x-spur-code", refusal.code), ("x-spur-leader", refusal.leader))
                context.set_trailing_metadata(tuple((key, value) for key, value in told if value))
                context.abort(refusal.status, refusal.text)

        def parts(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                yield from prepare(request, context)
            except Refuse as refusal:
                context.abort(refusal.status, refusal.text)

        make = {
            (False, False): lambda **kw: grpc.unary_unary_rpc_method_handler(prepare, **kw),
            (False, True): lambda **kw: grpc.unary_stream_rpc_method_handler(parts, **kw),
            (True, True): lambda **kw: grpc.stream_stream_rpc_method_handler(parts, **kw),
        }[kinds[method].client_streaming, kinds[method].server_streaming]
        return make(
            request_deserializer=request_type.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.stop()


@pytest.fixture
def make_peer() -> Iterator[Callable[[], Peer]]:
    """Makes more controllers."""
    made: list[Peer] = []

    def make() -> Peer:
        made.append(Peer())
        return made[-1]

    yield make
    for one in made:
        one.stop()


class Wire:
    """A way to a local port that can be closed without a word: connections stand, nothing passes."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open = threading.Event()
        self._open.set()
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self.address = f"127.0.0.1:{self._sockets[0].getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self) -> None:
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                here = self._sockets[0].accept()[0]
                self._sockets.append(here)
                self._open.wait()
                there = socket.create_connection(("127.0.0.1", self._target))
                self._sockets.append(there)
            except OSError:
                return
            for source, sink in ((here, there), (there, here)):
                self._threads.append(threading.Thread(target=self._pump, args=(source, sink), daemon=True))
                self._threads[-1].start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self._open.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def stop(self) -> None:
        self._sockets[0].shutdown(socket.SHUT_RDWR)
        self._open.set()
        self._threads[0].join()  # after it there are no new ones
        for one in self._sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()


@pytest.fixture
def make_wire() -> Iterator[Callable[[int], Wire]]:
    """Makes a way to a local port that can be cut."""
    made: list[Wire] = []

    def make(port: int) -> Wire:
        made.append(Wire(port))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def refuse() -> type[Refuse]:
    return Refuse


@pytest.fixture
def missing_job() -> Callable[[], Refuse]:
    return no_such_job


@pytest.fixture
def now() -> float:
    return NOW


@pytest.fixture
def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


Cli = Callable[..., Result]


@pytest.fixture
def cli(tmp_path: Any, peer: Peer) -> Cli:
    """Run a command; the controller is the scripted peer unless `env` says otherwise."""

    def run(
        name: str,
        *words: str,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        clock: float | None = NOW,
    ) -> Result:
        full = {
            "HOME": str(tmp_path),
            "PATH": "/usr/bin:/bin",
            "SPUR_CONTROLLER_ADDR": peer.address,
            **(env or {}),
        }
        fds = [os.memfd_create(which) for which in ("in", "out", "err")]
        try:
            os.write(fds[0], stdin)
            os.lseek(fds[0], 0, os.SEEK_SET)
            ctx = Context(name, words, full, str(tmp_path), *fds)
            if clock is not None:
                ctx.clock = lambda: clock
            code = dispatch.run_in(ctx)
            out, err = (os.pread(fd, 1 << 24, 0).decode() for fd in fds[1:])
        finally:
            for fd in fds:
                os.close(fd)
        return Result(code, out, err)

    return run
