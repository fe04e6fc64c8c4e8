"""Each test kills something at one chosen instant.  One test for each fault that was found so."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from testkit.crash_cluster import BIN, supervisor_in

pytestmark = pytest.mark.node

#: After a failed launch there is another one without long pauses.
SOON = {"controller": {"dispatch_reject_cooldown_secs": "0", "max_launch_backoff_secs": "1"}}
#: The supervisor dies when user code runs and the agent has not been told.
BEFORE_START_ANSWER = """
answer = requests.Requests.answer_starts
def answer_starts(self, reply):
    die()
    answer(self, reply)
requests.Requests.answer_starts = answer_starts
"""
#: The supervisor dies when its task waits at the gate and nothing is recorded.
BEFORE_STARTED = """
record = supervisor.Supervisor._record_start
def record_start(self, action):
    die()
    return record(self, action)
supervisor.Supervisor._record_start = record_start
"""


def test_supervisor_killed_between_start_and_its_answer(crash: Any) -> None:
    """The run that nobody was told of is killed, and the next one is another restart."""
    cluster = crash(nodes=1, fault=BEFORE_START_ANSWER)
    gate = cluster.work / "gate"
    job = cluster.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3")
    cluster.until(lambda: cluster.runs_of(job) >= 1 and cluster.state(job) == "RUNNING", "it runs again")
    cluster.until(lambda: len(cluster.shells()) <= 2, "only one run is there")
    gate.touch()
    cluster.settle()
    assert cluster.faults({job: 3}, set()) == []


def test_supervisor_killed_before_it_recorded_the_start(crash: Any) -> None:
    """Nothing of it is left, groups included; the same restart is launched again, elsewhere."""
    cluster = crash(nodes=2, fault=BEFORE_STARTED, settings={"controller": {"max_launch_backoff_secs": "1"}})
    job = cluster.submit("exit 3")
    cluster.settle()
    assert cluster.faults({job: 3}, set()) == []
    assert cluster.noted() == [(job, "0")]


#: The agent is killed by its supervisor when user code runs and the agent has not been told.
AGENT_BEFORE_START_ANSWER = """
answer = requests.Requests.answer_starts
def answer_starts(self, reply):
    die(AGENT)
    answer(self, reply)
requests.Requests.answer_starts = answer_starts
"""


def test_agent_killed_between_start_and_its_answer(crash: Any) -> None:
    """Matrix row 4: the run goes on and is taken for the launch's success; no second run."""
    cluster = crash(nodes=1, fault=AGENT_BEFORE_START_ANSWER)
    gate = cluster.work / "gate"
    job = cluster.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3")
    cluster.until(lambda: cluster.runs_of(job), "the job runs")
    cluster.until(lambda: not cluster.running("spurd-node1"), "the agent is dead")
    cluster.start("spurd-node1", wait=True)
    cluster.until(lambda: cluster.state(job) == "RUNNING", "the job is taken for running")
    gate.touch()
    cluster.settle()
    assert cluster.faults({job: 3}, set()) == []
    assert cluster.noted() == [(job, "0")]


def test_supervisor_killed_under_a_running_job(crash: Any) -> None:
    """13.7: requeued at once, at the agent's word, and not after a minute of absence."""
    cluster = crash(nodes=1)
    gate = cluster.work / "gate"
    job = cluster.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3")
    cluster.until(lambda: cluster.runs_of(job) and cluster.state(job) == "RUNNING", "it runs")
    assert cluster.shells(), "what is looked for at the end can be seen"
    if os.geteuid() == 0:
        assert len(cluster.supervisors()) == 1
        assert cluster.groups()
    os.kill(cluster.supervisor_of(job), signal.SIGKILL)
    cluster.until(lambda: cluster.state(job) == "PENDING" or cluster.runs_of(job) == 2, "it is requeued", 20)
    gate.touch()
    cluster.settle()
    assert cluster.faults({job: 3}, set()) == []
    assert cluster.noted() == [(job, "0"), (job, "1")]


def test_agent_and_supervisor_killed_together(crash: Any) -> None:
    """Matrix row 9: nobody watches the run until the agent is back; then it is killed and requeued."""
    cluster = crash(nodes=1)
    gate = cluster.work / "gate"
    job = cluster.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3")
    cluster.until(lambda: cluster.runs_of(job) and cluster.state(job) == "RUNNING", "it runs")
    supervisor = cluster.supervisor_of(job)
    cluster.kill("spurd-node1")
    os.kill(supervisor, signal.SIGKILL)
    cluster.start("spurd-node1", wait=True)
    cluster.until(lambda: cluster.runs_of(job) == 2, "it runs again", 60)
    gate.touch()
    cluster.settle()
    assert cluster.faults({job: 3}, set()) == []
    assert cluster.noted() == [(job, "0"), (job, "1")]


