"""What a soak runs: jobs of every kind that write their own truth to disk; the judgement of what was told.

Truth lies in one folder, a file per thing, written by the processes themselves:

    JOB.RESTARTS.began               a line `PID NAME` when the script (or salloc's command) begins
    JOB.RESTARTS.code                the exit code with which it is about to end
    JOB.RESTARTS.K.rc                `EXIT WANTED TASKS` of its K-th srun; K.out and K.err: what that printed
    JOB.RESTARTS.STEP.RANK.began     the same of a task of a numbered step
    JOB.RESTARTS.STEP.RANK.code
    NAME.out, NAME.err               what the client NAME printed
"""

import contextlib
import os
import pty
import random
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from testkit.crash_cluster import BIN, CONTROLLER, CrashCluster

#: srun's exit code when the supervisor of its step was killed.
LOST = 137
LINES = 5

TASK = """#!/bin/sh
# SECONDS CODE: one rank of a step.
run={truth}/$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}
me=$run.$SLURM_STEP_ID.$SLURM_PROCID
[ "$SOAK_ALONE$SLURM_PROCID" = yes0 ] && echo $SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}.$$ >> {runs}
echo "$$ $SOAK_NAME" >> $me.began
for n in 1 2 3 4 5; do echo "$SLURM_PROCID:$n"; done
sleep $1
echo "$SLURM_PROCID:end"
echo $2 > $me.code
exit $2
"""
SCRIPT = """#!/bin/sh
# CODE [sleep SECONDS | step NODES TASKS SECONDS CODE]...: a batch script, or salloc's command.
run={truth}/$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}
echo $SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}.$$ >> {runs}
echo "$$ $SOAK_NAME" >> $run.began
code=$1 k=0
shift
while [ $# -gt 0 ]; do
    case $1 in
    sleep) sleep $2; shift 2;;
    step)
        srun -N $2 -n $3 {task} $4 $5 > $run.$k.out 2> $run.$k.err
        echo "$? $5 $3" > $run.$k.rc
        k=$((k + 1))
        shift 5;;
    esac
done
echo $code > $run.code
exit $code
"""


class Client(NamedTuple):
    """A command that stays with its job: srun, srun --pty, salloc."""

    name: str
    kind: str
    code: int
    tasks: int
    process: "subprocess.Popen[bytes]"


class Kill(NamedTuple):
    """A supervisor that was killed, and whether its exit was on record by then."""

    job: str
    restarts: int
    step_id: int
    node: str
    ended: bool


class Row(NamedTuple):
    """A row of the history."""

    state: str
    status: str
    restarts: int


