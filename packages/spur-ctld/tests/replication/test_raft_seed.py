"""`spurctld raft seed`: a member whose directory is gone comes back while the others work."""

import asyncio
import dataclasses
import random
import shutil

import pytest

from spur_core.config.loader import default_config
from spur_core.errors import ConfigError, SpurError, StateError
from spur_ctld.raft_tools.place import Place
from spur_ctld.raft_tools.seeding import seed
from spur_ctld.replication import certs
from spur_ctld.replication.files import Files
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.meta import Member
from spur_ctld.replication.recovery import init_directory, open_directory
from spur_ctld.replication.seeding import JUMP
from spur_ctld.replication.testing.files import FailingFiles


def place_of(group, id: int) -> Place:
    config = default_config()
    tls_dir = str(certs.member_dir(group.tls, id))
    controller = dataclasses.replace(config.controller, raft_tls_dir=tls_dir)
    config = dataclasses.replace(config, controller=controller)
    return Place(config, group.state_dir(id), id, tuple(group.members))


async def seeding(group, id: int) -> list[str]:
    """Run the tool beside the group."""
    said: list[str] = []
    await asyncio.to_thread(seed, place_of(group, id), said.append)
    return said


async def lose(group, id: int) -> None:
    await group.stop(id)
    shutil.rmtree(group.state_dir(id))


@pytest.mark.parametrize("limits", [None, Limits(snapshot_entries=20, keep_entries=2, segment_bytes=300)])
async def test_a_lost_member_is_filled_and_counts_again(group, until, limits) -> None:
    """From the log, and from a snapshot."""
    await group.start(limits=limits)
    leader = await group.leader()
    for number in range(50):
        await leader.propose(b"%d" % number)
    lost = (await group.followers())[0].member_id
    await lose(group, lost)
    await (await group.leader()).propose(b"meanwhile")
    (line,) = await seeding(group, lost)
    assert "start it now" in line
    assert group.state_dir(lost).stat().st_mode & 0o777 == 0o700
    await group.start(lost, limits=limits)
    node = group.nodes[lost]
    assert node._core.abstain > JUMP
    await until(lambda: b"meanwhile" in node.machine.commands)
    leader = await group.leader()
    await leader.propose(b"and on", asyncio.get_running_loop().time() + 10)
    await group.level()
    await until(lambda: not node._core.abstain)
    assert node.machine.commands == leader.machine.commands
    # It counts again: with one of the others gone the two can go on.
    other = next(id for id in group.nodes if id != lost)
    await group.stop(other)
    leader = await group.leader()
    await leader.propose(b"without", asyncio.get_running_loop().time() + 10)
    assert group.fatal == []


async def test_too_few_answers_are_refused(group) -> None:
    await group.start(1, 2)
    await lose(group, 2)
    said: list[str] = []
    with pytest.raises(StateError, match=r"1 other controllers answer, 2 of 3 must: start them first, or"):
        await asyncio.to_thread(seed, place_of(group, 2), said.append)
    (line,) = said
    assert line.startswith(f"controller 3 ({group.members[2].address}): does not answer: ")
    assert not (group.state_dir(2) / "raft" / "meta").exists()


async def test_a_directory_that_is_there_is_left_alone(group) -> None:
    with pytest.raises(StateError, match=r"is the directory of a controller; .* move it away first"):
        await seeding(group, 1)


async def test_a_member_being_filled_does_not_count(group) -> None:
    await group.start()
    ids = [node.member_id for node in await group.followers()]
    await lose(group, ids[0])
    await seeding(group, ids[0])
    # Cut off from being filled: it never hears a leader of a new term.
    leader = await group.leader()
    await group.stop(leader.member_id)
    await group.start(ids[0])
    await lose(group, ids[1])
    said: list[str] = []
    with pytest.raises(StateError, match="0 other controllers answer"):
        await asyncio.to_thread(seed, place_of(group, ids[1]), said.append)
    assert any(line.endswith("is being filled itself and does not count") for line in said)


def test_a_single_controller_cannot_be_seeded(tmp_path) -> None:
    with pytest.raises(ConfigError, match="a single controller has nobody to be filled from"):
        seed(Place(default_config(), tmp_path, 1, (Member(1),)), lambda line: None)


def test_a_crash_at_any_stage_is_mended_by_running_it_again(group, tmp_path) -> None:
    from spur_ctld.replication.types import HardState

    hard = HardState(JUMP + 5, 1, JUMP + 5)
    members = group.members

    def make(name: str, files: Files, first: HardState | None) -> None:
        init_directory(tmp_path / name, 1, members, files, "c" * 32, first)

    files = FailingFiles()
    make("whole", files, hard)
    for number in range(len(files.calls)):
        failing = FailingFiles()
        failing.fail_at, failing.torn = number, True
        with pytest.raises(StateError, match="Input/output error"):
            make(str(number), failing, hard)
        begun = any((tmp_path / str(number) / "raft" / "log").glob("*"))
        if begun and not (tmp_path / str(number) / "raft" / "meta").exists():
            with pytest.raises(StateError):
                # Whether the first frame is whole or not: a new cluster is only begun in an empty one.
                open_directory(tmp_path / str(number), 1, members, Files(), schema=1)
        if not (tmp_path / str(number) / "raft" / "meta").exists():
            make(str(number), Files(), HardState(JUMP, 1, JUMP))
        opened = open_directory(tmp_path / str(number), 1, members, Files(), schema=1)
        assert opened.stored.hard.abstain == opened.stored.hard.term >= JUMP
        opened.log.close()
        opened.lock.release()


async def test_members_lose_their_directories_one_after_the_other_under_load(group, until) -> None:
    """Leaders too.  Nothing that was acknowledged is missing anywhere, and all hold the same."""
    limits = Limits(snapshot_entries=60, keep_entries=5, segment_bytes=2000)
    await group.start(limits=limits)
    acknowledged: list[bytes] = []
    done = asyncio.Event()

    async def client(own: int) -> None:
        number = 0
        while not done.is_set():
            number += 1
            name = b"%d-%d" % (own, number)
            nodes = list(group.nodes.values())
            try:
                await nodes[number % len(nodes)].propose(name, asyncio.get_running_loop().time() + 5)
            except SpurError:
                await asyncio.sleep(0.01)
            else:
                acknowledged.append(name)

    clients = [asyncio.create_task(client(own)) for own in range(4)]
    rng = random.Random(5)
    for lap in range(5):
        leader = (await group.leader()).member_id
        lost = leader if lap % 2 else rng.choice([id for id in group.nodes if id != leader])
        before = len(acknowledged)
        await lose(group, lost)
        await seeding(group, lost)
        await group.start(lost, limits=limits)
        node = group.nodes[lost]
        async with asyncio.timeout(30):
            while node._core.abstain or len(acknowledged) < before + 30:
                await asyncio.sleep(0.01)
    done.set()
    await asyncio.gather(*clients)
    await group.leader()
    await group.level()
    held = [node.machine.commands for node in group.nodes.values()]
    assert held[0] == held[1] == held[2]
    assert set(acknowledged) <= set(held[0])
    assert len(held[0]) == len(set(held[0]))
    assert group.fatal == []
    assert [node.metrics().state_differences for node in group.nodes.values()] == [0, 0, 0]