def test_everything_killed_and_started_again(crash: Any) -> None:
    """Runs go on without a daemon, and one that ends meanwhile is not lost."""
    cluster = crash(nodes=2)
    gate, ends = cluster.work / "gate", cluster.work / "ends"
    stays = cluster.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3")
    leaves = cluster.submit(f"while [ ! -e {ends} ]; do sleep 0.05; done; exit 4")
    for job in (stays, leaves):
        cluster.until(lambda job=job: cluster.runs_of(job) and cluster.state(job) == "RUNNING", "it runs")
    shells = set(cluster.shells())
    cluster.kill(*cluster.layout.daemons)
    ends.touch()
    cluster.until(lambda: len(cluster.shells()) < len(shells), "one job has ended")
    cluster.start_all()
    cluster.until(lambda: cluster.state(leaves) == "FAILED", "its end is known")
    assert cluster.state(stays) == "RUNNING"
    gate.touch()
    cluster.settle()
    assert cluster.faults({stays: 3, leaves: 4}, set()) == []
    assert cluster.noted().count((stays, "0")) == 1


def test_requeue_while_the_agent_is_down(crash: Any) -> None:
    cluster = crash(nodes=1)
    gate = cluster.work / "gate"
    job = cluster.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3")
    cluster.until(lambda: cluster.runs_of(job) and cluster.state(job) == "RUNNING", "it runs")
    cluster.kill("spurd-node1")
    cluster.ok("scontrol", "requeue", job)
    assert cluster.state(job) in ("RUNNING", "COMPLETING")
    cluster.start("spurd-node1", wait=True)
    cluster.until(lambda: cluster.runs_of(job) == 2, "it runs again", 60)
    gate.touch()
    cluster.settle()
    assert cluster.faults({job: 3}, set()) == []
    assert cluster.noted() == [(job, "0"), (job, "1")]


def test_node_down_by_silence_and_back(crash: Any) -> None:
    """The fence waits for the node's word: the run is not doubled while nobody knows."""
    cluster = crash(nodes=2, silence=4)
    gate = cluster.work / "gate"
    job = cluster.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3", "-w", "node1")
    cluster.until(lambda: cluster.runs_of(job) and cluster.state(job) == "RUNNING", "it runs")
    cluster.kill("spurd-node1")
    cluster.until(
        lambda: "down" in cluster.ok("sinfo", "-h", "-n", "node1", "-o", "%t"), "the node is down", 30
    )
    assert cluster.runs_of(job) == 1
    cluster.start("spurd-node1", wait=True)
    cluster.until(lambda: cluster.runs_of(job) == 2, "it runs again", 60)
    gate.touch()
    cluster.settle()
    assert cluster.faults({job: 3}, set()) == []
    assert cluster.noted() == [(job, "0"), (job, "1")]


def test_200_jobs_cancelled_while_the_agent_restarts(crash: Any) -> None:
    cluster = crash(nodes=1)
    out = cluster.ok(
        "sbatch", "--parsable", "-o", "/dev/null", "-a", "0-199", "--wrap", cluster.body("sleep 600")
    )
    cluster.until(lambda: len(cluster.noted()) >= 8, "the node is full")
    cluster.kill("spurd-node1")
    cluster.ok("scancel", out.strip())
    cluster.start("spurd-node1")
    cluster.settle()
    assert {state for _, state, _ in cluster.rows()} == {"CANCELLED"}
    assert cluster.faults({}, set()) == []


def test_an_end_is_reported_soon_after_a_long_silence_of_the_controller(crash: Any) -> None:
    """The pause between two reports has grown long; the first heartbeat that is heard cuts it short."""
    cluster = crash(nodes=1)
    gate = cluster.work / "gate"
    job = cluster.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3")
    cluster.until(lambda: cluster.runs_of(job) and cluster.state(job) == "RUNNING", "it runs")
    cluster.kill("spurctld-1")
    gate.touch()
    log = cluster.log("spurd-node1")
    cluster.until(lambda: log.read_text().count("report_failed") >= 4, "pauses of 8 s and more", 60)
    cluster.start("spurctld-1", wait=True)
    cluster.until(lambda: cluster.state(job) == "FAILED", "its end is known", 6)
    cluster.settle()
    assert cluster.faults({job: 3}, set()) == []


