"""A scripted controller (a real gRPC peer) and real agents as subprocesses."""

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import grpc
from grpc import aio
from testkit.tuned import tuned

from spur_agent.own_groups import setting as cgroup_setting
from spur_auth import mint
from spur_auth.term_proof import prove
from spur_core.ids import STEP_BATCH, RuntimeId
from spur_core.linux import cgroup, cgroup_layout, procfs
from spur_proto import agent_pb2, agent_pb2_grpc, common_pb2, controller_pb2_grpc
from spur_proto import controller_pb2 as pb

BIN = Path(sys.executable).parent
KEY = "0123456789abcdef0123456789abcdef"
#: No single condition of these tests may take longer.
PATIENCE = 20.0


async def until(condition: Callable[[], Any], what: str, timeout: float = PATIENCE) -> Any:
    """The first true value of `condition`; polls, so that tests wait for facts and not for time."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        await asyncio.sleep(0.01)
    return value


class ScriptedController(controller_pb2_grpc.SlurmControllerServicer):
    """Records every call; answers as told.

    Attributes:
        verdicts: verdicts of the next reports, then `verdict` for ever.
        silent: reports are taken and never answered while it is set.
        refuse: status with which reports are refused while it is set.
        recover: the verdict on one entry of a recovery report; None = a controller of the first release,
            which knows no such report.
        recoveries: every entry of every recovery report, in order.
    """

    def __init__(self) -> None:
        self.registrations: list[pb.RegisterAgentRequest] = []
        self.beats: list[pb.HeartbeatRequest] = []
        self.reports: list[pb.ReportJobStatusRequest] = []
        self.farewells: list[pb.DeregisterAgentRequest] = []
        self.drains: list[pb.DrainNodeRequest] = []
        self.headers: dict[str, list[str]] = {}
        self.verdicts: list[int] = []
        self.verdict = pb.REPORT_VERDICT_ACCEPTED
        self.silent = False
        self.recover: Callable[[pb.RecoveryEntry], int] | None = None
        self.recoveries: list[pb.RecoveryEntry] = []
        self.recovery_requests: list[pb.ReportStepdRecoveryRequest] = []
        self.drain_refusals = 0
        self.refuse: grpc.StatusCode | None = None
        self.register_again = False
        self.unauthenticated_beats = 0
        self.term = 1
        #: Whose key it proves its term with.
        self.proof_key = KEY.encode()
        self.heartbeat_secs = 1
        #: What the group looks like, told with a registration.
        self.controllers: list[str] = []
        #: It passes calls on and names this leader with the answers.
        self.leader = ""
        #: It refuses calls because it does not lead; "" = it does not know who does.
        self.not_leader: str | None = None
        self.port = 0
        self._server: Any = None

    async def start(self) -> None:
        self._server = aio.server(options=(("grpc.so_reuseport", 0),))
        controller_pb2_grpc.add_SlurmControllerServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _note(self, name: str, context: Any) -> None:
        header = dict(context.invocation_metadata()).get("authorization", "")
        self.headers.setdefault(name, []).append(header)

    async def _route(self, context: Any) -> None:
        """What a controller that does not lead does with a call."""
        if self.not_leader is not None:
            hint = (("x-spur-leader", self.not_leader),) if self.not_leader else ()
            code = (("x-spur-code", "not_leader"),)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not the leader", (*code, *hint))
        if self.leader:
            await context.send_initial_metadata((("x-spur-leader", self.leader),))

    async def RegisterAgent(self, request: Any, context: Any) -> pb.RegisterAgentResponse:
        self._note("RegisterAgent", context)
        await self._route(context)
        self.registrations.append(request)
        token = mint.mint_node(KEY.encode(), request.node, now=time.time(), cluster="test")
        return pb.RegisterAgentResponse(
            node_token=token,
            cluster_name="test",
            heartbeat_secs=self.heartbeat_secs,
            term=self.term,
            controllers=self.controllers,
            term_proof=prove(self.proof_key, self.term),
        )

    async def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatResponse:
        self._note("Heartbeat", context)
        await self._route(context)
        if self.unauthenticated_beats:
            self.unauthenticated_beats -= 1
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "credential expired 5 s ago")
        self.beats.append(request)
        again, self.register_again = self.register_again, False
        return pb.HeartbeatResponse(
            register_again=again, term=self.term, term_proof=prove(self.proof_key, self.term)
        )

    async def DeregisterAgent(self, request: Any, context: Any) -> pb.DeregisterAgentResponse:
        self.farewells.append(request)
        return pb.DeregisterAgentResponse()

    async def DrainNode(self, request: Any, context: Any) -> pb.DrainNodeResponse:
        if self.drain_refusals:
            self.drain_refusals -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "as told")
        self.drains.append(request)
        return pb.DrainNodeResponse()

    async def ReportStepdRecovery(self, request: Any, context: Any) -> pb.ReportStepdRecoveryResponse:
        self._note("ReportStepdRecovery", context)
        if self.recover is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "a release without it")
        self.recovery_requests.append(request)
        self.recoveries.extend(request.entries)
        answers = []
        for entry in request.entries:
            verdict = self.recover(entry)  # type: ignore[misc]  # checked above
            if verdict:
                answers.append(pb.RecoveryAnswer(rid=entry.rid, verdict=verdict, verdict_id="v1"))
        return pb.ReportStepdRecoveryResponse(answers=answers)

    def said_of(self, rid: RuntimeId) -> list[int]:
        """The states in which that run was reported, one after the other."""
        return [e.state for e in self.recoveries if (e.rid.job_id, e.rid.run_attempt, e.rid.step_id) == rid]

    async def ReportJobStatus(self, request: Any, context: Any) -> pb.ReportJobStatusResponse:
        await self._route(context)
        self.reports.append(request)
        if self.silent:
            await asyncio.sleep(3600)
        if self.refuse is not None:
            await context.abort(self.refuse, "as told")
        return pb.ReportJobStatusResponse(verdict=self.verdicts.pop(0) if self.verdicts else self.verdict)


class Agent:
    """One spurd as a subprocess, and the controller's way of talking to it."""

    def __init__(self, base: Path, controllers: str, name: str, config: str) -> None:
        self.name = name
        self.state = base / f"state-{name}"
        self.config = base / f"{name}.conf"
        self.config.write_text(config)
        self.config.chmod(0o600)
        self.log = base / f"{name}.log"
        self._controllers = controllers
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Any = None
        self.address = ""
        self.extra: tuple[str, ...] = ()
        self.environ: dict[str, str] = {}
        #: Constants of its modules that are other than they are for users.
        self.waits: dict[str, float] = {}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def sessions(self) -> list[str]:
        folder = self.state / "runtime" / "sessions"
        return sorted(os.listdir(folder)) if folder.exists() else []

    def session_dir(self, rid: RuntimeId) -> Path:
        return self.state / "runtime" / "sessions" / rid.dirname()

    def log_text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    async def start(self, listen: str = "127.0.0.1:0") -> str:
        """Start and wait for the READY line; the address in it."""
        self._process = await self.spawn(listen)
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = (await self._process.stdout.readline()).decode()
        assert line.startswith("READY spurd "), (line, self.log_text())
        self.address = line.split()[2]
        return self.address

    async def spawn(self, listen: str = "127.0.0.1:0") -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *tuned(str(BIN / "spurd"), self.waits),
                *("-D", "-f", str(self.config), "--controller", self._controllers, "-N", self.name),
                *("--listen", listen, "--state-dir", str(self.state), "--log-level", "debug"),
                *self.extra,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={"PATH": os.environ["PATH"], "SECRET_OF_THE_DAEMON": "leak", **self.environ},
            )

    async def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal and wait for the end; the exit status."""
        assert self._process is not None
        # It may have ended by itself.  Not by `send_signal`, which polls, and so takes the exit status away
        # from asyncio's own wait.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)
        async with asyncio.timeout(PATIENCE):
            status = await self._process.wait()
        self._process = None
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        return status

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def stub(self) -> agent_pb2_grpc.SlurmAgentStub:
        if self._channel is None:
            self._channel = aio.insecure_channel(
                self.address, options=(("grpc.use_local_subchannel_pool", 1),)
            )
        return agent_pb2_grpc.SlurmAgentStub(self._channel)

    async def call(self, name: str, request: Any, token: str | None = None) -> Any:
        """One call as the controller, or with another token ("" = none)."""
        if token is None:
            token = mint.mint_controller(KEY.encode(), now=time.time(), cluster="test")
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        return await getattr(self.stub(), name)(request, timeout=40, metadata=metadata)

    async def launch(self, spec: agent_pb2.LaunchSpec, **changes: Any) -> agent_pb2.LaunchJobResponse:
        return await self.call("LaunchJob", launch_request(spec, self.name, **changes))

    async def cancel(self, rid: RuntimeId, **fields: Any) -> bool:
        request = agent_pb2.AgentCancelJobRequest(rid=wire_rid(rid), term=1, **fields)
        return bool((await self.call("CancelJob", request)).active)

    async def probe(self, rid: RuntimeId) -> agent_pb2.ProbeStepdResponse:
        return await self.call("ProbeStepd", agent_pb2.ProbeStepdRequest(rid=wire_rid(rid)))


def wire_rid(rid: RuntimeId) -> common_pb2.RuntimeId:
    return common_pb2.RuntimeId(job_id=rid.job_id, run_attempt=rid.run_attempt, step_id=rid.step_id)


def launch_request(
    spec: agent_pb2.LaunchSpec,
    node: str,
    *,
    key: str = KEY,
    term: int = 1,
    token: str | None = None,
    signed: agent_pb2.LaunchSpec | None = None,
    signed_node: str | None = None,
) -> agent_pb2.LaunchJobRequest:
    """A launch with the controller's statement, or one about something else."""
    data = spec.SerializeToString()
    about = signed if signed is not None else spec
    if token is None:
        token = mint.mint_launch(
            key.encode(),
            RuntimeId(about.rid.job_id, about.rid.run_attempt, about.rid.step_id),
            about.uid,
            about.gid,
            mint.spec_digest(about.SerializeToString()),
            signed_node or node,
            now=time.time(),
            cluster="test",
        )
    return agent_pb2.LaunchJobRequest(spec=data, target_node=node, launch_token=token, term=term)


