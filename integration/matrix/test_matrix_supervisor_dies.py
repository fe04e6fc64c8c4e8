"""Rows 6 to 9, 23, 28 and 30: the supervisor dies, was never there, or loses its files."""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from matrix_kit import AGAIN, DAEMON, Held, events
from testkit.crash_cluster import alive, supervisor_in

import spur_core
import spur_proto_lite
import spur_stepd

pytestmark = pytest.mark.node
AGENT = "spurd-node1"


@pytest.mark.parametrize(
    "point", ["crash_before:Prepared", "crash_after:ready", "crash_after:forked", "crash_before:Started"]
)
def test_row_06_the_supervisor_dies_before_started(crash: Any, point: str) -> None:
    """The launch fails, nothing is left, and the job is launched again: user code has not run."""
    cluster = crash(nodes=2, settings=AGAIN)
    for agent in cluster.agents:
        cluster.kill(agent)
        cluster.start(agent, wait=True, faults=point if agent == AGENT else "")
    held = Held(cluster, "-w", "node1")
    held.runs()
    assert "launch_failed" in cluster.log(AGENT).read_text()
    held.ends_well(["0"])


def test_row_07_the_supervisor_dies_under_a_running_step(crash: Any) -> None:
    """The task is killed through its group, the job is requeued at once."""
    cluster = crash(nodes=1)
    held = Held(cluster, before=DAEMON).runs()
    os.kill(cluster.supervisor_of(held.job), signal.SIGKILL)
    held.runs(2)
    held.ends_well(["0", "1"])


@pytest.mark.parametrize("point", ["crash_after:ExitObserved", "crash_after:push", "crash_after:CleanupDone"])
def test_row_08_the_supervisor_dies_after_the_exit_was_recorded(crash: Any, point: str) -> None:
    """The exit is reported from the journal; the agent finishes the cleanup."""
    cluster = crash(nodes=1)
    cluster.kill(AGENT)
    cluster.start(AGENT, wait=True, faults=point)
    held = Held(cluster, before=DAEMON).runs()
    held.ends_well(["0"])


def test_row_09_supervisor_and_agent_die_together(crash: Any) -> None:
    """The task goes on unwatched until the agent is back; then as row 7."""
    cluster = crash(nodes=1)
    held = Held(cluster).runs()
    shell, supervisor = held.shell(), cluster.supervisor_of(held.job)
    cluster.kill(AGENT)
    os.kill(supervisor, signal.SIGKILL)
    assert alive(shell)
    cluster.start(AGENT, wait=True)
    held.runs(2)
    assert not alive(shell)
    held.ends_well(["0", "1"])


@pytest.mark.parametrize("kind", ["missing", "not executable"])
def test_row_23_no_supervisor_program(crash: Any, tmp_path: Path, kind: str) -> None:
    """The launch fails at once with the cause, not after the ten seconds of readiness."""
    program = tmp_path / "spurstepd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    cluster = crash(nodes=1)
    gone = tmp_path / "nowhere" if kind == "missing" else program
    cluster.kill(AGENT)
    text = cluster.layout.config.read_text()
    cluster.layout.config.write_text(text.replace("[agent]\n", f'[agent]\nstepd_path = "{gone}"\n'))
    cluster.start(AGENT)
    held = Held(cluster)
    log = cluster.log(AGENT)
    cluster.until(lambda: str(gone) in log.read_text(), "the cause is in the log", 10)
    assert cluster.runs_of(held.job) == 0
    assert not cluster.sessions()
    cluster.ok("scancel", held.job)
    cluster.until(lambda: held.state() == "CANCELLED", "the job is gone")


def test_row_28_an_upgrade_replaces_the_files_under_a_running_supervisor(crash: Any, tmp_path: Path) -> None:
    """Everything that it needs is loaded before it is ready."""
    copies = tmp_path / "lib"
    for package in (spur_core, spur_proto_lite, spur_stepd):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, copies / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o755)
    program = tmp_path / "spurstepd"
    program.write_text(
        f"#!{sys.executable} -IB\nimport sys\nsys.path.insert(0, {str(copies)!r})\n"
        "from spur_stepd.main import console\nconsole()\n"
    )
    program.chmod(0o755)
    cluster = crash(nodes=1, settings={"agent": {"stepd_path": f'"{program}"'}})
    held = Held(cluster, before="setsid sleep 600 & true").runs()
    session = held.session()
    shutil.rmtree(copies)
    held.open()
    cluster.until(lambda: not session.exists() or "CleanupDone" in events(session), "it cleans up")
    cluster.settle()
    assert cluster.faults({held.job: 3}, set()) == []


def test_row_30_one_node_of_a_cohort_comes_back_stale(crash: Any) -> None:
    """All nodes are fenced by exact attempt and the job is requeued once."""
    cluster = crash(nodes=2, cpus=2)
    held = Held(cluster, "-N2", "-n4").runs()
    name = f"{held.job}.1."
    cluster.until(lambda: len([s for s in cluster.sessions() if s.name.startswith(name)]) == 2, "both hold")
    second = cluster.agents[1]
    (companion,) = [s for s in cluster.sessions() if s.name.startswith(name) and second in str(s)]
    pid = supervisor_in(companion)
    assert pid is not None
    cluster.kill(second)
    os.kill(pid, signal.SIGKILL)
    cluster.start(second, wait=True)
    held.runs(2)
    held.ends_well(["0", "1"])
