"""When a waiting job will start and what it waits for, end to end."""

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def small(make_cluster: Callable[..., Any]) -> Iterator[Any]:
    cluster = make_cluster(2, "--cpus", "2")
    yield cluster
    cluster.down()


@pytest.fixture(autouse=True)
def _empty(small: Any) -> Iterator[None]:
    yield
    small.ok("scancel", "-u", small.ok("id", "-un").strip())
    small.until(small.idle, "the nodes are idle")


def submit(cluster: Any, *options: str) -> str:
    return str(cluster.sbatch("-o", "/dev/null", *options, "--wrap", "sleep 300"))


def field(cluster: Any, job: str, letters: str) -> str:
    return str(cluster.ok("squeue", "-h", "-j", job, "-o", letters)).strip()


def test_a_waiting_job_knows_its_start(small: Any) -> None:
    """Both nodes are busy for ten and twenty minutes; the first job that waits gets the earlier one."""
    long = submit(small, "-c", "2", "-t", "20", "-w", "node1")
    short = submit(small, "-c", "2", "-t", "10", "-w", "node2")
    for job in (long, short):
        small.until(lambda job=job: field(small, job, "%T") == "RUNNING", f"{job} runs")
    first = submit(small, "-c", "2", "-t", "5")
    behind = submit(small, "-c", "2", "-t", "5")
    small.until(lambda: field(small, first, "%r") == "Resources", "the first waits for room")
    small.until(lambda: field(small, behind, "%r") == "Priority", "the other waits behind it")
    ends = field(small, short, "%e")
    small.until(lambda: field(small, first, "%Y") == "node2", "its node is known")
    start = small.ok("squeue", "--start", "-h", "-j", first, "-o", "%S").strip()
    apart = datetime.datetime.fromisoformat(start) - datetime.datetime.fromisoformat(ends)
    assert abs(apart.total_seconds()) <= 2
    shown = small.ok("scontrol", "show", "job", "-d", first)
    assert f"StartTime={start}" in shown
    assert "SchedNodeList=node2" in shown
    assert "WaitsFor=It is the first in line in its partition and waits for nodes to come free;" in shown
    assert f"; it is expected to start by {start} on node2" in shown
    shown = small.ok("scontrol", "show", "job", "-d", behind)
    assert "WaitsFor=Jobs before it in its partition wait too" in shown
    assert "WaitsFor" not in small.ok("scontrol", "show", "job", first)


def test_a_trial_tells_the_start(small: Any) -> None:
    job = submit(small, "-N", "2", "-c", "2", "-t", "10")
    small.until(lambda: field(small, job, "%T") == "RUNNING", "it runs")
    told = small.run("sbatch", "--test-only", "-c", "2", "--wrap", "true")
    ends = field(small, job, "%e")
    assert "using 2 processors on nodes node1" in told.stderr, told
    start = told.stderr.split(" to start at ")[1].split()[0]
    apart = datetime.datetime.fromisoformat(start) - datetime.datetime.fromisoformat(ends)
    assert abs(apart.total_seconds()) <= 2


def test_figures(small: Any) -> None:
    job = submit(small, "-t", "1")
    small.until(lambda: field(small, job, "%T") == "RUNNING", "it runs")
    shown = small.ok("sdiag")
    assert "Main schedule statistics (microseconds):" in shown
    assert "\tTotal cycles: " in shown
    assert "Backfilling stats" in shown
