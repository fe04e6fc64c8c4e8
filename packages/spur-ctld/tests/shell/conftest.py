"""A controller on loopback with a real log, and a scripted agent: a real gRPC peer that records its calls."""

import asyncio
import dataclasses
import hashlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from spur_auth import mint
from spur_auth.verify import verify, verify_launch
from spur_core.config.loader import parse_config
from spur_core.ids import STEP_BATCH, RuntimeId
from spur_core.states import JobState
from spur_ctld.controller import Controller
from spur_ctld.replication import certs
from spur_ctld.replication.files import Files
from spur_ctld.replication.meta import Member
from spur_ctld.replication.recovery import init_directory
from spur_ctld.state.invariants import check
from spur_proto import accounting_pb2_grpc, agent_pb2, agent_pb2_grpc, common_pb2, controller_pb2_grpc
from spur_proto import controller_pb2 as pb

KEY = "0123456789abcdef0123456789abcdef"
LONG = 20.0


async def until(condition: Callable[[], Any], what: str = "", timeout: float = LONG) -> Any:
    """Poll a condition with a deadline."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, f"never came true: {what or condition}"
        await asyncio.sleep(0.005)
    return found


class FakeClock:
    """Real time plus what a test adds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class ScriptedAgent(agent_pb2_grpc.SlurmAgentServicer):
    """Launches nothing; remembers everything.

    `held`: identities that it would have processes of.  `gate`: launches wait until it is set.
    `refuse`: what the next launches answer instead of success.
    """

    name: str
    clock: FakeClock
    key: bytes = KEY.encode()
    held: dict[tuple[int, int, int], str] = field(default_factory=dict)
    launches: list[agent_pb2.LaunchSpec] = field(default_factory=list)
    cancels: list[agent_pb2.AgentCancelJobRequest] = field(default_factory=list)
    probes: list[tuple[int, int, int]] = field(default_factory=list)
    refuse: list[agent_pb2.LaunchJobResponse] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    #: False: TERM and KILL are noted and nothing ends.
    obeys: bool = True
    port: int = 0
    terms: list[int] = field(default_factory=list)
    server: Any = None
    entered: int = 0
    #: Specs of further steps; what the next ones answer; they wait until `step_gate` is set.
    commands: list[agent_pb2.LaunchSpec] = field(default_factory=list)
    step_refuse: list[agent_pb2.RunCommandResponse] = field(default_factory=list)
    step_gate: asyncio.Event = field(default_factory=asyncio.Event)
    #: The next so many further steps are launched, or (`deaf`) are not, and nobody hears of it.
    mute: int = 0
    deaf: int = 0
    suspends: list[agent_pb2.AgentSuspendJobRequest] = field(default_factory=list)

    def _check(self, context: Any) -> None:
        token = dict(context.invocation_metadata())["authorization"].removeprefix("Bearer ")
        assert verify(self.key, token, "controller", self.clock.time()).verified

    async def LaunchJob(self, request: Any, context: Any) -> Any:
        spec, rid = self._signed(request, context)
        self.entered += 1
        await self.gate.wait()
        self.launches.append(spec)
        if self.refuse:
            return self.refuse.pop(0)
        self.held[rid] = "live"
        return agent_pb2.LaunchJobResponse(
            success=True, stdout_path="/out", stderr_path="/err", started_at=time.time()
        )

    def _signed(self, request: Any, context: Any) -> tuple[Any, tuple[int, int, int]]:
        """The spec of a launch whose statement is right, and its identity."""
        self._check(context)
        spec = agent_pb2.LaunchSpec.FromString(request.spec)
        rid = (spec.rid.job_id, spec.rid.run_attempt, spec.rid.step_id)
        statement = verify_launch(self.key, request.launch_token, self.clock.time())
        assert statement.rid == RuntimeId(*rid)
        assert (statement.uid, statement.gid) == (spec.uid, spec.gid)
        assert statement.spec_digest == hashlib.sha256(request.spec).hexdigest()
        assert statement.node == self.name == request.target_node
        self.terms.append(request.term)
        return spec, rid

    async def RunCommand(self, request: Any, context: Any) -> Any:
        spec, rid = self._signed(request, context)
        parents = [held for held in self.held if held[:2] == rid[:2]]
        self.commands.append(spec)
        if not parents:
            await context.abort(grpc.StatusCode.NOT_FOUND, "the job is not on this node")
        await self.step_gate.wait()
        if self.step_refuse:
            return self.step_refuse.pop(0)
        if self.deaf:
            self.deaf -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost")
        assert self.held.get(rid) is None, "a step was launched twice"
        self.held[rid] = "live"
        if self.mute:
            self.mute -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost")
        return agent_pb2.RunCommandResponse(success=True, started_at=time.time())

    async def SuspendJob(self, request: Any, context: Any) -> Any:
        self._check(context)
        self.suspends.append(request)
        return agent_pb2.AgentSuspendJobResponse(steps=1)

    async def CancelJob(self, request: Any, context: Any) -> Any:
        self._check(context)
        self.cancels.append(request)
        mine = [rid for rid in self.held if rid[:2] == (request.rid.job_id, request.rid.run_attempt)]
        if request.rid.HasField("step_id"):
            mine = [rid for rid in mine if rid[2] == request.rid.step_id]
        if self.obeys and not request.HasField("signal"):
            for rid in mine:
                del self.held[rid]
            return agent_pb2.AgentCancelJobResponse(active=False)
        return agent_pb2.AgentCancelJobResponse(active=bool(mine))

    async def ProbeStepd(self, request: Any, context: Any) -> Any:
        self._check(context)
        rid = (request.rid.job_id, request.rid.run_attempt, request.rid.step_id)
        self.probes.append(rid)
        state = self.held.get(rid, "")
        return agent_pb2.ProbeStepdResponse(active=bool(state), state=state)

    async def start(self) -> None:
        self.server = aio.server(options=(("grpc.so_reuseport", 0),))
        agent_pb2_grpc.add_SlurmAgentServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.server.start()

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(None)
            self.server = None

    @property
    def attempts(self) -> list[tuple[int, int]]:
        """(job, attempt) of every launch that was carried out."""
        return [(spec.rid.job_id, spec.rid.run_attempt) for spec in self.launches]


