"""The controller at scale: thousands of emulated nodes, and real agents under load.

    hatch run python benchmarks/emulated.py [--nodes 2000] [--pending 10000] [PART...]

Parts: `nodes` (registration storm, heartbeats, starts, ten thousand pending), `agents` (no-op jobs and a
big array through one real agent).  `spurd --emulate` is on the same machine and takes its own share of it:
figures of CPU time are the controller's alone, times of the clock are not.
"""

import argparse
import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import grpc.aio
from run import BIN, Cluster, Row, pss_mib, wait_for
from submit_load import address

from spur_auth.mint import mint_user
from spur_core.config import load_config, resolve_jwt_key
from spur_proto import common_pb2, controller_pb2, controller_pb2_grpc

CONTROLLER = "spurctld-1"
OPTIONS = (("grpc.max_receive_message_length", 64 << 20),)


class Client:
    """One connection to the controller, as this user."""

    def __init__(self) -> None:
        key = resolve_jwt_key(load_config(os.environ["SPUR_CONF"]))
        assert key is not None
        user = "root" if os.geteuid() == 0 else os.environ["USER"]
        token = mint_user(key, user, os.geteuid(), 7200, time.time())
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._channel = grpc.aio.insecure_channel(address(), options=OPTIONS)
        self.stub = controller_pb2_grpc.SlurmControllerStub(self._channel)

    async def call(self, name: str, request: object) -> object:
        return await getattr(self.stub, name)(request, metadata=self._metadata)

    async def submit(self, count: int, script: str, **fields: object) -> list[int]:
        """Job ids."""
        spec = common_pb2.JobSpec(
            name="load",
            script=f"#!/bin/sh\n{script}\n".encode(),
            environment=[b"PATH=/usr/bin:/bin"],
            work_dir="/tmp",
            stdout_path="/dev/null",
            **{"num_tasks": 1, **fields},
        )

        async def one() -> int:
            request = controller_pb2.SubmitJobRequest(spec=spec, request_id=uuid.uuid4().hex)
            return (await self.call("SubmitJob", request)).job_id

        found: list[int] = []
        for at in range(0, count, 16):
            found += await asyncio.gather(*(one() for _ in range(min(16, count - at))))
        return found

    async def jobs(self, **filters: object) -> list[common_pb2.JobInfo]:
        """Every record."""
        found: list[common_pb2.JobInfo] = []
        token = ""
        while True:
            answer = await self.call(
                "GetJobs", controller_pb2.GetJobsRequest(page_token=token, page_size=5000, **filters)
            )
            found += answer.jobs
            token = answer.next_page_token
            if not token:
                return found


def run(work: Callable[[Client], object]) -> object:
    """Run a coroutine function with a client."""

    async def main() -> object:
        return await work(Client())

    return asyncio.run(main())


