"""What is true of the state after every operation.  Used by tests, and by `spurctld --paranoid`."""

from collections.abc import Callable, Iterator
from typing import Final

from spur_core import reasons
from spur_core.grammar.array import IndexSet
from spur_core.grammar.idlist import mask_of
from spur_core.ids import STEP_INTERACTIVE
from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobState
from spur_ctld.state.apply_complete import decided
from spur_ctld.state.cluster import ClusterState, NodeUse, holding, launch_nodes
from spur_ctld.state.records import Job, Step
from spur_ctld.state.step_layout import held_by
from spur_ctld.state.step_rows import waits_for
from spur_sched.devices import disjoint

Problems = Iterator[str]


def check(state: ClusterState) -> list[str]:
    """One line for each thing that is wrong; empty when all is well."""
    return [problem for rule in RULES for problem in rule(state)]


def _ids_only_grow(state: ClusterState) -> Problems:
    """Every id in use was issued."""
    for job_id, job in state.jobs.items():
        if job.job_id != job_id:
            yield f"job {job_id} is stored as {job.job_id}"
        if job_id >= state.next_job_id:
            yield f"job {job_id} exists but the next id is {state.next_job_id}"


def _states_are_whole(state: ClusterState) -> Problems:
    """What a record holds fits its state."""
    for job in state.jobs.values():
        for text in _wrong_with(job):
            yield f"job {job.job_id} {job.state.name}: {text}"


def _wrong_with(job: Job) -> Problems:
    if not job.reason:
        yield "has no reason"
    if job.state in ACTIVE_STATES:
        yield from _wrong_with_active(job)
        return
    if job.held:
        yield f"holds {job.held}"
    if job.steps or job.untold:
        yield f"has steps {sorted(job.steps)}, tells {job.untold}"
    if job.fence is not None:
        yield "has a fence"
    if job.state is JobState.PENDING:
        yield from _wrong_with_pending(job)
    elif job.state not in TERMINAL_STATES:
        yield "is a state that no job is in"
    elif job.end_at is None:
        yield "has no end"
    elif job.start_at is not None and job.end_at < job.start_at:
        yield "ended before it started"


def _wrong_with_pending(job: Job) -> Problems:
    run = (job.dispatch_at, job.start_at, job.end_at, job.time_signalled_at, job.suspended_at)
    if any(instant is not None for instant in run) or job.slices or job.exits or job.past_steps:
        yield "keeps something of a run"
    if (job.priority == 0) != (job.reason in reasons.HOLDS):
        yield f"priority {job.priority} with reason {job.reason}"


def _wrong_with_active(job: Job) -> Problems:
    nodes = [part.node for part in job.slices]
    launched = launch_nodes(job)
    if job.array_pending:
        yield "stands for pending tasks"
    if not nodes or job.run_attempt < 1 or job.dispatch_at is None:
        yield "was never dispatched"
    if len(set(nodes)) != len(nodes) or not set(job.held) <= set(nodes):
        yield f"holds {job.held} of {nodes}"
    if not set(job.exits) <= set(launched):
        yield f"has exits of {sorted(job.exits)}, launched on {launched}"
    if job.state in (JobState.RUNNING, JobState.SUSPENDED) and job.start_at is None:
        yield "has no start"
    if (job.suspended_at is not None) != (job.state is JobState.SUSPENDED):
        yield f"suspended at {job.suspended_at}"
    if not set(job.untold) <= set(launched):
        yield f"tells {job.untold}, launched on {launched}"
    if job.fence is None:
        if decided(job):
            yield "every part that decides ended, the job did not"
        return
    targets = job.fence.targets
    if job.state is not JobState.COMPLETING:
        yield "has a fence"
    if not targets:
        yield "has a fence that waits for nobody"
    if not set(targets) <= set(launched) or set(targets) & set(job.exits):
        yield f"has a fence over {targets}, launched on {launched}, exits of {sorted(job.exits)}"
    if not set(targets) <= set(job.held):
        yield f"gave resources back before the fence was confirmed: {targets} of {job.held}"


def _steps_are_within_their_jobs(state: ClusterState) -> Problems:
    """Steps together hold no more than their job has on any node; ids were issued, once in an attempt."""
    for job in state.jobs.values():
        if not job.steps and not job.past_steps:
            continue
        for text in _wrong_with_steps(job):
            yield f"job {job.job_id} {job.state.name}: {text}"


