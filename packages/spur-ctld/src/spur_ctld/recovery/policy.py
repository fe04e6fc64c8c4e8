"""What a report about one supervisor means by the replicated state, and what a loss costs.  Pure.

| lost without an exit              | what happens                                                    |
|-----------------------------------|------------------------------------------------------------------|
| batch, companions too             | the attempt is fenced everywhere, the job is queued again        |
| extern                            | a new supervisor takes its place; failing that, as batch         |
| step 0 of a stand-alone srun      | the allocation ends FAILED 0:9, as if its shell had been killed  |
| numbered, interactive             | the step is ended everywhere, FAILED 0:9; the job goes on        |
A job that may not go back to the queue (`--no-requeue`, allocations) ends NODE_FAIL.
"""

from enum import Enum
from typing import Final, NamedTuple

from spur_core import reasons
from spur_core.ids import STEP_EXTERN, RuntimeId
from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobState, NodeAvail
from spur_ctld.recovery.cohorts import Cohort, Loss, Verdict
from spur_ctld.state import ops
from spur_ctld.state.apply_complete import step_of
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.apply_steps import SUPERVISOR_LOST
from spur_ctld.state.cluster import ClusterState, launch_nodes
from spur_ctld.state.records import Exit, Job, Step

_SIGKILL: Final = 9


class Life(Enum):
    """What an agent says of a supervisor."""

    LIVE = "live"
    FINISHED = "finished"
    #: Gone without an exit; what was left of the step on that node is killed.
    GONE = "gone"


class Standing(Enum):
    """Where a run named by a node stands."""

    NEVER_ISSUED = "no such job was ever submitted here, or no such attempt begun"
    FORGOTTEN = "the job is over and left memory"
    OVER = "the job is over"
    OLDER = "a later attempt exists, or is awaited"
    ELSEWHERE = "this attempt, or this step of it, has no business on that node"
    LAUNCHING = "its launch is not decided"
    FENCED = "its attempt is being ended"
    STOPPING = "the step is being ended"
    ON_FILE = "its exit on that node is on file"
    CURRENT = "it should be running there"


def standing(state: ClusterState, node: str, rid: RuntimeId) -> Standing:
    """Where `rid` on `node` stands; the checks in the order of the specification: job known, node in its
    allocation, attempt the job's."""
    job = state.jobs.get(rid.job_id)
    if job is None:
        return Standing.FORGOTTEN if rid.job_id < state.next_job_id else Standing.NEVER_ISSUED
    if rid.run_attempt > job.run_attempt:
        return Standing.NEVER_ISSUED
    if job.state in TERMINAL_STATES:
        return Standing.OVER
    if rid.run_attempt < job.run_attempt or job.state not in ACTIVE_STATES:
        return Standing.OLDER
    cohort = members(job, rid.step_id)
    if cohort is None or node not in cohort.nodes:
        return Standing.ELSEWHERE
    if job.fence is not None:
        return Standing.FENCED
    if node in cohort.ended:
        return Standing.ON_FILE
    step = job.steps.get(rid.step_id)
    if step is not None and step.stop is not None:
        return Standing.STOPPING
    return Standing.LAUNCHING if launching(job, step) else Standing.CURRENT


def launching(job: Job, step: Step | None) -> bool:
    """Whether it is not decided yet that the step (None = the one the job lives by) runs everywhere."""
    return job.state is JobState.CONFIGURING if step is None else step.start_at is None


def members(job: Job, step_id: int) -> Cohort | None:
    """The nodes of a step of the job's present attempt; None = no such step."""
    if step_id == step_of(job):
        return Cohort(frozenset(launch_nodes(job)), frozenset(job.exits))
    step = job.steps.get(step_id)
    if step is None:
        return None
    return Cohort(frozenset(part.node for part in step.slices), frozenset((*step.exits, *step.gone)))


def cohort(state: ClusterState, rid: RuntimeId) -> Cohort | None:
    """The cohort of a run that should be running; None = it is over, superseded, or being ended."""
    job = state.jobs.get(rid.job_id)
    if job is None or job.run_attempt != rid.run_attempt or job.state not in ACTIVE_STATES:
        return None
    step = job.steps.get(rid.step_id)
    if job.fence is not None or launching(job, step) or (step is not None and step.stop is not None):
        return None
    found = members(job, rid.step_id)
    if found is None or found.nodes <= found.ended:
        return None
    away = {name for name in found.nodes if (n := state.nodes.get(name)) and n.avail is NodeAvail.SILENT}
    return found._replace(excused=frozenset(away))


