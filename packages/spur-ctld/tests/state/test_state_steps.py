"""Steps inside a running job: ids, ends, what their job's end does to them, and their history."""

import pytest

from spur_core.ids import STEP_BATCH, STEP_INTERACTIVE
from spur_core.states import JobState
from spur_ctld.state import events, ops
from spur_ctld.state.records import Exit, Gres, Usage

COMPLETED, FAILED, CANCELLED = JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED
RUNNING, TIMEOUT = JobState.RUNNING, JobState.TIMEOUT


@pytest.fixture
def two(sim):
    """Job 1, a batch job on n1 and n2 with all their CPUs."""
    sim.submit(min_nodes=2, max_nodes=2, num_tasks=8)
    sim.run(1, ("n1", "n2"), cpus=4, memory_mb=400, gres=(Gres(name="gpu", count=2),))
    return sim


def test_a_step_from_its_creation_to_its_end(two):
    sim = two
    assert sim.ask(1, num_tasks=7, distribution="cyclic", name="hostname").step_id == 0
    step = sim.steps(1)[0]
    assert [part.ranks for part in step.slices] == [(0, 2, 4, 6), (1, 3, 5)]
    assert step.start_at is None
    assert sim.step_up(1, 0).refusal is None
    assert sim.step_row(1, 0).state is RUNNING
    assert sim.complete(1, "n2", step_id=0, usage=Usage(user_secs=1.0, max_rss_kb=10)) == "accepted"
    assert 0 in sim.steps(1)
    assert sim.complete(1, "n2", step_id=0) == "final"
    usage = Usage(user_secs=2.0, system_secs=0.5, max_rss_kb=7)
    assert sim.complete(1, "n1", step_id=0, code=3, usage=usage) == "accepted"
    job = sim.job(1)
    assert (job.state, job.steps, job.derived_exit) == (RUNNING, {}, Exit(code=3))
    row = sim.step_row(1, 0)
    assert (row.state, row.exit.code, row.nodelist, row.num_tasks, row.cpus) == (FAILED, 3, "n[1-2]", 7, 8)
    assert (row.usage, row.max_rss_node) == (Usage(user_secs=3.0, system_secs=0.5, max_rss_kb=10), "n2")
    assert (row.name, row.layout) == ("hostname", "Cyclic")
    assert row.alloc_tres == "billing=8,cpu=8,gres/gpu=4,mem=800M,node=2"
    assert sim.complete(1, "n1", step_id=0) == "final"


def test_ids_are_unique_in_an_attempt_and_start_again_with_the_next(two):
    sim = two
    assert [sim.step(1, overlap=True) for _ in range(3)] == [0, 1, 2]
    for name in ("n1", "n2"):
        sim.complete(1, name, step_id=1)
    assert sim.step(1, overlap=True) == 3
    sim.requeue(1)
    for name in ("n1", "n2"):
        sim.confirm(1, name)
    job = sim.job(1)
    assert (job.next_step_id, job.steps, job.past_steps) == (0, {}, ())
    assert sim.step_row(1, 0).state is CANCELLED
    sim.run(1, ("n1", "n2"))
    assert sim.step(1) == 0
    assert sim.complete(1, "n1", attempt=1, step_id=0) == "final", "attempt 1 is over"
    assert sim.step_row(1, 0, attempt=2).state is RUNNING


def test_a_stand_alone_srun_is_step_0_of_its_job(sim):
    sim.submit(srun=True, argv=(b"true",), script=b"", num_tasks=1)
    sim.run(1, ("n1",), cpus=4, ranks=[(0,)])
    assert sim.ask(1).refusal.code == "busy", "its own tasks have all of the job"
    assert sim.step(1, overlap=True) == 1
    sim.complete(1, "n1", step_id=1, code=1)
    sim.complete(1, "n1", step_id=0)
    job = sim.job(1)
    assert (job.state, job.derived_exit) == (COMPLETED, Exit(code=1))


