"""From the outbox into SQL: nothing lost, nothing doubled, whatever the database does meanwhile."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from spur_core.errors import BusyError
from spur_core.states import JobState
from spur_ctld.accounting import engine, rows
from spur_ctld.accounting.engine import AccountingUnavailable
from spur_ctld.accounting.migrations import HEAD
from spur_ctld.accounting.schema import jobs, metadata, steps
from spur_ctld.accounting.writer import write
from spur_ctld.state import ops


async def table(writer: Any, which: sa.Table) -> list[dict[str, Any]]:
    async with writer.engine.connect() as connection:
        found = await connection.execute(sa.select(which).order_by(which.c.job_id, which.c.attempt))
        return [dict(row) for row in found.mappings()]


async def test_a_run_is_one_row_and_one_step(cluster: Any, database: str, make_writer: Any) -> None:
    job_id = cluster.submit(name="sim", account="phys", work_dir="/w")
    writer = await make_writer(database)
    await writer.flushed(20)
    assert [row["state"] for row in await table(writer, jobs)] == [JobState.PENDING]
    cluster.start(job_id)
    cluster.end(job_id, code=3)
    await writer.flushed(20)
    (row,) = await table(writer, jobs)
    assert (row["state"], row["exit_code"], row["start_at"], row["end_at"]) == (JobState.FAILED, 3, 110, 120)
    assert (row["name"], row["account"], row["nodelist"], row["alloc_tres"]) == (
        "sim",
        "phys",
        "n1",
        "billing=1,cpu=1,mem=10M,node=1",
    )
    (step,) = await table(writer, steps)
    assert (step["name"], step["state"], step["exit_code"]) == ("batch", JobState.FAILED, 3)
    assert not cluster.outbox


async def test_a_requeue_keeps_the_earlier_run(cluster: Any, database: str, make_writer: Any) -> None:
    job_id = cluster.submit()
    cluster.start(job_id)
    cluster.apply(ops.Requeue(at=115, targets=(ops.Target(job_id),), who=ops.Who(uid=0, admin=True)))
    cluster.end(job_id, signal=15, at=116)
    cluster.start(job_id, at=130)
    cluster.end(job_id, at=140)
    writer = await make_writer(database)
    await writer.flushed(20)
    rows = await table(writer, jobs)
    assert [(r["attempt"], r["state"], r["start_at"], r["restarts"]) for r in rows] == [
        (1, JobState.REQUEUED, 110, 0),
        (2, JobState.COMPLETED, 130, 1),
    ]


async def test_writing_twice_changes_nothing_and_old_versions_lose(
    cluster: Any, database: str, make_writer: Any
) -> None:
    job_id = cluster.submit()
    pending = list(cluster.outbox.values())
    cluster.start(job_id)
    cluster.end(job_id)
    final = list(cluster.outbox.values())
    writer = await make_writer(database)
    await writer.flushed(20)
    before = await table(writer, jobs), await table(writer, steps)
    for batch in (final, pending, final + pending, pending + final):
        await write(writer.engine, "c1", batch)
    assert (await table(writer, jobs), await table(writer, steps)) == before


async def test_a_lost_acknowledgement_writes_again_and_doubles_nothing(
    cluster: Any, database: str, make_writer: Any
) -> None:
    cluster.submit()
    lost = []

    async def propose(op: Any) -> None:
        if not lost:
            lost.append(op)
            raise BusyError("no leader")
        cluster.apply(op)

    writer = await make_writer(database, propose)
    with pytest.raises(AccountingUnavailable, match="no leader"):
        await writer.flushed(20)
    writer.notify()
    while cluster.outbox:
        await sleep_a_turn(writer)
    assert len(await table(writer, jobs)) == 1
    assert writer.written == 2


async def sleep_a_turn(writer: Any) -> None:
    async with writer._flushed:
        await writer._flushed.wait()


async def test_an_aborted_dispatch_leaves_no_row(cluster: Any, database: str, make_writer: Any) -> None:
    job_id = cluster.submit()
    writer = await make_writer(database)
    await writer.flushed(20)
    part = ops.Slice(node="n1", cpus=1)
    cluster.apply(ops.DispatchBegin(at=105, job_id=job_id, attempt=1, partition="p", slices=(part,)))
    cluster.apply(
        ops.DispatchAbort(at=106, job_id=job_id, attempt=1, reason="JobLaunchFailure", clear=("n1",))
    )
    await writer.flushed(20)
    assert [(row["attempt"], row["state"]) for row in await table(writer, jobs)] == [(2, JobState.PENDING)]


async def test_text_that_sql_cannot_hold_is_kept_visible(
    cluster: Any, database: str, make_writer: Any
) -> None:
    cluster.submit(name="nul\0byte", comment="lone \udc80 surrogate", work_dir="/größe")
    writer = await make_writer(database)
    await writer.flushed(20)
    (row,) = await table(writer, jobs)
    assert (row["name"], row["comment"], row["work_dir"]) == (
        "nul\\0byte",
        "lone \\udc80 surrogate",
        "/größe",
    )


async def test_a_database_that_is_down_blocks_nothing_and_gets_everything_later(
    cluster: Any, pg_private: Any, make_writer: Any
) -> None:
    """Down at start, then there, then killed under load, then back."""
    first = cluster.submit()
    writer = await make_writer(pg_private.url)
    with pytest.raises(AccountingUnavailable):
        await writer.flushed(0.2)
    cluster.start(first)  # scheduling goes on
    pg_private.start()
    await caught_up(cluster, writer)
    pg_private.stop()
    cluster.end(first)
    for number in range(50):
        cluster.submit(at=200.0 + number)
    with pytest.raises(AccountingUnavailable):
        await writer.flushed(5)
    pg_private.start()
    await caught_up(cluster, writer)
    rows = await table(writer, jobs)
    assert len(rows) == 51
    assert rows[0]["state"] == JobState.COMPLETED
    pg_private.stop()


async def caught_up(cluster: Any, writer: Any) -> None:
    """Wait on the writer's own word; its retries pause a second and more."""
    import asyncio

    async with asyncio.timeout(60):
        while True:
            writer.notify()
            try:
                await writer.flushed(30)
                return
            except AccountingUnavailable:
                await sleep_a_turn(writer)


