"""Steps of every kind for the matrix tests: made by real clients, held at a gate, looked at from outside.

| kind  | the step is                                            | who waits for it                 |
|-------|--------------------------------------------------------|----------------------------------|
| one   | step 0 of a batch job on one node                      | the srun in the script           |
| two   | step 0 of a batch job on two nodes, a task on each     | the srun in the script           |
| alloc | step 0 of a `salloc --no-shell` allocation, two nodes  | an srun outside                  |
| pty   | step 0 of a `salloc --no-shell` allocation             | an `srun --pty` on a terminal    |
| more  | a further step of a job that is there, one CPU         | an srun outside                  |
"""

import contextlib
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matrix_kit import Held
from testkit.crash_cluster import CrashCluster, alive, supervisor_in, until

from spur_core.ids import STEP_EXTERN

KINDS = ("one", "two", "alloc", "pty")
#: Agents of a cluster of two.
AGENTS = ("spurd-node1", "spurd-node2")


class SharedCluster(CrashCluster):
    """A cluster that remembers which of its daemons have fault points."""

    def __init__(self, folder: Path, **how: Any) -> None:
        super().__init__(folder, **how)
        self._armed: set[str] = set()

    def _launch(self, name: str, faults: str, prefix: Sequence[str]) -> None:
        super()._launch(name, faults, prefix)
        (self._armed.add if faults else self._armed.discard)(name)

    def armed(self) -> list[str]:
        """Daemons that were last started with fault points."""
        return sorted(self._armed)


class Client:
    """A command of a cluster's in the background.

    Args:
        terminal: its three streams are a terminal.
    """

    def __init__(self, cluster: CrashCluster, *words: str, terminal: bool = False) -> None:
        self.words = words
        self._text = b""
        self._master = -1
        self.out = cluster.work / f"client-{time.monotonic_ns()}"
        if terminal:
            self._master, slave = pty.openpty()
            streams: dict[str, Any] = {"stdin": slave, "stdout": slave, "stderr": slave}
        else:
            slave = os.open(self.out, os.O_WRONLY | os.O_CREAT, 0o666)
            streams = {"stdin": subprocess.DEVNULL, "stdout": slave, "stderr": slave}
        self.child = subprocess.Popen(words, env=cluster.env, cwd=cluster.work, **streams)
        os.close(slave)

    @property
    def pid(self) -> int:
        return self.child.pid

    def text(self) -> str:
        """What it has said so far."""
        if self._master < 0:
            return self.out.read_text(errors="replace")
        with contextlib.suppress(OSError):
            while select.select([self._master], [], [], 0)[0] and (more := os.read(self._master, 65536)):
                self._text += more
        return self._text.decode(errors="replace")

    def code(self, secs: float = 60.0) -> int:
        """Its exit code, once it has ended."""
        # A full terminal would block it, so what it says is taken away meanwhile.
        until(lambda: (self.text(), self.child.poll())[1] is not None, f"{self.words[0]} has ended", secs)
        return int(self.child.returncode)

    def type(self, text: str) -> None:
        """On its terminal."""
        os.write(self._master, text.encode())

    def gone(self) -> None:
        """End it."""
        self.child.kill()
        self.child.wait()
        if self._master >= 0:
            os.close(self._master)


