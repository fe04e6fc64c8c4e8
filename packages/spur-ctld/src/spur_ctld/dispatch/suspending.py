"""Telling the nodes of an attempt that it was suspended, or resumed: recorded first, repeated until done."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from spur_core.errors import SpurError
from spur_core.states import JobState
from spur_ctld.dispatch.agents import AgentPool
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.ledger import Ledger
from spur_ctld.state.ops import SuspendTold
from spur_ctld.state.records import Job

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.1
_LAST_PAUSE: Final = 5.0


class Suspender:
    """Runs one task per attempt whose nodes are still to be told.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, ledger: Ledger, agents: AgentPool, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._agents = agents
        self._clock = clock
        self._running: dict[tuple[int, int], asyncio.Task[None]] = {}

    def look(self, job: Job) -> None:
        """Begin to tell, unless somebody does."""
        key = (job.job_id, job.run_attempt)
        if not job.untold or key in self._running:
            return
        task = asyncio.create_task(self._run(*key), name=f"suspend-{key}")
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))

    async def stop(self) -> None:
        """Stop telling; a later start goes on from the state."""
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _open(self, job_id: int, attempt: int) -> Job | None:
        job = self._ledger.state.jobs.get(job_id)
        if job is None or job.run_attempt != attempt or not job.untold:
            return None
        return job if job.state in (JobState.RUNNING, JobState.SUSPENDED) else None

    async def _run(self, job_id: int, attempt: int) -> None:
        pause = _FIRST_PAUSE
        while (job := self._open(job_id, attempt)) is not None:
            suspended = job.state is JobState.SUSPENDED
            nodes = job.untold
            done = await asyncio.gather(*(self._tell(job, node, resume=not suspended) for node in nodes))
            told = tuple(node for node, good in zip(nodes, done, strict=True) if good)
            if told:
                op = SuspendTold(
                    at=self._clock(), job_id=job_id, attempt=attempt, nodes=told, suspended=suspended
                )
                try:
                    await self._ledger.commit(op)
                    if len(told) == len(nodes):
                        pause = _FIRST_PAUSE
                        continue
                except SpurError as error:
                    # Suspended or resumed again meanwhile: the next round tells that.
                    log.debug("suspend_overtaken job=%d why=%r", job_id, error.text)
            await self._ledger.job_changed(job_id, pause)
            pause = min(pause * 2, _LAST_PAUSE)

    async def _tell(self, job: Job, node: str, *, resume: bool) -> bool:
        known = self._ledger.state.nodes.get(node)
        address = node_address(known) if known is not None else ""
        try:
            await self._agents.suspend(address, job.job_id, job.run_attempt, resume=resume)
        except SpurError as error:
            log.info("suspend_waits job=%d node=%s error=%r", job.job_id, node, error.text)
            return False
        return True
