"""Which step a caller means, and whether the caller may have it."""

from collections.abc import Sequence
from typing import Any, Final

from spur_agent import trust
from spur_agent.gate import CALLER
from spur_agent.sessions import Phase, Session, SessionTable
from spur_core.errors import BusyError, NotFound, WrongState
from spur_core.ids import STEP_BATCH, STEP_EXTERN

#: Without a step: the job's own, whose output is meant, or in whose place a command runs.
_OWN_OUTPUT: Final = (STEP_BATCH, 0)
_OWN_PLACE: Final = (STEP_BATCH, STEP_EXTERN, 0)


class StepLost(WrongState):
    """Nobody will ever know how the step ended; everything of it here was killed."""

    code = "supervisor_lost"


def find(table: SessionTable, rid: Any, own: Sequence[int]) -> Session:
    """The step that is meant.  Attempt 0 is the present one; without a step the first of `own` that is here.

    Raises:
        NotFound: nothing of that job, or of that attempt, is here.
        AccessDenied: it is another user's.
        StepLost: its supervisor was lost.
        BusyError: it is being launched.
    """
    found = table.of_job(rid.job_id)
    known = [s for s in found if s.phase is not Phase.LOST] or found
    if known:
        # Before anything is told about the job: whose is it?
        trust.require_owner(CALLER.get(), known[0].uid, known[0].user)
    if rid.run_attempt:
        found = [s for s in found if s.rid.run_attempt == rid.run_attempt]
    elif found:
        newest = max(s.rid.run_attempt for s in found)
        found = [s for s in found if s.rid.run_attempt == newest]
    wanted = (rid.step_id,) if rid.HasField("step_id") else own
    here = {s.rid.step_id: s for s in found}
    session = next((here[step_id] for step_id in wanted if step_id in here), None)
    if session is None:
        raise NotFound(f"no such step of job {rid.job_id} on this node")
    trust.require_owner(CALLER.get(), session.uid, session.user)
    if session.phase is Phase.LOST:
        raise StepLost(f"the supervisor of {session.rid} was lost")
    if session.phase is Phase.LAUNCHING:
        raise BusyError(f"{session.rid} is being launched; ask again")
    return session


def find_output(table: SessionTable, rid: Any) -> Session:
    """The step whose output is meant.

    Raises:
        WrongState: it goes to files.
        and as `find`.
    """
    session = find(table, rid, _OWN_OUTPUT)
    if not session.claim.spooled:
        where = session.stdout_path or "files"
        raise WrongState(f"the output of {session.rid} goes to {where}")
    return session


def find_place(table: SessionTable, rid: Any) -> Session:
    """The step inside which a command is to run.

    Raises:
        WrongState: it has ended.
        and as `find`.
    """
    session = find(table, rid, _OWN_PLACE)
    if session.phase is not Phase.LIVE:
        raise WrongState(f"{session.rid} has ended")
    return session