class Step:
    """A step of one of the KINDS, held at a gate.

    Args:
        before: what its tasks do first; `last`: instead of `exit CODE` once they may go on.
        script: what a batch script does before it makes the step.
        job, number: of a step of the kind "more".
    """

    def __init__(
        self,
        cluster: CrashCluster,
        kind: str,
        code: int = 5,
        last: str = "",
        before: str = "",
        script: str = "",
        job: str = "",
        number: int = 0,
    ) -> None:
        self.cluster, self.kind, self._script = cluster, kind, script
        self.job, self.number = job, number
        base = cluster.work / f"step-{kind}-{time.monotonic_ns()}"
        self.gate, self._notes, self._told = (Path(f"{base}.{part}") for part in ("gate", "notes", "code"))
        self._notes.touch()
        self._notes.chmod(0o666)
        self.body = "; ".join(
            filter(
                None,
                (
                    before,
                    f"echo $SLURM_STEP_ID.$SLURM_PROCID.$$ >> {self._notes}",
                    f"while [ ! -e {self.gate} ]; do sleep 0.05; done",
                    "echo through-$SLURM_PROCID",
                    last or f"exit {code}",
                ),
            )
        )
        self.nodes = 2 if kind in ("two", "alloc") else 1
        self.held: Held | None = None
        self.client: Client | None = None
        self.out = Path(f"{base}.out")

    # -- making it

    def prepare(self, *options: str) -> "Step":
        """The allocation, for kinds whose step is made from outside."""
        if self.kind in ("alloc", "pty"):
            self.job = allocate(self.cluster, self.nodes, *options)
        return self

    def begin(self, *options: str) -> "Step":
        """The step, or the batch job that makes it."""
        srun = ["srun", f"-N{self.nodes}", f"-n{self.nodes}"]
        command = ["sh", "-c", self.body]
        if self.kind in ("one", "two"):
            words = shlex.join([*srun, *command])
            step = f"{words} > {self.out} 2>&1; echo $? > {self._told}.new; mv {self._told}.new {self._told}"
            tasks = f"-n{self.nodes}"
            before = "; ".join(filter(None, (self._script, step)))
            self.held = Held(self.cluster, f"-N{self.nodes}", tasks, *options, before=before)
            self.job = self.held.job
        elif self.kind == "more":
            words = [*srun, "--exact", f"--jobid={self.job}", *options, *command]
            self.client = Client(self.cluster, *words)
        elif self.kind == "alloc":
            self.client = Client(self.cluster, *srun, f"--jobid={self.job}", *command)
        else:
            words = [*srun, f"--jobid={self.job}", "--pty", *command]
            self.client = Client(self.cluster, *words, terminal=True)
        return self

    def runs(self) -> "Step":
        """Wait until all its tasks go and the controller says so."""
        try:
            until(lambda: len(self.tasks()) == self.nodes, f"{self.kind}: all tasks run")
            until(lambda: self.id in self.cluster.ok("squeue", "-hs", "-o", "%i").split(), "it is listed")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None
        return self

    # -- looking at it

    @property
    def id(self) -> str:
        """As users name it."""
        return f"{self.job}.{self.number}"

    def tasks(self) -> dict[int, int]:
        """rank -> pid of those that have begun."""
        words = [line.split(".") for line in self._notes.read_text().split()]
        assert len({rank for _, rank, _ in words}) == len(words), f"a rank ran twice: {words}"
        return {int(rank): int(pid) for _, rank, pid in words}

    def sessions(self, attempt: int = 1, step: int | None = None) -> list[Path]:
        """Its directories, in the order of the nodes; with `step` those of another step of its job."""
        name = f"{self.job}.{attempt}.{self.number if step is None else step}"
        paths = [self.cluster.session(agent, name) for agent in self.cluster.agents]
        return [path for path in paths if path.exists()]

    def supervisors(self, step: int | None = None) -> list[int]:
        """Of its sessions, or of another step's of its job."""
        return [pid for path in self.sessions(step=step) if (pid := supervisor_in(path)) is not None]

    def said(self) -> str:
        """What its client has said."""
        if self.client is not None:
            return self.client.text()
        return self.out.read_text(errors="replace") if self.out.exists() else ""

    def client_alive(self) -> bool:
        """Whether its client waits for it."""
        return self.client.child.poll() is None if self.client is not None else not self._told.exists()

    def status(self) -> int:
        """Its client's exit code, once that has ended."""
        if self.client is not None:
            return self.client.code()
        try:
            until(self._told.exists, f"the srun of step {self.id} has ended")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None
        return int(self._told.read_text())

    def history(self) -> tuple[str, str]:
        """(state, exit) of the step, as `sacct` tells them."""
        return history(self.cluster, self.id)

    def forget(self) -> None:
        """What the tasks of this attempt have noted; the next one's are looked for from now on."""
        self._notes.write_text("")

    # -- ending it

    def open(self) -> None:
        """Let its tasks go on to their end."""
        self.gate.touch()

    def close(self) -> None:
        """End the job that it belonged to; a batch script ends by itself, with its own code."""
        if self.held is not None:
            self.held.open()
        else:
            self.cluster.ok("scancel", self.job)

    def job_goes_on(self) -> None:
        """The job is none the worse for what has happened to the step: more can be done in it."""
        if self.held is not None:
            assert self.held.state() == "RUNNING"
            assert alive(self.held.shell())
            assert self.cluster.runs_of(self.job) == 1
        else:
            assert self.cluster.state_or_nothing(self.job) == "RUNNING"
            assert self.cluster.ok("srun", f"--jobid={self.job}", "-N1", "-n1", "echo", "more") == "more\n"

    def ended(self) -> None:
        """Once it has left the queue: the job has ended as it should."""
        (row,) = [row for row in self.cluster.rows() if row[0] == self.job]
        if self.held is not None:
            assert row == (self.job, "FAILED", f"{self.held.code}:0")
            assert self.cluster.runs_of(self.job) == 1
        else:
            assert row[1] == "CANCELLED"

    def gone(self) -> None:
        """Leave no client."""
        if self.client is not None:
            self.client.gone()


