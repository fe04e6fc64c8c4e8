"""One running controller: parts made, started in order, stopped in reverse.

Start: the log is replayed, the configuration proposed if it differs, open effects taken up, and only then
calls are answered.  Stop: calls first, effects next, the log last.
"""

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from spur_auth.posture import posture
from spur_core.config.model import Config
from spur_core.config.secret import resolve_jwt_key
from spur_core.errors import ConfigError, StateError
from spur_ctld import accounting_link
from spur_ctld.api import server
from spur_ctld.api.caller import rules
from spur_ctld.api.gate import Gate
from spur_ctld.api.service import ControllerService
from spur_ctld.dispatch.agents import AgentPool, Credentials
from spur_ctld.dispatch.fencing import Fencer
from spur_ctld.dispatch.launcher import Launcher
from spur_ctld.dispatch.steps import StepRunner
from spur_ctld.dispatch.suspending import Suspender
from spur_ctld.effects import Effects
from spur_ctld.ledger import Ledger
from spur_ctld.node_memory import NodeMemory
from spur_ctld.replication.node import Node
from spur_ctld.scheduling.catalog import Catalog
from spur_ctld.scheduling.loop import SchedulerLoop
from spur_ctld.scheduling.snapshot import SnapshotBuilder
from spur_ctld.settings import configure_op, differs, shell_settings
from spur_ctld.site import Site
from spur_ctld.state.log_machine import LogMachine
from spur_ctld.timers.loop import Timers
from spur_ctld.users import UserDirectory

log = logging.getLogger(__name__)

#: Seconds that calls in flight get at a stop.
_GRACE_SECS: Final = 1.0


class Controller:
    """Everything of one spurctld but its process.

    Args:
        config: the configuration.
        state_dir: where the log lives; made if it is missing.
        listen: `HOST:PORT`; port 0 = a free one.
        fatal: called when the log cannot be written any more; it ends the process.
        clock: seconds since the epoch.
        monotonic: seconds for measuring silence.
        facts: for `GetConfig`.
    """

    def __init__(
        self,
        config: Config,
        state_dir: Path,
        listen: str,
        *,
        fatal: Callable[[BaseException], None],
        paranoid: bool = False,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        facts: dict[str, str] | None = None,
    ) -> None:
        self._config = config
        self._state_dir = state_dir
        self._listen = listen
        self._clock = clock
        key = resolve_jwt_key(config)
        auth = config.auth
        judged = posture(auth.plugin, auth.mode, key, listen, forced=auth.allow_none_off_loopback)
        if judged.refusals:
            raise ConfigError(list(judged.refusals))
        for warning in judged.warnings:
            log.warning("auth_posture text=%r", warning)
        if auth.plugin == "none":
            key = None
        self.machine = LogMachine()
        self.node = Node(state_dir, self.machine, fatal=fatal)
        self.ledger = Ledger(lambda: self.machine.state, self.node, paranoid=paranoid)
        catalog = Catalog(self.ledger)
        memory = NodeMemory()
        gate_rules = rules(auth.plugin, auth.mode, key, os.getuid())
        self.agents = AgentPool(Credentials(key, config.cluster_name, clock), lambda: self.node.term)
        self.site = Site(
            ledger=self.ledger,
            catalog=catalog,
            agents=self.agents,
            memory=memory,
            users=UserDirectory(),
            settings=shell_settings(config),
            rules=gate_rules,
            key=key,
            term=lambda: self.node.term,
            facts=facts or {},
            clock=clock,
            monotonic=monotonic,
        )
        self.site.builder = SnapshotBuilder(self.site)
        self.site.steps = self.steps = StepRunner(self.ledger, self.agents, clock)
        self.suspender = Suspender(self.ledger, self.agents, clock)
        self.scheduler = SchedulerLoop(self.site)
        self.launcher = Launcher(self.ledger, self.agents, clock, self._cool)
        self.fencer = Fencer(
            self.ledger, self.agents, self.launcher, clock, self.site.settings.accept_unproven_fence
        )
        self.service = ControllerService(self.site)
        self.timers = Timers(self.site, self.service.recovery)
        self._gate = Gate(gate_rules, clock)
        self._history: accounting_link.History | None = None
        self._server: Any = None
        #: `HOST:PORT` with the real port, once started.
        self.address = ""

    def _cool(self, node: str) -> None:
        seconds = self.site.settings.cooldown_secs
        if seconds:
            self.site.memory.cool(node, self.site.monotonic() + seconds)
            self.scheduler.wake()

    async def start(self) -> None:
        """Bring everything up.

        Raises:
            SpurError: one line that names what is wrong; what was started is stopped again.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        make_state_dir(self._state_dir)
        await self.node.start()
        gc.collect()
        gc.freeze()
        self.machine.on_events = self.ledger.publish
        state = self.ledger.state
        op = configure_op(self._config, state.nodes, self._clock())
        if differs(op, state):
            await self.ledger.commit(op)
            log.info("configured partitions=%d nodes=%d", len(op.partitions), len(op.nodes))
        self._history = accounting_link.open_history(self._config, self._state_dir, self.site)
        # Bound before any effect runs: with the port in use nothing shall have been launched.
        self._server, self.address = server.build(
            self._gate, self.service, self._history.service if self._history else None, self._listen
        )
        if self._history is not None:
            await self._history.start()
        Effects(
            self.ledger, self.launcher, self.fencer, self.steps, self.suspender, self._outbox_grew
        ).start()
        await self.timers.start()
        await self._server.start()
        await self.scheduler.start()
        log.info(
            "started address=%s term=%d jobs=%d nodes=%d",
            self.address,
            self.node.term,
            len(state.jobs),
            len(state.nodes),
        )

    def _outbox_grew(self) -> None:
        if self._history is not None:
            self._history.notify()

    async def stop(self) -> None:
        """Stop in order; safe after a start that failed half-way."""
        if self._server is not None:
            # A server that is stopped under an open stream may leave its client waiting.
            self.service.end_streams()
            await self._gate.streams_ended(_GRACE_SECS)
            await self._server.stop(_GRACE_SECS)
        await self.scheduler.stop()
        await self.timers.stop()
        await self.service.close()
        await self.launcher.stop()
        await self.steps.stop()
        await self.suspender.stop()
        await self.fencer.stop()
        if self._history is not None:
            await self._history.stop()
        await self.agents.close()
        await self.node.stop()


def make_state_dir(path: Path) -> None:
    """Make sure that the state directory is there and can be written.

    Raises:
        StateError: it cannot; names the path and the cause.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = path / f".probe-{id(path)}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StateError(
            f"state directory {path}: {error.strerror}; choose another with --state-dir"
        ) from None


async def run_until(stop: asyncio.Event, controller: Controller, ready: Callable[[str], None]) -> None:
    """Run `controller` until `stop` is set."""
    await controller.start()
    try:
        ready(controller.address)
        await stop.wait()
    finally:
        await controller.stop()
