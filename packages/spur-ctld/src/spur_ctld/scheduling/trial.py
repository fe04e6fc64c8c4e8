"""Would this submission ever run, would it run now, and when?  Asked before anything is queued."""

import math
import time

from spur_core import reasons
from spur_core.errors import RequestError
from spur_core.grammar.hostlist import compress_sorted
from spur_ctld.scheduling.snapshot import View
from spur_ctld.site import Site
from spur_ctld.state import resv_gate
from spur_ctld.state.ops import Submit
from spur_ctld.state.pending import request_view
from spur_ctld.state.records import Request
from spur_sched.api import Infeasible, JobView, NodeView, Placement
from spur_sched.plan import plan


def job_view(op: Submit, now: float) -> JobView:
    """The submission as the scheduler would see it, alone and eligible."""
    return request_view(op.request, 0, op.priority, now, now)


def _in_reservation(site: Site, op: Submit, now: float) -> JobView:
    """The same, in the reservation that it can use now.

    Raises:
        RequestError: it names some, and none can be used.
    """
    gate = resv_gate.gate(site.ledger.state, op.request, now)
    if gate.reason:
        raise RequestError("Requested reservation not usable now")
    return resv_gate.inside(site.ledger.state, job_view(op, now), gate.name, now)


def require_feasible(site: Site, op: Submit) -> None:
    """Refuse a shape that no set of existing nodes could ever satisfy.

    Raises:
        RequestError: Slurm's sentence for it.
    """
    found = obstacle(site, op.request, op.priority)
    if found is not None:
        error = RequestError(found.text)
        error.code = found.code
        raise error


def obstacle(site: Site, request: Request, priority: int) -> Infeasible | None:
    """Why no set of existing nodes could ever run the request; None when some could."""
    partitions = site.catalog.partitions()
    if not any(name in partitions and partitions[name].nodes for name in request.partitions):
        # Partitions whose nodes are yet to register: nobody can say what they will have.
        return None
    now = site.clock()
    return site.builder.able().check(request_view(request, 0, priority, now, now))


def _place(view: View, job: JobView, now: float) -> Placement | None:
    found = plan(view.only(job), now)
    return found.placements[0] if found.placements else None


def require_now(site: Site, op: Submit, now: float) -> None:
    """`immediate`: refuse what cannot start at once.

    Raises:
        RequestError: it would have to wait.
    """
    request = op.request
    if op.held or request.begin_at is not None or request.dependency:
        raise RequestError("Immediate execution impossible, insufficient priority")
    state = site.ledger.state
    view = site.builder.cluster(site.memory.cooling(site.monotonic()))
    if _place(view, _in_reservation(site, op, now), now) is None:
        raise RequestError("Requested nodes are busy")
    priorities = site.priorities
    priorities.refresh()
    own = priorities.of_new(request, op.priority, op.priority_given, now)
    for job_id in state.pending:
        job = state.jobs[job_id]
        ahead = job.reason in (reasons.RESOURCES, reasons.PRIORITY) and priorities.of(job) >= own
        if ahead and set(job.request.partitions) & set(request.partitions):
            raise RequestError("Immediate execution impossible, insufficient priority")


def estimate(site: Site, op: Submit, now: float) -> str:
    """When and where it would start if nothing else changed, as `sbatch --test-only` prints it.

    Raises:
        RequestError: it would not start on what is up now.
    """
    start = max(now, op.request.begin_at or 0.0)
    view = site.builder.cluster()
    job = _in_reservation(site, op, start)
    found = _place(view, job, start)
    if found is None:
        # Alone in the queue it is the first one that waits, so it is promised the earliest instant.
        expected = plan(view.only(job), start).expected
        if expected and expected[0].at < math.inf:
            start = expected[0].at
            later = view.over([_after(node, start) for node in view.nodes()])
            found = _place(later, job, start)
    if found is None:
        raise RequestError("Requested nodes are busy")
    nodes = compress_sorted([share.node for share in found.shares])
    cpus = sum(share.cpus for share in found.shares)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(start))
    job_id = max(site.ledger.state.next_job_id, site.ledger.state.settings.first_job_id)
    return (
        f"Job {job_id} to start at {stamp} using {cpus} processors on nodes {nodes} "
        f"in partition {found.partition}"
    )


def _after(node: NodeView, instant: float) -> NodeView:
    """The node when everything that ends by `instant` has ended."""
    over = [item for item in node.running if item[0] is not None and item[0] <= instant]
    if not over:
        return node
    gres = dict(node.used_gres)
    for _, _, _, held in over:
        for key, count in held.items():
            gres[key] = gres.get(key, 0) - count
    return node._replace(
        used_cpus=node.used_cpus - sum(item[1] for item in over),
        used_memory_mb=node.used_memory_mb - sum(item[2] for item in over),
        used_gres={key: count for key, count in gres.items() if count > 0},
        running=tuple(item for item in node.running if item not in over),
        jobs=node.jobs - len(over),
    )