def allocate(cluster: CrashCluster, nodes: int, *options: str) -> str:
    """A `salloc --no-shell` allocation; its job."""
    done = cluster.run("salloc", "--no-shell", f"-N{nodes}", f"-n{nodes}", *options)
    granted = re.search(r"Granted job allocation (\d+)", done.stderr)
    assert granted, done.stderr
    return granted[1]


def history(cluster: CrashCluster, step: str) -> tuple[str, str]:
    """(state, exit) of a step in the accounting, once it is there."""

    def look() -> tuple[str, str] | None:
        out = cluster.ok("sacct", "-j", step, "-n", "-P", "-o", "JobID,State,ExitCode")
        rows = [line.split("|") for line in out.splitlines()]
        found = [row for row in rows if row[0] == step and row[1] != "RUNNING"]
        assert len(found) < 2, found
        return (found[0][1].split(" ")[0], found[0][2]) if found else None

    told: tuple[str, str] = until(look, f"step {step} is in the history")
    return told


def extern_of(step: Step) -> list[int]:
    """Supervisors of the allocation's extern step."""
    return step.supervisors(STEP_EXTERN)


def kill_agents(cluster: CrashCluster, how: signal.Signals = signal.SIGKILL) -> None:
    """All agents, and wait until they are gone."""
    for agent in cluster.agents:
        os.kill(cluster.pid(agent), how)
    until(lambda: not any(cluster.running(agent) for agent in cluster.agents), "the agents are gone")


def start_agents(cluster: CrashCluster, **how: Any) -> None:
    """All agents."""
    for agent in cluster.agents:
        cluster.start(agent, **how)
    for agent in cluster.agents:
        until(lambda agent=agent: cluster.ready(agent), f"{agent} is ready")  # type: ignore[misc]


def restart_agents(cluster: CrashCluster, faults: str = "") -> None:
    """Killed, and started again with those fault points."""
    kill_agents(cluster)
    start_agents(cluster, faults=faults)


def over(cluster: CrashCluster, steps: Sequence[Step]) -> None:
    """End their jobs; each must end as it should.

    That nothing is left of them is looked at once, when the cluster is ended: supervisors of steps whose
    output was read stay some seconds longer.
    """
    for one in steps:
        one.close()
    until(lambda: not cluster.queued(), "the queue is empty")
    for one in steps:
        one.ended()
