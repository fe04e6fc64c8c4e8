"""Partitions whose jobs share CPUs, end to end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: Added to the configuration of `spur up`: one node of four CPUs.
MORE = """
[[partitions]]
name = "force"
nodes = "ALL"
oversubscribe = "FORCE:2"

[[partitions]]
name = "asked"
nodes = "ALL"
oversubscribe = "yes"
"""


@pytest.fixture(scope="module")
def small(make_cluster: Callable[..., Any]) -> Iterator[Any]:
    cluster = make_cluster(1, "--cpus", "4")
    config = Path(cluster.env["SPUR_CONF"])
    config.write_text(config.read_text() + MORE)
    cluster.restart("spurctld-1")
    cluster.until(cluster.idle, "the node is back")
    yield cluster
    cluster.down()


@pytest.fixture(autouse=True)
def _empty(small: Any) -> Iterator[None]:
    yield
    small.ok("scancel", "-u", small.ok("id", "-un").strip())
    small.until(small.idle, "all nodes idle")


def submit(cluster: Any, *options: str) -> str:
    return str(cluster.sbatch(*options, "--wrap", "sleep 60"))


def reason(cluster: Any, job: str) -> str:
    return str(cluster.ok("squeue", "-h", "-j", job, "-o", "%t %r").strip())


def waits(cluster: Any, job: str) -> None:
    cluster.until(lambda: reason(cluster, job) == "PD Resources", f"job {job} waits for room")


def test_two_jobs_on_each_cpu(small: Any) -> None:
    jobs = [submit(small, "-p", "force", "-n", "4") for _ in range(3)]
    for job in jobs[:2]:
        small.wait(job, "RUNNING")
    waits(small, jobs[2])
    node = small.ok("scontrol", "show", "node", "node1")
    assert "CPUAlloc=4" in node
    assert "State=ALLOCATED" in node
    assert small.ok("sinfo", "-h", "-p", "force", "-o", "%C %h").split() == ["4/0/0/4", "FORCE:2"]
    # Steps have the CPUs of their job.
    small.ok("scancel", jobs[0])
    small.wait(jobs[2], "RUNNING")
    assert (
        small.ok("srun", f"--jobid={jobs[2]}", "--overlap", "-n", "4", "echo", "here").split() == ["here"] * 4
    )


def test_who_asks_for_it(small: Any) -> None:
    shown = small.ok("scontrol", "show", "partition", "asked")
    assert "OverSubscribe=YES:4" in shown
    own = submit(small, "-p", "asked", "-n", "1")
    small.wait(own, "RUNNING")
    shares = submit(small, "-p", "asked", "-s", "-n", "4")
    waits(small, shares)
    assert "OverSubscribe=YES" in small.ok("scontrol", "show", "job", shares)
    small.ok("scancel", own)
    small.wait(shares, "RUNNING")
    more = [submit(small, "-p", "asked", "-s", "-n", "4") for _ in range(4)]
    for job in more[:3]:
        small.wait(job, "RUNNING")
    waits(small, more[3])
    # Nobody else comes to the node, though nobody of it has CPUs of his own.
    waits(small, submit(small, "-n", "1"))


def test_they_share_under_the_next_agent(small: Any) -> None:
    first = submit(small, "-p", "force", "-n", "4")
    small.wait(first, "RUNNING")
    small.restart("spurd-node1", "--kill")
    second = submit(small, "-p", "force", "-n", "3")
    small.wait(second, "RUNNING")
    third = submit(small, "-p", "force", "-n", "1")
    small.wait(third, "RUNNING")
    fourth = submit(small, "-p", "force", "-n", "1")
    waits(small, fourth)
    small.restart("spurctld-1", "--kill")
    small.until(lambda: small.run("sinfo").returncode == 0, "the controller is back")
    small.ok("scancel", second, fourth)
    small.wait(submit(small, "-p", "force", "-n", "3"), "RUNNING")


def test_nobody_has_the_node_to_himself_where_all_share(small: Any) -> None:
    jobs = [submit(small, "-p", "force", "--exclusive") for _ in range(2)]
    for job in jobs:
        small.wait(job, "RUNNING")


def test_memory_is_not_shared(small: Any) -> None:
    memory = int(small.ok("sinfo", "-h", "-p", "force", "-o", "%m").strip())
    jobs = [submit(small, "-p", "force", f"--mem={memory * 2 // 3}M") for _ in range(2)]
    small.wait(jobs[0], "RUNNING")
    waits(small, jobs[1])