async def test_a_controller_that_stands_still_amid_a_transaction_holds_up_no_other(
    cluster: Any, pg_database: str, make_writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host of a leader is paused: its connection stays open, and PostgreSQL must not wait for it."""
    monkeypatch.setattr(engine, "IDLE_SECS", 0.5)
    cluster.submit()
    stopped = engine.open_engine(pg_database)
    await engine.migrate(stopped)
    row = cluster.outbox[next(iter(cluster.outbox))]
    async with stopped.connect() as connection:
        values = rows.text_safe(rows.job_values("c1", row))
        await connection.execute(sa.insert(jobs), [values])
        writer = await make_writer(pg_database)
        await writer.flushed(20)
        assert not cluster.outbox
        with pytest.raises(sa.exc.DBAPIError):
            await connection.execute(sa.select(jobs))
        await connection.invalidate()
    await stopped.dispose()


async def test_the_schema_is_what_the_migrations_make(database: str, make_writer: Any) -> None:
    writer = await make_writer(database)
    await writer.flushed(20)

    def columns(connection: sa.Connection) -> dict[str, set[str]]:
        inspector = sa.inspect(connection)
        return {name: {c["name"] for c in inspector.get_columns(name)} for name in metadata.tables}

    async with writer.engine.connect() as connection:
        found = await connection.run_sync(columns)
    assert found == {name: {c.name for c in which.columns} for name, which in metadata.tables.items()}


async def test_a_newer_schema_is_refused_by_name(tmp_path: Path, make_writer: Any) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'a.sqlite'}"
    writer = await make_writer(url)
    await writer.flushed(20)
    async with writer.engine.begin() as connection:
        await connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    await writer.stop()
    again = await make_writer(url)
    with pytest.raises(AccountingUnavailable, match="9999 is newer"):
        await again.flushed(20)


def test_head_names_the_newest_migration() -> None:
    folder = Path(sys_path_of_migrations()) / "versions"
    newest = max(path.name for path in folder.glob("[0-9]*.py"))
    assert newest.startswith(HEAD)


def sys_path_of_migrations() -> str:
    from spur_ctld.accounting import migrations

    return str(Path(migrations.__file__).parent)


async def test_the_sqlite_file_is_private(tmp_path: Path, make_writer: Any) -> None:
    path = tmp_path / "acct.sqlite"
    writer = await make_writer(f"sqlite+aiosqlite:///{path}")
    await writer.flushed(20)
    assert path.stat().st_mode & 0o777 == 0o600
