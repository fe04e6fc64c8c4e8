"""What decides where and when a job runs, end to end: features, several partitions, limits of partitions."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: Added to the configuration of `spur up`: three nodes of two CPUs.
PARTITIONS = """
[[partitions]]
name = "fast"
nodes = "node1"
priority_tier = 5

[[partitions]]
name = "slow"
nodes = "node[2-3]"
max_time = 10
default_time = 5

[[partitions]]
name = "pairs"
nodes = "ALL"
min_nodes = 2
max_nodes = 2

[[partitions]]
name = "closed"
nodes = "ALL"
state = "DOWN"

[[partitions]]
name = "gone"
nodes = "ALL"
state = "INACTIVE"
"""
FEATURES = {
    "node1": '["intel", "ib", "rack1"]',
    "node2": '["amd", "ib", "rack1"]',
    "node3": '["amd", "rack2"]',
}


@pytest.fixture(scope="module")
def three(make_cluster: Callable[..., Any]) -> Iterator[Any]:
    cluster = make_cluster(3, "--cpus", "2")
    config = Path(cluster.env["SPUR_CONF"])
    text = config.read_text()
    nodes = text[text.index("[[nodes]]") :]
    # What is said of one node stands before what is said of all.
    each = [
        nodes.replace("node[1-3]", name) + f"features = {features}\n\n" for name, features in FEATURES.items()
    ]
    config.write_text(text.replace(nodes, "".join(each)) + PARTITIONS)
    cluster.restart("spurctld-1")
    cluster.until(cluster.idle, "the nodes are back")
    yield cluster
    cluster.down()


@pytest.fixture(autouse=True)
def _empty(three: Any) -> Iterator[None]:
    yield
    three.ok("scancel", "-u", three.ok("id", "-un").strip())
    three.until(three.idle, "all nodes idle")


def submit(cluster: Any, *options: str) -> str:
    return str(cluster.sbatch(*options, "--wrap", "sleep 60"))


def queued(cluster: Any, job: str, fields: str) -> str:
    return str(cluster.ok("squeue", "-h", "-j", job, "-o", fields).strip())


def nodes_of(cluster: Any, job: str) -> str:
    cluster.wait(job, "RUNNING")
    return queued(cluster, job, "%N")


def waits(cluster: Any, job: str, reason: str) -> None:
    cluster.until(lambda: queued(cluster, job, "%t %r") == f"PD {reason}", f"job {job} waits with {reason}")


@pytest.mark.parametrize(
    ("constraint", "options", "nodes"),
    [
        ("amd&ib", (), "node2"),
        ("amd,rack2", (), "node3"),
        ("intel|rack2", ("-N2",), "node[1,3]"),
        # All nodes alike in one of these.
        ("[rack1|rack2]", ("-N2",), "node[1-2]"),
        # So many of each.
        ("[amd*2&intel*1]", ("-N3",), "node[1-3]"),
        ("[intel*1&rack2*1]", ("-N2",), "node[1,3]"),
    ],
)
def test_features(three: Any, constraint: str, options: tuple[str, ...], nodes: str) -> None:
    job = submit(three, "-C", constraint, *options)
    assert nodes_of(three, job) == nodes
    assert f"Features={constraint}" in three.ok("scontrol", "show", "job", job)
    assert queued(three, job, "%f") == constraint


def test_features_that_are_taken(three: Any) -> None:
    first = submit(three, "-C", "amd&ib", "--exclusive")
    three.wait(first, "RUNNING")
    second = submit(three, "-C", "amd&ib")
    waits(three, second, "Resources")
    three.ok("scontrol", "update", f"JobId={second}", "Features=rack2")
    assert nodes_of(three, second) == "node3"


def test_the_first_of_several_partitions_with_room(three: Any) -> None:
    first = submit(three, "-p", "slow,fast", "--exclusive")
    # The higher tier comes first, in whatever order they are named.
    assert (nodes_of(three, first), queued(three, first, "%P")) == ("node1", "fast")
    second = submit(three, "-p", "slow,fast", "--exclusive")
    third = submit(three, "-p", "fast,slow", "--exclusive")
    assert [(nodes_of(three, job), queued(three, job, "%P")) for job in (second, third)] == [
        ("node2", "slow"),
        ("node3", "slow"),
    ]
    fourth = submit(three, "-p", "slow,fast")
    waits(three, fourth, "Resources")
    assert queued(three, fourth, "%P") == "slow,fast"
    three.ok("scancel", third)
    assert nodes_of(three, fourth) == "node3"
    assert "Partition=slow" in three.ok("scontrol", "show", "job", fourth)


def test_one_of_several_partitions_is_closed(three: Any) -> None:
    done = three.run("sbatch", "-p", "gone", "--wrap", "true")
    assert "Required partition not available (inactive or drain)" in done.stderr
    shut = submit(three, "-p", "closed")
    waits(three, shut, "PartitionDown")
    job = submit(three, "-p", "closed,slow")
    assert nodes_of(three, job) == "node2"
    three.ok("scontrol", "update", f"JobId={shut}", "Partition=fast")
    assert nodes_of(three, shut) == "node1"


def test_limits_of_a_partition(three: Any) -> None:
    usual = submit(three, "-p", "slow")
    assert nodes_of(three, usual) == "node2"
    assert queued(three, usual, "%l") == "5:00"
    long = submit(three, "-p", "slow", "-t", "20")
    waits(three, long, "PartitionTimeLimit")
    # Nobody is held up by it.
    assert nodes_of(three, submit(three, "-p", "slow")) == "node2"
    one = submit(three, "-p", "pairs", "-N1")
    waits(three, one, "PartitionNodeLimit")
    three_nodes = submit(three, "-p", "pairs", "-N3")
    waits(three, three_nodes, "PartitionNodeLimit")
    assert "WaitsFor=" in three.ok("scontrol", "show", "job", "-d", one)
    three.ok("scontrol", "update", f"JobId={one}", "NumNodes=2")
    assert len(nodes_of(three, one).split("[")[-1].split(",")) in (1, 2)
    three.ok("scontrol", "update", f"JobId={long}", "TimeLimit=5")
    three.wait(long, "RUNNING")


def test_a_partition_that_is_changed_while_jobs_wait(three: Any) -> None:
    three.ok("scontrol", "update", "PartitionName=slow", "State=DOWN")
    assert three.ok("sinfo", "-h", "-p", "slow", "-o", "%a").split() == ["down"]
    job = submit(three, "-p", "slow")
    waits(three, job, "PartitionDown")
    three.ok("scontrol", "update", "PartitionName=slow", "State=DRAIN", "MaxTime=20")
    assert nodes_of(three, job) == "node2"
    done = three.run("sbatch", "-p", "slow", "--wrap", "true")
    assert "Required partition not available (inactive or drain)" in done.stderr
    three.ok("scontrol", "update", "PartitionName=slow", "State=UP", "Nodes=node3", "OverSubscribe=FORCE:2")
    jobs = [submit(three, "-p", "slow", "-n2", "-t", "15") for _ in range(2)]
    assert [nodes_of(three, one) for one in jobs] == ["node3", "node3"]
    assert "OverSubscribe=FORCE:2" in three.ok("scontrol", "show", "partition", "slow")
    done = three.run("scontrol", "update", "PartitionName=slow", "MaxTime=never")
    assert (done.returncode, done.stderr.splitlines()[0].startswith("slurm_update error: MaxTime=never")) == (
        1,
        True,
    )


def test_a_partition_for_a_while(three: Any) -> None:
    three.ok("scontrol", "create", "PartitionName=extra", "Nodes=node[1-2]", "MaxNodes=1")
    job = submit(three, "-p", "extra", "-w", "node2")
    assert nodes_of(three, job) == "node2"
    done = three.run("scontrol", "delete", "PartitionName=extra")
    assert (done.returncode, done.stderr) == (1, "delete_partition extra: Partition is in use\n")
    three.ok("scancel", job)
    three.wait(job, "CANCELLED")
    three.ok("scontrol", "delete", "PartitionName=extra")
    assert "extra" not in three.ok("sinfo", "-h", "-o", "%P")
    three.restart("spurctld-1")
    three.until(three.idle, "the nodes are back")
    # What was changed by hand stands until the file changes.
    three.ok("scontrol", "update", "PartitionName=slow", "MaxNodes=2")
    three.restart("spurctld-1")
    three.until(three.idle, "the nodes are back")
    assert "MaxNodes=2" in three.ok("scontrol", "show", "partition", "slow")
    config = Path(three.env["SPUR_CONF"])
    config.write_text(config.read_text().replace('name = "slow"', 'name = "slow"\nmax_nodes = 3'))
    three.restart("spurctld-1")
    three.until(three.idle, "the nodes are back")
    assert "MaxNodes=3" in three.ok("scontrol", "show", "partition", "slow")
