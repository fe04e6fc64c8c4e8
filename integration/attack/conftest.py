"""A cluster under attack: raw calls with any credential, and the latency of `Ping` meanwhile."""

import contextlib
import importlib.util
import json
import os
import pwd
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from testkit.crash_cluster import configure

from spur_auth import mint
from spur_cli.cluster import home
from spur_core.ids import RuntimeId
from spur_proto import accounting_pb2_grpc, agent_pb2, agent_pb2_grpc, common_pb2, controller_pb2_grpc
from spur_proto import controller_pb2 as pb

_E2E = importlib.util.spec_from_file_location(
    "spur_attack_cluster", Path(__file__).parents[1] / "e2e" / "conftest.py"
)
assert _E2E is not None
assert _E2E.loader is not None
_e2e = importlib.util.module_from_spec(_E2E)
_E2E.loader.exec_module(_e2e)

#: Nothing that a caller can send may keep others waiting for longer.
MOST_PING_SECS = 1.0
SECS = 60.0


class Answer(NamedTuple):
    """What a call brought: the status' name, its sentence, the message if there is one."""

    code: str
    text: str
    message: Any


class Target:
    """The cluster and what an attacker, or a test, holds of it."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.key = (cluster.folder / "key").read_text().strip().encode()
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        config = cluster.config_text()
        self.controller = re.findall(r'listen_addr = "([^"]+)"', config)[0]
        self.agents = cluster.agent_addresses()
        options = (("grpc.max_send_message_length", 64 << 20), ("grpc.max_receive_message_length", 64 << 20))
        self.channel = grpc.insecure_channel(self.controller, options)
        self.ctl = controller_pb2_grpc.SlurmControllerStub(self.channel)
        self.acct = accounting_pb2_grpc.SlurmAccountingStub(self.channel)
        self._nodes = {name: grpc.insecure_channel(address, options) for name, address in self.agents.items()}

    def close(self) -> None:
        """Hang up."""
        self.channel.close()
        for channel in self._nodes.values():
            channel.close()

    def agent(self, node: str = "node1") -> Any:
        """The agent of a node."""
        return agent_pb2_grpc.SlurmAgentStub(self._nodes[node])

    # -- credentials ---------------------------------------------------------------------------------

    def user_token(self, name: str, ttl: float = 600.0, now: float | None = None) -> str:
        """Of any user."""
        return mint.mint_user(self.key, name, None, ttl, time.time() if now is None else now, cluster="local")

    def node_token(self, node: str, now: float | None = None) -> str:
        """Of any node, as its own agent makes it: with the secret that only that agent has."""
        file = self.cluster.folder / "state" / f"spurd-{node}" / "runtime" / "node.json"
        holder = json.loads(file.read_text())["holder"] if file.exists() else ""
        return mint.mint_node(
            self.key, node, time.time() if now is None else now, cluster="local", holder=holder
        )

    def copied_node_token(self, node: str, holder: str = "") -> str:
        """Of a second agent with that node's name and the cluster's key."""
        return mint.mint_node(self.key, node, time.time(), cluster="local", holder=holder)

    def controller_token(self) -> str:
        """Of the controller."""
        return mint.mint_controller(self.key, time.time(), cluster="local")

    def statement(self, spec: bytes, rid: RuntimeId, uid: int, gid: int, node: str, **how: Any) -> str:
        """A signed launch."""
        return mint.mint_launch(
            how.get("key", self.key),
            rid,
            uid,
            gid,
            mint.spec_digest(spec),
            node,
            now=how.get("now", time.time()),
            cluster="local",
        )

    def raw(self, method: str, body: bytes, token: str | None = None, *, node: str | None = None) -> Answer:
        """Any bytes as the request of any method."""
        channel = self.channel if node is None else self._nodes[node]
        call = channel.unary_unary(method, lambda data: data, lambda data: data)
        return ask(call, body, token)

    # -- doings --------------------------------------------------------------------------------------

    def submit(self, token: str, **fields: Any) -> Answer:
        """Queue a job; held unless told otherwise, so that it stays."""
        spec: dict[str, Any] = {
            "name": "attack",
            "script": b"#!/bin/sh\nexec sleep 600\n",
            "work_dir": "/tmp",
            "stdout_path": "/dev/null",
            "hold": True,
        }
        spec.update(fields)
        spec = {name: value for name, value in spec.items() if value is not None}
        return ask(self.ctl.SubmitJob, pb.SubmitJobRequest(spec=common_pb2.JobSpec(**spec)), token)

    def allocate(self, token: str, **fields: Any) -> tuple[int, str]:
        """A running allocation without a command: (job, its first node)."""
        answer = self.submit(token, script=None, alloc_only=True, hold=False, **fields)
        assert answer.code == "OK", answer
        job = str(answer.message.job_id)
        self.cluster.wait(job, "RUNNING")
        return int(job), self.node_of(job)

    def node_of(self, job: int | str) -> str:
        """The node of a running job."""
        return str(self.cluster.ok("squeue", "-h", "-j", str(job), "-o", "%N").strip())

    def step(self, token: str | None, job: int, *argv: str, **fields: Any) -> Answer:
        """A step of an allocation."""
        given: dict[str, Any] = {
            "argv": [word.encode() for word in argv or ("sleep", "600")],
            "environment": [b"PATH=/usr/bin:/bin"],
            "work_dir": "/tmp",
            "num_tasks": 1,
            "wait_secs": 30.0,
            **fields,
        }
        return ask(self.ctl.CreateJobStep, pb.CreateJobStepRequest(job_id=job, **given), token)

    def join(self, node: str, token: str | None, rid: Any, **init: Any) -> "Joined":
        """An interactive session of a step."""
        call = self.agent(node).InteractiveSession
        return Joined(call, token, agent_pb2.SessionInit(rid=rid, **init))

    @contextlib.contextmanager
    def responsive(self, most: float = MOST_PING_SECS) -> Iterator[list[float]]:
        """`Ping` as somebody else all the while; the slowest answer must not exceed `most` seconds."""
        ended = threading.Event()
        took: list[float] = []
        channel = grpc.insecure_channel(self.controller)
        stub = controller_pb2_grpc.SlurmControllerStub(channel)
        token = self.user_token(self.user)
        assert ask(stub.Ping, pb.PingRequest(), token).code == "OK"

        def run() -> None:
            while not ended.is_set():
                begun = time.monotonic()
                answer = ask(stub.Ping, pb.PingRequest(), token)
                took.append(time.monotonic() - begun if answer.code == "OK" else SECS)
                ended.wait(0.01)

        watcher = threading.Thread(target=run)
        watcher.start()
        try:
            yield took
        finally:
            ended.set()
            watcher.join()
            channel.close()
        assert max(took) < most, f"Ping took {max(took):.3f} s"

    def logs(self) -> str:
        """All daemons' logs."""
        return "\n".join(
            path.read_text(errors="replace") for path in sorted((self.cluster.folder / "log").glob("*.log"))
        )

    def works(self) -> None:
        """The cluster still runs a job to its end, and no daemon has stumbled over anything."""
        job = self.cluster.sbatch("-o", "/dev/null", "--wrap", "true")
        self.cluster.wait(job, "COMPLETED")
        stumbles = [line for line in self.logs().splitlines() if "Traceback" in line]
        assert not stumbles, stumbles[0]


