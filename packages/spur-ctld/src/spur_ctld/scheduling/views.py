"""State records as the scheduler's views.  Pure."""

from collections.abc import Sequence

import msgspec

from spur_core.grammar.hostlist import natural_key
from spur_core.grammar.sharing import parse as parse_sharing
from spur_core.states import JobState, NodeAvail
from spur_ctld.state import distribution, resv_gate
from spur_ctld.state.access import owning_job
from spur_ctld.state.cluster import ClusterState, is_lent
from spur_ctld.state.pending import gres_map
from spur_ctld.state.records import UNLIMITED, Gres, Job, Node, Partition, Request, Slice
from spur_sched.api import NodeView, PartitionView, Placement

#: What DRAIN, DOWN and INACTIVE are not.
_UP = frozenset({"UP"})


def expected_end(job: Job) -> float | None:
    """When the attempt ends at the latest; None without a limit."""
    if job.fence is not None:
        return job.fence.at
    limit = job.request.time_limit
    begun = job.start_at if job.start_at is not None else job.dispatch_at
    grace_end = job.push.end_at if job.push is not None else None
    if limit is None or limit == UNLIMITED or begun is None:
        return grace_end
    end = begun + limit + job.suspended_secs
    return end if grace_end is None else min(end, grace_end)


def end_in(state: ClusterState, job: Job) -> float | None:
    """The same, in a reservation that may end before."""
    end, over = expected_end(job), resv_gate.run_ends(state, job)
    return end if over is None else over if end is None else min(end, over)


def claims(state: ClusterState, node: Node) -> dict[int, int]:
    """CPUs that suspended attempts want back, by job: those that nobody else uses now."""
    use = state.use.get(node.name)
    found: dict[int, int] = {}
    if use is None:
        return found
    free = node.cpus - use.cpus
    for job_id in sorted(use.jobs):
        job = state.jobs[job_id]
        if is_lent(job) and job.state is JobState.SUSPENDED:
            cpus = next(part.cpus for part in job.slices if part.node == node.name)
            found[job_id] = max(0, min(cpus, free))
            free -= found[job_id]
    return found


def node_view(state: ClusterState, node: Node) -> NodeView:
    """One node with what runs on it; cool-downs are laid over it by the builder."""
    use = state.use.get(node.name)
    held = [state.jobs[job_id] for job_id in sorted(use.jobs)] if use is not None else []
    running = []
    layers: list[tuple[str, int] | None] = []
    claimed: dict[int, int] = {}
    for job in held:
        job_id = job.job_id
        part = next(part for part in job.slices if part.node == node.name)
        cpus = part.cpus
        if is_lent(job):
            # Its CPUs are others' for the taking, but only of those who may push it aside.
            claimed = claimed or claims(state, node)
            cpus = claimed.get(job_id, 0)
        running.append((end_in(state, job), cpus, part.memory_mb, gres_map(part.gres)))
        layers.append((job.partition, part.layer) if part.layer else None)
    owned = owning_job(state, held)
    return NodeView(
        name=node.name,
        cpus=node.cpus,
        memory_mb=node.memory_mb,
        gres=gres_map(node.gres),
        used_cpus=(use.own_cpus if use else 0) + sum(claimed.values()),
        used_memory_mb=use.memory_mb if use else 0,
        used_gres=dict(use.gres) if use else {},
        schedulable=state.schedulable(node),
        known=node.avail is not NodeAvail.UNKNOWN,
        weight=node.weight,
        features=frozenset(node.features),
        running=tuple(running),
        jobs=len(use.jobs) if use else 0,
        sockets=node.sockets,
        cores_per_socket=node.cores_per_socket if _told(node) else 0,
        threads_per_core=node.threads_per_core,
        tmp_disk_mb=node.tmp_disk_mb,
        owner=owned.request.uid if owned is not None else None,
        users=frozenset(job.request.uid for job in held),
        partition_cpus=_partition_cpus(held, node.name),
        layers=tuple(layers) if use is not None and use.layers else (),
    )


def _told(node: Node) -> bool:
    """Whether sockets, cores and threads are those of all its CPUs."""
    return node.sockets * node.cores_per_socket * node.threads_per_core >= node.cpus


def _partition_cpus(held: Sequence[Job], node: str) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for job in held:
        cpus = next(part.cpus for part in job.slices if part.node == node)
        found[job.partition] = found.get(job.partition, 0) + cpus
    return tuple(found.items())


def partition_view(partition: Partition) -> PartitionView:
    """One partition with all its members."""
    sharing = parse_sharing(partition.oversubscribe)
    return PartitionView(
        name=partition.name,
        up=partition.state in _UP,
        state=partition.state,
        nodes=frozenset(partition.nodes),
        max_time=partition.max_time,
        max_nodes=partition.max_nodes,
        min_nodes=partition.min_nodes,
        priority_tier=partition.priority_tier,
        oversubscribe=sharing.word,
        share=sharing.most,
        exclusive_user=partition.exclusive_user,
        max_cpus_per_node=partition.max_cpus_per_node,
        lln=partition.lln,
        req_resv=partition.req_resv,
    )


def limit_of_deadline(request: Request, now: float) -> int | None:
    """The limit of a job that asked for none but has a deadline to end by; None = as it is."""
    limit = UNLIMITED if request.time_limit is None else request.time_limit
    if request.deadline_at is None or not (request.limit_open or limit == UNLIMITED):
        return None
    return min(limit, max(60, int(request.deadline_at - now)))


def slices_of(placement: Placement, request: Request) -> tuple[Slice, ...]:
    """A placement as the log records it; the tasks of a stand-alone srun lie as its user wished.

    Nodes stand in the order of their names, as every list of them is shown: programs take the first host of
    that list for the one with rank 0.
    """
    slices = []
    first = 0
    for share in sorted(placement.shares, key=lambda share: natural_key(share.node)):
        after = first + len(share.ranks)
        gres = (Gres(name=name, type=kind, count=count) for (name, kind), count in sorted(share.gres.items()))
        slices.append(
            Slice(
                node=share.node,
                cpus=share.cpus,
                memory_mb=share.memory_mb,
                gres=tuple(gres),
                ranks=tuple(range(first, after)),
                layer=share.layer,
            )
        )
        first = after
    return _dealt(tuple(slices), request) if request.srun else tuple(slices)


def _dealt(slices: tuple[Slice, ...], request: Request) -> tuple[Slice, ...]:
    how = distribution.parse(request.distribution)
    room = [part.cpus // request.cpus_per_task for part in slices]
    tasks = sum(len(part.ranks) for part in slices)
    if how.kind == "arbitrary":
        wanted = request.task_nodes[:tasks]
        dealt = [tuple(rank for rank, name in enumerate(wanted) if name == part.node) for part in slices]
        if len(wanted) < tasks or any(len(own) > most for own, most in zip(dealt, room, strict=True)):
            return slices
    elif sum(room) < tasks:
        return slices
    else:
        given = [len(part.ranks) for part in slices]
        if how.kind == "plane" or how.pack:
            given = distribution.counts(room, tasks, how)
        dealt = distribution.ranks(given, how)
    return tuple(msgspec.structs.replace(part, ranks=own) for part, own in zip(slices, dealt, strict=True))
