"""Starting, finding and stopping the daemons of a one-machine cluster.

A daemon is known by its pid file, and believed to be that process only while the process's command line
names this cluster's configuration: a pid alone may meanwhile be somebody else's.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spur_cli.cluster.home import Cluster
from spur_core.errors import RequestError

READY_SECS = 30.0
STOP_SECS = 8.0
_POLL_SECS = 0.02
#: The shell's own credentials and settings for other clusters are not the daemons'.
_NOT_FOR_DAEMONS = (
    "SPUR_AUTH_TOKEN",
    "SLURM_JWT",
    "SPUR_CONTROLLER_ADDR",
    "SPUR_STEPD_STATE_DIR",
    "SPUR_LOG",
)


def program(name: str) -> str:
    """The path of one of our programs: beside the interpreter, else on PATH.

    Raises:
        RequestError: it is not installed.
    """
    for folder in (Path(sys.executable).parent, Path(sys.prefix) / "bin"):
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        wheel = {"spurctld": "spur-ctld", "spurd": "spur-agent", "spurstepd": "spur-stepd"}[name]
        raise RequestError(f"{name} is not installed; run pip install {wheel}")
    return found


def pid_of(cluster: Cluster, name: str) -> int | None:
    """The pid of the running daemon `name`, None when it does not run."""
    try:
        pid = int((cluster.root / "run" / f"{name}.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return None
    ours = os.fsencode(cluster.config) in words and os.fsencode(cluster.root / "state" / name) in words
    return pid if ours and state != "Z" else None


class Starting(NamedTuple):
    """A daemon on its way; `said`: length of its log before."""

    name: str
    child: "subprocess.Popen[bytes]"
    ready: Path
    log: Path
    said: int


def start(cluster: Cluster, name: str) -> int:
    """Start the daemon and wait for its READY line; its pid.

    Raises:
        RequestError: it ended, or did not get ready in time; the text quotes its last words.
    """
    return _wait_ready(_launch(cluster, name))


def start_together(cluster: Cluster, names: list[str]) -> None:
    """Start several daemons at the same time: some may not get ready without the others.

    Raises:
        RequestError: as for `start`; the others are left as they are.
    """
    for one in [_launch(cluster, name) for name in names]:
        _wait_ready(one)


def _launch(cluster: Cluster, name: str) -> Starting:
    words = cluster.command(name)
    path = program(words[0])
    env = {key: value for key, value in os.environ.items() if key not in _NOT_FOR_DAEMONS}
    env["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    ready = cluster.root / "run" / f"{name}.ready"
    log = cluster.root / "log" / f"{name}.log"
    size = log.stat().st_size if log.exists() else 0
    with open(ready, "wb") as out, open(log, "ab") as err:
        child = subprocess.Popen(
            [path, *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=env,
            cwd=cluster.root,
            start_new_session=True,
        )
    (cluster.root / "run" / f"{name}.pid").write_text(f"{child.pid}\n")
    return Starting(name, child, ready, log, size)


def _wait_ready(one: Starting) -> int:
    name, child, ready, log, size = one
    deadline = time.monotonic() + READY_SECS
    while b"READY " not in ready.read_bytes():
        code = child.poll()
        if code is not None:
            raise RequestError(f"{name} ended with code {code}: {_last_line(log, size)}")
        if time.monotonic() > deadline:
            child.kill()
            child.wait()
            raise RequestError(f"{name} was not ready within {READY_SECS:g} s: {_last_line(log, size)}")
        time.sleep(_POLL_SECS)
    # The daemon outlives us: init will be its parent, so it is nobody's business to wait for it here.
    child.returncode = 0
    return child.pid


def _last_line(log: Path, since: int) -> str:
    """What the daemon said last, from byte `since` of its log."""
    with open(log, "rb") as file:
        file.seek(since)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"see {log}"


def signal_and_wait(pid: int, number: int, alive: Callable[[], bool], seconds: float) -> bool:
    """Send a signal and wait until `alive` says no; whether it did in time."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    deadline = time.monotonic() + seconds
    while alive():
        _reap(pid)
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECS)
    _reap(pid)
    return True


def _reap(pid: int) -> None:
    """Collect the daemon when it happens to be this process's own child."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def stop(cluster: Cluster, name: str, *, kill: bool = False) -> bool:
    """Stop the daemon: SIGTERM, SIGKILL after a while or at once with `kill`; whether it ran."""
    pid = pid_of(cluster, name)
    if pid is None:
        return False

    def alive() -> bool:
        return pid_of(cluster, name) == pid

    if kill or not signal_and_wait(pid, signal.SIGTERM, alive, STOP_SECS):
        signal_and_wait(pid, signal.SIGKILL, alive, STOP_SECS)
    return True


def stop_together(cluster: Cluster, names: list[str]) -> None:
    """Stop several daemons at the same time, so that none waits for another that goes next."""
    pids = {name: pid for name in names if (pid := pid_of(cluster, name)) is not None}
    for pid in pids.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    for name in pids:
        stop(cluster, name)


def strays(cluster: Cluster) -> list[int]:
    """Pids whose command line names this cluster's folder: spawners and supervisors left without an agent."""
    inside = os.fsencode(cluster.root) + b"/"
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        is_ours = any(word.endswith((b"spurstepd", b"spurd", b"spurctld")) for word in words[:4])
        if is_ours and any(inside in word for word in words):
            found.append(int(entry.name))
    return found
