"""Making certain that a fenced attempt does not run on, node by node.  Resumable from state alone.

1. The agent is told to end every step of exactly that attempt (TERM, grace, KILL).
2. A launch of the same attempt that is still in flight is waited for.
3. The node is crossed off when the agent says that nothing of the attempt is there, by its answer and by a
   probe; or when its exit was reported, or the node registered after another boot, which `apply` does by
   itself.
A node that cannot be reached is asked again for ever.  Without its word it is crossed off only when it is
down and somebody answers for it: an administrator, who set it down by hand, or the configuration
(`fence_unreachable = "requeue"`).
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Final

from spur_core import faults
from spur_core.errors import BusyError, SpurError, Unreachable
from spur_core.states import NodeAvail
from spur_ctld.dispatch.agents import AgentBusy, AgentPool, AgentRefused
from spur_ctld.dispatch.launch_spec import runtime_id
from spur_ctld.dispatch.launcher import Launcher
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.ledger import Ledger
from spur_ctld.state.ops import FenceConfirm
from spur_ctld.state.records import Fence, Job

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.1
_LAST_PAUSE: Final = 5.0
#: An ended step's own report gets this long to arrive before its node is crossed off without it.
REPORT_WAIT_SECS: Final = 5.0
#: An administrator may set a node down in the very second in which its agent restarts: so long, in seconds,
#: it must have been out of reach before his word stands for its own.
ADMIN_WORD_SECS: Final = 10.0
#: Ends that the job's user may prepare for; every other fence kills at once.
_GENTLE: Final = frozenset({"cancelled", "timeout", "requeue", "preempted"})


def grace_left(fence: Fence, kill_wait_secs: int, now: float) -> int:
    """Seconds between TERM and KILL that a fence still allows; repeats shorten, they never lengthen."""
    if fence.why not in _GENTLE:
        return 0
    return max(0, min(kill_wait_secs, round(kill_wait_secs - (now - fence.at))))


class Fencer:
    """Runs one task per (job, attempt, node) that a committed fence names.

    Args:
        clock: seconds since the epoch.
        accept_risk: cross a node that is down off without its word.
    """

    def __init__(
        self,
        ledger: Ledger,
        agents: AgentPool,
        launcher: Launcher,
        clock: Callable[[], float],
        accept_risk: bool = False,
    ) -> None:
        self._ledger = ledger
        self._agents = agents
        self._launcher = launcher
        self._clock = clock
        self._accept_risk = accept_risk
        self._running: dict[tuple[int, int, str], asyncio.Task[None]] = {}

    def look(self, job: Job) -> None:
        """Start what the job's fence asks for and nobody does yet."""
        if job.fence is None:
            return
        for node in job.fence.targets:
            key = (job.job_id, job.run_attempt, node)
            if key not in self._running:
                task = asyncio.create_task(self._guarded(*key), name=f"fence-{key}")
                self._running[key] = task
                task.add_done_callback(functools.partial(self._done, key))

    def _done(self, key: tuple[int, int, str], _: object) -> None:
        self._running.pop(key, None)

    async def stop(self) -> None:
        """Stop asking; a later start goes on from the state."""
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _open(self, job_id: int, attempt: int, node: str) -> Job | None:
        job = self._ledger.state.jobs.get(job_id)
        if job is None or job.run_attempt != attempt or job.fence is None or node not in job.fence.targets:
            return None
        return job

    async def _guarded(self, job_id: int, attempt: int, node: str) -> None:
        """A fence is never given up, not even for a fault of ours."""
        while True:
            try:
                await self._fence(job_id, attempt, node)
                return
            except Exception:
                log.exception("fence_broke job=%d attempt=%d node=%s", job_id, attempt, node)
                await asyncio.sleep(_LAST_PAUSE)

    async def _fence(self, job_id: int, attempt: int, node: str) -> None:
        faults.after("fence_begun")
        pause = _FIRST_PAUSE
        ended_since: float | None = None
        silent_since: float | None = None
        complained = False
        while (job := self._open(job_id, attempt, node)) is not None:
            assert job.fence is not None
            try:
                over, finished = await self._ask(job, node)
                silent_since = None
                if finished and ended_since is None:
                    ended_since = self._clock()
                waited = ended_since is not None and self._clock() - ended_since >= REPORT_WAIT_SECS
                if over or (finished and waited):
                    await self._ledger.commit(
                        FenceConfirm(at=self._clock(), job_id=job_id, attempt=attempt, node=node)
                    )
                    return
            except AgentBusy as error:
                silent_since = None
                log.info("fence_retry job=%d attempt=%d node=%s error=%r", job_id, attempt, node, error.text)
            except (Unreachable, AgentRefused) as error:
                if not complained:
                    log.warning(
                        "fence_waits job=%d attempt=%d node=%s error=%r", job_id, attempt, node, error.text
                    )
                    complained = True
                silent_since = self._clock() if silent_since is None else silent_since
                if self._answered_for(node, self._clock() - silent_since):
                    await self._confirm_quietly(job_id, attempt, node)
            except BusyError as error:
                log.info("fence_retry job=%d attempt=%d node=%s error=%r", job_id, attempt, node, error.text)
            except SpurError as error:
                # Refused at apply: somebody else crossed the node off; the loop's condition ends it.
                log.debug(
                    "fence_refused job=%d attempt=%d node=%s error=%r", job_id, attempt, node, error.text
                )
            await self._ledger.job_changed(job_id, pause)
            pause = min(pause * 2, _LAST_PAUSE)

    async def _ask(self, job: Job, node: str) -> tuple[bool, bool]:
        """(nothing of it is there, it has ended but is not acknowledged)."""
        assert job.fence is not None
        known = self._ledger.state.nodes.get(node)
        address = node_address(known) if known is not None else ""
        grace = grace_left(job.fence, self._ledger.state.settings.kill_wait, self._clock())
        active = await self._agents.end(address, job.job_id, job.run_attempt, grace, job.fence.why)
        faults.after("kill_sent")
        if await self._launcher.settled(job.job_id, job.run_attempt):
            # What was launched after the first kill has to be killed as well.
            active = await self._agents.end(address, job.job_id, job.run_attempt, grace, job.fence.why)
        answer = await self._agents.probe(address, runtime_id(job))
        return not active and not answer.active, answer.active and answer.state == "finished"

    def _answered_for(self, node: str, silent_secs: float) -> bool:
        """Whether somebody takes it upon himself that a node out of reach runs nothing."""
        known = self._ledger.state.nodes.get(node)
        if known is None:
            return True
        if known.avail is not NodeAvail.DOWN:
            return False
        return self._accept_risk or (known.locked_down and silent_secs >= ADMIN_WORD_SECS)

    async def _confirm_quietly(self, job_id: int, attempt: int, node: str) -> None:
        log.warning("fence_unproven job=%d attempt=%d node=%s", job_id, attempt, node)
        try:
            await self._ledger.commit(
                FenceConfirm(at=self._clock(), job_id=job_id, attempt=attempt, node=node)
            )
        except SpurError as error:
            log.info("fence_refused job=%d attempt=%d node=%s error=%r", job_id, attempt, node, error.text)
