"""What a supervisor costs: memory, the way to readiness in both spawn modes, an agent's restart over 200.

The first part drives the agent's own spawner code against the real program; the second needs a cluster with
room for 200 jobs.
"""

import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from spur_agent.spawner import ExecSource, Spawner, SupervisorSource, start_process
from spur_core.ids import STEP_BATCH, RuntimeId
from spur_core.linux import private_dir
from spur_proto_lite.launch_spec import LaunchSpec
from spur_proto_lite.paths import StatePaths

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
from testkit.supervisor_client import ControlClient

PROGRAM = str(Path(sys.executable).with_name("spurstepd"))
CGROUPS = f"spurbench_{os.getpid()}"
SESSIONS = 200


def _prepare(paths: StatePaths, job_id: int) -> LaunchSpec:
    spec = LaunchSpec(
        rid=RuntimeId(job_id, 1, STEP_BATCH),
        argv=("sleep", "1000"),
        env={"PATH": "/usr/bin:/bin"},
        work_dir="/",
        stdout_pattern="/dev/null",
        uid=os.getuid(),
        gid=os.getgid(),
        allow_root_jobs=True,
        cgroup_root=CGROUPS,
    )
    session = paths.session(spec.rid)
    os.close(private_dir.ensure(session.dir))
    Path(session.launch).write_bytes(spec.encode())
    Path(session.launch).chmod(0o600)
    return spec


async def _one(source: SupervisorSource, paths: StatePaths, spec: LaunchSpec) -> tuple[float, float, int]:
    """(seconds to readiness, seconds of `start`, pid)."""
    directory = paths.session(spec.rid).dir
    begun = time.perf_counter()
    found = await source.spawn(directory)
    while True:
        with contextlib.suppress(Exception), ControlClient(directory, spec.rid) as client:
            client.hello()
            break
        await asyncio.sleep(0.0005)
    ready = time.perf_counter()
    with ControlClient(directory, spec.rid) as client:
        answer = client.start()
    assert not answer.failure_kind, answer
    return ready - begun, time.perf_counter() - ready, found.pid


async def _mode(mode: str, count: int, pss: Callable[[int], float]) -> tuple[list[float], list[float], float]:
    """(seconds to readiness each, of start each, median PSS in MiB with all of them running)."""
    top = tempfile.mkdtemp(prefix="spurbench-", dir="/tmp")
    Path(top).chmod(0o755)
    paths = StatePaths(top)
    for folder in (paths.runtime, paths.sessions):
        os.close(private_dir.ensure(folder))
    first = start_process(PROGRAM, os.environ) if mode == "spawner" else None
    source: SupervisorSource = (
        Spawner(PROGRAM, CGROUPS, os.environ, first) if mode == "spawner" else ExecSource(PROGRAM, os.environ)
    )
    specs = [_prepare(paths, n) for n in range(1, count + 1)]
    found = []
    try:
        for spec in specs:
            found.append(await _one(source, paths, spec))
        size = statistics.median(pss(pid) for _, _, pid in found)
    finally:
        for spec in specs[: len(found)]:
            with ControlClient(paths.session(spec.rid).dir, spec.rid) as client:
                client.teardown("cancelled", 0)
                seq = client.wait(20).exit_seq
                client.ack(seq)
        await source.close()
        for _, _, pid in found:
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.01)
        shutil.rmtree(top, ignore_errors=True)
    return [ready for ready, _, _ in found], [start for _, start, _ in found], size


