"""Matrix rows 14 and 15, V2 and V20: the leader dies or freezes amid dispatch, fence and completion.

No attempt runs twice, no exit is lost, nothing stays allocated, whichever controller leads afterwards.  One
cluster serves all points: the struck controller comes back as a follower of the next.
"""

import os
import signal
from typing import Any

import pytest
from matrix_kit import Held
from testkit.crash_cluster import supervisor_in

DISPATCH = [
    "crash_before:DispatchBegin",
    "crash_after:DispatchBegin",
    "crash_after:dispatch_begun",
    "crash_after:launch_sent",
    "crash_after:launches_answered",
    "crash_before:DispatchCommit",
    "crash_after:DispatchCommit",
]
FENCE = [
    "crash_before:Cancel",
    "crash_after:Cancel",
    "crash_after:fence_begun",
    "crash_after:kill_sent",
    "crash_before:NodeComplete",
    "crash_after:NodeComplete",
]
#: Nodes whose supervisor is gone have no exit to report: they are crossed off by the fence itself.
LOSS = [
    "crash_before:FenceBegin",
    "crash_after:FenceBegin",
    "crash_before:FenceConfirm",
    "crash_after:FenceConfirm",
]
STEPS = [
    "crash_before:StepCreate",
    "crash_after:step_created",
    "crash_after:step_launch_sent",
    "crash_before:StepLaunched",
    "crash_after:StepLaunched",
]
COMPLETION = ["crash_before:NodeComplete", "crash_after:NodeComplete", "crash_after:exit_told"]
FROZEN = ["stop_at:DispatchBegin", "stop_at:DispatchCommit", "stop_at:NodeComplete"]


def struck(cluster: Any, armed: str) -> None:
    """Wait until the fault has struck; the others have a leader, the struck one comes back."""
    cluster.until(lambda: not cluster.running(armed), f"{armed} was struck")
    cluster.leader(other_than=armed)
    cluster.start(armed, wait=True)


def clean(cluster: Any, codes: dict[str, int], cancelled: set[str]) -> None:
    """Everything has ended, as its script says, and nothing is left."""
    cluster.settle()
    every = {job for job, _, _ in cluster.rows()}
    assert set(codes) | cancelled <= every
    assert cluster.faults(codes, cancelled) == []


@pytest.mark.parametrize("fault", DISPATCH)
def test_row_14_dispatch(cluster: Any, fault: str) -> None:
    armed = cluster.armed_leader(fault)
    jobs = {cluster.submit("exit 3", "-N2"): 3, cluster.submit("exit 4"): 4}
    struck(cluster, armed)
    assert all(jobs)
    clean(cluster, jobs, set())


@pytest.mark.parametrize("fault", FENCE)
def test_row_15_cancel(cluster: Any, fault: str) -> None:
    armed = cluster.armed_leader(fault)
    job = cluster.submit("sleep 300", "-N2")
    cluster.until(lambda: cluster.runs_of(job) == 1, "it runs")
    cluster.until(lambda: cluster.state_or_nothing(job) == "RUNNING", "it is known to run")
    done = cluster.run("scancel", job)
    assert done.returncode == 0, done.stderr
    struck(cluster, armed)
    cluster.until(lambda: cluster.state_or_nothing(job) == "CANCELLED", "it is cancelled")
    clean(cluster, {}, {job})


@pytest.mark.parametrize(
    "fault", ["crash_after:Requeue", "crash_after:kill_sent", "crash_after:NodeComplete"]
)
def test_row_15_requeue(cluster: Any, fault: str) -> None:
    held = Held(cluster, "-N2").runs()
    armed = cluster.armed_leader(fault)
    done = cluster.run("scontrol", "requeue", held.job)
    assert done.returncode == 0, done.stderr
    struck(cluster, armed)
    held.runs(2, 180)
    held.ends_well(["0", "1"])


@pytest.mark.parametrize("fault", COMPLETION)
def test_no_exit_is_lost(cluster: Any, fault: str) -> None:
    gate = cluster.work / f"gate-{fault.replace(':', '-')}"
    jobs = {
        cluster.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit {code}"): code for code in (5, 6)
    }
    cluster.until(lambda: all(cluster.runs_of(job) == 1 for job in jobs), "they run")
    armed = cluster.armed_leader(fault)
    gate.touch()
    struck(cluster, armed)
    clean(cluster, jobs, set())


@pytest.mark.parametrize("fault", FROZEN)
def test_a_frozen_leader_comes_back_as_a_follower(cluster: Any, fault: str) -> None:
    """V2: what it was about to do is somebody else's by then, and it does not do it."""
    gate = cluster.work / f"gate-{fault.replace(':', '-')}"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done; "
    jobs = {}
    if "Complete" in fault:
        jobs = {cluster.submit(wait + "exit 5"): 5}
        cluster.until(lambda: all(cluster.runs_of(job) == 1 for job in jobs), "it runs")
    armed = cluster.armed_leader(fault)
    gate.touch()
    jobs[cluster.submit(wait + "exit 7", "-N2")] = 7
    cluster.until(lambda: cluster.frozen(armed), "it is frozen")
    cluster.leader(other_than=armed)
    cluster.until(lambda: not cluster.queued(), "all is done without it", 120)
    cluster.thaw(armed)
    cluster.until(lambda: cluster.leads() != armed, "it follows")
    clean(cluster, jobs, set())


@pytest.mark.parametrize("fault", LOSS)
def test_v20_racing_losses_fence_once(cluster: Any, fault: str) -> None:
    """Both supervisors of a job die at once; their nodes' reports race, and the leader dies among them."""
    held = Held(cluster, "-N2").runs()
    armed = cluster.armed_leader(fault)
    for path in cluster.sessions():
        if path.name.startswith(f"{held.job}."):
            pid = supervisor_in(path)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
    struck(cluster, armed)
    held.runs(2, 180)
    held.ends_well(["0", "1"])


@pytest.mark.parametrize("fault", STEPS)
def test_a_step_is_launched_once(cluster: Any, fault: str) -> None:
    """Its srun asks again at the next leader; each rank runs once, and srun has its exit."""
    held = Held(cluster, "-N2").runs()
    armed = cluster.armed_leader(fault)
    notes = cluster.work / f"ranks-{fault.replace(':', '-')}"
    script = f"echo $SLURM_PROCID >> {notes}; exit 6"
    done, _ = cluster.timed("srun", "--overlap", "--jobid", held.job, "-N2", "-n2", "sh", "-c", script)
    assert done.returncode == 6, done.stderr
    struck(cluster, armed)
    assert sorted(notes.read_text().split()) == ["0", "1"]
    held.ends_well(["0"])


@pytest.mark.parametrize("fault", ["crash_before:StepCancel", "crash_after:StepCancel"])
def test_a_step_is_ended(cluster: Any, fault: str) -> None:
    held = Held(cluster, "-N2").runs()
    client = cluster.begin("srun", "--overlap", "--jobid", held.job, "-N2", "-n2", "sleep", "300")
    cluster.until(lambda: f"{held.job}.0" in cluster.run("squeue", "-h", "-s", "-o", "%i").stdout, "it runs")
    armed = cluster.armed_leader(fault)
    done = cluster.run("scancel", f"{held.job}.0")
    assert done.returncode == 0, done.stderr
    struck(cluster, armed)
    client.communicate(timeout=60)
    assert client.returncode
    held.ends_well(["0"])
