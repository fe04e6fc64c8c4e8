"""What the matrix tests share: jobs that wait for a gate, raw calls to an agent, disks that fill."""

import contextlib
import json
import os
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
from testkit.crash_cluster import CrashCluster

from spur_auth import mint
from spur_proto import agent_pb2, agent_pb2_grpc, common_pb2, controller_pb2_grpc
from spur_proto import controller_pb2 as pb

BATCH = 4294967291
IS_ROOT = os.geteuid() == 0
#: Leaves a process in a session of its own.  Once the supervisor is dead only a control group tells whose it
#: is, which an ordinary user's steps do not have.
DAEMON = "setsid sleep 600 & true" if IS_ROOT else ""
#: Settings with which a node that has refused a launch soon gets another.
AGAIN = {"controller": {"dispatch_reject_cooldown_secs": "1", "max_launch_backoff_secs": "1"}}
#: Output of an ended step is not kept for long for a client that may come back; nobody does.
NOBODY_COMES = {"spur_agent.keeper.ENDED_KEPT_SECS": 1.0, "spur_agent.keeper.COME_BACK_SECS": 1.0}


class Held:
    """A job that runs until its gate is there and then ends with `code`.

    Args:
        before: shell commands ahead of the wait.
        last: shell commands after it, instead of `exit CODE`.
    """

    def __init__(
        self, cluster: CrashCluster, *options: str, code: int = 3, before: str = "", last: str = ""
    ) -> None:
        self.cluster = cluster
        self.code = code
        self.gate = cluster.work / f"gate-{time.monotonic_ns()}"
        wait = f"while [ ! -e {self.gate} ]; do sleep 0.05; done"
        self.job = cluster.submit("; ".join(filter(None, (before, wait, last or f"exit {code}"))), *options)
        assert self.job, "the job was not taken"

    def runs(self, times: int = 1, secs: float = 60.0) -> "Held":
        """Wait until its run number `times` goes and the controller knows it."""
        self.cluster.until(
            lambda: self.cluster.runs_of(self.job) == times and self.state() == "RUNNING",
            f"job {self.job} is in its run {times}",
            secs,
        )
        return self

    def state(self) -> str:
        """As the controller tells it, "" while none answers."""
        return self.cluster.state_or_nothing(self.job)

    def again(self) -> "Held":
        """Requeue it, without the seconds for which such a job is held back: held, and let go."""
        self.cluster.ok("scontrol", "requeuehold", self.job)
        self.cluster.until(lambda: self.state() == "PENDING", f"job {self.job} is back in the queue")
        self.cluster.ok("scontrol", "release", self.job)
        return self

    def open(self) -> None:
        """Let it end."""
        self.gate.touch()

    def session(self, attempt: int = 1, step: int = BATCH) -> Path:
        """Its directory on the node that has it."""
        name = f"{self.job}.{attempt}.{step}"
        return self.cluster.session(self.cluster.agent_of(name), name)

    def shell(self) -> int:
        """The pid that its last run noted."""
        lines = [line.split(".") for line in self.cluster.runs.read_text().split()]
        return [int(pid) for job, _, pid in lines if job == self.job][-1]

    def ends_well(self, runs: list[str] | None = None) -> None:
        """Open the gate; it must end once, with its own code, and leave nothing.

        Args:
            runs: restart counts that must have run, each once.
        """
        self.open()
        self.cluster.settle()
        wrong = self.cluster.faults({self.job: self.code}, set())
        assert not wrong, "\n".join(wrong)
        if runs is not None:
            noted = sorted(restart for job, restart in self.cluster.noted() if job == self.job)
            assert noted == runs


def journal(session: Path) -> list[dict[str, Any]]:
    """The whole lines of a session's journal."""
    lines = (session / "journal").read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


def events(session: Path) -> list[str]:
    """Their kinds."""
    return [record["event"] for record in journal(session)]