def _spread(seconds: list[float]) -> str:
    """min / p50 / p99: on a machine with other work only the first says something."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, round(len(ordered) * 0.99))]
    return f"{ordered[0] * 1e3:.1f} / {statistics.median(ordered) * 1e3:.1f} / {p99 * 1e3:.1f} ms"


#: What a supervisor needs of the standard library, and nothing of ours.
_STDLIB = (
    "import _ctypes, _functools, _json, _signal, _socket, _struct, errno, fcntl, gc, os, resource, select,"
    " termios"
)


def bare_rows(pss: Callable[[int], float], count: int = 40) -> list[tuple[str, str, str]]:
    """What an idle interpreter costs, started as `spurstepd` starts it: the floor of exec mode."""
    rows = []
    flags = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c"]
    for what, code in (("a bare interpreter", "pass"), ("… with what a supervisor needs of Python", _STDLIB)):
        took = []
        for _ in range(count):
            begun = time.perf_counter()
            subprocess.run([*flags, code], check=True)
            took.append(time.perf_counter() - begun)
        waiting = [
            subprocess.Popen(
                [*flags, f"{code}\nimport sys; sys.stdout.write('1'); sys.stdout.flush(); sys.stdin.read()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for _ in range(count)
        ]
        try:
            for process in waiting:
                assert process.stdout is not None
                process.stdout.read(1)
            size = statistics.median(pss(process.pid) for process in waiting)
        finally:
            for process in waiting:
                process.communicate()
        rows.append(
            (
                f"{what}: start and end, min / p50",
                f"{min(took) * 1e3:.1f} / {statistics.median(took) * 1e3:.1f} ms",
                "",
            )
        )
        rows.append((f"{what}: PSS with {count} running (median)", f"{size:.2f} MiB", ""))
    return rows


def spawn_rows(pss: Callable[[int], float]) -> list[tuple[str, str, str]]:
    """Latency and memory in both modes."""
    rows = bare_rows(pss)
    for mode, count, budget in (
        ("spawner", SESSIONS, ("10 ms", "2.5 MiB")),
        ("exec", 40, ("40 ms", "5.5 MiB")),
    ):
        ready, start, size = asyncio.run(_mode(mode, count, pss))
        rows += [
            (f"supervisor by {mode}, spawn to ready, min / p50 / p99 of {count}", _spread(ready), budget[0]),
            (f"supervisor by {mode}, `start` to its answer, min / p50 / p99", _spread(start), ""),
            (f"supervisor by {mode}, PSS with {count} running (median)", f"{size:.2f} MiB", budget[1]),
        ]
    for tree in Path("/sys/fs/cgroup").glob(f"*/{CGROUPS}"):
        subprocess.run(["find", str(tree), "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], check=False)
    return rows


def restart_rows(
    run: Callable[..., str], log: Path, restart: Callable[[], None], pss: Callable[[int], float]
) -> list[tuple[str, str, str]]:
    """200 sleeping jobs on one node; the agent is killed and started again.

    Args:
        run: a command that must succeed, its stdout.
        log: the agent's log.
        restart: kills the agent and starts it; returns when it is ready.
    """
    run("sbatch", "-Q", "-o", "/dev/null", "-a", f"1-{SESSIONS}", "--wrap", "exec sleep 900")
    while run("squeue", "-h", "-r", "-t", "R", "-o", "%i").count("\n") < SESSIONS:
        time.sleep(0.2)
    pids = [
        int(pid)
        for pid in subprocess.run(
            ["pgrep", "-f", "spurstepd --session|spurstepd: "], capture_output=True, text=True, check=False
        ).stdout.split()
    ]
    sizes = [pss(pid) for pid in pids]
    before = log.stat().st_size
    begun = time.perf_counter()
    restart()
    ready = time.perf_counter() - begun
    while run("sinfo", "-h", "-o", "%t").strip() not in ("alloc", "mix"):
        time.sleep(0.01)
    back = time.perf_counter() - begun
    scanned = next(
        (line for line in log.read_bytes()[before:].decode().splitlines() if "scanned " in line), ""
    )
    words = dict(word.split("=", 1) for word in scanned.split() if "=" in word)
    rows = [
        (f"agent restart with {SESSIONS} sessions: until the node is back", f"{back:.2f} s", "3 s"),
        ("… of which until READY (scan, adoption, registration)", f"{ready:.2f} s", ""),
        ("… of which the scan", f"{words.get('ms', '?')} ms, {words.get('live', '?')} adopted", ""),
    ]
    if sizes:
        total = sum(sizes)
        rows.append((f"{len(sizes)} processes of the supervisor program, PSS in all", f"{total:.0f} MiB", ""))
    run("scancel", "--me")
    return rows