def ask(call: Callable[..., Any], request: Any, token: str | None, **how: Any) -> Answer:
    """One unary call."""
    metadata = [("authorization", f"Bearer {token}")] if token is not None else []
    metadata += how.pop("metadata", [])
    try:
        return Answer("OK", "", call(request, metadata=metadata, timeout=how.pop("timeout", SECS)))
    except grpc.RpcError as error:
        return Answer(error.code().name, error.details() or "", None)  # type: ignore[attr-defined]


class Joined:
    """An open `InteractiveSession`: what is sent goes out in order, what comes is kept."""

    def __init__(self, call: Callable[..., Any], token: str | None, init: Any) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        metadata = [("authorization", f"Bearer {token}")] if token is not None else []
        self.send(init=init)
        self.call = call(iter(self._queue.get, None), metadata=metadata, timeout=SECS)
        self.got: list[Any] = []

    def send(self, **kind: Any) -> None:
        """One message."""
        self._queue.put(agent_pb2.InteractiveSessionRequest(**kind))

    def next(self) -> Any:
        """The next message that comes.

        Raises:
            StopIteration, grpc.RpcError: none will.
        """
        self.got.append(next(self.call))
        return self.got[-1]

    def until(self, kind: str) -> Any:
        """The next message of that kind."""
        while True:
            message = self.next()
            if message.WhichOneof("kind") == kind:
                return getattr(message, kind)

    def end(self) -> Answer:
        """Everything until its end."""
        try:
            while True:
                self.next()
        except StopIteration:
            return Answer("OK", "", self.got)
        except grpc.RpcError as error:
            return Answer(error.code().name, error.details() or "", self.got)  # type: ignore[attr-defined]
        finally:
            self._queue.put(None)

    def output(self) -> bytes:
        """All of it that has come."""
        return b"".join(m.output.data for m in self.got if m.WhichOneof("kind") == "output")

    def close(self) -> None:
        """Break it off."""
        self._queue.put(None)
        self.call.cancel()


