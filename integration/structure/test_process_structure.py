"""What runs on a node, as `ps -o pid,ppid,pgid,sid,tty` shows it, beside the structure that Slurm documents.

Slurm (slurmd.8, slurmstepd.8, proctrack and cgroup.conf.5): slurmd starts one slurmstepd per step, which
detaches from it and outlives its restart; slurmstepd leads a session of its own without a terminal; the
tasks of a step have one process group inside that session, led by the first of them, and a task with a
terminal leads a session of its own; tasks inherit descriptors 0, 1 and 2 only, and are the user's program
itself; slurmstepd is outside the memory group of the job.  Here spurd is slurmd and spurstepd is slurmstepd.
"""

import contextlib
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testkit.crash_cluster import BIN, CrashCluster, supervisor_in

from spur_core.linux import procfs

pytestmark = pytest.mark.node

BATCH, EXTERN = 4294967291, 4294967292
AGENT = "spurd-node1"
SLEEP = Path("/bin/sleep").resolve()


class Ps(NamedTuple):
    """One process, as ps tells of it; `tty` 0 = no controlling terminal."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    tty: int
    tty_pgrp: int


def ps(pid: int) -> Ps:
    """From `/proc/PID/stat`, counted after the last `)`."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Ps(pid, *map(int, fields[1:6]))


def descriptors(pid: int) -> list[int]:
    """Open descriptors."""
    return sorted(map(int, os.listdir(f"/proc/{pid}/fd")))


def groups(pid: int) -> dict[str, str]:
    """Controllers (v1), or "" (v2) -> control group."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    return {controllers: path for _, controllers, path in lines}


@pytest.fixture(params=["spawner", "exec"])
def cluster(request: pytest.FixtureRequest, crash: Any) -> Any:
    """One node; supervisors are forked by the spawner, or started as programs."""
    return crash(nodes=1, settings={"agent": {"spawn": f'"{request.param}"'}})


@contextlib.contextmanager
def client(cluster: CrashCluster, *argv: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A command with a terminal, whose output nobody needs; ended at the end."""
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [str(BIN / argv[0]), *argv[1:]],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=cluster.env,
        cwd=cluster.work,
        start_new_session=True,
    )
    os.close(slave)

    def drain() -> None:
        with contextlib.suppress(OSError):
            while os.read(master, 65536):
                pass

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield child
    finally:
        for pid in procfs.in_session(child.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.wait()
        reader.join()
        os.close(master)


def supervisor(cluster: CrashCluster, job: str, step: int) -> int:
    """Its pid, once the step runs."""
    session = cluster.session(AGENT, f"{job}.1.{step}")

    def started() -> int | None:
        with contextlib.suppress(OSError):
            if '"Started"' in (session / "journal").read_text():
                return supervisor_in(session)
        return None

    pid = cluster.until(started, f"{session.name} runs")
    assert isinstance(pid, int)
    name = {BATCH: "batch", EXTERN: "extern"}.get(step, step)
    assert Path(f"/proc/{pid}/comm").read_text() == f"stepd {job}.{name}\n", "ps tells whose it is"
    return pid


def sleeper(cluster: CrashCluster, note: str) -> int:
    """The pid that a task noted before it became `sleep`."""
    path = cluster.work / note

    def is_sleep() -> int | None:
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.read_text())
            return pid if Path(f"/proc/{pid}/exe").resolve() == SLEEP else None
        return None

    pid = cluster.until(is_sleep, f"the task of {note} runs")
    assert isinstance(pid, int)
    return pid


def asleep(note: str) -> str:
    """Shell words of a task that notes its pid and becomes `sleep`."""
    return f"echo $$ > {note}; exec sleep 600"


def check_supervisor(cluster: CrashCluster, pid: int) -> Ps:
    """Of every kind of step."""
    me, agent = ps(pid), cluster.pid(AGENT)
    assert me.sid == me.pgid == pid, "it leads a session and a group of its own"
    assert me.tty == 0, "it has no controlling terminal"
    # Subreapers exist, so "not the agent, not its spawner" and not "1".
    assert me.ppid not in (agent, cluster.spawner(AGENT)), "it is nobody's child here"
    assert ps(me.ppid).sid != ps(agent).sid or me.ppid == 1
    if os.geteuid() == 0:
        mine, of_agent = groups(pid), groups(agent)
        assert all("/stepd" in path for name, path in mine.items() if "/spur" in path), mine
        moved = [name for name, path in mine.items() if path != of_agent[name]]
        assert moved, "it is in a group of its own"
    return me


