"""What the loss of a supervisor costs, by kind of step, and where a reported run stands."""

import pytest

from spur_core.ids import STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE, RuntimeId
from spur_core.states import JobState
from spur_ctld.node_memory import ABSENCE_SECS, Held, NodeMemory
from spur_ctld.recovery.cohorts import Loss, Verdict
from spur_ctld.recovery.policy import (
    Life,
    Standing,
    belongs,
    cohort,
    expected,
    fixed_verdict,
    loss_op,
    restorable,
    standing,
)
from spur_ctld.state import ops
from spur_ctld.state.records import Slice, StepAsk

BOTH = ("n1", "n2")


def rid(step: int, attempt: int = 1, job: int = 1) -> RuntimeId:
    return RuntimeId(job, attempt, step)


def started(sim, *, commit=True, **request):
    """Job 1 on two nodes with a supervisor on each."""
    sim.submit(min_nodes=2, max_nodes=2, num_tasks=2, **request)
    slices = tuple(Slice(node=name, cpus=2, ranks=(rank,)) for rank, name in enumerate(BOTH))
    op = ops.DispatchBegin(at=0, job_id=1, attempt=1, partition="main", slices=slices, everywhere=True)
    assert sim.do(op).refusal is None
    if commit:
        assert sim.commit(1).refusal is None
    return sim


def step(sim, who, launched=True, **more):
    """A step over both nodes; its id."""
    ask = StepAsk(num_tasks=2, min_nodes=2, overlap=True)
    result = sim.do(ops.StepCreate(at=0, job_id=1, attempt=1, who=who, ask=ask, **more))
    assert result.refusal is None, result.refusal
    if launched:
        sim.do(ops.StepLaunched(at=0, job_id=1, attempt=1, step_id=result.step_id, start_at=sim.now))
    return result.step_id


def lose(sim, step_id, node="n1", certain=True):
    """The result of what the loss asks for, or None."""
    op = loss_op(sim.state, Loss(rid(step_id), node, f"its supervisor on {node} was lost", certain), sim.now)
    return None if op is None else sim.do(op)


@pytest.mark.parametrize("node", BOTH)
def test_batch_and_its_companions(sim, node):
    started(sim)
    assert lose(sim, STEP_BATCH, node).refusal is None
    fence = sim.job(1).fence
    assert (fence.outcome, fence.targets, fence.why) == (JobState.PENDING, BOTH, "recovery")
    assert lose(sim, STEP_BATCH, node) is None, "once"
    for name in BOTH:
        sim.confirm(1, name)
    job = sim.job(1)
    assert (job.state, job.run_attempt, job.recovery_fences, job.restarts) == (JobState.PENDING, 1, 1, 1)
    assert lose(sim, STEP_BATCH, node) is None, "of an attempt that is over"


@pytest.mark.parametrize(
    ("request_", "step_id", "certain", "state", "exit_", "reason"),
    [
        ({"requeue": False}, STEP_BATCH, True, JobState.NODE_FAIL, (1, 0), "SystemFailure"),
        ({"alloc_only": True, "script": b""}, STEP_EXTERN, True, JobState.NODE_FAIL, (1, 0), "SystemFailure"),
        ({"srun": True}, 0, True, JobState.FAILED, (0, 9), "RaisedSignal:9(Killed)"),
        ({"srun": True}, 0, False, JobState.NODE_FAIL, (1, 0), "SystemFailure"),
    ],
)
def test_jobs_that_do_not_go_back(sim, request_, step_id, certain, state, exit_, reason):
    started(sim, **request_)
    assert lose(sim, step_id, certain=certain).refusal is None
    for name in BOTH:
        sim.confirm(1, name)
    job = sim.job(1)
    assert (job.state, (job.exit.code, job.exit.signal), job.reason) == (state, exit_, reason)


def test_a_numbered_step(sim, alice):
    started(sim)
    number, other = step(sim, alice), step(sim, alice)
    assert lose(sim, number).refusal is None
    stopped = sim.job(1).steps[number]
    assert (stopped.stop.why, stopped.stop.hard, stopped.gone) == ("lost", True, ("n1",))
    assert stopped.stop.text.startswith("SupervisorLost: its supervisor on n1")
    assert standing(sim.state, "n2", rid(number)) is Standing.STOPPING
    assert standing(sim.state, "n1", rid(number)) is Standing.ON_FILE
    # The other node may lose its own before it was told to end it.
    assert lose(sim, number, "n2").refusal is None
    past = {p.row.step_id: p.row for p in sim.job(1).past_steps}[number]
    assert (past.state, (past.exit.code, past.exit.signal)) == (JobState.FAILED, (0, 9))
    assert lose(sim, number) is None
    assert (sim.job(1).state, sim.job(1).fence) == (JobState.RUNNING, None), "the job goes on"
    assert sim.job(1).steps[other].stop is None


def test_an_interactive_step(sim, alice):
    started(sim, alloc_only=True, script=b"")
    step_id = step(sim, alice, interactive=True, pty=True)
    assert step_id == STEP_INTERACTIVE
    node = sim.job(1).steps[step_id].slices[0].node
    assert lose(sim, step_id, node).refusal is None
    assert sim.job(1).state is JobState.RUNNING
    assert sim.job(1).fence is None


def test_a_step_that_nobody_confirmed_in_time_is_ended_everywhere(sim, alice):
    started(sim)
    number = step(sim, alice)
    assert lose(sim, number, "n2", certain=False).refusal is None
    stopped = sim.job(1).steps[number]
    assert (stopped.stop.why, stopped.stop.hard, stopped.gone) == ("lost", True, ())
    assert stopped.stop.text == "SupervisorLost: its supervisor on n2 was lost"


