"""What a group of controllers finds out about itself reaches whoever pings one of them."""

import asyncio
import time

from spur_ctld.state import versions
from spur_proto import controller_pb2 as pb


async def reach(condition, secs=20.0):
    end = time.monotonic() + secs
    while not await condition():
        assert time.monotonic() < end, "never came true"
        await asyncio.sleep(0.02)


async def test_a_clock_that_differs_is_told_by_all(trio):
    late = trio.followers[0]
    other = next(at for at in trio.followers if at != late)

    async def alarms(at):
        trio.ask(at)
        return list((await trio.stub.Ping(pb.PingRequest(), metadata=trio.user())).alarms)

    assert await alarms(other) == []
    await trio.stop(late)
    right = trio.clock
    trio.clock = type(right)()
    trio.clock.ahead = -7.0
    await trio.start(late)
    trio.clock = right

    async def told(at):
        return await alarms(at) == [f"the clock of controller {at} is 7 s ahead of controller {late}'s"]

    for at in (other, trio.leader):
        await reach(lambda at=at: told(at))
    both = sorted(at for at in (1, 2, 3) if at != late)
    assert await alarms(late) == [
        f"the clock of controller {at} is 7 s ahead of controller {late}'s" for at in both
    ]


async def test_the_version_of_commands_is_told_by_all(trio):
    async def told():
        answers = []
        for at in (1, 2, 3):
            trio.ask(at)
            answers.append((await trio.stub.Ping(pb.PingRequest(), metadata=trio.user())).command_version)
        return answers == [versions.COMMAND_VERSION] * 3

    await reach(told)
