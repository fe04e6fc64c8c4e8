"""Cancelling, signalling, suspending and probing by exact identity.

The identity is compared when the targets are chosen from the table, again after every wait, and once more by
the supervisor right before it acts.  The delayed SIGKILL of a graceful end is the supervisor's own, so it
cannot hit another run.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from spur_agent.keeper import Keeper
from spur_agent.logs import value
from spur_agent.report import exit_message
from spur_agent.sessions import Phase, Session, SessionTable
from spur_agent.terms import Terms
from spur_core.errors import (
    BusyError,
    IdentityMismatch,
    NotFound,
    RequestError,
    Unreachable,
)
from spur_core.ids import STEP_BATCH, STEP_EXTERN, RuntimeId
from spur_proto import agent_pb2 as pb
from spur_proto import common_pb2
from spur_proto_lite import control

log = logging.getLogger(__name__)

_LAST_SIGNAL: Final = 64
#: A cancel that meets a launch waits so long for its end before it says "ask again".
_LAUNCH_WAIT_SECS: Final = 4.0


async def _all(acts: Sequence[Coroutine[Any, Any, bool]]) -> list[bool]:
    """Let all of them come to their end; the first error is raised only then."""
    done = await asyncio.gather(*acts, return_exceptions=True)
    for one in done:
        if isinstance(one, BaseException):
            raise one
    return [one for one in done if one is True]


def _means(request: pb.AgentCancelJobRequest, step_id: int) -> bool:
    """Whether a cancel that names no step is about that one."""
    if request.rid.HasField("step_id"):
        return True
    if request.batch_only:
        return step_id == STEP_BATCH
    if not request.HasField("signal"):
        return True
    # An allocation has no processes of its own that a signal could be meant for.
    return step_id != STEP_EXTERN and not (request.steps_only and step_id == STEP_BATCH)


class ControlCalls:
    """Answers CancelJob, SuspendJob and ProbeStepd."""

    def __init__(self, table: SessionTable, keeper: Keeper, terms: Terms) -> None:
        self._table = table
        self._keeper = keeper
        self._terms = terms

    async def cancel(self, request: pb.AgentCancelJobRequest) -> pb.AgentCancelJobResponse:
        """End, or signal, one step or every step of exactly that attempt.

        Not active means that nothing of what `rid` names is here: also when another attempt is, which is
        not touched.  A signal for the steps alone leaves the batch shell alone, and is no error without any.

        Raises:
            RequestError: no attempt, or a signal that does not exist.
            BusyError: ask again.
        """
        rid = request.rid
        if not rid.job_id or not rid.run_attempt:
            raise RequestError("rid: job and attempt must be given")
        number = request.signal if request.HasField("signal") else None
        if number is not None and not 1 <= number <= _LAST_SIGNAL:
            raise RequestError(f"there is no signal {number}")
        if request.steps_only and (number is None or request.batch_only):
            raise RequestError("steps_only goes with a signal, and not with batch_only")
        self._terms.check(request.term)
        targets = await self._settled(rid, lambda step: _means(request, step))
        self._terms.check(request.term)  # meanwhile another controller may lead
        if number is None:
            await self._end_undecided(request)
        acted = await _all([self._act(session, request, number) for session in targets])
        active = any(acted) or any(s.active for s in self._named(rid))
        if not active:
            self._note_mismatch(request)
            self._keeper.forget_lost(rid.job_id, rid.run_attempt)
        return pb.AgentCancelJobResponse(active=active)

    async def _end_undecided(self, request: pb.AgentCancelJobRequest) -> None:
        """An end decides about what was held by a supervisor that is lost: nothing of it runs afterwards."""
        rid = request.rid
        for session in self._table.of_attempt(rid.job_id, rid.run_attempt):
            named = not rid.HasField("step_id") or session.rid.step_id == rid.step_id
            if named and session.undecided and _means(request, session.rid.step_id):
                await self._keeper.fence(session, request.reason or "cancelled", "")

    async def suspend(self, request: pb.AgentSuspendJobRequest) -> pb.AgentSuspendJobResponse:
        """Stop, or let go on, every process of one step or of every step of exactly that attempt.

        Raises:
            RequestError: no attempt.
            NotFound: nothing of the job is here.
            IdentityMismatch: something else of the job is; it was not touched.
            BusyError: ask again.
        """
        rid = request.rid
        if not rid.job_id or not rid.run_attempt:
            raise RequestError("rid: job and attempt must be given")
        self._terms.check(request.term)
        targets = await self._settled(rid, lambda step: True)
        self._terms.check(request.term)
        if not targets:
            held = [str(s.rid) for s in self._table.of_job(rid.job_id) if s.active]
            asked = f"{rid.job_id}.{rid.run_attempt}" + (f".{rid.step_id}" if rid.HasField("step_id") else "")
            if not held:
                raise NotFound(f"{asked}: nothing of job {rid.job_id} is on this node")
            log.warning("suspend_mismatch asked=%s held=%s", asked, ",".join(held))
            raise IdentityMismatch(asked, ", ".join(held))
        done = await _all([self._pause(s, request.resume) for s in targets if s.lives])
        return pb.AgentSuspendJobResponse(steps=sum(done))

    async def _pause(self, session: Session, resume: bool) -> bool:
        """True when the step is now as it should be; one that has just ended needs nothing any more."""
        try:
            await (session.link.resume() if resume else session.link.suspend())
        except control.Refused as error:
            log.info("pause_refused step=%s resume=%s error=%s", session.rid, resume, value(error))
            return False
        except Unreachable as error:
            self._keeper.suspect(session)
            raise BusyError(error.text) from None
        session.asleep = not resume
        log.info("step_paused step=%s resume=%s", session.rid, resume)
        return True

    def _named(self, rid: common_pb2.RuntimeId) -> list[Session]:
        """What is here of exactly that identity; without a step in it, of exactly that attempt."""
        found = self._table.of_attempt(rid.job_id, rid.run_attempt)
        if rid.HasField("step_id"):
            found = [s for s in found if s.rid.step_id == rid.step_id]
        return [s for s in found if s.active]

    async def _settled(self, rid: common_pb2.RuntimeId, wanted: Callable[[int], bool]) -> list[Session]:
        """The targets, once none of them is being launched any more.

        Args:
            wanted: whether a step id is meant.
        """
        deadline = time.monotonic() + _LAUNCH_WAIT_SECS
        for session in self._named(rid):
            if session.phase is Phase.LAUNCHING and wanted(session.rid.step_id):
                try:
                    async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                        await session.settled.wait()
                except TimeoutError:
                    pass
                if session.phase is Phase.LAUNCHING and self._table.get(session.rid) is session:
                    raise BusyError(f"{session.rid} is being launched; ask again")
        return [s for s in self._named(rid) if wanted(s.rid.step_id)]

    async def _act(self, session: Session, request: pb.AgentCancelJobRequest, number: int | None) -> bool:
        """Do it to one session; True when something of it is still here.  The supervisor compares the
        identity once more, right before the first signal."""
        if session.phase is Phase.FINISHED:
            return True
        try:
            if number is None:
                log.info(
                    "step_ending step=%s reason=%s grace=%d",
                    session.rid,
                    value(request.reason),
                    request.grace_secs,
                )
                await session.link.teardown(request.reason, request.grace_secs)
            else:
                scope = control.LEADER if request.batch_only else control.ALL
                sent = await session.link.signal(number, scope)
                log.info(
                    "step_signalled step=%s signal=%d count=%d path=%s",
                    session.rid,
                    number,
                    sent.count,
                    sent.path,
                )
        except control.Refused as error:
            if error.code == control.IDENTITY_MISMATCH:
                log.error("identity_mismatch step=%s held=%s", session.rid, error.held)
                return False
            log.info("step_refused step=%s error=%s", session.rid, value(error))
        except Unreachable as error:
            self._keeper.suspect(session)
            raise BusyError(error.text) from None
        return session.active

    def _note_mismatch(self, request: pb.AgentCancelJobRequest) -> None:
        others = [str(s.rid) for s in self._table.of_job(request.rid.job_id) if s.active]
        if others:
            log.warning(
                "cancel_mismatch job=%d attempt=%d held=%s",
                request.rid.job_id,
                request.rid.run_attempt,
                ",".join(others),
            )

    async def probe(self, request: pb.ProbeStepdRequest) -> pb.ProbeStepdResponse:
        """What is here of exactly that run.

        Raises:
            RequestError: the identity is not complete.
            StaleTerm: the controller that asks leads no more.
            BusyError: it is being launched, or is to get another supervisor.
        """
        rid = request.rid
        if not rid.job_id or not rid.run_attempt or not rid.HasField("step_id"):
            raise RequestError("rid: job, attempt and step must be given")
        if request.term:  # a controller of the release before tells none
            # What is not here at this answer must not come here by a late launch of a lower term.
            self._terms.check(request.term)
        session = self._table.get(RuntimeId(rid.job_id, rid.run_attempt, rid.step_id))
        if session is not None and session.undecided and self._keeper.verdicts_come():
            # "Not active" would not be true of what it held, and would cost the whole allocation.
            raise BusyError(f"{session.rid} has lost its supervisor; ask again")
        if session is None or not session.active:
            self._keeper.forget_lost(rid.job_id, rid.run_attempt)
            state = "" if session is None else "lost" if session.phase is Phase.LOST else "finished"
            return pb.ProbeStepdResponse(active=False, state=state)
        if session.phase is Phase.LAUNCHING:
            raise BusyError(f"{session.rid} is being launched; ask again")
        answer = pb.ProbeStepdResponse(active=True, state="live", started_at=session.started_at)
        if session.phase is Phase.FINISHED and session.exit is not None:
            answer.state = "finished"
            answer.exit.CopyFrom(exit_message(session.exit))
        return answer
