"""Steps inside an allocation: launched on their nodes, asked about after a restart, ended when recorded so.

A step is committed before anything here runs, its stop before the first kill.  Steps of an attempt that is
fenced, or over, are left to the fence.  What a step runs is known only while its client asks for it, so after
a restart, or at the next leader, the nodes say what they hold.  A step that nobody has is taken back; one
that only some have is launched on the others when its client asks again, else ended.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final

from spur_core import faults
from spur_core.errors import BusyError, SpurError, Unreachable
from spur_core.ids import RuntimeId
from spur_core.states import ACTIVE_STATES
from spur_ctld.dispatch.agents import AgentPool, AgentRefused, Launched
from spur_ctld.dispatch.launch_spec import ClusterFacts, StepInputs, build_step, step_id_of
from spur_ctld.dispatch.launcher import Failure, failure_of
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.ledger import Ledger
from spur_ctld.state.ops import AnyOp, StepCancel, StepForget, StepGone, StepLaunched, Who
from spur_ctld.state.records import Exit, Job, Step, StepStop
from spur_ctld.state.step_rows import waits_for
from spur_proto import agent_pb2 as pb

log = logging.getLogger(__name__)

#: A node that certainly has nothing of a step is sent it again for so long: its agent may be restarting.
RETRY_SECS: Final = 30.0
_RETRY_PAUSE: Final = 0.5
#: The client of a step that only some nodes have gets so long to ask for it again.
CLIENT_SECS: Final = 15.0
_FIRST_PAUSE: Final = 0.1
_LAST_PAUSE: Final = 5.0
#: An ended step's own report gets this long to arrive before its node is crossed off without it.
REPORT_WAIT_SECS: Final = 5.0
#: Stops that the step's user may prepare for.
_GENTLE: Final = frozenset({"cancelled", "timeout"})
RESTARTED: Final = "the controller restarted during the launch"


def grace_left(stop: StepStop, kill_wait_secs: int, now: float) -> int:
    """Seconds between TERM and KILL that a stop still allows; repeats shorten, they never lengthen."""
    if stop.hard or stop.why not in _GENTLE:
        return 0
    return max(0, min(kill_wait_secs, round(kill_wait_secs - (now - stop.at))))


def launch_text(rid: RuntimeId, node: str, text: str) -> str:
    """What the client of a step that could not be started is told."""
    return f"Task launch for StepId={rid.job_id}.{rid.step_id} failed on node {node}: {text}"


class StepRunner:
    """Runs one task per launch, and one per node of each step that is being ended.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        ledger: Ledger,
        agents: AgentPool,
        clock: Callable[[], float],
        where: Callable[[str], tuple[str, str]] | None = None,
    ) -> None:
        self._ledger = ledger
        self._where = where
        self._agents = agents
        self._clock = clock
        self._launching: dict[RuntimeId, asyncio.Task[None]] = {}
        self._ending: dict[tuple[RuntimeId, str], asyncio.Task[None]] = {}
        #: What clients would have had launched of steps that somebody works on already.
        self._offered: dict[RuntimeId, StepInputs] = {}

    # -- taking up

    def launch(self, job: Job, step: Step, inputs: StepInputs) -> None:
        """Launch a step whose launch nobody has begun; the state tells how it went.

        What an earlier process began is taken up at the start, so a step that is not decided and that nobody
        works on was never sent to any node.
        """
        rid = step_id_of(job, step)
        if step.start_at is not None or step.stop is not None:
            return
        if rid in self._launching:
            self._offered[rid] = inputs
        else:
            self._begin(rid, self._launch(rid, inputs))

    def look(self, job: Job, step: Step) -> None:
        """End a step that is recorded to be ended, where nobody does yet."""
        if step.stop is None or job.fence is not None:
            return
        rid = step_id_of(job, step)
        for node in waits_for(step):
            key = (rid, node)
            if key not in self._ending:
                task = asyncio.create_task(self._end_guarded(rid, node), name=f"end-{rid}-{node}")
                self._ending[key] = task
                task.add_done_callback(functools.partial(self._ended, key))

    def _ended(self, key: tuple[RuntimeId, str], _: object) -> None:
        self._ending.pop(key, None)

    def resume(self, job: Job) -> None:
        """Take up what is left of the job's steps: by an earlier process, or by a client that went away."""
        if job.fence is not None:
            return
        for step in job.steps.values():
            if step.stop is not None:
                self.look(job, step)
            elif step.start_at is None:
                rid = step_id_of(job, step)
                if rid not in self._launching:
                    self._begin(rid, self._recover(rid))

    async def stop(self) -> None:
        """Give up waiting for answers; the next start goes on from the state."""
        tasks = [*self._launching.values(), *self._ending.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, rid: RuntimeId, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._launch_guarded(rid, work), name=f"step-{rid}")
        self._launching[rid] = task
        task.add_done_callback(functools.partial(self._launched_or_not, rid))

    def _launched_or_not(self, rid: RuntimeId, _: object) -> None:
        self._launching.pop(rid, None)
        self._offered.pop(rid, None)

    # -- launching

    def _open(self, rid: RuntimeId) -> "tuple[Job, Step] | None":
        """The step while its launch is not decided."""
        found = self._found(rid)
        if found is None or found[1].start_at is not None or found[1].stop is not None:
            return None
        return found

    def _found(self, rid: RuntimeId) -> "tuple[Job, Step] | None":
        job = self._ledger.state.jobs.get(rid.job_id)
        if job is None or job.run_attempt != rid.run_attempt or job.state not in ACTIVE_STATES:
            return None
        step = job.steps.get(rid.step_id)
        return None if step is None or job.fence is not None else (job, step)

    async def _launch_guarded(self, rid: RuntimeId, work: Coroutine[Any, Any, None]) -> None:
        """No step stays unlaunched because of a fault of ours: it is ended instead."""
        try:
            await work
        except Exception:
            log.exception("step_launch_broke step=%s", rid)
            await self._propose(rid, self._stop(rid, "Slurm internal error, contact system administrator"))

    def _stop(self, rid: RuntimeId, text: str, clear: tuple[str, ...] = ()) -> StepCancel:
        return StepCancel(
            at=self._clock(),
            job_id=rid.job_id,
            attempt=rid.run_attempt,
            step_id=rid.step_id,
            who=Who(),
            why="launch",
            text=text,
            clear=clear,
        )

    async def _launch(self, rid: RuntimeId, inputs: StepInputs, held: Collection[str] = ()) -> None:
        """`held`: nodes that have their part already."""
        found = self._open(rid)
        if found is None:
            return
        faults.after("step_created")
        job, step = found
        settings = self._ledger.state.settings
        facts = ClusterFacts(settings.cluster_name, settings.kill_wait, self._where)
        specs = build_step(job, step, inputs, facts)
        specs = {node: spec for node, spec in specs.items() if node not in held}
        start_at = self._clock()
        answers = await asyncio.gather(*(self._launch_on(rid, node, spec) for node, spec in specs.items()))
        failures = {
            node: answer for node, answer in zip(specs, answers, strict=True) if isinstance(answer, Failure)
        }
        if not failures:
            await self._propose(rid, self._launched(rid, start_at))
            return
        for node, failure in failures.items():
            log.warning("step_launch_failed step=%s node=%s error=%r", rid, node, failure.text)
        node, failure = next(iter(failures.items()))
        clear = tuple(name for name, other in failures.items() if other.certain)
        await self._propose(rid, self._stop(rid, launch_text(rid, node, failure.text), clear))

    def _launched(self, rid: RuntimeId, start_at: float) -> StepLaunched:
        return StepLaunched(
            at=self._clock(),
            job_id=rid.job_id,
            attempt=rid.run_attempt,
            step_id=rid.step_id,
            start_at=start_at,
        )

    async def _launch_on(self, rid: RuntimeId, node: str, spec: pb.LaunchSpec) -> Launched | Failure:
        """The node's answer.  An answer that was lost is asked for; a node that certainly has nothing of the
        step is sent it again, for `RETRY_SECS`."""
        until = self._clock() + RETRY_SECS
        while True:
            try:
                answer = await self._agents.run_command(self._address(node), node, spec)
                faults.after("step_launch_sent")
                return answer if answer.success else failure_of(answer)
            except AgentRefused as error:
                return Failure(pb.LAUNCH_FAILURE_NODE, error.text, certain=True)
            except Unreachable as error:
                why = error.text
            held = await self._probe(rid, node)
            if held is None:
                return Failure(pb.LAUNCH_FAILURE_UNSPECIFIED, why, certain=False)
            if held.active:
                log.info("step_launch_held step=%s node=%s", rid, node)
                return Launched(True, 0, "", "", "", held.started_at)
            if self._clock() >= until:
                return Failure(pb.LAUNCH_FAILURE_UNSPECIFIED, why, certain=True)
            await self._ledger.job_changed(rid.job_id, _RETRY_PAUSE)
            if self._open(rid) is None:
                return Failure(pb.LAUNCH_FAILURE_UNSPECIFIED, why, certain=True)

    def _address(self, node: str) -> str:
        known = self._ledger.state.nodes.get(node)
        return node_address(known) if known is not None else ""

    async def _probe(self, rid: RuntimeId, node: str) -> pb.ProbeStepdResponse | None:
        """The node's answer, asked until there is one; None when the step moved on meanwhile."""
        pause = _FIRST_PAUSE
        while self._open(rid) is not None:
            try:
                return await self._agents.probe(self._address(node), rid)
            except (Unreachable, AgentRefused) as error:
                log.info("step_probe_waits step=%s node=%s error=%r", rid, node, error.text)
            await self._ledger.job_changed(rid.job_id, pause)
            pause = min(pause * 2, _LAST_PAUSE)
        return None

    async def _recover(self, rid: RuntimeId) -> None:
        """All nodes hold it: it was launched.  None does, and none ever did: it never was.  Some do: the rest
        get it when its client asks again; else it ends."""
        found = self._open(rid)
        if found is None:
            return
        nodes = [part.node for part in found[1].slices]
        answers = await asyncio.gather(*(self._probe(rid, node) for node in nodes))
        found = self._open(rid)
        if found is None:
            return
        step = found[1]
        held: list[str] = []
        starts: list[float] = []
        for node, answer in zip(nodes, answers, strict=True):
            if node in step.exits or (answer is not None and answer.active):
                held.append(node)
                if answer is not None and answer.started_at:
                    starts.append(answer.started_at)
        log.info("step_recovered step=%s held=%d of=%d", rid, len(held), len(nodes))
        if len(held) == len(nodes):
            await self._propose(rid, self._launched(rid, min([self._clock(), *starts])))
        elif not held:
            op = StepForget(at=self._clock(), job_id=rid.job_id, attempt=rid.run_attempt, step_id=rid.step_id)
            await self._propose(rid, op)
        elif (inputs := await self._offer(rid)) is not None:
            await self._launch(rid, inputs, held)
        else:
            clear = tuple(node for node in nodes if node not in held)
            await self._propose(rid, self._stop(rid, launch_text(rid, clear[0], RESTARTED), clear))

    async def _offer(self, rid: RuntimeId) -> StepInputs | None:
        """What the step's client asks for again; None when it does not in time, or the step moved on."""
        until = self._clock() + CLIENT_SECS
        while rid not in self._offered:
            if self._open(rid) is None or self._clock() >= until:
                return None
            await self._ledger.job_changed(rid.job_id, _RETRY_PAUSE)
        return self._offered.pop(rid)

    # -- ending

    def _stopping(self, rid: RuntimeId, node: str) -> Step | None:
        found = self._found(rid)
        if found is None or found[1].stop is None or node not in waits_for(found[1]):
            return None
        return found[1]

    async def _end_guarded(self, rid: RuntimeId, node: str) -> None:
        """A recorded stop is never given up, not even for a fault of ours."""
        while True:
            try:
                await self._end(rid, node)
                return
            except Exception:
                log.exception("step_end_broke step=%s node=%s", rid, node)
                await asyncio.sleep(_LAST_PAUSE)

    async def _end(self, rid: RuntimeId, node: str) -> None:
        pause = _FIRST_PAUSE
        ended_since: float | None = None
        while (step := self._stopping(rid, node)) is not None:
            assert step.stop is not None
            try:
                answer = await self._ask(rid, node, step.stop)
                if not answer.active:
                    await self._propose(rid, self._gone(rid, node, None))
                elif answer.state == "finished":
                    ended_since = self._clock() if ended_since is None else ended_since
                    if self._clock() - ended_since >= REPORT_WAIT_SECS:
                        await self._propose(rid, self._gone(rid, node, answer))
            except (Unreachable, AgentRefused) as error:
                log.info("step_end_waits step=%s node=%s error=%r", rid, node, error.text)
            await self._ledger.job_changed(rid.job_id, pause)
            pause = min(pause * 2, _LAST_PAUSE)

    async def _ask(self, rid: RuntimeId, node: str, stop: StepStop) -> pb.ProbeStepdResponse:
        """Tell the node to end the step, then ask what is left of it."""
        end = functools.partial(self._agents.end_step, self._address(node), rid)
        kill_wait = self._ledger.state.settings.kill_wait
        await end(grace_left(stop, kill_wait, self._clock()), stop.why)
        task = self._launching.get(rid)
        if task is not None:
            # What was launched after the first kill has to be killed as well.
            await asyncio.wait((task,))
            await end(grace_left(stop, kill_wait, self._clock()), stop.why)
        return await self._agents.probe(self._address(node), rid)

    def _gone(self, rid: RuntimeId, node: str, answer: pb.ProbeStepdResponse | None) -> StepGone:
        status = None
        if answer is not None:
            told = answer.exit
            status = Exit(code=told.code, signal=told.signal, oom=told.oom, core=told.core_dumped)
        return StepGone(
            at=self._clock(),
            job_id=rid.job_id,
            attempt=rid.run_attempt,
            step_id=rid.step_id,
            node=node,
            exit=status,
        )

    async def _propose(self, rid: RuntimeId, op: AnyOp) -> None:
        while True:
            try:
                await self._ledger.commit(op)
                return
            except BusyError as error:
                log.info("step_retry step=%s error=%r", rid, error.text)
                await asyncio.sleep(_RETRY_PAUSE)
            except SpurError as error:
                # Cancelled, ended or reported meanwhile: apply decided, the rest goes its own way.
                log.debug("step_overtaken step=%s why=%r", rid, error.text)
                return
