"""The sockets through which the tasks of an MPI step reach `pmi.Exchange`, and what a task is given for it.

Each task inherits one end of a pair, so that only the step's own processes can speak, each as its own rank.
The other end is served from the supervisor's loop; nothing of it outlives the supervisor, and nothing
outside the step reaches it.
"""

from __future__ import annotations

import _socket
import os

from spur_core.lean import partial
from spur_stepd import pmi
from spur_stepd.log import say
from spur_stepd.loop import READ, WRITE

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spur_core.ids import RuntimeId
    from spur_stepd.loop import Loop

#: Answers that a rank does not take; then its connection is closed.
_MOST_WAITING = 4 << 20


def name_of(rid: RuntimeId) -> str:
    """`PMI_JOBID`."""
    return f"{rid.job_id}.{rid.step_id}"


def give(env: dict[bytes, bytes], rid: RuntimeId, rank: int, size: int, fd: int) -> None:
    """A task's variables: what another launcher left behind goes, what this one gives comes."""
    foreign = tuple(prefix.encode() for prefix in pmi.FOREIGN)
    for name in [name for name in env if name.startswith(foreign)]:
        del env[name]
    own = {"FD": fd, "RANK": rank, "SIZE": size, "JOBID": name_of(rid), "SPAWNED": 0}
    env.update((f"PMI_{name}".encode(), str(value).encode()) for name, value in own.items())


class Server:
    """Serves the ranks of one step.

    Args:
        on_abort: called with (rank, exit code, text) when a rank has called for the end of all.
    """

    def __init__(self, loop: Loop, on_abort: Callable[[int, int, str], None]) -> None:
        self._loop = loop
        self._on_abort = on_abort
        self._exchange: pmi.Exchange | None = None
        self._sockets: dict[int, _socket.socket] = {}
        self._theirs: dict[int, _socket.socket] = {}
        self._waiting: dict[int, bytearray] = {}
        self._aborted = False

    def open(self, ranks: tuple[int, ...], rid: RuntimeId) -> None:
        """A pair for each rank.

        Raises:
            OSError: none can be had; those that were made are closed.
        """
        # MPICH names its shared memory after the exchange, and a killed program leaves it behind: another
        # cluster's step of the same number, or this one's next run, must not meet it.
        self._exchange = pmi.Exchange(ranks, f"{name_of(rid)}.{os.urandom(6).hex()}")
        try:
            for rank in ranks:
                ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
                self._sockets[rank], self._theirs[rank] = ours, theirs
                ours.setblocking(False)
                self._waiting[rank] = bytearray()
        except OSError:
            self.close()
            raise

    def fd_of(self, rank: int) -> int:
        """The descriptor that the task of this rank is to inherit; -1 without an exchange."""
        theirs = self._theirs.get(rank)
        return -1 if theirs is None else theirs.fileno()

    def forked(self) -> None:
        """The tasks have theirs; the supervisor's copies are closed and the ranks are listened to."""
        for theirs in self._theirs.values():
            theirs.close()
        self._theirs.clear()
        for rank, ours in self._sockets.items():
            self._loop.watch(ours.fileno(), READ, partial(self._on_ready, rank))

    def close(self) -> None:
        """End the exchange; a rank that still waits reads the end of file."""
        for rank in list(self._sockets):
            self._hang_up(rank)
        for theirs in self._theirs.values():
            theirs.close()
        self._theirs.clear()

    def _hang_up(self, rank: int) -> None:
        ours = self._sockets.pop(rank, None)
        if ours is not None:
            self._loop.forget(ours.fileno())
            ours.close()
            self._waiting.pop(rank, None)

    def _on_ready(self, rank: int, events: int) -> None:
        ours = self._sockets.get(rank)
        if ours is None:
            return
        if events & WRITE:
            self._flush(rank)
        if events & ~WRITE and rank in self._sockets:
            self._read(rank, ours)

    def _read(self, rank: int, ours: _socket.socket) -> None:
        assert self._exchange is not None
        try:
            data = ours.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if self._exchange.left(rank):
                say("pmi_left", rank=rank)
            self._hang_up(rank)
            return
        outcome = self._exchange.heard(rank, data)
        for other, reply in outcome.replies:
            self._send(other, reply)
        if outcome.broken:
            say("pmi_broken", rank=rank, error=outcome.broken)
            self._hang_up(rank)
        if outcome.abort is not None and not self._aborted:
            # At once: MPICH's abort returns to the program, which might end with success.
            self._aborted = True
            self._on_abort(rank, *outcome.abort)

    def _send(self, rank: int, reply: bytes) -> None:
        waiting = self._waiting.get(rank)
        if waiting is None:
            return
        waiting += reply
        if len(waiting) > _MOST_WAITING:
            say("pmi_deaf", rank=rank)
            self._hang_up(rank)
            return
        self._flush(rank)

    def _flush(self, rank: int) -> None:
        ours, waiting = self._sockets[rank], self._waiting[rank]
        try:
            while waiting:
                del waiting[: ours.send(waiting)]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up(rank)
            return
        self._loop.change(ours.fileno(), READ | WRITE if waiting else READ)