def test_who_may_make_a_step_and_when(sim, alice, bob, admin):
    assert (
        sim.do(ops.StepCreate(at=0, job_id=9, attempt=1, who=alice, ask=ops.StepAsk())).refusal.text
        == "Invalid job id specified"
    )
    sim.submit()
    assert sim.ask(1).refusal.text == "Job is pending execution"
    sim.begin(1)
    assert sim.ask(1).refusal.code == "busy", "a script may run before the last node has confirmed"
    sim.commit(1)
    assert sim.ask(1, who=bob).refusal.text == "Access/permission denied"
    assert sim.ask(1, who=admin).step_id == 0
    assert sim.ask(1, attempt=2).refusal.text == "Job/step already completing or completed"
    sim.suspend(1)
    assert sim.ask(1).refusal.text == "Requested operation is presently disabled"
    sim.suspend(1, resume=True)
    sim.cancel(1)
    assert sim.ask(1).refusal.text == "Job/step already completing or completed"
    sim.confirm(1)
    assert sim.ask(1).refusal.text == "Job/step already completing or completed"


def test_refusals_have_slurms_words(two):
    assert two.ask(1, num_tasks=9).refusal.text == "More processors requested than permitted"
    assert two.ask(1, min_nodes=3).refusal.text == "Requested node configuration is not available"
    two.step(1)
    refusal = two.ask(1).refusal
    assert (refusal.code, refusal.text) == ("busy", "Requested nodes are busy")


def test_a_step_waits_for_what_others_hold(two):
    sim = two
    first = sim.step(1, exact=True, num_tasks=6)
    assert sim.ask(1, exact=True, num_tasks=3).refusal.code == "busy"
    second = sim.step(1, exact=True, num_tasks=2)
    assert sim.ask(1, exact=True, num_tasks=1).refusal.code == "busy"
    sim.complete(1, "n1", step_id=first)
    third = sim.step(1, exact=True, num_tasks=1)
    assert [part.node for part in sim.steps(1)[third].slices] == ["n1"]
    assert set(sim.steps(1)) == {first, second, third}


def test_a_repeated_request_gets_the_first_answer(two):
    sim = two
    first = sim.ask(1, request_id="r")
    assert sim.ask(1, request_id="r") == first
    assert list(sim.steps(1)) == [first.step_id]
    sim.saved_and_restored()
    for name in ("n1", "n2"):
        sim.complete(1, name, step_id=0)
    assert sim.ask(1, request_id="r") == first, "also when it is over"
    assert sim.job(1).next_step_id == 1


def test_a_step_that_nobody_had_is_taken_back(two):
    sim = two
    sim.ask(1, request_id="r")
    op = ops.StepForget(at=0, job_id=1, attempt=1, step_id=0)
    assert sim.do(op).refusal is None
    assert sim.do(op).refusal is not None
    assert sim.steps(1) == {}
    assert (1, 1, 0) not in sim.state.step_outbox
    assert sim.ask(1, request_id="r").step_id == 1, "its number is not given again"
    sim.step_up(1, 1)
    assert sim.do(ops.StepForget(at=0, job_id=1, attempt=1, step_id=1)).refusal is not None


def test_the_interactive_step_is_one_and_beside_all_others(two):
    sim = two
    sim.step(1)
    assert sim.ask(1, interactive=True, pty=True, num_tasks=4).step_id == STEP_INTERACTIVE
    step = sim.steps(1)[STEP_INTERACTIVE]
    assert (step.num_tasks, step.overlap, [part.node for part in step.slices]) == (1, True, ["n1"])
    sim.step_up(1, STEP_INTERACTIVE)
    assert sim.ask(1, interactive=True).refusal is not None
    assert sim.complete(1, "n1", step_id=STEP_INTERACTIVE, code=2) == "accepted"
    assert sim.ask(1, interactive=True).refusal is not None, "its identity was used"
    assert sim.job(1).next_step_id == 1


