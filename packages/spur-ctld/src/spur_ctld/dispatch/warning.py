"""Telling the processes of a preempted attempt that its grace runs: SIGCONT and SIGTERM, once a node.

Recorded first, repeated until every node was told or the attempt is being ended; a later leader tells those
that are left.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Final

from spur_core.errors import SpurError
from spur_core.states import JobState
from spur_ctld.dispatch.agents import AgentPool
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.ledger import Ledger
from spur_ctld.state.ops import PreemptTold
from spur_ctld.state.records import Job

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.1
_LAST_PAUSE: Final = 5.0


class Warner:
    """Runs one task per attempt with nodes that were not told.

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
        if key in self._running or self._open(*key) is None:
            return
        task = asyncio.create_task(self._run(*key), name=f"warn-{key}")
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))

    async def stop(self) -> None:
        """Stop telling; a later start goes on from the state."""
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _open(self, job_id: int, attempt: int) -> Job | None:
        job = self._ledger.state.jobs.get(job_id)
        if job is None or job.run_attempt != attempt or job.push is None or not job.push.unwarned:
            return None
        live = job.state in (JobState.RUNNING, JobState.SUSPENDED) and job.fence is None
        return job if live else None

    async def _run(self, job_id: int, attempt: int) -> None:
        pause = _FIRST_PAUSE
        while (job := self._open(job_id, attempt)) is not None:
            assert job.push is not None
            nodes = job.push.unwarned
            done = await asyncio.gather(*(self._tell(job, node) for node in nodes))
            told = tuple(node for node, good in zip(nodes, done, strict=True) if good)
            if told:
                op = PreemptTold(at=self._clock(), job_id=job_id, attempt=attempt, nodes=told)
                try:
                    await self._ledger.commit(op)
                except SpurError as error:
                    log.debug("warning_overtaken job=%d why=%r", job_id, error.text)
                if len(told) == len(nodes):
                    continue
            await self._ledger.job_changed(job_id, pause)
            pause = min(pause * 2, _LAST_PAUSE)

    async def _tell(self, job: Job, node: str) -> bool:
        known = self._ledger.state.nodes.get(node)
        address = node_address(known) if known is not None else ""
        try:
            for number in (signal.SIGCONT, signal.SIGTERM):
                await self._agents.signal(address, job.job_id, job.run_attempt, number)
        except SpurError as error:
            log.info("warning_waits job=%d node=%s error=%r", job.job_id, node, error.text)
            return False
        return True
