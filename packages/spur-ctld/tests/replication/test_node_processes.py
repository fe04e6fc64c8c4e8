"""Members as processes of their own, under load: killed, paused, cut off.  Nothing acknowledged is lost.

`SPUR_REPLICATION_ROUNDS` makes it longer; `hatch run soak --scenario replication` is the long form.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit import raft_trials
from testkit.raft_group import RaftGroup

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("SPUR_REPLICATION_ROUNDS", "1"))


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Short, because sockets live in it; stays when the test fails."""
    made = Path(tempfile.mkdtemp(prefix="raft-", dir="/tmp"))
    print(f"logs are in {made}")
    yield made
    shutil.rmtree(made)


@pytest.fixture
def seed() -> int:
    """`SPUR_SOAK_SEED` repeats a run."""
    found = int(os.environ.get("SPUR_SOAK_SEED", time.time_ns() % 100_000))
    print(f"seed {found}")
    return found


async def test_killed_members_lose_nothing(seed: int) -> None:
    names = ["kill_leader", "kill_random", "kill_all"] * ROUNDS
    with folder() as where:
        await raft_trials.rounds(where, [raft_trials.TRIALS[name] for name in names], seed)


async def test_a_member_killed_while_it_is_filled_is_whole_in_the_end(seed: int) -> None:
    with folder() as where:
        await raft_trials.rounds(where, [raft_trials.kill_installing] * ROUNDS, seed)


@pytest.mark.parametrize(
    "fault",
    ["crash_after:snapshot_adopted", "crash_before:snapshot_installed", "crash_after:snapshot_installed"],
)
async def test_a_member_that_dies_in_an_install_comes_back_whole(fault: str) -> None:
    """Between the file and the log's frame, between the frame and the state, before it told anybody."""
    with folder() as where:
        async with RaftGroup(where, limits={**raft_trials.LIMITS, "catch_up_entries": 200}) as group:
            await group.start()
            leader = await group.leader()
            away = next(id for id in group.ids if id != leader)
            await group.ask(leader, "put", key="first", value="x")
            await group.kill(away)
            while (await group.ask(leader, "status"))["metrics"]["snapshot_index"] < 3000:
                await group.ask(leader, "load", inflight=64, secs=0.1)
            await group.start(away, fault=fault)
            assert await group.ended(away) == -signal.SIGKILL
            await group.kill(away)
            snapshots = list((where / f"state-{away}" / "raft" / "snap").iterdir())
            assert [path.suffix for path in snapshots] == [""], "the file was durable"
            await group.ask(leader, "put", key="last", value="x")
            await group.start(away)
            await group.level()
            assert not await group.ask(away, "missing", keys=["first", "last"])


async def test_a_paused_leader_shows_nothing_old(seed: int) -> None:
    names = ["pause_leader", "transfer"] * ROUNDS
    with folder() as where:
        await raft_trials.rounds(where, [raft_trials.TRIALS[name] for name in names], seed)


@pytest.mark.root
async def test_members_that_are_cut_off_come_back(seed: int) -> None:
    names = ["cut_leader", "deaf_leader", "cut_follower", "deaf_follower"] * ROUNDS
    with folder() as where:
        await raft_trials.net_rounds(where, [raft_trials.NET_TRIALS[name] for name in names], seed)


@pytest.mark.parametrize("delay", [0.0, 0.005])
async def test_three_members_take_enough(delay: float) -> None:
    """2,000 commands a second with 64 in flight, also where each sync takes 5 ms longer."""
    with folder() as where:
        async with RaftGroup(where, sync_delay=delay) as group:
            await group.start()
            leader = await group.leader()
            rates = []
            # Others may use this machine: the best of a few seconds counts.
            while len(rates) < 5 and max(rates, default=0) < 2000:
                rates.append((await group.ask(leader, "load", inflight=64, secs=1.0))["rate"])
    assert max(rates) >= 2000, rates
