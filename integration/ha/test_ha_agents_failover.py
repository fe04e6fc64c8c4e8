"""Agents and what runs on them while controllers die, freeze and come back.  Matrix rows 16, 17 and 18."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matrix_kit import Held, events
from step_kit import Step
from testkit.crash_cluster import alive

pytestmark = pytest.mark.node
AGENT = "spurd-node1"


def kept_term(cluster: Any, agent: str) -> int:
    """The term that the agent has on its disk."""
    path: Path = cluster.layout.state(agent) / "runtime" / "term.json"
    return int(json.loads(path.read_bytes())["term"])


def term_of(cluster: Any) -> int:
    """The leader's term."""
    told = cluster.view().told
    assert told is not None
    return int(told.term)


def said(cluster: Any, name: str, text: str) -> bool:
    """Whether it is in the daemon's log."""
    return text in cluster.log(name).read_text(errors="replace")


def test_nobody_is_harmed_by_a_failover(ha: Any) -> None:
    """Nodes stay up, work goes on, the end is told to the new leader, and every agent knows its term."""
    cluster = ha(silence=30)
    running, ending = Held(cluster, "-w", "node2").runs(), Held(cluster, "-w", "node3", code=4).runs()
    leader = cluster.leader()
    cluster.kill(leader)
    ending.open()
    begun = time.monotonic()
    cluster.leader(other_than=leader)
    cluster.until(lambda: ending.state() == "FAILED", "its end is known")
    # An election, and the agents' next try.
    assert time.monotonic() - begun < 15
    assert cluster.down_nodes() == []
    term = term_of(cluster)
    cluster.until(lambda: all(kept_term(cluster, one) == term for one in cluster.agents), "all know the term")
    assert cluster.runs_of(running.job) == 1
    cluster.start(leader)
    running.ends_well(["0"])


def test_row_16_all_controllers_are_away(ha: Any) -> None:
    """One step ends meanwhile, one after; neither is hurt, both ends are told once."""
    cluster = ha()
    early, late = Held(cluster, "-w", "node1", code=3).runs(), Held(cluster, "-w", "node2", code=5).runs()
    session = early.session()
    cluster.kill(*cluster.controllers)
    early.open()
    cluster.until(lambda: "ExitObserved" in events(session), "the exit is on the disk")
    cluster.until(lambda: said(cluster, AGENT, "report_failed"), "nobody takes the report")
    # An agent that starts while nobody leads has what it needs too.
    cluster.kill(AGENT)
    cluster.start(AGENT, wait=True)
    assert session.exists()
    assert alive(late.shell())
    for name in cluster.controllers:
        cluster.start(name)
    cluster.until(lambda: early.state() == "FAILED", "its end is known")
    assert late.runs().state() == "RUNNING"
    late.open()
    cluster.settle()
    assert cluster.faults({early.job: 3, late.job: 5}, set()) == []
    assert sorted(cluster.noted()) == sorted([(early.job, "0"), (late.job, "0")])


def test_row_16_steps_and_their_clients(ha: Any, step: Callable[..., Step]) -> None:
    """A step of an allocation runs and ends while no controller is there; its srun has everything."""
    cluster = ha()
    one = step(cluster, "one").begin().runs()
    cluster.kill(*cluster.controllers)
    one.open()
    assert one.tasks()
    for name in cluster.controllers:
        cluster.start(name)
    assert one.status() == 5, one.said()
    assert one.held is not None
    one.held.ends_well(["0"])


def silent(cluster: Any) -> bool:
    """Whether node1 is down."""
    return "node1" in cluster.down_nodes()


def test_row_17_a_cut_off_node_over_a_failover(ha: Any) -> None:
    """The new leader gives the node its time again, declares it down, and waits: no second run."""
    cluster = ha(silence=4)
    held = Held(cluster, "-w", "node1").runs()
    shell = held.shell()
    os.kill(cluster.pid(AGENT), signal.SIGSTOP)
    try:
        leader = cluster.leader()
        cluster.kill(leader)
        cluster.leader(other_than=leader)
        cluster.until(lambda: silent(cluster), "the node is down", 60)
        cluster.start(leader, wait=True)
        assert alive(shell)
        assert cluster.runs_of(held.job) == 1
        # One more leader, with the fence under way.
        second = cluster.leader()
        cluster.kill(second)
        cluster.leader(other_than=second)
        assert cluster.runs_of(held.job) == 1
        cluster.start(second, wait=True)
    finally:
        os.kill(cluster.pid(AGENT), signal.SIGCONT)
    held.runs(2)
    held.ends_well(["0", "1"])


