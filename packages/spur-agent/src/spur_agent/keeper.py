"""Keeping sessions to their end: what each event does to a session, in one place.

Order, never another one: the exit is on disk (the supervisor's work), the controller has it, it is
acknowledged, the session is deleted.  A session whose supervisor died without an exit is kept until the
controller has said what becomes of it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from spur_agent import epilog, leftovers
from spur_agent.allocation import AllocationTable
from spur_agent.chores import Chores
from spur_agent.controller import ControllerLink
from spur_agent.counters import Counters
from spur_agent.delivery import Delivery
from spur_agent.ledger import Ledger
from spur_agent.logs import value
from spur_agent.sessions import Phase, Session, SessionTable, output_sent
from spur_agent.watch import Watch
from spur_core import faults
from spur_core.errors import Unreachable
from spur_core.linux import procfs
from spur_core.linux.cgroup_layout import Root
from spur_proto_lite import journal, notify
from spur_proto_lite.control import Refused
from spur_proto_lite.descriptor import Descriptor
from spur_proto_lite.errors import CorruptJournal
from spur_proto_lite.exits import ExitRecord
from spur_proto_lite.paths import StatePaths

log = logging.getLogger(__name__)

#: Unread output of a spooled step is kept for so long after its end, once the controller has its exit.
OUTPUT_KEPT_SECS: Final = 300.0
#: The same of a step that was ended: its client, most often, with it.
ENDED_KEPT_SECS: Final = 15.0
#: The same when an earlier agent had sent all of it: the client may not have received it.
COME_BACK_SECS: Final = 10.0
#: An acknowledged supervisor ends once what the step left is killed; then its directory can go.
_END_SECS: Final = 15.0
#: What a stop of the agent may spend on acknowledgements.
_FLUSH_SECS: Final = 0.5
#: A supervisor ends the other steps of its attempt within this time; then the agent does.
_OTHERS_SECS: Final = 30.0
#: With a controller that gives no verdicts (of the first release) a lost session is forgotten after so many
#: heartbeats that told of it, over so many seconds.
_BEATS_TO_FORGET: Final = 5
_FORGET_SECS: Final = 180.0


class Keeper:
    """Owns every session from the moment it runs.

    Args:
        root: where this agent's control groups lie, None without any.
        beat_now: called when the controller should see a changed snapshot soon.

    Attributes:
        on_lost: called with each session whose supervisor is lost.
        verdicts_come: whether the controller says what becomes of lost sessions.
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
        counters: Counters | None = None,
    ) -> None:
        self._paths = paths
        self._table = table
        self._allocation = allocation
        self._ledger = ledger
        self._boot_id = boot_id
        self._root = root
        self.beat_now = beat_now
        self.on_lost: Callable[[Session], None] = lambda _session: None
        self.verdicts_come: Callable[[], bool] = lambda: False
        self.counters = counters if counters is not None else Counters()
        self.chores = Chores()
        self.watching = Watch(table, self.chores, self._died, self._looked)
        self.delivery = Delivery(node, table, controller, self.counters)

    # -- watching

    def watch(self, session: Session) -> bool:
        """Make the supervisor's death an event; False when it is dead already (that is handled then)."""
        if self.watching.begin(session):
            return True
        session.dead.set()
        self.chores.start(self._died(session))
        return False

    def unwatch(self, session: Session) -> None:
        """Stop watching; nothing happens to the supervisor."""
        self.watching.end(session)

    def suspect(self, session: Session) -> None:
        """A supervisor did not answer: find out whether it still does."""
        self.watching.suspect(session)

    async def sweep(self) -> None:
        """For ever: see `Watch.sweep`."""
        await self.watching.sweep()

    async def _died(self, session: Session) -> None:
        session.link.close()
        if session.phase is Phase.LAUNCHING:
            return  # the launch finds out by itself
        if session.acknowledged and not leftovers.groups_left(session.cgroup):
            session.quiet.set()  # it has cleaned up, and ended because of that
            return
        if session.phase is Phase.LOST:
            return
        if session.phase is Phase.LIVE:
            try:
                story = journal.story((await asyncio.to_thread(journal.read, session.paths.journal)).entries)
            except (CorruptJournal, OSError) as error:
                log.error("journal_unreadable step=%s error=%s", session.rid, value(error))
                await self.lose(session, "its journal cannot be read")
                return
            if story.exit is None:
                await self.lose(session, "its supervisor died")
                return
            self.counters.add("replayed")
            session.epilog = session.epilog or story.epilog
            self.finish(session, story.exit, story.exit_seq)
        await self.bury(session)

    async def bury(self, session: Session) -> None:
        """The supervisor died after the exit: do what it still had to do."""
        await self.kill_leftovers(session)
        if session.job_lifetime:
            await self._end_others(session)
        if not session.epilog_known:
            session.epilog = await epilog.run_missing(session)
            self.counters.add("epilogs_run")
        self._changed(session)

    async def kill_leftovers(self, session: Session) -> None:
        """Kill everything of a step whose supervisor is dead; nothing of it runs afterwards."""
        if session.rebooted:
            session.quiet.set()  # the machine has booted since: whatever has its numbers now is not its own
            return
        groups = session.cgroup or leftovers.groups_of(self._root, session.rid)
        try:
            gone = await asyncio.to_thread(
                leftovers.kill_step, session.paths, session.rid, groups, session.stepd, self._boot_id
            )
        except OSError as error:
            log.error("kill_failed step=%s error=%s", session.rid, value(error))
            gone = False
        if not gone:
            log.error("processes_left step=%s", session.rid)
        session.quiet.set()

    # -- losses

    async def lose(self, session: Session, why: str) -> None:
        """The supervisor is dead and no exit is recorded: do what the loss of that kind of step asks for on
        this node, and let the controller decide about the rest.

        An extern step's processes go on: a new supervisor may take it over.
        """
        log.error("supervisor_lost step=%s why=%s", session.rid, value(why))
        self.counters.add("lost")
        if not session.restorable:
            await self.kill_leftovers(session)
        session.phase = Phase.LOST
        session.why_lost = why
        session.lost_at = time.monotonic()
        if not session.restorable:
            self._bring_down(session)
        session.ended.set()
        self._changed(session)
        self.on_lost(session)
        self.beat_now()

    async def give_up(self, session: Session) -> None:
        """A lost session that was to be taken over was not: everything of it ends."""
        await self.kill_leftovers(session)
        self._bring_down(session)

    def _bring_down(self, session: Session) -> None:
        self._release(session)
        if session.job_lifetime:
            self.chores.start(self.end_others(session, "node_fail"))

    async def fence(self, session: Session, reason: str, verdict_id: str) -> None:
        """The controller has said that this run must not go on: nothing of it runs afterwards."""
        log.warning("fenced step=%s", session.rid)
        self.counters.add("fenced")
        work = [self._fence_one(session, reason, verdict_id)]
        if session.job_lifetime:
            work.append(self.end_others(session, reason))
        await asyncio.gather(*work)

    async def _fence_one(self, session: Session, reason: str, verdict_id: str) -> None:
        if session.phase is not Phase.LOST:
            await self.end_now(session, reason)
            return
        await self.kill_leftovers(session)
        self._release(session)
        if not (session.corrupt or session.fenced):
            said: dict[str, object] = {"reason": reason, "verdict": verdict_id}
            await asyncio.to_thread(_write_record, session.paths.journal, journal.FENCED, said)
        session.fenced = True

    async def end_others(self, session: Session, reason: str) -> None:
        """End every other step of the same attempt here."""
        others = [s for s in self._table.of_attempt(*session.owner) if s is not session]
        for other in others:
            if other.phase is Phase.LAUNCHING:
                await other.settled.wait()
        await asyncio.gather(*(self.end_now(s, reason) for s in others if s.phase is Phase.LIVE))

    async def _end_others(self, session: Session) -> None:
        """After the end of a job: its supervisor ends its other steps, or we do."""
        others = [s for s in self._table.of_attempt(*session.owner) if s is not session and s.lives]
        if others and session.watched:
            over = asyncio.gather(*(s.ended.wait() for s in others))
            gone = asyncio.ensure_future(session.dead.wait())
            await asyncio.wait((over, gone), timeout=_OTHERS_SECS, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            gone.cancel()
            await asyncio.gather(over, gone, return_exceptions=True)
        if any(s.lives for s in others):
            log.warning("steps_outlive_job step=%s first=%s", session.rid, others[0].rid)
            await self.end_others(session, session.exit.teardown_reason if session.exit else "")

    def restored(self, old: Session, new: Session) -> None:
        """A new supervisor has taken a lost session over."""
        self.counters.add("restored")
        self._allocation.restore(new.owner, new.claim.grant)
        old.quiet.set()

    # -- ends

    def notified(self, said: notify.Notification) -> str:
        """The answer to a supervisor's push."""
        answer = self._notified(said)
        name = "pushed" if answer == notify.ACCEPTED else answer
        self.counters.add(name)
        if answer == notify.ACCEPTED:
            faults.after("notified")
        return answer

    def _notified(self, said: notify.Notification) -> str:
        session = self._table.get(said.rid)
        if session is None:
            return notify.KNOWN if said.rid in self._ledger else notify.DEFERRED
        if session.phase is Phase.LOST:
            return notify.SUPERSEDED
        if said.epilog is not None and session.epilog is None:
            session.epilog = said.epilog
            session.changed.set()
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
        elif not session.watched:
            self.chores.start(self._died(session))

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
        self._changed(session)
        if session.job_lifetime and session.watched:
            self.chores.start(self._end_others(session))
        self.chores.start(self._deliver(session))

    def _changed(self, session: Session) -> None:
        """Let whoever waits for the end of the attempt here look again."""
        for one in self._table.of_attempt(*session.owner):
            one.changed.set()
        session.changed.set()

    def _release(self, session: Session) -> None:
        """Free the attempt's holding unless another step of it still runs, or may be taken over."""
        others = self._table.of_attempt(*session.owner)
        if not any(s is not session and (s.lives or not _is_over(s)) for s in others):
            self._allocation.release(session.owner)

    def wake(self) -> None:
        """The controller is there again: report now what waits."""
        self.delivery.wake()

    async def _deliver(self, session: Session) -> None:
        """Report until the controller confirms that it has the exit; only then forget."""
        await self.delivery.deliver(session)
        if session.claim.spooled:
            try:
                async with asyncio.timeout(await self._kept_secs(session)):
                    await session.output_taken.wait()
            except TimeoutError:
                log.info("output_unread step=%s", session.rid)
        await self._acknowledge(session)
        await self.remove(session)

    @staticmethod
    async def _kept_secs(session: Session) -> float:
        """How long its output is kept for a client that has not taken it."""
        if await asyncio.to_thread(output_sent, session):
            return COME_BACK_SECS
        return kept_secs(session.exit, time.time())

    async def _acknowledge(self, session: Session) -> None:
        """Let the supervisor end, or write the acknowledgement for it when it is dead."""
        pause = 0.02
        while session.watched:
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
            # What the step left behind must be gone before anything of it is deleted.
            await session.quiet.wait()
            said: dict[str, object] = {"by": "controller"}
            await asyncio.to_thread(_write_record, session.paths.journal, journal.ACKNOWLEDGED, said)
            return
        try:
            async with asyncio.timeout(_END_SECS):
                await session.dead.wait()
                # It may have died before it had ended what the step left behind.
                await session.quiet.wait()
        except TimeoutError:
            log.warning("supervisor_lingers step=%s", session.rid)

    async def remove(self, session: Session) -> None:
        """Forget the session: it is acknowledged, lost and known to be, or never ran."""
        if session.phase is Phase.LOST and not session.quiet.is_set():
            await self.kill_leftovers(session)
        self.unwatch(session)
        session.link.close()
        self._table.remove(session)
        self._release(session)
        if session.reported:
            self._ledger.add(session.rid)
        session.quiet.set()
        session.ended.set()
        session.settled.set()
        self._changed(session)
        scripts = leftovers.script_dirs(self._paths, session.rid)
        quarantine = self._paths.quarantine if session.corrupt else None
        scratch = leftovers.scratch_of(session.uid, session.rid) if session.job_lifetime else None
        await asyncio.to_thread(leftovers.remove_session, session.paths.dir, scripts, quarantine, scratch)
        session.removed.set()

    async def end_now(self, session: Session, reason: str) -> None:
        """Kill the step; return when certainly nothing of it is left.  Its end is still reported."""
        pause = 0.005
        while not session.quiet.is_set():
            try:
                if session.phase is Phase.LIVE:
                    await session.link.teardown(reason, 0)
                    await self._look(session)
                elif session.watched and (await session.link.query()).cleaned:
                    session.quiet.set()
            except (Refused, Unreachable) as error:
                log.debug("end_waits step=%s error=%s", session.rid, value(error))
                if session.watched:
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
        if seen.epilog is not None and session.epilog is None:
            session.epilog = seen.epilog
            session.changed.set()
        if seen.exit is None or not seen.exit_seq or session.phase is not Phase.LIVE:
            return False
        self.finish(session, seen.exit, seen.exit_seq)
        return True

    async def _looked(self, session: Session) -> None:
        """The sweep's look: an end that only it finds came by no push."""
        if await self._look(session):
            self.counters.add("replayed")
            log.warning("completion_by_replay step=%s count=%d", session.rid, self.counters["replayed"])

    # -- what the controller says

    def forget(self, session: Session) -> None:
        """The controller wants nothing of this run: clean up."""
        session.forgotten = True
        if session.phase is Phase.LOST:
            self.chores.start(self.remove(session))
            return
        session.changed.set()
        self.wake()
        # Of a step that has ended the controller has all it wants; its client may still want the output.
        if session.phase is Phase.LIVE:
            session.output_taken.set()
            self.chores.start(self.end_now(session, ""))

    def beat_heard(self) -> None:
        """The controller has a snapshot that names the lost sessions."""
        if any(s.phase is Phase.FINISHED and not s.reported for s in self._table):
            self.wake()  # it answers, so what waits for it need not wait for its own pause
        if self.verdicts_come():
            return
        for session in self._table:
            if session.phase is Phase.LOST:
                session.told_beats += 1
                long_ago = time.monotonic() - session.lost_at >= _FORGET_SECS
                if session.told_beats >= _BEATS_TO_FORGET and long_ago:
                    self.chores.start(self.remove(session))

    def forget_lost(self, job_id: int, attempt: int) -> None:
        """The controller has been told that nothing of that attempt runs here."""
        if self.verdicts_come():
            return
        for session in self._table.of_attempt(job_id, attempt):
            if session.phase is Phase.LOST:
                self.chores.start(self.remove(session))

    # -- the agent's own end

    async def stop(self) -> None:
        """Stop watching and reporting; the next agent goes on from the disk.

        Steps whose end has reached controller and reader are let go first: their supervisors wait for that
        alone.
        """
        served = [s for s in self._table if s.reported and (s.end_sent or not s.claim.spooled)]
        served = [s for s in served if s.epilog_known]
        for session in served:
            session.output_taken.set()
        try:
            async with asyncio.timeout(_FLUSH_SECS):
                await asyncio.gather(*(s.removed.wait() for s in served))
        except TimeoutError:
            log.info("stopping_before_acknowledgement count=%d", len(served))
        await self.chores.stop()
        for session in self._table:
            self.unwatch(session)
            session.link.close()


def kept_secs(ended: ExitRecord | None, now: float) -> float:
    """Seconds from `now` on for which the unread output of a step is kept; agents that die do not renew it.

    Args:
        ended: how the step ended; None = nobody knows.
        now: seconds since the epoch.
    """
    if ended is None or not ended.ended_at:
        return OUTPUT_KEPT_SECS
    if ended.teardown_reason:
        return ENDED_KEPT_SECS
    left = OUTPUT_KEPT_SECS - (now - ended.ended_at)
    return min(max(left, ENDED_KEPT_SECS), OUTPUT_KEPT_SECS)


def _is_over(session: Session) -> bool:
    """Nothing of it holds anything any more."""
    return session.phase is Phase.FINISHED or (session.phase is Phase.LOST and session.quiet.is_set())


def _write_record(path: str, event: str, data: dict[str, Any]) -> None:
    """In place of a dead supervisor."""
    try:
        writer = journal.JournalWriter(path)
        try:
            writer.append(event, time.time(), data)
        finally:
            writer.close()
    except (CorruptJournal, OSError) as error:
        # The directory goes next anyway; this line only matters if the machine stops in between.
        log.warning("record_not_written event=%s journal=%s error=%s", event, value(path), value(error))


def identity_of(found: Descriptor) -> procfs.Identity:
    """The supervisor that a descriptor names."""
    return procfs.Identity(found.stepd_pid, found.stepd_start_ticks, found.boot_id)
