"""The shell's one handle on the replicated state: read it, change it through the log, hear what changed.

Operations go in typed and come back typed; a refusal by `apply` is raised.  Listeners run on the event
loop right after an entry was applied; they must only note things and return.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from spur_core import faults
from spur_core.errors import StateError, WrongState
from spur_ctld.api.grpc_errors import Refused
from spur_ctld.replication.errors import NotLeader, Unknown
from spur_ctld.state import codec, versions
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.events import Event, JobChanged, StateReplaced
from spur_ctld.state.invariants import check
from spur_ctld.state.ops import AnyOp, Op, OpResult, RaiseCommandVersion

log = logging.getLogger(__name__)

#: Seconds a proposal may take before its fate is unknown.
COMMIT_SECS: Final = 30.0
#: A proposal that was under way when leadership was lost is waited for so long; its fate is unknown then.
AFTERMATH_SECS: Final = 2.0

#: Who waits for a change looks again in groups of so many, with so many seconds between two groups: any user
#: may watch a job some thousand times, and the leader must still be heard by the others.
WOKEN_AT_ONCE: Final = 16
WAKE_PAUSE: Final = 0.01

Listener = Callable[[Sequence[Event]], None]


class NotYet(WrongState):
    """The operation is newer than what some member of the group can apply; nothing was proposed."""

    code = "not_yet"

    def __init__(self, needed: int, used: int) -> None:
        super().__init__(
            "this waits until every controller runs a release that knows it"
            f" (command version {needed}, the controllers use {used}); `scontrol ping` shows for whom"
        )


class Proposer(Protocol):
    """The part of the replication node that the ledger needs."""

    async def propose(self, cmd: bytes, deadline: float | None = None) -> bytes: ...

    async def read_barrier(self, deadline: float | None = None) -> int: ...


class Ledger:
    """State, log and listeners of this controller.

    Args:
        state: gives the live state; it is replaced as a whole when a snapshot is restored.
        proposer: the replication node.
        paranoid: check the state's invariants after every change.
    """

    def __init__(
        self, state: Callable[[], ClusterState], proposer: Proposer, *, paranoid: bool = False
    ) -> None:
        self._state = state
        self._proposer = proposer
        self._paranoid = paranoid
        self._listeners: list[Listener] = []
        #: By job, in the order in which they came.
        self._waiters: dict[int, dict[asyncio.Future[None], None]] = {}
        #: Whose turn comes, one of each job after the other: nobody stands behind another job's thousand.
        self._waking: dict[int, deque[asyncio.Future[None]]] = {}
        self._leads = True
        self._under_way: set[asyncio.Timeout] = set()

    @property
    def state(self) -> ClusterState:
        """The state as of the last applied entry; only read it."""
        return self._state()

    async def commit(self, op: AnyOp) -> OpResult:
        """Put `op` into the log and return what `apply` made of it.

        Only the leader proposes: what it decides rests on memory that nobody else has.

        Raises:
            Refused: apply refused it; nothing changed.
            NotYet: not every controller understands it.
            BusyError: it was not, or perhaps not, executed; try again.
        """
        if not self._leads:
            raise NotLeader
        name = type(op).__name__
        op = self._held_back(op)
        faults.before(name)
        if op.at < (latest := self.state.time):
            # An earlier leader's clock is ahead of this one's.
            op = msgspec.structs.replace(op, at=latest)
        deadline = asyncio.get_running_loop().time() + COMMIT_SECS
        try:
            async with asyncio.timeout(None) as limit:
                self._under_way.add(limit)
                try:
                    raw = await self._proposer.propose(codec.encode_op(op), deadline)
                finally:
                    self._under_way.discard(limit)
        except TimeoutError:
            raise Unknown("this controller stopped leading before the command was applied") from None
        faults.after(name)
        result: OpResult = codec.decode_result(raw)
        if result.refusal is not None:
            raise Refused(result.refusal.code, result.refusal.text)
        return result

    def takes(self, kind: type[Op]) -> bool:
        """Whether such operations can be committed now: every controller knows them."""
        return versions.usable(kind, self.state.command_version)

    def _held_back(self, op: AnyOp) -> AnyOp:
        """Raises NotYet when `op` is newer than what the group uses; some go without what is newer."""
        used = self.state.command_version
        if used >= versions.COMMAND_VERSION or isinstance(op, RaiseCommandVersion):
            return op
        if isinstance(op, versions.FITTED):
            return versions.fitted(op, used)
        needed = versions.needed(op)
        if needed > used:
            raise NotYet(needed, used)
        return op

    async def confirm(self) -> None:
        """Return when the local state shows everything that was acknowledged before the call, by whomever.

        Raises:
            BusyError: this controller cannot tell: it may lead no longer.
        """
        await self._proposer.read_barrier(asyncio.get_running_loop().time() + COMMIT_SECS)

    def answered(self, key: str) -> OpResult | None:
        """What a request with that key was given before; None when it was not carried out."""
        known = self.state.answers.get(key) if key else None
        return None if known is None else codec.decode_result(known.result)

    def lead(self, *, leads: bool) -> None:
        """Whether this controller may propose.  Losing it ends what is under way and wakes all who wait."""
        self._leads = leads
        if leads:
            return
        if self._under_way:
            end = asyncio.get_running_loop().time() + AFTERMATH_SECS
            for limit in self._under_way:
                limit.reschedule(end)
        self.wake_all()

    # -- changes

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with the events of every entry that is applied from now on."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Stop calling `listener`; nothing happens when it is not called anyway."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    def publish(self, events: Sequence[Event]) -> None:
        """An entry was applied; called on the event loop."""
        for event in events:
            if isinstance(event, JobChanged):
                self._wake([event.job_id])
            elif isinstance(event, StateReplaced):
                self.wake_all()
        for listener in tuple(self._listeners):
            listener(events)
        if self._paranoid and events:
            problems = check(self.state)
            if problems:
                raise StateError("; ".join(problems))

    def wake_all(self) -> None:
        """Let everybody who waits for a change look again."""
        self._wake(list(self._waiters))

    def _wake(self, jobs: Sequence[int]) -> None:
        busy = bool(self._waking)
        for job_id in jobs:
            if waiters := self._waiters.pop(job_id, None):
                self._waking.setdefault(job_id, deque()).extend(waiters)
        if not busy:
            self._wake_some()

    def _wake_some(self) -> None:
        left = WOKEN_AT_ONCE
        while left and self._waking:
            job_id = next(iter(self._waking))
            waiters = self._waking.pop(job_id)
            waiter = waiters.popleft()
            if waiters:
                self._waking[job_id] = waiters
            if not waiter.done():
                waiter.set_result(None)
                left -= 1
        if self._waking:
            asyncio.get_running_loop().call_later(WAKE_PAUSE, self._wake_some)

    async def job_changed(self, job_id: int, timeout: float | None = None) -> bool:
        """Wait until the record of `job_id` changes; False when `timeout` seconds passed first."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(job_id, {})[waiter] = None
        try:
            async with asyncio.timeout(timeout):
                await waiter
            return True
        except TimeoutError:
            return False
        finally:
            waiters = self._waiters.get(job_id)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    self._waiters.pop(job_id, None)
