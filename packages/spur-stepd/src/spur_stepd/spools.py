"""Output that passes through the supervisor: pipe → segment files → whoever is attached.

A stream is read only while fewer than `limit` bytes are waiting for credit; at the limit the task blocks,
so output is never lost and the disk never fills up.  The last bytes of a stream are kept beyond their credit,
so that whoever joins later sees where it stands.
"""

from __future__ import annotations

import errno
import os

from spur_proto_lite.spool import SEGMENT_SIZE, Segment, segment_name

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from spur_stepd.privileges import Privileges

_READ_SIZE = 1 << 16
#: Bytes that a watcher gets of what was there before it came.
TAIL = 1 << 16


class Spool:
    """One stream of one task."""

    def __init__(
        self,
        directory: int,
        stream: int,
        rank: int,
        pipe: int,
        limit: int,
        privileges: Privileges,
        segment_size: int = SEGMENT_SIZE,
    ) -> None:
        """
        Args:
            directory: descriptor of the session directory.
            pipe: read end of the task's pipe, or its terminal; set non-blocking here.
            limit: bytes that may wait for credit.
        """
        self.stream = stream
        self.rank = rank
        self.pipe = pipe
        #: Offset after the last byte that was read from the task.
        self.end = 0
        #: Everything before it has been delivered for good.
        self.credited = 0
        self.at_eof = False
        #: What was read and could not be written, the disk being full; it comes first when that is over.
        self._held = b""
        self._directory = directory
        self._limit = limit
        self._segment_size = min(segment_size, max(1, limit // 4))
        self._privileges = privileges
        #: (start, descriptor) of the segments that still exist, in order.
        self._segments: list[tuple[int, int]] = []
        os.set_blocking(pipe, False)

    @property
    def key(self) -> tuple[int, int]:
        return self.rank, self.stream

    @property
    def first(self) -> int:
        """Offset of the oldest byte that is still there."""
        return self._segments[0][0] if self._segments else self.end

    @property
    def is_full(self) -> bool:
        """Whether the task has to wait for credit."""
        return self.end - self.credited >= self._limit

    @property
    def is_stuck(self) -> bool:
        """Whether the disk has refused the last bytes."""
        return bool(self._held)

    def pump(self) -> bool:
        """Take what the task has written.

        Returns:
            Whether anything changed: new bytes, or the end of the stream.

        Raises:
            OSError: the disk is full; what was taken is kept for the next call.
        """
        if self._held:
            self._write(self._held)
            return True
        room = min(self._limit - (self.end - self.credited), _READ_SIZE)
        if self.at_eof or room <= 0:
            return False
        try:
            data = os.read(self.pipe, room)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""  # a terminal that nobody has open any more
        if not data:
            self._close_pipe()
            return True
        self._write(data)
        return True

    def _write(self, data: bytes) -> None:
        begin = self.end
        try:
            self._append(data)
        finally:
            self._held = data[self.end - begin :]

    def add(self, data: bytes) -> None:
        """Put bytes that are not the task's at the end of the stream, behind what the disk still refuses.

        Raises:
            OSError: the disk is full; they are kept for the next `pump`.
        """
        if self._held:
            self._held += data
        else:
            self._write(data)

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            start, fd = self._segment()
            room = self._segment_size - (self.end - start)
            written = os.pwrite(fd, rest[:room], self.end - start)
            self.end += written
            rest = rest[written:]

    def _segment(self) -> tuple[int, int]:
        if not self._segments or self.end - self._segments[-1][0] >= self._segment_size:
            name = segment_name(Segment(self.stream, self.rank, self.end))
            with self._privileges.root():
                flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
                fd = os.open(name, flags, 0o600, dir_fd=self._directory)
            self._segments.append((self.end, fd))
        return self._segments[-1]

    def read(self, offset: int, size: int) -> tuple[int, bytes]:
        """At most `size` bytes from `offset` on, or from the oldest that are still there: (offset, bytes)."""
        offset = max(offset, self.first)
        for start, fd in reversed(self._segments):
            if start <= offset:
                room = min(size, self._segment_size - (offset - start), self.end - offset)
                return offset, os.pread(fd, room, offset - start) if room > 0 else b""
        return offset, b""

    @property
    def tail(self) -> int:
        """From where on a watcher gets what was there before it came."""
        return max(self.first, self.end - TAIL)

    def credit(self, offset: int) -> None:
        """Everything before `offset` has been delivered: segments that end well before it are deleted."""
        self.credited = max(self.credited, min(offset, self.end))
        while self._segments and self._segments[0][0] + self._segment_size <= self.credited - TAIL:
            start, fd = self._segments.pop(0)
            os.close(fd)
            with self._privileges.root():
                try:
                    os.unlink(segment_name(Segment(self.stream, self.rank, start)), dir_fd=self._directory)
                except FileNotFoundError:
                    pass

    def _close_pipe(self) -> None:
        self.at_eof = True
        os.close(self.pipe)
        self.pipe = -1

    def give_up(self) -> None:
        """Stop reading: somebody outside the step holds the other end."""
        if not self.at_eof:
            self._close_pipe()


class Input:
    """Standard input of every task that has none of its own: what is attached writes, all tasks read."""

    #: More than this is never kept for a slow task.
    MOST = 64 << 20

    def __init__(self) -> None:
        #: Write end -> bytes that task has not taken yet.
        self.pipes: dict[int, bytearray] = {}
        #: No more will come.
        self.at_eof = False
        #: What came before the tasks were there; None once they are.
        self._early: bytearray | None = bytearray()

    def add(self, pipe: int) -> None:
        """A task reads the other end of `pipe`."""
        os.set_blocking(pipe, False)
        self.pipes[pipe] = bytearray(self._early or b"")

    def begin(self) -> None:
        """No more tasks will be added."""
        self._early = None

    def feed(self, data: bytes) -> bool:
        """Bytes for every task; False when too much is waiting already."""
        if self.waiting + len(data) > self.MOST:
            return False
        if self._early is not None:
            self._early += data
        for waiting in self.pipes.values():
            waiting += data
        return True

    @property
    def waiting(self) -> int:
        """Bytes that the slowest task has not taken."""
        return max(map(len, self.pipes.values()), default=len(self._early or b""))

    def flush(self, pipe: int) -> bool:
        """Write what the task takes now; False when this pipe is done with and was closed."""
        waiting = self.pipes[pipe]
        try:
            while waiting:
                written = os.write(pipe, waiting[: 1 << 16])
                del waiting[:written]
        except BlockingIOError:
            return True
        except OSError:
            waiting.clear()
            self._close(pipe)
            return False
        if self.at_eof:
            self._close(pipe)
            return False
        return True

    def _close(self, pipe: int) -> None:
        del self.pipes[pipe]
        os.close(pipe)

    def close(self) -> None:
        """Close every pipe."""
        for pipe in list(self.pipes):
            self._close(pipe)