def test_rows_17_18_the_old_run_is_met_by_a_later_leader(ha: Any) -> None:
    """The risk is accepted; when the node is back another controller leads, and ends exactly the old run."""
    cluster = ha(silence=4, settings={"controller": {"fence_unreachable": '"requeue"'}})
    held = Held(cluster, "-w", "node1").runs()
    old = held.shell()
    os.kill(cluster.pid(AGENT), signal.SIGSTOP)
    try:
        cluster.until(lambda: held.state() == "PENDING", "it is requeued", 60)
        cluster.ok("scontrol", "update", f"JobId={held.job}", "ReqNodeList=", "ExcNodeList=node1")
        held.runs(2)
        new = held.shell()
        assert alive(old), "two runs, as accepted"
        leader = cluster.leader()
        cluster.kill(leader)
        cluster.leader(other_than=leader)
        cluster.start(leader, wait=True)
    finally:
        os.kill(cluster.pid(AGENT), signal.SIGCONT)
    cluster.until(lambda: not alive(old), "the old run is ended", 60)
    assert alive(new)
    assert held.state() == "RUNNING"
    held.ends_well(["0", "1"])


def test_a_frozen_leaders_launch_comes_to_nothing_when_it_goes_on(ha: Any) -> None:
    """It stopped with the dispatch in the log and the launch in its hands; another one has decided since.

    Which comes first is the kernel's choice: the call leaves and the agent refuses its term (the agent's own
    tests pin that down), or the member hears that it leads no more and gives the call up.
    """
    cluster = ha()
    armed = cluster.armed_leader("stop_at:launch_sent")
    job = cluster.submit("exit 3")
    cluster.until(lambda: cluster.frozen(armed), "it is frozen")
    cluster.leader(other_than=armed)
    cluster.until(lambda: cluster.state_or_nothing(job) == "FAILED", "it has run")
    assert cluster.runs_of(job) == 1
    cluster.thaw(armed)
    cluster.until(
        lambda: (
            said(cluster, armed, f"launch_failed job={job} attempt=")
            or said(cluster, armed, f"launch_given_up job={job} attempt=")
        ),
        "it is refused or given up",
    )
    cluster.settle()
    assert cluster.runs_of(job) == 1
    assert cluster.faults({job: 3}, set()) == []


def test_a_leader_frozen_over_a_whole_life_does_no_harm(ha: Any) -> None:
    """Frozen from outside with jobs and agents in its hands; all of it has ended when it goes on."""
    cluster = ha()
    jobs = [Held(cluster, code=4).runs() for _ in range(3)]
    leader = cluster.leader()
    cluster.freeze(leader)
    cluster.leader(other_than=leader)
    for one in jobs:
        one.open()
    cluster.until(lambda: all(one.state() == "FAILED" for one in jobs), "all ends are known")
    later = Held(cluster, code=5).runs()
    cluster.thaw(leader)
    cluster.until(lambda: cluster.view().members[0].answer is not None, "it answers")
    assert cluster.leader(other_than=leader)
    later.open()
    cluster.settle()
    assert cluster.faults({**{one.job: 4 for one in jobs}, later.job: 5}, set()) == []
    assert cluster.down_nodes() == []


@pytest.mark.parametrize("point", ["crash_after:reported", "crash_before:reported"])
def test_agent_and_leader_die_around_a_report(ha: Any, point: str) -> None:
    """The report is told once in effect, whoever of the two forgets it."""
    cluster = ha()
    cluster.kill(AGENT)
    with contextlib.suppress(AssertionError):
        cluster.start(AGENT, wait=True, faults=point)
    armed = cluster.armed_leader("crash_after:NodeComplete")
    held = Held(cluster, "-w", "node1", code=6).runs()
    held.open()
    cluster.until(lambda: not cluster.running(armed), "the leader died")
    cluster.until(lambda: held.state() == "FAILED", "its end is known")
    held.ends_well(["0"])
