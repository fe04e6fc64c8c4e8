"""Opening the accounting database and bringing its schema up to date.

`sqlite+aiosqlite:///PATH` (the default, a file in the state directory) or `postgresql+asyncpg://...`.
"""

import asyncio
import importlib
import logging
import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from spur_core.errors import BusyError, ConfigError
from spur_ctld.accounting.migrations import HEAD

log = logging.getLogger(__name__)

#: Lock for several controllers that start together: class "SPUR", object 1.
_ADVISORY_LOCK = (0x53505552, 1)
#: PostgreSQL breaks off a transaction whose client says nothing for so long.
IDLE_SECS = 5.0


class AccountingUnavailable(BusyError):
    """The database cannot be used now; the text says why."""

    code = "accounting_unavailable"

    def __init__(self, why: str) -> None:
        super().__init__(f"accounting service is not available ({why})")


def database_url(configured: str, state_dir: Path) -> str:
    """The URL to open: the configured one, or the SQLite file of the state directory."""
    return configured or f"sqlite+aiosqlite:///{state_dir / 'accounting.sqlite'}"


def open_engine(url: str) -> AsyncEngine:
    """An engine for `url`; nothing is connected yet.

    Raises:
        ConfigError: the URL is not one of the two supported kinds.
    """
    try:
        parsed = sa.engine.make_url(url)
    except sa.exc.ArgumentError:
        raise ConfigError("accounting.database_url: not a database URL") from None
    if parsed.drivername == "sqlite+aiosqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise ConfigError("accounting.database_url: name a file after sqlite+aiosqlite:///")
        engine = create_async_engine(url)
        sa.event.listen(engine.sync_engine, "do_connect", _create_private)
        sa.event.listen(engine.sync_engine, "connect", _sqlite_durable)
        return engine
    if parsed.drivername == "postgresql+asyncpg":
        engine = create_async_engine(
            url, pool_size=4, max_overflow=4, pool_timeout=5, pool_pre_ping=True, connect_args={"timeout": 5}
        )
        sa.event.listen(engine.sync_engine, "connect", _postgres_impatient)
        return engine
    raise ConfigError(
        f"accounting.database_url: unknown kind {parsed.drivername!r},"
        " use sqlite+aiosqlite:///FILE or postgresql+asyncpg://..."
    )


def _create_private(dialect: Any, record: Any, cargs: Any, cparams: Any) -> None:
    """Make a new database file readable by its owner only, before SQLite makes it by the umask."""
    path = cargs[0] if cargs else cparams.get("database")
    if path:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _sqlite_durable(connection: Any, record: Any) -> None:
    """The outbox forgets a row once SQLite has it, so a commit must be on disk."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA busy_timeout=5000")
    cursor.close()


def _postgres_impatient(connection: Any, record: Any) -> None:
    """A leader's host may be paused amid a transaction; the next leader's rows must not wait for it."""
    cursor = connection.cursor()
    cursor.execute(f"SET idle_in_transaction_session_timeout = {IDLE_SECS * 1000:.0f}")
    cursor.close()
    # Undone with the transaction otherwise.
    connection.commit()


async def migrate(engine: AsyncEngine) -> None:
    """Bring the schema to `HEAD`; a database that is there already costs one query.

    Raises:
        AccountingUnavailable: the schema belongs to a newer release.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database cannot be reached.
    """
    async with engine.connect() as connection:
        found = await _revision(connection)
    if found == HEAD:
        return
    if found is not None and found > HEAD:
        raise AccountingUnavailable(f"its schema {found} is newer than this release's {HEAD}")
    # Alembic is a slow import and needed only here; keep it off the event loop.
    await asyncio.to_thread(importlib.import_module, "alembic.command")
    async with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(*_ADVISORY_LOCK)))
        await connection.run_sync(_upgrade)
    log.info("accounting_schema revision=%s", HEAD)


async def _revision(connection: AsyncConnection) -> str | None:
    """The schema's revision, or None for an empty database."""
    if not await connection.run_sync(lambda sync: sa.inspect(sync).has_table("alembic_version")):
        return None
    result = await connection.execute(sa.text("SELECT version_num FROM alembic_version"))
    row = result.first()
    return row[0] if row else None


def _upgrade(connection: sa.Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