def edit_descriptor(session: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Rewrite `descriptor.json`; what was in it before."""
    path = session / "descriptor.json"
    before: dict[str, Any] = json.loads(path.read_text())
    after = dict(before)
    change(after)
    path.write_text(json.dumps(after))
    return before


#: Job, attempt, and a step or None.
Rid = tuple[int, int, int | None]


def rid_message(rid: Rid) -> common_pb2.RuntimeId:
    """An identity as calls carry it."""
    message = common_pb2.RuntimeId(job_id=rid[0], run_attempt=rid[1])
    if rid[2] is not None:
        message.step_id = rid[2]
    return message


class Wire:
    """Raw calls with credentials of one's choice."""

    def __init__(self, cluster: CrashCluster) -> None:
        self._folder = cluster.folder
        self.key = (cluster.folder / "key").read_text().strip().encode()
        config = cluster.layout.config.read_text()
        self.controller = re.findall(r'listen_addr = "([^"]+)"', config)[0]
        self._ports = {f"node{n + 1}": port for n, port in enumerate(cluster.layout.nodes.values())}

    def _metadata(self, token: str) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {token}")]

    def as_controller(self) -> list[tuple[str, str]]:
        """Metadata of a call from the controller."""
        return self._metadata(mint.mint_controller(self.key, time.time(), cluster="local"))

    def as_node(self, node: str) -> list[tuple[str, str]]:
        """Metadata of a call from a node's agent, with the secret that only that agent has."""
        file = self._folder / "state" / f"spurd-{node}" / "runtime" / "node.json"
        holder = json.loads(file.read_text())["holder"] if file.exists() else ""
        return self._metadata(mint.mint_node(self.key, node, time.time(), cluster="local", holder=holder))

    def as_user(self, name: str) -> list[tuple[str, str]]:
        """Metadata of a call from a user."""
        return self._metadata(mint.mint_user(self.key, name, None, 600.0, time.time(), cluster="local"))

    @contextlib.contextmanager
    def agent(self, node: str = "node1") -> Iterator[agent_pb2_grpc.SlurmAgentStub]:
        """The agent of a node."""
        with grpc.insecure_channel(f"127.0.0.1:{self._ports[node]}") as channel:
            yield agent_pb2_grpc.SlurmAgentStub(channel)

    @contextlib.contextmanager
    def ctl(self) -> Iterator[controller_pb2_grpc.SlurmControllerStub]:
        """The controller."""
        with grpc.insecure_channel(self.controller) as channel:
            yield controller_pb2_grpc.SlurmControllerStub(channel)

    def cancel(
        self, rid: Rid, term: int = 1 << 40, node: str = "node1", **how: Any
    ) -> agent_pb2.AgentCancelJobResponse:
        """What a controller sends to end or signal a run, whatever the controller thinks.

        Args:
            term: with more than its own the agent takes nothing more from the real controller.
        """
        request = agent_pb2.AgentCancelJobRequest(rid=rid_message(rid), term=term, **how)
        with self.agent(node) as stub:
            return stub.CancelJob(request, metadata=self.as_controller(), timeout=20)

    def suspend(self, rid: Rid, term: int = 1 << 40) -> agent_pb2.AgentSuspendJobResponse:
        """What a controller sends to suspend a run."""
        request = agent_pb2.AgentSuspendJobRequest(rid=rid_message(rid), term=term)
        with self.agent() as stub:
            return stub.SuspendJob(request, metadata=self.as_controller(), timeout=20)

    def beat(self, node: str, boot_id: str, live: list[Rid]) -> None:
        """A heartbeat of that node's that names these runs as alive."""
        held = [pb.HeldStep(rid=rid_message(rid), state="live") for rid in live]
        request = pb.HeartbeatRequest(node=node, boot_id=boot_id, has_snapshot=True, held=held)
        with self.ctl() as stub:
            stub.Heartbeat(request, metadata=self.as_node(node), timeout=20)

    def report(self, node: str, rid: Rid, code: int) -> int:
        """A completion that the node's agent reports; the verdict."""
        now = time.time()
        request = pb.ReportJobStatusRequest(
            rid=rid_message(rid),
            node=node,
            exit=common_pb2.ExitStatus(code=code),
            started_at=now - 1,
            ended_at=now,
        )
        with self.ctl() as stub:
            return int(stub.ReportJobStatus(request, metadata=self.as_node(node), timeout=20).verdict)

    def submit(self, user: str, script: str, **fields: Any) -> int:
        """A job of another user; its id."""
        spec = common_pb2.JobSpec(
            name="job",
            script=script.encode(),
            work_dir="/tmp",
            stdout_path="/dev/null",
            environment=[b"PATH=/usr/local/bin:/usr/bin:/bin"],
            **fields,
        )
        with self.ctl() as stub:
            request = pb.SubmitJobRequest(spec=spec)
            return int(stub.SubmitJob(request, metadata=self.as_user(user), timeout=20).job_id)


def stranger() -> pwd.struct_passwd:
    """An account that is neither ours nor `nobody`'s, and that owns no process."""
    for name in ("games", "news", "uucp", "backup"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise AssertionError("no account to act as")


class SmallDisk:
    """A file system of its own at `path`, with what was there, that can be filled and emptied (root only).

    An agent that had registered before keeps its name only with its state.
    """

    def __init__(self, path: Path, size: str = "4m") -> None:
        self.path = path
        before = path.rename(path.with_name(f"{path.name}-before"))
        path.mkdir(mode=0o700)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "spurtest", str(path)], check=True
        )
        subprocess.run(["cp", "-a", f"{before}/.", str(path)], check=True)
        shutil.rmtree(before)

    def fill(self) -> None:
        """Until nothing more fits."""
        fd = os.open(self.path / "ballast", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(fd, b"x" * size)
        os.close(fd)

    def free(self) -> None:
        """Make room again."""
        (self.path / "ballast").unlink()

    def gone(self) -> None:
        """Unmount."""
        subprocess.run(["umount", "-l", str(self.path)], check=False)
