"""What a new user tries first, with the Slurm names only."""

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.node


def test_a_failing_job_from_submit_to_history(shared: Any) -> None:
    job = shared.sbatch("--wrap", "echo hi; exit 3")
    assert re.fullmatch(r"\d+", job)
    shared.wait(job)
    assert shared.ok("sacct", "-j", job, "-X", "-n", "-P", "-o", "State,ExitCode") == "FAILED|3:0\n"
    assert (shared.work / f"slurm-{job}.out").read_text() == "hi\n"
    shown = shared.ok("scontrol", "show", "job", job)
    assert f"JobId={job} JobName=wrap" in shown
    assert "JobState=FAILED Reason=NonZeroExitCode" in shown
    assert f"StdOut={shared.work}/slurm-{job}.out" in shown
    assert shared.ok("squeue", "-h", "-j", job) == ""


def test_sinfo_and_squeue_on_an_idle_cluster(shared: Any) -> None:
    assert shared.ok("sinfo").splitlines()[0] == "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST"
    assert "node[1-2]" in shared.ok("sinfo")
    header = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    assert shared.ok("squeue").splitlines()[0] == header


def test_the_script_is_taken_at_submit_and_its_shebang_counts(shared: Any) -> None:
    script = shared.work / "s.sh"
    script.write_text(
        "#!/usr/bin/env python3\n#SBATCH -J pyjob\n#SBATCH -o %x-%j.txt\n"
        "import os, sys\nprint(os.environ['SLURM_JOB_NAME'], sys.argv[1:])\n"
    )
    job = shared.sbatch("s.sh", "a b", "-N", "4")
    script.write_text("#!/bin/sh\nexit 9\n")
    shared.wait(job, "COMPLETED")
    assert (shared.work / f"pyjob-{job}.txt").read_text() == "pyjob ['a b', '-N', '4']\n"


def test_an_array_runs_two_at_a_time_and_one_element_is_cancelled(shared: Any) -> None:
    gate = shared.work / "array-gate"
    log = shared.work / "array-log"
    body = (
        f"#!/bin/sh\necho start $SLURM_ARRAY_TASK_ID >> {log}\n"
        f"while [ ! -e {gate} ]; do sleep 0.05; done\necho end $SLURM_ARRAY_TASK_ID >> {log}\n"
    )
    (shared.work / "array.sh").write_text(body)
    job = shared.sbatch("-a", "0-9%2", "array.sh")
    shared.until(lambda: log.exists() and len(log.read_text().splitlines()) == 2, "two tasks started")
    assert f"{job}_[2-9%2]" in shared.ok("squeue", "-h")
    shared.ok("scancel", f"{job}_5")
    gate.touch()
    shared.until(lambda: len(shared.history(job, "JobID,State", "-X")) == 10, "ten rows")
    shared.until(
        lambda: all(
            r[1] != "PENDING" and r[1] != "RUNNING" for r in shared.history(job, "JobID,State", "-X")
        ),
        "all over",
        60,
    )
    rows = dict(shared.history(job, "JobID,State", "-X"))
    assert rows.pop(f"{job}_5").startswith("CANCELLED")
    assert set(rows.values()) == {"COMPLETED"}
    running = most = 0
    for line in log.read_text().splitlines():
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    assert most == 2


def test_afterok_waits_for_its_parent(shared: Any) -> None:
    gate = shared.work / "dep-gate"
    parent = shared.sbatch("--wrap", f"while [ ! -e {gate} ]; do sleep 0.05; done")
    child = shared.sbatch("-d", f"afterok:{parent}", "--wrap", "echo child")
    shared.until(lambda: "(Dependency)" in shared.ok("squeue", "-h", "-j", child), "reason Dependency")
    gate.touch()
    shared.wait(child, "COMPLETED")


def test_hold_and_release(shared: Any) -> None:
    job = shared.sbatch("-H", "--wrap", "true")
    assert "(JobHeldUser)" in shared.ok("squeue", "-h", "-j", job)
    shared.ok("scontrol", "release", job)
    shared.wait(job, "COMPLETED")


def test_requeue_of_a_running_job_runs_attempt_two(shared: Any) -> None:
    log = shared.work / "requeue-log"
    gate = shared.work / "requeue-gate"
    job = shared.sbatch(
        "--wrap",
        f"echo run ${{SLURM_RESTART_COUNT:-0}} >> {log}; while [ ! -e {gate} ]; do sleep 0.05; done",
    )
    shared.until(lambda: log.exists() and log.read_text() == "run 0\n", "first run")
    shared.wait(job, "RUNNING")
    shared.ok("scontrol", "requeue", job)
    shared.until(lambda: log.read_text() == "run 0\nrun 1\n", "second run", 60)
    gate.touch()
    shared.wait(job, "COMPLETED")
    assert [row[0] for row in shared.history(job, "State", "-X", "-D")] == ["REQUEUED", "COMPLETED"]
    assert log.read_text() == "run 0\nrun 1\n"


def test_srun_streams_and_returns_the_exit_code(shared: Any) -> None:
    done = shared.run("srun", "-n", "2", "-N", "2", "-l", "sh", "-c", "echo $SLURM_PROCID; echo err >&2")
    assert sorted(done.stdout.splitlines()) == ["0: 0", "1: 1"]
    assert sorted(done.stderr.splitlines()) == ["0: err", "1: err"]
    assert done.returncode == 0
    failed = shared.run("srun", "sh", "-c", "exit 3")
    assert failed.returncode == 3
    assert re.search(r"srun: error: node\d: task 0: Exited with exit code 3", failed.stderr)


def test_srun_passes_stdin_on(shared: Any) -> None:
    done = shared.run("srun", "cat", input="one\ntwo\n")
    assert (done.stdout, done.returncode) == ("one\ntwo\n", 0)


def test_scancel_of_a_running_job(shared: Any) -> None:
    job = shared.sbatch("--wrap", "sleep 600")
    shared.wait(job, "RUNNING")
    assert shared.run("scancel", job).stderr == ""
    shared.wait(job, "CANCELLED", secs=60)
    state = shared.ok("sacct", "-j", job, "-X", "-n", "-P", "-o", "State").strip()
    assert re.fullmatch(r"CANCELLED by \d+", state)
    text = Path(shared.work / f"slurm-{job}.out").read_text()
    assert re.search(rf"slurmstepd: error: \*\*\* JOB {job} ON node\d CANCELLED AT ", text)


def test_time_limit_ends_a_job(shared: Any) -> None:
    job = shared.sbatch("-t", "1s", "--wrap", "sleep 600")
    shared.wait(job, "TIMEOUT", secs=90)
    assert shared.history(job, "State,ExitCode", "-X") == [["TIMEOUT", "0:0"]]


def test_the_submit_directory_stays_what_it_was(shared: Any) -> None:
    other = shared.work / "elsewhere"
    other.mkdir(mode=0o777)
    other.chmod(0o777)
    job = shared.sbatch("-D", str(other), "--wrap", "echo $SLURM_SUBMIT_DIR $PWD")
    shared.wait(job, "COMPLETED")
    assert (other / f"slurm-{job}.out").read_text() == f"{shared.work} {other}\n"
