"""Keeping sessions to their end: watch, report, acknowledge, delete.

Order, never another one: the exit is on disk (the supervisor's work), the controller has it, it is
acknowledged, the session is deleted.  Until the controller has it, it is told again for ever.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from spur_agent import leftovers
from spur_agent.allocation import AllocationTable
from spur_agent.controller import ControllerLink
from spur_agent.ledger import Ledger
from spur_agent.logs import value
from spur_agent.report import Verdict, judge, report_request
from spur_agent.sessions import Phase, Session, SessionTable
from spur_core.errors import SpurError, Unreachable
from spur_core.linux import pidfd, procfs
from spur_core.linux.cgroup_layout import Root
from spur_proto import controller_pb2 as pb
from spur_proto_lite import journal, notify
from spur_proto_lite.control import Refused
from spur_proto_lite.descriptor import Descriptor
from spur_proto_lite.errors import CorruptJournal
from spur_proto_lite.exits import ExitRecord
from spur_proto_lite.paths import StatePaths

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 1.0
SWEEP_SECS: Final = 30.0
_LAST_PAUSE: Final = 60.0
#: Unread output of a spooled step is kept for so long after the controller has its exit.
OUTPUT_KEPT_SECS: Final = 300.0
#: An acknowledged supervisor ends once what the step left is killed; then its directory can go.
_END_SECS: Final = 15.0
#: A supervisor that leaves three queries unanswered is taken for dead.
_QUERIES: Final = 3
#: What a stop of the agent may spend on acknowledgements.
_FLUSH_SECS: Final = 0.5
QUERY_PAUSE: Final = 5.0
#: A lost session that the controller never asks about is forgotten after so many heartbeats that told of it,
#: over so many seconds.
_BEATS_TO_FORGET: Final = 5
_FORGET_SECS: Final = 180.0


class Keeper:
    """Owns every session from the moment it runs.

    Args:
        root: where this agent's control groups lie, None without any.
        beat_now: called when the controller should see a changed snapshot soon.
    """

    def __init__(
        self,
        node: str,
        paths: StatePaths,
        table: SessionTable,
        allocation: AllocationTable,
        ledger: Ledger,
        controller: ControllerLink,
        boot_id: str,
        root: Root | None,
        beat_now: Callable[[], None] = lambda: None,
    ) -> None:
        self._node = node
        self._paths = paths
        self._table = table
        self._allocation = allocation
        self._ledger = ledger
        self._controller = controller
        self._boot_id = boot_id
        self._root = root
        self.beat_now = beat_now
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self.replayed = 0
        self.sweep_secs = SWEEP_SECS
        self.query_pause = QUERY_PAUSE

    # -- watching

    def watch(self, session: Session) -> bool:
        """Make the supervisor's death an event; False when it is dead already (that is handled then)."""
        fd = pidfd.open_checked(session.stepd) if session.stepd is not None else None
        if fd is None:
            self._start(self._died(session))
            return False
        session.pidfd = fd
        asyncio.get_running_loop().add_reader(fd, self._on_death, session)
        return True

    def _on_death(self, session: Session) -> None:
        self.unwatch(session)
        session.dead.set()
        self._start(self._died(session))

    def unwatch(self, session: Session) -> None:
        """Stop watching; nothing happens to the supervisor."""
        if session.pidfd is not None:
            asyncio.get_running_loop().remove_reader(session.pidfd)
            os.close(session.pidfd)
            session.pidfd = None

    async def _died(self, session: Session) -> None:
        session.link.close()
        if session.phase is Phase.LAUNCHING:
            return  # the launch finds out by itself
        if session.acknowledged:
            session.quiet.set()  # it has cleaned up, and ended because of that
            return
        if session.phase is Phase.FINISHED:
            # It may have died before it had ended what the step left behind.
            await self.kill_leftovers(session)
            return
        try:
            story = journal.story((await asyncio.to_thread(journal.read, session.paths.journal)).entries)
        except (CorruptJournal, OSError) as error:
            log.error("journal_unreadable step=%s error=%s", session.rid, value(error))
            story = None
        if story is not None and story.exit is not None:
            self.replayed += 1
            await self.kill_leftovers(session)
            self.finish(session, story.exit, story.exit_seq)
            return
        await self.lose(session)

    async def kill_leftovers(self, session: Session) -> None:
        """Kill everything of a step whose supervisor is dead; nothing of it runs afterwards."""
        groups = session.cgroup or leftovers.groups_of(self._root, session.rid)
        found = self._descriptor(session)
        try:
            gone = await asyncio.to_thread(leftovers.kill_step, session.rid, groups, found, self._boot_id)
        except OSError as error:
            log.error("kill_failed step=%s error=%s", session.rid, value(error))
            gone = False
        if not gone:
            log.error("processes_left step=%s", session.rid)
        session.quiet.set()

    async def lose(self, session: Session) -> None:
        """The supervisor is dead and no exit is recorded: kill the step, and let the controller notice."""
        log.error("supervisor_lost step=%s", session.rid)
        await self.kill_leftovers(session)
        session.phase = Phase.LOST
        session.lost_at = time.monotonic()
        self._release(session)
        session.ended.set()
        self.beat_now()

    def _descriptor(self, session: Session) -> Descriptor | None:
        try:
            with open(session.paths.descriptor, "rb") as file:
                return Descriptor.decode(file.read(), session.rid)
        except (OSError, SpurError):
            return None

    # -- ends

    def notified(self, said: notify.Notification) -> str:
        """The answer to a supervisor's push."""
        session = self._table.get(said.rid)
        if session is None:
            return notify.KNOWN if said.rid in self._ledger else notify.DEFERRED
        if session.phase is Phase.LAUNCHING:
            # A short step may end before the launch has its answer; `launched` takes it from here.
            session.exit, session.exit_seq = said.exit, said.seq
        elif session.phase is Phase.FINISHED:
            session.exit_seq = said.seq or session.exit_seq
        else:
            self.finish(session, said.exit, said.seq)
        return notify.ACCEPTED

    def launched(self, session: Session) -> None:
        """The step runs (or has run already)."""
        session.phase = Phase.LIVE
        if session.exit is not None:
            self.finish(session, session.exit, session.exit_seq)
        elif session.pidfd is None:
            self._start(self._died(session))

    def finish(self, session: Session, exit_record: ExitRecord, seq: int) -> None:
        """The step has ended: free its resources and tell the controller."""
        if session.phase is Phase.FINISHED:
            return
        session.phase = Phase.FINISHED
        session.exit, session.exit_seq = exit_record, seq
        if exit_record.started_at:
            session.started_at = exit_record.started_at
        self._release(session)
        session.ended.set()
        log.info(
            "step_ended step=%s code=%d signal=%d oom=%s",
            session.rid,
            exit_record.code,
            exit_record.signal,
            exit_record.oom,
        )
        self._start(self._deliver(session))

    def _release(self, session: Session) -> None:
        """Free the attempt's holding unless another step of it still runs."""
        others = self._table.of_attempt(*session.owner)
        if all(s is session or s.phase in (Phase.FINISHED, Phase.LOST) for s in others):
            self._allocation.release(session.owner)

    def wake(self) -> None:
        """The controller is there again: report now what waits."""
        self._wake.set()
        self._wake = asyncio.Event()

    async def _deliver(self, session: Session) -> None:
        """Report until the controller confirms that it has the exit; only then forget."""
        pause = _FIRST_PAUSE
        unknown_since: float | None = None
        request = report_request(session, self._node)
        while True:
            said = await self._report(session, request)
            now = time.monotonic()
            if said == pb.REPORT_VERDICT_UNKNOWN:
                unknown_since = now if unknown_since is None else unknown_since
            elif said is not None:
                unknown_since = None
            if judge(said, None if unknown_since is None else now - unknown_since) is Verdict.SETTLED:
                break
            wake = self._wake
            try:
                async with asyncio.timeout(pause):
                    await wake.wait()
                pause = _FIRST_PAUSE
            except TimeoutError:
                pause = min(pause * 2, _LAST_PAUSE)
        session.reported = True
        if session.claim.spooled:
            try:
                async with asyncio.timeout(OUTPUT_KEPT_SECS):
                    await session.output_taken.wait()
            except TimeoutError:
                log.info("output_unread step=%s", session.rid)
        await self._acknowledge(session)
        await self.remove(session)

    async def _report(self, session: Session, request: pb.ReportJobStatusRequest) -> int | None:
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

    async def _acknowledge(self, session: Session) -> None:
        """Let the supervisor end, or write the acknowledgement for it when it is dead."""
        pause = 0.02
        while session.pidfd is not None:
            try:
                if session.exit_seq == 0:
                    session.exit_seq = (await session.link.query()).exit_seq
                await session.link.ack(session.exit_seq)
                session.acknowledged = True
                break
            except (Refused, Unreachable) as error:
                log.debug("ack_waits step=%s error=%s", session.rid, value(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)
        else:
            await asyncio.to_thread(_write_acknowledged, session.paths.journal, time.time())
            return
        try:
            async with asyncio.timeout(_END_SECS):
                await session.dead.wait()
        except TimeoutError:
            log.warning("supervisor_lingers step=%s", session.rid)

    async def remove(self, session: Session) -> None:
        """Forget the session: it is acknowledged, lost and known to be, or never ran."""
        self.unwatch(session)
        session.link.close()
        self._table.remove(session)
        self._release(session)
        if session.reported:
            self._ledger.add(session.rid)
        session.quiet.set()
        session.ended.set()
        session.settled.set()
        script_dir = f"{self._paths.spool}/{session.rid.dirname()}"
        quarantine = self._paths.quarantine if session.corrupt else None
        await asyncio.to_thread(leftovers.remove_session, session.paths.dir, script_dir, quarantine)
        session.removed.set()

    async def end_now(self, session: Session, reason: str) -> None:
        """Kill the step; return when certainly nothing of it is left.  Its end is still reported."""
        pause = 0.005
        while not session.quiet.is_set():
            try:
                if session.phase is Phase.LIVE:
                    await session.link.teardown(reason, 0)
                    await self._look(session)
                elif session.pidfd is not None and (await session.link.query()).cleaned:
                    session.quiet.set()
            except (Refused, Unreachable) as error:
                log.debug("end_waits step=%s error=%s", session.rid, value(error))
                if session.pidfd is not None:
                    self.suspect(session)
            event = session.ended if session.phase is Phase.LIVE else session.quiet
            try:
                async with asyncio.timeout(pause):
                    await event.wait()
            except TimeoutError:
                pause = min(pause * 2, 0.5)

    async def _look(self, session: Session) -> bool:
        """Ask the supervisor itself whether the step has ended; true if only now that is known.

        Raises:
            Refused, Unreachable: it does not say.
        """
        seen = await session.link.query()
        if seen.exit is None or not seen.exit_seq or session.phase is not Phase.LIVE:
            return False
        self.finish(session, seen.exit, seen.exit_seq)
        return True

    async def sweep(self) -> None:
        """For ever: ask every running step's supervisor now and then, so that neither a push that never
        arrives nor a supervisor that hangs goes unnoticed."""
        while True:
            await asyncio.sleep(self.sweep_secs)
            for session in self._table:
                if session.phase is not Phase.LIVE or session.pidfd is None:
                    continue
                try:
                    if await self._look(session):
                        self.replayed += 1
                        log.warning("completion_by_replay step=%s count=%d", session.rid, self.replayed)
                except Refused as error:
                    log.warning("query_refused step=%s error=%s", session.rid, value(error))
                except Unreachable:
                    self.suspect(session)

    def suspect(self, session: Session) -> None:
        """A supervisor did not answer: find out whether it still does."""
        if not session.suspected and session.pidfd is not None:
            session.suspected = True
            self._start(self._interrogate(session))

    async def _interrogate(self, session: Session) -> None:
        for _ in range(_QUERIES):
            try:
                await session.link.query()
            except Refused:
                pass
            except Unreachable:
                await asyncio.sleep(self.query_pause)
                continue
            session.suspected = False
            return
        if session.pidfd is not None and session.stepd is not None:
            log.error("supervisor_unresponsive step=%s pid=%d", session.rid, session.stepd.pid)
            pidfd.send_checked(session.stepd, signal.SIGKILL)

    # -- lost sessions

    def beat_heard(self) -> None:
        """The controller has a snapshot that names the lost sessions."""
        if any(s.phase is Phase.FINISHED and not s.reported for s in self._table):
            self.wake()  # it answers, so what waits for it need not wait for its own pause
        for session in self._table:
            if session.phase is Phase.LOST:
                session.told_beats += 1
                long_ago = time.monotonic() - session.lost_at >= _FORGET_SECS
                if session.told_beats >= _BEATS_TO_FORGET and long_ago:
                    self._start(self.remove(session))

    def forget_lost(self, job_id: int, attempt: int) -> None:
        """The controller has been told that nothing of that attempt runs here."""
        for session in self._table.of_attempt(job_id, attempt):
            if session.phase is Phase.LOST:
                self._start(self.remove(session))

    # -- own tasks

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("keeper_failed", exc_info=task.exception())

    async def stop(self) -> None:
        """Stop watching and reporting; the next agent goes on from the disk.

        Steps whose end has reached controller and reader are let go first: their supervisors wait for that
        alone.
        """
        served = [s for s in self._table if s.reported and (s.end_sent or not s.claim.spooled)]
        for session in served:
            session.output_taken.set()
        try:
            async with asyncio.timeout(_FLUSH_SECS):
                await asyncio.gather(*(s.removed.wait() for s in served))
        except TimeoutError:
            log.info("stopping_before_acknowledgement count=%d", len(served))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self._table:
            self.unwatch(session)
            session.link.close()


def _write_acknowledged(path: str, now: float) -> None:
    try:
        writer = journal.JournalWriter(path)
        try:
            writer.append(journal.ACKNOWLEDGED, now, {"by": "controller"})
        finally:
            writer.close()
    except (CorruptJournal, OSError) as error:
        # The directory goes next anyway; this line only matters if the machine stops in between.
        log.warning("ack_not_written journal=%s error=%s", value(path), value(error))


def identity_of(found: Descriptor) -> procfs.Identity:
    """The supervisor that a descriptor names."""
    return procfs.Identity(found.stepd_pid, found.stepd_start_ticks, found.boot_id)
