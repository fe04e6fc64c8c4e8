"""Ways between controllers and agents that are closed without a word: each controller in its own network."""

import time
from typing import Any

import pytest
from matrix_kit import Held

pytestmark = [pytest.mark.node, pytest.mark.root]


def test_agents_leave_a_leader_that_is_cut_off_from_the_others(ha_net: Any) -> None:
    """It still answers them until it steps down; then they and their work are with the new one."""
    cluster = ha_net(silence=30)
    held = Held(cluster, code=4).runs()
    old = cluster.leader()
    others = [name for name in cluster.controllers if name != old]
    cluster.cut(old, *others)
    new = cluster.leader(other_than=old)
    begun = time.monotonic()
    held.open()
    cluster.until(lambda: held.state() == "FAILED", "its end is known")
    assert time.monotonic() - begun < 15
    # What is asked of the one that is cut off is refused, not answered from the past.
    words = ("squeue", "-h", "-t", "all", "-j", held.job, "-o", "%t")
    done, _ = cluster.timed(*words, **cluster.only(old))
    assert (done.returncode, done.stdout) == (0, "F\n"), done.stderr
    assert cluster.down_nodes() == []
    later = cluster.submit("exit 5")
    cluster.until(lambda: cluster.state_or_nothing(later) == "FAILED", "new work runs")
    cluster.mend(old, *others)
    cluster.until(lambda: {m.answer.leader_id for m in cluster.view().members if m.answer} != {0}, "healed")
    assert cluster.leader() == new
    cluster.settle()
    assert cluster.faults({held.job: 4, later: 5}, set()) == []


def test_agents_reach_the_leader_through_the_others_when_their_way_is_closed(ha_net: Any) -> None:
    """Heartbeats and reports go over a follower: no node goes down, no end is lost."""
    cluster = ha_net(silence=8)
    held = Held(cluster, code=4).runs()
    leader = cluster.leader()
    cluster.cut(leader, "")
    begun = time.monotonic()
    held.open()
    cluster.until(lambda: held.state() == "FAILED", "its end is known")
    assert time.monotonic() - begun < 20
    while time.monotonic() - begun < 12:
        assert cluster.down_nodes() == []
        time.sleep(1)
    done, secs = cluster.timed("scontrol", "ping")
    assert done.returncode == 0
    assert "Slurmctld(primary)" in done.stdout
    assert secs < 15
    cluster.mend(leader, "")
    cluster.settle()
    assert cluster.faults({held.job: 4}, set()) == []