class TestStops:
    """Recorded first, then carried out; the first reason stays."""

    def test_by_the_owner(self, two, alice, bob):
        sim = two
        sim.step(1)
        assert sim.stop(1, 0, who=bob).text == "Access/permission denied"
        assert sim.stop(1, 0) is None
        assert events.StepChanged(1, 1, 0) in sim.events
        assert sim.stop(1, 0).text == "Job/step already completing or completed"
        assert sim.stop(1, 0, hard=True) is None, "a harder end is another end"
        assert sim.stop(1, 0, hard=True) is not None
        assert sim.steps(1)[0].stop.uid == alice.uid
        sim.complete(1, "n1", step_id=0, signal=15)
        sim.complete(1, "n2", step_id=0, signal=15)
        row = sim.step_row(1, 0)
        assert (row.state, row.exit.signal) == (CANCELLED, 15)
        assert sim.job(1).past_steps[0].stop.uid == alice.uid
        assert sim.stop(1, 0).text == "Job/step already completing or completed"

    def test_one_that_ended_by_itself_all_the_same(self, two):
        two.step(1, num_tasks=1)
        two.stop(1, 0)
        two.complete(1, "n1", step_id=0)
        assert two.step_row(1, 0).state is COMPLETED

    def test_by_its_limit(self, two):
        two.step(1, time_limit=60)
        assert two.stop(1, 0, who=ops.Who(), why="timeout") is None
        for name in ("n1", "n2"):
            two.complete(1, name, step_id=0, signal=15)
        assert two.step_row(1, 0).state is TIMEOUT

    def test_a_launch_that_failed_on_one_node(self, two):
        sim = two
        sim.ask(1)
        assert sim.stop(1, 0, who=ops.Who(), why="launch", text="n2: no", clear=("n2",)) is None
        assert sim.step_up(1, 0).refusal is not None
        assert sim.gone(1, 0, "n2") is not None, "it is crossed off already"
        assert sim.gone(1, 0, "n1") is None
        assert sim.steps(1) == {}
        row = sim.step_row(1, 0)
        assert (row.state, row.exit.code) == (FAILED, 1)
        assert sim.job(1).past_steps[0].stop.text == "n2: no"

    def test_a_lost_supervisor_fails_that_step_only(self, two):
        sim = two
        sim.step(1, overlap=True)
        sim.step(1, overlap=True)
        assert sim.gone(1, 0, "n1", lost=True) is None
        step = sim.steps(1)[0]
        assert (step.gone, step.stop.why, step.stop.hard) == (("n1",), "lost", True)
        assert step.stop.text.startswith("SupervisorLost")
        sim.complete(1, "n2", step_id=0, signal=9)
        row = sim.step_row(1, 0)
        assert (row.state, row.exit.signal) == (FAILED, 9)
        job = sim.job(1)
        assert (job.state, list(job.steps), job.derived_exit) == (RUNNING, [1], Exit(signal=9))

    def test_a_node_that_tells_the_exit_without_a_report(self, two):
        two.step(1, num_tasks=1)
        two.stop(1, 0)
        assert two.gone(1, 0, exit=Exit(code=4)) is None
        assert two.step_row(1, 0).exit.code == 4

    def test_another_attempt_or_step_has_no_effect(self, two):
        two.step(1)
        assert two.stop(1, 0, attempt=2) is not None
        assert two.stop(1, 1) is not None
        assert two.gone(1, 0, attempt=2) is not None
        assert two.gone(1, 0, "n9") is not None


def test_reports_that_do_not_belong(two):
    sim = two
    sim.step(1, num_tasks=1)
    assert sim.complete(1, "n2", step_id=0) == "wrong_node"
    assert sim.complete(1, "n1", step_id=7) == "wrong_node"
    assert sim.complete(1, "n1", step_id=STEP_INTERACTIVE) == "wrong_node"
    assert sim.complete(1, "n1", step_id=0, attempt=2) == "retry"
    assert sim.complete(9, "n1", step_id=0) == "unknown"


def test_a_short_step_may_end_before_its_last_node_confirmed(two):
    sim = two
    sim.ask(1)
    for name in ("n1", "n2"):
        assert sim.complete(1, name, step_id=0, started_at=1005.0) == "accepted"
    assert sim.step_up(1, 0).refusal is not None
    row = sim.step_row(1, 0)
    assert (row.state, row.start_at) == (COMPLETED, 1005.0)


def test_out_of_memory(two):
    two.step(1, num_tasks=1)
    two.complete(1, "n1", step_id=0, signal=9, oom=True)
    assert two.step_row(1, 0).state is JobState.OUT_OF_MEMORY


