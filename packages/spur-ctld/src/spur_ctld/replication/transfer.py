"""Snapshot files between members: the leader sends, the member that lags behind takes and installs.

The receiver makes the file durable, and only then hears the protocol's message; the protocol restarts the log
there, the state is restored, and only then the acknowledgement leaves.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from grpc import aio

from spur_core import faults
from spur_ctld.replication.errors import BadSnapshot, Dropped, Overloaded
from spur_ctld.replication.shared import Shared
from spur_ctld.replication.transport import Transport
from spur_ctld.replication.types import InstallSnapshot, Position, SnapshotMeta
from spur_proto import raft_internal_pb2 as pb

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Bytes read and sent at a time.
_PART: Final = 256 << 10
#: Seconds without a part after which a receiver gives up.
_SILENCE: Final = 10.0


async def _in_thread(job: Callable[..., T], *args: object) -> T:
    """Run `job` beside the event loop; a cancelled caller still waits for its end.

    A file must not be closed under a write: its number would soon be another file's.
    """
    running = asyncio.ensure_future(asyncio.to_thread(job, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


class Sending:
    """The leader's snapshots on their way, at most one to each member."""

    def __init__(self, shared: Shared, transport: Transport) -> None:
        self._shared = shared
        self._transport = transport
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.sent = 0

    def send(self, msg: InstallSnapshot) -> None:
        """Begin to send the file that `msg` names; an older one to the same member is given up."""
        self._cancel(msg.dst)
        self._tasks[msg.dst] = self._shared.loop.create_task(self._send(msg))

    def cancel(self) -> None:
        """This member leads no longer."""
        for peer in list(self._tasks):
            self._cancel(peer)

    def _cancel(self, peer: int) -> None:
        task = self._tasks.pop(peer, None)
        if task is not None:
            task.cancel()

    async def _send(self, msg: InstallSnapshot) -> None:
        shared = self._shared
        done = False
        try:
            path = shared.opened.snapshots.path(msg.meta)
            # An open file stays whole when newer snapshots take its place.
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                _log.info("snapshot_send member=%d index=%d bytes=%d", msg.dst, msg.meta.index, size)
                await self._transport.peer(msg.dst).snapshot(
                    msg.term, msg.meta.index, msg.meta.term, size, self._parts(file)
                )
            done = True
            self.sent += 1
        except (aio.AioRpcError, OSError) as error:
            why = error.details() if isinstance(error, aio.AioRpcError) else error.strerror
            _log.warning("snapshot_not_sent member=%d index=%d error=%r", msg.dst, msg.meta.index, why)
        finally:
            # Whatever went wrong: without this the member would get nothing more from this leader.
            if self._tasks.get(msg.dst) is asyncio.current_task():
                del self._tasks[msg.dst]
                shared.core.snapshot_sent(msg.dst, done)
                shared.wake()

    async def _parts(self, file: BinaryIO) -> AsyncIterator[bytes]:
        """The file, no faster than the limit."""
        rate = self._shared.limits.snapshot_rate
        loop = self._shared.loop
        began, sent = loop.time(), 0
        while part := await _in_thread(file.read, _PART):
            yield part
            sent += len(part)
            ahead = sent / rate - (loop.time() - began)
            if ahead > 0:
                await asyncio.sleep(ahead)


class Receiving:
    """The snapshot that is arriving: one at a time, a new one takes the place of the old.

    Args:
        deliver: takes the protocol's message once the file is durable.
    """

    def __init__(
        self, shared: Shared, member: int, deliver: Callable[[InstallSnapshot], Awaitable[None]]
    ) -> None:
        self._shared = shared
        self._member = member
        self._deliver = deliver
        self._present: asyncio.Task[None] | None = None
        self._number = 0
        self.received = 0

    async def receive(self, src: int, header: pb.SnapshotHeader, parts: AsyncIterator[bytes]) -> None:
        """Take one file.

        Raises:
            Dropped: from a leader whose time is over, or given up for another one.
            Overloaded: there is no room for it.
            BadSnapshot: not what it says.
        """
        shared = self._shared
        meta = Position(header.index, header.index_term)
        if not shared.usable or shared.stopping:
            raise Dropped(f"controller {self._member} is stopping")
        if header.term < shared.core.term:
            raise Dropped(f"controller {src} leads no longer")
        told = InstallSnapshot(src, self._member, header.term, meta)
        if meta.index <= shared.core.commit:
            # Nothing in it is missing here: the leader needs the answer alone.
            await self._deliver(told)
            return
        if shared.disk.last.free < shared.limits.free_bytes + header.size:
            raise Overloaded(f"{shared.opened.folder}: no room for a snapshot of {header.size} bytes")
        if self._present is not None:
            self._present.cancel()
        task = self._present = shared.loop.create_task(self._take(src, meta, header.size, parts))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                task.cancel()
                raise
            raise Dropped("given up for another snapshot") from None
        finally:
            if self._present is task:
                self._present = None
        # Only a file that is durable under its name.
        await self._deliver(told)
        self.received += 1

    async def stop(self) -> None:
        """Give up what is arriving."""
        if self._present is not None:
            self._present.cancel()
            await asyncio.wait([self._present])

    async def _take(self, src: int, meta: SnapshotMeta, size: int, parts: AsyncIterator[bytes]) -> None:
        store = self._shared.opened.snapshots
        final = store.path(meta)
        self._number += 1
        received = final.with_name(f"{final.name}.{src}-{self._number}.tmp")
        files = self._shared.files
        try:
            fd = files.create(received)
            try:
                await self._write(fd, received, size, parts)
                await _in_thread(files.datasync, fd)
            finally:
                files.close(fd)
            await _in_thread(store.adopt, received, meta)
            faults.after("snapshot_adopted")
        except OSError as error:
            self._shared.fail(error)
            raise BadSnapshot(f"{received}: {error.strerror}") from None
        finally:
            received.unlink(missing_ok=True)
        _log.info("snapshot_received from=%d index=%d bytes=%d", src, meta.index, size)

    async def _write(self, fd: int, path: Path, size: int, parts: AsyncIterator[bytes]) -> None:
        taken = 0
        while True:
            try:
                async with asyncio.timeout(_SILENCE):
                    part = await anext(parts, b"")
            except TimeoutError:
                raise BadSnapshot(f"{path.name}: nothing came for {_SILENCE:.0f} s") from None
            if not part:
                break
            taken += len(part)
            if taken > size:
                break
            await _in_thread(self._shared.files.write, fd, part)
        if taken != size:
            raise BadSnapshot(f"{path.name}: {taken} bytes of {size} came")
