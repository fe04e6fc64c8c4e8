"""Commands and readers that wait: every end that a caller can meet, and nothing left behind."""

import asyncio

import pytest

from spur_ctld.replication.errors import Dropped, NotLeader, Overloaded, TooLarge, Unknown
from spur_ctld.replication.forwarding import Forwarder, serve
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.reads import Reads
from spur_ctld.replication.waiting import Waiting, WaitingRoom
from spur_proto import raft_internal_pb2 as pb


def enter(room: WaitingRoom, *cmds: bytes, hop: bool = False) -> list[Waiting]:
    loop = asyncio.get_running_loop()
    made = [Waiting(cmd, loop.create_future(), hop=hop) for cmd in cmds]
    for waiting in made:
        room.enter(waiting)
    return made


def ended(waiting: Waiting) -> object:
    """The result, or the error's type."""
    if not waiting.future.done():
        return None
    error = waiting.future.exception()
    return waiting.future.result() if error is None else type(error)


def empty(room: WaitingRoom) -> bool:
    return (room.count, room.bytes, room.placed, room._hops) == (0, 0, 0, 0)


async def test_a_place_taken_by_another_leader_drops_the_command() -> None:
    room = WaitingRoom()
    a, b, c, d = enter(room, b"a", b"b", b"c", b"d")
    room.place(room.batch(9, 99), 2, 10)
    room.applied(10, 2, b"done")
    room.applied(11, 3, b"somebody else's")
    assert ended(d) is None
    room.displaced(12, 3)
    assert [ended(one) for one in (a, b, c, d)] == [b"done", Dropped, Dropped, Dropped]
    assert empty(room)


async def test_a_snapshot_that_skips_a_place_leaves_it_unknown() -> None:
    room = WaitingRoom()
    a, b = enter(room, b"a", b"b")
    room.place(room.batch(9, 99), 2, 10)
    room.skipped(10)
    assert (ended(a), ended(b)) == (Unknown, None)
    room.applied(11, 2, b"done")
    assert ended(b) == b"done"
    assert empty(room)


async def test_a_place_taken_twice_by_the_same_member_is_unknown() -> None:
    """It led, lost its entries, and leads again: the first may live on elsewhere."""
    room = WaitingRoom()
    (first,) = enter(room, b"first")
    room.place(room.batch(9, 99), 2, 10)
    (second,) = enter(room, b"second")
    room.place(room.batch(9, 99), 4, 10)
    assert ended(first) == Unknown
    room.applied(10, 4, b"done")
    assert ended(second) == b"done"
    assert empty(room)


async def test_other_members_commands_go_no_further() -> None:
    room = WaitingRoom()
    (own,) = enter(room, b"own")
    (other,) = enter(room, b"other", hop=True)
    (more,) = enter(room, b"more")
    room.refuse_hops(NotLeader(3))
    assert [ended(one) for one in (own, other, more)] == [None, NotLeader, None]
    assert [one.cmd for one in room.batch(9, 99)] == [b"own", b"more"]


async def test_what_was_not_executed_goes_back_to_its_place() -> None:
    room = WaitingRoom()
    made = enter(room, b"a", b"b", b"c", b"d")
    batch = room.batch(3, 99)
    room.send(batch)
    assert not batch[0].queued
    assert room.settle(batch[1])
    room.send_again(batch)
    assert [one.cmd for one in room.queue] == [b"a", b"c", b"d"]
    assert all(one.queued for one in made if one is not made[1])
    assert room.count == 3
    room.refuse_queue(Dropped("x"))
    assert empty(room)


async def test_an_end_comes_once() -> None:
    room = WaitingRoom()
    (a,) = enter(room, b"a")
    room.send(room.batch(9, 99))
    room.abandon(Unknown("stopped"))
    assert not room.settle(a)
    a.succeed(b"late")
    a.fail(Dropped("late"))
    assert ended(a) == Unknown
    room.send_again([a])
    assert empty(room)


class Leader:
    """The leader as the forwarder's transport sees it; calls wait until the test answers them."""

    def __init__(self) -> None:
        self.reachable = True
        self.calls: list[tuple[int, list[pb.ForwardItem], asyncio.Future]] = []

    def connected(self, member: int) -> bool:
        return self.reachable

    def peer(self, member: int):
        class Way:
            async def forward(way, items, timeout):
                future = asyncio.get_running_loop().create_future()
                self.calls.append((member, items, future))
                return await future

        return Way()

    def answer(self, at: int, *answers: pb.ForwardAnswer) -> None:
        self.calls[at][2].set_result(list(answers))

    def sent(self) -> list[tuple[int, list[bytes]]]:
        return [(member, [item.command for item in items]) for member, items, _ in self.calls]


def result(data: bytes) -> pb.ForwardAnswer:
    return pb.ForwardAnswer(result=data)


def refused(code: str) -> pb.ForwardAnswer:
    return pb.ForwardAnswer(refusal=pb.ForwardRefusal(code=code, text="says the leader"))


class Side:
    """A follower's side."""

    def __init__(self) -> None:
        self.leader = Leader()
        self.room = WaitingRoom()
        self.reads = Reads()
        self.limits = Limits(batch_commands=2)
        self.forwarder = Forwarder(
            asyncio.get_running_loop(), self.leader, self.room, self.reads, self.limits, lambda: None
        )

    async def pump(self, leader: int = 1, term: int = 5) -> None:
        self.forwarder.pump(leader, term)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_two_calls_are_on_their_way_and_the_rest_waits() -> None:
    side = Side()
    made = enter(side.room, b"1", b"2", b"3", b"4", b"5")
    await side.pump()
    assert side.leader.sent() == [(1, [b"1", b"2"]), (1, [b"3", b"4"])]
    await side.pump()
    assert len(side.leader.calls) == 2
    side.leader.answer(1, result(b"x3"), result(b"x4"))
    await settle()
    await side.pump()
    assert side.leader.sent()[2] == (1, [b"5"])
    assert [ended(one) for one in made] == [None, None, b"x3", b"x4", None]
    side.leader.answer(0, result(b"x1"), result(b"x2"))
    side.leader.answer(2, result(b"x5"))
    await settle()
    assert [ended(one) for one in made] == [b"x1", b"x2", b"x3", b"x4", b"x5"]
    assert empty(side.room)


