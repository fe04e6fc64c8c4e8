"""A follower's commands and reads go to the leader, many in one call; and how the leader answers them.

One hop only: what another member sent is executed here or refused.  What the leader certainly did not
execute goes back into the queue; what became of a call that broke is unknown, except for reads, which are
asked again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from grpc import aio

from spur_core.errors import SpurError
from spur_ctld.replication.errors import Dropped, NotLeader, Overloaded, TooLarge, Unknown
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.reads import Reads
from spur_ctld.replication.transport import Transport
from spur_ctld.replication.waiting import Waiting, WaitingRoom
from spur_proto import raft_internal_pb2 as pb

_log = logging.getLogger(__name__)

#: Seconds before a leader that refused, or could not be called, is asked again.
_PAUSE: Final = 0.05
#: Seconds that a call may take longer than the callers wait: the leader tells more than a broken call.
_GRACE: Final = 0.25
#: Seconds of a call with nothing but reads, which can be asked again.
_READ_SECS: Final = 5.0
_LONGEST_MS: Final = 1 << 31
#: Bytes of answers in one reply.
_REPLY_BYTES: Final = 12 << 20


class Forwarder:
    """The way of a follower's queue to the leader.

    Args:
        wake: asks for a turn.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        room: WaitingRoom,
        reads: Reads,
        limits: Limits,
        wake: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._room = room
        self._reads = reads
        self._limits = limits
        self._wake = wake
        #: Whom the present calls go to, and in which term; calls to an earlier one no longer count.
        self._target = (0, 0)
        self._calls = 0
        self._resume_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def pump(self, leader: int, term: int) -> None:
        """Send what is queued, as far as the calls allow."""
        room, reads = self._room, self._reads
        if not room.queue and not reads.queue:
            return
        if self._target != (leader, term):
            self._target = (leader, term)
            self._calls = 0
            self._resume_at = 0.0
        if not self._transport.connected(leader) or self._loop.time() < self._resume_at:
            return
        while self._calls < self._limits.forward_calls and (room.queue or reads.queue):
            batch = room.batch(self._limits.batch_commands, self._limits.batch_bytes)
            readers = reads.take()
            if not batch and not readers:
                return
            room.send(batch)
            self._calls += 1
            task = self._loop.create_task(self._call(self._target, batch, readers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End the calls; their commands stay unsettled."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(
        self, target: tuple[int, int], batch: list[Waiting], readers: list[asyncio.Future[int]]
    ) -> None:
        now = self._loop.time()
        try:
            items = [
                pb.ForwardItem(command=waiting.cmd, timeout_ms=_milliseconds(waiting.deadline, now))
                for waiting in batch
            ]
            if readers:
                items.append(pb.ForwardItem(read_index=True))
            timeout = _patience(batch, now)
            answers = await self._transport.peer(target[0]).forward(items, timeout)
            if len(answers) != len(items):
                raise _Broken(f"{len(answers)} answers to {len(items)} questions")
        except Exception as error:
            # Whatever it is, the callers must hear that nothing is certain.
            why = error.details() if isinstance(error, aio.AioRpcError) else repr(error)
            _log.info("forward_failed leader=%d items=%d error=%r", target[0], len(items), why)
            self._broken(batch, readers, target)
        else:
            if readers:
                self._answer_readers(answers.pop(), readers, target)
            self._answer(answers, batch, target)
        finally:
            if self._target == target:
                self._calls -= 1
            self._wake()

    def _broken(
        self, batch: list[Waiting], readers: list[asyncio.Future[int]], target: tuple[int, int]
    ) -> None:
        for waiting in batch:
            if self._room.settle(waiting):
                waiting.fail(
                    Unknown(f"the call to controller {target[0]} broke; the command may have been executed")
                )
        self._again(target)
        self._reads.queue += readers

    def _answer(
        self, answers: Sequence[pb.ForwardAnswer], batch: list[Waiting], target: tuple[int, int]
    ) -> None:
        again = []
        for waiting, answer in zip(batch, answers, strict=True):
            if answer.WhichOneof("kind") == "result":
                if self._room.settle(waiting):
                    waiting.succeed(answer.result)
            elif answer.refusal.code == NotLeader.code:
                again.append(waiting)
            elif self._room.settle(waiting):
                waiting.fail(_error(answer.refusal, len(waiting.cmd), self._limits.command_bytes))
        if again:
            self._again(target)
            self._room.send_again(again)

    def _answer_readers(
        self, answer: pb.ForwardAnswer, readers: list[asyncio.Future[int]], target: tuple[int, int]
    ) -> None:
        if answer.WhichOneof("kind") == "index":
            self._reads.wait_applied(answer.index, readers)
        else:
            self._again(target)
            self._reads.queue += readers

    def _again(self, target: tuple[int, int]) -> None:
        """Ask this leader again, but not at once."""
        if self._target == target:
            self._resume_at = self._loop.time() + _PAUSE
            self._loop.call_at(self._resume_at, self._wake)


class _Broken(Exception):
    """An answer that cannot be."""


class Executor(Protocol):
    """The leader's side: everything ends here, nothing goes further."""

    def execute(self, cmd: bytes, deadline: float | None) -> asyncio.Future[bytes]:
        """Propose a command of another member.  Raises SpurError at once when it is refused."""

    def read_index(self) -> asyncio.Future[int]:
        """The index for another member's readers."""


async def serve(
    items: Sequence[pb.ForwardItem], executor: Executor, loop: asyncio.AbstractEventLoop
) -> list[pb.ForwardAnswer]:
    """Execute what a follower sent; one answer for each item."""
    now = loop.time()
    outcomes: list[asyncio.Future[bytes] | asyncio.Future[int] | SpurError] = []
    for item in items:
        try:
            if item.read_index:
                outcomes.append(executor.read_index())
            else:
                outcomes.append(
                    executor.execute(item.command, now + item.timeout_ms / 1000 if item.timeout_ms else None)
                )
        except SpurError as error:
            outcomes.append(error)
    waiting = [outcome for outcome in outcomes if isinstance(outcome, asyncio.Future)]
    if waiting:
        await asyncio.wait(waiting)
    size = 0
    answers = []
    for outcome in outcomes:
        answer = _to_answer(outcome)
        size += len(answer.result)
        if size > _REPLY_BYTES:
            answer = _refused(Unknown("the answers are too large together; the command was executed"))
        answers.append(answer)
    return answers


def _to_answer(outcome: asyncio.Future[bytes] | asyncio.Future[int] | SpurError) -> pb.ForwardAnswer:
    if isinstance(outcome, SpurError):
        return _refused(outcome)
    error = outcome.exception()
    if isinstance(error, SpurError):
        return _refused(error)
    if error is not None:
        return _refused(Unknown(repr(error)))
    result = outcome.result()
    if isinstance(result, bytes):
        return pb.ForwardAnswer(result=result)
    return pb.ForwardAnswer(index=result)


def _refused(error: SpurError) -> pb.ForwardAnswer:
    hint = error.hint if isinstance(error, NotLeader) else None
    return pb.ForwardAnswer(refusal=pb.ForwardRefusal(code=error.code, text=error.text, leader=hint or 0))


def _error(refusal: pb.ForwardRefusal, size: int, limit: int) -> SpurError:
    if refusal.code == TooLarge.code:
        return TooLarge(size, limit)
    for kind in (Dropped, Overloaded):
        if refusal.code == kind.code:
            return kind(refusal.text)
    return Unknown(refusal.text or f"the leader answered {refusal.code!r}")


def _milliseconds(deadline: float | None, now: float) -> int:
    return 0 if deadline is None else max(1, min(int((deadline - now) * 1000), _LONGEST_MS))


def _patience(batch: Sequence[Waiting], now: float) -> float | None:
    """Seconds that the call may take; None = as long as there is a connection."""
    most = 0.0
    for waiting in batch:
        if waiting.deadline is None:
            return None
        most = max(most, waiting.deadline - now)
    # Readers ask again.
    return most + _GRACE if batch else _READ_SECS
