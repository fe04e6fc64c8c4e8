"""Three members over real connections with mutual TLS."""

import asyncio
import contextlib
import socket

import pytest

from spur_core.errors import ConfigError, StateError
from spur_ctld.replication.api import Role
from spur_ctld.replication.errors import Dropped, NotLeader, Overloaded, TooLarge, Unknown
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.meta import Member
from spur_ctld.replication.roles import Timing
from spur_ctld.replication.testing.files import FailingFiles


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def soon(secs: float = 10.0) -> float:
    return asyncio.get_running_loop().time() + secs


async def test_a_group_elects_and_commands_reach_everybody(group) -> None:
    await group.start()
    leader = await group.leader()
    await asyncio.gather(*(leader.propose(cmd) for cmd in numbered(300)))
    await group.level()
    for node in group.nodes.values():
        assert node.machine.commands == numbered(300)
        assert node.cluster_id == group.cluster_id
    assert leader.metrics().writes < 100, "commands of one turn share a sync"
    assert group.fatal == []


async def test_any_member_takes_commands_and_reads(group) -> None:
    await group.start()
    followers = await group.followers()
    results = await asyncio.gather(*(followers[0].propose(cmd) for cmd in numbered(200)))
    assert sorted(int(result) for result in results) == list(range(2, 202))
    assert followers[0]._room.bytes == 0
    assert followers[0]._room.count == 0
    for node in group.nodes.values():
        index = await node.read_barrier()
        assert index >= 201
        assert node.machine.commands == numbered(200)


async def test_everybody_knows_the_others(group) -> None:
    await group.start()
    leader = await group.leader()
    await leader.propose(b"x")
    await group.level()
    for node in group.nodes.values():
        views = node.members()
        assert [view.id for view in views] == [1, 2, 3]
        assert [view.client for view in views] == ["client-1:6817", "client-2:6817", "client-3:6817"]
        assert [view.is_leader for view in views] == [view.id == leader.member_id for view in views]
        async with asyncio.timeout(5):
            while not all(view.reachable and view.command_version == 3 for view in node.members()):
                await asyncio.sleep(0.01)
        assert {view.version for view in node.members()} == {"0.1.0"}
        assert node.leader_client() == f"client-{leader.member_id}:6817"
    async with asyncio.timeout(5):
        while [view.match for view in leader.members()] != [2, 2, 2]:
            await asyncio.sleep(0.01)
    gone = (await group.followers())[0]
    await group.stop(gone.member_id)
    async with asyncio.timeout(5):
        while [view.id for view in leader.members() if not view.reachable] != [gone.member_id]:
            await asyncio.sleep(0.01)


async def test_a_stopped_leader_is_replaced_and_comes_back(group) -> None:
    await group.start()
    leader = await group.leader()
    await leader.propose(b"first")
    gone = leader.member_id
    await group.stop(gone)
    follower = next(iter(group.nodes.values()))
    # Waits in the queue until somebody leads; only what was on its way to the old leader is lost.
    with contextlib.suppress(Unknown):
        await follower.propose(b"on its way", soon())
    assert await follower.propose(b"second", soon())
    assert (await group.leader()).member_id != gone
    await group.start(gone)
    await group.level()
    commands = group.nodes[gone].machine.commands
    assert [cmd for cmd in commands if cmd != b"on its way"] == [b"first", b"second"]


async def test_a_member_that_was_away_catches_up_from_the_log(group) -> None:
    await group.start()
    await group.leader()
    away = (await group.followers())[0].member_id
    await group.stop(away)
    leader = await group.leader()
    await asyncio.gather(*(leader.propose(cmd) for cmd in numbered(500)))
    await group.start(away)
    await group.level()
    assert group.nodes[away].machine.commands == numbered(500)
    assert leader.metrics().snapshots_sent == 0


SMALL = Limits(snapshot_entries=100, keep_entries=10, segment_bytes=2000)


