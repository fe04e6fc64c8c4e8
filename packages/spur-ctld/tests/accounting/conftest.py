"""A real database of each kind, and a state whose outbox fills through real operations."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from spur_ctld.accounting.writer import OutboxWriter
from spur_ctld.state import ops
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.machine import apply
from spur_ctld.state.records import Exit, Node, Partition, Request, Slice
from spur_ctld.state.settings import Settings

BATCH = 0xFFFFFFFB


class Cluster:
    """Applies operations at once, as a log of one would."""

    def __init__(self) -> None:
        self.state = ClusterState.empty()
        self.index = 0
        self.apply(
            ops.Configure(at=0, settings=Settings(), partitions=(Partition(name="p", all_nodes=True),))
        )
        self.apply(ops.NodeRegister(at=0, node=Node(name="n1", cpus=1000, memory_mb=100_000)))

    @property
    def outbox(self) -> dict[tuple[int, int], Any]:
        return self.state.outbox

    @property
    def step_outbox(self) -> dict[tuple[int, int, int], Any]:
        return self.state.step_outbox

    def apply(self, op: Any) -> Any:
        self.index += 1
        return apply(self.state, self.index, op)[0]

    async def propose(self, op: Any) -> Any:
        return self.apply(op)

    def submit(self, at: float = 100.0, **fields: Any) -> int:
        given = {"name": "job", "user": "alice", "uid": 1000, "gid": 1000, "partitions": ("p",), **fields}
        return int(self.apply(ops.Submit(at=at, request=Request(**given))).job_id)

    def submit_array(
        self, at: float, name: str, ranges: tuple[tuple[int, int, int], ...], throttle: int
    ) -> int:
        request = Request(name=name, user="alice", uid=1000, gid=1000, partitions=("p",))
        return int(
            self.apply(ops.Submit(at=at, request=request, array=ranges, array_throttle=throttle)).job_id
        )

    def start(self, job_id: int, at: float = 110.0) -> None:
        attempt = self.state.jobs[job_id].run_attempt + 1
        part = Slice(node="n1", cpus=1, memory_mb=10)
        self.apply(ops.DispatchBegin(at=at, job_id=job_id, attempt=attempt, partition="p", slices=(part,)))
        self.apply(ops.DispatchCommit(at=at, job_id=job_id, attempt=attempt, start_at=at))

    def end(self, job_id: int, code: int = 0, signal: int = 0, at: float = 120.0) -> None:
        job = self.state.jobs[job_id]
        self.apply(
            ops.NodeComplete(
                at=at,
                job_id=job_id,
                attempt=job.run_attempt,
                step_id=BATCH,
                node="n1",
                exit=Exit(code=code, signal=signal),
                started_at=job.start_at or at,
                ended_at=at,
            )
        )


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'acct.sqlite'}"
    return str(request.getfixturevalue("pg_database"))


@pytest.fixture
async def make_writer(cluster: Cluster) -> AsyncIterator[Callable[..., Any]]:
    writers: list[OutboxWriter] = []

    async def make(url: str, propose: Any = None) -> OutboxWriter:
        writer = OutboxWriter(cluster, propose or cluster.propose, url, "c1")
        writers.append(writer)
        await writer.start()
        return writer

    yield make
    for writer in writers:
        await writer.stop()


@pytest.fixture
async def pg_database(pg_url: str) -> AsyncIterator[str]:
    """A fresh database on the session's private PostgreSQL."""
    import uuid

    import sqlalchemy as sa
    from sqlalchemy.ext.asyncio import create_async_engine

    name = f"t{uuid.uuid4().hex}"
    admin = create_async_engine(pg_url, isolation_level="AUTOCOMMIT")
    async with admin.connect() as connection:
        await connection.execute(sa.text(f"CREATE DATABASE {name}"))
    yield pg_url.replace("/postgres?", f"/{name}?")
    async with admin.connect() as connection:
        await connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
    await admin.dispose()
