"""Cancelling, signalling and probing by exact identity."""

import asyncio
import logging
from typing import Final

from spur_agent.keeper import Keeper
from spur_agent.logs import value
from spur_agent.report import exit_message
from spur_agent.sessions import Phase, Session, SessionTable
from spur_core.errors import BusyError, RequestError, Unreachable, WrongState
from spur_core.ids import STEP_BATCH, RuntimeId
from spur_proto import agent_pb2 as pb
from spur_proto_lite import control

log = logging.getLogger(__name__)

_LAST_SIGNAL: Final = 64
#: A cancel that meets a launch waits so long for its end before it says "ask again".
_LAUNCH_WAIT_SECS: Final = 4.0


class Terms:
    """The highest controller term seen; a deposed controller must not launch or kill."""

    def __init__(self) -> None:
        self.highest = 0

    def see(self, term: int) -> None:
        """A controller with that term has been accepted."""
        self.highest = max(self.highest, term)

    def check(self, term: int) -> None:
        """Refuse a lower term, remember a higher one.

        Raises:
            WrongState: it is lower.
        """
        if term < self.highest:
            raise WrongState(f"term {term} is over, the controller's term is {self.highest}")
        self.highest = term


class ControlCalls:
    """Answers CancelJob and ProbeStepd."""

    def __init__(self, table: SessionTable, keeper: Keeper, terms: Terms) -> None:
        self._table = table
        self._keeper = keeper
        self._terms = terms

    async def cancel(self, request: pb.AgentCancelJobRequest) -> pb.AgentCancelJobResponse:
        """End, or signal, one step or every step of exactly that attempt.

        Not active means that nothing of that attempt is here: also when another attempt is, which is
        not touched.

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
        self._terms.check(request.term)
        active = False
        for session in await self._settled(request):
            active = await self._act(session, request, number) or active
        if not active:
            self._note_mismatch(request)
            self._keeper.forget_lost(rid.job_id, rid.run_attempt)
        return pb.AgentCancelJobResponse(active=active)

    def _targets(self, request: pb.AgentCancelJobRequest) -> list[Session]:
        rid = request.rid
        found = self._table.of_attempt(rid.job_id, rid.run_attempt)
        if rid.HasField("step_id"):
            found = [s for s in found if s.rid.step_id == rid.step_id]
        elif request.batch_only:
            found = [s for s in found if s.rid.step_id == STEP_BATCH]
        return [s for s in found if s.active]

    async def _settled(self, request: pb.AgentCancelJobRequest) -> list[Session]:
        """The targets, once none of them is being launched any more."""
        for session in self._targets(request):
            if session.phase is Phase.LAUNCHING:
                try:
                    async with asyncio.timeout(_LAUNCH_WAIT_SECS):
                        await session.settled.wait()
                except TimeoutError:
                    pass
                if session.phase is Phase.LAUNCHING and self._table.get(session.rid) is session:
                    raise BusyError(f"{session.rid} is being launched; ask again")
        return self._targets(request)

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
            BusyError: it is being launched.
        """
        rid = request.rid
        if not rid.job_id or not rid.run_attempt or not rid.HasField("step_id"):
            raise RequestError("rid: job, attempt and step must be given")
        session = self._table.get(RuntimeId(rid.job_id, rid.run_attempt, rid.step_id))
        if session is None or not session.active:
            self._keeper.forget_lost(rid.job_id, rid.run_attempt)
            return pb.ProbeStepdResponse(active=False)
        if session.phase is Phase.LAUNCHING:
            raise BusyError(f"{session.rid} is being launched; ask again")
        answer = pb.ProbeStepdResponse(active=True, state="live", started_at=session.started_at)
        if session.phase is Phase.FINISHED and session.exit is not None:
            answer.state = "finished"
            answer.exit.CopyFrom(exit_message(session.exit))
        return answer