def check_task(above: Ps, pid: int, *, first: int = 0, terminal: bool = False) -> None:
    """Of every kind of task.

    Args:
        above: its supervisor.
        first: the step's first task on the node, if it is another one.
    """
    task = ps(pid)
    assert task.ppid == above.pid, "the supervisor's child"
    assert task.pgid == (first or pid) != above.pgid, "not in the supervisor's group"
    if terminal:
        assert task.sid == pid, "a session of its own"
        assert task.tty != 0
        assert task.tty_pgrp == pid, "in the foreground of its controlling terminal"
        names = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1, 2)}
        assert len(names) == 1
        assert names.pop().startswith("/dev/pts/")
    else:
        assert task.sid == above.sid, "inside the supervisor's session"
        assert task.tty == 0
    assert descriptors(pid) == [0, 1, 2]
    if os.geteuid() == 0:
        mine, its = groups(pid), groups(above.pid)
        job = {name for name, path in mine.items() if "/job_" in path}
        assert job, "it is in the job's groups"
        assert not any(its[name].startswith(mine[name].partition("/step_")[0]) for name in job), (
            "the supervisor is in none of the job's groups, so not in its memory group either"
        )


def test_a_batch_step(cluster: Any) -> None:
    job = cluster.submit(asleep("batch"))
    task = sleeper(cluster, "batch")
    above = check_supervisor(cluster, supervisor(cluster, job, BATCH))
    check_task(above, task)
    # The script's own pid has become the program: nothing of ours is between supervisor and program.
    assert _children(above.pid) == [task]
    cluster.ok("scancel", job)
    cluster.settle()


def test_a_numbered_step_with_two_tasks(cluster: Any) -> None:
    """One supervisor beside that of the batch script; its tasks have a group of their own in its session."""
    inner = cluster.work / "inner"
    inner.write_text(f"#!/bin/sh\n{asleep('task.$SLURM_PROCID')}\n")
    inner.chmod(0o755)
    job = cluster.submit(f"exec srun {inner}", "-n2")
    tasks = [sleeper(cluster, f"task.{rank}") for rank in (0, 1)]
    batch = check_supervisor(cluster, supervisor(cluster, job, BATCH))
    above = check_supervisor(cluster, supervisor(cluster, job, 0))
    assert batch.sid != above.sid
    for task in tasks:
        check_task(above, task, first=tasks[0])
    assert sorted(_children(above.pid)) == sorted(tasks)
    cluster.ok("scancel", job)


def test_an_extern_step(cluster: Any) -> None:
    """A supervisor with nothing below it: it holds the allocation."""
    with client(cluster, "salloc", "-N1", "sleep", "600"):
        job = cluster.until(lambda: "".join(line.split()[0] for line in cluster.queued()), "it is queued")
        above = check_supervisor(cluster, supervisor(cluster, job, EXTERN))
        assert _children(above.pid) == []
        cluster.ok("scancel", job)


def test_a_step_of_its_own_job(cluster: Any) -> None:
    with client(cluster, "srun", "sh", "-c", asleep("alone")):
        task = sleeper(cluster, "alone")
        job = cluster.queued()[0].split()[0]
        above = check_supervisor(cluster, supervisor(cluster, job, 0))
        check_task(above, task)
        cluster.ok("scancel", job)


def test_a_step_with_a_terminal(cluster: Any) -> None:
    with client(cluster, "srun", "--pty", "sh", "-c", asleep("terminal")):
        task = sleeper(cluster, "terminal")
        job = cluster.queued()[0].split()[0]
        above = check_supervisor(cluster, supervisor(cluster, job, 0))
        check_task(above, task, terminal=True)
        cluster.ok("scancel", job)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_structure_outlives_the_agent(cluster: Any) -> None:
    """The same pids, groups and session under the next agent: nobody was started or moved."""
    job = cluster.submit(asleep("stays"))
    task = sleeper(cluster, "stays")
    pid = supervisor(cluster, job, BATCH)
    before = ps(pid), ps(task), groups(pid), groups(task)
    cluster.kill(AGENT)
    cluster.start(AGENT, wait=True)
    cluster.until(lambda: cluster.state(job) == "RUNNING", "it is adopted")
    assert (ps(pid), ps(task), groups(pid), groups(task)) == before
    check_task(check_supervisor(cluster, pid), task)
    cluster.ok("scancel", job)
