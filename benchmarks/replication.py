"""The replicated log alone: commands per second and their latency, the load made in the leader.

One and three members, three with mutual TLS, as processes of their own.
"""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from testkit.raft_group import RaftGroup

Row = tuple[str, str, str]
SECS = 3.0
#: Commands per second of three members with 64 in flight.
GATE = 2000


class Case(NamedTuple):
    """One group; `delay`: seconds added to each sync."""

    members: int
    delay: float
    #: Commands per second of the prototype that decided the design, by commands in flight.
    prototype: dict[int, int]

    @property
    def title(self) -> str:
        slow = f", each sync slowed by {self.delay * 1000:.0f} ms" if self.delay else ""
        return f"replicated log, {self.members} member{'s' if self.members > 1 else ''}{slow}"


CASES = (
    Case(1, 0.0, {1: 2200, 64: 60_000, 512: 130_000}),
    Case(3, 0.0, {1: 700, 64: 33_000, 512: 81_000}),
    Case(3, 0.005, {1: 130, 64: 7400, 512: 41_000}),
)


async def measure(case: Case) -> list[Row]:
    """Rows of one group."""
    folder = Path(tempfile.mkdtemp(prefix="raft-", dir="/tmp"))
    rows: list[Row] = []
    try:
        async with RaftGroup(folder, case.members, sync_delay=case.delay) as group:
            await group.start()
            leader = await group.leader()
            for inflight in (1, 64, 512):
                found = await group.ask(leader, "load", inflight=inflight, secs=SECS)
                beside = f"prototype {case.prototype[inflight]:,} /s"
                if case.members == 3 and inflight == 64:
                    beside = f"at least {GATE:,} /s; {beside}"
                rows.append((f"{case.title}, {inflight} in flight", shown(found), beside))
            if case.members > 1 and not case.delay:
                follower = next(id for id in group.ids if id != leader)
                found = await group.ask(follower, "load", inflight=64, secs=SECS)
                rows.append((f"{case.title}, through a follower, 64 in flight", shown(found), ""))
                for name, id in (("leader", leader), ("follower", follower)):
                    reads = await group.ask(id, "reads", inflight=64, secs=SECS)
                    what = f"{case.title}, linearizable reads on the {name}, 64 in flight"
                    rows.append((what, f"{reads['rate']:,.0f} /s", ""))
    finally:
        shutil.rmtree(folder)
    return rows


def shown(found: dict[str, float]) -> str:
    """Rate and latency."""
    return f"{found['rate']:,.0f} /s, median {found['p50'] * 1000:.1f} ms, p99 {found['p99'] * 1000:.1f} ms"


def replication_rows() -> list[Row]:
    """All of it."""
    return [row for case in CASES for row in asyncio.run(measure(case))]
