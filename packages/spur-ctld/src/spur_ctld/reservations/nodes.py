"""Which nodes a reservation gets.  Pure."""

from collections.abc import Iterable, Mapping, Sequence

from spur_core.errors import GrammarError, RequestError
from spur_core.grammar.hostlist import expand, natural_key
from spur_core.states import ACTIVE_STATES
from spur_ctld.scheduling.views import expected_end
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import Partition
from spur_ctld.state.reservations import Reservation, model
from spur_sched.reservations.choice import Ask, Candidate, Choice, choose
from spur_sched.reservations.windows import collide

BUSY = "Requested nodes are busy"


class NodesBusy(RequestError):
    """Work on them goes on when the reservation begins."""

    code = "nodes_busy"

    def __init__(self) -> None:
        super().__init__(BUSY)


def named(text: str, state: ClusterState) -> tuple[str, ...]:
    """The nodes of a hostlist in natural order; "ALL" = every one.

    Raises:
        RequestError: one is not known.
    """
    if text.upper() == "ALL":
        return in_order(state.nodes)
    try:
        found = dict.fromkeys(expand(text))
    except GrammarError:
        found = {"": None}
    if any(name not in state.nodes for name in found):
        raise RequestError("Invalid node name specified")
    return in_order(found)


def in_order(nodes: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(nodes, key=natural_key))


def busy(state: ClusterState, node: str, start: float, but: str = "") -> bool:
    """Whether work on the node may go on at `start`, apart from that of reservation `but`."""
    use = state.use.get(node)
    for job_id in use.jobs if use is not None else ():
        job = state.jobs[job_id]
        if job.state not in ACTIVE_STATES or (but and job.reservation == but):
            continue
        end = expected_end(job)
        if end is None or end > start:
            return True
    return False


def check_idle(state: ClusterState, one: Reservation, nodes: Iterable[str]) -> None:
    """Raises NodesBusy when work on one of the nodes goes on at its start, which its flags do not allow."""
    if "IGNORE_JOBS" in one.flags or one.floating is not None:
        return
    if any(busy(state, node, one.start_at, one.name) for node in nodes):
        raise NodesBusy


def pick(
    state: ClusterState,
    partitions: Mapping[str, Partition],
    one: Reservation,
    pool: Sequence[str],
    *,
    avoid: frozenset[str] = frozenset(),
) -> Choice | None:
    """Nodes for one that asks for numbers; None when there are not enough.

    Args:
        pool: whom to choose among; empty = the partition.
        avoid: nodes that it has and that are to be replaced.
    """
    if not pool:
        partition = partitions.get(one.partition)
        pool = partition.nodes if partition is not None else ()
    wanted = model(one)
    kept: dict[str, float] = {}
    if not (wanted.overlap or wanted.maintenance):
        for other in state.reservations.values():
            if other.name == one.name or {"MAINT", "OVERLAP"} & set(other.flags):
                continue
            if other.nodes and collide(wanted, model(other)):
                part = dict(other.cpus) if other.cpus is not None else None
                for name in other.nodes:
                    kept[name] = kept.get(name, 0) + (part[name] if part is not None else float("inf"))
    own = {
        name
        for job in state.jobs.values()
        if one.name and job.state in ACTIVE_STATES and job.reservation == one.name
        for name in job.held
    }
    candidates = []
    for name in pool:
        node = state.nodes.get(name)
        if node is None or name in avoid:
            continue
        candidates.append(
            Candidate(
                name=name,
                up=state.schedulable(node),
                busy=busy(state, name, one.start_at, one.name),
                free_cpus=int(max(0, node.cpus - min(kept.get(name, 0), node.cpus))),
                cpus=node.cpus,
                threads=max(1, node.threads_per_core),
                # Where its own jobs run it stays first.
                weight=node.weight + (1 << 40 if name in own else 0),
                features=frozenset(node.features),
            )
        )
    ask = Ask(
        nodes=one.node_count,
        cores=one.core_count,
        constraint=one.features,
        ignore_jobs="IGNORE_JOBS" in one.flags or one.floating is not None,
        keep=frozenset(one.nodes) - avoid,
    )
    return choose(ask, candidates)


def cores_of(state: ClusterState, one: Reservation) -> int:
    """Cores that it keeps together."""
    part = dict(one.cpus) if one.cpus is not None else None
    total = 0
    for name in one.nodes:
        node = state.nodes.get(name)
        if node is not None:
            cpus = node.cpus if part is None else part.get(name, 0)
            total += cpus // max(1, node.threads_per_core)
    return total
