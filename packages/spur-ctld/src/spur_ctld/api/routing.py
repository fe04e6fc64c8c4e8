"""Which controller answers which call, and where a call that came to the wrong one goes."""

import asyncio
from enum import Enum
from typing import Final, Protocol

from spur_core.errors import BusyError

#: With no leader known a call waits for one so long at most, in seconds.
LEADER_WAIT_SECS: Final = 5.0
#: Metadata of answers: where the leader is, for the caller's next call.
LEADER_KEY: Final = "x-spur-leader"


class Route(Enum):
    """Who answers."""

    LOCAL = "whoever is asked"
    READ = "whoever is asked, once its state shows everything that was acknowledged before"
    LEADER = "the leader only; others pass the call on, once"
    HEARD = "the leader, for what only it has heard or written; whoever is asked, if that may be missing"


_C = "/slurm.SlurmController/"
#: Every call that the controller knows.
ROUTES: Final[dict[str, Route]] = {
    _C + "Ping": Route.LOCAL,
    # Its default target is the controller that is asked.
    _C + "Takeover": Route.LOCAL,
    # Calls and jobs are counted where they are carried out.
    _C + "GetStatistics": Route.LEADER,
    _C + "GetJobs": Route.READ,
    _C + "GetJobSteps": Route.READ,
    # Loads and free memory are the leader's memory.
    _C + "GetNodes": Route.HEARD,
    _C + "GetPartitions": Route.READ,
    _C + "GetPriorities": Route.READ,
    _C + "GetConfig": Route.READ,
    _C + "GetTopology": Route.READ,
    _C + "ListReservations": Route.READ,
    _C + "GetLicenses": Route.READ,
    _C + "CreateReservation": Route.LEADER,
    _C + "UpdateReservation": Route.LEADER,
    _C + "DeleteReservation": Route.LEADER,
    _C + "SubmitJob": Route.LEADER,
    # A watcher hears of changes from the one that makes them.
    _C + "WatchJob": Route.LEADER,
    _C + "WatchStep": Route.LEADER,
    _C + "CancelJob": Route.LEADER,
    _C + "UpdateJob": Route.LEADER,
    _C + "RequeueJob": Route.LEADER,
    _C + "SuspendJob": Route.LEADER,
    _C + "ResumeJob": Route.LEADER,
    _C + "CompleteJob": Route.LEADER,
    # Signs of life, lists and lines are the leader's memory.
    _C + "JobKeepalive": Route.LEADER,
    _C + "CreateJobStep": Route.LEADER,
    _C + "UpdateNode": Route.LEADER,
    _C + "CreatePartition": Route.LEADER,
    _C + "UpdatePartition": Route.LEADER,
    _C + "DeletePartition": Route.LEADER,
    _C + "DrainNode": Route.LEADER,
    _C + "RegisterAgent": Route.LEADER,
    _C + "Heartbeat": Route.LEADER,
    _C + "DeregisterAgent": Route.LEADER,
    _C + "ReportJobStatus": Route.LEADER,
    _C + "ReportStepdRecovery": Route.LEADER,
    # The leader writes the books, so it knows whether they are complete.
    "/slurm.SlurmAccounting/GetJobHistory": Route.HEARD,
}


class NoLeader(BusyError):
    """Nobody leads at present."""

    code = "no_leader"

    def __init__(self) -> None:
        super().__init__("no controller leads: most are down or out of touch; see scontrol ping")


class NotTheLeader(BusyError):
    """Passed on once already, and not to the leader."""

    code = "not_leader"

    def __init__(self) -> None:
        super().__init__("not the leader; ask the controller that leads")


class Views(Protocol):
    """The part of the replication node that says who leads."""

    def leader(self) -> int | None: ...

    def leader_client(self) -> str | None: ...


class Router:
    """Says where a call is answered.

    Args:
        node: who leads.
        own: this member's id.
    """

    def __init__(self, node: Views, own: int) -> None:
        self._node = node
        self._own = own
        #: Whether the office is open here.
        self.open = False
        self._waiters: list[asyncio.Future[None]] = []

    def changed(self) -> None:
        """The leader, or the office, is another: who waits looks again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def hint(self) -> str:
        """The leader's address for clients when another controller leads; empty otherwise."""
        return (self._node.leader_client() or "") if self._node.leader() != self._own else ""

    async def other_than(self, address: str, wait_secs: float) -> None:
        """Return when the leader is not at `address` any more.

        Raises:
            NoLeader: it still is after `wait_secs`.
        """
        end = asyncio.get_running_loop().time() + wait_secs
        while self.hint() == address:
            await self._change(end)

    async def _change(self, end: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(end):
                await waiter
        except TimeoutError:
            raise NoLeader from None

    async def place(self, wait_secs: float, *, forwarded: bool) -> str:
        """Where a call for the leader is answered: empty = here, else that address.

        Args:
            wait_secs: the longest time to wait for a leader.
            forwarded: another controller has passed the call on already.

        Raises:
            NotTheLeader: passed on, and this is not the leader.
            NoLeader: none was found in time.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + min(wait_secs, LEADER_WAIT_SECS)
        while not self.open:
            leader = self._node.leader()
            if forwarded and leader != self._own:
                raise NotTheLeader
            if leader is not None and leader != self._own and (address := self.hint()):
                return address
            await self._change(end)
        return ""
