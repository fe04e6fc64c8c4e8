"""Priorities with the commands that users and administrators type: sprio, squeue, scontrol; who starts."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.node

SETTINGS = """priority_type = "multifactor"
priority_weight_age = 1000
priority_weight_job_size = 1000
priority_weight_partition = 100
priority_weight_tres = { cpu = 40 }
priority_calc_period_secs = 1
"""
PARTITION = '\n[[partitions]]\nname = "urgent"\nnodes = "node1"\npriority_job_factor = 10\n'


@pytest.fixture(scope="module")
def cluster(make_cluster: Any) -> Any:
    """One node of four CPUs with Slurm's sum of factors."""
    cluster = make_cluster(1, "--cpus", "4")
    conf = Path(cluster.env["SPUR_CONF"])
    text = conf.read_text()
    if "[scheduler]\n" in text:
        text = text.replace("[scheduler]\n", f"[scheduler]\n{SETTINGS}", 1)
    else:
        text += f"\n[scheduler]\n{SETTINGS}"
    conf.write_text(text + PARTITION)
    cluster.restart("spurctld-1")
    cluster.until(cluster.idle, "idle nodes")
    yield cluster
    cluster.down()


@pytest.fixture(autouse=True)
def _clean(cluster: Any) -> Any:
    yield
    cluster.run("scancel", "--me")
    cluster.until(cluster.idle, "idle nodes")


def submit(cluster: Any, *options: str) -> str:
    return str(cluster.sbatch("-o", f"{cluster.work}/%j.out", *options, "--wrap", "sleep 1"))


def holder(cluster: Any) -> str:
    """A job that has all of the node."""
    job = str(cluster.sbatch("-n", "4", "-o", "/dev/null", "--wrap", "exec sleep 300"))
    cluster.wait(job, "RUNNING")
    return job


def squeue(cluster: Any, job: str) -> int:
    return int(cluster.ok("squeue", "-h", "-j", job, "-o", "%Q"))


def rows(cluster: Any, *options: str) -> dict[str, list[str]]:
    lines = cluster.ok("sprio", "-h", "-o", "%i %Y %J %P %T %N %S %r", *options).splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines}


def test_what_priorities_are_made_of(cluster: Any) -> None:
    held = holder(cluster)
    small = submit(cluster, "-n", "1")
    large = submit(cluster, "-n", "4", "-p", "urgent", "--nice=7")
    cluster.until(lambda: len(rows(cluster)) == 2, "two waiting jobs")
    found = rows(cluster)
    assert held not in found
    # (1 of 1 nodes + 1 of 4 CPUs) / 2 of 1000; factor 1 of 10 of 100; 1 of 4 CPUs of 40.
    assert found[small][1:] == ["625", "10", "cpu=10", "0", "0", found[small][-1]]
    assert found[large][1:] == ["1000", "100", "cpu=40", "7", "0", "urgent"]
    assert 645 <= int(found[small][0]) <= 650
    assert 1133 <= int(found[large][0]) <= 1140
    assert abs(squeue(cluster, large) - int(found[large][0])) <= 1
    head, weights = cluster.ok("sprio", "-w").splitlines()
    assert head.split() == "JOBID PARTITION PRIORITY SITE AGE JOBSIZE PARTITION TRES".split()  # noqa: SIM905
    assert weights.split() == ["Weights", "1", "1000", "1000", "100", "cpu=40"]
    assert f"Priority={squeue(cluster, large)} Nice=7" in cluster.ok("scontrol", "show", "job", large)
    assert "PriorityJobFactor=10" in cluster.ok("scontrol", "show", "partition", "urgent")
    config = cluster.ok("scontrol", "show", "config")
    assert "PriorityWeightJobSize   = 1000" in config
    assert "PriorityType            = priority/multifactor" in config


def test_the_highest_starts_first(cluster: Any) -> None:
    first = holder(cluster)
    small = submit(cluster, "-n", "4", "--nice=500")
    raised = submit(cluster, "-n", "4", "--nice=900")
    large = submit(cluster, "-n", "4")
    cluster.ok("scontrol", "update", f"job={raised}", "sitefactor=5000")
    cluster.until(lambda: squeue(cluster, raised) > squeue(cluster, large) > squeue(cluster, small), "order")
    cluster.ok("scancel", first)
    for job in (small, raised, large):
        cluster.wait(job, "COMPLETED")
    order = sorted((small, raised, large), key=lambda job: started(cluster, job))
    assert order == [raised, large, small]


def started(cluster: Any, job: str) -> str:
    return str(cluster.ok("sacct", "-n", "-X", "-P", "-j", job, "-o", "Start"))


def test_by_hand_and_back(cluster: Any) -> None:
    holder(cluster)
    job = submit(cluster, "-n", "4")
    made = squeue(cluster, job)
    cluster.ok("scontrol", "update", f"job={job}", "priority=77")
    assert squeue(cluster, job) == 77
    cluster.ok("scontrol", "hold", job)
    assert squeue(cluster, job) == 0
    assert job not in rows(cluster)
    cluster.ok("scontrol", "release", job)
    assert made - 1 <= squeue(cluster, job) <= made + 1
    cluster.ok("scontrol", "update", f"job={job}", "nice=100")
    assert made - 101 <= squeue(cluster, job) <= made - 99


def test_which_jobs(cluster: Any) -> None:
    holder(cluster)
    one, two = submit(cluster, "-n", "4"), submit(cluster, "-n", "4", "-p", "urgent")
    cluster.until(lambda: len(rows(cluster)) == 2, "two waiting jobs")
    assert set(rows(cluster, "-j", one)) == {one}
    assert set(rows(cluster, "-p", "urgent")) == {two}
    assert set(rows(cluster, "-u", "root,0")) <= {one, two}
    assert list(rows(cluster, "-S", "-Y")) == [two, one]
    found = cluster.run("sprio", "-j", "999999")
    assert found.returncode == 0
    assert found.stderr == "Unable to find jobs matching user/id(s) specified\n"
