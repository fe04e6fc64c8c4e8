"""Telling the controller how a step ended, for as long as it takes.

The end of a job's lifetime step is told once nothing else of the attempt lives here, the other ends are told
and the epilog's result is known, or half a minute after the exit; a failed epilog that is known too late for
that drains the node by a call of its own.  Everything is told again by the next agent until it is
acknowledged on the disk.
"""

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Final

from spur_agent.controller import ControllerLink
from spur_agent.counters import Counters
from spur_agent.logs import value
from spur_agent.report import Verdict, epilog_error, judge, report_request
from spur_agent.sessions import Phase, Session, SessionTable
from spur_core import faults
from spur_core.errors import SpurError
from spur_core.linux import fsync
from spur_proto import controller_pb2 as pb

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 1.0
_LAST_PAUSE: Final = 60.0
#: The end of a job waits for its epilog so long at most.
EPILOG_REPORT_SECS: Final = 30.0
EPILOG_REASON: Final = "epilog script failed"
#: In the session directory: the controller has been told that the epilog failed.
TOLD: Final = "epilog.told"


class Delivery:
    """Of ends to the controller."""

    def __init__(
        self, node: str, table: SessionTable, controller: ControllerLink, counters: Counters
    ) -> None:
        self._node = node
        self._table = table
        self._controller = controller
        self._counters = counters
        self._wake = asyncio.Event()
        self.report_secs = EPILOG_REPORT_SECS

    def wake(self) -> None:
        """The controller is there again: tell it now what waits."""
        self._wake.set()
        self._wake = asyncio.Event()

    async def deliver(self, session: Session) -> None:
        """Return once the controller has everything of this end, or wants nothing of it."""
        await self._complete(session)
        told = await asyncio.to_thread(Path(session.paths.dir, TOLD).exists)
        with_epilog = epilog_error(session) if not told else ""
        verdict = await self._report(session, with_epilog)
        session.reported = True
        for other in self._table.of_attempt(*session.owner):
            other.changed.set()
        if with_epilog and verdict == pb.REPORT_VERDICT_ACCEPTED:
            await asyncio.to_thread(_mark_told, session)
            told = True
        while not session.epilog_known:
            session.changed.clear()
            await session.changed.wait()
        if epilog_error(session) and not told:
            await self._drain(session)
            await asyncio.to_thread(_mark_told, session)

    async def _complete(self, session: Session) -> None:
        """Wait until the attempt is over here, as long as a report may be held back for that."""
        if not session.job_lifetime:
            return
        assert session.exit is not None
        left = min(max(session.exit.ended_at + self.report_secs - time.time(), 0.0), self.report_secs)
        try:
            async with asyncio.timeout(left):
                while not self._is_complete(session):
                    session.changed.clear()
                    await session.changed.wait()
        except TimeoutError:
            log.warning("end_told_early step=%s epilog_known=%s", session.rid, session.epilog_known)

    def _is_complete(self, session: Session) -> bool:
        if session.forgotten:
            return True
        if not session.epilog_known:
            return False
        others = (s for s in self._table.of_attempt(*session.owner) if s is not session)
        return not any(s.lives or (s.phase is Phase.FINISHED and not s.reported) for s in others)

    async def _report(self, session: Session, with_epilog: str) -> int | None:
        """Report until there is a verdict that settles it; the verdict, None = none was needed."""
        pause = _FIRST_PAUSE
        unknown_since: float | None = None
        request = report_request(session, self._node)
        request.epilog_error = with_epilog
        while not session.forgotten:
            said = await self._say(session, request)
            now = time.monotonic()
            if said == pb.REPORT_VERDICT_UNKNOWN:
                unknown_since = now if unknown_since is None else unknown_since
            elif said is not None:
                unknown_since = None
            if judge(said, None if unknown_since is None else now - unknown_since) is Verdict.SETTLED:
                self._counters.add("reported")
                faults.after("reported")
                return said
            pause = await self._pause(pause)
        return None

    async def _pause(self, pause: float) -> float:
        """Wait; the next pause."""
        wake = self._wake
        try:
            async with asyncio.timeout(pause):
                await wake.wait()
            return _FIRST_PAUSE
        except TimeoutError:
            return min(pause * 2, _LAST_PAUSE)

    async def _say(self, session: Session, request: pb.ReportJobStatusRequest) -> int | None:
        """The controller's verdict; None when there is none."""
        try:
            answer: pb.ReportJobStatusResponse = await self._controller.call("ReportJobStatus", request)
        except SpurError as error:
            log.warning("report_failed step=%s error=%s", session.rid, value(error.text))
            return None
        if answer.verdict == pb.REPORT_VERDICT_WRONG_NODE:
            log.error("report_wrong_node step=%s node=%s", session.rid, self._node)
        else:
            log.info("reported step=%s verdict=%s", session.rid, pb.ReportVerdict.Name(answer.verdict))
        return int(answer.verdict)

    async def _drain(self, session: Session) -> None:
        """The epilog's failure was not part of the report."""
        log.error("epilog_failed step=%s error=%s", session.rid, value(epilog_error(session)))
        pause = _FIRST_PAUSE
        request = pb.DrainNodeRequest(node=self._node, reason=EPILOG_REASON)
        while True:
            try:
                await self._controller.call("DrainNode", request)
                break
            except SpurError as error:
                log.warning("drain_failed step=%s error=%s", session.rid, value(error.text))
            pause = await self._pause(pause)
        self._counters.add("drains")


def _mark_told(session: Session) -> None:
    try:
        with open(f"{session.paths.dir}/{TOLD}", "wb") as file:
            os.fsync(file.fileno())
        fsync.sync_dir(session.paths.dir)
    except OSError as error:
        # The next agent would tell it once more, which changes nothing.
        log.warning("epilog_told_not_written step=%s error=%s", session.rid, value(error))
