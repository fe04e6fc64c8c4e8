"""Launching a dispatched attempt on its nodes, and finding out after a restart what became of one.

A dispatch is committed before anything here runs (record before act).  Each attempt gets one task:
all nodes in parallel, then one operation, commit or abort.  After a restart nothing is launched again:
the nodes are asked what they hold.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

from spur_core import faults
from spur_core.errors import BusyError, SpurError, Unreachable
from spur_core.reasons import LAUNCH_FAILURE
from spur_core.states import JobState
from spur_ctld.dispatch.agents import AgentPool, AgentRefused, AgentUnreached, Launched
from spur_ctld.dispatch.launch_spec import ClusterFacts, build, runtime_id
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.ledger import Ledger
from spur_ctld.state.cluster import launch_nodes
from spur_ctld.state.ops import DispatchAbort, DispatchCommit
from spur_ctld.state.records import Job
from spur_proto import agent_pb2 as pb

log = logging.getLogger(__name__)

_RETRY_PAUSE: Final = 0.5
#: A launch that never left is sent again for so long: the agent may be restarting.
RESEND_SECS: Final = 30.0
#: A probe that fails is repeated until the node answers; the pause grows up to this.
_PROBE_PAUSE: Final = 5.0


class Failure(NamedTuple):
    """Why a node did not confirm.  `certain`: nothing of the attempt is there."""

    kind: int
    text: str
    certain: bool


def _held(answer: pb.ProbeStepdResponse) -> Launched:
    """What is there already, as a launch that succeeded."""
    started = answer.started_at if answer.HasField("started_at") else 0.0
    return Launched(True, 0, "", "", "", started)


#: What each node answered.
Answers = Mapping[str, Launched | Failure]


def failure_of(answer: Launched) -> Failure:
    """An agent's own refusal as a Failure; it leaves nothing behind."""
    return Failure(answer.failure, answer.error or "the launch failed without a reason", certain=True)


#: Outcomes of a failed launch by kind, the heaviest first; what is not here is tried again.
_OUTCOMES: Final = {pb.LAUNCH_FAILURE_JOB: "fail", pb.LAUNCH_FAILURE_PROLOG: ""}


def verdict(
    job_id: int,
    attempt: int,
    nodes: Sequence[str],
    answers: Answers,
    start_at: float,
    after_prolog: str = "retry",
) -> DispatchCommit | DispatchAbort:
    """What to propose once every node has answered.  Pure.

    The job's own fault on any node ends it; a failed prolog has the outcome that the configuration gives it;
    everything else is tried again.
    """
    failures: dict[str, Failure] = {
        node: answer for node, answer in answers.items() if isinstance(answer, Failure)
    }
    if not failures:
        first = answers[nodes[0]]
        assert isinstance(first, Launched)
        return DispatchCommit(
            at=start_at,
            job_id=job_id,
            attempt=attempt,
            start_at=start_at,
            stdout_real=first.stdout_path,
            stderr_real=first.stderr_path,
        )
    kinds = [kind for kind in _OUTCOMES if any(failure.kind == kind for failure in failures.values())]
    outcome = (_OUTCOMES[kinds[0]] or after_prolog) if kinds else "retry"
    node = next(name for name in nodes if name in failures and (not kinds or failures[name].kind == kinds[0]))
    text = f"{node}: {failures[node].text}"
    if len(nodes) > 1:
        text += f" ({len(nodes) - len(failures)} of {len(nodes)} nodes confirmed)"
    return DispatchAbort(
        at=start_at,
        job_id=job_id,
        attempt=attempt,
        reason=LAUNCH_FAILURE,
        desc=text,
        outcome=outcome,
        clear=tuple(name for name in nodes if name in failures and failures[name].certain),
    )


def after_prolog(job: Job, *, hold: bool) -> str:
    """What a failed prolog means for the job: a client that waits is told at once, a batch job is held or
    tried again (the node is drained and gets no more)."""
    if job.request.srun or job.request.alloc_only:
        return "cancel" if hold else "retry"
    return "hold" if hold else "retry"


