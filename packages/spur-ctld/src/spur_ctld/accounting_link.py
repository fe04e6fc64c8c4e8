"""How the controller uses the accounting package: one function, one small handle."""

from pathlib import Path
from typing import Any

from spur_core.config.model import Config
from spur_ctld.accounting.engine import database_url
from spur_ctld.accounting.service import HistoryService
from spur_ctld.accounting.writer import OutboxWriter
from spur_ctld.site import Site
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.ops import OutboxAck
from spur_ctld.state.records import AcctRow, StepAcct


class _LiveOutbox:
    """The outbox of whatever state is live now."""

    def __init__(self, site: Site) -> None:
        self._site = site

    @property
    def outbox(self) -> dict[tuple[int, int], AcctRow]:
        state: ClusterState = self._site.ledger.state
        return state.outbox

    @property
    def step_outbox(self) -> dict[tuple[int, int, int], StepAcct]:
        state: ClusterState = self._site.ledger.state
        return state.step_outbox


class History:
    """The writer and the service of job history."""

    def __init__(self, writer: OutboxWriter, service: HistoryService) -> None:
        self._writer = writer
        self.service: Any = service

    async def start(self) -> None:
        """Begin to write; never waits for the database."""
        await self._writer.start()

    async def stop(self) -> None:
        """What is not written stays in the outbox."""
        await self._writer.stop()

    def notify(self) -> None:
        """There is something to write."""
        self._writer.notify()


def open_history(config: Config, state_dir: Path, site: Site) -> History | None:
    """Job history by configuration; None when it is switched off.

    Raises:
        ConfigError: the database URL cannot be used.
    """
    if not config.accounting.enabled:
        return None

    async def acknowledge(op: OutboxAck) -> None:
        await site.ledger.commit(op)

    writer = OutboxWriter(
        _LiveOutbox(site),
        acknowledge,
        database_url(config.accounting.database_url, state_dir),
        config.cluster_name,
        site.clock,
    )
    service = HistoryService(
        writer, config.cluster_name, site.may_see_user, lambda: site.settings.visibility, site.clock
    )
    return History(writer, service)
