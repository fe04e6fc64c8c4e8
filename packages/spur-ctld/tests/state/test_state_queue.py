"""Submissions, reasons, deadlines, the outbox and forgetting."""

from spur_core.states import JobState
from spur_ctld.state import codec, events, ops
from spur_ctld.state.settings import Settings


def test_a_repeated_request_gets_the_first_answer(sim):
    assert sim.submit(request_id="abc") == 1
    assert sim.submit(request_id="abc") == 1
    assert sim.submit(request_id="other") == 2
    assert len(sim.state.jobs) == 2
    # An old answer is forgotten with the ended jobs.
    sim.do(ops.Purge(at=0, job_ids=(), answers_before=sim.now + 10))
    assert sim.submit(request_id="abc") == 3


def test_refused_submissions_take_no_id(make_sim, sim):
    small = make_sim(settings=Settings(max_job_count=1))
    assert small.submit() == 1
    request = small.job(1).request
    assert small.do(ops.Submit(at=0, request=request)).refusal.text == "MaxJobCount limit reached"
    import msgspec

    lost = msgspec.structs.replace(request, partitions=("gone",))
    assert sim.do(ops.Submit(at=0, request=lost)).refusal.text == "Invalid partition name specified"
    assert sim.submit() == 1


def test_the_first_id_is_configured(make_sim):
    assert make_sim(settings=Settings(first_job_id=500)).submit() == 500


def test_reasons_of_a_pass(sim):
    sim.submit()
    sim.submit(held=True)
    sim.do(ops.PendingReasons(at=0, reasons=((1, "Resources", ""), (2, "Priority", ""), (9, "x", ""))))
    assert (sim.job(1).reason, sim.job(2).reason) == ("Resources", "JobHeldUser")
    assert events.JobChanged(1) in sim.events
    sim.do(ops.PendingReasons(at=0, reasons=((1, "Resources", ""),)))
    assert sim.events == ()
    sim.do(
        ops.PendingReasons(at=0, reasons=((1, "ReqNodeNotAvail", "ReqNodeNotAvail, UnavailableNodes:n4"),))
    )
    assert sim.job(1).desc == "ReqNodeNotAvail, UnavailableNodes:n4"
    sim.begin(1)
    assert (sim.job(1).reason, sim.job(1).desc) == ("None", "")


def test_a_dependency_that_can_never_hold(sim):
    sim.submit(kill_on_invalid_dependency=True)
    sim.do(ops.PendingReasons(at=0, reasons=(), cancel=(1,)))
    assert (sim.job(1).state, sim.job(1).reason) == (JobState.CANCELLED, "DependencyNeverSatisfied")


def test_deadline(sim):
    sim.submit()
    sim.submit()
    sim.run(2)
    sim.do(ops.Deadline(at=0, job_ids=(1, 2, 9)))
    assert (sim.job(1).state, sim.job(1).reason) == (JobState.DEADLINE, "DeadLine")
    assert sim.job(2).state is JobState.RUNNING


def test_the_outbox_forgets_exactly_what_was_written(sim):
    sim.submit()
    old = sim.row(1).seq
    sim.run(1)
    assert sim.row(1).seq > old
    sim.do(ops.OutboxAck(at=0, rows=((1, 1, old),)))
    assert (1, 1) in sim.state.outbox
    sim.do(ops.OutboxAck(at=0, rows=((1, 1, sim.row(1).seq), (7, 7, 7))))
    assert sim.state.outbox == {}
    sim.complete(1)
    assert sim.row(1).state is JobState.COMPLETED


class TestPurge:
    def purge(self, sim, *job_ids):
        sim.do(ops.Purge(at=0, job_ids=job_ids, answers_before=0.0))
        return sorted(sim.state.jobs)

    def written(self, sim):
        rows = tuple((row.job_id, row.attempt, row.seq) for row in sim.state.outbox.values())
        sim.do(ops.OutboxAck(at=0, rows=rows))

    def test_not_before_history_has_it(self, sim):
        sim.submit()
        sim.cancel(1)
        assert self.purge(sim, 1) == [1]
        self.written(sim)
        assert self.purge(sim, 1) == []
        assert sim.submit() == 2

    def test_not_while_it_lives(self, sim):
        sim.submit()
        sim.submit()
        sim.run(2)
        self.written(sim)
        assert self.purge(sim, 1, 2) == [1, 2]

    def test_not_while_a_live_job_depends_on_it(self, sim):
        sim.submit()
        sim.submit(dependency="afterok:1")
        sim.cancel(1)
        self.written(sim)
        assert self.purge(sim, 1) == [1, 2]
        sim.cancel(2)
        self.written(sim)
        assert self.purge(sim, 1, 2) == []

    def test_not_a_task_of_an_array_that_a_live_job_depends_on(self, sim):
        sim.submit(array=((0, 1, 1),))
        sim.submit(dependency="afterok:1_0")
        sim.cancel(1, tasks=((0, 0, 1),))
        self.written(sim)
        assert self.purge(sim, 3) == [1, 2, 3]


def test_equal_scripts_are_kept_once(sim):
    sim.submit(script=b"#!/bin/sh\nexit 0\n")
    sim.submit(script=b"#!/bin/sh\nexit 0\n")
    assert sim.job(1).request.script is sim.job(2).request.script


def test_a_snapshot_is_what_was_there_when_it_was_taken(sim):
    """Chunks are made lazily while the state moves on."""
    for _ in range(1200):
        sim.submit()
    digest = codec.digest(sim.state)
    chunks = codec.freeze(sim.state)
    first = next(chunks)
    sim.run(1)
    rest = list(chunks)
    assert len(rest) > 3
    assert codec.digest(codec.restore([first, *rest])) == digest
