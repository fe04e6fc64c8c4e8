"""Work outlives daemons: SIGKILL under running jobs, and nothing is lost, doubled or hurt."""

import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


def gated(cluster: Any, name: str) -> tuple[str, Any, Any]:
    """A script that appends its run to a log and waits for a gate."""
    log, gate = cluster.work / f"{name}.log", cluster.work / f"{name}.gate"
    body = (
        f"echo $SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}.$$ >> {log};"
        f" while [ ! -e {gate} ]; do sleep 0.05; done; exit 7"
    )
    return body, log, gate


@pytest.mark.node
def test_agent_killed_under_running_jobs(cluster: Any) -> None:
    stays, stays_log, stays_gate = gated(cluster, "stays")
    ends, ends_log, ends_gate = gated(cluster, "ends")
    staying = cluster.sbatch("-w", "node1", "--wrap", stays)
    ending = cluster.sbatch("-w", "node1", "--wrap", ends)
    cluster.until(lambda: stays_log.exists() and ends_log.exists(), "both jobs run")
    cluster.wait(staying, "RUNNING")
    cluster.wait(ending, "RUNNING")
    pid = int(stays_log.read_text().split(".")[2])
    last = int(ends_log.read_text().split(".")[2])
    cluster.kill("spurd-node1")
    ends_gate.touch()
    cluster.until(lambda: not alive(last), "the second job's shell is over")
    ended = time.time()
    cluster.restart("spurd-node1")
    cluster.wait(ending, "FAILED")
    assert cluster.history(ending, "State,ExitCode", "-X") == [["FAILED", "7:0"]]
    end = cluster.ok("sacct", "-j", ending, "-X", "-n", "-P", "-o", "End", env={"SLURM_TIME_FORMAT": "%s"})
    assert abs(int(end) - ended) < 3
    assert alive(pid)
    assert cluster.state(staying) == "RUNNING"
    cluster.until(lambda: cluster.ok("sinfo", "-h", "-n", "node1", "-o", "%t").strip() == "mix", "node mix")
    stays_gate.touch()
    cluster.wait(staying, "FAILED")
    assert len(stays_log.read_text().splitlines()) == 1
    assert len(ends_log.read_text().splitlines()) == 1
    cluster.until(cluster.idle, "all nodes idle")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.node
def test_agent_terminated_leaves_jobs_alone(cluster: Any) -> None:
    body, log, gate = gated(cluster, "calm")
    job = cluster.sbatch("-w", "node1", "--wrap", body)
    cluster.until(log.exists, "the job runs")
    cluster.wait(job, "RUNNING")
    cluster.restart("spurd-node1")
    assert cluster.state(job) == "RUNNING"
    gate.touch()
    cluster.wait(job, "FAILED")
    assert len(log.read_text().splitlines()) == 1


@pytest.mark.node
def test_controller_killed_under_running_jobs(cluster: Any) -> None:
    body, log, gate = gated(cluster, "ctl")
    job = cluster.sbatch("--wrap", body)
    cluster.until(log.exists, "the job runs")
    cluster.wait(job, "RUNNING")
    cluster.kill("spurctld-1")
    down = cluster.run("squeue")
    assert down.returncode == 1
    assert down.stderr == ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
    gate.touch()  # it ends while nobody is there to hear
    cluster.restart("spurctld-1")
    cluster.wait(job, "FAILED")
    assert cluster.history(job, "State,ExitCode", "-X") == [["FAILED", "7:0"]]
    assert len(log.read_text().splitlines()) == 1


def test_controller_killed_during_submissions(cluster: Any) -> None:
    """Every acknowledged id is there, once, and every job completes once.

    Eight clients at a time, who try again what failed.  `SPUR_TEST_SUBMISSIONS` makes them more.
    """
    number = int(os.environ.get("SPUR_TEST_SUBMISSIONS", "160"))
    log = cluster.work / "runs"
    log.touch()
    log.chmod(0o666)
    acknowledged: list[str] = []
    lock = threading.Lock()
    third = threading.Event()
    deadline = time.monotonic() + 300

    def client(share: int) -> None:
        while share and time.monotonic() < deadline:
            done = subprocess.run(
                ["sbatch", "--parsable", "-o", "/dev/null", "--wrap", f"echo $SLURM_JOB_ID >> {log}"],
                env=cluster.env,
                cwd=cluster.work,
                capture_output=True,
                text=True,
                timeout=300,
            )
            if done.returncode == 0:
                share -= 1
                with lock:
                    acknowledged.append(done.stdout.strip())
                    if len(acknowledged) == number // 3:
                        third.set()

    with ThreadPoolExecutor(8) as pool:
        work = [pool.submit(client, (number + at) // 8) for at in range(8)]
        assert third.wait(240)
        cluster.kill("spurctld-1")
        cluster.restart("spurctld-1")
        for one in work:
            one.result()
    assert len(acknowledged) == len(set(acknowledged)) == number
    cluster.until(lambda: cluster.ok("squeue", "-h") == "", "the queue is empty", 240)
    rows = cluster.ok("sacct", "-a", "-X", "-n", "-P", "-S", "today", "-o", "JobID,State").split()
    states = dict(row.split("|") for row in rows)
    assert len(rows) == len(states)
    assert {states[job] for job in acknowledged} == {"COMPLETED"}
    ran = log.read_text().split()
    assert len(ran) == len(set(ran))
    assert set(acknowledged) <= set(ran)


def test_down_and_up_again_resumes_the_cluster(cluster: Any) -> None:
    job = cluster.sbatch("--wrap", "exit 2")
    cluster.wait(job, "FAILED")
    cluster.ok("spur", "down", "--dir", str(cluster.folder))
    assert cluster.run("squeue").returncode == 1
    cluster.ok("spur", "up", "--dir", str(cluster.folder))
    assert cluster.history(job, "State,ExitCode", "-X") == [["FAILED", "2:0"]]
    again = cluster.sbatch("--wrap", "true")
    assert int(again) > int(job)
    cluster.wait(again, "COMPLETED")
