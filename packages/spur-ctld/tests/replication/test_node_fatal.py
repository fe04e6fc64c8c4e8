"""When the disk or the state machine fails, the process ends and nobody is told of success."""

import asyncio
import errno
import os
import subprocess
import sys

import pytest

from spur_core.errors import StateError
from spur_ctld.replication.api import EXIT_STORAGE
from spur_ctld.replication.errors import Dropped, NotLeader, Unknown
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.testing.files import FailingFiles
from spur_ctld.replication.testing.machine import ListMachine


@pytest.mark.parametrize("call", ["write", "datasync"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
async def test_a_failed_write_ends_the_process_and_acknowledges_nothing(
    start_node, fatal, call: str, error: int
) -> None:
    files = FailingFiles()
    node = await start_node(files=files)
    await node.propose(b"before")
    files.fail_names, files.error = frozenset({call}), error
    outcomes = await asyncio.gather(*(node.propose(b"lost") for _ in range(5)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unknown] * 5
    assert [failure.errno for failure in fatal] == [error]
    assert node.machine.commands == [b"before"]
    files.fail_names = frozenset()
    with pytest.raises(Dropped):
        await node.propose(b"after")
    with pytest.raises(NotLeader):
        await node.read_barrier()


async def test_commands_queued_behind_a_failed_write_were_not_executed(start_node, fatal, until) -> None:
    files = FailingFiles()
    node = await start_node(files=files)
    files.gate.clear()
    files.syncing.clear()
    written = asyncio.ensure_future(node.propose(b"written"))
    await until(files.syncing.is_set)
    queued = asyncio.ensure_future(node.propose(b"queued"))
    await asyncio.sleep(0)
    os.close(node._opened.log._fd)  # the sync on its way meets EBADF
    files.gate.set()
    with pytest.raises(Unknown):
        await written
    with pytest.raises(Dropped):
        await queued
    assert [failure.errno for failure in fatal] == [errno.EBADF]
    node._opened.log._fd = None


@pytest.mark.parametrize("call", ["create", "rename", "unlink"])
async def test_a_failed_snapshot_ends_the_process(start_node, fatal, until, call: str) -> None:
    files = FailingFiles()
    node = await start_node(files=files, limits=Limits(snapshot_entries=10))
    files.fail_names = frozenset({call})
    for _ in range(5):
        await asyncio.gather(*(node.propose(b"x") for _ in range(12)), return_exceptions=True)
        if call == "unlink" and not fatal:
            done = node.metrics().snapshots
            await until(
                lambda done=done: fatal or node.metrics().snapshots > done or not node._snapshots.busy
            )
    await until(lambda: fatal)
    assert [failure.errno for failure in fatal] == [errno.EIO]


class Faulty(ListMachine):
    def apply(self, index: int, cmd: bytes) -> bytes:
        if cmd == b"bad":
            raise KeyError("no such job")
        return super().apply(index, cmd)


async def test_an_apply_that_raises_ends_the_process(start_node, fatal) -> None:
    node = await start_node(machine=Faulty())
    with pytest.raises(Unknown):
        await node.propose(b"bad")
    assert [str(failure) for failure in fatal] == ["applying entry 2 failed: KeyError('no such job')"]


async def test_a_start_that_meets_a_failing_disk_says_so(start_node, fatal, state_dir) -> None:
    node = await start_node()
    await node.stop()
    files = FailingFiles()
    files.fail_names = frozenset({"datasync"})
    with pytest.raises(StateError, match=r"raft: .*Input/output error"):
        await start_node(files=files)
    assert len(fatal) == 1
    node = await start_node()
    assert await node.propose(b"the directory was released")


CHILD = """
import asyncio, os, sys
from pathlib import Path
from spur_ctld.replication.api import EXIT_STORAGE
from spur_ctld.replication.node import Node
from spur_ctld.replication.testing.files import FailingFiles
from spur_ctld.replication.testing.machine import ListMachine

async def main():
    files = FailingFiles()
    node = Node(Path(sys.argv[1]), ListMachine(), fatal=lambda error: os._exit(EXIT_STORAGE), files=files)
    await node.start()
    await node.propose(b"kept")
    os.write(1, b"kept\\n")
    files.fail_names = frozenset({"datasync"})
    await node.propose(b"lost")
    os.write(1, b"lost\\n")

asyncio.run(main())
"""


async def test_the_process_ends_with_its_own_exit_code(start_node, state_dir) -> None:
    child = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CHILD, str(state_dir)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (child.returncode, child.stdout) == (EXIT_STORAGE, b"kept\n"), child.stderr.decode()
    node = await start_node()
    assert node.machine.commands[:1] == [b"kept"]
