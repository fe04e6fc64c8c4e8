"""What is done to a group of `raft_member` programs, and what must come of it.

Each trial is one round: it leaves the whole group running.  Those that end a leader's time return the seconds
until another one led.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from testkit.raft_group import Load, RaftGroup, Refused
from testkit.raft_net import RaftNet

#: Seconds within which a new leader must be there.
NEW_LEADER_SECS = 3.5

#: Small enough that segments, snapshots and their transfer are met as well.
LIMITS = {
    "snapshot_entries": 1500,
    "keep_entries": 100,
    "catch_up_entries": 3000,
    "segment_bytes": 60_000,
    "snapshot_rate": 2_000_000,
}

Trial = Callable[[RaftGroup, random.Random], Awaitable[float]]


async def kill_leader(group: RaftGroup, chance: random.Random) -> float:
    """SIGKILL of the leader."""
    gone = await group.leader()
    began = time.monotonic()
    await group.kill(gone)
    await group.new_leader(group.running())
    took = time.monotonic() - began
    await asyncio.sleep(chance.uniform(0.0, 0.5))
    await group.start(gone)
    return took


async def kill_random(group: RaftGroup, chance: random.Random) -> float:
    """SIGKILL of any member."""
    leader = await group.leader()
    gone = chance.choice(group.ids)
    began = time.monotonic()
    await group.kill(gone)
    took = 0.0
    if gone == leader:
        await group.new_leader(group.running())
        took = time.monotonic() - began
    await asyncio.sleep(chance.uniform(0.0, 0.5))
    await group.start(gone)
    await group.leader()
    return took


async def kill_all(group: RaftGroup, chance: random.Random) -> float:
    """SIGKILL of everybody at once; then they come back, one of them perhaps later."""
    await group.leader()
    await group.kill(*group.ids)
    late = chance.choice(group.ids)
    present = [id for id in group.ids if id != late]
    await group.start(*present)
    began = time.monotonic()

    async def led() -> float:
        await group.new_leader(present)
        return time.monotonic() - began

    electing = asyncio.ensure_future(led())
    if chance.random() < 0.5:
        await asyncio.sleep(chance.uniform(0.0, 1.0))
    await group.start(late)
    present.append(late)
    return await electing


async def pause_leader(group: RaftGroup, chance: random.Random) -> float:
    """SIGSTOP of the leader; others elect and write; then it goes on and must not show the old value."""
    paused = await group.leader()
    others = [id for id in group.ids if id != paused]
    key = f"r-paused-{chance.random()}"
    await group.ask(paused, "put", key=key, value="old")
    link = await group.link(paused)
    began = time.monotonic()
    group.pause(paused)
    try:
        leader = await group.new_leader(others)
        took = time.monotonic() - began
        await group.ask(leader, "put", key=key, value="new")
        # These wait in its socket and are the first thing it sees.
        reads = [asyncio.ensure_future(link.ask("get", key=key, secs=5.0)) for _ in range(5)]
        writes = [asyncio.ensure_future(link.ask("put", key=f"{key}-{n}", value="x")) for n in range(5)]
        await asyncio.sleep(0.05)
    finally:
        group.resume(paused)
    for outcome in await asyncio.gather(*reads, return_exceptions=True):
        assert outcome == "new" or isinstance(outcome, Refused), f"a resumed leader answered {outcome!r}"
    acknowledged = [
        f"{key}-{n}"
        for n, outcome in enumerate(await asyncio.gather(*writes, return_exceptions=True))
        if not isinstance(outcome, Exception)
    ]
    await link.close()
    await group.leader()
    await group.caught_up()
    for id in group.ids:
        assert not await group.ask(id, "missing", keys=acknowledged)
        assert await group.ask(id, "get", key=key) == "new"
    return took


async def kill_installing(group: RaftGroup, chance: random.Random) -> float:
    """A member that was away for long is killed while it takes the snapshot that brings it back."""
    leader = await group.leader()
    away = chance.choice([id for id in group.ids if id != leader])
    had = (await group.ask(away, "status"))["applied"]
    await group.kill(away)
    while (await group.ask(leader, "status"))["metrics"]["snapshot_index"] < had + 2000:
        await group.ask(leader, "load", inflight=64, secs=0.2)
    arriving = group.folder / f"state-{away}" / "raft" / "snap"
    for _ in range(3):
        await group.start(away)
        async with asyncio.timeout(10):
            while not list(arriving.glob("*.tmp")) and (await group.ask(away, "status"))["applied"] <= had:
                await asyncio.sleep(0.005)
        await asyncio.sleep(chance.uniform(0.0, 0.4))
        await group.kill(away)
    await group.start(away)
    await group.caught_up()
    return 0.0


async def transfer(group: RaftGroup, chance: random.Random) -> float:
    """A planned change of leader; nothing may be refused for it."""
    leader = await group.leader()
    others = [id for id in group.ids if id != leader]
    began = time.monotonic()
    try:
        await group.ask(leader, "transfer", to=chance.choice([*others, None]))
    except Refused as error:
        # Under load the chosen one may be late once.
        if "did not take over in time" not in str(error):
            raise
        return 0.0
    await group.new_leader(others)
    return time.monotonic() - began


TRIALS: dict[str, Trial] = {
    "kill_leader": kill_leader,
    "kill_random": kill_random,
    "kill_all": kill_all,
    "pause_leader": pause_leader,
    "kill_installing": kill_installing,
    "transfer": transfer,
}


async def rounds(
    folder: Path,
    trials: list[Trial],
    seed: int,
    *,
    group: RaftGroup | None = None,
    say: Callable[[str], Any] = print,
) -> float:
    """Run all trials under load on one group; the longest time without a leader.

    Raises:
        AssertionError: something acknowledged was lost, doubled or not shown, members differ, or it took too
            long.
    """
    chance = random.Random(seed)
    worst = 0.0
    async with group or RaftGroup(folder, limits=LIMITS) as group:
        await group.start()
        await group.leader()
        load = Load(group, seed)
        load.begin()
        for number, trial in enumerate(trials):
            await asyncio.sleep(chance.uniform(0.1, 0.5))
            before = len(load.acknowledged)
            took = await trial(group, chance)
            worst = max(worst, took)
            say(f"{number} {trial.__name__}: {took:.2f} s, {len(load.acknowledged) - before} acknowledged")
            most = DEAF_LEADER_SECS if trial.__name__ == "deaf_leader" else NEW_LEADER_SECS
            assert took < most, f"{trial.__name__}: {took:.2f} s without a leader"
        await group.leader()
        await load.end()
        await load.judge()
        statuses = [await group.ask(id, "status") for id in group.ids]
        installed = sum(status["metrics"]["snapshots_installed"] for status in statuses)
        say(
            f"{len(load.acknowledged)} acknowledged, {load.unsure} unsure, {load.refused} refused,"
            f" {load.reads} reads, longest gap {load.gap:.2f} s, {installed} snapshots installed,"
            f" longest turn {max(s['metrics']['long_turn_seconds_max'] for s in statuses) * 1000:.0f} ms,"
            f" worst time to a leader {worst:.2f} s"
        )
    return worst


# --- networks ---------------------------------------------------------------------------------------------

NetTrial = Callable[[RaftGroup, RaftNet, random.Random], Awaitable[float]]
#: Seconds within which a leader that hears from no majority stops leading: two election time-outs and a bit.
STEP_DOWN_SECS = 2.5


async def undisturbed(group: RaftGroup, leader: int, term: int) -> None:
    """All are level, and the leader is still the one it was."""
    await group.caught_up()
    found = [await group.ask(id, "status") for id in group.ids]
    shown = [(one["id"], one["leader"], one["term"]) for one in found]
    assert shown == [(id, leader, term) for id in group.ids], f"{shown}, before: {leader} in term {term}"


async def cut_leader(group: RaftGroup, net: RaftNet, chance: random.Random) -> float:
    """The leader is cut off: it steps down and answers nothing; others lead; healed, it follows."""
    cut = await group.leader()
    others = [id for id in group.ids if id != cut]
    key = f"r-cut-{chance.random()}"
    await group.ask(cut, "put", key=key, value="old")
    began = time.monotonic()
    net.cut(cut)
    try:
        read = asyncio.ensure_future(group.ask(cut, "get", key=key, secs=3.0))
        leader = await group.new_leader(others)
        took = time.monotonic() - began
        await group.ask(leader, "put", key=key, value="new")
        async with asyncio.timeout(STEP_DOWN_SECS):
            while (await group.ask(cut, "status"))["leads"]:
                await asyncio.sleep(0.02)
        (outcome,) = await asyncio.gather(read, return_exceptions=True)
        assert isinstance(outcome, Refused), f"a leader without a majority answered {outcome!r}"
        value, _, silent = await group.ask(cut, "stale", key=key)
        assert (value, silent > 0) == ("old", True)
        term = (await group.ask(leader, "status"))["term"]
    finally:
        net.heal()
    await undisturbed(group, leader, term)
    assert await group.ask(cut, "get", key=key) == "new"
    return took


async def cut_follower(group: RaftGroup, net: RaftNet, chance: random.Random) -> float:
    """A follower is cut off for long: nothing changes for the others, nor when it is back."""
    leader = await group.leader()
    cut = chance.choice([id for id in group.ids if id != leader])
    term = (await group.ask(leader, "status"))["term"]
    net.cut(cut)
    try:
        await asyncio.sleep(chance.uniform(2.5, 4.5))
    finally:
        net.heal()
    await undisturbed(group, leader, term)
    return 0.0


async def deaf_follower(group: RaftGroup, net: RaftNet, chance: random.Random) -> float:
    """A follower no longer hears the leader, but the leader hears it: the others go on in the same term."""
    leader = await group.leader()
    deaf = chance.choice([id for id in group.ids if id != leader])
    term = (await group.ask(leader, "status"))["term"]
    net.one_way(leader, deaf)
    try:
        await asyncio.sleep(chance.uniform(2.5, 4.0))
        status = await group.ask(leader, "status")
        assert (status["leads"], status["term"]) == (True, term)
    finally:
        net.heal()
    await group.caught_up()
    return 0.0


async def deaf_leader(group: RaftGroup, net: RaftNet, chance: random.Random) -> float:
    """The leader is heard by everybody but hears nobody: heartbeats without answers do not keep it."""
    deaf = await group.leader()
    others = [id for id in group.ids if id != deaf]
    began = time.monotonic()
    for other in others:
        net.one_way(other, deaf)
    try:
        await group.new_leader(others)
        took = time.monotonic() - began
        async with asyncio.timeout(STEP_DOWN_SECS):
            while (await group.ask(deaf, "status"))["leads"]:
                await asyncio.sleep(0.02)
    finally:
        net.heal()
    await group.leader()
    await group.caught_up()
    return took


NET_TRIALS: dict[str, NetTrial] = {
    "cut_leader": cut_leader,
    "cut_follower": cut_follower,
    "deaf_follower": deaf_follower,
    "deaf_leader": deaf_leader,
}
#: A deaf leader first has to notice.
DEAF_LEADER_SECS = NEW_LEADER_SECS + STEP_DOWN_SECS


async def net_rounds(
    folder: Path, trials: list[NetTrial], seed: int, *, say: Callable[[str], Any] = print
) -> float:
    """`rounds` for trials of the network."""

    def bound(trial: NetTrial) -> Trial:
        async def run(group: RaftGroup, chance: random.Random) -> float:
            return await trial(group, net, chance)

        run.__name__ = trial.__name__
        return run

    with RaftNet([1, 2, 3]) as net:
        group = RaftGroup(folder, hosts=net.hosts, launch=net.launch, limits=LIMITS)
        return await rounds(folder, [bound(trial) for trial in trials], seed, group=group, say=say)