@dataclass
class Cluster:
    """One controller, some scripted agents, and clients."""

    folder: Path
    text: str
    clock: FakeClock
    controller: Controller
    agents: dict[str, ScriptedAgent] = field(default_factory=dict)
    channel: Any = None
    fatal: list[BaseException] = field(default_factory=list)

    @property
    def state(self) -> Any:
        return self.controller.ledger.state

    def make(self) -> Controller:
        return Controller(
            parse_config(self.text),
            self.folder / "state",
            "127.0.0.1:0",
            fatal=self.fatal.append,
            paranoid=True,
            clock=self.clock.time,
            monotonic=self.clock.monotonic,
        )

    async def up(self) -> None:
        await self.controller.start()
        self.channel = aio.insecure_channel(
            self.controller.address, options=(("grpc.use_local_subchannel_pool", 1),)
        )

    async def down(self) -> None:
        if self.channel is not None:
            await self.channel.close()
            self.channel = None
        await self.controller.stop()

    async def crash(self) -> None:
        """What SIGKILL leaves: nothing but the log; no effect is finished, nothing is told."""
        await self.controller.leadership.stop()
        await self.down()

    async def restart(self) -> None:
        """A new process on the same directory."""
        self.controller = self.make()
        await self.up()

    # -- clients

    @property
    def stub(self) -> controller_pb2_grpc.SlurmControllerStub:
        return controller_pb2_grpc.SlurmControllerStub(self.channel)

    @property
    def history(self) -> accounting_pb2_grpc.SlurmAccountingStub:
        return accounting_pb2_grpc.SlurmAccountingStub(self.channel)

    def user(self, name: str = "root", ttl: float = 60, now: float | None = None) -> Any:
        token = mint.mint_user(KEY.encode(), name, None, ttl, self.clock.time() if now is None else now)
        return (("authorization", f"Bearer {token}"),)

    def as_node(self, name: str) -> Any:
        token = mint.mint_node(KEY.encode(), name, self.clock.time())
        return (("authorization", f"Bearer {token}"),)

    async def submit(self, user: str = "root", **fields: Any) -> int:
        spec = common_pb2.JobSpec(script=b"#!/bin/sh\ntrue\n", name="j", work_dir="/tmp")
        for key, value in fields.items():
            if isinstance(value, list):
                getattr(spec, key).extend(value)
            else:
                setattr(spec, key, value)
        answer = await self.stub.SubmitJob(pb.SubmitJobRequest(spec=spec), metadata=self.user(user))
        return int(answer.job_id)

    async def add_agent(self, name: str, cpus: int = 4, **fields: Any) -> ScriptedAgent:
        agent = ScriptedAgent(name, self.clock)
        agent.gate.set()
        agent.step_gate.set()
        await agent.start()
        self.agents[name] = agent
        await self.register(agent, cpus=cpus, **fields)
        return agent

    async def register(self, agent: ScriptedAgent, cpus: int = 4, boot: str = "boot-1", **fields: Any) -> Any:
        request = pb.RegisterAgentRequest(
            node=agent.name,
            hostname=agent.name,
            address="127.0.0.1",
            port=agent.port,
            cpus=cpus,
            memory_mb=4000,
            boot_id=boot,
            version="0.1.0",
            held=[
                pb.HeldStep(
                    rid=common_pb2.RuntimeId(job_id=job, run_attempt=attempt, step_id=step), state=state
                )
                for (job, attempt, step), state in agent.held.items()
            ],
            **fields,
        )
        return await self.stub.RegisterAgent(request, metadata=self.as_node(agent.name))

    async def beat(self, agent: ScriptedAgent, boot: str = "boot-1", snapshot: bool = True) -> Any:
        request = pb.HeartbeatRequest(node=agent.name, boot_id=boot, has_snapshot=snapshot)
        for (job, attempt, step), state in agent.held.items():
            request.held.add(
                rid=common_pb2.RuntimeId(job_id=job, run_attempt=attempt, step_id=step), state=state
            )
        return await self.stub.Heartbeat(request, metadata=self.as_node(agent.name))

    async def report(
        self, agent: ScriptedAgent, job: int, attempt: int = 1, code: int = 0, signal: int = 0, **fields: Any
    ) -> int:
        agent.held.pop((job, attempt, fields.get("step_id", STEP_BATCH)), None)
        request = pb.ReportJobStatusRequest(
            rid=common_pb2.RuntimeId(
                job_id=job, run_attempt=attempt, step_id=fields.get("step_id", STEP_BATCH)
            ),
            node=agent.name,
            exit=common_pb2.ExitStatus(code=code, signal=signal),
            started_at=self.clock.time() - 1,
            ended_at=self.clock.time(),
        )
        answer = await self.stub.ReportJobStatus(request, metadata=self.as_node(agent.name))
        return int(answer.verdict)

    # -- steps

    async def alloc(self, nodes: int = 1, user: str = "root", **fields: Any) -> int:
        """An allocation that runs."""
        job_id = await self.submit(user, script=b"", alloc_only=True, min_nodes=nodes, **fields)
        await self.in_state(job_id, JobState.RUNNING)
        return job_id

    def step_request(self, job_id: int, **fields: Any) -> pb.CreateJobStepRequest:
        request = pb.CreateJobStepRequest(
            job_id=job_id, argv=[b"hostname"], name="hostname", work_dir="/tmp", wait_secs=5
        )
        for key, value in fields.items():
            if isinstance(value, list):
                field = getattr(request, key)
                del field[:]
                field.extend(value)
            elif key == "shape":
                request.shape.CopyFrom(value)
            else:
                setattr(request, key, value)
        return request

    async def step(self, job_id: int, user: str = "root", **fields: Any) -> Any:
        """The answer of CreateJobStep."""
        return await self.stub.CreateJobStep(self.step_request(job_id, **fields), metadata=self.user(user))

    async def steps(self, user: str = "root", **fields: Any) -> list[Any]:
        answer = await self.stub.GetJobSteps(pb.GetJobStepsRequest(**fields), metadata=self.user(user))
        return list(answer.steps)

    async def cancel(self, job_id: int, user: str = "root", **fields: Any) -> str:
        """The sentence of the refusal, or nothing."""
        target = pb.JobTarget(job_id=job_id)
        if "step_id" in fields:
            target.step_id = fields.pop("step_id")
        answer = await self.stub.CancelJob(
            pb.CancelJobRequest(targets=[target], **fields), metadata=self.user(user)
        )
        return str(answer.results[0].text)

    async def job(self, job_id: int, user: str = "root") -> Any:
        answer = await self.stub.GetJobs(
            pb.GetJobsRequest(jobs=[pb.JobTarget(job_id=job_id)], detail=True), metadata=self.user(user)
        )
        return answer.jobs[0]

    async def in_state(self, job_id: int, state: int) -> None:
        await until(
            lambda: self.state.jobs[job_id].state == state, f"{self.state.jobs.get(job_id)} -> {state}"
        )


