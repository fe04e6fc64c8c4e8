"""Rows 10, 11, 27 and 29: how a step ends, and what it leaves behind."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from matrix_kit import Held, Wire, stranger
from testkit.crash_cluster import alive, until

pytestmark = pytest.mark.node
AGENT = "spurd-node1"
HOG = f"exec {sys.executable} -c 'b = []\nwhile True: b.append(bytearray(1 << 20))'"


@pytest.mark.root
def test_row_10_killed_for_memory(crash: Any) -> None:
    """OUT_OF_MEMORY; supervisor and agent are unharmed."""
    cluster = crash(nodes=1)
    agent = cluster.pid(AGENT)
    held = Held(cluster, "--mem", "64", last=HOG).runs()
    supervisor = cluster.supervisor_of(held.job)
    assert supervisor is not None
    held.open()
    until(lambda: held.state() == "OUT_OF_MEMORY", "the end is known")
    assert cluster.pid(AGENT) == agent
    assert alive(agent)
    cluster.settle()
    assert [row for row in cluster.rows() if row[0] == held.job] == [(held.job, "OUT_OF_MEMORY", "0:125")]
    assert cluster.faults({}, set()) == []


def test_row_11_the_leader_exits_and_children_stay(crash: Any) -> None:
    """The exit is recorded at once; what is left is killed, daemons of the step's too."""
    cluster = crash(nodes=1)
    note = cluster.work / "daemon"
    held = Held(cluster, before=f"setsid sh -c 'echo $$ > {note}; exec sleep 600' & true").runs()
    until(note.exists, "the daemon is there")
    daemon = int(note.read_text())
    held.ends_well(["0"])
    assert not alive(daemon)


@pytest.mark.root
def test_row_29_a_user_kills_all_his_processes(crash: Any) -> None:
    """His supervisor survives and reports the kill."""
    cluster = crash(nodes=1)
    job = Wire(cluster).submit(stranger().pw_name, "#!/bin/sh\nkill -KILL -1\nkill -KILL $$\n")
    until(lambda: cluster.state_or_nothing(str(job)) == "FAILED", "the end is known")
    cluster.settle()
    assert [row for row in cluster.rows() if row[0] == str(job)] == [(str(job), "FAILED", "0:9")]


def _script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f'"{path}"'


@pytest.mark.parametrize(
    ("body", "secs"), [("exit 7", "600"), ("exec sleep 600", "1"), ("kill -9 $$", "600")]
)
def test_row_27_a_failing_epilog_drains_the_node(crash: Any, tmp_path: Path, body: str, secs: str) -> None:
    """The job's own exit stands."""
    epilog = _script(tmp_path / "epilog", body)
    cluster = crash(nodes=1, settings={"hooks": {"epilog": epilog}, "agent": {"epilog_timeout_secs": secs}})
    held = Held(cluster).runs()
    held.open()
    until(lambda: held.state() == "FAILED", "the job has ended")
    until(lambda: "drain" in cluster.ok("sinfo", "-h", "-o", "%t"), "the node is drained")
    assert "epilog script failed" in cluster.ok("sinfo", "-h", "-R", "-o", "%E")
    assert [row for row in cluster.rows() if row[0] == held.job] == [(held.job, "FAILED", "3:0")]
    until(lambda: not cluster.sessions(), "no session is left")


def test_row_27_an_epilog_that_failed_while_the_agent_was_away(crash: Any, tmp_path: Path) -> None:
    """V15: the drain comes from the journal."""
    epilog = _script(tmp_path / "epilog", "exit 7")
    cluster = crash(nodes=1, settings={"hooks": {"epilog": epilog}})
    held = Held(cluster).runs()
    session = held.session()
    cluster.kill(AGENT)
    held.open()
    until(lambda: "EpilogResult" in (session / "journal").read_text(), "the epilog has failed")
    cluster.start(AGENT, wait=True)
    until(lambda: "drain" in cluster.ok("sinfo", "-h", "-o", "%t"), "the node is drained")
    until(lambda: held.state() == "FAILED", "the job has ended")


def test_row_27_the_supervisor_dies_in_the_epilog(crash: Any, tmp_path: Path) -> None:
    """V14: the exit is reported; a started epilog without a result counts as failed."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    note = tmp_path / "note"
    epilog = _script(tmp_path / "epilog", f"echo began >> {note}; read x < {gate}")
    cluster = crash(nodes=1, settings={"hooks": {"epilog": epilog}})
    held = Held(cluster).runs()
    pid = cluster.supervisor_of(held.job)
    held.open()
    until(note.exists, "the epilog runs")
    os.kill(pid, 9)
    until(lambda: held.state() == "FAILED", "the exit is reported")
    until(lambda: "drain" in cluster.ok("sinfo", "-h", "-o", "%t"), "the node is drained")
    assert note.read_text() == "began\n"
    until(lambda: not cluster.sessions(), "no session is left")
