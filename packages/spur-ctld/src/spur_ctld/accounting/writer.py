"""From the replicated outbox into the database, for ever, without holding anything up.

The order is: write a batch in one transaction, hear the commit, then propose `OutboxAck` for exactly the
versions written.  A crash between the two writes the same versions again, and the database keeps what it
has, because a version only replaces an older one.
"""

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncEngine

from spur_ctld.accounting import engine as database
from spur_ctld.accounting import rows
from spur_ctld.accounting.schema import jobs, steps
from spur_ctld.state.ops import OutboxAck
from spur_ctld.state.records import AcctRow, StepAcct

log = logging.getLogger(__name__)

#: Rows of one transaction.
BATCH = 500
_FIRST_RETRY = 1.0
_LAST_RETRY = 30.0
#: Seconds that rows may wait for company; each transaction of the database costs a sync to disk.
_LINGER = 0.2
#: A transaction that is under way at the end may take so long; broken off, it leaves a broken connection.
_LEAVE_SECS = 1.0
_NOT_YET = "not connected yet"


class OutboxView(Protocol):
    """The part of the replicated state that the writer reads."""

    @property
    def outbox(self) -> dict[tuple[int, int], AcctRow]: ...

    @property
    def step_outbox(self) -> dict[tuple[int, int, int], StepAcct]: ...


class OutboxWriter:
    """Writes outbox rows and acknowledges them.

    Args:
        view: the live state; its outboxes are only read.
        propose: commits an operation, raising SpurError when it could not.
        url: database URL, see `engine.open_engine`.
        cluster: the key's first part.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        view: OutboxView,
        propose: Callable[[OutboxAck], Awaitable[Any]],
        url: str,
        cluster: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._view = view
        self._propose = propose
        self._cluster = cluster
        self._clock = clock
        self.engine: AsyncEngine = database.open_engine(url)
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()
        self._flushed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._at_work: asyncio.Task[None] | None = None
        self._ready = False
        #: Why the database cannot be used now; empty when it can.
        self.problem = _NOT_YET
        #: Rows written since the start; for metrics.
        self.written = 0

    async def start(self) -> None:
        """Begin in the background; never waits for the database."""
        self._task = asyncio.create_task(self._run(), name="accounting")
        self.notify()

    async def stop(self) -> None:
        """End; what is not written stays in the outbox."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._at_work is not None:
            await asyncio.wait((self._at_work,), timeout=_LEAVE_SECS)
            self._at_work.cancel()
            await asyncio.gather(self._at_work, return_exceptions=True)
        self._ready = False
        self.problem = _NOT_YET
        await self.engine.dispose()

    @property
    def running(self) -> bool:
        """Whether this controller writes; of several only the leader does."""
        return self._task is not None

    def notify(self) -> None:
        """The outbox may have grown."""
        self._wake.set()

    async def flushed(self, wait_secs: float) -> None:
        """Return when every version now in the outbox is in the database, or replaced by a newer one.

        So a reader sees what was acknowledged before it asked.

        Raises:
            AccountingUnavailable: the database is down, or did not catch up within `wait_secs`.
        """
        wanted = {row.seq for row in self._waiting()}
        self._urgent.set()
        self.notify()

        def caught_up() -> bool:
            if self.problem:
                # The first look at the database is worth waiting for; a known outage is not.
                return self.problem != _NOT_YET
            return all(row.seq not in wanted for row in self._waiting())

        async with self._flushed:
            try:
                async with asyncio.timeout(wait_secs):
                    await self._flushed.wait_for(caught_up)
            except TimeoutError:
                raise database.AccountingUnavailable(self.problem or "it is behind") from None
        if self.problem:
            raise database.AccountingUnavailable(self.problem)

    def _waiting(self) -> list[AcctRow | StepAcct]:
        return [*self._view.outbox.values(), *self._view.step_outbox.values()]

    async def _run(self) -> None:
        pause = _FIRST_RETRY
        while True:
            try:
                if not self._ready:
                    await self._whole(database.migrate(self.engine))
                    self._ready = True
                await self._drain()
                if self.problem and self.problem != _NOT_YET:
                    log.warning("accounting_back rows_waiting=%d", len(self._waiting()))
                await self._set_problem("")
                pause = _FIRST_RETRY
                await self._wake.wait()
                # Under load a job's start and end often are one row by then; a reader does not wait.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LINGER):
                        await self._urgent.wait()
                self._wake.clear()
                self._urgent.clear()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # Not only what a database raises: whatever it is, the outbox must be tried again.
                # Whatever comes back may be another database: look at its schema again.
                self._ready = False
                text = _one_line(error)
                if self.problem != text:
                    log.error("accounting_down error=%r rows_waiting=%d", text, len(self._waiting()))
                await self._set_problem(text)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_RETRY)

    async def _whole(self, work: Coroutine[Any, Any, None]) -> None:
        """Work in the database, which goes on to its end when the writer is cancelled."""
        self._at_work = asyncio.create_task(work)
        await asyncio.shield(self._at_work)

    async def _set_problem(self, text: str) -> None:
        async with self._flushed:
            self.problem = text
            self._flushed.notify_all()

    async def _drain(self) -> None:
        """Write until the outbox holds nothing that was not written and acknowledged."""
        while self._view.outbox or self._view.step_outbox:
            batch = oldest(self._waiting(), BATCH)
            await self._whole(write(self.engine, self._cluster, batch))
            self.written += len(batch)
            await self._propose(
                OutboxAck(
                    at=self._clock(),
                    rows=tuple((r.job_id, r.attempt, r.seq) for r in batch if isinstance(r, AcctRow)),
                    steps=tuple(
                        (r.job_id, r.attempt, r.step.step_id, r.seq) for r in batch if isinstance(r, StepAcct)
                    ),
                )
            )
            async with self._flushed:
                self._flushed.notify_all()


