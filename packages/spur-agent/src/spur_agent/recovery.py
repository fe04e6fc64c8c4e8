"""Telling the controller what was found of supervisors, and doing what it says about each.

After the first registration everything that the scan found is reported; later every supervisor that is
lost.  An entry is repeated every few seconds until its verdict is final: KEEP for one that lives or has
ended, FORGET for any.  A controller of the first release gives no verdicts; then lost sessions go by the
older rules.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import grpc

from spur_agent.controller import ControllerLink, NodeCredential, Refused
from spur_agent.keeper import Keeper
from spur_agent.logs import value
from spur_agent.membership import rid_message
from spur_agent.sessions import Phase, Session, SessionTable
from spur_core.errors import SpurError
from spur_core.ids import RuntimeId
from spur_proto import controller_pb2 as pb

log = logging.getLogger(__name__)

#: Between two reports of the same entry.
REPEAT_SECS: Final = 3.0
#: Between two tries of a controller that knows no such report.
_UNSUPPORTED_SECS: Final = 30.0
#: Launches wait so long for the answer to the first report; after that it counts as queued.
FIRST_SECS: Final = 3.0
#: Entries of one report.
_MOST: Final = 1000
#: A lost run that has been fenced and is told to be fenced again so often is nobody's any more.
_FENCES: Final = 2

_STATES: Final = {
    Phase.LIVE: pb.RECOVERY_STATE_LIVE,
    Phase.FINISHED: pb.RECOVERY_STATE_FINISHED,
    Phase.LOST: pb.RECOVERY_STATE_STALE,
}


class Recovery:
    """The reports and their verdicts.

    Args:
        take_over: starts a new supervisor for a lost session; the session under it, or None.

    Attributes:
        first_done: set once the first report was answered, or is queued.
    """

    def __init__(
        self,
        node: str,
        boot_id: str,
        controller: ControllerLink,
        credential: NodeCredential,
        table: SessionTable,
        keeper: Keeper,
        take_over: Callable[[Session], Awaitable[Session | None]],
    ) -> None:
        self._node = node
        self._boot_id = boot_id
        self._controller = controller
        self._credential = credential
        self._table = table
        self._keeper = keeper
        self._take_over = take_over
        #: Identities to be reported -> how often their fence was asked for.
        self._pending: dict[RuntimeId, int] = {}
        self._busy: set[RuntimeId] = set()
        self._wake = asyncio.Event()
        self.first_done = asyncio.Event()
        self.supported = True
        self.repeat_secs = REPEAT_SECS

    def scanned(self) -> None:
        """Everything in the table is to be reported."""
        for session in self._table:
            self.note(session)

    def note(self, session: Session) -> None:
        """This one is to be reported, now."""
        self._pending.setdefault(session.rid, 0)
        self._wake.set()

    async def run(self, registered: asyncio.Event) -> None:
        """For ever, from the first registration on."""
        await registered.wait()
        self._wake.clear()
        try:
            async with asyncio.timeout(FIRST_SECS):
                await self._round()
        except TimeoutError:
            log.warning("recovery_report_queued count=%d", len(self._pending))
        self.first_done.set()
        while True:
            await self._rest()
            self._wake.clear()
            await self._round()

    async def _rest(self) -> None:
        """Until there is something to be reported (again)."""
        pause = None
        if self._pending:
            pause = self.repeat_secs if self.supported else _UNSUPPORTED_SECS
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _round(self) -> None:
        entries = self._entries()
        for at in range(0, len(entries), _MOST):
            request = pb.ReportStepdRecoveryRequest(
                hostname=self._node,
                node_token=self._credential.token(),
                boot_id=self._boot_id,
                entries=entries[at : at + _MOST],
            )
            try:
                answer: pb.ReportStepdRecoveryResponse = await self._controller.call(
                    "ReportStepdRecovery", request
                )
            except Refused as error:
                if error.status is grpc.StatusCode.UNIMPLEMENTED:
                    if self.supported:
                        log.warning("recovery_unsupported error=%s", value(error.text))
                    self.supported = False
                    return
                log.error("recovery_refused error=%s", value(error.text))
                return
            except SpurError as error:
                log.warning("recovery_failed error=%s", value(error.text))
                return
            self.supported = True
            for one in answer.answers:
                self._judge(one)

    def _entries(self) -> list[pb.RecoveryEntry]:
        entries = []
        for rid in list(self._pending):
            session = self._table.get(rid)
            if session is None:
                del self._pending[rid]
            elif session.phase in _STATES and rid not in self._busy:
                state = pb.RECOVERY_STATE_CORRUPT if session.corrupt else _STATES[session.phase]
                detail = "fenced" if session.fenced and session.phase is Phase.LOST else session.why_lost
                entries.append(pb.RecoveryEntry(rid=rid_message(rid), state=state, detail=detail))
        return entries

    def _judge(self, answer: pb.RecoveryAnswer) -> None:
        said = answer.rid
        if not said.HasField("step_id"):
            return
        rid = RuntimeId(said.job_id, said.run_attempt, said.step_id)
        # Exactly this run, as it is now: it may have gone while the report was on its way.
        session = self._table.get(rid)
        if session is None or session.phase not in _STATES or rid in self._busy or rid not in self._pending:
            return
        verdict = answer.verdict
        log.info("verdict step=%s verdict=%s id=%s", rid, pb.RecoveryVerdict.Name(verdict), answer.verdict_id)
        if verdict == pb.RECOVERY_VERDICT_FORGET:
            del self._pending[rid]
            self._keeper.forget(session)
        elif verdict == pb.RECOVERY_VERDICT_KEEP and session.phase is not Phase.LOST:
            del self._pending[rid]
        elif verdict == pb.RECOVERY_VERDICT_FENCE:
            self._pending[rid] += 1
            if session.phase is Phase.LOST and session.fenced and self._pending[rid] >= _FENCES:
                # It has been told that nothing of it is left here, and wants nothing else.
                del self._pending[rid]
                self._keeper.forget(session)
                return
            self._do(rid, lambda: self._keeper.fence(session, "node_fail", answer.verdict_id))
        elif verdict == pb.RECOVERY_VERDICT_RESTORE and session.phase is Phase.LOST:
            self._do(rid, lambda: self._take_over(session))

    def _do(self, rid: RuntimeId, work: Callable[[], Awaitable[object]]) -> None:
        """Carry it out; until then the entry is not reported, after that at once."""

        async def run() -> None:
            try:
                await work()
            finally:
                self._busy.discard(rid)
                self._wake.set()

        self._busy.add(rid)
        self._keeper.chores.start(run())
