"""The shell around cohorts and policy: reports in, verdicts out, fences committed, nodes probed.

A loss is committed to the log before any agent is told to end something because of it.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Final, NamedTuple

from spur_core.errors import BusyError, SpurError
from spur_core.ids import RuntimeId
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.node_memory import Held
from spur_ctld.recovery.cohorts import Cohort, Cohorts, Loss, Probe, Verdict
from spur_ctld.recovery.policy import (
    Life,
    Standing,
    belongs,
    cohort,
    fixed_verdict,
    loss_op,
    members,
    restorable,
    standing,
)
from spur_ctld.site import Site
from spur_ctld.state.apply_complete import step_of

log = logging.getLogger(__name__)

#: Probes in flight at once.
_MOST_PROBES: Final = 64
#: A node's list this many heartbeats old still says that a supervisor lives.
_FRESH_BEATS: Final = 2
#: Between tries to end what should not be there, in seconds.
_END_PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
#: Nothing of such an attempt is wanted anywhere; else only one step of it is not.
_WHOLE: Final = frozenset({Standing.FORGOTTEN, Standing.OVER, Standing.OLDER})


class Entry(NamedTuple):
    """One line of a report."""

    rid: RuntimeId
    life: Life
    detail: str


class Answer(NamedTuple):
    """The verdict on it."""

    rid: RuntimeId
    verdict: Verdict
    verdict_id: str


class Recovery:
    """Everything that brings runs and reality together again after something was away."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._cohorts = Cohorts(self._look, float(site.settings.recovery_grace_secs))
        #: Losses that are not in the log yet.
        self._losses: dict[tuple[RuntimeId, str], Loss] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._probes = asyncio.Semaphore(_MOST_PROBES)
        self._ending: set[tuple[str, int, int, int | None]] = set()
        self._verdicts = 0

    def _look(self, rid: RuntimeId) -> Cohort | None:
        return cohort(self._site.ledger.state, rid)

    # -- reports

    async def report(self, node: str, entries: Iterable[Entry]) -> list[Answer]:
        """Verdicts on what `node` found, in order.  A run that it should not know of has no effect here."""
        given = [(entry, self._first_verdict(node, entry)) for entry in entries]
        await self._carry_out()
        return [self._answer(node, entry, verdict) for entry, verdict in given]

    def _first_verdict(self, node: str, entry: Entry) -> Verdict:
        site, rid = self._site, entry.rid
        state, now = site.ledger.state, site.monotonic()
        found = standing(state, node, rid)
        fixed = fixed_verdict(found, entry.life)
        if fixed is not None:
            if entry.life is Life.LIVE and found in _WHOLE:
                self._end_obsolete(node, rid)
            return fixed
        if entry.life is not Life.GONE:
            verdict = self._cohorts.live(rid, node, now, self._fresh(rid, now))
            return Verdict.KEEP if entry.life is Life.FINISHED else verdict
        why = f"its supervisor on {node} was lost"
        job = state.jobs[rid.job_id]
        if rid.step_id != step_of(job):
            # Nothing of the step is left on that node, so there is nothing more to say to it.
            self._note(Loss(rid, node, why))
            return Verdict.FORGET
        verdict = self._cohorts.lost(rid, node, now, why, restorable=restorable(rid, entry.detail))
        if verdict is Verdict.RESTORE:
            log.warning("extern_lost step=%s node=%s detail=%r", rid, node, entry.detail[:200])
        return verdict

    def _answer(self, node: str, entry: Entry, verdict: Verdict) -> Answer:
        """What goes out, now that losses are in the log: an end is ordered only if it is recorded."""
        rid = entry.rid
        if (rid, node) in self._losses or (verdict is Verdict.FENCE and self._undecided(node, entry)):
            verdict = Verdict.WAIT
        self._verdicts += 1
        verdict_id = f"{self._site.term()}.{self._verdicts}"
        if verdict is not Verdict.KEEP or entry.life is not Life.LIVE:
            log.info(
                "recovery_verdict step=%s node=%s said=%s verdict=%s id=%s",
                rid,
                node,
                entry.life.value,
                verdict.name,
                verdict_id,
            )
        return Answer(rid, verdict, verdict_id)

    def _undecided(self, node: str, entry: Entry) -> bool:
        found = standing(self._site.ledger.state, node, entry.rid)
        return found in (Standing.CURRENT, Standing.LAUNCHING, Standing.NEVER_ISSUED)

    def _fresh(self, rid: RuntimeId, now: float) -> list[str]:
        """Nodes of the run whose last list, not long ago, named it as alive."""
        site = self._site
        job = site.ledger.state.jobs[rid.job_id]
        run = members(job, rid.step_id)
        since = now - _FRESH_BEATS * site.settings.heartbeat_secs
        return [] if run is None else [n for n in run.nodes if site.memory.names_live(n, rid, since)]

    # -- heartbeats

    async def reconcile(self, node: str, held: list[Held]) -> None:
        """Compare a consistent list with the state, and undo what differs, by exact identity."""
        site = self._site
        now = site.monotonic()
        findings = site.memory.compare(site.ledger.state, node, held, now)
        self._cohorts.seen(node, (rid for rid, life in held if life == "live"), now)
        for rid, why in findings.lost:
            self._note(Loss(rid, node, why))
        for rid in findings.obsolete:
            self._end_obsolete(node, rid)
        await self._carry_out()

    def _end_obsolete(self, node: str, rid: RuntimeId) -> None:
        whole = standing(self._site.ledger.state, node, rid) in _WHOLE
        key = (node, rid.job_id, rid.run_attempt, None if whole else rid.step_id)
        if key not in self._ending:
            self._ending.add(key)
            log.warning("obsolete step=%s node=%s", rid, node)
            self._start(self._end(key, rid))

    async def _end(self, key: tuple[str, int, int, int | None], rid: RuntimeId) -> None:
        """A node that has just come back may not be reached at once; its next list starts this anew."""
        site, node = self._site, key[0]
        try:
            for pause in _END_PAUSES:
                known = site.ledger.state.nodes.get(node)
                # Looked at again right before sending; the agent and the supervisor compare once more.
                if known is None or belongs(site.ledger.state, node, rid):
                    return
                try:
                    if key[3] is None:
                        await site.agents.end(
                            node_address(known), rid.job_id, rid.run_attempt, 0, "superseded"
                        )
                    else:
                        await site.agents.end_step(node_address(known), rid, 0, "superseded")
                    return
                except BusyError as error:
                    log.info("obsolete_waits step=%s node=%s error=%r", rid, node, error.text)
                await asyncio.sleep(pause)
        except SpurError as error:
            log.warning("obsolete_refused step=%s node=%s error=%r", rid, node, error.text)
        finally:
            self._ending.discard(key)

    # -- losses

    def _note(self, loss: Loss) -> None:
        self._losses.setdefault((loss.rid, loss.node), loss)

    async def tick(self) -> None:
        """Deadlines, probes that are due, and losses that could not be committed before."""
        if self._losses or len(self._cohorts):
            await self._carry_out()

    async def _carry_out(self) -> None:
        decisions = self._cohorts.due(self._site.monotonic())
        for loss in decisions.losses:
            self._note(loss)
        for probe in decisions.probes:
            self._start(self._probe(probe))
        if self._losses:
            await asyncio.gather(*(self._commit(key, loss) for key, loss in list(self._losses.items())))

    async def _commit(self, key: tuple[RuntimeId, str], loss: Loss) -> None:
        """Record what a loss costs; the log decides which of racing reports has its way."""
        op = loss_op(self._site.ledger.state, loss, self._site.clock())
        try:
            if op is not None:
                await self._site.ledger.commit(op)
                log.warning("supervisor_lost step=%s node=%s why=%r", loss.rid, loss.node, loss.why)
        except BusyError as error:
            log.warning("loss_waits step=%s node=%s error=%r", loss.rid, loss.node, error.text)
            return
        except SpurError as error:
            log.info("loss_overtaken step=%s node=%s why=%r", loss.rid, loss.node, error.text)
        self._losses.pop(key, None)

    # -- probes

    async def _probe(self, probe: Probe) -> None:
        site = self._site
        known = site.ledger.state.nodes.get(probe.node)
        async with self._probes:
            try:
                answer = await site.agents.probe(node_address(known) if known is not None else "", probe.rid)
            except SpurError as error:
                log.info("probe_unanswered step=%s node=%s error=%r", probe.rid, probe.node, error.text)
                return
        self._cohorts.probed(probe.rid, probe.node, answer.active, site.monotonic())
        await self._carry_out()

    # -- tasks

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("recovery_failed", exc_info=task.exception())

    async def stop(self) -> None:
        """Drop everything; the next leader rebuilds it from repeated reports."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
