"""The turn of one member: what arrived goes into the protocol core, what the core decided goes out.

In this order: received messages, due ticks, queued commands, queued reads; then messages that need not wait
for the disk leave, the next durable step begins unless one is on its way, and what is committed is applied.
There is no timer in the write path: while one write is on its way to the disk the next one gathers.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from functools import partial

from spur_core import faults
from spur_core.errors import StateError
from spur_ctld.replication.announcer import Announcer
from spur_ctld.replication.core import FROM_LEADER
from spur_ctld.replication.disk import Disk
from spur_ctld.replication.errors import NotLeader, TooNew
from spur_ctld.replication.forwarding import Forwarder
from spur_ctld.replication.inbox import Inbox
from spur_ctld.replication.roles import Role
from spur_ctld.replication.shared import Shared
from spur_ctld.replication.snapshotting import Snapshotting
from spur_ctld.replication.ticker import Ticker
from spur_ctld.replication.transfer import Sending
from spur_ctld.replication.transport import Transport
from spur_ctld.replication.types import AnyMessage, InstallSnapshot, Ready, SnapshotMeta

_log = logging.getLogger(__name__)
#: Entries applied between two looks at the clock.
_STRIDE = 64


class Group:
    """What a member of a larger group has beside everything else."""

    def __init__(
        self,
        transport: Transport,
        inbox: Inbox,
        ticker: Ticker,
        forwarder: Forwarder,
        sending: Sending,
    ) -> None:
        self.transport = transport
        self.inbox = inbox
        self.ticker = ticker
        self.forwarder = forwarder
        self.sending = sending


class Engine:
    """Drives one core.

    Attributes:
        group: None = alone.
        idle: set after each turn.
        heard: when the leader was last heard, on the loop's clock.
    """

    def __init__(self, shared: Shared, snapshots: Snapshotting, announcer: Announcer) -> None:
        self._shared = shared
        self._snapshots = snapshots
        self._announcer = announcer
        self.group: Group | None = None
        self.idle = asyncio.Event()
        self.heard = shared.loop.time()
        self.writing: Ready | None = None
        self.installed = 0
        self.writes = self.written_entries = 0
        self.write_seconds = self.write_seconds_max = 0.0

    def turn(self) -> None:
        """One turn."""
        shared = self._shared
        if not shared.usable:
            return
        try:
            if self.group is not None:
                self._take_messages(self.group)
                for _ in range(self.group.ticker.due()):
                    shared.core.tick()
            self._take_commands()
            self._take_reads()
            self._send(shared.core.take_now())
            self._start_write()
            self._apply()
            self._answer_reads()
            self._look_who_leads()
            self._snapshots.maybe()
            self.idle.set()
        except Exception as error:
            shared.fail(error)

    # --- what comes in ------------------------------------------------------------------------------------

    def _take_messages(self, group: Group) -> None:
        core = self._shared.core
        for msg in group.inbox.take():
            if isinstance(msg, FROM_LEADER) and msg.term >= core.term:
                self.heard = self._shared.loop.time()
            core.step(msg)

    def _take_commands(self) -> None:
        shared, core = self._shared, self._shared.core
        room = shared.room
        if not room.queue:
            return
        if core.can_propose:
            # Alone, nobody is served by entries that wait for the write on its way.
            if self.group is None and self.writing is not None:
                return
            batch = room.batch(shared.limits.batch_commands, shared.limits.batch_bytes)
            if batch:
                placed = core.propose([waiting.cmd for waiting in batch])
                assert placed is not None
                room.place(batch, *placed)
            if room.queue:
                shared.wake()
            return
        if self.group is None:
            room.refuse_queue(NotLeader())
            return
        room.refuse_hops(NotLeader(core.leader or None))

    def _take_reads(self) -> None:
        shared, core = self._shared, self._shared.core
        if core.role is Role.LEADER:
            shared.reads.ask(core.read_index)
        elif self.group is not None and core.leader:
            self.group.forwarder.pump(core.leader, core.term)

    # --- what goes out ------------------------------------------------------------------------------------

    def _send(self, messages: Iterable[AnyMessage]) -> None:
        for msg in messages:
            assert self.group is not None, "a member that is alone has nobody to talk to"
            if isinstance(msg, InstallSnapshot):
                self.group.sending.send(msg)
            else:
                self.group.transport.send(msg)

    def _start_write(self) -> None:
        shared, core = self._shared, self._shared.core
        if shared.stopping and self.group is not None:
            # Others go on sending; the end must not wait for them.
            return
        while self.writing is None:
            ready = core.ready()
            if ready is None:
                return
            if ready.writes:
                self.writing = ready
                shared.log_thread.submit(partial(self._write, ready), self._written, shared.fail)
            else:
                core.persisted(ready)
                self._send(ready.messages)

    def _write(self, ready: Ready) -> Disk:
        """In the log thread."""
        began = time.perf_counter()
        self._shared.opened.log.write(ready.hard, ready.first, ready.entries, ready.install_snapshot)
        return self.look(time.perf_counter() - began)

    def look(self, seconds: float = 0.0) -> Disk:
        """At the disk; in the log thread."""
        opened = self._shared.opened
        return Disk(
            seconds, self._shared.files.free_bytes(opened.folder), opened.log.size, opened.log.segments
        )

    def _written(self, disk: Disk) -> None:
        shared = self._shared
        ready = self.writing
        if ready is None or shared.failed is not None:
            return
        self.writing = None
        self.writes += 1
        self.written_entries += len(ready.entries)
        self.write_seconds += disk.seconds
        self.write_seconds_max = max(self.write_seconds_max, disk.seconds)
        shared.disk.looked(disk)
        try:
            if ready.install_snapshot is not None:
                self._install(ready.install_snapshot)
            shared.core.persisted(ready)
            self._send(ready.messages)
        except Exception as error:
            shared.fail(error)
        self.turn()

    def _install(self, meta: SnapshotMeta) -> None:
        """The log restarts at `meta` durably: so does the state."""
        shared = self._shared
        faults.before("snapshot_installed")
        shared.machine.restore(shared.opened.snapshots.read(meta))
        shared.core.applied_to(meta.index)
        shared.room.skipped(meta.index)
        self._snapshots.since = 0
        self.installed += 1
        _log.info("snapshot_installed index=%d term=%d", meta.index, meta.term)
        self._announcer.restored()
        # The older files no longer fit the log.
        shared.snapshot_thread.submit(shared.opened.snapshots.prune, lambda _: None, shared.fail)
        faults.after("snapshot_installed")

    # --- what is done -------------------------------------------------------------------------------------

    def _apply(self) -> None:
        shared = self._shared
        core, limits, machine, room = shared.core, shared.limits, shared.machine, shared.room
        entries = core.committed(self._snapshots.until(core.applied, limits.apply_entries))
        if not entries:
            return
        until = shared.loop.time() + limits.apply_seconds
        for done, entry in enumerate(entries, 1):
            if entry.data is not None:
                try:
                    result = machine.apply(entry.index, entry.data)
                except TooNew:
                    raise
                except Exception as error:
                    raise StateError(f"applying entry {entry.index} failed: {error!r}") from error
                room.applied(entry.index, entry.term, result)
            else:
                room.displaced(entry.index, entry.term)
            self._snapshots.since += entry.size
            core.applied_to(entry.index)
            if done % _STRIDE == 0 and shared.loop.time() > until:
                break
        if core.committed(1):
            shared.wake()

    def _answer_reads(self) -> None:
        shared = self._shared
        answers = shared.core.take_reads()
        for answer in answers:
            shared.reads.answer(answer.token, answer.index, NotLeader(shared.core.leader or None))
        if shared.reads.queue and answers:
            shared.wake()
        shared.reads.applied(shared.core.applied)

    def _look_who_leads(self) -> None:
        core = self._shared.core
        if core.role is Role.LEADER:
            self.heard = self._shared.loop.time()
        elif self.group is not None:
            self.group.sending.cancel()
        # Its own no-op is applied, so everything before it is.
        leads = core.role is Role.LEADER and core.log.term_at(core.applied) == core.term
        self._announcer.saw(Role.LEADER if leads else Role.FOLLOWER, core.term, core.leader or None)
