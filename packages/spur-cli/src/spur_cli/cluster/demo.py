"""`spur demo`: real work on a throw-away cluster, a killed agent included, and its true history."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from spur_cli import dispatch
from spur_cli.cli_errors import CallFailed
from spur_cli.cluster import home, processes
from spur_cli.cluster.client import connect, environment, wait_for_nodes
from spur_cli.cluster.down import take_down
from spur_cli.cluster.home import Cluster
from spur_cli.cluster.up import start_all
from spur_cli.context import Context
from spur_cli.keys import own_options
from spur_cli.options.engine import Option, Table
from spur_core.errors import RequestError

STEP_SECS = 30.0
_POLL_SECS = 0.05
VICTIM = "spurd-node1"


class NotAsExpected(RequestError):
    """The cluster did something else than it should."""

    code = "not_as_expected"


def run(ctx: Context) -> int:
    """The command."""
    table = Table([Option("help", "h", help="print this text and exit")])
    words = own_options(ctx, table)
    if words is None:
        return 0
    if words.operands:
        raise ctx.stop(f"unexpected word {words.operands[0]}")
    previous = signal.signal(signal.SIGTERM, _interrupted)
    folder = Path(tempfile.mkdtemp(prefix="spur-demo-"))
    demo: Demo | None = None
    try:
        folder.chmod(0o755)
        demo = Demo(ctx, folder)
        demo.play()
    except RequestError as error:
        ctx.error(error.text)
        if demo is not None:
            demo.tell_logs()
        return 1
    except CallFailed as failure:
        ctx.error(failure.text)
        return 1
    finally:
        # Whatever happened, nothing is left behind; a second interrupt must not stop this.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if demo is not None:
            demo.clean_up()
        shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGTERM, previous)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    ctx.out("\nEverything was as expected.\n")
    return 0


def _interrupted(number: int, _frame: object) -> None:
    raise KeyboardInterrupt


class Demo:
    """One run of it."""

    def __init__(self, ctx: Context, folder: Path) -> None:
        self.ctx = ctx
        self.work = folder / "work"
        self.work.mkdir()
        self.cluster: Cluster = home.create(folder / "up", 2, 2, "")
        self.env = environment(ctx, self.cluster)
        self.transport = connect(ctx, self.cluster)
        self.expected: dict[str, str] = {}

    def play(self) -> None:
        """The whole programme.

        Raises:
            RequestError: something was not as expected.
        """
        self._title("A cluster of two nodes on this machine")
        start_all(self.ctx, self.cluster)
        self._command("sinfo")
        self._title("A batch job, a job array, and a job that fails")
        plain = self._submit("-J", "hello", "--wrap", 'echo "hello from $SLURMD_NODENAME, job $SLURM_JOB_ID"')
        array = self._submit(
            "-J", "sweep", "-a", "0-3%2", "--wrap", 'sleep 0.3; echo "task $SLURM_ARRAY_TASK_ID"'
        )
        failing = self._submit("-J", "failing", "--wrap", "echo about to fail; exit 3")
        self._command("squeue")
        self.expected[plain] = "COMPLETED|0:0"
        for index in range(4):
            self.expected[f"{array}_{index}"] = "COMPLETED|0:0"
        self.expected[failing] = "FAILED|3:0"
        self._until("the jobs end", lambda: not self._live())
        self._show(f"slurm-{plain}.out")
        self._survive()
        self._title("The history")
        self._command("sacct", "-D")
        self._check_history()

    def _survive(self) -> None:
        """Kill an agent under a running job and start it again."""
        self._title("An agent is killed under a running job, and started again")
        gate = self.work / "gate"
        body = 'echo "running as pid $$"; until [ -e gate ]; do sleep 0.1; done; echo "still pid $$"'
        job = self._submit("-J", "survivor", "-w", "node1", "-o", "survivor.out", "--wrap", body)
        self.expected[job] = "COMPLETED|0:0"
        output = self.work / "survivor.out"
        self._until("the job starts", lambda: output.exists() and b"\n" in output.read_bytes())
        pid = int(output.read_text().split()[-1])
        victim = processes.pid_of(self.cluster, VICTIM)
        if victim is None:
            raise NotAsExpected(f"{VICTIM} does not run")
        self.ctx.out(f"# {VICTIM} is pid {victim}, the job is pid {pid}\n$ kill -KILL {victim}\n")
        processes.stop(self.cluster, VICTIM, kill=True)
        if not _alive(pid):
            raise NotAsExpected(f"the job's process {pid} died with the agent")
        self.ctx.out(f"# the agent is gone, the job's pid {pid} is alive\n")
        again = processes.start(self.cluster, VICTIM)
        wait_for_nodes(self.transport, self.cluster, STEP_SECS)
        self.ctx.out(f"# the agent is back as pid {again}\n")
        self._command("squeue")
        gate.touch()
        self._until("the job ends", lambda: not self._live())
        self._show("survivor.out")
        lines = output.read_text().splitlines()
        if lines != [f"running as pid {pid}", f"still pid {pid}"]:
            raise NotAsExpected(f"the job printed {lines}, so it did not run through once")

    def _check_history(self) -> None:
        """Compare the history with what must have happened."""
        text = self._quiet("sacct", "-X", "-n", "-P", "-D", "-o", "JobID,State,ExitCode")
        found: dict[str, str] = {}
        for line in text.splitlines():
            job, _, rest = line.partition("|")
            if job in found:
                raise NotAsExpected(f"job {job} has two rows, so it ran twice")
            found[job] = rest
        for job, wanted in self.expected.items():
            if found.get(job) != wanted:
                raise NotAsExpected(f"job {job}: history says {found.get(job, 'nothing')}, expected {wanted}")
        more = sorted(set(found) - set(self.expected))
        if more:
            raise NotAsExpected(f"history has jobs nobody submitted: {', '.join(more)}")

    def clean_up(self) -> None:
        """End and remove everything."""
        try:
            take_down(self.ctx, self.cluster, purge=True)
        except RequestError as error:
            self.ctx.error(error.text)

    def tell_logs(self) -> None:
        """The last lines of each daemon's log: the folder is about to go."""
        for name in self.cluster.daemons:
            log = self.cluster.root / "log" / f"{name}.log"
            if log.exists():
                for line in log.read_text(errors="replace").splitlines()[-5:]:
                    self.ctx.err(f"{name}: {line}\n")

    # Helpers.

    def _title(self, text: str) -> None:
        self.ctx.out(f"\n== {text}\n")

    def _command(self, name: str, *words: str) -> None:
        """Run a command before the user's eyes."""
        self.ctx.out(f"$ {' '.join([name, *words])}\n{self._quiet(name, *words)}")

    def _submit(self, *words: str) -> str:
        import shlex

        job = self._quiet("sbatch", "--parsable", *words).strip()
        self.ctx.out(f"$ sbatch {shlex.join(words)}\nSubmitted batch job {job}\n")
        return job

    def _quiet(self, name: str, *words: str) -> str:
        """The output of a command.

        Raises:
            NotAsExpected: it failed.
        """
        fd = os.memfd_create("output")
        try:
            code = dispatch.run(name, words, self.env, str(self.work), self.ctx.stdin, fd, self.ctx.stderr)
            text = os.pread(fd, 1 << 20, 0).decode("utf-8", "replace")
        finally:
            os.close(fd)
        if code != 0:
            raise NotAsExpected(f"{name} {' '.join(words)} ended with code {code}")
        return text

    def _show(self, file: str) -> None:
        path = self.work / file
        self._until(f"{file} is written", path.exists)
        self.ctx.out(f"$ cat {file}\n{path.read_text()}")

    def _live(self) -> bool:
        from spur_cli.queue import select

        return bool(select.fetch(self.transport, states=select.LIVE_STATES))

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STEP_SECS
        while not condition():
            if time.monotonic() > deadline:
                raise NotAsExpected(f"waited {STEP_SECS:g} s until {what}")
            time.sleep(_POLL_SECS)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"