def oldest(waiting: Iterable[AcctRow | StepAcct], most: int) -> list[AcctRow | StepAcct]:
    """The rows that wait longest, at most `most`."""
    return sorted(waiting, key=lambda row: row.seq)[:most]


async def write(engine: AsyncEngine, cluster: str, batch: "Sequence[AcctRow | StepAcct]") -> None:
    """One transaction: insert, or replace older versions; remove rows that moved elsewhere."""
    dialect = engine.dialect.name
    of_jobs = [row for row in batch if isinstance(row, AcctRow)]
    job_rows = [rows.text_safe(rows.job_values(cluster, row)) for row in of_jobs if not row.gone]
    step_rows = [
        rows.text_safe(rows.step_values(cluster, row, step))
        for row in of_jobs
        if not row.gone
        for step in row.steps
    ]
    step_rows += [
        rows.text_safe(rows.step_values(cluster, row, row.step)) for row in batch if isinstance(row, StepAcct)
    ]
    async with engine.begin() as connection:
        if job_rows:
            await connection.execute(_upsert(dialect, jobs, rows.JOB_KEY), job_rows)
        if step_rows:
            await connection.execute(_upsert(dialect, steps, rows.STEP_KEY), step_rows)
        for row in of_jobs:
            if row.gone:
                for table in (steps, jobs):
                    await connection.execute(
                        table.delete().where(
                            table.c.cluster == cluster,
                            table.c.job_id == row.job_id,
                            table.c.attempt == row.attempt,
                            table.c.submit_at == row.submit_at,
                            table.c.seq <= row.seq,
                        )
                    )


@functools.cache
def _upsert(dialect: str, table: sa.Table, key: tuple[str, ...]) -> Any:
    insert: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement = insert(table)
    replaced = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if column.name not in key and column.name != "db_index"
    }
    return statement.on_conflict_do_update(
        index_elements=list(key), set_=replaced, where=table.c.seq < statement.excluded.seq
    )


def _one_line(error: BaseException) -> str:
    """The cause without SQL, parameters or passwords."""
    if isinstance(error, sa.exc.DBAPIError) and error.orig is not None:
        error = error.orig
    return " ".join(str(error).split())[:200] or type(error).__name__