class User:
    """Whom the jobs of these tests belong to: somebody else when the tests run as root."""

    def __init__(self) -> None:
        entry = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        self.name, self.uid, self.gid = entry.pw_name, entry.pw_uid, entry.pw_gid

    def token(self) -> str:
        return mint.mint_user(KEY.encode(), self.name, self.uid, 60, time.time(), cluster="test")


@pytest.fixture(scope="session")
def user() -> User:
    return User()


@pytest.fixture
def base(user: User) -> Iterator[Path]:
    """A folder that the jobs' user can reach; `work` in it is that user's."""
    folder = Path(tempfile.mkdtemp(prefix="spuragent", dir="/tmp"))
    folder.chmod(0o755)
    work = folder / "work"
    work.mkdir()
    if os.geteuid() == 0:
        os.chown(work, user.uid, user.gid)
    yield folder
    shutil.rmtree(folder)


class Wire:
    """A way to a controller that can be closed without a word: connections stand, nothing passes."""

    def __init__(self, target: ScriptedController) -> None:
        self._target = target
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        ends = [writer]
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._open.wait()
            source, sink = await asyncio.open_connection("127.0.0.1", self._target.port)
            ends.append(sink)
            await asyncio.gather(self._pump(reader, sink), self._pump(source, writer))
        for end in ends:
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            await self._open.wait()
            sink.write(data)
            await sink.drain()
        sink.close()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest_asyncio.fixture
