"""Would a waiting job, changed like that, ever run?  Asked before the change is recorded, as at submit."""

from typing import Final

from spur_core.states import JobState
from spur_ctld.api.jobs_read import named
from spur_ctld.scheduling import trial
from spur_ctld.site import Site
from spur_ctld.state import resv_gate
from spur_ctld.state.apply_control import updated
from spur_ctld.state.ops import Hold, Refusal, Target, Update
from spur_ctld.state.records import Job
from spur_ctld.state.targets import may

#: Fields that say nothing of the nodes a job needs; a job whose nodes have gone may still be renamed.
_SILENT: Final = (
    "account begin_at comment deadline_at dependency limit_open name nice qos requeue reservation"
    " site_factor stderr stdin stdout time_limit time_min wckey work_dir"
)
_ELSEWHERE: Final = frozenset(_SILENT.split())


def refusals(site: Site, op: Update | Hold) -> tuple[Refusal | None, ...]:
    """For each target of `op` why its change would be refused as a new submission; None = it would not."""
    if isinstance(op, Hold) or not (op.changes.keys() - _ELSEWHERE or "reservation" in op.changes):
        return (None,) * len(op.targets)
    return tuple(_refusal(site, op, target) for target in op.targets)


def _refusal(site: Site, op: Update, target: Target) -> Refusal | None:
    jobs = named(site.ledger.state, [target])
    if not all(may(op.who, job) for job in jobs):
        # Whose job it is is not his to learn; applying it says so.
        return None
    for job in jobs:
        if job.state is JobState.PENDING and (why := _obstacle(site, op, job)) is not None:
            return why
    return None


def _obstacle(site: Site, op: Update, job: Job) -> Refusal | None:
    changed = updated(site.ledger.state, op, job)
    if isinstance(changed, Refusal):
        # Applying it says the same, record by record.
        return None
    if "reservation" in op.changes and (text := resv_gate.obstacle(site.ledger.state, changed.request)):
        return Refusal("bad_reservation", text)
    if not op.changes.keys() - _ELSEWHERE:
        return None
    found = trial.obstacle(site, changed.request, changed.priority)
    return None if found is None else Refusal(found.code, found.text)
