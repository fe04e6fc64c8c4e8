"""Steps inside an allocation: made, launched, stopped, reported.  Attempt and step are compared at apply."""

import msgspec

from spur_core import reasons
from spur_core.ids import MAX_NORMAL_STEP, STEP_INTERACTIVE
from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobState
from spur_ctld.state import step_endings, step_layout, step_rows
from spur_ctld.state.apply_dispatch import current
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.events import JobChanged, StepChanged, SuspendRequested
from spur_ctld.state.ops import (
    CompleteResult,
    Done,
    NodeComplete,
    Refusal,
    StepCancel,
    StepCreate,
    StepForget,
    StepGone,
    StepLaunched,
    StepResult,
)
from spur_ctld.state.records import Exit, Job, NodeExit, Step, StepAsk, StepStop
from spur_ctld.state.step_layout import Placed
from spur_ctld.state.targets import ALREADY_DONE, DENIED, NO_SUCH_JOB, may

#: Steps of one attempt, as Slurm's MaxStepCount.
MOST_STEPS = 40_000
NO_SUCH_STEP = Refusal("no_such_job", "Invalid job id specified")
PENDING = Refusal("wrong_state", "Job is pending execution")
DISABLED = Refusal("wrong_state", "Requested operation is presently disabled")
LIMIT = Refusal("wrong_state", "Step limit reached for this job")
ONE_INTERACTIVE = Refusal("wrong_state", "The allocation's interactive step was started before")
#: What the client of a step whose supervisor died is told.
SUPERVISOR_LOST = "SupervisorLost"


def why_not(job: Job | None) -> Refusal | None:
    """Why no step can be made in the job now."""
    if job is None:
        return NO_SUCH_JOB
    if job.state is JobState.PENDING:
        return PENDING
    if job.state is JobState.SUSPENDED:
        return DISABLED
    if job.state in TERMINAL_STATES or job.fence is not None or job.time_signalled_at is not None:
        return ALREADY_DONE
    if job.state is JobState.CONFIGURING:
        # Its script may run already while another node has not confirmed yet.
        return step_layout.BUSY
    return None if job.state is JobState.RUNNING else ALREADY_DONE


def placement(job: Job, ask: StepAsk) -> Placed | Refusal:
    """Where a step would go now.

    Who asked for nodes alone (`salloc -N2`) has said nothing about tasks: his steps may run more of them than
    the nodes' CPUs that he got.  With a count of tasks the CPUs that came with it are the limit, as in Slurm.
    """
    own = job.slices if job.request.srun else ()
    held = step_layout.held_by(job.steps.values(), [part for part in own if part.node not in job.exits])
    closed = {part.node for part in job.slices} - set(live_nodes(job))
    # An attempt of the first release holds only its first node: steps run there.
    parts = job.slices if job.everywhere or job.request.srun else job.slices[:1]
    placed = step_layout.place(ask, parts, held, closed)
    open_tasks = job.request.by_nodes and not ask.exact and ask.cpus_per_task is None
    if placed == step_layout.TOO_MANY and open_tasks:
        return step_layout.place(msgspec.structs.replace(ask, overcommit=True), parts, held, closed)
    return placed


def interactive_ask(ask: StepAsk) -> StepAsk:
    """The shell of an allocation: one task on one node, beside whatever else runs."""
    return msgspec.structs.replace(
        ask,
        num_tasks=1,
        min_nodes=1,
        max_nodes=1,
        tasks_per_node=None,
        cpus_per_task=None,
        distribution="",
        exact=False,
        overlap=True,
        memory_per_node_mb=None,
        memory_per_cpu_mb=None,
        gres=None,
    )


