"""Real processes that meet a full disk or a failing call end with a code of their own and lose nothing."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from spur_ctld.replication.api import EXIT_STORAGE
from spur_ctld.replication.limits import Limits

#: One client; each acknowledged name is printed.  argv: directory, arming, names of failing calls.
CHILD = """
import asyncio, os, resource, sys
from pathlib import Path
from spur_ctld import main as program
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.node import Node
from spur_ctld.replication.testing.files import FailingFiles
from spur_ctld.replication.testing.machine import ListMachine

LIMITS = Limits(snapshot_entries=40, keep_entries=5, segment_bytes=3000, free_bytes=0, free_lead_bytes=0)

async def main():
    files = FailingFiles()
    node = Node(Path(sys.argv[1]), ListMachine(), fatal=program._fatal, files=files, limits=LIMITS)
    await node.start()
    if sys.argv[2] == "size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
    for number in range(5000):
        if number == 30 and sys.argv[2] == "fail":
            files.fail_names, files.torn = frozenset({sys.argv[3]}), True
        name = b"%d-" % number + b"x" * 50
        await node.propose(name)
        os.write(1, name + b"\\n")

asyncio.run(main())
"""


def run(state_dir: Path, *words: str) -> tuple[int, list[bytes], str]:
    """Exit code, acknowledged commands, last words."""
    command = [sys.executable, "-c", CHILD, str(state_dir), *words]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr.decode()


async def check(start_node, acknowledged: list[bytes]) -> None:
    """A new start has everything that was said, in order, and goes on."""
    node = await start_node(limits=Limits(snapshot_entries=40))
    assert node.machine.commands[: len(acknowledged)] == acknowledged
    assert len(node.machine.commands) <= len(acknowledged) + 1, "at most the command that failed"
    assert await node.propose(b"on")


@pytest.mark.parametrize("call", ["write", "datasync", "create", "sync_dir", "rename", "unlink"])
async def test_a_failing_call_ends_the_process(start_node, state_dir: Path, call: str) -> None:
    code, acknowledged, said = await asyncio.to_thread(run, state_dir, "fail", call)
    assert code == EXIT_STORAGE, said
    assert said.splitlines()[-1].startswith("spurctld: fatal: ")
    assert "Input/output error" in said
    assert len(acknowledged) >= 30
    await check(start_node, acknowledged)


@pytest.mark.parametrize("size", [700, 2500, 2999, 3100])
async def test_a_file_that_may_not_grow_ends_the_process(start_node, state_dir: Path, size: int) -> None:
    """The log's own segments, or a snapshot, whichever is larger."""
    code, acknowledged, said = await asyncio.to_thread(run, state_dir, "size", str(size))
    assert code == EXIT_STORAGE, said
    assert "File too large" in said
    assert acknowledged
    await check(start_node, acknowledged)


@pytest.mark.root
@pytest.mark.parametrize("kib", [64, 100, 136])
async def test_a_full_disk_ends_the_process(start_node, state_dir: Path, tmp_path: Path, kib: int) -> None:
    """A file system of its own, in a mount namespace that goes with the process."""
    disk, saved = tmp_path / "disk", tmp_path / "saved"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size={kib}k none {disk}"
    # The child's directory is gone with its namespace, so a shell in it copies what is left.
    child = f'"$@"; code=$?; cp -r {disk}/state {saved}; exit $code'
    command = [sys.executable, "-c", CHILD, str(disk / "state"), "none"]
    done = await asyncio.to_thread(
        subprocess.run,
        ["unshare", "-m", "/bin/sh", "-c", f"{mount} && {{ {child}; }}", "sh", *command],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == EXIT_STORAGE, done.stderr.decode()
    assert b"No space left on device" in done.stderr
    acknowledged = done.stdout.splitlines()
    assert len(acknowledged) > 30
    saved.rename(state_dir)
    await check(start_node, acknowledged)
