"""Rows 1 to 5 and 16: the agent, or every controller, dies at some moment of a step's life."""

import os
import signal
from typing import Any

import pytest
from matrix_kit import AGAIN, IS_ROOT, Held, events

pytestmark = pytest.mark.node
AGENT = "spurd-node1"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_row_01_the_agent_dies_under_a_running_step(crash: Any, how: signal.Signals) -> None:
    """The step goes on and is adopted; nobody sees a change of state, no signal reaches it."""
    cluster = crash(nodes=1)
    held = Held(cluster).runs()
    shell, supervisor = held.shell(), cluster.supervisor_of(held.job)
    told = cluster.ok("squeue", "-h", "-o", "%i %T %N %r")
    os.kill(cluster.pid(AGENT), how)
    cluster.until(lambda: not cluster.running(AGENT), "the agent is gone")
    assert cluster.ok("squeue", "-h", "-o", "%i %T %N %r") == told
    cluster.start(AGENT, wait=True)
    cluster.until(
        lambda: cluster.ok("sinfo", "-h", "-o", "%t").strip() in ("mix", "alloc"), "the node is back"
    )
    assert cluster.ok("squeue", "-h", "-o", "%i %T %N %r") == told
    assert (held.shell(), cluster.supervisor_of(held.job)) == (shell, supervisor)
    assert "Signalled" not in events(held.session())
    held.ends_well(["0"])


@pytest.mark.parametrize(
    ("last", "state", "status"), [("exit 7", "FAILED", "7:0"), ("kill -9 $$", "FAILED", "0:9")]
)
def test_row_02_a_step_ends_while_the_agent_is_away(crash: Any, last: str, state: str, status: str) -> None:
    """Its exit is reported after the restart, once."""
    cluster = crash(nodes=1)
    held = Held(cluster, last=last).runs()
    session = held.session()
    cluster.kill(AGENT)
    held.open()
    cluster.until(lambda: "ExitObserved" in events(session), "the exit is recorded")
    cluster.start(AGENT, wait=True)
    cluster.settle()
    assert [row for row in cluster.rows() if row[0] == held.job] == [(held.job, state, status)]
    assert cluster.faults({}, set()) == []


def test_row_03_the_agent_dies_between_spawn_and_start(crash: Any) -> None:
    """No user code ran; the controller learns that nothing is there, and the next attempt runs.

    That a supervisor gives up by itself when no start comes is shown by
    `test_never_started_is_given_up` in packages/spur-stepd/tests/test_stepd_signals.py.
    """
    cluster = crash(nodes=1, settings=AGAIN)
    cluster.kill(AGENT)
    cluster.start(AGENT, wait=True, faults="crash_after:spawned")
    held = Held(cluster)
    cluster.until(lambda: not cluster.running(AGENT), "the agent is dead")
    assert cluster.runs_of(held.job) == 0
    cluster.start(AGENT, wait=True)
    held.runs()
    held.ends_well()
    # Which attempt it was is the controller's business: it could not know that nothing of the first had run.
    assert cluster.runs_of(held.job) == 1


def test_row_04_the_agent_dies_between_start_and_the_launchs_answer(crash: Any) -> None:
    """The run is found alive and is the launch's success: no second run."""
    cluster = crash(nodes=1)
    cluster.kill(AGENT)
    cluster.start(AGENT, wait=True, faults="crash_after:started")
    held = Held(cluster)
    cluster.until(lambda: not cluster.running(AGENT), "the agent is dead")
    cluster.until(lambda: cluster.runs_of(held.job) == 1, "user code runs")
    cluster.start(AGENT, wait=True)
    held.runs()
    held.ends_well(["0"])


def test_row_05_the_agent_dies_between_report_and_acknowledgement(crash: Any) -> None:
    """Reported again, answered "already final", and only then forgotten."""
    cluster = crash(nodes=1)
    cluster.kill(AGENT)
    cluster.start(AGENT, wait=True, faults="crash_after:reported")
    held = Held(cluster).runs()
    session = held.session()
    held.open()
    cluster.until(lambda: not cluster.running(AGENT), "the agent is dead")
    assert held.state() == "FAILED"
    assert "Acknowledged" not in events(session)
    cluster.start(AGENT, wait=True)
    cluster.settle()
    assert cluster.faults({held.job: 3}, set()) == []
    assert "FINAL" in cluster.log(AGENT).read_text()


def test_row_16_no_controller_while_steps_run_and_end(crash: Any) -> None:
    """The agent keeps everything and tells it when a controller is back."""
    cluster = crash(nodes=1)
    stays, leaves = Held(cluster).runs(), Held(cluster, code=4).runs()
    session = leaves.session()
    cluster.kill("spurctld-1")
    leaves.open()
    cluster.until(lambda: "ExitObserved" in events(session), "the exit is recorded")
    cluster.start("spurctld-1", wait=True)
    cluster.until(lambda: leaves.state() == "FAILED", "its end is known")
    assert stays.state() == "RUNNING"
    stays.open()
    cluster.settle()
    assert cluster.faults({stays.job: 3, leaves.job: 4}, set()) == []
    assert IS_ROOT or cluster.noted().count((stays.job, "0")) == 1
