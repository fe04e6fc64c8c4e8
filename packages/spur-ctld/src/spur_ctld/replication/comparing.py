"""Members compare their states and clocks: when one of them comes, after each own snapshot, and now and then.

A leader then also sees whether a member holds less than it once acknowledged: somebody gave it an older copy
of its directory.  Such a member is not filled, for what it says of its log contradicts what it said before;
only `spurctld raft seed` mends that.

Whoever is second at a place of the log sees a difference, and so does the one it asks.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from grpc import aio

from spur_ctld.replication.clocks import Clocks
from spur_ctld.replication.digests import DigestBook
from spur_ctld.replication.meta import Member
from spur_ctld.replication.transport import Transport
from spur_proto import raft_internal_pb2 as pb

_log = logging.getLogger(__name__)
_SECS: Final = 5.0
_OLDER: Final = "it has an older directory: stop it, move that away and run `spurctld raft seed` there"


class Comparing:
    """Asks the other members, one round at a time.

    Args:
        match: the last entry that a member acknowledged to this leader; 0 when this member does not lead.
        term: the present one here.
        wall: seconds since the epoch.
        secs: between two rounds.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        book: DigestBook,
        others: Sequence[Member],
        match: Callable[[int], int],
        term: Callable[[], int],
        clocks: Clocks,
        wall: Callable[[], float],
        secs: float,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._book = book
        self._others = others
        self._match = match
        self._term = term
        self._clocks = clocks
        self._wall = wall
        self._secs = secs
        #: Member -> entry that it acknowledged and does not hold.
        self._forgot: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def begin(self) -> None:
        """Ask everybody; once more when a round is on its way."""
        if self._task is not None:
            self._again = True
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._secs, self.begin)
        self._task = self._loop.create_task(self._rounds())

    async def stop(self) -> None:
        """Ask nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _rounds(self) -> None:
        try:
            while True:
                self._again = False
                await asyncio.gather(*(self._ask(member.id) for member in self._others))
                if not self._again:
                    return
        finally:
            self._task = None

    async def _ask(self, member: int) -> None:
        # Before the question: what is acknowledged while the answer travels is no contradiction.
        match = self._match(member)
        asked, began = self._wall(), self._loop.time()
        try:
            reply = await self._transport.peer(member).status(_SECS, wire(self._book.own()))
        except aio.AioRpcError as error:
            _log.debug("not_compared member=%d error=%r", member, error.details())
        else:
            self._clocks.measured(member, asked, reply.hello.wall_clock, self._loop.time() - began)
            self._book.heard(member, unwired(reply.digests))
            # One of a newer term may have dropped, for a new leader, what was never committed.
            same = self._match(member) >= match and reply.term <= self._term()
            if same and reply.last_index < match:
                self._miss(member, match, reply.last_index)
            elif reply.last_index >= self._forgot.get(member, 0):
                self._forgot.pop(member, None)

    def _miss(self, member: int, match: int, holds: int) -> None:
        if member not in self._forgot:
            _log.critical(
                "member_forgot member=%d acknowledged=%d holds=%d error=%r", member, match, holds, _OLDER
            )
        self._forgot[member] = match

    def alarms(self) -> list[str]:
        """What needs people."""
        return [
            f"controller {member} no longer holds what it acknowledged, up to entry {index}: {_OLDER}"
            for member, index in sorted(self._forgot.items())
        ] + self._clocks.alarms()


def wire(digests: Iterable[tuple[int, str]]) -> list[pb.StateDigest]:
    """As they travel."""
    return [pb.StateDigest(index=index, digest=digest) for index, digest in digests]


def unwired(digests: Iterable[pb.StateDigest]) -> list[tuple[int, str]]:
    """As they arrive."""
    return [(one.index, one.digest) for one in digests]
