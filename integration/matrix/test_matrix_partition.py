"""Rows 17 and 18: a node that cannot be reached, and its return."""

import os
import signal
from typing import Any

import pytest
from matrix_kit import Held
from testkit.crash_cluster import alive

pytestmark = pytest.mark.node
AGENT = "spurd-node1"


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
    cluster = crash(nodes=2, silence=4, settings={"controller": {"fence_unreachable": '"requeue"'}})
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