async def test_calls_to_an_old_leader_hold_nobody_up() -> None:
    side = Side()
    made = enter(side.room, b"1", b"2", b"3", b"4", b"5")
    await side.pump()
    await side.pump(2, 6)
    assert side.leader.sent()[2] == (2, [b"5"])
    side.leader.answer(2, result(b"x"))
    side.leader.answer(0, result(b"x"), refused("dropped"))
    side.leader.calls[1][2].set_exception(OSError("gone"))
    await settle()
    assert [ended(one) for one in made] == [b"x", Dropped, Unknown, Unknown, b"x"]
    assert empty(side.room)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("dropped", Dropped),
        ("overloaded", Overloaded),
        ("too_large", TooLarge),
        ("unknown_outcome", Unknown),
        ("something of a newer release", Unknown),
    ],
)
async def test_refusals_keep_their_meaning(code: str, error: type) -> None:
    side = Side()
    (one,) = enter(side.room, b"1")
    await side.pump()
    side.leader.answer(0, refused(code))
    await settle()
    assert ended(one) is error
    assert empty(side.room)


async def test_who_is_not_the_leader_is_asked_again_later() -> None:
    side = Side()
    made = enter(side.room, b"1", b"2")
    await side.pump()
    side.leader.answer(0, refused("not_leader"), refused("not_leader"))
    await settle()
    assert [one.cmd for one in side.room.queue] == [b"1", b"2"]
    await side.pump()
    assert len(side.leader.calls) == 1, "not at once"
    await side.pump(3, 6)
    assert side.leader.sent()[1] == (3, [b"1", b"2"]), "but another one at once"
    side.leader.answer(1, result(b"x"), result(b"y"))
    await settle()
    assert [ended(one) for one in made] == [b"x", b"y"]


async def test_too_few_answers_tell_nothing() -> None:
    side = Side()
    made = enter(side.room, b"1", b"2")
    await side.pump()
    side.leader.answer(0, result(b"x"))
    await settle()
    assert [ended(one) for one in made] == [Unknown, Unknown]
    assert empty(side.room)


async def test_readers_share_a_question_and_ask_again() -> None:
    side = Side()
    loop = asyncio.get_running_loop()
    readers = [loop.create_future() for _ in range(3)]
    side.reads.queue += readers
    readers[1].cancel()
    await side.pump()
    ((_, items, _),) = side.leader.calls
    assert [item.read_index for item in items] == [True]
    side.leader.calls[0][2].set_exception(OSError("gone"))
    await settle()
    await side.pump(2, 6)
    side.leader.answer(1, pb.ForwardAnswer(index=7))
    await settle()
    side.reads.applied(6)
    assert not readers[0].done()
    side.reads.applied(9)
    assert (readers[0].result(), readers[2].result()) == (7, 7)


async def test_nothing_leaves_without_a_way() -> None:
    side = Side()
    side.leader.reachable = False
    (one,) = enter(side.room, b"1")
    await side.pump()
    assert side.leader.calls == []
    assert one.queued


class Executor:
    """The leader's side, by hand."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future] = []
        self.deadlines: list[float | None] = []

    def execute(self, cmd: bytes, deadline: float | None) -> asyncio.Future:
        if cmd == b"refuse":
            raise Overloaded("too much")
        self.deadlines.append(deadline)
        return self._future()

    def read_index(self) -> asyncio.Future:
        return self._future()

    def _future(self) -> asyncio.Future:
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


async def test_the_leader_answers_each_item() -> None:
    loop = asyncio.get_running_loop()
    executor = Executor()
    items = [
        pb.ForwardItem(command=b"a", timeout_ms=1500),
        pb.ForwardItem(command=b"refuse"),
        pb.ForwardItem(command=b"b"),
        pb.ForwardItem(read_index=True),
        pb.ForwardItem(command=b"c"),
    ]
    serving = asyncio.ensure_future(serve(items, executor, loop))
    await settle()
    a, b, read, c = executor.futures
    assert executor.deadlines[0] == pytest.approx(loop.time() + 1.5, abs=0.2)
    assert executor.deadlines[1:] == [None, None]
    a.set_result(b"done")
    b.set_exception(NotLeader(3))
    read.set_result(12)
    await settle()
    assert not serving.done()
    c.set_exception(KeyError("a fault"))
    answers = await serving
    assert answers[0].result == b"done"
    assert (answers[1].refusal.code, answers[1].refusal.text) == ("overloaded", "too much")
    assert (answers[2].refusal.code, answers[2].refusal.leader) == ("not_leader", 3)
    assert answers[3].index == 12
    assert answers[4].refusal.code == "unknown_outcome"


async def test_answers_too_large_for_one_reply_are_left_unknown() -> None:
    executor = Executor()
    items = [pb.ForwardItem(command=b"x") for _ in range(3)]
    serving = asyncio.ensure_future(serve(items, executor, asyncio.get_running_loop()))
    await settle()
    for future in executor.futures:
        future.set_result(bytes(5 << 20))
    answers = await serving
    assert [answer.WhichOneof("kind") for answer in answers] == ["result", "result", "refusal"]
    assert answers[2].refusal.code == "unknown_outcome"