async def test_a_member_that_was_away_for_long_gets_a_snapshot(group, until) -> None:
    await group.start(limits=SMALL)
    leader = await group.leader()
    await leader.propose(b"before")
    await group.level()
    away = (await group.followers())[0].member_id
    await group.stop(away)
    for at in range(0, 400, 50):
        await asyncio.gather(*(leader.propose(cmd) for cmd in numbered(50, at)))
    await until(lambda: leader._core.log.base.index > 100)
    restored = []
    await group.start(away, limits=SMALL)
    node = group.nodes[away]
    node.on_restore(lambda: restored.append(len(node.machine.commands)))
    await group.level()
    assert node.machine.commands == [b"before", *numbered(400)]
    assert node.metrics().snapshots_installed == 1
    assert leader.metrics().snapshots_sent == 1
    assert len(restored) == 1
    assert restored[0] > 100
    # And it is a full member from there on, after a restart too.
    await leader.propose(b"after")
    await group.stop(away)
    await group.start(away, limits=SMALL)
    await group.level()
    assert group.nodes[away].machine.commands == [b"before", *numbered(400), b"after"]
    assert not list((group.state_dir(away) / "raft" / "snap").glob("*.tmp"))
    assert group.fatal == []


async def test_a_snapshot_is_taken_while_commands_go_on(group, until) -> None:
    """The state grows all the time; a slow transfer must end, and the member must get level."""
    limits = Limits(snapshot_entries=300, keep_entries=20, segment_bytes=20_000, snapshot_rate=200_000)
    await group.start(limits=limits)
    leader = await group.leader()
    away = (await group.followers())[0].member_id
    await group.stop(away)
    over = False

    async def client(name: int) -> None:
        number = 0
        while not over:
            number += 1
            await leader.propose(b"%d-%d-%s" % (name, number, bytes(100)))

    clients = [asyncio.ensure_future(client(name)) for name in range(4)]
    await until(lambda: leader.metrics().snapshots >= 2)
    await group.start(away, limits=limits)
    await until(lambda: group.nodes[away].metrics().snapshots_installed)
    await until(lambda: group.nodes[away].applied > leader.applied - 200)
    over = True
    await asyncio.gather(*clients)
    await group.level()
    assert group.nodes[away].machine.commands == leader.machine.commands


async def test_leadership_goes_to_whom_it_is_given(group) -> None:
    await group.start()
    leader = await group.leader()
    to = (await group.followers())[1]
    seen = []
    leader.on_role_change(lambda role, term: seen.append(role))
    heard = []
    to.on_leader_change(heard.append)
    began = asyncio.get_running_loop().time()
    writes = [asyncio.ensure_future(leader.propose(cmd, soon())) for cmd in numbered(20)]
    assert await leader.transfer_leadership(to.member_id) == to.member_id
    took = asyncio.get_running_loop().time() - began
    assert took < 1.0, "no election time-out passes"
    await asyncio.gather(*writes)
    assert (await group.leader()) is to
    assert seen == [Role.LEADER, Role.FOLLOWER]
    assert heard[-1] == to.member_id
    with pytest.raises(NotLeader):
        await leader.transfer_leadership()
    back = await to.transfer_leadership()
    assert back != to.member_id
    await group.level()
    assert sorted(leader.machine.commands) == sorted(numbered(20))


async def test_commands_queued_during_a_transfer_are_not_lost(group, until) -> None:
    await group.start()
    leader = await group.leader()
    other = (await group.followers())[0]
    over = False
    done = []

    async def client(node, name: int) -> None:
        number = 0
        while not over:
            number += 1
            cmd = b"%d-%d" % (name, number)
            with contextlib.suppress(Dropped, Unknown):
                await node.propose(cmd, soon())
                done.append(cmd)

    clients = [asyncio.ensure_future(client(node, at)) for at, node in enumerate([leader, other])]
    for number in range(6):
        await until(lambda number=number: len(done) > 5 * number)
        leading = await group.leader()
        with contextlib.suppress(Dropped):
            await leading.transfer_leadership()
    over = True
    await asyncio.gather(*clients)
    await group.level()
    commands = leader.machine.commands
    assert set(done) <= set(commands)
    assert len(commands) == len(set(commands)), "applied twice"
    assert len(done) > 20


