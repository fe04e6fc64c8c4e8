"""Members of several releases in one group: who is let in, who stops, and that nothing is skipped."""

import asyncio
import contextlib
from collections.abc import Iterable

import pytest

from spur_ctld.replication.errors import TooNew
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.testing.machine import ListMachine


class Versioned(ListMachine):
    """Applies commands up to `known`; the command `vN` says that the group uses version N from now on."""

    def __init__(self, known: int) -> None:
        super().__init__()
        self.known = known

    @property
    def version(self) -> int:
        return max((int(cmd[1:]) for cmd in self.commands if cmd.startswith(b"v")), default=3)

    def check(self, cmd: bytes) -> None:
        pass

    def foresee(self, commands: Iterable[bytes]) -> None:
        for cmd in commands:
            self._look(cmd)

    def _look(self, cmd: bytes) -> None:
        if cmd.startswith(b"v") and int(cmd[1:]) > self.known:
            raise TooNew(f"version {int(cmd[1:])} is not known")

    def apply(self, index: int, cmd: bytes) -> bytes:
        self._look(cmd)
        return super().apply(index, cmd)

    def restore(self, chunks) -> None:
        super().restore(chunks)
        self.foresee(self.commands)


async def start(group, *ids: int, known: int, **options: object) -> None:
    for id in ids:
        machine = Versioned(known)
        await group.start(id, machine=machine, commands=machine, command_version=known, **options)


async def stays(condition, secs: float = 1.0) -> None:
    """The condition holds for that long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(secs):
            while condition():
                await asyncio.sleep(0.02)
    assert condition()


async def test_who_is_there_and_what_it_knows(group, until) -> None:
    await start(group, 1, 2, known=4)
    await start(group, 3, known=5)
    leader = await group.leader()
    await until(lambda: all(view.present for view in leader.members()))
    assert [view.command_version for view in leader.members()] == [4, 4, 5]
    gone = next(id for id in (1, 2, 3) if id != leader.member_id)
    await group.stop(gone)
    await until(lambda: [v.id for v in leader.members() if not v.present] == [gone])
    assert next(v for v in leader.members() if v.id == gone).command_version, "as it was seen last"


async def test_a_release_that_is_too_old_is_not_let_in(group, until, caplog) -> None:
    await start(group, 1, 2, known=4)
    leader = await group.leader()
    await leader.propose(b"v4")
    await group.level()
    # It does not know what it has missed: nobody refuses it here but the others.
    await group.start(3, command_version=3)
    old = group.nodes[3]
    await until(lambda: "peer_refused" in caplog.text)
    assert "the group uses command version 4, and controller 3 runs a release (0.1.0) that knows up to 3" in (
        caplog.text
    )
    # Whom it cannot greet it cannot ask either; what others send it, it still takes.
    await stays(lambda: not any(view.present for view in leader.members() if view.id == 3), 0.5)
    assert old.leader() != 3
    assert await leader.propose(b"the others go on")


async def test_a_release_that_hears_of_a_newer_group_ends(group, until, fatal) -> None:
    await start(group, 1, 2, known=4)
    leader = await group.leader()
    await leader.propose(b"v4")
    await group.level()
    await start(group, 3, known=3)
    await until(lambda: fatal)
    assert isinstance(fatal[0], TooNew)
    assert str(fatal[0]).startswith("the group uses command version 4, says controller ")
    assert "install the newer release on this host" in str(fatal[0])
    assert group.nodes[3].machine.commands == []


async def test_an_entry_that_is_too_new_ends_the_member_and_nothing_is_skipped(group, until, fatal) -> None:
    await start(group, 1, 2, known=4)
    # Greeted before the others knew of a newer version, as when the log grows while it is there.
    machine = Versioned(3)
    await group.start(3, machine=machine, command_version=4)
    leader = await group.leader()
    if leader.member_id == 3:
        await leader.transfer_leadership(1)
        leader = await group.leader()
    for cmd in (b"before", b"v4", b"after"):
        await leader.propose(cmd)
    await until(lambda: fatal)
    assert [type(error) for error in fatal] == [TooNew], "as it was raised"
    assert machine.commands == [b"before"]
    assert group.nodes[3].applied < leader.applied
    await group.stop(3)
    fatal.clear()
    # The old release sees it before it starts.
    machine = Versioned(3)
    with pytest.raises(TooNew):
        await group.make(3, machine=machine, commands=machine, command_version=3).start()
    assert machine.commands == []
    # The new one goes on where the old one stopped.
    await start(group, 3, known=4)
    await group.level()
    assert group.nodes[3].machine.commands == [b"before", b"v4", b"after"]
    assert fatal == []


async def test_a_snapshot_that_is_too_new_ends_the_member_and_serves_the_next_release(
    group, until, fatal
) -> None:
    limits = Limits(snapshot_entries=10, keep_entries=2)
    await start(group, 1, 2, known=4, limits=limits)
    leader = await group.leader()
    await leader.propose(b"v4")
    await asyncio.gather(*(leader.propose(b"x") for _ in range(40)))
    await until(lambda: leader.metrics().snapshots > 1)
    machine = Versioned(3)
    await group.start(3, machine=machine, command_version=4, limits=limits)
    await until(lambda: fatal)
    assert isinstance(fatal[0], TooNew)
    await group.stop(3)
    machine = Versioned(3)
    with pytest.raises(TooNew):
        await group.make(3, machine=machine, commands=machine, command_version=3).start()
    fatal.clear()
    await start(group, 3, known=4, limits=limits)
    await group.level()
    assert group.nodes[3].machine.commands == leader.machine.commands
    assert fatal == []


async def test_a_member_alone_refuses_a_newer_log(start_node, state_dir) -> None:
    machine = Versioned(4)
    node = await start_node(machine=machine, commands=machine)
    await node.propose(b"v4")
    await node.stop()
    machine = Versioned(3)
    with pytest.raises(TooNew, match="install the newer release"):
        await start_node(machine=machine, commands=machine)
    machine = Versioned(4)
    node = await start_node(machine=machine, commands=machine)
    assert machine.commands == [b"v4"], "it was left as it is"