async def wire_to() -> AsyncIterator[Callable[[ScriptedController], Any]]:
    """Makes a way to a controller that can be cut."""
    made: list[Wire] = []

    async def make(target: ScriptedController) -> Wire:
        made.append(Wire(target))
        await made[-1].start()
        return made[-1]

    yield make
    for one in made:
        await one.stop()


@pytest_asyncio.fixture
async def controller() -> AsyncIterator[ScriptedController]:
    made = ScriptedController()
    await made.start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def deputy() -> AsyncIterator[ScriptedController]:
    """A second controller."""
    made = ScriptedController()
    await made.start()
    yield made
    await made.stop()


def config_text(extra: str = "", mode: str = "required") -> str:
    return f"""cluster_name = "test"
[auth]
plugin = "jwt"
mode = "{mode}"
jwt_key = "{KEY}"
{extra}
"""


@pytest_asyncio.fixture
async def make_agent(base: Path, controller: ScriptedController) -> AsyncIterator[Callable[..., Agent]]:
    made: list[Agent] = []

    def make(name: str = "n1", config: str | None = None, controllers: str | None = None) -> Agent:
        text = config if config is not None else config_text()
        one = Agent(base, controllers or f"127.0.0.1:{controller.port}", name, text)
        made.append(one)
        return one

    yield make
    for one in made:
        await end_everything(one)


