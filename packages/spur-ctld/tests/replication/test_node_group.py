"""Three members over real connections with mutual TLS."""

import asyncio


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


async def test_a_group_elects_and_commands_reach_everybody(group) -> None:
    await group.start()
    leader = await group.leader()
    await asyncio.gather(*(leader.propose(cmd) for cmd in numbered(300)))
    await group.level()
    for node in group.nodes.values():
        assert node.machine.commands == numbered(300)
    assert group.fatal == []


async def test_any_member_takes_commands_and_reads(group) -> None:
    await group.start()
    followers = await group.followers()
    results = await asyncio.gather(*(followers[0].propose(cmd) for cmd in numbered(200)))
    assert sorted(int(result) for result in results) == list(range(2, 202))
    for node in group.nodes.values():
        index = await node.read_barrier()
        assert index >= 201
        assert node.machine.commands == numbered(200)
    assert followers[1].leader_client() == f"client-{followers[1].leader()}:6817"


async def test_a_killed_leader_is_replaced_and_comes_back(group) -> None:
    await group.start()
    leader = await group.leader()
    await leader.propose(b"first")
    gone = leader.member_id
    await group.stop(gone)
    follower = next(iter(group.nodes.values()))
    assert await follower.propose(b"second", asyncio.get_running_loop().time() + 10)
    assert (await group.leader()).member_id != gone
    await group.start(gone)
    await group.level()
    assert group.nodes[gone].machine.commands == [b"first", b"second"]
