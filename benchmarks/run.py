"""Measure a one-machine cluster against the budgets and write `docs/benchmarks.md`.

`hatch run bench` runs all of it; `hatch run bench latency cli` runs parts.  Nothing here is a test: times
on a shared machine are figures to look at, and ratios within one run are what counts.
"""

import argparse
import datetime
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
Row = tuple[str, str, str]


class Cluster:
    """`spur up` in a folder of its own."""

    def __init__(self, nodes: int = 1, cpus: int = 8) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="spurbench", dir="/tmp"))
        self.env = {
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "SPUR_CONF": str(self.folder / "up" / "spur.conf"),
        }
        self.run("spur", "up", "--nodes", str(nodes), "--cpus", str(cpus), "--dir", str(self.folder / "up"))

    def run(self, *argv: str) -> str:
        """stdout of a command that must succeed."""
        done = subprocess.run(argv, env=self.env, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{argv}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def pid(self, name: str) -> int:
        return int((self.folder / "up" / "run" / f"{name}.pid").read_text())

    def close(self) -> None:
        subprocess.run(
            ["spur", "down", "--dir", str(self.folder / "up"), "--purge"], env=self.env, check=False
        )
        shutil.rmtree(self.folder, ignore_errors=True)


def pss_mib(pid: int) -> float:
    """Proportional set size of one process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def wait_for(condition: Callable[[], bool], secs: float = 120.0) -> None:
    """Poll every two milliseconds."""
    deadline = time.monotonic() + secs
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("a benchmark did not come to its end")
        pause.wait(0.002)


def bench_cli(cluster: Cluster) -> list[Row]:
    """Wall time of short commands beside a bare interpreter."""

    def best(argv: list[str], count: int = 15) -> float:
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            subprocess.run(argv, env=cluster.env, cwd=cluster.folder, capture_output=True, check=True)
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1000

    bare = best([str(BIN / "python"), "-I", "-S", "-c", "pass"])
    rows: list[Row] = [("bare interpreter", f"{bare:.0f} ms", "")]
    commands = {
        "sbatch --version": ["sbatch", "--version"],
        "squeue": ["squeue"],
        "sinfo": ["sinfo"],
        "scontrol show partition": ["scontrol", "show", "partition"],
        "sacct": ["sacct", "-X"],
        "sbatch --wrap true": ["sbatch", "-H", "-o", "/dev/null", "--wrap", "true"],
    }
    for name, argv in commands.items():
        took = best([str(BIN / argv[0]), *argv[1:]])
        budget = "60 ms" if name in ("squeue", "sinfo", "sbatch --wrap true") else ""
        rows.append((f"`{name}`, wall (median of 15)", f"{took:.0f} ms = {took / bare:.1f} × bare", budget))
    cluster.run("scancel", "--me")
    return rows


def bench_latency(cluster: Cluster) -> list[Row]:
    """From calling sbatch to the job's own first line; from one job's end to the next one's first line."""
    starts = []
    for number in range(15):
        out = cluster.folder / f"first-{number}"
        begin = time.time()
        cluster.run("sbatch", "-Q", "-o", "/dev/null", "--wrap", f"date +%s.%N > {out}.t; mv {out}.t {out}")
        wait_for(out.exists)
        starts.append(float(out.read_text()) - begin)
    rows: list[Row] = [
        (
            "`sbatch` called → first line of the job, idle cluster (median of 15)",
            f"{statistics.median(starts) * 1000:.0f} ms",
            "150 ms",
        )
    ]
    for title, how in (("a job ends → the next queued job's first line", ()), ("`afterok`", ("dep",))):
        gaps = []
        for number in range(7):
            log = cluster.folder / f"gap-{len(how)}-{number}"
            body = f"date +%s.%N >> {log}; sleep 0.2; date +%s.%N >> {log}"
            first = cluster.run(
                "sbatch", "--parsable", "--exclusive", "-o", "/dev/null", "--wrap", body
            ).strip()
            extra = ["-d", f"afterok:{first}"] if how else []
            cluster.run("sbatch", "-Q", "--exclusive", *extra, "-o", "/dev/null", "--wrap", body)
            wait_for(lambda log=log: log.exists() and len(log.read_text().split()) == 4)
            lines = [float(word) for word in log.read_text().split()]
            gaps.append(lines[2] - lines[1])
        name = title if not how else "`afterok` parent ends → child's first line"
        rows.append((f"{name} (median of 7)", f"{statistics.median(gaps) * 1000:.0f} ms", "100 ms"))
    hosts = []
    for _ in range(7):
        begin = time.perf_counter()
        cluster.run("srun", "hostname")
        hosts.append(time.perf_counter() - begin)
    rows.append(
        ("`srun hostname` alone (median of 7)", f"{statistics.median(hosts) * 1000:.0f} ms", "250 ms")
    )
    return rows


def bench_submit(cluster: Cluster) -> list[Row]:
    """Submissions per second through gRPC and through the command."""
    rows: list[Row] = []
    for clients, budget in ((1, "800 /s"), (8, "1,500 /s")):
        out = subprocess.run(
            [sys.executable, str(ROOT / "benchmarks" / "submit_load.py"), str(clients), "2000"],
            env=cluster.env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        rows.append((f"submissions through gRPC, {clients} connection(s)", f"{float(out):.0f} /s", budget))
        cluster.run("scancel", "--me")
    for clients, count, budget in ((1, 40, "12 /s"), (8, 160, "20 /s")):

        def submit(many: int) -> None:
            for _ in range(many):
                cluster.run("sbatch", "-Q", "-H", "-o", "/dev/null", "--wrap", "true")

        begin = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(submit, [count // clients] * clients))
        rate = count / (time.perf_counter() - begin)
        rows.append((f"submissions through `sbatch`, {clients} at once", f"{rate:.0f} /s", budget))
    cluster.run("scancel", "--me")
    return rows


def bench_throughput(cluster: Cluster) -> list[Row]:
    """No-op batch jobs from submit to history."""
    count = 500
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "submit_load.py"), "4", str(count), "run"],
        env=cluster.env,
        capture_output=True,
        check=True,
    )
    wait_for(lambda: cluster.run("squeue", "-h") == "", 300)
    rate = count / (time.perf_counter() - begin)
    return [(f"{count} no-op batch jobs end to end, one node of 8 CPUs", f"{rate:.0f} /s", "60 /s")]


def bench_memory(cluster: Cluster) -> list[Row]:
    """Memory of daemons and of supervisors."""
    rows: list[Row] = [
        (
            "controller, PSS, after the other parts",
            f"{pss_mib(cluster.pid('spurctld-1')):.0f} MiB",
            "110 MiB empty",
        ),
        ("agent, PSS, idle", f"{pss_mib(cluster.pid('spurd-node1')):.0f} MiB", "50 MiB"),
    ]
    jobs = 8
    for _ in range(jobs):
        cluster.run("sbatch", "-Q", "-o", "/dev/null", "--wrap", "sleep 600")
    wait_for(lambda: cluster.run("squeue", "-h", "-t", "R").count("\n") == jobs)
    pids = subprocess.run(["pgrep", "-f", "spurstepd"], capture_output=True, text=True).stdout.split()
    sizes = sorted(pss_mib(int(pid)) for pid in pids)
    per_job = sum(sizes) / jobs
    rows.append(
        (
            f"supervisor, PSS, {jobs} running (median; the spawner's share included below)",
            f"{statistics.median(sizes):.1f} MiB",
            "2.5 MiB",
        )
    )
    rows.append((f"spawner and {jobs} supervisors together, per job", f"{per_job:.1f} MiB", ""))
    cluster.run("scancel", "--me")
    return rows


def bench_steps(_cluster: Cluster) -> list[Row]:
    """Steps inside an allocation of 32 CPUs: one task, 32 tasks, and how soon the next may follow."""
    cluster = Cluster(cpus=64)
    body = (
        "for n in 1 32; do for i in 1 2 3 4 5 6 7; do a=$(date +%s%N); srun -n$n true;"
        " b=$(date +%s%N); echo $n $(( (b - a) / 1000000 )); done; done"
    )
    try:
        lines = cluster.run("salloc", "-Q", "-n32", "bash", "-c", body).splitlines()
    finally:
        cluster.close()
    rows = []
    for tasks, budget in (("1", "200 ms"), ("32", "500 ms")):
        took = [int(line.split()[1]) for line in lines if line.split()[0] == tasks]
        middle = statistics.median(took)
        rows.append((f"`srun -n{tasks} true` in an allocation (median of 7)", f"{middle:.0f} ms", budget))
    return rows


def bench_supervisors(_cluster: Cluster) -> list[Row]:
    """Spawn latency and memory in both modes, without a cluster."""
    import supervisors

    return supervisors.spawn_rows(pss_mib)


def bench_restart(_cluster: Cluster) -> list[Row]:
    """An agent's restart over 200 sessions."""
    import supervisors

    cluster = Cluster(cpus=256)
    up = cluster.folder / "up"
    try:
        return supervisors.restart_rows(
            cluster.run,
            up / "log" / "spurd-node1.log",
            lambda: print(cluster.run("spur", "restart", "--dir", str(up), "spurd-node1", "--kill"), end=""),
            pss_mib,
        )
    finally:
        cluster.close()


def bench_replication(_cluster: Cluster) -> list[Row]:
    """The replicated log of one and three controllers, without anything around it."""
    import replication

    return replication.replication_rows()


def bench_turns(_cluster: Cluster) -> list[Row]:
    """Long turns of a controller's event loop under scheduling load."""
    import turns

    return turns.turns_rows()


def bench_sched(_cluster: Cluster) -> list[Row]:
    """Passes of the scheduler over made-up clusters."""
    import sched_pass

    return sched_pass.sched_rows()


PARTS: dict[str, Callable[[Cluster], list[Row]]] = {
    "cli": bench_cli,
    "latency": bench_latency,
    "submit": bench_submit,
    "throughput": bench_throughput,
    "memory": bench_memory,
    "steps": bench_steps,
    "supervisors": bench_supervisors,
    "restart": bench_restart,
    "replication": bench_replication,
    "sched": bench_sched,
    "turns": bench_turns,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    given = parser.parse_args()
    cluster = Cluster()
    lines = []
    try:
        for name in given.parts or list(PARTS):
            for what, measured, budget in PARTS[name](cluster):
                lines.append(f"| {what} | {measured} | {budget} |")
                print(lines[-1], flush=True)
    finally:
        cluster.close()
    if given.write:
        head = (
            "# Benchmarks\n\nMade by `hatch run bench --write` on a one-machine cluster"
            f" ({os.cpu_count()} cores, {platform.system()} {platform.release()},"
            f" Python {platform.python_version()}), {datetime.date.today()}."
            "\nThe budgets are upper bounds for a 2-core machine. Other work shared the machine.\n\n"
            "| what | measured | budget |\n|---|---|---|\n"
        )
        (ROOT / "docs" / "benchmarks.md").write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
