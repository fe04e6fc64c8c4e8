"""Commands per second through the replicated log of one member, by commands in flight.

    python benchmarks/bench_log.py [--dir DIR] [--seconds S]

Every command is 200 bytes and is acknowledged after fdatasync and apply.  DIR decides which disk is measured.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from spur_ctld.replication.node import Node
from spur_ctld.replication.testing.machine import ListMachine

IN_FLIGHT = (1, 64, 512)
COMMAND = bytes(200)


class Row(NamedTuple):
    """`sync_ms`: mean time of one write and fdatasync; `batch`: mean commands that shared one."""

    in_flight: int
    commands_per_second: int
    sync_ms: float
    batch: float
    p50_ms: float
    p99_ms: float


def _end(error: BaseException) -> None:
    raise SystemExit(f"the log failed: {error!r}")


async def measure(folder: Path, in_flight: int, seconds: float) -> Row:
    """One run on a new log in `folder`."""
    node = Node(folder, ListMachine(), fatal=_end)
    await node.start()
    before = node.metrics()
    began = time.perf_counter()
    latencies: list[float] = []

    async def client() -> None:
        while (sent := time.perf_counter()) < began + seconds:
            await node.propose(COMMAND, sent + 30)
            latencies.append(time.perf_counter() - sent)

    await asyncio.gather(*(client() for _ in range(in_flight)))
    elapsed = time.perf_counter() - began
    after = node.metrics()
    await node.stop()
    writes = after.writes - before.writes
    latencies.sort()
    return Row(
        in_flight,
        round(len(latencies) / elapsed),
        round(1000 * (after.write_seconds - before.write_seconds) / writes, 3),
        round(len(latencies) / writes, 1),
        round(1000 * latencies[len(latencies) // 2], 3),
        round(1000 * latencies[len(latencies) * 99 // 100], 3),
    )


def bench_log(folder: Path | None = None, seconds: float = 2.0) -> list[Row]:
    """All rows, on a throw-away directory below `folder`."""
    rows = []
    for in_flight in IN_FLIGHT:
        with tempfile.TemporaryDirectory(dir=folder) as state:
            rows.append(asyncio.run(measure(Path(state), in_flight, seconds)))
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--dir", type=Path, default=None, help="a directory on the disk to measure")
    options.add_argument("--seconds", type=float, default=2.0, help="length of each run")
    given = options.parse_args()
    for row in bench_log(given.dir, given.seconds):
        print(json.dumps(row._asdict()))


if __name__ == "__main__":
    main()
