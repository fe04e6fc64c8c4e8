"""Matrix row 23: no supervisor program, so the launch fails at once and names it."""

import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.node


def test_a_missing_supervisor_fails_fast_and_leaves_nothing(cluster: Any) -> None:
    conf = cluster.folder / "spur.conf"
    with conf.open("a") as file:
        file.write('\n[agent]\nstepd_path = "/nonexistent/spurstepd"\n')
    cluster.restart("spurd-node1")
    cluster.restart("spurd-node2")
    cluster.until(cluster.idle, "all nodes idle")
    begin = time.monotonic()
    job = cluster.sbatch("--wrap", "true")
    shown = cluster.until(
        lambda: "spurstepd" in (out := cluster.ok("scontrol", "show", "job", job)) and out, "a reason"
    )
    assert time.monotonic() - begin < 2.5
    assert "JobState=PENDING" in shown
    assert "/nonexistent/spurstepd" in shown
    sessions = list(cluster.folder.rglob("runtime/sessions"))
    assert sessions
    assert [entry for folder in sessions for entry in Path(folder).iterdir()] == []
    cluster.ok("scancel", job)