def create(state: ClusterState, op: StepCreate) -> StepResult:
    """Place the tasks and give the next id."""
    if op.request_id:
        known = state.answers.get(op.request_id)
        if known is not None:
            return msgspec.msgpack.decode(known.result, type=StepResult)
    job = state.jobs.get(op.job_id)
    if job is not None and not may(op.who, job):
        return StepResult(refusal=DENIED)
    if job is None or job.run_attempt != op.attempt:
        return StepResult(refusal=why_not(job) or ALREADY_DONE)
    if refusal := why_not(job):
        return StepResult(refusal=refusal)
    if op.interactive and job.interactive_used:
        return StepResult(refusal=ONE_INTERACTIVE)
    if not op.interactive and job.next_step_id >= min(MOST_STEPS, MAX_NORMAL_STEP):
        return StepResult(refusal=LIMIT)
    ask = interactive_ask(op.ask) if op.interactive else op.ask
    placed = placement(job, ask)
    if isinstance(placed, Refusal):
        return StepResult(refusal=placed)
    step_id = STEP_INTERACTIVE if op.interactive else job.next_step_id
    step = Step(
        step_id=step_id,
        name=op.name,
        created_at=op.at,
        slices=placed.slices,
        num_tasks=placed.num_tasks,
        cpus_per_task=placed.cpus_per_task,
        distribution=ask.distribution,
        overlap=ask.overlap,
        exact=placed.exact,
        gres_shared=placed.gres_shared,
        pty=op.pty,
        time_limit=op.time_limit,
        submit_host=op.submit_host,
        submit_line=op.submit_line,
        request_id=op.request_id,
        suspended_before=job.suspended_secs,
    )
    state.put_job(
        msgspec.structs.replace(
            step_endings.replaced(job, step),
            next_step_id=job.next_step_id + (0 if op.interactive else 1),
            interactive_used=job.interactive_used or op.interactive,
        )
    )
    result = StepResult(attempt=op.attempt, step_id=step_id)
    if op.request_id:
        state.remember(op.request_id, msgspec.msgpack.encode(result), op.at)
    state.emit(JobChanged(op.job_id))
    return result


def _found(state: ClusterState, job_id: int, attempt: int, step_id: int) -> "tuple[Job, Step] | Refusal":
    """The job and its step while exactly that attempt and step are not over."""
    job = current(state, job_id, attempt)
    if isinstance(job, Refusal):
        return job
    step = job.steps.get(step_id)
    return (job, step) if step is not None else NO_SUCH_STEP


def launched(state: ClusterState, op: StepLaunched) -> Done:
    """All nodes confirmed: running."""
    found = _found(state, op.job_id, op.attempt, op.step_id)
    if isinstance(found, Refusal):
        return Done(refusal=found)
    job, step = found
    if step.start_at is not None or step.stop is not None:
        return Done(refusal=Refusal("wrong_state", "the step's launch was settled before"))
    starts = [op.start_at, *(e.started_at for e in step.exits.values() if e.started_at)]
    running = msgspec.structs.replace(step, start_at=min(starts), suspended_before=job.suspended_secs)
    job = step_endings.replaced(job, running)
    if job.state is JobState.SUSPENDED:
        # Nodes that were told before the step came up have to be told again.
        nodes = {part.node for part in step.slices} | set(job.untold)
        job = msgspec.structs.replace(job, untold=tuple(name for name in live_nodes(job) if name in nodes))
        state.emit(SuspendRequested(job.job_id, job.run_attempt))
    state.put_job(job)
    step_rows.put_row(state, job, step_rows.step_row(running, JobState.RUNNING, None, Exit()))
    state.emit(JobChanged(op.job_id))
    return Done()


def cancel(state: ClusterState, op: StepCancel) -> Done:
    """Record why the step is to end; the first reason stays, a later one may only make it harder."""
    job = state.jobs.get(op.job_id)
    if job is None:
        return Done(refusal=NO_SUCH_JOB)
    if not may(op.who, job):
        return Done(refusal=DENIED)
    if job.run_attempt != op.attempt or job.state not in ACTIVE_STATES or op.step_id not in job.steps:
        return Done(refusal=ALREADY_DONE)
    step = job.steps[op.step_id]
    if step.stop is not None and (step.stop.hard or not op.hard):
        return Done(refusal=ALREADY_DONE)
    if step.stop is not None:
        stop = msgspec.structs.replace(step.stop, hard=True)
    else:
        stop = StepStop(why=op.why, at=op.at, uid=op.who.uid, text=op.text, hard=op.hard)
    clear = tuple(name for name in step_rows.waits_for(step) if name in op.clear)
    changed = msgspec.structs.replace(step, stop=stop, gone=(*step.gone, *clear))
    step_endings.settle(state, job, changed, op.at)
    return Done()