class Launcher:
    """Runs one task per attempt in CONFIGURING.

    Args:
        clock: seconds since the epoch.
        node_failed: told about a node that could not launch, to be left alone for a while.
        where: a node's address in the network and its pattern.
    """

    def __init__(
        self,
        ledger: Ledger,
        agents: AgentPool,
        clock: Callable[[], float],
        node_failed: Callable[[str], None],
        where: Callable[[str], tuple[str, str]] | None = None,
    ) -> None:
        self._ledger = ledger
        self._agents = agents
        self._clock = clock
        self._node_failed = node_failed
        self._where = where
        self._running: dict[tuple[int, int], asyncio.Task[None]] = {}

    def look(self, job: Job) -> None:
        """Launch an attempt that was dispatched just now by this process."""
        self._start(job, self._launch)

    def resume(self, job: Job) -> None:
        """Find out about an attempt that an earlier process dispatched."""
        self._start(job, self._recover)

    def _start(self, job: Job, work: Callable[[int, int], Coroutine[Any, Any, None]]) -> None:
        key = (job.job_id, job.run_attempt)
        if job.state is not JobState.CONFIGURING or job.fence is not None or key in self._running:
            return
        task = asyncio.create_task(self._guarded(work, *key), name=f"launch-{key}")
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))

    async def _guarded(
        self, work: Callable[[int, int], Coroutine[Any, Any, None]], job_id: int, attempt: int
    ) -> None:
        """No attempt stays in CONFIGURING because of a fault of ours: it is undone instead."""
        try:
            await work(job_id, attempt)
        except Exception:
            log.exception("launch_broke job=%d attempt=%d", job_id, attempt)
            await self._propose(
                DispatchAbort(
                    at=self._clock(),
                    job_id=job_id,
                    attempt=attempt,
                    reason=LAUNCH_FAILURE,
                    desc="Slurm internal error, contact system administrator",
                )
            )

    async def settled(self, job_id: int, attempt: int) -> bool:
        """Return when no launch of that attempt is in flight; True if one was."""
        task = self._running.get((job_id, attempt))
        if task is None:
            return False
        await asyncio.wait((task,))
        return True

    async def stop(self) -> None:
        """Give up waiting for answers; the next start, or the next leader, asks the nodes."""
        for (job_id, attempt), task in list(self._running.items()):
            log.info("launch_given_up job=%d attempt=%d", job_id, attempt)
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _current(self, job_id: int, attempt: int) -> Job | None:
        job = self._ledger.state.jobs.get(job_id)
        if job is None or job.run_attempt != attempt or job.state is not JobState.CONFIGURING:
            return None
        return None if job.fence is not None else job

    async def _launch(self, job_id: int, attempt: int) -> None:
        job = self._current(job_id, attempt)
        if job is None:
            return
        faults.after("dispatch_begun")
        # An earlier leader's clock may have been ahead of this one's.
        start_at = max(self._clock(), job.dispatch_at or 0.0)
        settings = self._ledger.state.settings
        facts = ClusterFacts(settings.cluster_name, settings.kill_wait, self._where)
        specs = build(job, facts, start_at)
        nodes = launch_nodes(job)
        found = await asyncio.gather(
            *(self._launch_on(node, spec) for node, spec in zip(nodes, specs, strict=True))
        )
        faults.after("launches_answered")
        answers = dict(zip(nodes, found, strict=True))
        for node, answer in answers.items():
            if isinstance(answer, Failure):
                log.warning(
                    "launch_failed job=%d attempt=%d node=%s error=%r", job_id, attempt, node, answer.text
                )
                if answer.kind not in _OUTCOMES:
                    self._node_failed(node)
        after = after_prolog(job, hold=settings.hold_on_prolog_fail)
        await self._propose(verdict(job_id, attempt, nodes, answers, start_at, after))

    async def _launch_on(self, node: str, spec: pb.LaunchSpec) -> Launched | Failure:
        known = self._ledger.state.nodes.get(node)
        if known is None or not node_address(known):
            return Failure(pb.LAUNCH_FAILURE_NODE, "the node has no address", certain=True)
        until = self._clock() + RESEND_SECS
        while True:
            try:
                faults.before("launch_sent")
                answer = await self._agents.launch(node_address(known), node, spec)
                faults.after("launch_sent")
            except Unreachable as error:
                held = await self._held_by(node, spec, error.text)
                # An agent that was not there yet has seen nothing of the launch: it may have it now.
                unsent = isinstance(error, AgentUnreached) and isinstance(held, Failure) and held.certain
                if not unsent or self._clock() >= until:
                    return held
                log.info("launch_sent_again step=%d.%d node=%s", spec.rid.job_id, spec.rid.run_attempt, node)
            except AgentRefused as error:
                kind = pb.LAUNCH_FAILURE_JOB if error.for_request else pb.LAUNCH_FAILURE_NODE
                return Failure(kind, error.text, certain=False)
            else:
                return answer if answer.success else failure_of(answer)

    async def _held_by(self, node: str, spec: pb.LaunchSpec, why: str) -> Launched | Failure:
        """The answer to a launch was lost, so it may run; undoing it could run it twice: ask.

        A node that stays away is declared down, which ends the attempt and with it the asking.
        """
        self._node_failed(node)
        job = self._current(spec.rid.job_id, spec.rid.run_attempt)
        answer = await self._probe(job, node) if job is not None else None
        if answer is None or not answer.active:
            # No state: not even a supervisor that was lost.
            nothing = answer is not None and not answer.state
            return Failure(pb.LAUNCH_FAILURE_UNSPECIFIED, why, certain=nothing)
        log.info("launch_held job=%d attempt=%d node=%s", spec.rid.job_id, spec.rid.run_attempt, node)
        return _held(answer)

    async def _recover(self, job_id: int, attempt: int) -> None:
        """Ask every node: all hold it means that the launch had succeeded; anything else is undone."""
        job = self._current(job_id, attempt)
        if job is None:
            return
        nodes = launch_nodes(job)
        found = await asyncio.gather(*(self._probe(job, node) for node in nodes))
        if self._current(job_id, attempt) is None:
            return
        answers: dict[str, Launched | Failure] = {}
        for node, answer in zip(nodes, found, strict=True):
            if answer is not None and answer.active:
                answers[node] = _held(answer)
            else:
                text = "the controller restarted during the launch"
                answers[node] = Failure(pb.LAUNCH_FAILURE_UNSPECIFIED, text, certain=False)
        starts = [a.started_at for a in answers.values() if isinstance(a, Launched) and a.started_at]
        now = self._clock()
        log.info(
            "launch_recovered job=%d attempt=%d held=%d of=%d",
            job_id,
            attempt,
            sum(isinstance(a, Launched) for a in answers.values()),
            len(nodes),
        )
        await self._propose(verdict(job_id, attempt, nodes, answers, min([now, *starts])))

    async def _probe(self, job: Job, node: str) -> pb.ProbeStepdResponse | None:
        """The node's answer, asked until there is one; None when the job moved on meanwhile."""
        pause = 0.2
        complained = False
        while self._current(job.job_id, job.run_attempt) is not None:
            known = self._ledger.state.nodes.get(node)
            try:
                return await self._agents.probe(node_address(known) if known else "", runtime_id(job))
            except (Unreachable, AgentRefused) as error:
                if not complained:
                    log.warning("probe_waits job=%d node=%s error=%r", job.job_id, node, error.text)
                    complained = True
            await self._ledger.job_changed(job.job_id, pause)
            pause = min(pause * 2, _PROBE_PAUSE)
        return None

    async def _propose(self, op: DispatchCommit | DispatchAbort) -> None:
        while True:
            try:
                await self._ledger.commit(op)
                return
            except BusyError as error:
                log.info("launch_retry job=%d attempt=%d error=%r", op.job_id, op.attempt, error.text)
                await asyncio.sleep(_RETRY_PAUSE)
            except SpurError as error:
                # Cancelled or ended meanwhile: apply decided, the fence or the report goes its own way.
                log.info("launch_overtaken job=%d attempt=%d why=%r", op.job_id, op.attempt, error.text)
                return
