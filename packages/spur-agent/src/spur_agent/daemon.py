"""The agent itself: its parts put together, started in order, stopped without touching a step.

Start: lock and directories (done by `main`), notify socket bound, sessions scanned and taken back, server
opened, READY, then registration for ever in the background; launches wait for the first registration.
Stop: no more launches, those in flight end, farewell to the controller, exit.
"""

import asyncio
import hashlib
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final

from grpc import aio

from spur_agent import discovery, environment, local_spec, sdnotify, trust
from spur_agent.allocation import AllocationTable
from spur_agent.control_calls import ControlCalls, Terms
from spur_agent.controller import ControllerLink, NodeCredential
from spur_agent.gate import Gate
from spur_agent.keeper import Keeper
from spur_agent.launch import Launcher, LaunchSite
from spur_agent.ledger import Ledger
from spur_agent.logs import value
from spur_agent.membership import Identity, Membership
from spur_agent.notify_server import NotifyServer
from spur_agent.resources import offered
from spur_agent.runtime_dir import Runtime
from spur_agent.scan import Scan
from spur_agent.service import AgentService
from spur_agent.sessions import SessionTable
from spur_agent.settings import Settings, advertised_address, bound_address
from spur_agent.spawner import ExecSource, Spawner, SpawnerProcess, SupervisorSource
from spur_agent.streams import Streams
from spur_core.config.address import join_address, split_address
from spur_core.errors import StateError
from spur_core.linux import cgroup_layout
from spur_proto import agent_pb2_grpc
from spur_proto import controller_pb2 as pb
from spur_proto_lite.paths import DEFAULT_STATE_DIR

log = logging.getLogger(__name__)

_SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 8 << 20),
    ("grpc.max_send_message_length", 32 << 20),
    # A second agent on the same port must be refused, not given half of the calls.
    ("grpc.so_reuseport", 0),
)
#: A stop has five seconds: launches, farewell and server share them.
_LAUNCH_STOP_SECS: Final = 2.0
_SERVER_STOP_SECS: Final = 0.2


def cgroup_setting(configured: str, state_dir: str) -> str:
    """Where this agent's groups go.  An agent beside another one on the host (so with another state
    directory than the default) has groups of its own: two nodes of one job have the same run on one host."""
    if configured != "auto" or state_dir == DEFAULT_STATE_DIR:
        return configured
    own = f"{cgroup_layout.DEFAULT_NAME}_{hashlib.sha256(state_dir.encode()).hexdigest()[:8]}"
    root, _ = cgroup_layout.choose_root(cgroup_layout.detect(), own)
    return own if root is not None else configured


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
        setting = cgroup_setting(config.agent.cgroup_root, settings.state_dir)
        self._root, why = cgroup_layout.choose_root(cgroup_layout.detect(), setting, cgroup_layout.own_path())
        if self._root is None:
            log.warning("no_cgroups why=%s", value(why))
        self._source: SupervisorSource
        if config.agent.spawn == "exec":
            self._source = ExecSource(stepd_program, os.environ)
        else:
            self._source = Spawner(stepd_program, setting, os.environ, first)
        self._table = SessionTable()
        self._allocation = AllocationTable(
            self._resources.cpu_ids, self._resources.memory_mb, self._resources.gres
        )
        self._terms = Terms()
        self._credential = NodeCredential(settings.key, settings.node, config.cluster_name)
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
        rules = trust.rules(config.auth.plugin, config.auth.mode, settings.key)
        self._launcher = Launcher(
            LaunchSite(
                names=frozenset({settings.node}),
                rules=local_spec.NodeRules(
                    settings.node, config.auth.allow_root_jobs, setting, self._resources.pinned
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
                source=self._source,
                terms=self._terms,
                boot_id=hardware.boot_id,
                root=self._root,
                drain=self._drain,
            )
        )
        self._server = aio.server(interceptors=(Gate(rules),), options=_SERVER_OPTIONS)
        self._membership: Membership | None = None

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            StateError: the socket cannot be bound.
        """
        self._signals()
        notify = NotifyServer(self._runtime.paths.notify_sock, self._keeper.notified)
        try:
            scan = Scan(
                self._runtime.paths,
                self._table,
                self._allocation,
                self._keeper,
                self._resources.hardware.boot_id,
            )
            await scan.run()
            await notify.start()
            port = self._bind()
            membership = self._membership = self._member(port)
            agent_pb2_grpc.add_SlurmAgentServicer_to_server(
                AgentService(
                    self._launcher,
                    ControlCalls(self._table, self._keeper, self._terms),
                    Streams(self._table),
                    membership.registered,
                ),
                self._server,
            )
            await self._server.start()
            registering = asyncio.create_task(membership.run())
            sweeping = asyncio.create_task(self._keeper.sweep())
            if isinstance(self._source, Spawner):
                await self._source.warm()
            print(f"READY spurd {bound_address(self._settings.listen, port)}", flush=True)  # noqa: T201
            sdnotify.ready()
            stopping = asyncio.create_task(self._stop.wait())
            lasting = (registering, sweeping)
            await asyncio.wait((stopping, *lasting), return_when=asyncio.FIRST_COMPLETED)
            for task in lasting:
                if task.done():
                    task.result()
                task.cancel()
            await asyncio.wait(lasting)
        finally:
            await self._close(notify)

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
            self._registered,
            self._keeper.beat_heard,
        )
        self._keeper.beat_now = member.beat_now
        return member

    def _registered(self, answer: pb.RegisterAgentResponse) -> None:
        self._terms.see(answer.term)
        self._keeper.wake()

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
        if self._membership is not None:
            await self._membership.farewell()
        await self._server.stop(_SERVER_STOP_SECS)
        await self._keeper.stop()
        await notify.close()
        await self._link.close()
        await self._source.close()
        if not len(self._table):
            self._remove_groups()

    def _remove_groups(self) -> None:
        """An agent with groups of its own leaves no empty ones behind."""
        if self._root is None or self._settings.state_dir == DEFAULT_STATE_DIR:
            return
        for base in dict.fromkeys((self._root.unified, *self._root.v1.values())):
            for path in (f"{base}/stepd", str(base)):
                try:
                    os.rmdir(path)  # noqa: PTH106
                except OSError:
                    pass  # not there, or somebody is still in it
