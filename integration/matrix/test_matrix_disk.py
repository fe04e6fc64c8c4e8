"""Rows 19 to 22, 24 and 25: disks that are full, torn or prepared by somebody, a socket that is gone."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from matrix_kit import AGAIN, BATCH, Held, Wire, events
from testkit.crash_cluster import alive

pytestmark = pytest.mark.node
AGENT = "spurd-node1"


@pytest.mark.root
def test_row_19_the_disk_is_full_at_launch(crash: Any, small_disk: Any) -> None:
    """The launch is refused, the node drains itself, and the job runs once there is room."""
    cluster = crash(nodes=1, settings=AGAIN)
    cluster.kill(AGENT)
    disk = small_disk(cluster.folder / "state" / AGENT)
    cluster.start(AGENT, wait=True)
    disk.fill()
    held = Held(cluster)
    cluster.until(lambda: "drain" in cluster.ok("sinfo", "-h", "-o", "%t"), "the node drains")
    assert cluster.runs_of(held.job) == 0
    assert held.state() == "PENDING"
    assert "space" in cluster.ok("sinfo", "-h", "-R", "-o", "%E").lower()
    disk.free()
    cluster.ok("scontrol", "update", "NodeName=node1", "State=RESUME")
    held.runs()
    held.ends_well(["0"])
    cluster.stop()


@pytest.mark.root
def test_row_20_the_disk_is_full_at_exit(crash: Any, small_disk: Any) -> None:
    """The exit is kept in memory, told all the same, and written when there is room; only then it ends."""
    cluster = crash(nodes=1)
    cluster.kill(AGENT)
    disk = small_disk(cluster.folder / "state" / AGENT)
    cluster.start(AGENT, wait=True)
    held = Held(cluster, before="trap : USR1").runs()
    session, supervisor, wire = held.session(), cluster.supervisor_of(held.job), Wire(cluster)
    # The journal's last page must have no room for the exit: signals leave a record each.
    while (session / "journal").stat().st_size % 4096 < 3900:
        wire.cancel((int(held.job), 1, BATCH), signal=signal.SIGUSR1)
    disk.fill()
    held.open()
    cluster.until(lambda: held.state() == "FAILED", "the exit is told")
    assert alive(supervisor)
    assert "ExitObserved" not in events(session)
    disk.free()
    cluster.settle()
    assert cluster.faults({held.job: 3}, set()) == []
    cluster.stop()


def test_row_20_writing_the_exit_fails_once(crash: Any) -> None:
    """The same with a fault point, for every user: written at the second try."""
    cluster = crash(nodes=1)
    cluster.kill(AGENT)
    cluster.start(AGENT, wait=True, faults="fail:ExitObserved")
    held = Held(cluster).runs()
    held.ends_well(["0"])


def test_row_21_a_torn_line_in_the_journal(crash: Any) -> None:
    """What was written before it counts."""
    cluster = crash(nodes=1)
    held = Held(cluster).runs()
    session, supervisor = held.session(), cluster.supervisor_of(held.job)
    cluster.kill(AGENT)
    held.open()
    cluster.until(lambda: "ExitObserved" in events(session), "the exit is recorded")
    os.kill(supervisor, signal.SIGKILL)
    with open(session / "journal", "a") as file:
        file.write('{"seq":9,"at":17')
    cluster.start(AGENT, wait=True)
    cluster.settle()
    assert cluster.faults({held.job: 3}, set()) == []


def test_row_21_damage_in_the_middle_of_the_journal(crash: Any) -> None:
    """The session is fenced and kept in quarantine; the agent starts; the job runs again."""
    cluster = crash(nodes=1)
    held = Held(cluster).runs()
    session, supervisor = held.session(), cluster.supervisor_of(held.job)
    cluster.kill(AGENT)
    os.kill(supervisor, signal.SIGKILL)
    text = (session / "journal").read_text()
    (session / "journal").write_text("no json\n" + text)
    cluster.start(AGENT, wait=True)
    held.runs(2)
    quarantine = cluster.folder / "state" / AGENT / "runtime" / "quarantine"
    assert [path for path in quarantine.iterdir() if path.name.startswith(f"{held.job}.1.")]
    held.ends_well(["0", "1"])


def test_row_22_the_notify_socket_is_gone(crash: Any) -> None:
    """The agent asks by itself; the completion is counted as one that came by replay."""
    cluster = crash(nodes=1, waits={"spur_agent.watch.SWEEP_SECS": 3.0})
    held = Held(cluster).runs()
    (cluster.folder / "state" / AGENT / "runtime" / "notify.sock").unlink()
    held.ends_well(["0"])
    assert "completion_by_replay" in cluster.log(AGENT).read_text()


@pytest.mark.parametrize("kind", ["loose", "symlink"])
def test_row_24_a_prepared_session_directory(crash: Any, tmp_path: Path, kind: str) -> None:
    """The launch is refused, nothing is written into what somebody has prepared."""
    cluster = crash(nodes=1, settings=AGAIN)
    first = Held(cluster).runs()
    trap = cluster.folder / "state" / AGENT / "runtime" / "sessions" / f"{int(first.job) + 1}.1.{BATCH}"
    if kind == "loose":
        trap.mkdir()
        trap.chmod(0o777)
    else:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        trap.symlink_to(tmp_path / "elsewhere")
    job = cluster.submit("exit 0")
    assert int(job) == int(first.job) + 1
    cluster.until(lambda: f"launch_failed step={job}." in cluster.log(AGENT).read_text(), "it is refused")
    assert not any((tmp_path / "elsewhere").iterdir()) if kind == "symlink" else not any(trap.iterdir())
    if kind == "loose":
        trap.rmdir()
    else:
        trap.unlink()
    cluster.run("scontrol", "update", "NodeName=node1", "State=RESUME")
    first.open()
    cluster.settle()
    assert cluster.faults({first.job: 3, job: 0}, set()) == []


def test_row_25_a_loose_parent_is_tolerated(crash: Any) -> None:
    cluster = crash(nodes=1)
    cluster.kill(AGENT)
    (cluster.folder / "state" / AGENT).chmod(0o777)
    cluster.start(AGENT, wait=True)
    Held(cluster).runs().ends_well(["0"])


@pytest.mark.parametrize("kind", ["loose", "symlink"])
def test_row_25_but_not_a_loose_runtime_directory(crash: Any, tmp_path: Path, kind: str) -> None:
    cluster = crash(nodes=1)
    cluster.kill(AGENT)
    runtime = cluster.folder / "state" / AGENT / "runtime"
    if kind == "loose":
        runtime.chmod(0o755)
    else:
        runtime.rename(tmp_path / "moved")
        runtime.symlink_to(tmp_path / "moved")
    cluster.start(AGENT)
    cluster.until(lambda: not cluster.running(AGENT), "it refuses to start")
    assert "runtime" in cluster.log(AGENT).read_text().splitlines()[-1]
