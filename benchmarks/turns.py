"""How long a controller keeps its event loop, while it schedules: turns beyond 10 ms, and what they did.

    python benchmarks/turns.py [--nodes N] [--cpus C] [--pending P] [--rate R] [--secs S] [--why]

The controller is a process of its own with a real log.  This one plays its agents and its users: `nodes`
agents that launch nothing and report the end of each run when its time is over, and clients that first fill
the cluster and leave `pending` jobs in the queue, then submit `rate` jobs a second, as many as end, and look
at squeue and sinfo.  `--why` samples what long turns are at; that costs some time of its own.
"""

import argparse
import asyncio
import collections
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from spur_auth import mint
from spur_core.config.loader import parse_config
from spur_core.ids import STEP_BATCH
from spur_ctld.replication.watchdog import LONG, TimedSelector
from spur_proto import agent_pb2, agent_pb2_grpc, common_pb2, controller_pb2_grpc
from spur_proto import controller_pb2 as pb

Row = tuple[str, str, str]
KEY = "0123456789abcdef0123456789abcdef"
CONFIG = f"""
cluster_name = "turns"
[accounting]
enabled = false
[auth]
plugin = "jwt"
allow_root_jobs = true
mode = "required"
jwt_key = "{KEY}"
[[partitions]]
name = "debug"
default = true
nodes = "ALL"
"""
#: Of each agent.
HEARTBEAT_SECS = 30.0


# -- the controller


class Turns(TimedSelector):
    """Remembers every turn, in seconds and in seconds of the processor, and when the present one began.

    The second is what a turn does itself; the first has what others did meanwhile on a busy machine.
    """

    def __init__(self) -> None:
        super().__init__()
        self.all: list[float] = []
        self.own: list[float] = []
        self.began = self.own_began = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """As in the base class."""
        if self.began:
            self.all.append(time.perf_counter() - self.began)
            self.own.append(time.thread_time() - self.own_began)
        self.began = 0.0
        ready = super().select(timeout)
        self.began, self.own_began = time.perf_counter(), time.thread_time()
        return ready

    def told(self) -> dict[str, Any]:
        """Figures of the turns since the last call."""
        found = {"wall": _figures(self.all), "own": _figures(self.own)}
        self.all, self.own = [], []
        return found


def _figures(turns: list[float]) -> dict[str, float]:
    turns = sorted(turns) or [0.0]
    return {
        "turns": len(turns),
        "long": sum(turn > LONG for turn in turns),
        "very_long": sum(turn > 5 * LONG for turn in turns),
        "longest": turns[-1],
        "p99": turns[int(len(turns) * 0.99)],
        "busy": sum(turns),
    }


class Sampler(threading.Thread):
    """Notes where the loop is when a turn has worked long already."""

    def __init__(self, turns: Turns) -> None:
        super().__init__(daemon=True)
        self._turns = turns
        self._thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread)
        self.found: collections.Counter[str] = collections.Counter()

    def run(self) -> None:
        """Look every 2 ms."""
        pause = threading.Event()
        while True:
            pause.wait(0.002)
            if self._turns.began and time.clock_gettime(self._clock) - self._turns.own_began > LONG / 2:
                stack = traceback.extract_stack(sys._current_frames().get(self._thread))
                names = [f"{Path(one.filename).stem}.{one.name}" for one in stack if "spur" in one.filename]
                self.found[" > ".join(names[-5:]) or stack[-1].name] += 1


def serve(folder: Path, port: int, why: bool) -> None:
    """Be a controller; figures go to stdout, a line for each line that is read."""
    from spur_ctld import logs
    from spur_ctld.controller import Controller

    logs.set_up("info")
    logging.getLogger("spur_ctld").setLevel("INFO")
    turns = Turns()

    async def main() -> None:
        controller = Controller(
            parse_config(CONFIG), folder / "state", f"127.0.0.1:{port}", fatal=lambda error: os._exit(1)
        )
        await controller.start()
        sampler = Sampler(turns)
        if why:
            sampler.start()
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stop.set)

        def tell() -> None:
            if not sys.stdin.readline():
                stop.set()
                loop.remove_reader(0)
                return
            told = turns.told() | {
                "pending": len(controller.ledger.state.pending),
                "passes": controller.scheduler.passes,
                "why": sampler.found.most_common(12),
            }
            sampler.found.clear()
            print(json.dumps(told), flush=True)

        loop.add_reader(0, tell)
        print(json.dumps({"address": controller.address}), flush=True)
        await stop.wait()
        await controller.stop()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(turns)) as runner:
        runner.run(main())