def _wrong_with_steps(job: Job) -> Problems:
    past = [item.row.step_id for item in job.past_steps]
    ids = [*job.steps, *past]
    if len(set(ids)) != len(ids):
        yield f"step ids given twice: {ids}"
    for step_id in ids:
        if step_id == STEP_INTERACTIVE:
            if not job.interactive_used:
                yield "has an interactive step that was not noted"
        elif step_id >= job.next_step_id:
            yield f"has step {step_id}, the next is {job.next_step_id}"
    whole = {part.node: part for part in job.slices}
    for step_id, step in job.steps.items():
        if step.step_id != step_id:
            yield f"step {step_id} is stored as {step.step_id}"
        for text in _wrong_with_step(step, set(whole)):
            yield f"step {step_id}: {text}"
    own = job.slices if job.request.srun else ()
    held = held_by(job.steps.values(), [part for part in own if part.node not in job.exits])
    for node, taken in held.items():
        part = whole.get(node)
        if part is None:
            continue
        if taken.cpus > part.cpus or (part.memory_mb and taken.memory_mb > part.memory_mb):
            yield f"steps hold {taken} of {part}"
        have: dict[tuple[str, str], int] = {}
        for item in part.gres:
            have[item.name, item.type] = have.get((item.name, item.type), 0) + item.count
        if any(count > have.get(key, 0) for key, count in taken.gres.items()):
            yield f"steps hold {taken} of {part}"


def _wrong_with_step(step: Step, nodes: set[str]) -> Problems:
    names = [part.node for part in step.slices]
    ranks = sorted(rank for part in step.slices for rank in part.ranks)
    if not names or len(set(names)) != len(names) or not set(names) <= nodes:
        yield f"is on {names}"
    if ranks != list(range(step.num_tasks)) or not all(part.ranks for part in step.slices):
        yield f"has ranks {ranks} of {step.num_tasks}"
    if not waits_for(step):
        yield "every part ended, the step did not"
    if not (set(step.exits) | set(step.gone)) <= set(names) or set(step.exits) & set(step.gone):
        yield f"has exits of {sorted(step.exits)}, without {step.gone}"


def _nodes_are_not_overbooked(state: ClusterState) -> Problems:
    """A node that takes new work holds no more than it has; counters are the sums of the slices.

    A node that came back smaller than what it holds is drained, and may be overbooked until that ends.
    """
    sums: dict[str, NodeUse] = {}
    for job in state.jobs.values():
        for part in holding(job):
            sums.setdefault(part.node, NodeUse()).add(job.job_id, part, +1)
    for name in sorted(sums.keys() | state.use.keys()):
        have, said = sums.get(name, NodeUse()), state.use.get(name, NodeUse())
        if (have.own_cpus, have.layers, have.memory_mb, have.gres, have.jobs, have.parts) != (
            said.own_cpus,
            said.layers,
            said.memory_mb,
            said.gres,
            said.jobs,
            said.parts,
        ):
            yield f"node {name}: counters differ from what jobs hold"
        node = state.nodes.get(name)
        if node is None or not state.schedulable(node):
            continue
        total = {(item.name, item.type): item.count for item in node.gres}
        if have.cpus > node.cpus or (node.memory_mb and have.memory_mb > node.memory_mb):
            yield f"node {name}: {have.cpus} of {node.cpus} CPUs, {have.memory_mb} of {node.memory_mb} MiB"
        for key, count in have.gres.items():
            if count > total.get(key, 0):
                yield f"node {name}: {count} of {total.get(key, 0)} {key}"


def _nothing_is_given_twice(state: ClusterState) -> Problems:
    """No CPU and no device of a node is in two slices; who has names has as many as it holds."""
    for name, use in state.use.items():
        for layer in {0, *use.layers}:
            mine = [p.cpu_ids for p in use.parts.values() if p.cpus and p.layer in (0, layer)]
            if not disjoint(map(mask_of, mine)):
                yield f"node {name}: a CPU is held twice: {mine}"
        devices: dict[str, list[int]] = {}
        for job_id, part in use.parts.items():
            if part.cpu_ids and part.cpus not in (0, mask_of(part.cpu_ids).bit_count()):
                yield f"job {job_id} on {name}: {part.cpus} CPUs are {part.cpu_ids}"
            for item in part.gres:
                mask = mask_of(item.indices)
                devices.setdefault(item.name, []).append(mask)
                if mask and mask.bit_count() != item.count:
                    yield f"job {job_id} on {name}: {item.count} {item.name} are {item.indices}"
        for kind, masks in devices.items():
            if not disjoint(masks):
                yield f"node {name}: a device of {kind} is held twice"