def gone(state: ClusterState, op: StepGone) -> Done:
    """A node will not report the step."""
    found = _found(state, op.job_id, op.attempt, op.step_id)
    if isinstance(found, Refusal):
        return Done(refusal=found)
    job, step = found
    if op.node not in step_rows.waits_for(step):
        return Done(refusal=Refusal("wrong_state", f"the step does not wait for {op.node}"))
    if op.exit is not None:
        report = NodeExit(exit=op.exit, at=op.at, started_at=step_rows.began(step))
        step = msgspec.structs.replace(step, exits={**step.exits, op.node: report})
    else:
        step = msgspec.structs.replace(step, gone=(*step.gone, op.node))
    if op.lost:
        text = op.text or f"the supervisor on {op.node} was lost"
        stop = StepStop(why="lost", at=op.at, text=f"{SUPERVISOR_LOST}: {text}", hard=True)
        step = msgspec.structs.replace(step, stop=step.stop or stop)
    step_endings.settle(state, job, step, op.at)
    return Done()


def forget(state: ClusterState, op: StepForget) -> Done:
    """Take a step back that nobody ever had; its number is not given again."""
    found = _found(state, op.job_id, op.attempt, op.step_id)
    if isinstance(found, Refusal):
        return Done(refusal=found)
    job, step = found
    if step.start_at is not None or step.exits or step.stop is not None:
        return Done(refusal=Refusal("wrong_state", "the step's launch was settled before"))
    steps = {step_id: other for step_id, other in job.steps.items() if step_id != op.step_id}
    interactive = job.interactive_used and op.step_id != STEP_INTERACTIVE
    state.put_job(msgspec.structs.replace(job, steps=steps, interactive_used=interactive))
    state.answers.pop(step.request_id, None)
    state.emit(StepChanged(op.job_id, op.attempt, op.step_id))
    state.emit(JobChanged(op.job_id))
    return Done()


def report(state: ClusterState, job: Job, op: NodeComplete) -> CompleteResult:
    """A node's part of a numbered or interactive step of the job's present attempt has ended."""
    exit_report = NodeExit(exit=op.exit, at=op.ended_at, started_at=op.started_at, usage=op.usage)
    step = job.steps.get(op.step_id)
    if step is None:
        return _late(state, job, op, exit_report)
    if all(part.node != op.node for part in step.slices):
        return CompleteResult(verdict="wrong_node")
    if op.node not in step_rows.waits_for(step):
        return CompleteResult(verdict="final")
    changed = msgspec.structs.replace(step, exits={**step.exits, op.node: exit_report})
    step_endings.settle(state, job, changed, op.at)
    return CompleteResult(verdict="accepted")


def _late(state: ClusterState, job: Job, op: NodeComplete, exit_report: NodeExit) -> CompleteResult:
    """A report of a step that is over."""
    for past in job.past_steps:
        if past.row.step_id == op.step_id and op.node in past.missing:
            step_endings.correct(state, job, past, op.node, exit_report)
            return CompleteResult(verdict="accepted")
    known = op.step_id < job.next_step_id or (op.step_id == STEP_INTERACTIVE and job.interactive_used)
    return CompleteResult(verdict="final" if known else "wrong_node")


def reason_of(stop: StepStop | None) -> str:
    """The token that stands for why a step was stopped."""
    if stop is None:
        return reasons.NONE
    return {"timeout": reasons.TIME_LIMIT, "launch": reasons.LAUNCH_FAILURE, "lost": SUPERVISOR_LOST}.get(
        stop.why, reasons.NONE
    )
