"""Terminals as people use them: a shell on a node in a real terminal; restarts, resizes, onlookers."""

import contextlib
import hashlib
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: A shell whose prompt tells it from the one that it was started in.
SHELL = "env PS1='there> ' bash --norc --noediting -i"


class Screen:
    """A terminal with a shell in it, driven through tmux.

    Args:
        folder: short, for the server's socket.
    """

    def __init__(self, cluster: Any, folder: Path, rows: int = 30, cols: int = 100) -> None:
        self._cluster = cluster
        self._tmux = ["tmux", "-S", str(folder / "s"), "-f", "/dev/null"]
        self._env = {**cluster.env, "TERM": "xterm", "SHELL": "/bin/sh"}
        self._size = ("-x", str(cols), "-y", str(rows))

    def open(self) -> None:
        """Until the shell's first prompt."""
        where = ("-c", str(self._cluster.work))
        self._run("new-session", "-d", *self._size, *where, SHELL.replace("there", "here"))
        self.wait_for(r"^here>$")

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], env=self._env, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, f"tmux {words}: {done.stderr}"
        return done.stdout

    def type(self, text: str) -> None:
        """A line, ended by the enter key."""
        self._run("send-keys", "-l", text)
        self._run("send-keys", "Enter")

    def key(self, name: str) -> None:
        """`C-c` and the like."""
        self._run("send-keys", name)

    def resize(self, rows: int, cols: int) -> None:
        self._run("resize-window", "-x", str(cols), "-y", str(rows))

    def text(self) -> str:
        """What is to be seen, without the blanks at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._run("capture-pane", "-p").rstrip().splitlines())

    def wait_for(self, pattern: str) -> None:
        """Wait until the screen shows it; `^` and `$` are the ends of lines."""
        try:
            self._cluster.until(lambda: re.search(pattern, self.text(), re.M), "it is on the screen")
        except pytest.fail.Exception:
            pytest.fail(f"no {pattern!r} on the screen:\n{self.text()}")

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], env=self._env, capture_output=True, timeout=30)


@pytest.fixture
def screens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Screen]]:
    made: list[Screen] = []

    def make(cluster: Any, **how: int) -> Screen:
        made.append(Screen(cluster, tmp_path_factory.mktemp("t"), **how))
        made[-1].open()
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start a command of a cluster's; none outlives the test."""
    made: list[subprocess.Popen[bytes]] = []

    def begin(cluster: Any, *words: str, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        made.append(subprocess.Popen(words, env=cluster.env, cwd=cluster.work, stdin=stdin, **pipes))
        return made[-1]

    yield begin
    for child in made:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def job_named(cluster: Any, name: str) -> str:
    """The id of the running job of that name."""
    return str(
        cluster.until(lambda: cluster.ok("squeue", "-h", "-t", "R", "-o", "%i", "-n", name).strip(), name)
    )


def open_shell(cluster: Any, screen: Screen, name: str) -> str:
    """`srun --pty` of a shell on node1; its job."""
    screen.type(f"srun -J {name} -w node1 --pty {SHELL}")
    screen.wait_for(r"^there>$")
    return job_named(cluster, name)


@pytest.mark.node
def test_a_shell_outlives_its_agent_and_its_onlookers(cluster: Any, screens: Any) -> None:
    screen = screens(cluster)
    job = open_shell(cluster, screen, "life")
    screen.type("x=kept; tty; stty size; echo step-$SLURM_STEP_ID-$SLURM_PTY_PORT")
    screen.wait_for(r"^/dev/pts/\d+\n30 100\nstep-0-")

    # The size follows, and keys that make signals reach the foreground of the other side.
    screen.resize(22, 77)
    screen.type("stty size")
    screen.wait_for(r"^22 77$")
    screen.type("echo one; sleep 1000")
    screen.wait_for(r"^one$")
    screen.key("C-c")
    screen.wait_for(r"\^C\n+there>$")
    screen.type("echo code-$?")
    screen.wait_for(r"^(there> )?code-130$")
    screen.type("echo two; sleep 1000")
    screen.wait_for(r"^two$")
    screen.key("C-z")
    screen.wait_for(r"Stopped +sleep 1000")
    screen.type("fg")
    screen.wait_for(r"^there> fg\n.*sleep 1000$")
    screen.key("C-c")
    screen.wait_for(r"\^C\n+there>$")

    # An onlooker sees what was printed, then what is; his keys are nobody's, and ^C lets him leave.
    onlooker = screens(cluster)
    onlooker.type(f"sattach --pty {job}.0")
    onlooker.wait_for(rf"another client gives StepId={job}.0 its input")
    onlooker.wait_for(r"^(there> )?code-130$")
    onlooker.type("echo never")
    screen.type("echo both-$((20+22))")
    screen.wait_for(r"^both-42$")
    onlooker.wait_for(r"^both-42$")
    onlooker.key("C-c")
    onlooker.wait_for(rf"detached from StepId={job}.0")
    onlooker.type("echo left-$?")
    onlooker.wait_for(r"^(here> )?left-130$")
    assert "never" not in screen.text()

    # The agent is killed; what is typed meanwhile arrives when another is there.
    cluster.kill("spurd-node1")
    screen.type("echo typed-$((1+1))-$x")
    cluster.restart("spurd-node1")
    screen.wait_for(r"^typed-2-kept$")
    screen.type("echo after-$((2+2))-$x")
    screen.wait_for(r"^after-4-kept$")

    screen.type("exit 5")
    screen.wait_for(r"srun: error: node1: task 0: Exited with exit code 5")
    screen.wait_for(r"^here>$")
    screen.type("echo ended-$?; stty -a | grep -o ' icanon'")
    screen.wait_for(r"^ended-5\n icanon$")
    assert cluster.history(job, "State,ExitCode", "-X") == [["FAILED", "5:0"]]


@pytest.mark.node
def test_a_lost_terminal_can_be_taken_up_again(shared: Any, screens: Any) -> None:
    """srun is killed: the shell waits for somebody, who then has the keyboard and the window."""
    first = screens(shared)
    job = open_shell(shared, first, "lost")
    first.type("y=mine; echo ready-$((3+4))")
    first.wait_for(r"^ready-7$")
    srun = shared.run("pgrep", "-f", "^[^ ]*python[^ ]* .*srun -J lost").stdout.split()
    assert len(srun) == 1
    os.kill(int(srun[0]), 9)
    second = screens(shared, rows=25, cols=90)
    second.type(f"sattach --pty {job}.0")
    second.wait_for(r"^ready-7$")
    second.wait_for(r"^there>$")
    second.type("echo $y; stty size")
    second.wait_for(r"^mine\n25 90$")
    second.type("exit 4")
    second.wait_for(r"sattach: error: node1: task 0: Exited with exit code 4")
    second.type("echo ended-$?; stty -a | grep -o ' icanon'")
    second.wait_for(r"^ended-4\n icanon$")


@pytest.mark.node
def test_exec_inside_a_job(cluster: Any, screens: Any, start: Any) -> None:
    gate = cluster.work / "gate"
    job = cluster.sbatch("-w", "node1", "--wrap", f"while [ ! -e {gate} ]; do sleep 0.1; done")
    cluster.wait(job, "RUNNING")
    inside = cluster.run(
        "spur",
        "exec",
        job,
        "-e",
        "OWN=1",
        "--",
        "sh",
        "-c",
        "cat; echo $SLURM_JOB_ID $OWN; exit 9",
        input="in\n",
    )
    assert (inside.returncode, inside.stdout) == (9, f"in\n{job} 1\n"), inside.stderr
    killed = cluster.run("spur", "exec", job, "sh", "-c", "kill -KILL $$")
    assert (killed.returncode, killed.stderr) == (137, "")
    assert cluster.run("spur", "exec", job, "no-such-program").returncode == 127

    # On a terminal.
    screen = screens(cluster)
    screen.type(f"spur exec {job} --pty {SHELL}")
    screen.wait_for(r"^there>$")
    screen.type("tty; stty size; echo $TERM-$SLURM_JOB_ID")
    screen.wait_for(rf"^/dev/pts/\d+\n30 100\n[a-z0-9-]+-{job}$")
    screen.type("exit 3")
    screen.wait_for(r"^here>$")
    screen.type("echo ended-$?")
    screen.wait_for(r"^ended-3$")

    # The agent's death ends the command, and that is told; the job goes on.
    mark = cluster.work / "began"
    command = f"echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 1000"
    child = start(cluster, "spur", "exec", job, "sh", "-c", command)
    cluster.until(mark.exists, "the command runs")
    cluster.kill("spurd-node1")
    _, said = child.communicate(timeout=30)
    assert child.returncode == 255
    assert b"spur exec: error: node1: the connection was lost" in said
    pid = int(mark.read_text())
    cluster.until(lambda: not Path(f"/proc/{pid}").exists(), "the command is ended")
    cluster.restart("spurd-node1")
    gate.touch()
    cluster.wait(job, "COMPLETED")
    assert cluster.history(job, "ExitCode", "-X") == [["0:0"]]


@pytest.mark.node
def test_onlookers_of_a_step_on_two_nodes(shared: Any, start: Any) -> None:
    gate = shared.work / "watched"
    loop = (
        f"echo early $SLURM_PROCID; while [ ! -e {gate} ]; do sleep 0.1; done;"
        " echo late $SLURM_PROCID; exit $SLURM_PROCID"
    )
    srun = start(shared, "srun", "-J", "watched", "-N2", "-n2", "sh", "-c", loop)
    job = job_named(shared, "watched")
    assert shared.ok("sattach", "--layout", f"{job}.0") == (
        "Job step layout:\n  2 tasks, 2 nodes (node[1-2])\n\n"
        "  Node 0 (node1), 1 task(s): 0\n  Node 1 (node2), 1 task(s): 1\n"
    )
    every = start(shared, "sattach", "-l", f"{job}.0")
    one = start(shared, "sattach", "--output-filter=1", f"{job}.0")
    assert sorted(every.stdout.readline() for _ in range(2)) == [b"0: early 0\n", b"1: early 1\n"]
    only = one.stdout.readline()
    gate.touch()
    out, err = every.communicate(timeout=60)
    assert sorted(out.splitlines()) == [b"0: late 0", b"1: late 1"]
    assert every.returncode == 1
    assert b"sattach: error: node2: task 1: Exited with exit code 1" in err
    assert only + one.communicate(timeout=60)[0] == b"early 1\nlate 1\n"
    mine, _ = srun.communicate(timeout=60)
    assert sorted(mine.splitlines()) == [b"early 0", b"early 1", b"late 0", b"late 1"]
    assert srun.returncode == 1


@pytest.mark.node
def test_input_is_byte_exact_under_restarts_of_the_agent(cluster: Any, start: Any) -> None:
    """Not a byte lost, doubled or out of its place, however often the way is cut in the middle."""
    data = os.urandom(24 << 20)
    target = cluster.work / "copy"
    command = f"cat > {target}; wc -c < {target}"
    srun = start(cluster, "srun", "-w", "node1", "sh", "-c", command, stdin=subprocess.PIPE)
    allowed = threading.Semaphore(0)

    def feed() -> None:
        for at in range(0, len(data), 1 << 20):
            allowed.acquire()
            srun.stdin.write(data[at : at + (1 << 20)])
        srun.stdin.close()

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    for turn in range(4):
        for _ in range(6):
            allowed.release()
        # Some of it has arrived, much of it is on the way.
        enough = (6 * turn + 2) << 20
        cluster.until(
            lambda enough=enough: target.exists() and target.stat().st_size > enough, "input arrives"
        )
        cluster.kill("spurd-node1")
        cluster.restart("spurd-node1")
    feeder.join(60)
    out = srun.stdout.read()
    assert srun.wait(60) == 0, srun.stderr.read()
    assert out.split() == [str(len(data)).encode()]
    assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(data).digest()