#: Verdicts on runs that no cohort has to decide about.
_FIXED: Final[dict[Standing, dict[Life, Verdict]]] = {
    Standing.NEVER_ISSUED: dict.fromkeys(Life, Verdict.WAIT),
    Standing.FORGOTTEN: dict.fromkeys(Life, Verdict.FORGET),
    Standing.OVER: dict.fromkeys(Life, Verdict.FORGET),
    Standing.OLDER: dict.fromkeys(Life, Verdict.FORGET) | {Life.LIVE: Verdict.FENCE},
    Standing.ELSEWHERE: dict.fromkeys(Life, Verdict.FORGET) | {Life.LIVE: Verdict.FENCE},
    Standing.LAUNCHING: dict.fromkeys(Life, Verdict.WAIT) | {Life.FINISHED: Verdict.KEEP},
    # A fenced attempt's exit is still wanted: it crosses its node off.
    Standing.FENCED: dict.fromkeys(Life, Verdict.FENCE) | {Life.FINISHED: Verdict.KEEP},
    Standing.ON_FILE: dict.fromkeys(Life, Verdict.FORGET) | {Life.LIVE: Verdict.FENCE},
    # Its end has a grace of its own, which a fence would cut short.
    Standing.STOPPING: {Life.LIVE: Verdict.WAIT, Life.FINISHED: Verdict.KEEP},
}


def fixed_verdict(found: Standing, life: Life) -> Verdict | None:
    """The verdict that follows from the standing alone; None = the cohort decides."""
    return _FIXED.get(found, {}).get(life)


def restorable(rid: RuntimeId, detail: str) -> bool:
    """Whether a new supervisor may take the lost one's place: an extern step has no process of its own.

    Args:
        detail: the agent's words; "restore failed" says that it was tried.
    """
    return rid.step_id == STEP_EXTERN and "restore failed" not in detail


class Price(NamedTuple):
    """How a lost job-lifetime step ends its attempt."""

    outcome: JobState
    reason: str
    exit: Exit | None


def price(job: Job, certain: bool) -> Price:
    """What the loss of the step that the job lives by comes to.

    Args:
        certain: a node said that its supervisor is gone; False: nobody said anything in time.
    """
    if job.request.srun and certain:
        reason = f"{reasons.RAISED_SIGNAL}:{_SIGKILL}(Killed)"
        return Price(JobState.FAILED, reason, Exit(signal=_SIGKILL))
    outcome = JobState.PENDING if may_requeue(job) else JobState.NODE_FAIL
    return Price(outcome, reasons.SYSTEM_FAILURE, None)


def may_requeue(job: Job) -> bool:
    """Whether a lost attempt goes back to the queue: a client that waits for it cannot be called again."""
    request = job.request
    return request.requeue and not request.srun and not request.alloc_only


def loss_op(state: ClusterState, loss: Loss, at: float) -> ops.AnyOp | None:
    """The operation that a loss asks for; None when the run has gone meanwhile."""
    rid = loss.rid
    job = state.jobs.get(rid.job_id)
    if job is None or standing(state, loss.node, rid) not in (Standing.CURRENT, Standing.STOPPING):
        return None
    if rid.step_id == step_of(job):
        paid = price(job, loss.certain)
        return ops.FenceBegin(
            at=at,
            job_id=rid.job_id,
            attempt=rid.run_attempt,
            outcome=paid.outcome,
            reason=paid.reason,
            desc=loss.why,
            recovery=True,
            exit=paid.exit,
        )
    if loss.certain:
        return ops.StepGone(
            at=at,
            job_id=rid.job_id,
            attempt=rid.run_attempt,
            step_id=rid.step_id,
            node=loss.node,
            lost=True,
            text=loss.why,
        )
    return ops.StepCancel(
        at=at,
        job_id=rid.job_id,
        attempt=rid.run_attempt,
        step_id=rid.step_id,
        who=ops.Who(),
        why="lost",
        text=f"{SUPERVISOR_LOST}: {loss.why}",
        hard=True,
    )


def expected(job: Job, node: str) -> list[RuntimeId]:
    """Every run of the job that its agent must have on `node` now."""
    if job.state not in (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING) or job.fence is not None:
        return []
    found = []
    if node in live_nodes(job):
        found.append(RuntimeId(job.job_id, job.run_attempt, step_of(job)))
    for step in job.steps.values():
        cohort = members(job, step.step_id)
        if cohort is not None and node in cohort.nodes - cohort.ended and not launching(job, step):
            found.append(RuntimeId(job.job_id, job.run_attempt, step.step_id))
    return found


def belongs(state: ClusterState, node: str, rid: RuntimeId) -> bool:
    """Whether a live supervisor of `rid` may be on `node`.

    An id that was never issued here is left alone: it may belong to a state that was lost.
    """
    return standing(state, node, rid) in _AT_HOME


_AT_HOME: Final = frozenset(
    {
        Standing.NEVER_ISSUED,
        Standing.LAUNCHING,
        Standing.FENCED,
        Standing.STOPPING,
        Standing.CURRENT,
    }
)
