"""One running controller: parts made, started in order, stopped in reverse.

Start: the log is opened and replayed, the port is bound, and whenever this controller leads an office is
opened (`spur_ctld.office`): the configuration is proposed if it differs and open effects are taken up.  The
only controller answers calls once its office is open; a member of a group answers at once, and passes on what
only the leader can answer.  Stop: leadership is handed over, then calls end, effects next, the log last.
"""

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from spur_auth.passing import seal
from spur_auth.posture import posture
from spur_core.config.model import Config
from spur_core.config.secret import resolve_jwt_key
from spur_core.errors import ConfigError, SpurError, StateError
from spur_ctld import accounting_link
from spur_ctld.api import server
from spur_ctld.api.caller import rules
from spur_ctld.api.controllers import Group
from spur_ctld.api.forward import Forwarder
from spur_ctld.api.gate import Gate, Ways
from spur_ctld.api.routing import Router
from spur_ctld.api.service import ControllerService
from spur_ctld.dispatch.agents import Credentials
from spur_ctld.dispatch.fencing import Fencer
from spur_ctld.dispatch.launcher import Launcher
from spur_ctld.dispatch.steps import StepRunner
from spur_ctld.dispatch.suspending import Suspender
from spur_ctld.leadership import Leadership
from spur_ctld.ledger import Ledger
from spur_ctld.membership import build_node
from spur_ctld.office import Office
from spur_ctld.scheduling.catalog import Catalog
from spur_ctld.scheduling.loop import SchedulerLoop
from spur_ctld.scheduling.network import Network
from spur_ctld.scheduling.priorities import Priorities
from spur_ctld.settings import shell_settings
from spur_ctld.site import Site
from spur_ctld.state.log_machine import LogMachine
from spur_ctld.timers.loop import Timers
from spur_ctld.users import UserDirectory

log = logging.getLogger(__name__)

#: Seconds that calls in flight get at a stop.
_GRACE_SECS: Final = 1.0
#: Seconds that another member gets to take over at a stop.
_HAND_OVER_SECS: Final = 2.0
#: After a change of leaders no node is called down sooner, in seconds: agents have to find the new one.
_FIND_LEADER_SECS: Final = 30.0


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
        self.member_id, self.node = build_node(config, state_dir, self.machine, fatal, clock)
        self.ledger = Ledger(lambda: self.machine.state, self.node, paranoid=paranoid)
        gate_rules = rules(auth.plugin, auth.mode, key, os.getuid())
        self._credentials = Credentials(key, config.cluster_name, clock)
        settings = shell_settings(config)
        catalog = Catalog(self.ledger)
        self.site = Site(
            ledger=self.ledger,
            catalog=catalog,
            priorities=Priorities(self.ledger, catalog, settings.priorities, clock),
            network=Network(self.ledger, settings.topology),
            users=UserDirectory(),
            settings=settings,
            rules=gate_rules,
            key=key,
            facts=facts or {},
            clock=clock,
            monotonic=monotonic,
        )
        self._alone = len(config.controller.peers) <= 1
        self.router = Router(self.node, self.member_id)
        self._forwarder = None if self._alone else Forwarder(self._seal)
        group = Group(self.member_id, self.node, self.router, self._forwarder)
        self.service = ControllerService(self.site, group)
        ways = None
        if self._forwarder is not None:
            ways = Ways(self.router, self._forwarder, self.node.read_barrier, self._age)
        self._gate = Gate(gate_rules, clock, ways, self.site.tally)
        self.ledger.subscribe(self.site.tally.on_events)
        self.leadership = Leadership(self.site, self._make_office, self.node.step_aside, alone=self._alone)
        self.leadership.on_change(self._office_changed)
        self._history: accounting_link.History | None = None
        self._server: Any = None
        #: `HOST:PORT` with the real port, once started.
        self.address = ""

    def _seal(self, *said: str) -> str:
        """This controller's word on a call that it passes on; empty on a cluster without a key."""
        return seal(self.site.rules.keys[0], self.site.clock(), *said) if self.site.rules.keys else ""

    # -- leadership

    def _make_office(self, term: int) -> Office:
        grace = 0.0 if self._alone else _FIND_LEADER_SECS
        return Office(
            self.site, self._config, term, self._credentials, self._history, self.node.members, grace
        )

    def _office_changed(self) -> None:
        self.router.open = self.leadership.open
        self.router.changed()

    def _leader_changed(self, leader: int | None) -> None:
        if self._forwarder is not None:
            # Only while there is another one: a leader that nobody has replaced may still answer.
            if leader is not None:
                self._forwarder.leader_is(self.router.hint())
            self.router.changed()

    def _age(self) -> str:
        return f"applied={self.node.applied} silent={self.node.seconds_since_leader():.1f}"

    # -- life

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
        # A scheduling pass makes many small records and no cycles: looking for those after every 700 of them
        # takes a quarter of its time.
        gc.set_threshold(20_000, 20, 20)
        self.machine.on_events = self.ledger.publish
        self._history = accounting_link.open_history(self._config, self._state_dir, self.site)
        # Bound before any effect runs: with the port in use nothing shall have been launched.
        self._server, self.address = server.build(
            self._gate, self.service, self._history.service if self._history else None, self._listen
        )
        self.leadership.start()
        self.node.on_role_change(self.leadership.on_role)
        self.node.on_leader_change(self._leader_changed)
        if self._alone:
            await self.leadership.opened()
        await self._server.start()
        log.info(
            "started address=%s member=%d term=%d jobs=%d nodes=%d",
            self.address,
            self.member_id,
            self.node.term,
            len(self.ledger.state.jobs),
            len(self.ledger.state.nodes),
        )

    async def stop(self) -> None:
        """Stop in order; safe after a start that failed half-way."""
        await self._hand_over()
        if self._server is not None:
            # A server that is stopped under an open stream may leave its client waiting.
            self.service.end_streams()
            if self._forwarder is not None:
                await self._forwarder.close()
            await self._gate.streams_ended(_GRACE_SECS)
            await self._server.stop(_GRACE_SECS)
        await self.leadership.stop()
        await self.service.close()
        if self._history is not None:
            await self._history.stop()
        await self.node.stop()

    async def _hand_over(self) -> None:
        """A planned stop costs the cluster no election."""
        if self._alone or not self.leadership.open:
            return
        try:
            leader = await self.node.transfer_leadership(
                None, asyncio.get_running_loop().time() + _HAND_OVER_SECS
            )
            log.info("handed_over to=%d", leader)
        except SpurError as error:
            log.warning("not_handed_over error=%r", error.text)

    # -- the present office, for tests and metrics

    @property
    def office(self) -> Office:
        """Of the present term, or the last one that is not closed yet.

        Raises:
            StateError: this controller does not lead.
        """
        if self.leadership.office is None:
            raise StateError("this controller does not lead")
        return self.leadership.office

    @property
    def launcher(self) -> Launcher:
        return self.office.launcher

    @property
    def fencer(self) -> Fencer:
        return self.office.fencer

    @property
    def steps(self) -> StepRunner:
        return self.office.steps

    @property
    def suspender(self) -> Suspender:
        return self.office.suspender

    @property
    def scheduler(self) -> SchedulerLoop:
        return self.office.scheduler

    @property
    def timers(self) -> Timers:
        return self.office.timers


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