def config_text(extra: str = "", scheduler: str = "", controller: str = "") -> str:
    return f"""
cluster_name = "test"
[controller]
{controller}
[scheduler]
kill_wait_secs = 2
{scheduler}
[accounting]
enabled = {"true" if "history" in extra else "false"}
[auth]
plugin = "jwt"
allow_root_jobs = true
mode = "required"
jwt_key = "{KEY}"
[[partitions]]
name = "debug"
default = true
nodes = "ALL"
{extra if extra != "history" else ""}
"""


Factory = Callable[..., Awaitable[Cluster]]


@pytest.fixture
async def clusters(tmp_path: Path) -> AsyncIterator[Factory]:
    """Makes clusters with a started controller; all of them are stopped at the end and checked."""
    made: list[Cluster] = []

    async def make(**parts: str) -> Cluster:
        clock = FakeClock()
        folder = tmp_path / f"c{len(made)}"
        cluster = Cluster(folder, config_text(**parts), clock, None)  # type: ignore[arg-type]
        cluster.controller = cluster.make()
        made.append(cluster)
        await cluster.up()
        return cluster

    yield make
    for cluster in made:
        for agent in cluster.agents.values():
            agent.gate.set()
            agent.step_gate.set()
        await cluster.down()
        for agent in cluster.agents.values():
            await agent.stop()
        assert not cluster.fatal
        assert not check(cluster.state)
        for agent in cluster.agents.values():
            assert len(set(agent.attempts)) == len(agent.attempts), "an attempt was launched twice"


