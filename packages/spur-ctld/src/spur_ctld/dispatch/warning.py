"""Telling the processes of an attempt ahead of its end, once a node.

SIGCONT and SIGTERM tell that the grace of a preemption runs, the signal that the job asked for (`--signal`)
that its limit comes near.

Recorded first, repeated until every node was told or the attempt is being ended; a later leader tells those
that are left.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from spur_core.errors import SpurError
from spur_core.grammar.signals import parse_warn_signal
from spur_core.states import JobState
from spur_ctld.dispatch.agents import AgentPool
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.ledger import Ledger
from spur_ctld.state.cluster import launch_nodes
from spur_ctld.state.ops import PreemptTold, WarnTold
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
        if job is None or job.run_attempt != attempt or not (_preempted(job) or job.unwarned):
            return None
        live = job.state in (JobState.RUNNING, JobState.SUSPENDED) and job.fence is None
        return job if live else None

    async def _run(self, job_id: int, attempt: int) -> None:
        pause = _FIRST_PAUSE
        while (job := self._open(job_id, attempt)) is not None:
            open_nodes = len(_preempted(job)) + len(job.unwarned)
            told = await self._all(job, _preempted(job), self._preempt)
            if told:
                await self._record(PreemptTold(at=self._clock(), job_id=job_id, attempt=attempt, nodes=told))
            warned = await self._all(job, job.unwarned, self._warn)
            if warned:
                await self._record(WarnTold(at=self._clock(), job_id=job_id, attempt=attempt, nodes=warned))
            if len(told) + len(warned) == open_nodes:
                continue
            await self._ledger.job_changed(job_id, pause)
            pause = min(pause * 2, _LAST_PAUSE)

    async def _all(
        self, job: Job, nodes: tuple[str, ...], tell: Callable[[Job, str, str], Awaitable[None]]
    ) -> tuple[str, ...]:
        """The nodes that could be told."""
        done = await asyncio.gather(*(self._tell(job, node, tell) for node in nodes))
        return tuple(node for node, good in zip(nodes, done, strict=True) if good)

    async def _record(self, op: PreemptTold | WarnTold) -> None:
        try:
            await self._ledger.commit(op)
        except SpurError as error:
            log.debug("warning_overtaken job=%d why=%r", op.job_id, error.text)

    async def _tell(self, job: Job, node: str, tell: Callable[[Job, str, str], Awaitable[None]]) -> bool:
        known = self._ledger.state.nodes.get(node)
        try:
            await tell(job, node, node_address(known) if known is not None else "")
        except SpurError as error:
            log.info("warning_waits job=%d node=%s error=%r", job.job_id, node, error.text)
            return False
        return True

    async def _preempt(self, job: Job, node: str, address: str) -> None:
        for number in (signal.SIGCONT, signal.SIGTERM):
            await self._agents.signal(address, job.job_id, job.run_attempt, number)

    async def _warn(self, job: Job, node: str, address: str) -> None:
        """With "B" the batch shell alone, which the first node has; else the steps, as in Slurm."""
        scope, number, _ = parse_warn_signal(job.request.warn_signal)
        shell = "B" in scope
        if shell and (job.request.alloc_only or node != launch_nodes(job)[0]):
            return
        log.info(
            "limit_warning job=%d attempt=%d node=%s signal=%d", job.job_id, job.run_attempt, node, number
        )
        await self._agents.signal(
            address, job.job_id, job.run_attempt, number, batch_only=shell, steps_only=not shell
        )


def _preempted(job: Job) -> tuple[str, ...]:
    """Nodes that have not told their processes of a preemption."""
    return () if job.push is None else job.push.unwarned
