"""The agent itself: its parts put together, started in order, stopped without touching a step.

Start: lock and directories (done by `main`), notify socket bound, sessions scanned and taken back, server
opened, READY, then registration for ever in the background; launches wait for the first registration and for
the first report of what the scan has found.
Stop: no more launches, those in flight end, farewell to the controller, exit.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from grpc import aio

from spur_agent import discovery, environment, hooks, killmode, local_spec, own_groups, sdnotify, trust
from spur_agent.allocation import AllocationTable
from spur_agent.bring_up import BringUp
from spur_agent.control_calls import ControlCalls
from spur_agent.controller import ControllerLink, NodeCredential
from spur_agent.cpu_places import read_places
from spur_agent.gate import Gate
from spur_agent.keeper import Keeper
from spur_agent.launch import Launcher, LaunchSite
from spur_agent.ledger import Ledger
from spur_agent.logs import value
from spur_agent.membership import Identity, Membership
from spur_agent.node_proof import NodeProof
from spur_agent.notify_server import NotifyServer
from spur_agent.prolog import Prologs
from spur_agent.recovery import Recovery
from spur_agent.resources import offered
from spur_agent.restore import restore
from spur_agent.runtime_dir import Runtime
from spur_agent.scan import Scan
from spur_agent.service import AgentService
from spur_agent.sessions import SessionTable
from spur_agent.settings import Settings, advertised_address, bound_address
from spur_agent.spawner import ExecSource, Spawner, SpawnerProcess, SupervisorSource
from spur_agent.streams import Streams
from spur_agent.terms import Terms
from spur_core.config.address import join_address, split_address
from spur_core.errors import StateError
from spur_core.linux import cgroup_layout
from spur_core.linux.connections import listener_options
from spur_proto import agent_pb2_grpc

log = logging.getLogger(__name__)

_SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 8 << 20),
    ("grpc.max_send_message_length", 32 << 20),
    # A second agent on the same port must be refused, not given half of the calls.
    ("grpc.so_reuseport", 0),
    # Clients of quiet steps ask now and then whether this host is still there.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
)
#: A stop has five seconds: launches, farewell and server share them.
_LAUNCH_STOP_SECS: Final = 2.0
_SERVER_STOP_SECS: Final = 0.2


def program_dir(agent: str) -> Path:
    """Where the programs of this installation are: beside the agent, else beside the interpreter."""
    own = Path(agent).absolute()
    return own.parent if own.name == "spurd" else Path(sys.executable).parent


def readable_config(path: Path | None) -> str:
    """The configuration file as jobs are told of it; empty when they could not read it (it holds a key)."""
    try:
        return str(path) if path is not None and path.stat().st_mode & 0o004 else ""
    except OSError:
        return ""


class Daemon:
    """One agent.

    Args:
        first: a spawner that was started before any thread, None with `spawn = "exec"` or after a failure.
        stepd_program: path of the supervisor program.
    """

    def __init__(
        self, settings: Settings, runtime: Runtime, stepd_program: str, first: SpawnerProcess | None
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._stop = asyncio.Event()
        config = settings.config
        hardware = discovery.hardware()
        self._resources = offered(hardware, config, settings.node, settings.labels)
        setting = own_groups.setting(config.agent.cgroup_root, settings.state_dir)
        self._root, why = cgroup_layout.choose_root(cgroup_layout.detect(), setting, cgroup_layout.own_path())
        if self._root is None:
            log.warning("no_cgroups why=%s", value(why))
        self._groups = own_groups.OwnGroups(self._root)
        self._source: SupervisorSource
        if config.agent.spawn == "exec":
            self._source = ExecSource(stepd_program, os.environ)
        else:
            self._source = Spawner(stepd_program, setting, os.environ, first)
        self._table = SessionTable()
        self._allocation = AllocationTable(
            self._resources.cpu_ids, self._resources.memory_mb, self._resources.gres
        )
        self._terms = Terms(runtime.paths.runtime).load()
        self._credential = NodeCredential(
            settings.key,
            settings.node,
            config.cluster_name,
            proof=NodeProof(runtime.paths.runtime, settings.node).load(),
        )
        self._link = ControllerLink(settings.controllers, self._credential)
        ledger = Ledger(runtime.paths.ledger)
        self._keeper = Keeper(
            settings.node,
            runtime.paths,
            self._table,
            self._allocation,
            ledger,
            self._link,
            hardware.boot_id,
            self._root,
        )
        bring_up = BringUp(self._source, self._table, self._keeper, hardware.boot_id, self._root)
        self._recovery = Recovery(
            settings.node,
            hardware.boot_id,
            self._link,
            self._credential,
            self._table,
            self._keeper,
            partial(restore, table=self._table, keeper=self._keeper, bring_up=bring_up),
        )
        self._keeper.on_lost = self._recovery.note
        self._keeper.verdicts_come = lambda: self._recovery.supported
        self._streams = Streams(self._table)
        rules = self._rules = trust.rules(config.auth.plugin, config.auth.mode, settings.key)
        self._unproven = 0
        self._prologs = Prologs(runtime.paths.runtime, hardware.boot_id)
        self._launcher = Launcher(
            LaunchSite(
                names=frozenset({settings.node}),
                rules=local_spec.NodeRules(
                    settings.node,
                    config.auth.allow_root_jobs,
                    setting,
                    self._resources.pinned,
                    read_places(),
                ),
                trust=rules,
                here=environment.NodeContext(
                    settings.node,
                    str(program_dir(sys.argv[0])),
                    readable_config(settings.config_path),
                    None,
                ),
                paths=runtime.paths,
                table=self._table,
                allocation=self._allocation,
                keeper=self._keeper,
                ledger=ledger,
                terms=self._terms,
                bring_up=bring_up,
                hooks=hooks.configured(config),
                prologs=self._prologs,
                drain=self._drain,
            )
        )
        self._server = aio.server(
            interceptors=(Gate(rules),), options=(*_SERVER_OPTIONS, *listener_options(2))
        )
        self._membership: Membership | None = None

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            StateError: the socket cannot be bound.
        """
        self._signals()
        notify = NotifyServer(self._runtime.paths.notify_sock, self._keeper.notified)
        try:
            self._check_hooks()
            self._prologs.interrupt_leftovers()
            scan = Scan(
                self._runtime.paths,
                self._table,
                self._allocation,
                self._keeper,
                self._resources.hardware.boot_id,
            )
            await asyncio.to_thread(self._look_around)
            await scan.run()
            self._recovery.scanned()
            await notify.start()
            port = self._bind()
            membership = self._membership = self._member(port)
            agent_pb2_grpc.add_SlurmAgentServicer_to_server(
                AgentService(
                    self._launcher,
                    ControlCalls(self._table, self._keeper, self._terms),
                    self._streams,
                    self._recovery.first_done,
                ),
                self._server,
            )
            await self._server.start()
            registering = asyncio.create_task(membership.run())
            recovering = asyncio.create_task(self._recovery.run(membership.registered))
            sweeping = asyncio.create_task(self._keeper.sweep())
            if isinstance(self._source, Spawner):
                await self._source.warm()
            print(f"READY spurd {bound_address(self._settings.listen, port)}", flush=True)  # noqa: T201
            sdnotify.ready()
            stopping = asyncio.create_task(self._stop.wait())
            lasting = (registering, recovering, sweeping)
            await asyncio.wait((stopping, *lasting), return_when=asyncio.FIRST_COMPLETED)
            for task in lasting:
                if task.done():
                    task.result()
                task.cancel()
            await asyncio.wait(lasting)
        finally:
            await self._close(notify)

    def _check_hooks(self) -> None:
        """A broken script makes launches fail, not the agent: steps that run need it."""
        try:
            hooks.find_all(hooks.configured(self._settings.config))
        except hooks.BrokenHook as error:
            log.error("hook_broken error=%s", value(error.text))

    def _bind(self) -> int:
        host, port = split_address(self._settings.listen)
        try:
            bound: int = self._server.add_insecure_port(join_address(host or "::", port))
        except RuntimeError:
            bound = 0
        if not bound:
            raise StateError(f"cannot listen on {self._settings.listen}: the port is taken or not ours")
        return bound

    def _member(self, port: int) -> Membership:
        identity = Identity(
            node=self._settings.node,
            hostname=socket.gethostname(),
            address=advertised_address(self._settings.address, self._settings.listen),
            port=port,
            labels=self._settings.labels,
            started_at=time.time(),
        )
        member = Membership(
            identity,
            self._resources,
            self._link,
            self._credential,
            self._table.snapshot,
            self._keeper.beat_heard,
            self._heard_term,
            self._keeper.wake,
        )
        self._keeper.beat_now = member.beat_now
        return member

    def _heard_term(self, term: int, proof: bytes) -> int:
        """A controller answered in that term; what is believed of it."""
        believed = trust.believed_term(self._rules, term, proof)
        if believed:
            self._terms.see(believed)
        elif term != self._unproven:
            # One of the release before; or nobody of ours.
            self._unproven = term
            log.warning("term_not_proven term=%d", term)
        return believed

    async def _drain(self, reason: str) -> None:
        log.error("node_fault reason=%s", value(reason))
        if self._membership is not None:
            await self._membership.drain(reason)

    def _signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(
            signal.SIGHUP, lambda: log.warning("reload_unavailable what=restart_the_agent_instead")
        )

    async def _close(self, notify: NotifyServer) -> None:
        """No step hears of any of this."""
        log.info("stopping held=%d", len(self._table))
        await self._launcher.stop(_LAUNCH_STOP_SECS)
        self._streams.stop()
        if self._membership is not None:
            await self._membership.farewell()
        await self._server.stop(_SERVER_STOP_SECS)
        await self._keeper.stop()
        await notify.close()
        await self._link.close()
        await self._source.close()
        self._groups.release(empty=not len(self._table))
        log.info("stopped %s", self._keeper.counters.line())

    def _look_around(self) -> None:
        """What depends on the host: groups of dead agents, and a unit that would kill steps with us."""
        self._groups.hold()
        self._groups.sweep()
        killmode.check(outside=self._root is not None)
