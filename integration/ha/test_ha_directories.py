"""What an administrator does to the directories of a group: fill a lost one, copy, grow, shrink.

Jobs run through all of it, and no job that was acknowledged is forgotten.
"""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testkit.crash_cluster import BIN, until
from testkit.ha_cluster import HaCluster

from spur_cli.cluster.home import Cluster, free_ports

Ha = Callable[..., HaCluster]
pytestmark = pytest.mark.slow


def tool(cluster: HaCluster, name: str, member: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """`spurctld raft NAME` on the directory of a member."""
    at = cluster.controllers.index(member) + 1
    state = cluster.folder / "state" / member
    config = str(cluster.layout.config)
    command = [str(BIN / "spurctld"), "raft", name, "--config", config, "--state-dir", str(state)]
    if name != "inspect":
        command += ["--node-id", str(at)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done


def good(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def inspected(cluster: HaCluster, member: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(good(tool(cluster, "inspect", member, "--json")))
    return found


def raft(cluster: HaCluster, member: str) -> Path:
    return cluster.folder / "state" / member / "raft"


def stop_controllers(cluster: HaCluster) -> None:
    """SIGTERM, and the end of all of them."""
    for name in cluster.controllers:
        if cluster.running(name):
            cluster._children[name].send_signal(signal.SIGTERM)
    for name in cluster.controllers:
        cluster._children[name].wait(20)


def submit(cluster: HaCluster, count: int) -> set[str]:
    words = ("sbatch", "--parsable", "-H", "-o", "/dev/null", "--wrap", "true")
    return {cluster.ok(*words).strip() for _ in range(count)}


def queued(cluster: HaCluster) -> set[str]:
    return set(cluster.ok("squeue", "-h", "-o", "%i").split())


def test_a_lost_directory_is_filled_while_jobs_are_submitted(ha: Ha) -> None:
    cluster = ha(nodes=1)
    jobs = submit(cluster, 5)
    lost = cluster.followers()[0]
    cluster.kill(lost)
    shutil.rmtree(raft(cluster, lost))
    refused = subprocess.run(
        [str(BIN / "spurctld"), *cluster.layout.command(lost)[1:]],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert refused.returncode == 1
    assert "is empty; run `spurctld raft init` for a new cluster, `spurctld raft seed`" in refused.stderr
    # As a new member it would have forgotten its promises, and the others would take it for what it was.
    mistaken = tool(cluster, "init", lost)
    assert mistaken.returncode == 1
    assert "the group is at work already" in mistaken.stderr
    assert "`spurctld raft seed`" in mistaken.stderr
    assert "start it now" in good(tool(cluster, "seed", lost))
    cluster.start(lost, wait=True)
    jobs |= submit(cluster, 5)
    until(lambda: inspected(cluster, lost)["hard"][2] == 0, "it votes again")
    # It counts: the two that are left of the old ones are one too few without it.
    other = next(name for name in cluster.followers() if name != lost)
    cluster.kill(other)
    jobs |= submit(cluster, 3)
    cluster.kill(cluster.leader())
    cluster.start(other, wait=True)
    cluster.leader()
    assert queued(cluster) == jobs


def test_a_lost_directory_is_replaced_by_a_copy_with_all_stopped(ha: Ha) -> None:
    cluster = ha(nodes=1)
    jobs = submit(cluster, 4)
    lost = cluster.controllers[1]
    cluster.kill(lost)
    shutil.rmtree(raft(cluster, lost))
    jobs |= submit(cluster, 2)
    stop_controllers(cluster)
    left = [name for name in cluster.controllers if name != lost]
    best = max(left, key=lambda name: inspected(cluster, name)["last"][::-1])
    shutil.copytree(raft(cluster, best), raft(cluster, lost))
    number = str(cluster.controllers.index(best) + 1)
    refused = tool(cluster, "reconfigure", lost)
    assert f"say --copy-of {number}" in refused.stderr
    good(tool(cluster, "reconfigure", lost, "--copy-of", number))
    cluster.start_all()
    cluster.leader()
    assert queued(cluster) == jobs
    # The copy is a member like any other.
    cluster.lead(lost)
    assert queued(cluster) == jobs


def regroup(cluster: HaCluster, layout: Cluster, old: str, new: str) -> None:
    """Another layout of the same cluster, and what changes in its configuration."""
    text = cluster.layout.config.read_text()
    assert old in text
    cluster.layout.config.write_text(text.replace(old, new))
    cluster.layout = layout


def test_one_controller_becomes_three_and_three_become_one(ha: Ha, tmp_path: Path) -> None:
    cluster = ha(
        nodes=1,
        controllers=1,
        settings={
            "accounting": {"database_url": json.dumps(f"sqlite+aiosqlite:///{tmp_path}/history.sqlite")}
        },
    )
    jobs = submit(cluster, 4)
    running = cluster.ok("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 300").strip()
    until(lambda: cluster.ok("squeue", "-h", "-t", "R", "-o", "%i").split() == [running], "it runs")
    stop_controllers(cluster)

    single = cluster.layout
    ports = free_ports(5)
    three = Cluster(single.root, single.nodes, [*single.ports, *ports[:2]], ports[2:])
    group = f"\npeers = {json.dumps(three.raft_addresses)}\nclient_addrs = {json.dumps(three.addresses)}\n"
    regroup(cluster, three, "[controller]\n", f"[controller]{group}")
    certs = cluster.folder / "certs"
    words = ["raft", "gen-certs", "--config", str(three.config), "--out", str(certs)]
    subprocess.run([str(BIN / "spurctld"), *words], check=True, capture_output=True)
    for at, name in enumerate(three.controllers, 1):
        three.state(name).mkdir(mode=0o700, exist_ok=True)
        (certs / f"member-{at}").rename(three.state(name) / "tls")
    for name in three.controllers[1:]:
        shutil.copytree(raft(cluster, three.controllers[0]), raft(cluster, name))
        good(tool(cluster, "reconfigure", name, "--copy-of", "1"))
    good(tool(cluster, "reconfigure", three.controllers[0]))
    cluster.start_all()
    cluster.leader()
    assert queued(cluster) == jobs | {running}
    jobs |= submit(cluster, 2)
    cluster.kill(cluster.leader())
    assert queued(cluster) == jobs | {running}

    for name in cluster.controllers:
        cluster.start(name, wait=True)
    cluster.leader()
    stop_controllers(cluster)
    best = max(cluster.controllers, key=lambda name: inspected(cluster, name)["last"][::-1])
    at = cluster.controllers.index(best)
    alone = Cluster(single.root, single.nodes, [three.ports[at]])
    listen = f"listen_addr = {json.dumps(three.addresses[at])}"
    text = three.config.read_text().replace(group, "\n")
    text = text.replace(f"listen_addr = {json.dumps(three.addresses[0])}", listen)
    three.config.write_text(text)
    cluster.layout = alone
    if at:
        shutil.move(raft(cluster, alone.controllers[0]), cluster.folder / "replaced")
        shutil.copytree(three.state(best) / "raft", raft(cluster, alone.controllers[0]))
    words = ["--copy-of", str(at + 1)] if at else []
    good(tool(cluster, "reconfigure", alone.controllers[0], *words))
    cluster.start_all()
    until(lambda: cluster.run("squeue").returncode == 0, "it answers")
    assert queued(cluster) == jobs | {running}
    cluster.ok("scancel", running)
