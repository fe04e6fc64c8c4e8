"""One running member: drives the protocol core, the log, the snapshots and the state machine.

Commands queue up; each turn of the event loop takes what is there, and while one group commit is on its way
to the disk the next one gathers.  There is no timer in the write path: the batch grows with the sync time.
A command is acknowledged after its entry is durable, committed and applied, in that order.

This release runs groups of one member.  The core speaks for groups of any size; what carries its messages,
forwards commands and streams snapshots between members comes with the transport.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from spur_core.errors import ConfigError, StateError
from spur_ctld.replication.api import Metrics, RoleChange, StateMachine
from spur_ctld.replication.core import Core
from spur_ctld.replication.errors import Dropped, NotLeader, Overloaded, TooLarge, Unknown
from spur_ctld.replication.files import Files
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.meta import Member
from spur_ctld.replication.recovery import Opened, open_directory
from spur_ctld.replication.roles import Role
from spur_ctld.replication.types import Position, Ready, SnapshotMeta
from spur_ctld.replication.waiting import Waiting, WaitingRoom
from spur_ctld.replication.writer import Worker

_log = logging.getLogger(__name__)
#: Entries applied between two looks at the clock.
_STRIDE = 64


class _Disk(msgspec.Struct, frozen=True):
    """The log's disk after a job of its thread."""

    seconds: float
    free: int
    size: int
    segments: int


class _Stopping(Exception):
    """Ends the encoding of a snapshot that nobody waits for."""


