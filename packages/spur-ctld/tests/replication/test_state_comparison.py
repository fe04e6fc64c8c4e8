"""Members take snapshots at the same places, tell each other their digests, and cry out when they differ."""

import asyncio
import shutil

from spur_ctld.replication.digests import read_alarms
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.testing.machine import ListMachine

EVERY_TEN = Limits(snapshot_entries=10)


def commands(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_equal_members_have_equal_digests_at_equal_places(group, until) -> None:
    await group.start(limits=EVERY_TEN)
    leader = await group.leader()
    for cmd in commands(35):
        await leader.propose(cmd)
    await group.level()
    books = {id: node._shared.digests for id, node in group.nodes.items()}
    await until(lambda: all(len(book.own()) >= 3 for book in books.values()))
    places = [dict(book.own()) for book in books.values()]
    shared = set(places[0]) & set(places[1]) & set(places[2])
    assert {10, 20, 30} <= shared, "whoever leads and however batches fall"
    assert all(len({place[index] for place in places}) == 1 for index in shared)
    await until(lambda: all(len(book._places[30]) == 3 for book in books.values()))
    for node in group.nodes.values():
        assert node.metrics().state_differences == 0
        newest = node._opened.snapshots.list()[0]
        assert node._opened.snapshots.verify(newest).digest == dict(node._shared.digests.own())[newest.index]


class Forgetful(ListMachine):
    """A fault in `apply` that only one member has."""

    def apply(self, index: int, cmd: bytes) -> bytes:
        if cmd == b"13":
            return str(index).encode()
        return super().apply(index, cmd)


async def test_a_member_with_another_state_is_found_out_by_all(group, until, caplog) -> None:
    await group.start(1, 2, limits=EVERY_TEN)
    await group.start(3, limits=EVERY_TEN, machine=Forgetful())
    leader = await group.leader()
    await asyncio.gather(*(leader.propose(cmd) for cmd in commands(45)))
    await group.level()
    await until(lambda: all(node.metrics().state_differences for node in group.nodes.values()))
    found = {
        (one.member, one.other) for node in group.nodes.values() for one in node._shared.digests.differences
    }
    assert all(3 in pair for pair in found)
    assert "state_differs index=" in caplog.text
    assert any("the state of controller" in alarm for alarm in group.nodes[1].alarms())
    alarms = [read_alarms(group.state_dir(id) / "raft") for id in (1, 2)]
    assert all(3 in (one.member, one.other) for alarm in alarms for one in alarm)
    await until(lambda: read_alarms(group.state_dir(1) / "raft"))
    await group.stop(1)
    await group.start(1, limits=EVERY_TEN)
    assert group.nodes[1].alarms(), "until people remove the file"
    assert not group.fatal, "an alarm, not an end: nobody knows which of them is right"


async def test_a_member_that_was_set_back_is_named_by_the_leader(group, until, caplog, tmp_path) -> None:
    await group.start()
    leader = await group.leader()
    back = next(id for id, node in group.nodes.items() if node is not leader)
    folder, copy = group.state_dir(back) / "raft", tmp_path / "copy"
    await leader.propose(b"first")
    await group.level()
    await group.stop(back)
    shutil.copytree(folder, copy)
    await group.start(back)
    for cmd in commands(5):
        await leader.propose(cmd)
    await group.level()
    await until(lambda: leader._core.match(back) == leader._core.last_index)
    assert "member_forgot" not in caplog.text, "who only was away is well"
    await group.stop(back)
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    await group.start(back)
    await until(lambda: f"member_forgot member={back} acknowledged=" in caplog.text)
    assert "spurctld raft seed" in caplog.text
    (alarm,) = leader.alarms()
    assert alarm.startswith(f"controller {back} no longer holds what it acknowledged, up to entry ")
    assert "spurctld raft seed" in alarm
    before = caplog.text.count("member_forgot")
    leader._comparing.begin()
    await until(lambda: leader._comparing._task is None)
    assert caplog.text.count("member_forgot") == before, "once in the log"
    assert leader.alarms() == [alarm], "for as long as it is so"


async def test_a_member_alone_asks_nobody(start_node, until) -> None:
    node = await start_node(limits=EVERY_TEN)
    await asyncio.gather(*(node.propose(cmd) for cmd in commands(25)))
    await until(lambda: node.metrics().snapshots >= 1)
    assert node._shared.digests.own()
