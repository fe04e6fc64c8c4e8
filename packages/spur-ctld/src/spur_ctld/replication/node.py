"""One running member: opens its directory, drives the protocol, answers the rest of the controller.

Commands queue up; each turn of the event loop takes what is there (`engine`).  A command is acknowledged
after its entry is durable on a majority, committed and applied, in that order.  A follower passes commands
and reads to the leader.  A group of one opens no port and is complete by itself.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from grpc import aio

from spur_core.errors import ConfigError, SpurError, StateError
from spur_ctld.replication import watchdog
from spur_ctld.replication.announcer import Announcer
from spur_ctld.replication.api import (
    Commands,
    LeaderChange,
    MemberView,
    Metrics,
    Restored,
    RoleChange,
    StateMachine,
)
from spur_ctld.replication.clocks import Clocks
from spur_ctld.replication.comparing import Comparing
from spur_ctld.replication.core import Core
from spur_ctld.replication.digests import Difference, read_alarms, write_alarm
from spur_ctld.replication.disk import DiskWatch
from spur_ctld.replication.door import Door
from spur_ctld.replication.engine import Engine, Group
from spur_ctld.replication.errors import Dropped, NotLeader, Overloaded, TooLarge, Unknown
from spur_ctld.replication.files import Files
from spur_ctld.replication.forwarding import Forwarder
from spur_ctld.replication.identity import Identity
from spur_ctld.replication.inbox import Inbox
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.meta import Member, hash_members
from spur_ctld.replication.recovery import Opened, open_directory
from spur_ctld.replication.roles import Role, Timing
from spur_ctld.replication.shared import Shared
from spur_ctld.replication.snapshotting import Snapshotting
from spur_ctld.replication.ticker import Ticker
from spur_ctld.replication.transfer import Sending
from spur_ctld.replication.transport import Transport
from spur_ctld.replication.waiting import Waiting

_log = logging.getLogger(__name__)

#: Seconds of one tick of the protocol's clock.
TICK: Final = 0.05
#: Seconds a transfer of leadership may take when the caller names none.
_TRANSFER_SECS: Final = 2.0
#: Seconds between two looks whether it is still on its way.
_TRANSFER_LOOK: Final = 0.2
#: Seconds between two attempts of a leader without free space to hand over.
_LEAVE_AGAIN: Final = 30.0


class Node:
    """A member of the group, a `Replicator`.  Everything but `start` and `stop` needs the running loop.

    Args:
        state_dir: the daemon's state directory; everything is kept below its `raft`.
        machine: where commands are applied; called on the event loop only.
        fatal: called with the error when the log, a snapshot or the state machine failed.  It ends the
            process (exit code `api.EXIT_STORAGE`); should it return, the node refuses everything.
        members: the whole group.
        transport: to the other members; a group of one has none.
        files: the file layer.
        schema: newest version of the state machine's snapshot encoding.
        cluster_id: what the group's CA says; None = not compared.
        command_version: newest version of commands that the machine applies.
        version: of the program, for people.
        commands: says of bytes of other members whether they may enter the log, where they would end every
            member that does not know them; None = everything is a command of every version.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        state_dir: Path,
        machine: StateMachine,
        *,
        fatal: Callable[[BaseException], None],
        member_id: int = 1,
        members: Sequence[Member] = (Member(1),),
        transport: Transport | None = None,
        files: Files | None = None,
        limits: Limits | None = None,
        timing: Timing | None = None,
        schema: int = 1,
        cluster_id: str | None = None,
        command_version: int = 0,
        version: str = "",
        commands: Commands | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        if member_id not in {member.id for member in members}:
            raise ConfigError(f"[controller] node_id: controller {member_id} is not among the peers")
        if (transport is None) != (len(members) == 1):
            raise ConfigError(
                f"[controller] peers: {len(members)} controllers need certificates and a listener"
            )
        self._state_dir = state_dir
        self._machine = machine
        self._fatal = fatal
        self._member_id = member_id
        self._members = tuple(sorted(members))
        self._transport = transport
        self._files = files or Files()
        self._limits = limits or Limits()
        self._timing = timing or Timing()
        self._schema = schema
        self._cluster_id = cluster_id
        self._command_version = command_version
        self._version = version
        self._commands = commands
        self._wall = wall
        self._comparing: Comparing | None = None
        self._announcer = Announcer()
        self._scheduled = False
        self._started = False
        self._clocks = Clocks(self._member_id)
        self._left_at = float("-inf")
        self._leaving: asyncio.Task[None] | None = None

    # --- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the directory and rebuild the state from its snapshot.

        A group of one returns when it leads and the state is complete.  A larger one returns when the
        listener is open; whether anybody leads then is told by `on_role_change` and `on_leader_change`.

        Raises:
            StateError: the directory cannot be used; one line that names the path.
            ConfigError: the listener cannot be opened.
        """
        self._loop = asyncio.get_running_loop()
        self._opened: Opened = await asyncio.to_thread(
            open_directory,
            self._state_dir,
            self._member_id,
            self._members,
            self._files,
            schema=self._schema,
            segment_bytes=self._limits.segment_bytes,
            cluster_id=self._cluster_id,
        )
        try:
            self._build()
            if self._transport is not None:
                await self._connect(self._transport)
        except BaseException:
            if self._started:
                await self.stop()
            else:
                self._opened.log.close()
                self._opened.lock.release()
            raise
        if self._transport is None:
            self._core.campaign()
            self._schedule()
            await self._announcer.led.wait()
            if self._shared.failed is not None:
                failed = self._shared.failed
                await self.stop()
                raise StateError(f"{self._opened.folder}: {failed}") from failed

    def _build(self) -> None:
        opened = self._opened
        snapshot, stored = opened.snapshot, opened.stored
        size = opened.snapshots.path(snapshot).stat().st_size if snapshot.index else 0
        self._machine.restore(opened.snapshots.read(snapshot) if snapshot.index else iter(()))
        if self._commands is not None:
            self._commands.foresee(entry.data for entry in stored.entries if entry.data is not None)
        self._core = Core(
            self._member_id,
            [member.id for member in self._members],
            stored.hard,
            snapshot,
            stored.entries,
            random.SystemRandom(),
            self._timing,
            base=stored.base,
        )
        self._core.snapshot_taken(snapshot, self._limits.keep_entries)
        self._shared = shared = Shared(
            self._loop,
            self._machine,
            self._core,
            opened,
            self._files,
            self._limits,
            self._schedule,
            self._fail,
        )
        self._started = True
        self._room = shared.room
        self._snapshots = Snapshotting(shared, size)
        self._alarms = read_alarms(opened.folder)
        self._engine = Engine(shared, self._snapshots, self._announcer)
        shared.disk = DiskWatch(opened.folder, self._limits, self._look)

    async def _connect(self, transport: Transport) -> None:
        shared = self._shared
        inbox = Inbox(self._schedule, self._limits.inbox_bytes)
        ticker = Ticker(self._loop, TICK, max(1, self._timing.election // 2), self._schedule)
        self._engine.group = Group(
            transport,
            inbox,
            ticker,
            Forwarder(self._loop, transport, shared.room, shared.reads, self._limits, self._schedule),
            Sending(shared, transport),
        )
        others = [member for member in self._members if member.id != self._member_id]
        comparing = self._comparing = Comparing(
            self._loop,
            transport,
            shared.digests,
            others,
            self._core.match,
            lambda: self._core.term,
            self._clocks,
            self._wall,
            self._limits.compare_secs,
        )
        self._snapshots.taken = comparing.begin
        self._snapshots.in_touch = lambda: [one.id for one in others if transport.connected(one.id)]
        shared.digests.alarm = self._keep_alarm
        identity = Identity(
            self._opened.meta.cluster_id,
            self._member_id,
            hash_members(self._members),
            self._member(self._member_id).client,
            self._command_version,
            self._version,
        )
        self._door = Door(
            shared,
            inbox,
            self._enter_hop,
            self.seconds_since_leader,
            identity,
            lambda: self._commands.version if self._commands is not None else 0,
            self._wall,
        )
        self._door.came = comparing.begin
        await transport.start(identity, self._members, self._door)
        self._look()
        ticker.start()

    async def stop(self) -> None:
        """Finish the write on its way, refuse the rest, release the directory.  Safe to call again."""
        if not self._started or not self._shared.running:
            return
        shared, engine = self._shared, self._engine
        shared.stopping = True
        shared.room.refuse_queue(Dropped("the controller is stopping"))
        alone = engine.group is None
        while shared.failed is None and (engine.writing is not None or (alone and self._core.committed(1))):
            engine.idle.clear()
            await engine.idle.wait()
        shared.running = False
        shared.room.refuse_queue(Dropped("the controller is stopping"))
        shared.room.abandon(Unknown("the controller stopped before the command was applied"))
        shared.reads.refuse(NotLeader())
        if self._leaving is not None:
            self._leaving.cancel()
        if engine.group is not None:
            engine.group.ticker.stop()
            engine.group.sending.cancel()
            await engine.group.forwarder.stop()
            if self._comparing is not None:
                await self._comparing.stop()
            await self._door.stop()
            await engine.group.transport.stop()
        await asyncio.to_thread(shared.snapshot_thread.close)
        await asyncio.to_thread(shared.log_thread.close)
        self._opened.log.close()
        self._opened.lock.release()

    # --- commands and reads -------------------------------------------------------------------------------

    async def propose(self, cmd: bytes, deadline: float | None = None) -> bytes:
        """See `Replicator.propose`."""
        waiting = self._enter(cmd, deadline, hop=False)
        if deadline is None:
            return await waiting.future
        timer = self._loop.call_at(deadline, self._expire, waiting)
        try:
            return await waiting.future
        finally:
            timer.cancel()

    def _enter(self, cmd: bytes, deadline: float | None, *, hop: bool) -> Waiting:
        self._check_proposal(len(cmd))
        if deadline is not None and deadline <= self._loop.time():
            raise Dropped("the deadline had passed already")
        waiting = Waiting(cmd, self._loop.create_future(), deadline, hop=hop)
        self._room.enter(waiting)
        self._schedule()
        return waiting

    def _enter_hop(self, cmd: bytes, deadline: float | None) -> asyncio.Future[bytes]:
        """A command of another member, executed here or refused."""
        if self._core.role is not Role.LEADER:
            raise NotLeader(self._core.leader or None)
        if self._commands is not None:
            try:
                self._commands.check(cmd)
            except SpurError:
                raise Dropped("not a command that this controller knows") from None
        return self._enter(cmd, deadline, hop=True).future

    def _check_proposal(self, size: int) -> None:
        limits = self._limits
        if size > limits.command_bytes:
            raise TooLarge(size, limits.command_bytes)
        if not self._started or not self._shared.usable or self._shared.stopping:
            raise Dropped("the controller is not running")
        if self._core.role is Role.LEADER:
            self._shared.disk.check(self._loop.time())
        room = self._room
        if room.count >= limits.waiting or room.bytes + size > limits.waiting_bytes:
            raise Overloaded(f"{room.count} commands wait to be written; try again")

    def _expire(self, waiting: Waiting) -> None:
        if waiting.queued and self._transport is not None and not self._core.leader:
            waiting.fail(NotLeader())
        else:
            waiting.expire()

    async def read_barrier(self, deadline: float | None = None) -> int:
        """See `Replicator.read_barrier`."""
        if not self._started or not self._shared.usable:
            raise NotLeader()
        core = self._core
        if self._transport is None and core.committed_own_term and core.applied >= core.commit:
            return core.applied
        future: asyncio.Future[int] = self._loop.create_future()
        self._shared.reads.queue.append(future)
        self._schedule()
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            if not core.leader:
                raise NotLeader() from None
            raise Unknown("the deadline passed before the read was confirmed") from None

    # --- what is known ------------------------------------------------------------------------------------

    def leader(self) -> int | None:
        """See `Replicator.leader`."""
        return self._core.leader or None if self._started and self._shared.running else None

    def leader_client(self) -> str | None:
        """See `Replicator.leader_client`."""
        leader = self.leader()
        return self._member(leader).client if leader else None

    @property
    def member_id(self) -> int:
        """Which member this is."""
        return self._member_id

    @property
    def term(self) -> int:
        """The current term."""
        return self._core.term

    @property
    def applied(self) -> int:
        """Index up to which the state was built."""
        return self._core.applied

    @property
    def cluster_id(self) -> str:
        """Name of the group, made once."""
        return self._opened.meta.cluster_id

    def seconds_since_leader(self) -> float:
        """See `Replicator.seconds_since_leader`."""
        if self._core.role is Role.LEADER:
            return 0.0
        return self._loop.time() - self._engine.heard

    def members(self) -> list[MemberView]:
        """See `Replicator.members`."""
        return [self._view(member) for member in self._members]

    def _view(self, member: Member) -> MemberView:
        core, transport = self._core, self._transport
        own = member.id == self._member_id
        greeting = transport.greeting(member.id) if transport is not None else None
        return MemberView(
            id=member.id,
            address=member.address,
            client=member.client,
            reachable=own or (transport is not None and transport.connected(member.id)),
            match=core.last_index if own else core.match(member.id),
            command_version=self._command_version if own else greeting.command_version if greeting else 0,
            version=self._version if own else greeting.version if greeting else "",
            is_leader=member.id == core.leader,
            present=own or (transport is not None and transport.present(member.id)),
        )

    def _member(self, id: int) -> Member:
        return next(member for member in self._members if member.id == id)

    def on_role_change(self, callback: RoleChange) -> None:
        """See `Replicator.on_role_change`."""
        self._announcer.add_role(callback)

    def on_leader_change(self, callback: LeaderChange) -> None:
        """See `Replicator.on_leader_change`."""
        self._announcer.add_leader(callback)

    def on_restore(self, callback: Restored) -> None:
        """See `Replicator.on_restore`."""
        self._announcer.add_restore(callback)

    def alarms(self) -> list[str]:
        """See `Replicator.alarms`."""
        found = list(dict.fromkeys(found.text for found in self._alarms))
        return found + (self._comparing.alarms() if self._comparing is not None else [])

    def metrics(self) -> Metrics:
        """See `Replicator.metrics`."""
        core, engine, disk = self._core, self._engine, self._shared.disk.last
        long_turns, longest = watchdog.measured(self._loop)
        return Metrics(
            role=core.role.value,
            leader=core.leader,
            term=core.term,
            last_index=core.last_index,
            commit_index=core.commit,
            applied_index=core.applied,
            snapshot_index=core.snapshot.index,
            queued=len(self._room.queue),
            pending=self._room.placed,
            writes=engine.writes,
            written_entries=engine.written_entries,
            write_seconds=engine.write_seconds,
            write_seconds_max=engine.write_seconds_max,
            log_bytes=disk.size,
            log_segments=disk.segments,
            free_bytes=disk.free,
            snapshots=self._snapshots.count,
            snapshot_seconds=self._snapshots.seconds,
            snapshot_bytes=self._snapshots.size,
            snapshots_sent=engine.group.sending.sent if engine.group else 0,
            snapshots_installed=engine.installed,
            state_differences=self._shared.digests.found,
            messages_dropped=engine.group.transport.dropped if engine.group else 0,
            long_turns=long_turns,
            long_turn_seconds_max=longest,
        )

    # --- leadership ---------------------------------------------------------------------------------------

    async def transfer_leadership(self, to: int | None = None, deadline: float | None = None) -> int:
        """See `Replicator.transfer_leadership`."""
        core = self._core
        if core.role is not Role.LEADER:
            raise NotLeader(core.leader or None)
        if to is None:
            reachable = [view for view in self.members() if view.reachable and view.id != self._member_id]
            if not reachable:
                raise Dropped("no other controller can be reached")
            to = max(reachable, key=lambda view: (not self._clocks.far(view.id), view.match)).id
        elif to == self._member_id:
            return to
        changed = asyncio.Event()
        self._announcer.add_leader(look := lambda _: changed.set())
        try:
            async with asyncio.timeout_at(
                self._loop.time() + _TRANSFER_SECS if deadline is None else deadline
            ):
                while core.leader in (0, self._member_id):
                    # Once, and again when the protocol has given up.
                    if core.can_propose:
                        if not core.transfer(to):
                            raise Dropped(f"controller {to} is not a member of the group")
                        self._schedule()
                    changed.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), _TRANSFER_LOOK)
        except TimeoutError:
            raise Dropped(f"controller {to} did not take over in time") from None
        finally:
            self._announcer.drop_leader(look)
        return core.leader

    async def step_aside(self) -> bool:
        """See `Replicator.step_aside`."""
        self._leave_if_unfit(again=0.0)
        if self._leaving is not None:
            await asyncio.wait([self._leaving])
        return self._core.role is not Role.LEADER

    def _leave_if_unfit(self, again: float = _LEAVE_AGAIN) -> None:
        """The disk is nearly full, or the clock wrong: somebody else should lead.

        Args:
            again: seconds since the last try before there is another one.
        """
        reason = "free_space" if self._shared.disk.low else "clock"
        if reason == "clock" and not self._clocks.wrong(len(self._members)):
            return
        now = self._loop.time()
        if self._leaving is None and now - self._left_at > again and self._transport is not None:
            self._left_at = now
            self._leaving = self._loop.create_task(self._leave(self._transport, reason))

    async def _leave(self, transport: Transport, reason: str) -> None:
        try:
            for view in self.members():
                if view.id == self._member_id or not view.reachable:
                    continue
                try:
                    status = await transport.peer(view.id).status(1.0)
                    if not status.low_space:
                        await self.transfer_leadership(view.id)
                        _log.warning("leadership_left reason=%s to=%d", reason, view.id)
                        return
                except (aio.AioRpcError, Dropped, NotLeader) as error:
                    _log.info("leadership_kept to=%d error=%r", view.id, error)
        finally:
            self._leaving = None

    # --- the turn -----------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._engine.turn()
        if self._core.role is Role.LEADER:
            self._leave_if_unfit()

    def _keep_alarm(self, found: Difference) -> None:
        self._alarms.append(found)
        self._shared.snapshot_thread.submit(
            lambda: write_alarm(self._opened.folder, found),
            lambda _: None,
            lambda error: _log.error("alarm_not_kept path=%s error=%r", self._opened.folder, error),
        )

    def _look(self) -> None:
        self._shared.log_thread.submit(self._engine.look, self._shared.disk.looked, self._fail)

    def _fail(self, error: BaseException) -> None:
        """The log, a snapshot or the state machine can no longer be trusted: end the process."""
        shared = self._shared
        if shared.failed is not None:
            return
        shared.failed = error
        _log.critical("replication_failed path=%s error=%r", self._opened.folder, error)
        try:
            self._fatal(error)
        finally:
            # Only a `fatal` that returns, as in tests, gets here: nobody may be told of success.
            shared.room.refuse_queue(Dropped("the controller's log failed"))
            shared.room.abandon(Unknown("the controller's log failed"))
            shared.reads.refuse(NotLeader())
            self._announcer.led.set()
            self._engine.idle.set()
