"""The signal ahead of the limit: once an attempt, until every node has passed it on."""

import pytest

from spur_core.states import JobState
from spur_ctld.state import events, ops


def begin(sim, job_id, attempt=1):
    return sim.do(ops.WarnBegin(at=0, job_id=job_id, attempt=attempt)).refusal


def told(sim, job_id, *nodes, attempt=1):
    return sim.do(ops.WarnTold(at=0, job_id=job_id, attempt=attempt, nodes=nodes)).refusal


def test_begun_once_and_crossed_off_by_node(sim):
    job_id = sim.submit(warn_signal="USR1@30")
    assert begin(sim, job_id).code == "wrong_state"
    sim.run(job_id)
    assert begin(sim, job_id, attempt=2) is not None
    assert begin(sim, job_id) is None
    assert sim.job(job_id).unwarned == ("n1",)
    assert events.WarnRequested(job_id, 1) in sim.events
    assert begin(sim, job_id).code == "wrong_state"
    assert told(sim, job_id, "n2").code == "wrong_state"
    assert told(sim, job_id, "n1", attempt=2) is not None
    assert told(sim, job_id, "n1") is None
    assert sim.job(job_id).unwarned == ()
    assert sim.job(job_id).warned_at is not None
    assert told(sim, job_id, "n1").code == "wrong_state"
    assert begin(sim, job_id).code == "wrong_state"


def test_the_next_attempt_has_its_own(sim):
    job_id = sim.submit(warn_signal="USR1")
    sim.run(job_id)
    assert begin(sim, job_id) is None
    sim.do(ops.Preempt(at=0, job_id=job_id, attempt=1, by=9, mode="requeue"))
    sim.confirm(job_id)
    job = sim.job(job_id)
    assert (job.state, job.warned_at, job.unwarned) == (JobState.PENDING, None, ())


@pytest.mark.parametrize("request_", [{}, {"warn_signal": "USR1"}])
def test_nobody_is_warned_without_need(sim, request_):
    job_id = sim.submit(**request_)
    sim.run(job_id)
    if request_:
        sim.do(ops.TimeLimitSignalled(at=0, job_id=job_id, attempt=1))
    assert begin(sim, job_id).code == "wrong_state"
