"""`spur up --controllers 3`: a group on this machine, through the command line only."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trio(make_cluster: Any) -> Iterator[Any]:
    """Three controllers, two nodes."""
    cluster = make_cluster(2, "--cpus", "4", "--controllers", "3")
    yield cluster
    cluster.down()


def leader(cluster: Any) -> str:
    """`spurctld-N` of the one that leads."""
    lines = cluster.ok("scontrol", "ping").splitlines()
    (line,) = [line for line in lines if " leads, term " in line]
    return f"spurctld-{line.split()[1]}"


def test_all_of_it_runs(trio: Any) -> None:
    names = {path.stem for path in (trio.folder / "run").glob("*.pid")}
    assert names == {"spurctld-1", "spurctld-2", "spurctld-3", "spurd-node1", "spurd-node2"}
    assert len([line for line in trio.ok("scontrol", "ping").splitlines() if line.endswith(" is UP")]) == 3
    job = trio.sbatch("--wrap", "hostname")
    assert trio.wait(job) == "COMPLETED"


def test_the_leader_may_be_killed_under_a_running_job(trio: Any) -> None:
    gate = trio.work / "gate"
    job = trio.sbatch("--wrap", f"until [ -e {gate} ]; do sleep 0.1; done")
    trio.until(lambda: trio.queue_state(job) == "R", "it runs")
    first = leader(trio)
    trio.kill(first)
    other = trio.sbatch("-H", "--wrap", "true")
    assert trio.queue_state(job) == "R"
    assert leader(trio) != first
    trio.restart(first)
    gate.touch()
    assert trio.wait(job) == "COMPLETED"
    trio.ok("scancel", other)


@pytest.mark.parametrize("how", [(), ("--kill",)])
def test_each_daemon_can_be_restarted(trio: Any, how: tuple[str, ...]) -> None:
    for name in ("spurctld-1", "spurctld-2", "spurctld-3"):
        before = trio.pid(name)
        trio.restart(name, *how)
        assert trio.pid(name) != before
        assert trio.ok("squeue")
    done = trio.run("spur", "restart", "spurctld-4", "--dir", str(trio.folder))
    assert done.returncode == 1
    assert "no program spurctld-4" in done.stderr


def test_down_and_up_again_resume_all_of_it(trio: Any) -> None:
    before = trio.sbatch("--wrap", "true")
    trio.wait(before)
    held = trio.sbatch("-H", "--wrap", "true")
    trio.ok("spur", "down", "--dir", str(trio.folder))
    assert not list((trio.folder / "run").glob("*.pid"))
    assert "3 controllers" in trio.ok("spur", "up", "--dir", str(trio.folder))
    assert trio.state(before) == "COMPLETED"
    assert trio.state(held) == "CANCELLED", "down ends what waits"
    after = trio.sbatch("--wrap", "true")
    assert int(after) > int(held)
    assert trio.wait(after) == "COMPLETED"


def test_up_brings_back_what_died(trio: Any) -> None:
    for name in ("spurctld-2", "spurctld-3", "spurd-node1"):
        os.kill(trio.pid(name), signal.SIGKILL)
    assert "resumed" in trio.ok("spur", "up", "--dir", str(trio.folder))
    trio.until(trio.idle, "all nodes are idle")
    inspect = ["spurctld", "raft", "inspect", "--state-dir"]
    for name in ("spurctld-1", "spurctld-2", "spurctld-3"):
        out = trio.ok(*inspect, str(Path(trio.folder) / "state" / name))
        assert out.splitlines()[-1] == "state       in order"
