"""What a user sees of a failover: nothing.  And what is left when all controllers die (row 16)."""

from typing import Any

import pytest
from matrix_kit import Held
from testkit.crash_cluster import alive

pytestmark = pytest.mark.node


def shown(cluster: Any, name: str) -> list[str]:
    """The queue as that controller alone tells it."""
    done, _ = cluster.timed("squeue", "-h", "-o", "%i %t %N", **cluster.only(name))
    assert done.returncode == 0, done.stderr
    lines: list[str] = done.stdout.splitlines()
    return sorted(lines)


def test_a_job_does_not_notice_that_its_leader_died(ha: Any) -> None:
    cluster = ha()
    leader, follower = cluster.leader(), cluster.followers()[0]
    gate = cluster.work / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3"
    words = ("sbatch", "--parsable", "-N2", "-o", "/dev/null", "--wrap", cluster.body(wait))
    done, _ = cluster.timed(*words, **cluster.only(follower))
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    cluster.until(lambda: cluster.state_or_nothing(job) == "RUNNING", "it runs")
    before = shown(cluster, follower)
    assert before == shown(cluster, leader)
    cluster.kill(leader)
    cluster.leader(other_than=leader)
    for name in cluster.followers():
        assert shown(cluster, name) == before
    cluster.start(leader, wait=True)
    for name in cluster.controllers:
        assert shown(cluster, name) == before
    assert cluster.down_nodes() == []
    gate.touch()
    cluster.settle()
    assert cluster.runs_of(job) == 1
    assert cluster.faults({job: 3}, set()) == []


def test_row_16_all_controllers_are_down_while_jobs_end(ha: Any) -> None:
    cluster = ha()
    ends, stays = Held(cluster, code=4).runs(), Held(cluster, code=5).runs()
    for name in cluster.controllers:
        cluster.kill(name)
    ends.open()
    cluster.until(lambda: not alive(ends.shell()), "its script has ended")
    # Two of three are a majority; the third stays away.
    for name in cluster.controllers[:2]:
        cluster.start(name)
    cluster.leader()
    cluster.until(lambda: ends.state() == "FAILED", "its exit is known")
    assert stays.state() == "RUNNING"
    stays.open()
    cluster.settle()
    assert cluster.faults({ends.job: 4, stays.job: 5}, set()) == []
    assert [cluster.runs_of(held.job) for held in (ends, stays)] == [1, 1]
