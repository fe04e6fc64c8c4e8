"""Jobs of a higher tier push others aside: each way of doing it, on a real cluster."""

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.node

PARTITIONS = """
[[partitions]]
name = "{name}"
nodes = "node[1-2]"
priority_tier = {tier}
{more}
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: Any) -> Any:
    """Two nodes of 4 CPUs; a partition for each way of preemption, `high` above them all."""
    cluster = make_cluster(2, "--cpus", "4")
    conf = Path(cluster.env["SPUR_CONF"])
    text = conf.read_text()
    text = text.replace(
        "[scheduler]\n", '[scheduler]\npreempt_type = "partition_prio"\nkill_wait_secs = 2\n', 1
    )
    if "preempt_type" not in text:
        text += '\n[scheduler]\npreempt_type = "partition_prio"\nkill_wait_secs = 2\n'
    for name, tier, more in (
        ("cancel", 1, 'preempt_mode = "cancel"'),
        ("requeue", 1, 'preempt_mode = "requeue"'),
        ("suspend", 1, 'preempt_mode = "suspend"'),
        ("grace", 1, 'preempt_mode = "cancel"\ngrace_time = 4'),
        ("exempt", 1, 'preempt_mode = "cancel"\npreempt_exempt_time = 6'),
        ("off", 1, ""),
        ("high", 10, ""),
    ):
        text += PARTITIONS.format(name=name, tier=tier, more=more)
    conf.write_text(text)
    cluster.restart("spurctld-1")
    cluster.until(cluster.idle, "idle nodes")
    yield cluster
    cluster.down()


@pytest.fixture(autouse=True)
def _clean(cluster: Any) -> Any:
    yield
    cluster.run("scancel", "--me")
    cluster.until(cluster.idle, "idle nodes")


def running(cluster: Any, partition: str, *options: str, body: str = "exec sleep 300") -> str:
    job = cluster.sbatch("-p", partition, "-o", f"{cluster.work}/%j.out", *options, "--wrap", body)
    cluster.wait(job, "RUNNING")
    return str(job)


def shown(cluster: Any, job: str) -> dict[str, str]:
    text = cluster.ok("scontrol", "show", "job", job)
    return dict(re.findall(r"(\S+?)=(\S*)", text))


def test_cancelled(cluster: Any) -> None:
    low = running(cluster, "cancel", "-N1", "-w", "node1", "-n4")
    high = cluster.sbatch("-p", "high", "-N1", "-w", "node1", "-n4", "--wrap", "true")
    assert cluster.wait(high) == "COMPLETED"
    assert cluster.wait(low, "PREEMPTED") == "PREEMPTED"
    assert cluster.queue_state(low) == "PR"
    assert "DUE TO PREEMPTION ***" in Path(f"{cluster.work}/{low}.out").read_text()
    fields = shown(cluster, low)
    assert fields["JobState"] == "PREEMPTED"
    assert fields["PreemptTime"] != "None"
    assert fields["PreemptedFor"] == high


def test_requeued_and_run_again(cluster: Any) -> None:
    log = cluster.work / "again.log"
    body = (
        f'echo $SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}} >> {log}; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300'
    )
    low = running(cluster, "requeue", "-N1", "-w", "node1", "-n4", body=body)
    high = cluster.sbatch("-p", "high", "-N1", "-w", "node1", "-n4", "--wrap", "true")
    assert cluster.wait(high) == "COMPLETED"
    assert cluster.wait(low, "COMPLETED", secs=60) == "COMPLETED"
    assert log.read_text().split() == [f"{low}.0", f"{low}.1"]
    rows = cluster.ok("sacct", "-j", low, "-D", "-X", "-n", "-P", "-o", "State").split()
    assert rows == ["PREEMPTED", "COMPLETED"]


def test_without_requeue_it_is_cancelled(cluster: Any) -> None:
    low = running(cluster, "requeue", "-N1", "-w", "node1", "-n4", "--no-requeue")
    high = cluster.sbatch("-p", "high", "-N1", "-w", "node1", "-n4", "--wrap", "true")
    assert cluster.wait(high) == "COMPLETED"
    assert cluster.wait(low, "PREEMPTED") == "PREEMPTED"


def test_suspended_and_resumed(cluster: Any) -> None:
    """It stands still while the other uses its CPUs, and goes on by itself."""
    ticks, gate = cluster.work / "ticks", cluster.work / "gate"
    low = running(
        cluster, "suspend", "-N1", "-w", "node1", "-n4", body=f"while :; do echo >> {ticks}; sleep 0.05; done"
    )
    cluster.until(ticks.exists, "the job ticks")
    high = cluster.sbatch(
        "-p", "high", "-N1", "-w", "node1", "-n4", "--wrap", f"while [ ! -e {gate} ]; do sleep 0.05; done"
    )
    cluster.wait(high, "RUNNING")
    assert cluster.queue_state(low) == "S"
    before = ticks.stat().st_size
    quiet = time.monotonic() + 0.5
    cluster.until(lambda: time.monotonic() > quiet, "half a second")
    assert ticks.stat().st_size == before
    done = cluster.run("scontrol", "resume", low)
    assert done.returncode
    assert "goes on by itself" in done.stderr
    gate.touch()
    assert cluster.wait(high) == "COMPLETED"
    cluster.until(lambda: cluster.queue_state(low) == "R", "the job runs again")
    cluster.until(lambda: ticks.stat().st_size > before, "the job ticks again")


def test_a_suspended_job_keeps_its_room_from_jobs_like_it(cluster: Any) -> None:
    gate = cluster.work / "gate2"
    low = running(cluster, "suspend", "-N1", "-w", "node1", "-n4")
    other = cluster.sbatch("-p", "suspend", "-N1", "-w", "node1", "-n4", "--wrap", "true")
    high = cluster.sbatch(
        "-p", "high", "-N1", "-w", "node1", "-n1", "--wrap", f"while [ ! -e {gate} ]; do sleep 0.05; done"
    )
    cluster.wait(high, "RUNNING")
    assert cluster.queue_state(other) == "PD"
    gate.touch()
    cluster.until(lambda: cluster.queue_state(low) == "R", "the job runs again")
    assert cluster.queue_state(other) == "PD"


def test_lent_cpus_serve_the_next_one_under_the_next_agent(cluster: Any) -> None:
    """Who comes next in line starts at once on CPUs that are lent already, whichever agent lent them."""
    gates = [cluster.work / f"lent-{at}" for at in (1, 2)]
    low = running(cluster, "suspend", "-N1", "-w", "node1", "-n4")
    high = [
        cluster.sbatch(
            *("-p", "high", "-N1", "-w", "node1", "-n4"),
            *("--wrap", f"while [ ! -e {gate} ]; do sleep 0.05; done"),
        )
        for gate in gates
    ]
    cluster.wait(high[0], "RUNNING")
    cluster.kill("spurd-node1")
    cluster.restart("spurd-node1")
    gates[0].touch()
    assert cluster.wait(high[0]) == "COMPLETED"
    cluster.wait(high[1], "RUNNING")
    assert cluster.queue_state(low) == "S"
    gates[1].touch()
    assert cluster.wait(high[1]) == "COMPLETED"
    cluster.until(lambda: cluster.queue_state(low) == "R", "the job runs again")


def test_grace(cluster: Any) -> None:
    """SIGTERM at once, the end when the grace is over; meanwhile it runs and the other waits."""
    told = cluster.work / "told"
    body = f"trap 'echo told >> {told}' TERM; while :; do sleep 0.05; done"
    low = running(cluster, "grace", "-N1", "-w", "node1", "-n4", body=body)
    began = time.monotonic()
    high = cluster.sbatch("-p", "high", "-N1", "-w", "node1", "-n4", "--wrap", "true")
    cluster.until(told.exists, "the job was told")
    assert time.monotonic() - began < 4
    assert cluster.queue_state(low) == "R"
    assert cluster.queue_state(high) == "PD"
    assert cluster.wait(high) == "COMPLETED"
    assert time.monotonic() - began > 4
    assert cluster.wait(low, "PREEMPTED") == "PREEMPTED"


def test_who_ends_within_his_grace_has_ended_well(cluster: Any) -> None:
    body = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
    low = running(cluster, "grace", "-N1", "-w", "node1", "-n4", body=body)
    high = cluster.sbatch("-p", "high", "-N1", "-w", "node1", "-n4", "--wrap", "true")
    assert cluster.wait(high) == "COMPLETED"
    assert cluster.wait(low) == "COMPLETED"


def test_grace_goes_on_under_the_next_controller(cluster: Any) -> None:
    told = cluster.work / "told-once"
    body = f"trap 'echo told >> {told}' TERM; while :; do sleep 0.05; done"
    low = running(cluster, "grace", "-N1", "-w", "node1", "-n4", body=body)
    high = cluster.sbatch("-p", "high", "-N1", "-w", "node1", "-n4", "--wrap", "true")
    cluster.until(told.exists, "the job was told")
    cluster.kill("spurctld-1")
    cluster.restart("spurctld-1")
    assert cluster.wait(high) == "COMPLETED"
    assert cluster.wait(low, "PREEMPTED") == "PREEMPTED"
    # By the grace, again if the controller died before it had noted that, and by its end.
    assert 1 <= len(told.read_text().split()) <= 3


def test_several_victims(cluster: Any) -> None:
    low = [running(cluster, "cancel", "-N1", "-w", "node1", "-n1") for _ in range(4)]
    stays = running(cluster, "cancel", "-N1", "-w", "node2", "-n1")
    high = cluster.sbatch("-p", "high", "-N1", "-w", "node1", "-n4", "--wrap", "true")
    assert cluster.wait(high) == "COMPLETED"
    assert {cluster.wait(job, "PREEMPTED") for job in low} == {"PREEMPTED"}
    assert cluster.queue_state(stays) == "R"


def test_only_as_many_as_it_takes(cluster: Any) -> None:
    low = [running(cluster, "cancel", "-N1", "-w", "node1", "-n2") for _ in range(2)]
    high = cluster.sbatch("-p", "high", "-N1", "-w", "node1", "-n2", "--wrap", "true")
    assert cluster.wait(high) == "COMPLETED"
    # Of equals the one that lost least.
    assert [cluster.queue_state(job) for job in low] == ["R", "PR"]


def test_not_when_it_does_not_help(cluster: Any) -> None:
    cancel = running(cluster, "cancel", "-N1", "-w", "node1", "-n2")
    off = running(cluster, "off", "-N1", "-w", "node1", "-n2")
    high = cluster.sbatch("-p", "high", "-N1", "-w", "node1", "-n4", "--wrap", "true")
    same = cluster.sbatch("-p", "cancel", "-N1", "-w", "node1", "-n4", "--wrap", "true")
    cluster.until(lambda: shown(cluster, high).get("Reason") == "Resources", "the job waits")
    assert [cluster.queue_state(job) for job in (cancel, off, high, same)] == ["R", "R", "PD", "PD"]


def test_exempt_for_a_while(cluster: Any) -> None:
    low = running(cluster, "exempt", "-N1", "-w", "node1", "-n4")
    began = time.time()
    high = cluster.sbatch("-p", "high", "-N1", "-w", "node1", "-n4", "--wrap", "true")
    cluster.until(lambda: shown(cluster, high).get("Reason") == "Resources", "the job waits")
    assert cluster.queue_state(low) == "R"
    assert cluster.wait(high) == "COMPLETED"
    assert time.time() - began > 4
    assert cluster.wait(low, "PREEMPTED") == "PREEMPTED"


def test_an_allocation_is_ended(cluster: Any) -> None:
    import subprocess

    child = subprocess.Popen(
        ["salloc", "-Q", "-p", "cancel", "-N1", "-w", "node1", "-n4", "sleep", "300"],
        env=cluster.env,
        cwd=cluster.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        listed = lambda: cluster.ok("squeue", "-h", "-p", "cancel", "-t", "R", "-o", "%i").strip()  # noqa: E731
        low = cluster.until(listed, "the allocation runs")
        high = cluster.sbatch("-p", "high", "-N1", "-w", "node1", "-n4", "--wrap", "true")
        assert cluster.wait(high) == "COMPLETED"
        assert cluster.wait(low, "PREEMPTED") == "PREEMPTED"
        child.wait(20)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
