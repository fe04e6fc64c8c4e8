"""Rows 17 and 18: a node that cannot be reached, and its return."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from matrix_kit import NOBODY_COMES, Held
from step_kit import Step
from testkit.crash_cluster import alive

pytestmark = pytest.mark.node
AGENT = "spurd-node1"
#: The administrator would rather have two runs than wait.
ACCEPTED = {"controller": {"fence_unreachable": '"requeue"'}}


def down(cluster: Any) -> bool:
    """Whether node1 is down."""
    return "down" in cluster.ok("sinfo", "-h", "-n", "node1", "-o", "%t")


def test_row_17_a_node_is_cut_off_and_the_fence_cannot_be_confirmed(crash: Any) -> None:
    """The job waits for certainty: no second run while nobody knows."""
    cluster = crash(nodes=2, silence=4)
    held = Held(cluster, "-w", "node1").runs()
    os.kill(cluster.pid(AGENT), signal.SIGSTOP)
    cluster.until(lambda: down(cluster), "the node is down", 30)
    assert cluster.runs_of(held.job) == 1
    assert alive(held.shell())
    os.kill(cluster.pid(AGENT), signal.SIGCONT)
    held.runs(2)
    held.ends_well(["0", "1"])


def test_rows_17_18_the_risk_is_accepted_and_the_node_comes_back(crash: Any) -> None:
    """Requeued at once elsewhere; the old run is ended by its exact identity, the new one is untouched."""
    cluster = crash(nodes=2, silence=4, settings=ACCEPTED)
    held = Held(cluster, "-x", "node2").runs()
    old = held.shell()
    os.kill(cluster.pid(AGENT), signal.SIGSTOP)
    cluster.until(lambda: down(cluster), "the node is down", 30)
    cluster.until(lambda: held.state() == "PENDING", "it is requeued", 30)
    cluster.ok("scontrol", "update", f"JobId={held.job}", "ExcNodeList=node1")
    held.runs(2)
    new = held.shell()
    assert alive(old), "two runs, as accepted"
    os.kill(cluster.pid(AGENT), signal.SIGCONT)
    cluster.until(lambda: not alive(old), "the old run is ended", 30)
    assert alive(new)
    assert held.state() == "RUNNING"
    held.ends_well(["0", "1"])


def test_row_17_a_node_with_steps_is_cut_off(crash: Any, step: Callable[..., Step]) -> None:
    """Steps of two nodes: nothing of the attempt is run again while a node of it may still have it."""
    cluster = crash(nodes=2, silence=4, waits=NOBODY_COMES)
    one = step(cluster, "two").begin().runs()
    assert one.held is not None
    tasks = one.tasks()
    second = cluster.agents[1]
    os.kill(cluster.pid(second), signal.SIGSTOP)
    cluster.until(lambda: "down" in cluster.ok("sinfo", "-h", "-n", "node2", "-o", "%t"), "it is down", 30)
    assert alive(tasks[1])
    assert cluster.runs_of(one.job) == 1
    one.forget()
    os.kill(cluster.pid(second), signal.SIGCONT)
    one.held.runs(2)
    assert not any(alive(pid) for pid in tasks.values())
    one.runs()
    one.open()
    assert one.status() == 5, one.said()
    one.held.ends_well(["0", "1"])


def test_rows_17_18_a_step_of_the_old_attempt_comes_back(crash: Any, step: Callable[..., Step]) -> None:
    """The new attempt has a step of the same number; only the old one is ended."""
    cluster = crash(nodes=2, silence=4, settings=ACCEPTED, waits=NOBODY_COMES)
    one = step(cluster, "one").begin("-x", "node2").runs()
    assert one.held is not None
    old = [*one.tasks().values(), one.held.shell()]
    os.kill(cluster.pid(AGENT), signal.SIGSTOP)
    cluster.until(lambda: down(cluster), "the node is down", 30)
    cluster.until(lambda: one.held.state() == "PENDING", "it is requeued", 30)
    one.forget()
    cluster.ok("scontrol", "update", f"JobId={one.job}", "ExcNodeList=node1")
    one.held.runs(2)
    one.runs()
    new = [*one.tasks().values(), one.held.shell()]
    assert all(alive(pid) for pid in old), "two runs, as accepted"
    os.kill(cluster.pid(AGENT), signal.SIGCONT)
    cluster.until(lambda: not any(alive(pid) for pid in old), "the old run is ended", 30)
    assert all(alive(pid) for pid in new)
    one.open()
    assert one.status() == 5, one.said()
    one.held.ends_well(["0", "1"])