def cpu_secs(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share(values: list[float], part: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(len(ordered) * part * 1000) // 1000) - 1)]


def milliseconds(values: list[float]) -> str:
    return f"{share(values, 0.5) * 1000:.0f} / {share(values, 0.99) * 1000:.0f} ms"


class Scale:
    """A cluster of one real and many emulated nodes."""

    def __init__(self, nodes: int, cpus: int) -> None:
        self.cluster = Cluster(nodes=1, cpus=8)
        os.environ["SPUR_CONF"] = self.cluster.env["SPUR_CONF"]
        self.conf = Path(self.cluster.env["SPUR_CONF"])
        self.nodes = nodes
        self.cpus = cpus
        width = len(str(nodes))
        names = f"e[{1:0{width}d}-{nodes}]"
        plain = self.conf.read_text().replace("[controller]\n", "[controller]\nmax_array_size = 20000\n", 1)
        more = (
            f'\n[[nodes]]\nnames = "{names}"\ncpus = {cpus}\nmemory_mb = 64000\n'
            f'\n[[partitions]]\nname = "emulated"\nnodes = "{names}"\n'
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.log = self.cluster.folder / "emulated.log"
        self.conf.write_text(plain + more)
        self.cluster.run("spur", "restart", "--dir", str(self.conf.parent), CONTROLLER)

    @property
    def pid(self) -> int:
        return self.cluster.pid(CONTROLLER)

    def emulate(self) -> float:
        """Start the nodes; seconds from the first registration to the last."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(str(BIN / "spurd"), "-D", "-f", str(self.conf), "--controller", address()),
                    *("--emulate", str(self.nodes), "-N", "e", "--listen", "127.0.0.1:0"),
                ],
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        found: list[str] = []
        wait_for(lambda: bool(found := re.findall(r"all_registered .*secs=(\S+)", self.log.read_text())))
        found = re.findall(r"all_registered .*secs=(\S+)", self.log.read_text())
        return float(found[0])

    def close(self) -> None:
        if self.process is not None:
            # While the nodes are there: their ends are told.
            self.cluster.run("scancel", "--me")
            with contextlib.suppress(SystemExit):
                wait_for(lambda: self.cluster.run("squeue", "-h") == "", 60)
            self.process.terminate()
            self.process.wait()
        self.cluster.close()


def diag(cluster: Cluster) -> str:
    """What sdiag says of cycles, in a line."""
    lines = [line.strip() for line in cluster.run("sdiag").splitlines()]
    return "; ".join(" ".join(line.split()) for line in lines if "cycle" in line.lower())


async def calls(client: Client, secs: float, one: Callable[[Client], object]) -> list[float]:
    """Times of one call after another."""
    took = []
    until = time.perf_counter() + secs
    while time.perf_counter() < until:
        begin = time.perf_counter()
        await one(client)
        took.append(time.perf_counter() - begin)
        await asyncio.sleep(0.01)
    return took


async def ping(client: Client) -> None:
    await client.call("Ping", controller_pb2.PingRequest())


async def submit_held(client: Client) -> None:
    await client.submit(1, "true", hold=True, partition="emulated")


async def submit_to_start(client: Client, count: int, every: float) -> list[float]:
    """Of jobs to the real node, one after the other; from the submission to the task's start."""
    ids = []
    for _ in range(count):
        ids += await client.submit(1, "true")
        await asyncio.sleep(every)
    while True:
        targets = [controller_pb2.JobTarget(job_id=job) for job in ids]
        found = await client.jobs(jobs=targets)
        if all(job.HasField("start_at") and job.HasField("end_at") for job in found):
            return [job.start_at - job.submit_at for job in found]
        await asyncio.sleep(0.2)


def started(scale: Scale, count: int) -> tuple[float, float]:
    """Starts per second of `count` jobs that may all begin at one instant, and controller CPU per job, ms."""
    begin = time.time() + 20 + count / 100
    ids = set(
        run(
            lambda client: client.submit(
                count, "sleep 60", partition="emulated", time_limit_secs=600, begin_at=begin
            )
        )
    )
    if time.time() > begin - 1:
        raise SystemExit("submitting took too long for this benchmark")
    time.sleep(begin - time.time() - 0.5)
    before = cpu_secs(scale.pid)

    async def wait(client: Client) -> float:
        while True:
            await asyncio.sleep(1)
            found = [job for job in await client.jobs(partitions=["emulated"]) if job.job_id in ids]
            times = [job.start_at for job in found if job.HasField("start_at")]
            if len(times) == count:
                return max(times) - begin

    secs = run(wait)
    return count / secs, (cpu_secs(scale.pid) - before) / count * 1000


def bench_nodes(nodes: int, pending: int) -> list[Row]:
    """The controller with emulated nodes."""
    scale = Scale(nodes, cpus=4)
    rows: list[Row] = []

    def row(what: str, measured: str, budget: str = "") -> None:
        rows.append((what, measured, budget))
        print(f"| {what} | {measured} | {budget} |", flush=True)

    try:
        row("controller, PSS, no node has come", f"{pss_mib(scale.pid):.0f} MiB")
        before = cpu_secs(scale.pid)
        time.sleep(20)
        row("the same, doing nothing", f"{(cpu_secs(scale.pid) - before) / 20:.1%} of a core")
        before = cpu_secs(scale.pid)
        secs = scale.emulate()
        row(
            f"{nodes:,} nodes register at once, until the last has its answer",
            f"{secs:.1f} s, {(cpu_secs(scale.pid) - before) / nodes * 1000:.1f} ms of CPU each",
        )
        row(f"controller, PSS, {nodes:,} nodes", f"{pss_mib(scale.pid):.0f} MiB")
        before = cpu_secs(scale.pid)
        time.sleep(60)
        row(
            f"heartbeats of {nodes:,} nodes every 30 s, for a minute",
            f"{(cpu_secs(scale.pid) - before) / 60:.1%} of a core",
        )
        begin = time.perf_counter()
        run(lambda client: client.submit(2000, "true", partition="emulated", hold=True))
        row(
            "submissions through gRPC, 1 connection",
            f"{2000 / (time.perf_counter() - begin):.0f} /s",
            "800 /s",
        )
        scale.cluster.run("scancel", "--me")
        count = min(3000, nodes * scale.cpus * 3 // 4)
        rate, each = started(scale, count)
        row(
            f"jobs started per second, {count:,} at once",
            f"{rate:.0f} /s, {each:.1f} ms of CPU each",
            "200 /s",
        )
        idle = run(lambda client: submit_to_start(client, 100, 0.2))
        row("submission → start on a real node, p50 / p99 of 100, quiet queue", milliseconds(idle))
        # Every node is taken once the short jobs are gone.
        fields = {"partition": "emulated", "time_limit_secs": 36000, "exclusive": True}
        run(lambda client: client.submit(nodes, "sleep 30000", **fields))
        wait_for(lambda: running(scale) == nodes, 300)
        begin = time.perf_counter()
        run(lambda client: client.submit(pending, "sleep 60", partition="emulated", time_limit_secs=600))
        row(
            f"submissions through gRPC into a queue that grows to {pending:,}",
            f"{pending / (time.perf_counter() - begin):.0f} /s",
        )
        row(
            f"controller, PSS, {nodes:,} nodes and {pending:,} pending",
            f"{pss_mib(scale.pid):.0f} MiB",
            "300 MiB",
        )
        for name, one in (("Ping", ping), ("SubmitJob (held)", submit_held)):
            took = run(lambda client, one=one: calls(client, 15, one))
            row(f"`{name}` while {pending:,} pend, p50 / p99 of {len(took)}", milliseconds(took))
        loaded = run(lambda client: submit_to_start(client, 100, 0.2))
        row(f"submission → start on a real node, p50 / p99 of 100, {pending:,} pending", milliseconds(loaded))
        said = diag(scale.cluster)
        if said:
            row(f"`sdiag` with {pending:,} pending", said)
    finally:
        scale.close()
    return rows


def running(scale: Scale) -> int:
    return scale.cluster.run("squeue", "-h", "-p", "emulated", "-t", "R").count("\n")


def bench_agents(jobs: int, tasks: int) -> list[Row]:
    """One real agent with 8 CPUs."""
    scale = Scale(1, cpus=1)
    rows: list[Row] = []

    def row(what: str, measured: str, budget: str = "") -> None:
        rows.append((what, measured, budget))
        print(f"| {what} | {measured} | {budget} |", flush=True)

    def measured(submit: Callable[[], object], count: int) -> str:
        agent = scale.cluster.pid("spurd-node1")
        before, before_agent, begin = cpu_secs(scale.pid), cpu_secs(agent), time.perf_counter()
        submit()
        # Asked seldom: the commands would take the machine from what is measured.
        while scale.cluster.run("squeue", "-h"):
            time.sleep(1)
        rate = count / (time.perf_counter() - begin)
        controller = (cpu_secs(scale.pid) - before) / count * 1000
        node = (cpu_secs(agent) - before_agent) / count * 1000
        return f"{rate:.0f} /s; CPU of controller {controller:.1f} ms, of agent {node:.1f} ms a job"

    try:
        idle = run(lambda client: submit_to_start(client, 100, 0.2))
        row("submission → start, p50 / p99 of 100 jobs, idle cluster", milliseconds(idle))
        said = measured(lambda: run(lambda client: client.submit(jobs, "exit 0")), jobs)
        row(f"{jobs:,} no-op batch jobs end to end, one real node of 8 CPUs", said, "60 /s")

        def array() -> None:
            scale.cluster.run("sbatch", "-Q", "-o", "/dev/null", f"--array=0-{tasks - 1}", "--wrap", "exit 0")

        row(f"array of {tasks:,} no-op tasks end to end, the same node", measured(array, tasks))
        row("controller, PSS, afterwards", f"{pss_mib(scale.pid):.0f} MiB")
    finally:
        scale.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["nodes", "agents", []])
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=10_000)
    given = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    parts = given.parts or ["nodes", "agents"]
    if "nodes" in parts:
        bench_nodes(given.nodes, given.pending)
        print(f"load average {os.getloadavg()[0]:.1f}")
    if "agents" in parts:
        bench_agents(given.jobs, given.tasks)
        print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    sys.exit(main())
