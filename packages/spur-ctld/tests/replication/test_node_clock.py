"""Ticks after stalls, and turns of the event loop that take too long."""

import asyncio
import time

from spur_ctld.replication import watchdog
from spur_ctld.replication.ticker import Ticker


class Loop:
    """A clock that is set by hand, and the timers that were asked for."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, object]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback) -> "Loop":
        self.timers.append((when, callback))
        return self

    def call_later(self, delay: float, callback) -> "Loop":
        return self.call_at(self.now + delay, callback)

    def cancel(self) -> None:
        self.timers.clear()


def test_ticks_follow_the_clock() -> None:
    loop = Loop()
    ticker = Ticker(loop, 0.05, 10, lambda: None)
    assert ticker.due() == 0
    loop.now += 0.049
    assert ticker.due() == 0
    loop.now += 0.002
    assert ticker.due() == 1
    assert ticker.due() == 0
    loop.now += 0.199
    assert ticker.due() == 4, "the rest of the last tick was not forgotten"


def test_most_of_a_stall_is_forgotten() -> None:
    loop = Loop()
    ticker = Ticker(loop, 0.05, 10, lambda: None)
    loop.now += 3600
    assert ticker.due() == 10
    assert ticker.due() == 0
    loop.now += 0.051
    assert ticker.due() == 1


def test_it_asks_for_a_turn_at_each_tick() -> None:
    loop = Loop()
    turns = []
    ticker = Ticker(loop, 0.05, 10, lambda: turns.append(loop.now))
    ticker.start()
    for _ in range(8):
        when, callback = loop.timers.pop(0)
        loop.now = max(loop.now, when)
        callback()
        ticker.due()
    assert len(turns) == 4
    assert [round(turn - 100, 3) for turn in turns] == [0.05, 0.1, 0.15, 0.2]
    ticker.stop()
    assert loop.timers == []


def test_long_turns_are_counted() -> None:
    async def turns() -> tuple[int, float]:
        for secs in (0.0, 0.03, 0.0, 0.05):
            await asyncio.sleep(0)
            time.sleep(secs)
            await asyncio.sleep(0)
        return watchdog.measured(asyncio.get_running_loop())

    with asyncio.Runner(loop_factory=watchdog.new_event_loop) as runner:
        count, longest = runner.run(turns())
    assert count >= 2
    assert longest >= 0.05


def test_waiting_is_no_long_turn() -> None:
    async def wait() -> int:
        before, _ = watchdog.measured(asyncio.get_running_loop())
        await asyncio.sleep(0.1)
        after, _ = watchdog.measured(asyncio.get_running_loop())
        return after - before

    with asyncio.Runner(loop_factory=watchdog.new_event_loop) as runner:
        assert min(runner.run(wait()) for _ in range(5)) == 0


async def test_another_loop_counts_nothing() -> None:
    assert watchdog.measured(asyncio.get_running_loop()) == (0, 0.0)