class TestTheJobsEnd:
    """Steps that are left when the deciding exit is in."""

    def test_they_are_cancelled(self, two):
        sim = two
        sim.step(1)
        sim.complete(1, "n1", step_id=0, code=0)
        assert sim.complete(1, "n1") == "accepted"
        assert 0 in sim.steps(1), "n2 still holds, and its report may come"
        sim.confirm(1, "n2")
        job = sim.job(1)
        assert (job.state, job.steps) == (COMPLETED, {})
        assert sim.step_row(1, 0).state is CANCELLED

    def test_a_report_on_the_way_counts(self, two):
        sim = two
        sim.step(1)
        sim.complete(1, "n1")
        assert sim.complete(1, "n1", step_id=0, code=2) == "accepted"
        assert sim.complete(1, "n2", step_id=0) == "accepted"
        assert sim.step_row(1, 0).state is FAILED
        assert sim.job(1).state is JobState.COMPLETING
        sim.complete(1, "n2")
        assert (sim.job(1).state, sim.job(1).derived_exit) == (COMPLETED, Exit(code=2))

    @pytest.mark.parametrize(
        ("end", "state", "derived"),
        [
            ({"code": 0}, COMPLETED, Exit()),
            ({"code": 5}, FAILED, Exit(code=5)),
            ({"signal": 9}, CANCELLED, Exit()),
        ],
    )
    def test_a_late_report_corrects_the_row(self, sim, end, state, derived):
        """The script's last command was a step: both ends are reported at once, in any order."""
        sim.submit()
        sim.run(1)
        sim.step(1)
        sim.complete(1)
        assert sim.job(1).state is COMPLETED
        before = sim.state.step_outbox[1, 1, 0]
        assert before.step.state is CANCELLED
        usage = Usage(user_secs=1.0, max_rss_kb=5)
        assert sim.complete(1, "n1", step_id=0, usage=usage, **end) == "accepted"
        after = sim.state.step_outbox[1, 1, 0]
        assert after.seq > before.seq
        assert (after.step.state, after.step.usage, after.step.max_rss_node) == (state, usage, "n1")
        assert sim.job(1).derived_exit == derived
        assert sim.row(1).derived_exit == derived
        assert sim.complete(1, "n1", step_id=0, **end) == "final"

    def test_a_purge_waits_for_rows_of_steps(self, sim):
        sim.submit()
        sim.run(1)
        sim.step(1)
        sim.complete(1, "n1", step_id=0)
        sim.complete(1)
        row, step = sim.row(1), sim.state.step_outbox[1, 1, 0]
        sim.do(ops.OutboxAck(at=0, rows=((1, 1, row.seq),)))
        sim.do(ops.Purge(at=0, job_ids=(1,), answers_before=0))
        assert 1 in sim.state.jobs
        sim.do(ops.OutboxAck(at=0, rows=(), steps=((1, 1, 0, step.seq - 1),)))
        assert (1, 1, 0) in sim.state.step_outbox
        sim.do(ops.OutboxAck(at=0, rows=(), steps=((1, 1, 0, step.seq),)))
        sim.do(ops.Purge(at=0, job_ids=(1,), answers_before=0))
        assert 1 not in sim.state.jobs


def test_only_the_last_steps_are_kept_in_memory(sim):
    sim.submit()
    sim.run(1)
    for number in range(40):
        assert sim.step(1) == number
        sim.complete(1, "n1", step_id=number)
    job = sim.job(1)
    assert [past.row.step_id for past in job.past_steps] == list(range(8, 40))
    assert sim.complete(1, "n1", step_id=0) == "final"


def test_nodes_that_ended_their_part_take_no_more_steps(sim):
    sim.submit(srun=True, argv=(b"true",), script=b"", num_tasks=2, min_nodes=2)
    sim.run(1, ("n1", "n2"), ranks=[(0,), (1,)])
    sim.complete(1, "n1")
    assert sim.ask(1, overlap=True).refusal.text == "Job/step already completing or completed"


def test_the_batch_step_has_its_own_node_in_history(two):
    two.complete(1, "n1", code=1)
    two.complete(1, "n2")
    (batch,) = two.row(1).steps
    assert (batch.step_id, batch.nodelist, batch.cpus, batch.exit.code) == (STEP_BATCH, "n1", 4, 1)


def test_an_allocation_by_nodes_alone_leaves_the_number_of_tasks_open(sim):
    """`salloc -N2`, `srun -n4`: two tasks a node; with a count of tasks its CPUs are the limit."""
    for by_nodes in (True, False):
        job_id = sim.run(sim.submit(alloc_only=True, by_nodes=by_nodes, min_nodes=2), nodes=("n1", "n2"))
        result = sim.ask(job_id, num_tasks=4, min_nodes=2)
        if by_nodes:
            step = sim.steps(job_id)[result.step_id]
            assert [part.ranks for part in step.slices] == [(0, 1), (2, 3)]
            assert [part.cpus for part in step.slices] == [1, 1]
        else:
            assert result.refusal.text == "More processors requested than permitted"