async def end_everything(agent: Agent) -> None:
    """End what a test has left, by exact identity: steps, agent, supervisors, groups."""
    if agent.running:
        for name in agent.sessions:
            if name.count(".") == 2:
                try:
                    await agent.cancel(RuntimeId.from_dirname(name), grace_secs=0)
                except aio.AioRpcError:
                    pass
        await until(lambda: all(over(agent, name) for name in agent.sessions), "steps end")
        await agent.kill(signal.SIGTERM)
    for name in agent.sessions:
        found = descriptor_of(agent, name)
        if found is None:
            continue
        who = procfs.Identity(found["stepd_pid"], found["stepd_start_ticks"], found["boot_id"])
        for pid in (*procfs.descendants(who.pid), who.pid) if procfs.is_alive(who) else ():
            os.kill(pid, signal.SIGKILL)
        await until(lambda who=who: not procfs.is_alive(who), "supervisor ends")
        cgroup.kill(tuple(found["cgroup"]))
        await until(lambda dirs=tuple(found["cgroup"]): not cgroup.remove(dirs), "groups removed")
    root, _ = cgroup_layout.choose_root(cgroup_layout.detect(), cgroup_setting("auto", str(agent.state)))
    if root is not None and cgroup_setting("auto", str(agent.state)) != "auto":
        for top in dict.fromkeys((root.unified, *root.v1.values())):
            if top is not None:
                await until(
                    lambda top=top: not cgroup.remove((f"{top}/stepd", top)), "agent's groups removed"
                )


def descriptor_of(agent: Agent, name: str) -> dict[str, Any] | None:
    try:
        found = json.loads((agent.state / "runtime" / "sessions" / name / "descriptor.json").read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "stepd_pid" in found else None


def over(agent: Agent, name: str) -> bool:
    """Whether no user code of that session can run any more."""
    found = descriptor_of(agent, name)
    try:
        journal = (agent.state / "runtime" / "sessions" / name / "journal").read_bytes()
    except OSError:
        journal = b""
    if found is None or b"ExitObserved" in journal:
        return True
    return not procfs.is_alive(
        procfs.Identity(found["stepd_pid"], found["stepd_start_ticks"], found["boot_id"])
    )


@pytest_asyncio.fixture
async def agent(make_agent: Callable[..., Agent], controller: ScriptedController) -> Agent:
    """A registered agent `n1`."""
    one = make_agent()
    await one.start()
    await until(lambda: controller.registrations, "registration")
    return one


def fill_spec(
    user: User, base: Path, rid: RuntimeId, script: str, node: str = "n1", cpus: int = 1, **fields: Any
) -> agent_pb2.LaunchSpec:
    spec = agent_pb2.LaunchSpec(
        rid=wire_rid(rid),
        cluster_name="test",
        job_name="probe",
        user=user.name,
        uid=user.uid,
        gid=user.gid,
        partition="batch",
        script=b"#!/bin/sh\n" + script.encode() + b"\n",
        environment=[b"PATH=/usr/bin:/bin", b"MINE=1"],
        work_dir=str(base / "work"),
        stdout_path="out-%j.txt",
        nodes=[node],
        total_tasks=1,
        cpus_per_task=1,
        tasks_per_node_text="1",
        cpus_per_node_text=str(cpus),
        start_at=time.time(),
        submit_dir=str(base / "work"),
        kill_wait_secs=2,
    )
    spec.slice.CopyFrom(common_pb2.NodeSlice(node=node, cpus=cpus, memory_mb=64, ranks=[0]))
    for name, value in fields.items():
        current = getattr(spec, name)
        if hasattr(current, "extend"):
            del current[:]
            current.extend(value)
        elif hasattr(current, "CopyFrom"):
            current.CopyFrom(value)
        else:
            setattr(spec, name, value)
    return spec


@pytest.fixture
def spec_of(user: User, base: Path) -> Callable[..., agent_pb2.LaunchSpec]:
    """Makes wire specs: `spec_of(rid, "script text", ...)`."""

    def make(rid: RuntimeId, script: str = "exit 0", **fields: Any) -> agent_pb2.LaunchSpec:
        return fill_spec(user, base, rid, script, **fields)

    return make


@pytest.fixture
def gate(base: Path) -> Callable[[str], Path]:
    """FIFOs on which scripts block until the test lets them go on."""

    def make(name: str = "gate") -> Path:
        path = base / "work" / name
        os.mkfifo(path)
        path.chmod(0o666)
        return path

    return make


def open_gate(path: Path) -> None:
    """Let whoever reads the FIFO go on."""
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"go\n")
    os.close(fd)


def batch(job_id: int, attempt: int = 1) -> RuntimeId:
    return RuntimeId(job_id, attempt, STEP_BATCH)


@pytest.fixture(scope="session")
def tools() -> Any:
    """The helpers above, for tests that cannot import this file."""
    return sys.modules[__name__]