def drain(call: Callable[..., Any], request: Any, token: str | None) -> Answer:
    """One call that answers with a stream; the message is what came, as a list."""
    metadata = [("authorization", f"Bearer {token}")] if token is not None else []
    got: list[Any] = []
    try:
        got.extend(call(request, metadata=metadata, timeout=SECS))
    except grpc.RpcError as error:
        return Answer(error.code().name, error.details() or "", got)  # type: ignore[attr-defined]
    return Answer("OK", "", got)


#: A node that has refused a launch is soon asked again, and who ignores SIGTERM does not live on for long.
SOON = {
    "controller": {"dispatch_reject_cooldown_secs": "1", "max_launch_backoff_secs": "1"},
    "scheduler": {"kill_wait_secs": "2"},
}


class Besieged(_e2e.Cluster):  # type: ignore[name-defined,misc]
    """The end-to-end cluster with its addresses, and no long waits."""

    def __init__(self, folder: Path, nodes: int, cpus: int) -> None:
        configure(home.create(folder, nodes, cpus, "").config, SOON)
        super().__init__(folder, nodes)

    def config_text(self) -> str:
        """Of spur.conf."""
        return str((self.folder / "spur.conf").read_text())

    def agent_addresses(self) -> dict[str, str]:
        """node -> HOST:PORT."""
        found = {}
        for path in (self.folder / "run").glob("spurd-*.ready"):
            found[path.stem.removeprefix("spurd-")] = path.read_text().split()[2]
        return found


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A cluster of two nodes whose administrator is the user who runs the tests."""
    folder = _e2e.open_folder(tmp_path_factory.mktemp("at"))
    cluster = Besieged(folder / "c", 2, 4)
    found = Target(cluster)
    yield found
    found.close()
    cluster.down()


@pytest.fixture(scope="session")
def stranger(target: Target) -> str:
    """The valid token of an ordinary user who owns nothing here."""
    return target.user_token(stranger_name())


def stranger_name() -> str:
    """An account of this host that is neither root nor whoever runs the tests, and that owns no process:
    one of its jobs kills all that is its own, and a test database runs as `nobody`."""
    names = {user.pw_name: user.pw_uid for user in pwd.getpwall()}
    wanted = [*("games", "news", "uucp", "backup"), *names]
    return next(name for name in wanted if names.get(name, 0) not in (0, os.geteuid(), names.get("nobody")))


def victim_name() -> str:
    """Another account of this host, whom the stranger wants to harm."""
    taken = (pwd.getpwnam("nobody").pw_uid, os.geteuid(), pwd.getpwnam(stranger_name()).pw_uid, 0)
    found = {user.pw_name: user.pw_uid for user in pwd.getpwall() if user.pw_uid not in taken}
    return next(name for name in ("news", "uucp", "backup", *found) if name in found)


@pytest.fixture(scope="session")
def helpers() -> Any:
    """The functions above, for test modules."""

    class Helpers:
        ask = staticmethod(ask)
        drain = staticmethod(drain)
        until = staticmethod(_e2e.until)
        alive = staticmethod(_e2e.alive)
        stranger = stranger_name()
        victim = victim_name()
        open_folder = staticmethod(_e2e.open_folder)
        Cluster = Besieged
        Plain = _e2e.Cluster
        Target = Target
        launch_spec = staticmethod(launch_spec)

    return Helpers


def launch_spec(rid: RuntimeId, uid: int, gid: int, node: str, **fields: Any) -> bytes:
    """The serialized spec of a small batch job."""
    spec: dict[str, Any] = {
        "rid": common_pb2.RuntimeId(job_id=rid.job_id, run_attempt=rid.run_attempt, step_id=rid.step_id),
        "user": pwd.getpwuid(uid).pw_name,
        "uid": uid,
        "gid": gid,
        "script": b"#!/bin/sh\nid > /tmp/spur-attack-ran\n",
        "work_dir": "/tmp",
        "stdout_path": "/dev/null",
        "nodes": [node],
        "slice": common_pb2.NodeSlice(node=node, cpus=1, memory_mb=1),
    }
    spec.update(fields)
    return agent_pb2.LaunchSpec(**spec).SerializeToString()