async def test_without_a_majority_nothing_is_answered(group) -> None:
    await group.start()
    leader = await group.leader()
    await leader.propose(b"kept")
    await group.level()
    for node in await group.followers():
        await group.stop(node.member_id)
    with pytest.raises((Unknown, NotLeader)):
        await leader.propose(b"lost?", soon(3.0))
    with pytest.raises(NotLeader, match="no controller leads yet"):
        await leader.propose(b"never", soon(0.3))
    with pytest.raises(NotLeader, match="no controller leads yet"):
        await leader.read_barrier(soon(0.3))
    assert leader.leader() is None
    assert leader.leader_client() is None
    # What it has may still be looked at, with its age.
    assert leader.machine.commands[0] == b"kept"
    assert leader.seconds_since_leader() > 0.5


async def test_a_follower_alone_waits_and_then_goes_on(group, until) -> None:
    await group.start(1)
    node = group.nodes[1]
    waiting = asyncio.ensure_future(node.propose(b"patient", soon(20)))
    reading = asyncio.ensure_future(node.read_barrier(soon(20)))
    await until(lambda: node.metrics().role == "precandidate")
    assert not waiting.done()
    await group.start(2)
    await waiting
    assert await reading >= 1
    assert node.machine.commands == [b"patient"]


async def test_too_large_is_refused_where_it_comes_in(group) -> None:
    limits = Limits(command_bytes=1000)
    await group.start(limits=limits)
    follower = (await group.followers())[0]
    with pytest.raises(TooLarge):
        await follower.propose(bytes(1001))
    await follower.propose(bytes(1000))


async def test_large_commands_travel(group) -> None:
    await group.start()
    follower = (await group.followers())[0]
    large = bytes(8 << 20)
    results = await asyncio.gather(*(follower.propose(large) for _ in range(3)), follower.propose(b"small"))
    assert len(results) == 4
    await group.level()
    assert all(len(node.machine.commands) == 4 for node in group.nodes.values())
    assert follower._room.bytes == 0


async def test_what_the_leader_refuses_is_told(group) -> None:
    await group.start(1, 2)
    leader = await group.leader()
    follower = (await group.followers())[0]
    leader._limits = Limits(waiting=0)
    with pytest.raises(Overloaded, match="wait to be written"):
        await follower.propose(b"x")
    leader._limits = Limits(command_bytes=10)
    with pytest.raises(TooLarge):
        await follower.propose(bytes(11))


async def test_deadlines_travel_with_the_command(group, until) -> None:
    slow = FailingFiles()
    await group.start(1, 2, files=slow)
    follower = (await group.followers())[0]
    await follower.propose(b"first")
    slow.gate.clear()
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unknown):
        await follower.propose(b"late", soon(0.3))
    assert asyncio.get_running_loop().time() - began < 2
    slow.gate.set()
    await until(lambda: follower._room.count == 0)


async def test_a_leader_that_stops_leaves_forwarded_commands_unknown_or_done(group, until) -> None:
    await group.start()
    leader = await group.leader()
    follower = (await group.followers())[0]
    before = leader.metrics().last_index
    writes = [asyncio.ensure_future(follower.propose(cmd, soon(15))) for cmd in numbered(300)]
    await until(lambda: leader.metrics().last_index > before)
    await group.stop(leader.member_id)
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    await group.leader()
    await group.level()
    applied = follower.machine.commands
    for cmd, outcome in zip(numbered(300), outcomes, strict=True):
        if isinstance(outcome, bytes):
            assert applied.count(cmd) == 1
        else:
            assert isinstance(outcome, (Unknown, Dropped)), outcome
            assert applied.count(cmd) <= (0 if isinstance(outcome, Dropped) else 1)


async def test_a_member_of_another_cluster_is_left_alone(group, until, caplog) -> None:
    await group.start(1, 2)
    leader = await group.leader()
    folder = group.state_dir(3)
    (folder / "raft" / "meta").write_text(
        (folder / "raft" / "meta").read_text().replace(group.cluster_id, "0" * 32)
    )
    await group.start(3)
    await until(lambda: group.nodes[3].metrics().role == "precandidate")
    await until(lambda: "belongs to cluster" in caplog.text)
    assert group.nodes[3].leader() is None
    assert group.nodes[3].applied == 0
    assert f"belongs to cluster {'0' * 32}, this is {group.cluster_id}" in caplog.text
    assert (await leader.propose(b"goes on")) == b"2"
    assert leader.metrics().term == 1, "nobody was disturbed"