# -- its agents and users


@dataclass
class Load(agent_pb2_grpc.SlurmAgentServicer):
    """All agents behind one port, and all clients."""

    address: str
    nodes: int
    cpus: int
    secs: float
    ended: int = 0
    launched: int = 0
    submitted: int = 0
    tasks: set[Any] = field(default_factory=set)
    port: int = 0
    #: Whoever does not hold it loses it.
    server: Any = None

    def __post_init__(self) -> None:
        self.channels = [
            grpc.aio.insecure_channel(self.address, options=(("grpc.use_local_subchannel_pool", 1),))
            for _ in range(8)
        ]
        now = time.time()
        self.users = (("authorization", f"Bearer {mint.mint_user(KEY.encode(), 'root', 0, 3600, now)}"),)
        self.names = [f"n{at}" for at in range(self.nodes)]
        self.own = {
            name: (("authorization", f"Bearer {mint.mint_node(KEY.encode(), name, now)}"),)
            for name in self.names
        }

    def stub(self, at: int) -> Any:
        """One of the connections."""
        return controller_pb2_grpc.SlurmControllerStub(self.channels[at % len(self.channels)])

    async def LaunchJob(self, request: Any, context: Any) -> Any:
        """Nothing is launched; its end is reported in time."""
        spec = agent_pb2.LaunchSpec.FromString(request.spec)
        self.launched += 1
        task = asyncio.create_task(self._runs(request.target_node, spec.rid, spec.node_index))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return agent_pb2.LaunchJobResponse(success=True, started_at=time.time())

    async def CancelJob(self, request: Any, context: Any) -> Any:
        """Nothing is ever left here."""
        return agent_pb2.AgentCancelJobResponse(active=False)

    async def ProbeStepd(self, request: Any, context: Any) -> Any:
        """Nothing is ever left here."""
        return agent_pb2.ProbeStepdResponse(active=False)

    async def _runs(self, node: str, rid: Any, index: int) -> None:
        # Ends come one by one, not all at once.
        await asyncio.sleep(self.secs * (0.5 + rid.job_id % 97 / 97) + 0.1)
        now = time.time()
        request = pb.ReportJobStatusRequest(
            rid=common_pb2.RuntimeId(job_id=rid.job_id, run_attempt=rid.run_attempt, step_id=STEP_BATCH),
            node=node,
            exit=common_pb2.ExitStatus(code=0),
            started_at=now - self.secs,
            ended_at=now,
        )
        await self.stub(rid.job_id).ReportJobStatus(request, metadata=self.own[node])
        self.ended += index == 0

    async def start(self) -> None:
        """Open the port and register every node."""
        server = self.server = grpc.aio.server()
        agent_pb2_grpc.add_SlurmAgentServicer_to_server(self, server)
        self.port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        for first in range(0, self.nodes, 50):
            await asyncio.gather(*(self._register(name) for name in self.names[first : first + 50]))

    async def _register(self, name: str) -> None:
        request = pb.RegisterAgentRequest(
            node=name,
            hostname=name,
            address="127.0.0.1",
            port=self.port,
            cpus=self.cpus,
            memory_mb=1000 * self.cpus,
            boot_id="boot",
            version="0.1.0",
        )
        await self.stub(0).RegisterAgent(request, metadata=self.own[name])

    async def beats(self) -> None:
        """Heartbeats, for ever."""
        while True:
            for name in self.names:
                await asyncio.sleep(HEARTBEAT_SECS / self.nodes)
                request = pb.HeartbeatRequest(node=name, boot_id="boot", has_snapshot=False)
                await self.stub(1).Heartbeat(request, metadata=self.own[name])

    async def looks(self) -> None:
        """squeue and sinfo, for ever."""
        while True:
            await asyncio.sleep(0.5)
            await self.stub(2).GetJobs(pb.GetJobsRequest(), metadata=self.users)
            await self.stub(2).GetNodes(pb.GetNodesRequest(), metadata=self.users)

    async def stop(self) -> None:
        """Nobody answers any more."""
        await self.server.stop(None)
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for channel in self.channels:
            await channel.close()

    async def submit(self, at: int) -> None:
        """One job; every tenth on two nodes."""
        spec = common_pb2.JobSpec(
            name="turns",
            script=b"#!/bin/sh\nexit 0\n",
            environment=[b"PATH=/usr/bin:/bin", b"HOME=/root"],
            work_dir="/tmp",
            stdout_path="/dev/null",
            num_tasks=1 if at % 10 else 2,
            min_nodes=1 if at % 10 else 2,
        )
        self.submitted += 1
        await self.stub(at).SubmitJob(
            pb.SubmitJobRequest(spec=spec, request_id=os.urandom(16).hex()), metadata=self.users
        )

    async def stream(self, rate: float, secs: float) -> None:
        """`rate` jobs a second for `secs` seconds, whether or not they are answered in time."""
        begun = time.monotonic()
        sent: list[Any] = []
        while (passed := time.monotonic() - begun) < secs:
            while len(sent) < passed * rate:
                sent.append(asyncio.create_task(self.submit(len(sent))))
            await asyncio.sleep(0.005)
        await asyncio.gather(*sent)