def _start(cluster: Any, *argv: str) -> "subprocess.Popen[str]":
    """A client that stays with its job."""
    return subprocess.Popen(
        [str(BIN / argv[0]), *argv[1:]],
        env=cluster.env,
        cwd=cluster.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _journal(session: Path) -> str:
    """What is on record, "" before there is one."""
    path = session / "journal"
    return path.read_text() if path.exists() else ""


def _waits_for(gate: Path) -> str:
    return f"while [ ! -e {gate} ]; do sleep 0.05; done"


def test_a_step_ends_while_its_agent_is_dead_and_its_client_still_has_it_all(crash: Any) -> None:
    """The controller wants nothing more of the end, and may say so before the client is back."""
    cluster = crash(nodes=1, waits={"spur_agent.streams._LINGER_SECS": 1.0})
    gate = cluster.work / "gate"
    srun = _start(
        cluster, "srun", "sh", "-c", cluster.body(f"echo one; {_waits_for(gate)}; echo two; exit 3")
    )
    cluster.until(lambda: cluster.noted(), "it runs")
    session = cluster.sessions()[0]
    cluster.kill("spurd-node1")
    gate.touch()
    cluster.until(lambda: "ExitObserved" in _journal(session), "it has ended")
    cluster.start("spurd-node1", wait=True)
    out, err = srun.communicate(timeout=60)
    assert (out, srun.returncode) == ("one\ntwo\n", 3), err
    cluster.settle()
    assert cluster.faults({cluster.noted()[0][0]: 3}, set()) == []


def test_the_output_is_not_kept_long_once_it_was_sent(crash: Any) -> None:
    """The agent dies between the last word to the client and the end of the session."""
    cluster = crash(nodes=1, waits={"spur_agent.keeper.COME_BACK_SECS": 2.0})
    assert cluster.run("srun", "sh", "-c", cluster.body("echo one")).stdout == "one\n"
    cluster.kill("spurd-node1")
    assert cluster.sessions(), "it is kept for a client that may have missed the end"
    cluster.start("spurd-node1", wait=True)
    cluster.settle(30)
    assert cluster.faults({}, set()) == []


def test_a_launch_that_finds_no_agent_is_no_run(crash: Any) -> None:
    """It never left, so the same attempt is launched when the agent is back: no restart, no waiting."""
    cluster = crash(nodes=1)
    cluster.until(cluster.idle, "the node is registered")
    cluster.kill("spurd-node1")
    job = cluster.submit("exit 3")
    log = cluster.log("spurctld-1")
    cluster.until(lambda: f"probe_waits job={job}" in log.read_text(), "the launch has failed once")
    cluster.start("spurd-node1", wait=True)
    cluster.settle()
    assert cluster.faults({job: 3}, set()) == []
    assert cluster.noted() == [(job, "0")]
    assert f"launch_failed job={job}" not in log.read_text()


def test_salloc_waits_on_when_its_launch_fails(crash: Any) -> None:
    """An agent dies in the launch: the allocation goes back to the queue, and its client with it."""
    cluster = crash(nodes=1, settings=SOON)
    cluster.kill("spurd-node1")
    cluster.start("spurd-node1", wait=True, faults="crash_after:spawned")
    salloc = _start(cluster, "salloc", "sh", "-c", cluster.body("exit 3"))
    cluster.until(lambda: not cluster.running("spurd-node1"), "the agent is dead")
    cluster.start("spurd-node1", wait=True)
    _, err = salloc.communicate(timeout=60)
    assert salloc.returncode == 3, err
    assert "revoked" not in err
    cluster.settle()
    assert len(cluster.noted()) == 1
    assert cluster.faults({cluster.noted()[0][0]: 3}, set()) == []


def test_srun_exits_137_when_the_only_supervisor_of_its_step_dies(crash: Any) -> None:
    """13.7: a numbered step ends FAILED 0:9 and the script goes on; a step 0 takes its job with it."""
    cluster = crash(nodes=1)
    said = cluster.work / "said"
    job = cluster.submit(f"srun sleep 600; echo $? > {said}; exit 3")
    cluster.until(lambda: any(path.name == f"{job}.1.0" for path in cluster.sessions()), "the step is there")
    step = cluster.session("spurd-node1", f"{job}.1.0")
    cluster.until(lambda: "Started" in _journal(step), "it runs")
    cluster.until(lambda: f"StepId={job}.0" in cluster.ok("scontrol", "show", "step"), "that is known")
    os.kill(supervisor_in(step), signal.SIGKILL)
    cluster.until(lambda: cluster.state(job) == "FAILED", "the job has ended", 30)
    assert said.read_text() == "137\n"
    srun = _start(cluster, "srun", "sh", "-c", cluster.body("exec sleep 600"))
    cluster.until(lambda: len(cluster.noted()) == 2 and "R" in "".join(cluster.queued()), "it runs")
    alone = cluster.noted()[1][0]
    cluster.until(lambda: cluster.state(alone) == "RUNNING", "that is known")
    os.kill(cluster.supervisor_of(alone), signal.SIGKILL)
    _, err = srun.communicate(timeout=60)
    assert srun.returncode == 137, err
    cluster.settle()
    assert cluster.faults({job: 3}, set()) == []
    assert (alone, "FAILED", "0:9") in cluster.rows()