class Node:
    """A member of the group, a `Replicator`.  Everything but `start` and `stop` needs the running loop.

    Args:
        state_dir: the daemon's state directory; everything is kept below its `raft`.
        machine: where commands are applied; called on the event loop only.
        fatal: called with the error when the log, a snapshot or the state machine failed.  It ends the
            process (exit code `api.EXIT_STORAGE`); should it return, the node refuses everything.
        members: the whole group; one member in this release.
        files: the file layer.
        schema: newest version of the state machine's snapshot encoding.
    """

    def __init__(
        self,
        state_dir: Path,
        machine: StateMachine,
        *,
        fatal: Callable[[BaseException], None],
        member_id: int = 1,
        members: Sequence[Member] = (Member(1),),
        files: Files | None = None,
        limits: Limits | None = None,
        schema: int = 1,
    ) -> None:
        if len(members) != 1:
            raise ConfigError(
                f"[controller] peers: names {len(members)} controllers, this release runs exactly one; "
                "leave the list empty"
            )
        self._state_dir = state_dir
        self._machine = machine
        self._fatal = fatal
        self._member_id = member_id
        self._members = tuple(members)
        self._files = files or Files()
        self._limits = limits or Limits()
        self._schema = schema
        self._room = WaitingRoom()
        self._reads: dict[int, asyncio.Future[int]] = {}
        self._reads_applying: list[tuple[int, asyncio.Future[int]]] = []
        self._next_token = 0
        self._callbacks: list[RoleChange] = []
        self._announced = (Role.FOLLOWER, 0)
        self._led = asyncio.Event()
        self._idle = asyncio.Event()
        self._scheduled = False
        self._writing: Ready | None = None
        self._failed: BaseException | None = None
        self._running = False
        self._snapshotting = False
        self._stopping = False
        self._since_snapshot = 0
        self._disk = _Disk(0.0, 0, 0, 0)
        self._low = False
        #: A snapshot is due, but there is no room for it.
        self._cramped = False
        self._free_looked = 0.0
        self._writes = self._written_entries = self._snapshots = self._snapshot_bytes = 0
        self._write_seconds = self._write_seconds_max = self._snapshot_seconds = 0.0

    # --- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the directory, rebuild the state; returns when this member leads and the state is complete.

        Raises:
            StateError: the directory cannot be used; one line that names the path.
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
        )
        opened = self._opened
        snapshot, stored = opened.snapshot, opened.stored
        try:
            if snapshot.index:
                self._snapshot_bytes = opened.snapshots.path(snapshot).stat().st_size
            self._machine.restore(opened.snapshots.read(snapshot) if snapshot.index else iter(()))
            self._core = Core(
                self._member_id,
                [member.id for member in self._members],
                stored.hard,
                snapshot,
                stored.entries,
                random.SystemRandom(),
                base=stored.base,
            )
        except BaseException:
            opened.log.close()
            opened.lock.release()
            raise
        self._core.snapshot_taken(snapshot, self._limits.keep_entries)
        self._log_thread = Worker(self._loop, "spur-log")
        self._snapshot_thread = Worker(self._loop, "spur-snapshot")
        self._running = True
        self._core.campaign()
        self._schedule()
        await self._led.wait()
        if self._failed is not None:
            await self.stop()
            raise StateError(f"{opened.folder}: {self._failed}") from self._failed

    async def stop(self) -> None:
        """Finish the write on its way, refuse the rest, release the directory.  Safe to call again."""
        if not self._running:
            return
        self._stopping = True
        self._room.refuse_queue(Dropped("the controller is stopping"))
        while self._failed is None and (self._writing is not None or self._core.committed(1)):
            self._idle.clear()
            await self._idle.wait()
        self._running = False
        self._room.abandon(Unknown("the controller stopped before the command was applied"))
        for future in (*self._reads.values(), *(future for _, future in self._reads_applying)):
            if not future.done():
                future.set_exception(NotLeader())
        await asyncio.to_thread(self._snapshot_thread.close)
        await asyncio.to_thread(self._log_thread.close)
        self._opened.log.close()
        self._opened.lock.release()

    # --- commands and reads -------------------------------------------------------------------------------

    async def propose(self, cmd: bytes, deadline: float | None = None) -> bytes:
        """See `Replicator.propose`."""
        self._check_proposal(len(cmd))
        waiting = Waiting(cmd, self._loop.create_future())
        if deadline is None:
            self._room.enter(waiting)
            self._schedule()
            return await waiting.future
        if deadline <= self._loop.time():
            raise Dropped("the deadline had passed already")
        timer = self._loop.call_at(deadline, waiting.expire)
        self._room.enter(waiting)
        self._schedule()
        try:
            return await waiting.future
        finally:
            timer.cancel()

    def _check_proposal(self, size: int) -> None:
        limits = self._limits
        if size > limits.command_bytes:
            raise TooLarge(size, limits.command_bytes)
        if not self._running or self._stopping or self._failed is not None:
            raise Dropped("the controller is not running")
        if self._low:
            self._look_at_free()
            raise Overloaded(
                f"{self._opened.folder}: {self._disk.free >> 20} MiB free, "
                f"commands are refused below {limits.free_bytes >> 20} MiB"
            )
        if self._room.count >= limits.waiting or self._room.bytes + size > limits.waiting_bytes:
            raise Overloaded(f"{self._room.count} commands wait to be written; try again")

    async def read_barrier(self, deadline: float | None = None) -> int:
        """See `Replicator.read_barrier`."""
        if not self._running or self._failed is not None:
            raise NotLeader()
        core = self._core
        if len(self._members) == 1 and core.committed_own_term and core.applied >= core.commit:
            return core.applied
        self._next_token += 1
        future: asyncio.Future[int] = self._loop.create_future()
        self._reads[self._next_token] = future
        core.read_index(self._next_token)
        self._schedule()
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            raise Unknown("the deadline passed before the read was confirmed") from None

    # --- what is known ------------------------------------------------------------------------------------

    def leader(self) -> int | None:
        """See `Replicator.leader`."""
        return self._core.leader or None if self._running else None

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
        """Random name of the group, made once."""
        return self._opened.meta.cluster_id

    def on_role_change(self, callback: RoleChange) -> None:
        """See `Replicator.on_role_change`."""
        self._callbacks.append(callback)
        callback(*self._announced)

    def metrics(self) -> Metrics:
        """See `Replicator.metrics`."""
        core = self._core
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
            writes=self._writes,
            written_entries=self._written_entries,
            write_seconds=self._write_seconds,
            write_seconds_max=self._write_seconds_max,
            log_bytes=self._disk.size,
            log_segments=self._disk.segments,
            free_bytes=self._disk.free,
            snapshots=self._snapshots,
            snapshot_seconds=self._snapshot_seconds,
            snapshot_bytes=self._snapshot_bytes,
        )

    # --- the turn -----------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if not self._running or self._failed is not None:
            return
        try:
            self._take_commands()
            # A group of one has nobody to send to; the call also starts the confirmation of reads.
            self._core.take_now()
            self._start_write()
            self._apply()
            self._answer_reads()
            self._announce()
            self._maybe_snapshot()
            self._idle.set()
        except Exception as error:
            self._fail(error)

    def _take_commands(self) -> None:
        if self._writing is not None or not self._room.queue:
            return
        if not self._core.can_propose:
            self._room.refuse_queue(NotLeader(self._core.leader or None))
            return
        batch = self._room.batch(self._limits.batch_commands, self._limits.batch_bytes)
        if batch:
            placed = self._core.propose([waiting.cmd for waiting in batch])
            assert placed is not None
            self._room.place(batch, *placed)

    def _start_write(self) -> None:
        if self._writing is not None:
            return
        ready = self._core.ready()
        if ready is None:
            return
        self._writing = ready
        self._log_thread.submit(lambda: self._write(ready), self._written, self._fail)

    def _write(self, ready: Ready) -> _Disk:
        """In the log thread."""
        began = time.perf_counter()
        log = self._opened.log
        log.write(ready.hard, ready.first, ready.entries, ready.install_snapshot)
        return self._look(time.perf_counter() - began)

    def _look(self, seconds: float = 0.0) -> _Disk:
        log = self._opened.log
        return _Disk(seconds, self._files.free_bytes(self._opened.folder), log.size, log.segments)

    def _written(self, disk: _Disk) -> None:
        ready = self._writing
        if ready is None or self._failed is not None:
            return
        self._writing = None
        self._writes += 1
        self._written_entries += len(ready.entries)
        self._write_seconds += disk.seconds
        self._write_seconds_max = max(self._write_seconds_max, disk.seconds)
        self._looked(disk)
        self._core.persisted(ready)
        self._turn()

    def _apply(self) -> None:
        core, limits, machine, room = self._core, self._limits, self._machine, self._room
        entries = core.committed(limits.apply_entries)
        if not entries:
            return
        until = self._loop.time() + limits.apply_seconds
        for done, entry in enumerate(entries, 1):
            if entry.data is not None:
                try:
                    result = machine.apply(entry.index, entry.data)
                except Exception as error:
                    raise StateError(f"applying entry {entry.index} failed: {error!r}") from error
                room.applied(entry.index, entry.term, result)
            self._since_snapshot += entry.size
            core.applied_to(entry.index)
            if done % _STRIDE == 0 and self._loop.time() > until:
                break
        if core.committed(1):
            self._schedule()

    def _answer_reads(self) -> None:
        for answer in self._core.take_reads():
            future = self._reads.pop(answer.token)
            if future.done():
                continue
            if answer.index is None:
                future.set_exception(NotLeader(self._core.leader or None))
            else:
                self._reads_applying.append((answer.index, future))
        if not self._reads_applying:
            return
        still = []
        for index, future in self._reads_applying:
            if index > self._core.applied:
                still.append((index, future))
            elif not future.done():
                future.set_result(index)
        self._reads_applying = still

    def _announce(self) -> None:
        core = self._core
        # Its own no-op is applied, so everything before it is.
        leads = core.role is Role.LEADER and core.log.term_at(core.applied) == core.term
        now = (Role.LEADER if leads else Role.FOLLOWER, core.term)
        # Terms come and go for a follower; only those it leads concern anybody.
        if now == self._announced or (not leads and self._announced[0] is Role.FOLLOWER):
            return
        self._announced = now
        _log.info("role_changed role=%s term=%d", now[0].value, now[1])
        if leads:
            self._led.set()
        for callback in self._callbacks:
            callback(*now)

    def _fail(self, error: BaseException) -> None:
        """The log, a snapshot or the state machine can no longer be trusted: end the process."""
        if self._failed is not None:
            return
        self._failed = error
        _log.critical("replication_failed path=%s error=%r", self._opened.folder, error)
        try:
            self._fatal(error)
        finally:
            # Only a `fatal` that returns, as in tests, gets here: nobody may be told of success.
            self._room.refuse_queue(Dropped("the controller's log failed"))
            self._room.abandon(Unknown("the controller's log failed"))
            for future in (*self._reads.values(), *(future for _, future in self._reads_applying)):
                if not future.done():
                    future.set_exception(NotLeader())
            self._led.set()
            self._idle.set()

    # --- free space ---------------------------------------------------------------------------------------

    def _looked(self, disk: _Disk) -> None:
        low = disk.free < self._limits.free_bytes
        if low != self._low:
            level = logging.WARNING if low else logging.INFO
            _log.log(level, "free_space path=%s free=%d refusing=%s", self._opened.folder, disk.free, low)
        self._disk = disk
        self._low = low

    def _look_at_free(self) -> None:
        """While commands are refused nothing is written, so somebody has to look again."""
        now = self._loop.time()
        if now - self._free_looked >= self._limits.free_recheck:
            self._free_looked = now
            self._log_thread.submit(self._look, self._looked, self._fail)

    # --- snapshots ----------------------------------------------------------------------------------------

    def _maybe_snapshot(self) -> None:
        core, limits = self._core, self._limits
        fresh = core.applied - core.snapshot.index
        if self._snapshotting or self._stopping or not fresh:
            return
        if fresh < limits.snapshot_entries and self._since_snapshot < limits.snapshot_bytes:
            return
        # A snapshot that fills the disk would end the process, again after every restart; without one the
        # log grows until commands are refused, and everything else goes on.
        cramped = self._disk.free < limits.free_bytes + 2 * self._snapshot_bytes
        if cramped != self._cramped:
            self._cramped = cramped
            if cramped:
                _log.warning("snapshot_put_off path=%s free=%d", self._opened.folder, self._disk.free)
        if cramped:
            return
        self._snapshotting = True
        self._since_snapshot = 0
        meta = Position(core.applied, core.log.term_at(core.applied) or 0)
        chunks = self._machine.freeze()
        self._snapshot_thread.submit(
            lambda: self._write_snapshot(meta, chunks), self._snapshot_written, self._snapshot_failed
        )

    def _write_snapshot(
        self, meta: SnapshotMeta, chunks: Iterator[bytes]
    ) -> tuple[SnapshotMeta, int, int, float]:
        """In the snapshot thread.  The position, how far the disk's log may go, bytes and seconds."""
        began = time.perf_counter()
        store = self._opened.snapshots
        size = store.write(meta, self._unless_stopping(chunks))
        store.prune()
        # The older of the two must stay usable too.
        return meta, store.list()[-1].index, size, time.perf_counter() - began

    def _unless_stopping(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if self._stopping:
                raise _Stopping
            yield chunk

    def _snapshot_written(self, done: tuple[SnapshotMeta, int, int, float]) -> None:
        meta, oldest, size, seconds = done
        self._snapshotting = False
        self._snapshots += 1
        self._snapshot_bytes = size
        self._snapshot_seconds += seconds
        _log.info("snapshot_written index=%d bytes=%d seconds=%.3f", meta.index, size, seconds)
        keep = self._core.snapshot_taken(meta, self._limits.keep_entries)
        if self._running and self._failed is None:
            self._log_thread.submit(
                lambda: self._opened.log.compact(min(keep, oldest)), lambda _: None, self._fail
            )
            self._schedule()

    def _snapshot_failed(self, error: BaseException) -> None:
        self._snapshotting = False
        if not isinstance(error, _Stopping):
            self._fail(error)