class Workload:
    """Submits jobs, and judges what became of them.

    Attributes:
        batch: ids of the batch jobs that were taken.
        refused: submissions that were not, with what was said.
    """

    def __init__(self, cluster: CrashCluster, seed: int, longest: float) -> None:
        self.cluster = cluster
        self.truth = cluster.work / "truth"
        self.truth.mkdir(mode=0o777)
        self.truth.chmod(0o777)
        self.longest = longest
        self.batch: list[str] = []
        self.refused: list[str] = []
        self.clients: list[Client] = []
        self._chance = random.Random(seed)
        self._terminals: list[threading.Thread] = []
        self._task = self._program("task", TASK)
        self._script = self._program("script", SCRIPT)

    def _program(self, name: str, text: str) -> str:
        path = self.cluster.work / name
        path.write_text(
            text.format(truth=self.truth, runs=self.cluster.runs, task=self.cluster.work / "task")
        )
        path.chmod(0o755)
        return str(path)

    # -- submitting

    def plan(self, short: int, long: int) -> list[Callable[[], None]]:
        """What to submit, in order: the long ones early, each kind in its proportion."""
        shorts = _mix(
            short,
            {
                self.short: 60,
                self.short_wide: 8,
                self.stepping: 12,
                self.srun: 10,
                self.salloc: 7,
                self.terminal: 3,
            },
        )
        longs = _mix(long, {self.long: 7, self.long_stepping: 5, self.long_srun: 4, self.long_salloc: 4})
        self._chance.shuffle(shorts)
        self._chance.shuffle(longs)
        head = max(1, len(shorts) // 3)
        early = [*shorts[:head], *longs]
        self._chance.shuffle(early)
        return [*early, *shorts[head:]]

    def _code(self) -> int:
        return self._chance.choice((0, 0, 1, 3, 7, 42))

    def _secs(self, low: float, high: float) -> str:
        return f"{self._chance.uniform(low, high):.2f}"

    def _long_secs(self, part: float = 1.0) -> str:
        return self._secs(self.longest * 0.4 * part, self.longest * part)

    def short(self) -> None:
        """A batch job on one node."""
        self._sbatch(1, "sleep", self._chance.choice(("0", "0", self._secs(0.05, 2))))

    def short_wide(self) -> None:
        """A batch job on two or three nodes."""
        self._sbatch(self._chance.choice((2, 2, 3)), "sleep", self._secs(0, 3))

    def stepping(self) -> None:
        """A batch job on two nodes with steps on one and on both."""
        steps = [*self._step(1, 2, 0.2, 3), *self._step(2, 4, 0.2, 3)]
        self._sbatch(2, *steps)

    def long(self) -> None:
        """A batch job that lives long; one in four on two nodes."""
        self._sbatch(self._chance.choice((1, 1, 1, 2)), "sleep", self._long_secs())

    def long_stepping(self) -> None:
        """A batch job that lives long, with a long step and short ones."""
        words = ["sleep", self._long_secs(0.3), *self._step(2, 2, self.longest * 0.2, self.longest * 0.4)]
        for _ in range(3):
            words += [*self._step(self._chance.choice((1, 2)), 2, 0.1, 3), "sleep", self._secs(0.5, 2)]
        self._sbatch(2, *words)

    def _step(self, nodes: int, tasks: int, low: float, high: float) -> tuple[str, ...]:
        return ("step", str(nodes), str(tasks), self._secs(low, high), str(self._code()))

    def _sbatch(self, nodes: int, *words: str) -> None:
        argv = ("-N", str(nodes), "--ntasks-per-node=2", self._script, str(self._code()), *words)
        done = self.cluster.run("sbatch", "--parsable", "-o", "/dev/null", *argv)
        if done.returncode == 0:
            self.batch.append(done.stdout.strip())
        else:
            self.refused.append(f"sbatch {' '.join(argv)}: {done.stderr.strip()}")

    def srun(self) -> None:
        """A step with a job of its own, on one node or two."""
        self._srun(self._secs(0, 3))

    def long_srun(self) -> None:
        """The same, living long."""
        self._srun(self._long_secs(0.8))

    def _srun(self, secs: str) -> None:
        nodes = self._chance.choice((1, 2))
        code = self._code()
        argv = ("srun", "-N", str(nodes), "-n", str(2 * nodes), self._task, secs, str(code))
        self._client("srun", code, 2 * nodes, argv)

    def terminal(self) -> None:
        """A step with a terminal."""
        code = self._code()
        self._client("terminal", code, 1, ("srun", "--pty", self._task, self._secs(0.5, 4), str(code)))

    def salloc(self) -> None:
        """An allocation of two nodes with steps in it."""
        self._salloc(*self._step(2, 2, 0.5, 4), *self._step(1, 1, 0.1, 2))

    def long_salloc(self) -> None:
        """The same, living long."""
        self._salloc(*self._step(2, 4, self.longest * 0.3, self.longest * 0.6), *self._step(1, 1, 0.1, 2))

    def _salloc(self, *words: str) -> None:
        code = self._code()
        argv = ("salloc", "-N2", "--ntasks-per-node=2", self._script, str(code), *words)
        self._client("salloc", code, 0, argv)

    def _client(self, kind: str, code: int, tasks: int, argv: tuple[str, ...]) -> None:
        name = f"c{len(self.clients)}"
        alone = "yes" if kind != "salloc" else ""
        env = self.cluster.env | {"SOAK_NAME": name, "SOAK_ALONE": alone}
        command = [str(BIN / argv[0]), *argv[1:]]
        with (
            open(self.truth / f"{name}.out", "wb") as out,
            open(self.truth / f"{name}.err", "wb") as err,
        ):
            if kind == "terminal":
                master, slave = pty.openpty()
                child = subprocess.Popen(
                    command, env=env, cwd=self.cluster.work, stdin=slave, stdout=slave, stderr=err,
                    start_new_session=True,
                )  # fmt: skip
                os.close(slave)
                copier = threading.Thread(target=_copy, args=(master, self.truth / f"{name}.out"))
                copier.start()
                self._terminals.append(copier)
            else:
                child = subprocess.Popen(
                    command, env=env, cwd=self.cluster.work, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    start_new_session=True,
                )  # fmt: skip
        self.clients.append(Client(name, kind, code, tasks, child))

    # -- the end

    def wait_clients(self, secs: float) -> list[str]:
        """Wait until every client has ended; those that do not are killed and named."""
        deadline = time.monotonic() + secs
        late = []
        for client in self.clients:
            try:
                client.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(f"{client.kind} {client.name} does not end: {self.said(client)}")
                client.process.kill()
                client.process.wait()
        for copier in self._terminals:
            copier.join(10)
        return late

    def said(self, client: Client) -> str:
        """The end of what it wrote to stderr."""
        return (self.truth / f"{client.name}.err").read_text(errors="replace")[-600:]

    def judge(self, kills: list[Kill]) -> list[str]:
        """Everything that was told otherwise than it was, once settled.

        Args:
            kills: supervisors that were killed on purpose.
        """
        return [*self.refused, *Judgement(self, kills).faults()]


def _mix(count: int, weights: dict[Callable[[], None], int]) -> list[Callable[[], None]]:
    """`count` in the proportion of the weights, each at least once where that is possible."""
    total = sum(weights.values())
    found = [act for act, weight in weights.items() for _ in range(max(1, count * weight // total))]
    first = next(iter(weights))
    return (found + [first] * count)[:count]


def _copy(master: int, path: Path) -> None:
    """Everything that comes from a terminal."""
    with open(path, "wb") as out, contextlib.suppress(OSError):
        while data := os.read(master, 65536):
            out.write(data)
    os.close(master)


class Judgement:
    """Truth beside what history and clients were told.

    The outcome of a killed supervisor: batch step (companions too) = the job is queued again; numbered step =
    its srun ends 137 and its script goes on; step 0 of a stand-alone srun = FAILED 0:9; extern = nothing.
    """

    def __init__(self, work: Workload, kills: list[Kill]) -> None:
        self._work = work
        self._truth = work.truth
        self._codes: dict[str, int] = {}
        self._began: dict[str, list[str]] = {}
        for path in self._truth.iterdir():
            if path.suffix == ".code":
                self._codes[path.stem] = int(path.read_text() or -1)
            elif path.suffix == ".began":
                self._began[path.stem] = path.read_text().splitlines()
        lost = [kill for kill in kills if not kill.ended]
        self._lost_runs = {(kill.job, kill.restarts) for kill in lost if _is_batch(kill.step_id)}
        self._lost_steps = {f"{kill.job}.{kill.restarts}.{kill.step_id}" for kill in lost}
        self._failed_launches: dict[str, set[str]] = {}
        for job, attempt in re.findall(
            r"launch_failed job=(\d+) attempt=(\d+)", work.cluster.log(CONTROLLER).read_text()
        ):
            self._failed_launches.setdefault(job, set()).add(attempt)
        self._faults: list[str] = []
        self._jobs, self._steps = self._history()

    def _history(self) -> tuple[dict[str, Row], dict[str, Row]]:
        out = self._work.cluster.ok(
            "sacct", "-a", "-n", "-P", "-S", "now-1days", "-o", "JobID,State,ExitCode,Restarts"
        )
        jobs: dict[str, Row] = {}
        steps: dict[str, Row] = {}
        for line in out.splitlines():
            name, state, status, restarts = line.split("|")
            into = steps if "." in name else jobs
            if name in into:
                self._faults.append(f"{name} is twice in the history")
            into[name] = Row(state.split(" ")[0], status, int(restarts or 0))
        return jobs, steps

    def faults(self) -> list[str]:
        """Everything."""
        for name, lines in self._began.items():
            # One that was killed between opening this file and writing to it has left nothing in it.
            if len(lines) > 1 or (not lines and name in self._codes):
                self._faults.append(f"{name} began {len(lines)} times")
        by_client = {line.split(" ")[1]: name for name, lines in self._began.items() for line in lines}
        jobs = dict.fromkeys(self._work.batch, "batch")
        for client in self._work.clients:
            began = by_client.get(client.name)
            if began is None:
                self._faults.append(f"{client.kind} {client.name} never ran: {self._work.said(client)}")
                continue
            job = began.split(".")[0]
            jobs[job] = client.kind
            self._client(client, job)
        for job, kind in jobs.items():
            self._job(job, kind)
        self._faults += [f"job {job} is in the history, nobody's" for job in self._jobs.keys() - jobs.keys()]
        for path in self._truth.glob("*.rc"):
            self._srun(path)
        return self._faults

    def _expect(self, what: str, told: object, truth: object) -> None:
        if told != truth:
            self._faults.append(f"{what}: told {told}, truth {truth}")

    def _job(self, job: str, kind: str) -> None:
        row = self._jobs.get(job)
        if row is None:
            self._faults.append(f"{kind} job {job} is not in the history")
            return
        alone = kind not in ("batch", "salloc")
        if alone and f"{job}.{row.restarts}.0" in self._lost_steps:
            self._expect(f"{kind} job {job}", row[:2], ("FAILED", "0:9"))
            return
        lost = {restarts for name, restarts in self._lost_runs if name == job}
        # When the script has ended already, its end may be on record: what only held its nodes is not missed.
        missed = {restarts for restarts in lost if f"{job}.{restarts}" not in self._codes}
        # A launch that an agent died in is tried again as another attempt; on its other nodes it had begun.
        least, most = len(missed), len(lost) + len(self._failed_launches.get(job, ()))
        if not least <= row.restarts <= most:
            self._faults.append(f"restarts of {kind} job {job}: told {row.restarts}, truth {least} to {most}")
        # The command of a salloc runs once, however often the launch of its allocation was tried.
        run = f"{job}.0" if kind == "salloc" else f"{job}.{row.restarts}"
        name = f"{run}.0.0" if alone else run
        code = self._codes.get(name)
        if code is None:
            self._faults.append(f"{kind} job {job} ended {row}, {name} never did")
            return
        told = (row.state, row.status)
        self._expect(f"{kind} job {job}", told, ("FAILED" if code else "COMPLETED", f"{code}:0"))

    def _client(self, client: Client, job: str) -> None:
        row = self._jobs.get(job)
        # The step of a srun that was launched again carries the number of its restarts.
        step = f"{job}.{row.restarts if row is not None and client.kind != 'salloc' else 0}.0"
        lost = client.kind != "salloc" and step in self._lost_steps
        code = LOST if lost else client.code
        if client.process.returncode != code:
            said = self._work.said(client)
            told = f"exited {client.process.returncode}, not {code}: {said}"
            self._faults.append(f"{client.kind} {client.name} (job {job}) {told}")
        if client.tasks:
            self._output(step, f"{client.name}.out", client.tasks, lost)

    def _srun(self, path: Path) -> None:
        """One srun inside a script: its exit code, its step's row, its output."""
        job, restarts, number = path.stem.split(".")
        row = self._jobs.get(job)
        if (job, int(restarts)) in self._lost_runs or (row is not None and int(restarts) < row.restarts):
            return  # its script was killed with it, or just before it
        told, wanted, tasks = path.read_text().split()
        step = f"{job}.{restarts}.{number}"
        lost = step in self._lost_steps
        if int(told) != (LOST if lost else int(wanted)):
            said = path.with_suffix(".err").read_text(errors="replace")[-600:]
            self._faults.append(f"srun {step} exited {told}, not {LOST if lost else wanted}: {said}")
        self._output(step, f"{step}.out", int(tasks), lost)
        row = self._steps.get(f"{job}.{number}")
        if row is None:
            self._faults.append(f"step {step} is not in the history")
            return
        truth = ("FAILED", "0:9") if lost else ("FAILED" if wanted != "0" else "COMPLETED", f"{wanted}:0")
        self._expect(f"step {step}", (row.state, row.status), truth)

    def _output(self, step: str, name: str, tasks: int, lost: bool) -> None:
        """Every rank's lines in their order, each once; of a lost step what came before its end."""
        text = (self._truth / name).read_text(errors="replace")
        lines = re.findall(r"(\d+):(\d+|end)", text)
        order = [*map(str, range(1, LINES + 1)), "end"]
        got: dict[str, list[str]] = {}
        for rank, word in lines:
            got.setdefault(rank, []).append(word)
        for rank in map(str, range(tasks)):
            mine = got.get(rank, [])
            if (mine != order[: len(mine)]) if lost else (mine != order):
                self._faults.append(f"output of {step} rank {rank} in {name}: {mine}")
            if not lost and f"{step}.{rank}" not in self._codes:
                self._faults.append(f"{step} rank {rank} never ended")

    def summary(self) -> str:
        """Numbers for the report."""
        states = Counter(row.state for row in self._jobs.values())
        told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        again = sum(map(len, self._failed_launches.values()))
        return f"{len(self._jobs)} jobs ({told}), {len(self._steps)} steps, {again} launches tried again"


def _is_batch(step_id: int) -> bool:
    return step_id == 4294967291