async def test_a_directory_of_another_cluster_is_refused_when_the_ca_is_known(group) -> None:
    node = group.make(1, cluster_id="f" * 32)
    with pytest.raises(StateError, match=r"meta: belongs to cluster .*, the group's CA says ffff"):
        await node.start()


async def test_another_list_of_members_is_left_alone(group, caplog) -> None:
    await group.start(1, 2)
    await group.leader()
    members = [*group.members, Member(4, "127.0.0.1:1", "spur-controller-4")]
    with pytest.raises(StateError, match="written for another list of controllers"):
        await group.start(3, members=members)
    group.nodes.pop(3)


async def test_a_member_without_a_directory_does_not_start(group) -> None:
    (group.state_dir(1) / "raft" / "meta").unlink()
    (group.state_dir(1) / "raft" / "lock").unlink()
    for path in (group.state_dir(1) / "raft" / "log").iterdir():
        path.unlink()
    node = group.make(1)
    with pytest.raises(StateError, match="raft"):
        await node.start()
    assert not (group.state_dir(1) / "raft" / "meta").exists()


async def test_a_leader_short_of_space_hands_over(group, until) -> None:
    await group.start(files=None)
    leader = await group.leader()
    files = FailingFiles()
    files.free = 100 << 20
    leader._shared.files = files
    await leader.propose(b"look at the disk")
    await until(lambda: leader.leader() not in (None, leader.member_id))
    assert (await group.leader()) is not leader
    # It stays a member: it writes and it passes commands on.
    assert await leader.propose(b"x")
    assert leader._shared.disk.low
    assert not leader._shared.disk.refusing


async def test_everybody_short_of_space_keeps_the_leader(group, until) -> None:
    # A busy machine must not cause an election.
    await group.start(timing=Timing(heartbeat=2, election=40))
    leader = await group.leader()
    for node in group.nodes.values():
        files = FailingFiles()
        files.free = 100 << 20
        node._shared.files = files
    for number in range(5):
        await leader.propose(b"%d" % number)
    await group.level()
    await leader.propose(b"more")
    await asyncio.sleep(0.3)
    assert (await group.leader()) is leader
    for node in group.nodes.values():
        node._shared.files.free = 10 << 20
    await leader.propose(b"seen by everybody")
    await until(lambda: leader._shared.disk.refusing)
    with pytest.raises(Overloaded, match="10 MiB free"):
        await leader.propose(b"refused")


async def test_two_members_are_a_group_too(tmp_path, fatal, free_ports, make_group) -> None:
    group = make_group(2)
    await group.start()
    leader = await group.leader()
    other = (await group.followers())[0]
    await other.propose(b"x")
    await group.level()
    assert leader.machine.commands == other.machine.commands == [b"x"]


async def test_five_members_bear_the_loss_of_two(make_group) -> None:
    group = make_group(5)
    await group.start()
    leader = await group.leader()
    await leader.propose(b"first")
    await group.stop(leader.member_id)
    second = await group.leader()
    await group.stop(second.member_id)
    third = await group.leader()
    await third.propose(b"last", soon())
    await group.level()
    assert all(node.machine.commands == [b"first", b"last"] for node in group.nodes.values())


async def test_a_listener_that_cannot_be_opened_leaves_the_directory_free(group) -> None:
    host, _, port = group.members[0].address.rpartition(":")
    with socket.create_server((host, int(port))):
        node = group.make(1)
        with pytest.raises(ConfigError, match="raft_listen_addr: cannot listen on"):
            await node.start()
    await group.start()
    await group.leader()


async def test_an_idle_group_keeps_its_leader_and_its_log(group) -> None:
    await group.start()
    leader = await group.leader()
    await leader.propose(b"x")
    await group.level()
    before = [node.metrics() for node in group.nodes.values()]
    await asyncio.sleep(2.0)
    after = [node.metrics() for node in group.nodes.values()]
    assert [(one.term, one.leader, one.writes) for one in after] == [
        (one.term, one.leader, one.writes) for one in before
    ]
    for node in await group.followers():
        assert node.seconds_since_leader() < 1.0
    assert leader.seconds_since_leader() == 0.0
