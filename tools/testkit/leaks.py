"""At the end of a session nothing of it is left: no process of ours, no cgroup.

A process belongs to the session when it inherited the session's mark in its environment, or when its command
line or working directory lies in the session's temporary folder (jobs get an environment of their own).
Leftovers fail the session, are named, and are then ended.
"""

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

MARK = "SPUR_TEST_SESSION"
#: What is still ending when the last test returns gets this long, in seconds.
PATIENCE = float(os.environ.get("SPUR_TEST_PATIENCE", "5"))
_PATTERNS = ("spurtest_*", "spur/job_*", "spur/stepd/*.*.*")

_state: dict[str, object] = {}


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    if _is_worker(config) or MARK in os.environ:  # a session inside a session is the outer one's business
        return
    os.environ[MARK] = f"{os.getpid()}-{time.time_ns()}"
    _state["mark"] = os.environ[MARK]
    _state["cgroups"] = cgroups()


def pytest_sessionfinish(session: pytest.Session) -> None:
    mark = _state.pop("mark", None)
    if not isinstance(mark, str):
        return
    folders = [str(f) for f in [_basetemp(session.config)] if f]
    deadline = time.monotonic() + PATIENCE
    while (left := processes(mark, folders)) and time.monotonic() < deadline:
        time.sleep(0.05)
    leaks = [f"process {pid}: {what}" for pid, what in left.items()]
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    before = _state.pop("cgroups", set())
    # Others may be at work on the same machine; only CI has it to itself.
    if os.environ.get("CI") == "true" and isinstance(before, set):
        leaks += [f"cgroup {path}" for path in sorted(cgroups() - before)]
    os.environ.pop(MARK, None)
    _state["leaks"] = leaks
    if leaks and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    leaks = _state.get("leaks")
    if isinstance(leaks, list) and leaks:
        terminalreporter.section("left behind by this session (a failure)", red=True)
        for line in leaks:
            terminalreporter.write_line(line)


def _basetemp(config: pytest.Config) -> Path | None:
    factory = getattr(config, "_tmp_path_factory", None)
    found = getattr(factory, "_basetemp", None)
    return found if isinstance(found, Path) else None


class _Process(NamedTuple):
    """What /proc tells about one live process of ours."""

    parent: int
    command: str
    marked: bool


def processes(mark: str, folders: list[str]) -> dict[int, str]:
    """pid -> command line of every live process of the session, this one and its parents left out.

    What a process of the session has started belongs to it too, whatever it did to its environment.
    """
    everything = {pid: found for pid in _pids() if (found := _look(pid, mark, folders)) is not None}
    ours: set[int] = set()
    wave = {pid for pid, p in everything.items() if p.marked}
    while wave:
        ours |= wave
        wave = {pid for pid, p in everything.items() if p.parent in wave} - ours
    return {pid: everything[pid].command for pid in sorted(ours)}


def _pids() -> set[int]:
    return {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()} - _ancestors()


def _look(pid: int, mark: str, folders: list[str]) -> _Process | None:
    """One process; None when it is gone, a zombie, or somebody else's."""
    base = Path("/proc", str(pid))
    try:
        state, parent = (base / "stat").read_text().rpartition(")")[2].split()[:2]
        command = (base / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        environment = (base / "environ").read_bytes().split(b"\0")
        cwd = str((base / "cwd").readlink())
    except OSError:
        return None
    if state in "ZX":
        return None
    inside = any(folder in command or f"{cwd}/".startswith(f"{folder}/") for folder in folders)
    marked = f"{MARK}={mark}".encode() in environment or inside
    return _Process(int(parent), command or "(no command line)", marked)


def _ancestors() -> set[int]:
    chain, pid = set(), os.getpid()
    while pid > 0:
        chain.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return chain


def cgroups() -> set[str]:
    """Every cgroup of a job, a step or a test that this user made, in every hierarchy.

    Another user's tests may run beside these (tools/run_tests.py).
    """
    mounts = {
        fields[1]
        for line in Path("/proc/self/mounts").read_text().splitlines()
        if (fields := line.split())[2] in ("cgroup", "cgroup2")
    }
    found = {path for mount in mounts for p in _PATTERNS for path in Path(mount).glob(p)}
    return {str(path) for path in found if _is_mine(path)}


def _is_mine(path: Path) -> bool:
    try:
        return path.is_dir() and path.stat().st_uid == os.geteuid()
    except FileNotFoundError:  # it went while we looked
        return False
