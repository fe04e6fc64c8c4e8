"""A whole one-machine cluster from `spur up`, driven through the command line only."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent


def until(condition: Callable[[], Any], what: str, secs: float = 30.0) -> Any:
    """Ask again and again until `condition` gives something true."""
    deadline = time.monotonic() + secs
    pause = threading.Event()
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"after {secs} s still not: {what}")
        pause.wait(0.05)


class Cluster:
    """One running cluster in `folder`; commands run as a user's shell would run them."""

    def __init__(self, folder: Path, nodes: int, *options: str) -> None:
        self.folder = folder
        self.work = folder.parent / "work"
        self.work.mkdir(exist_ok=True)
        self.work.chmod(0o777)
        self.env = {
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "SPUR_CONF": str(folder / "spur.conf"),
        }
        self.ok("spur", "up", "--nodes", str(nodes), "--dir", str(folder), *options)

    def run(
        self, *argv: str, env: dict[str, str] | None = None, **how: Any
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        how.setdefault("cwd", self.work)
        return subprocess.run(
            argv, env={**self.env, **(env or {})}, capture_output=True, text=True, timeout=120, **how
        )

    def ok(self, *argv: str, **how: Any) -> str:
        """Run a command that must succeed; its stdout."""
        done = self.run(*argv, **how)
        assert done.returncode == 0, f"{argv}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def sbatch(self, *argv: str, **how: Any) -> str:
        """Submit; the job id."""
        return self.ok("sbatch", "--parsable", *argv, **how).strip()

    def state(self, job: str) -> str:
        """As `squeue` or, once it is gone from there, `sacct` tells it."""
        row = self.ok("sacct", "-j", job, "-X", "-n", "-P", "-o", "State").split("\n")[0]
        return row.split(" ")[0]

    def wait(self, job: str, *states: str, secs: float = 40.0) -> str:
        """Wait until the job is in one of `states`."""
        wanted = states or ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        return str(until(lambda: (now := self.state(job)) in wanted and now, f"job {job} in {wanted}", secs))

    def queue_state(self, job: str) -> str:
        """The compact state in the queue, empty when it is not listed."""
        done = self.run("squeue", "-h", "-t", "all", "-o", "%t", "-j", job)
        return done.stdout.strip()

    def history(self, job: str, fields: str, *options: str) -> list[list[str]]:
        """Rows of `sacct -P` split at the bars."""
        out = self.ok("sacct", "-j", job, "-n", "-P", "-o", fields, *options)
        return [line.split("|") for line in out.splitlines()]

    def pid(self, daemon: str) -> int:
        """Of `spurctld-1`, `spurd-node1`, ..."""
        return int((self.folder / "run" / f"{daemon}.pid").read_text())

    def kill(self, daemon: str) -> None:
        """SIGKILL, and wait until it is gone."""
        pid = self.pid(daemon)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid), f"{daemon} dead")

    def restart(self, daemon: str, *options: str) -> None:
        """`spur restart`: bring the daemon back, or kill and bring back."""
        self.ok("spur", "restart", daemon, "--dir", str(self.folder), *options)

    def idle(self) -> bool:
        """All nodes answer and hold nothing."""
        out = self.ok("sinfo", "-h", "-o", "%t %D")
        return bool(out) and all(line.split()[0] == "idle" for line in out.splitlines())

    until = staticmethod(until)

    def down(self) -> None:
        """Stop everything."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run("spur", "down", "--dir", str(self.folder), "--purge")


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(scope="module")
def make_cluster(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Cluster]:
    """Starts a cluster: number of nodes, options of `spur up`.  The caller takes it down."""
    return lambda nodes, *options: Cluster(open_folder(tmp_path_factory.mktemp("up")) / "c", nodes, *options)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two nodes for tests that kill nothing."""
    cluster = Cluster(open_folder(tmp_path_factory.mktemp("up")) / "c", 2, "--cpus", "4")
    yield cluster
    cluster.down()


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two nodes of the test's own."""
    cluster = Cluster(open_folder(tmp_path_factory.mktemp("up")) / "c", 2, "--cpus", "4")
    yield cluster
    cluster.down()


def open_folder(folder: Path) -> Path:
    """Let an ordinary user's jobs reach files below."""
    for part in (folder, folder.parent, folder.parent.parent):
        with contextlib.suppress(PermissionError):
            part.chmod(part.stat().st_mode | 0o755)
    return folder
