"""Very many who watch one job: everybody hears of a change, and nobody keeps the loop for himself."""

import asyncio
import time
from itertools import pairwise

from spur_ctld.ledger import WOKEN_AT_ONCE, Ledger
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.events import JobChanged

#: Seconds that one watcher's look takes, and how many of them there are.
LOOK, MANY = 0.001, 600


async def turns(end: asyncio.Event) -> list[float]:
    """When the loop turned."""
    found = [time.monotonic()]
    while not end.is_set():
        await asyncio.sleep(0)
        found.append(time.monotonic())
    return found


async def watched(ledger: Ledger, change) -> tuple[list[int], float]:
    """Who looked, in which order, and the longest turn of the loop meanwhile."""
    looked: list[int] = []

    async def watch(number: int) -> None:
        await ledger.job_changed(7)
        time.sleep(LOOK)  # work, not waiting
        looked.append(number)

    tasks = [asyncio.create_task(watch(number)) for number in range(MANY)]
    await asyncio.sleep(0)
    over = asyncio.Event()
    clock = asyncio.create_task(turns(over))
    await asyncio.sleep(0)
    change()
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    over.set()
    found = await clock
    return looked, max(after - before for before, after in pairwise(found))


async def test_a_change_of_a_job_that_very_many_watch():
    ledger = Ledger(ClusterState, None)  # type: ignore[arg-type]  # nothing is proposed
    looked, longest = await watched(ledger, lambda: ledger.publish([JobChanged(7)]))
    assert looked == list(range(MANY)), "first come, first served"
    assert longest < MANY * LOOK / 2


async def test_a_leader_that_is_one_no_longer_tells_very_many():
    ledger = Ledger(ClusterState, None)  # type: ignore[arg-type]  # nothing is proposed
    looked, longest = await watched(ledger, lambda: ledger.lead(leads=False))
    assert looked == list(range(MANY))
    assert longest < MANY * LOOK / 2


async def test_who_waits_for_another_job_does_not_wait_for_them():
    ledger = Ledger(ClusterState, None)  # type: ignore[arg-type]  # nothing is proposed
    looked: list[int] = []

    async def watch(job_id: int) -> None:
        await ledger.job_changed(job_id)
        looked.append(job_id)

    tasks = [asyncio.create_task(watch(7)) for _ in range(MANY)] + [asyncio.create_task(watch(8))]
    await asyncio.sleep(0)
    ledger.publish([JobChanged(7)])
    ledger.publish([JobChanged(8)])
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    assert looked.index(8) < 2 * WOKEN_AT_ONCE


async def test_changes_that_come_faster_than_anybody_looks_reach_all():
    ledger = Ledger(ClusterState, None)  # type: ignore[arg-type]  # nothing is proposed
    seen = dict.fromkeys(range(MANY), 0)
    change = 0

    async def watch(number: int) -> None:
        while seen[number] < 50:
            await ledger.job_changed(7)
            seen[number] = change

    tasks = [asyncio.create_task(watch(number)) for number in seen]
    for change in range(1, 51):  # noqa: B007  # the watchers read it
        await asyncio.sleep(0)
        ledger.publish([JobChanged(7)])
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    assert not ledger._waiters
    assert not ledger._waking
