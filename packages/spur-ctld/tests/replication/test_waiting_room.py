"""Commands whose callers wait: what they are told when another member led in between."""

import asyncio

import pytest

from spur_ctld.replication.errors import Dropped, Unknown
from spur_ctld.replication.waiting import Waiting, WaitingRoom


async def placed(room: WaitingRoom, term: int, first: int, count: int) -> list[Waiting]:
    batch = [Waiting(b"x%d" % at, asyncio.get_running_loop().create_future()) for at in range(count)]
    for waiting in batch:
        room.enter(waiting)
    assert room.batch(count, 1 << 20) == batch
    room.place(batch, term, first)
    return batch


async def test_the_no_op_of_a_new_term_ends_everything_older_behind_it() -> None:
    room = WaitingRoom()
    before = await placed(room, 3, 10, 1)
    behind = await placed(room, 3, 11, 3)
    own = await placed(room, 5, 15, 1)
    room.displaced(11, 5)
    for waiting in behind:
        with pytest.raises(Dropped):
            await waiting.future
    assert not any(waiting.future.done() for waiting in (*before, *own))
    room.applied(10, 3, b"ten")
    assert await before[0].future == b"ten"
    assert room.placed == 1
    assert room.bytes == len(own[0].cmd)


async def test_the_no_op_of_the_own_term_ends_nothing() -> None:
    room = WaitingRoom()
    own = await placed(room, 5, 12, 2)
    room.displaced(11, 5)
    assert room.placed == 2
    assert not own[0].future.done()


async def test_a_place_taken_again_leaves_the_first_unknown() -> None:
    """Its entry may be on another member, and win there."""
    room = WaitingRoom()
    first = await placed(room, 3, 10, 1)
    again = await placed(room, 6, 10, 1)
    with pytest.raises(Unknown):
        await first[0].future
    room.applied(10, 6, b"ten")
    assert await again[0].future == b"ten"
    assert room.bytes == 0