class Server:
    """The controller's process."""

    def __init__(self, folder: Path, why: bool) -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        words = [sys.executable, __file__, "--serve", str(folder), "--port", str(port)]
        self.process = subprocess.Popen(
            words + ["--why"] * why,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("wb"),
            text=True,
        )
        self.address = self._line()["address"]

    def _line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    async def ask(self) -> Any:
        """Figures since the last question."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return await asyncio.to_thread(self._line)

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.communicate(timeout=60)


async def measure(said: argparse.Namespace, folder: Path) -> list[Row]:
    """Fill the cluster, then watch it at work."""
    server = Server(folder, said.why)
    slots = said.nodes * said.cpus
    load = Load(server.address, said.nodes, said.cpus, slots * 0.9 / said.rate)
    rows: list[Row] = []
    beside: list[asyncio.Task[None]] = []
    try:
        await load.start()
        await server.ask()
        begun = time.monotonic()
        for first in range(0, slots + said.pending, 32):
            await asyncio.gather(*(load.submit(first + at) for at in range(32)))
        while load.launched < slots * 0.9 and time.monotonic() - begun < 60:
            await asyncio.sleep(0.05)
        took = time.monotonic() - begun
        what = f"{load.submitted:,} jobs come at once to {said.nodes:,} free nodes ({took:.1f} s)"
        rows.append(row(what, before := await server.ask()))
        for work in (load.beats(), load.looks()):
            beside.append(asyncio.create_task(work))
        launched, ended = load.launched, load.ended
        await load.stream(said.rate, said.secs)
        told = await server.ask()
        passes = told["passes"] - before["passes"]
        what = (
            f"{said.rate:g} submissions /s for {said.secs:g} s, {told['pending']:,} pending then,"
            f" {load.launched - launched:,} launched, {load.ended - ended:,} ended, {passes} passes"
        )
        rows.append(row(what, told))
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await load.stop()
        server.stop()
    return rows


def row(what: str, told: Any) -> Row:
    """Figures as a line of the table; what was sampled goes to stderr."""
    for names, count in told["why"]:
        print(f"{count:6d} {names}", file=sys.stderr)
    wall, own = told["wall"], told["own"]
    measured = (
        f"{wall['turns']:,} turns; over 10 ms {_shown(wall)}; by the processor's time {_shown(own)},"
        f" {own['busy']:.1f} s together"
    )
    return (what, measured, "none over 10 ms")


def _shown(turns: dict[str, float]) -> str:
    share = turns["long"] / turns["turns"] * 100
    return (
        f"{turns['long']:,} ({share:.2f} %), over 50 ms {turns['very_long']},"
        f" p99 {turns['p99'] * 1000:.1f} ms, longest {turns['longest'] * 1000:.0f} ms"
    )


def turns_rows(*words: str) -> list[Row]:
    """All of it."""
    said = _parser().parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix="turns-", dir="/tmp"))
    try:
        return asyncio.run(measure(said, folder))
    finally:
        shutil.rmtree(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--pending", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=50.0, help="submissions per second")
    parser.add_argument("--secs", type=float, default=20.0)
    parser.add_argument("--why", action="store_true", help="sample what long turns are at")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    given = _parser().parse_args()
    if given.serve:
        serve(given.serve, given.port, given.why)
    else:
        for found in turns_rows(*sys.argv[1:]):
            print("| " + " | ".join(found) + " |", flush=True)
