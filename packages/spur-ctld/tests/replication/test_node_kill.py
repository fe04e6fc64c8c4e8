"""SIGKILL of a real process under load: whatever it acknowledged is there."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from spur_ctld.replication.limits import Limits

ROUNDS = 10
#: Small enough that segments, snapshots and compaction are hit as well.
LIMITS = Limits(snapshot_entries=700, keep_entries=50, segment_bytes=40_000)

CHILD = """
import asyncio, itertools, os, sys
from pathlib import Path
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.node import Node
from spur_ctld.replication.testing.machine import ListMachine

async def main():
    node = Node(Path(sys.argv[1]), ListMachine(), fatal=lambda error: os._exit(9),
                limits=Limits(snapshot_entries=700, keep_entries=50, segment_bytes=40_000))
    await node.start()
    names = itertools.count()

    async def client():
        while True:
            name = b"%s-%d" % (sys.argv[2].encode(), next(names))
            await node.propose(name)
            os.write(1, name + b"\\n")

    await asyncio.gather(*(client() for _ in range(64)))

asyncio.run(main())
"""


def one_round(state_dir: Path, number: int, most: int) -> set[bytes]:
    """Kill the child after `most` acknowledgements; all that were made."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(state_dir), str(number)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(most)]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.readlines()
    assert child.returncode == -signal.SIGKILL
    return {line.strip() for line in lines if line.endswith(b"\n")}


async def test_no_acknowledged_command_is_lost(start_node, state_dir: Path) -> None:
    acknowledged: set[bytes] = set()
    before: list[bytes] = []
    for number in range(ROUNDS):
        acknowledged |= await asyncio.to_thread(one_round, state_dir, number, 300 + 217 * number)
        node = await start_node(limits=LIMITS)
        commands = list(node.machine.commands)
        await node.stop()
        assert acknowledged <= set(commands), f"round {number}"
        assert len(commands) == len(set(commands)), f"round {number}: applied twice"
        assert commands[: len(before)] == before, f"round {number}: history changed"
        before = commands
    assert list((state_dir / "raft" / "snap").iterdir()), "snapshots were taken on the way"
    assert not (state_dir / "raft" / "log" / f"{1:016x}.seg").exists(), "and old segments removed"