def _indexes_follow(state: ClusterState) -> Problems:
    """Derived sets are what a rebuild would make."""
    pending = {j.job_id for j in state.jobs.values() if j.state is JobState.PENDING}
    active = {j.job_id for j in state.jobs.values() if j.state in ACTIVE_STATES}
    arrays: dict[int, set[int]] = {}
    names: dict[tuple[int, str], set[int]] = {}
    for job in state.jobs.values():
        if job.array_job_id is not None:
            arrays.setdefault(job.array_job_id, set()).add(job.job_id)
        if job.job_id in pending or job.job_id in active:
            names.setdefault((job.request.uid, job.request.name), set()).add(job.job_id)
    for what, have, wanted in (
        ("pending", state.pending, pending),
        ("active", state.active, active),
        ("by_array", state.by_array, arrays),
        ("by_name", state.by_name, names),
    ):
        if have != wanted:
            yield f"index {what} is {have}, not {wanted}"


def _licenses_and_reservations_are_right(state: ClusterState) -> Problems:
    """Counters of licences are what active jobs hold; what runs in a reservation keeps it."""
    used: dict[str, int] = {}
    for job in state.jobs.values():
        if job.state not in ACTIVE_STATES:
            if job.state is JobState.PENDING and (job.licenses or job.reservation):
                yield f"job {job.job_id} PENDING: holds {job.licenses}, runs in {job.reservation!r}"
            continue
        for name, count in job.licenses:
            used[name] = used.get(name, 0) + count
        if job.reservation and job.reservation not in state.reservations:
            yield f"job {job.job_id}: reservation {job.reservation} is gone"
    if used != state.licenses_used:
        yield f"licences in use are {state.licenses_used}, not {used}"
    for name, one in state.reservations.items():
        if name != one.name or one.end_at <= one.start_at or not 0 <= one.changed <= state.applied:
            yield f"reservation {name}: {one}"


def _array_tasks_are_once(state: ClusterState) -> Problems:
    """A task stands in exactly one record: its own, or the one record of the pending rest."""
    for array_job_id in state.by_array:
        seen: set[int] = set()
        rests = 0
        for job in state.array_members(array_job_id):
            tasks = list(IndexSet(job.array_pending)) if job.array_pending else [job.array_task_id]
            rests += bool(job.array_pending)
            for task in tasks:
                if task is None or not job.array_min <= task <= job.array_max:
                    yield f"array {array_job_id}: task {task} of job {job.job_id} is out of range"
                elif task in seen:
                    yield f"array {array_job_id}: task {task} is there twice"
                else:
                    seen.add(task)
        if rests > 1:
            yield f"array {array_job_id} has {rests} records of a pending rest"


def _outbox_is_ordered(state: ClusterState) -> Problems:
    """Versions are unique and were issued; a row lies under its own key."""
    seen: set[int] = set()
    for key, row in state.outbox.items():
        if key != (row.job_id, row.attempt):
            yield f"row of {row.job_id}.{row.attempt} lies under {key}"
        if row.seq in seen or row.seq > state.acct_seq:
            yield f"row of {row.job_id}.{row.attempt}: version {row.seq}, last issued {state.acct_seq}"
        if row.attempt < 1:
            yield f"row of {row.job_id} without an attempt"
        seen.add(row.seq)
    for triple, step_row in state.step_outbox.items():
        if triple != (step_row.job_id, step_row.attempt, step_row.step.step_id):
            yield f"step row of {step_row.job_id}.{step_row.attempt} lies under {triple}"
        if step_row.seq in seen or step_row.seq > state.acct_seq:
            yield f"step row {triple}: version {step_row.seq}, last issued {state.acct_seq}"
        seen.add(step_row.seq)


def _ended_rows_have_ends(state: ClusterState) -> Problems:
    """History never says that a run is over without saying when."""
    over = TERMINAL_STATES | {JobState.REQUEUED}
    for row in state.outbox.values():
        if row.gone:
            continue
        if row.state in over and row.end_at is None:
            yield f"row of {row.job_id}.{row.attempt} is {row.state.name} without an end"
        if row.state not in over and row.end_at is not None:
            yield f"row of {row.job_id}.{row.attempt} is {row.state.name} with an end"


RULES: Final[tuple[Callable[[ClusterState], Problems], ...]] = (
    _ids_only_grow,
    _states_are_whole,
    _steps_are_within_their_jobs,
    _nodes_are_not_overbooked,
    _nothing_is_given_twice,
    _indexes_follow,
    _licenses_and_reservations_are_right,
    _array_tasks_are_once,
    _outbox_is_ordered,
    _ended_rows_have_ends,
)
