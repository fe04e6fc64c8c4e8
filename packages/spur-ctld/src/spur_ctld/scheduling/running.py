"""Active attempts as the scheduler sees them: what they hold, and whether they may be preempted.  Pure."""

from collections.abc import Callable
from typing import Final, NamedTuple

from spur_core.states import JobState
from spur_ctld.scheduling.views import claims, end_in, expected_end
from spur_ctld.state.apply_preempt import may_requeue
from spur_ctld.state.cluster import ClusterState, holding, is_lent, layer_of
from spur_ctld.state.pending import base_priority, gres_map
from spur_ctld.state.records import Job, Partition
from spur_sched.api import NodeShare, Running

#: Job id -> the records that a view was made of, and the view.
Memo = dict[int, tuple[Job, Partition | None, Running]]


class Rules(NamedTuple):
    """The cluster's word where a partition says nothing, in seconds, and who makes priorities."""

    exempt_secs: int = 0
    priority_of: Callable[[Job], int] = base_priority


_NO_RULES: Final = Rules()


def running_views(state: ClusterState, memo: Memo | None = None, rules: Rules = _NO_RULES) -> list[Running]:
    """Every active attempt, by job id."""
    memo = {} if memo is None else memo
    found = []
    for job_id in sorted(state.active):
        job = state.jobs[job_id]
        partition = state.partitions.get(job.partition)
        if is_lent(job):
            # What it may have back depends on what others use.
            found.append(_lent_view(state, running_view(job, partition, rules)))
            continue
        if job.reservation:
            # It may end before the job's limit, and that changes without the job.
            found.append(running_view(job, partition, rules)._replace(end=end_in(state, job)))
            continue
        known = memo.get(job_id)
        fresh = known is not None and known[0] is job and known[1] is partition
        if known is None or not fresh or known[2].priority != rules.priority_of(job):
            known = memo[job_id] = (job, partition, running_view(job, partition, rules))
        found.append(known[2])
    for job_id in memo.keys() - state.active:
        del memo[job_id]
    return found


def running_view(job: Job, partition: Partition | None, rules: Rules = _NO_RULES) -> Running:
    """One attempt."""
    request, push = job.request, job.push
    return Running(
        job_id=job.job_id,
        attempt=job.run_attempt,
        priority=rules.priority_of(job),
        tier=partition.priority_tier if partition is not None else 0,
        partition=job.partition,
        uid=request.uid,
        account=request.account,
        qos=request.qos,
        started=job.start_at if job.state in (JobState.RUNNING, JobState.SUSPENDED) else None,
        end=expected_end(job),
        shares=tuple(
            NodeShare(part.node, part.cpus, part.memory_mb, gres_map(part.gres), part.ranks, part.layer)
            for part in holding(job)
        ),
        licenses=job.licenses,
        reservation=job.reservation,
        preempt_mode=_mode(job, partition),
        exempt_until=exempt_until(job, partition, rules.exempt_secs),
        grace_secs=partition.grace_time if partition is not None else 0,
        ending_since=_ending_since(job),
        room_for=push.by if push is not None else 0,
        lent=is_lent(job),
    )


def _lent_view(state: ClusterState, view: Running) -> Running:
    """With the CPUs that nobody uses of those that it lent."""
    shares = []
    for share in view.shares:
        node = state.nodes.get(share.node)
        cpus = claims(state, node).get(view.job_id, 0) if node is not None else 0
        shares.append(share._replace(cpus=cpus))
    return view._replace(shares=tuple(shares))


def exempt_until(job: Job, partition: Partition | None, default_secs: int) -> float:
    """From when on the attempt may be preempted; 0 = it did not start."""
    own = partition.preempt_exempt_time if partition is not None else None
    return (job.start_at or 0.0) + (default_secs if own is None else own)


def _mode(job: Job, partition: Partition | None) -> str:
    """What preemption may do to it now, resolved."""
    mode = partition.preempt_mode.lower() if partition is not None else "off"
    push = job.push
    if push is not None:
        return push.mode
    if job.time_signalled_at is not None or job.exits:
        return "off"
    if mode == "suspend" and (job.state is not JobState.RUNNING or layer_of(job)):
        # Who shares CPUs has none to lend.
        return "off"
    if mode == "requeue" and not may_requeue(job):
        return "cancel"
    return mode


def _ending_since(job: Job) -> float | None:
    if job.fence is not None:
        return job.fence.at
    if job.push is not None and job.push.mode != "suspend":
        return job.push.at
    if job.state is JobState.COMPLETING:
        return min((report.at for report in job.exits.values()), default=job.end_at)
    return None
