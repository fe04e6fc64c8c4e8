"""What one term of leadership needs, and what the next one must not inherit.

Made when this controller begins to lead, from the replicated state alone, and thrown away whole when it leads
no longer: effects, timers, the scheduler with its views, what was heard of nodes and clients, who waits for a
step, cohorts, the writer of accounting rows, and the connections to agents, which carry the term.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from spur_core.config.model import Config
from spur_ctld.accounting_link import History
from spur_ctld.client_memory import ClientMemory, StepLines
from spur_ctld.dispatch.agents import AgentPool, Credentials
from spur_ctld.dispatch.fencing import Fencer
from spur_ctld.dispatch.launcher import Launcher
from spur_ctld.dispatch.steps import StepRunner
from spur_ctld.dispatch.suspending import Suspender
from spur_ctld.dispatch.warning import Warner
from spur_ctld.effects import Effects
from spur_ctld.node_memory import NodeMemory
from spur_ctld.recovery.service import Recovery
from spur_ctld.replication.api import MemberView
from spur_ctld.scheduling.loop import SchedulerLoop
from spur_ctld.scheduling.outlook import Outlook
from spur_ctld.scheduling.snapshot import SnapshotBuilder
from spur_ctld.settings import configure_op, differs
from spur_ctld.site import Site
from spur_ctld.state import versions
from spur_ctld.timers.loop import Timers
from spur_ctld.upgrade import Upgrade

log = logging.getLogger(__name__)

#: The accounting database gets so long to let go.
_HISTORY_SECS: Final = 2.0


class Office:
    """One term.

    Args:
        term: the term in which this controller leads.
        history: the accounting writer; it writes only between `open` and `close`.
        members: the controllers of the group as they are now.
        grace_secs: the least time that nodes get to find a new leader.
    """

    def __init__(
        self,
        site: Site,
        config: Config,
        term: int,
        credentials: Credentials,
        history: History | None,
        members: Callable[[], Sequence[MemberView]],
        grace_secs: float = 0.0,
    ) -> None:
        self.term = term
        self._site = site
        self._config = config
        self._history = history
        self._grace_secs = grace_secs
        self._over = False
        #: Everything is taken up.
        self.ready = False
        ledger, clock = site.ledger, site.clock
        self.agents = AgentPool(credentials, lambda: term)
        self.memory = NodeMemory()
        self.clients = ClientMemory()
        self.lines = StepLines()
        self.builder = SnapshotBuilder(site)
        self.outlook = Outlook()
        self.steps = StepRunner(ledger, self.agents, clock, self._where)
        self.suspender = Suspender(ledger, self.agents, clock)
        self.warner = Warner(ledger, self.agents, clock)
        self.scheduler = SchedulerLoop(site)
        self.launcher = Launcher(ledger, self.agents, clock, self._cool, self._where)
        self.fencer = Fencer(ledger, self.agents, self.launcher, clock, site.settings.accept_unproven_fence)
        self.recovery = Recovery(site)
        self.timers = Timers(site)
        grew: Callable[[], None] = history.notify if history is not None else _nothing
        self.effects = Effects(
            ledger, self.launcher, self.fencer, self.steps, self.suspender, self.warner, grew
        )
        self.upgrade = Upgrade(ledger, members, clock, self._configure)

    def _cool(self, node: str) -> None:
        seconds = self._site.settings.cooldown_secs
        if seconds:
            self.memory.cool(node, self._site.monotonic() + seconds)
            self.scheduler.wake()

    def _where(self, node: str) -> tuple[str, str]:
        return self._site.network.shape().address(node)

    async def open(self) -> None:
        """Propose the configuration if it differs, take up what the state leaves open, follow it from then.

        Raises:
            SpurError: the configuration could not be recorded.
        """
        site = self._site
        await self.upgrade.look()
        await self._configure()
        if self._history is not None and not self._over:
            await self._history.start()
        if self._over:
            return
        # From here to the end nothing waits, so leadership cannot be lost between the parts.
        more = max(0.0, self._grace_secs - site.settings.heartbeat_timeout_secs)
        self.memory.start(site.ledger.state.nodes, site.monotonic() + more)
        self.effects.start()
        self.timers.start()
        self.scheduler.start()
        self.upgrade.start()
        self.ready = True

    async def _configure(self) -> None:
        site = self._site
        state = site.ledger.state
        op = configure_op(self._config, state.nodes, site.clock())
        fitted = versions.fitted(op, state.command_version)
        if fitted != op:
            log.warning(
                "configuration_waits text=%r", "parts of it are for when every controller is upgraded"
            )
        if differs(fitted, state):
            await site.ledger.commit(op)
            log.info("configured partitions=%d nodes=%d", len(op.partitions), len(op.nodes))

    def leave(self) -> None:
        """At once: this controller leads no longer, no order leaves from here any more."""
        self._over = True
        self.ready = False
        self.agents.dismiss()
        self.effects.stop()

    async def close(self) -> None:
        """End everything; what was under way is taken up by the next leader."""
        self.leave()
        await self.upgrade.stop()
        await self.scheduler.stop()
        await self.timers.stop()
        await self.recovery.stop()
        await self.launcher.stop()
        await self.steps.stop()
        await self.suspender.stop()
        await self.warner.stop()
        await self.fencer.stop()
        self.builder.stop()
        if self._history is not None:
            # A database that hangs must not keep this controller from leading again.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HISTORY_SECS):
                    await self._history.stop()
        await self.agents.close()


def _nothing() -> None:
    """Nobody writes history here."""