@pytest.fixture
async def cluster(clusters: Factory) -> Cluster:
    """One controller with the usual settings."""
    return await clusters()


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at present."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


class Trio(Cluster):
    """Three controllers with one log; `controller` is the one that led last, calls go to `asked`."""

    def __init__(self, folder: Path, text: str, clock: FakeClock) -> None:
        super().__init__(folder, text, clock, None)  # type: ignore[arg-type]
        ports = free_ports(6)
        self.raft = [f"127.0.0.1:{port}" for port in ports[:3]]
        self.addresses = [f"127.0.0.1:{port}" for port in ports[3:]]
        self.members: dict[int, Controller] = {}
        self.channels: dict[int, Any] = {}
        #: Member -> seconds by which its clock is wrong when it is started.
        self.wrong: dict[int, float] = {}
        certs.make_ca(folder / "tls")
        group = [
            Member(at, self.raft[at - 1], f"spur-controller-{at}", self.addresses[at - 1]) for at in (1, 2, 3)
        ]
        for at in (1, 2, 3):
            certs.make_member(folder / "tls", at)
            cluster = certs.cluster_id(folder / "tls" / "ca.pem")
            init_directory(folder / f"state-{at}", at, group, Files(), cluster)

    def make_member(self, at: int) -> Controller:
        config = parse_config(self.text)
        clock, wrong = self.clock, self.wrong.get(at, 0.0)
        section = dataclasses.replace(
            config.controller,
            peers=tuple(self.raft),
            client_addrs=tuple(self.addresses),
            node_id=at,
            raft_listen_addr=self.raft[at - 1],
            raft_tls_dir=str(certs.member_dir(self.folder / "tls", at)),
        )
        return Controller(
            dataclasses.replace(config, controller=section),
            self.folder / f"state-{at}",
            self.addresses[at - 1],
            fatal=self.fatal.append,
            paranoid=True,
            clock=lambda: clock.time() + wrong,
            monotonic=self.clock.monotonic,
        )

    async def start(self, *which: int) -> None:
        """Start members, all by default."""
        for at in which or (1, 2, 3):
            self.members[at] = self.make_member(at)
            await self.members[at].start()
            self.channels[at] = aio.insecure_channel(
                self.addresses[at - 1], options=(("grpc.use_local_subchannel_pool", 1),)
            )

    async def stop(self, at: int) -> None:
        """A planned stop of one member."""
        await self.channels.pop(at).close()
        await self.members.pop(at).stop()

    async def kill(self, at: int) -> None:
        """What SIGKILL leaves: nothing but the log; nothing is handed over."""
        member = self.members.pop(at)
        await member.leadership.stop()
        await self.channels.pop(at).close()
        await member.stop()

    @property
    def leader(self) -> int:
        """The member whose office is open, or 0."""
        return next((at for at, member in self.members.items() if member.leadership.open), 0)

    async def led(self) -> int:
        """Wait until some member leads; calls go to it."""
        at: int = await until(lambda: self.leader, "somebody leads")
        self.controller = self.members[at]
        self.ask(at)
        return at

    def ask(self, at: int) -> None:
        """Calls go to that member."""
        self.channel = self.channels[at]

    @property
    def followers(self) -> list[int]:
        return [at for at in self.members if at != self.leader]

    async def even(self) -> None:
        """Wait until all members have applied the same."""
        await until(
            lambda: len({member.node.applied for member in self.members.values()}) == 1,
            "all members have applied the same",
        )


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    """Three controllers, one of which leads."""
    made = Trio(tmp_path, config_text(), FakeClock())
    await made.start()
    await made.led()
    yield made
    for agent in made.agents.values():
        agent.gate.set()
        agent.step_gate.set()
    for at in list(made.members):
        await made.kill(at)
    for agent in made.agents.values():
        await agent.stop()
        assert len(set(agent.attempts)) == len(agent.attempts), "an attempt was launched twice"
    assert not made.fatal
