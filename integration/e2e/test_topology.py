"""Jobs lie on few switches of a tree, wait for as few as they want, and learn where they are."""

import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.node

TREE = """
[topology]
plugin = "tree"
[[topology.switches]]
name = "s0"
nodes = "node[1-2]"
[[topology.switches]]
name = "s1"
nodes = "node[3-4]"
link_speed = 40
[[topology.switches]]
name = "top"
switches = "s[0-1]"
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: Any) -> Any:
    """Four nodes of 2 CPUs on two switches."""
    cluster = make_cluster(4, "--cpus", "2")
    conf = Path(cluster.env["SPUR_CONF"])
    conf.write_text(conf.read_text() + TREE)
    cluster.restart("spurctld-1")
    cluster.until(cluster.idle, "idle nodes")
    yield cluster
    cluster.down()


@pytest.fixture(autouse=True)
def _clean(cluster: Any) -> Any:
    yield
    cluster.run("scancel", "--me")
    cluster.until(cluster.idle, "idle nodes")


def busy(cluster: Any, node: str) -> str:
    job = cluster.sbatch("-w", node, "-n2", "--wrap", "exec sleep 300")
    cluster.wait(job, "RUNNING")
    return str(job)


def nodes_of(cluster: Any, job: str) -> str:
    return str(cluster.history(job, "NodeList", "-X")[0][0])


def test_two_nodes_on_one_switch(cluster: Any) -> None:
    busy(cluster, "node1")
    job = cluster.sbatch("-N2", "-n4", "--wrap", "true")
    assert cluster.wait(job) == "COMPLETED"
    assert nodes_of(cluster, job) == "node[3-4]"


def test_two_switches_when_there_is_no_other_way(cluster: Any) -> None:
    busy(cluster, "node1")
    busy(cluster, "node3")
    job = cluster.sbatch("-N2", "-n4", "--wrap", "true")
    assert cluster.wait(job) == "COMPLETED"
    assert nodes_of(cluster, job) == "node[2,4]"


def test_a_job_waits_for_one_switch_for_a_while(cluster: Any) -> None:
    busy(cluster, "node1")
    busy(cluster, "node3")
    began = time.monotonic()
    job = cluster.sbatch("-N2", "-n4", "--switches=1@00:00:04", "--wrap", "true")
    assert "Switches=1@00:00:04" in cluster.ok("scontrol", "show", "job", job)
    assert cluster.queue_state(job) == "PD"
    assert cluster.wait(job) == "COMPLETED"
    assert time.monotonic() - began > 3
    assert nodes_of(cluster, job) == "node[2,4]"


def test_a_switch_that_comes_free_ends_the_wait(cluster: Any) -> None:
    first = busy(cluster, "node1")
    busy(cluster, "node3")
    job = cluster.sbatch("-N2", "-n4", "--switches=1", "--wrap", "true")
    cluster.until(lambda: cluster.ok("squeue", "-h", "-j", job, "-o", "%r").strip() != "None", "a reason")
    assert cluster.queue_state(job) == "PD"
    cluster.ok("scancel", first)
    assert cluster.wait(job) == "COMPLETED"
    assert nodes_of(cluster, job) == "node[1-2]"


def test_a_waiting_job_may_ask_for_more_switches(cluster: Any) -> None:
    busy(cluster, "node1")
    busy(cluster, "node3")
    job = cluster.sbatch("-H", "-N2", "-n4", "--wrap", "true")
    cluster.ok("scontrol", "update", f"JobId={job}", "Switches=1@10:00")
    # No longer than the cluster lets a job wait.
    assert "Switches=1@00:05:00" in cluster.ok("scontrol", "show", "job", job)
    cluster.ok("scontrol", "release", job)
    cluster.until(lambda: cluster.ok("squeue", "-h", "-j", job, "-o", "%r").strip() != "None", "a reason")
    assert cluster.queue_state(job) == "PD"
    cluster.ok("scontrol", "update", f"JobId={job}", "Switches=0")
    assert cluster.wait(job) == "COMPLETED"
    assert nodes_of(cluster, job) == "node[2,4]"


def test_jobs_learn_where_they_are(cluster: Any) -> None:
    out = cluster.work / "where"
    body = f"echo $SLURM_TOPOLOGY_ADDR $SLURM_TOPOLOGY_ADDR_PATTERN > {out}"
    job = cluster.sbatch("-w", "node3", "--wrap", body)
    assert cluster.wait(job) == "COMPLETED"
    assert out.read_text().split() == ["top.s1.node3", "switch.switch.node"]


def test_it_is_shown(cluster: Any) -> None:
    assert cluster.ok("scontrol", "show", "topology").splitlines() == [
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=node[1-2]",
        "SwitchName=s1 Level=0 LinkSpeed=40 Nodes=node[3-4]",
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=node[1-4] Switches=s[0-1]",
    ]
    assert cluster.ok("scontrol", "show", "topology", "s1").splitlines() == [
        "SwitchName=s1 Level=0 LinkSpeed=40 Nodes=node[3-4]"
    ]
    assert [line.split()[0] for line in cluster.ok("scontrol", "show", "topo", "node1").splitlines()] == [
        "SwitchName=s0",
        "SwitchName=top",
    ]
    done = cluster.run("scontrol", "show", "topology", "node=none")
    assert done.returncode == 1
    assert "not found" in done.stderr
    assert "Switch=s0" in cluster.ok("scontrol", "show", "node", "node2")
    assert "TopologyPlugin          = topology/tree" in cluster.ok("scontrol", "show", "config")


@pytest.mark.parametrize(
    ("value", "text"),
    [("0", "switches"), ("x", "switches"), ("1@later", "switches")],
)
def test_what_is_no_number_of_switches_is_refused(cluster: Any, value: str, text: str) -> None:
    done = cluster.run("sbatch", f"--switches={value}", "--wrap", "true")
    assert done.returncode
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1