def test_standings(sim, alice):
    assert standing(sim.state, "n1", rid(STEP_BATCH)) is Standing.NEVER_ISSUED
    started(sim, commit=False)
    for step_id, node, attempt, found in (
        (STEP_BATCH, "n1", 1, Standing.LAUNCHING),
        (STEP_BATCH, "n2", 1, Standing.LAUNCHING),
        (STEP_BATCH, "n1", 2, Standing.NEVER_ISSUED),
        (STEP_BATCH, "n9", 1, Standing.ELSEWHERE),
        (STEP_EXTERN, "n1", 1, Standing.ELSEWHERE),
        (0, "n1", 1, Standing.ELSEWHERE),
    ):
        assert standing(sim.state, node, rid(step_id, attempt)) is found
    assert cohort(sim.state, rid(STEP_BATCH)) is None
    sim.commit(1)
    assert standing(sim.state, "n1", rid(STEP_BATCH)) is Standing.CURRENT
    assert cohort(sim.state, rid(STEP_BATCH)).nodes == set(BOTH)
    number = step(sim, alice, launched=False)
    assert standing(sim.state, "n1", rid(number)) is Standing.LAUNCHING
    assert cohort(sim.state, rid(number)) is None
    assert number == 0, "step 0 is a step of its own"
    sim.fence(1, recovery=True)
    assert standing(sim.state, "n1", rid(STEP_BATCH)) is Standing.FENCED
    for name in BOTH:
        sim.confirm(1, name)
    assert standing(sim.state, "n1", rid(STEP_BATCH)) is Standing.OLDER
    sim.run(1, BOTH)
    assert standing(sim.state, "n1", rid(STEP_BATCH)) is Standing.OLDER
    sim.complete(1)
    sim.complete(1, "n2")
    assert standing(sim.state, "n1", rid(STEP_BATCH)) is Standing.OVER
    sim.state.next_job_id = 9
    assert standing(sim.state, "n1", rid(0, job=5)) is Standing.FORGOTTEN


def test_attempt_zero_stands_nowhere(sim):
    """ "Not given" matches no attempt; the wire refuses it before."""
    started(sim)
    assert standing(sim.state, "n1", rid(STEP_BATCH, 0)) is Standing.OLDER
    assert loss_op(sim.state, Loss(rid(STEP_BATCH, 0), "n1", "x"), sim.now) is None


@pytest.mark.parametrize("found", [one for one in Standing if one is not Standing.CURRENT])
@pytest.mark.parametrize("life", list(Life))
def test_only_what_lives_wrongly_is_ended(found, life):
    verdict = fixed_verdict(found, life)
    if found is Standing.STOPPING and life is Life.GONE:
        assert verdict is None
        return
    assert verdict is not None
    if verdict is Verdict.FENCE:
        assert found in (Standing.OLDER, Standing.ELSEWHERE, Standing.FENCED, Standing.ON_FILE)
        assert life is Life.LIVE or found is Standing.FENCED
    assert verdict is not Verdict.KEEP or life is Life.FINISHED


@pytest.mark.parametrize(
    ("step_id", "detail", "may"),
    [
        (STEP_EXTERN, "", True),
        (STEP_EXTERN, "restore failed", False),
        (STEP_EXTERN, "restore failed: no room", False),
        (STEP_BATCH, "", False),
        (0, "", False),
        (STEP_INTERACTIVE, "", False),
    ],
)
def test_only_an_extern_supervisor_is_replaced(step_id, detail, may):
    assert restorable(rid(step_id), detail) is may


def test_lists_are_compared_step_by_step(sim, alice):
    started(sim)
    one, two = step(sim, alice), step(sim, alice)
    young = step(sim, alice, launched=False)
    assert expected(sim.job(1), "n1") == [rid(STEP_BATCH), rid(one), rid(two)]
    memory = NodeMemory()
    held = [Held(rid(STEP_BATCH), "live"), Held(rid(one), "live"), Held(rid(77), "live")]
    held += [Held(rid(young), "live"), Held(rid(one, attempt=2), "live")]
    found = memory.compare(sim.state, "n1", held, 0.0)
    assert found.obsolete == (rid(77),), "a later attempt, and a launch under way, are left alone"
    assert found.lost == ()
    assert memory.compare(sim.state, "n1", held, ABSENCE_SECS - 1).lost == ()
    (missing,) = memory.compare(sim.state, "n1", held, ABSENCE_SECS).lost
    assert missing.rid == rid(two)
    # What the agent itself calls lost need not be missing for a minute.
    dead = [Held(rid(STEP_BATCH), "live"), Held(rid(one), "lost"), Held(rid(two), "finished")]
    (missing,) = memory.compare(sim.state, "n1", dead, ABSENCE_SECS + 1).lost
    assert missing.rid == rid(one)
    assert memory.names_live("n1", rid(STEP_BATCH), ABSENCE_SECS)
    assert not memory.names_live("n1", rid(one), 0.0)
    assert not memory.names_live("n2", rid(STEP_BATCH), 0.0)


def test_a_lost_extern_step_waits_for_its_agents_own_report(sim):
    started(sim, alloc_only=True, script=b"")
    memory = NodeMemory()
    lost = [Held(rid(STEP_EXTERN), "lost")]
    assert memory.compare(sim.state, "n1", lost, 0.0).lost == ()
    assert len(memory.compare(sim.state, "n1", lost, ABSENCE_SECS).lost) == 1


def test_a_step_that_is_over_is_ended_where_it_lives_on(sim, alice):
    started(sim)
    number = step(sim, alice)
    for node in BOTH:
        assert belongs(sim.state, node, rid(number))
        sim.complete(1, node, step_id=number, attempt=1)
    assert not belongs(sim.state, "n1", rid(number))
    assert belongs(sim.state, "n1", rid(STEP_BATCH))
