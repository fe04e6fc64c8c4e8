"""What users and administrators do to jobs: cancel, hold, release, requeue, and who may."""

import pytest

from spur_core.states import JobState
from spur_ctld.state import events
from spur_ctld.state.ops import Who
from spur_ctld.state.records import Gres

PENDING, CANCELLED, COMPLETING = JobState.PENDING, JobState.CANCELLED, JobState.COMPLETING


def text(refusal):
    return None if refusal is None else (refusal.code, refusal.text)


DONE = ("already_done", "Job/step already completing or completed")
UNKNOWN = ("no_such_job", "Invalid job id specified")
DENIED = ("access_denied", "Access/permission denied")


class TestCancel:
    def test_pending_ends_at_once(self, sim):
        sim.submit()
        assert sim.cancel(1) is None
        job = sim.job(1)
        assert (job.state, job.kill_uid, job.end_at) == (CANCELLED, 1000, sim.now)
        assert sim.row(1).state is CANCELLED
        assert events.JobEnded(1, 1, CANCELLED) in sim.events

    @pytest.mark.parametrize("committed", [False, True])
    def test_active_is_fenced_first(self, sim, committed):
        """Resources are free only when the node confirmed."""
        sim.submit()
        sim.begin(1)
        if committed:
            sim.commit(1)
        assert sim.cancel(1) is None
        assert events.FenceRequested(1, 1) in sim.events
        assert (sim.job(1).state, sim.state.use["n1"].cpus) == (COMPLETING, 1)
        assert sim.commit(1).refusal is not None
        assert sim.confirm(1, "n2").refusal.code == "wrong_state"
        assert sim.confirm(1, attempt=2).refusal.code == "wrong_state"
        sim.confirm(1)
        job = sim.job(1)
        assert (job.state, (job.exit.code, job.exit.signal)) == (CANCELLED, (0, 0))
        assert sim.state.use["n1"].cpus == 0
        assert sim.row(1).kill_uid == 1000
        assert sim.confirm(1).refusal is not None

    @pytest.mark.parametrize("state", ["cancelled", "completed", "fenced"])
    def test_over_or_being_ended(self, sim, state):
        sim.submit()
        if state != "cancelled":
            sim.run(1)
        if state == "completed":
            sim.complete(1)
        else:
            sim.cancel(1)
        assert text(sim.cancel(1)) == DONE

    def test_who_may(self, sim, bob, admin):
        sim.submit()
        assert text(sim.cancel(1, who=bob)) == DENIED
        assert text(sim.cancel(9)) == UNKNOWN
        assert sim.job(1).state is PENDING
        assert sim.cancel(1, who=admin) is None
        assert sim.job(1).kill_uid == 0

    def test_a_requeue_in_progress_can_be_cancelled(self, sim):
        sim.submit()
        sim.run(1)
        sim.requeue(1)
        assert sim.cancel(1) is None
        sim.confirm(1)
        assert sim.job(1).state is CANCELLED

    def test_a_cancel_in_progress_is_not_requeued(self, sim):
        sim.submit()
        sim.run(1)
        sim.cancel(1)
        assert text(sim.requeue(1)) == DONE
        sim.confirm(1)
        assert sim.job(1).state is CANCELLED


class TestHold:
    def test_a_user_holds_and_releases(self, sim):
        sim.submit(priority=77)
        assert sim.hold(1) is None
        assert (sim.job(1).reason, sim.job(1).priority) == ("JobHeldUser", 0)
        assert sim.begin(1).refusal is not None
        assert sim.hold(1) is None
        assert sim.hold(1, "release") is None
        assert (sim.job(1).reason, sim.job(1).priority) == ("None", 77)
        assert events.JobQueued(1) in sim.events

    def test_only_an_administrator_releases_his_hold(self, sim, admin):
        sim.submit()
        sim.hold(1, who=admin)
        assert sim.job(1).reason == "JobHeldAdmin"
        assert text(sim.hold(1, "release")) == DENIED
        # The owner's own hold does not take it away from the administrator either.
        sim.hold(1)
        assert sim.job(1).reason == "JobHeldAdmin"
        assert sim.hold(1, "release", who=admin) is None
        assert sim.job(1).priority == 1000

    def test_an_administrator_may_hold_for_the_user(self, sim, admin):
        sim.submit()
        sim.hold(1, "uhold", who=admin)
        assert sim.job(1).reason == "JobHeldUser"
        assert sim.hold(1, "release") is None

    def test_release_of_what_is_not_held_changes_nothing(self, sim):
        sim.submit()
        before = sim.job(1)
        assert sim.hold(1, "release") is None
        assert sim.job(1) == before

    def test_submitted_held(self, sim):
        sim.submit(held=True, priority=5)
        assert (sim.job(1).reason, sim.job(1).priority, sim.job(1).prior_priority) == ("JobHeldUser", 0, 5)
        sim.hold(1, "release")
        assert sim.job(1).priority == 5

    def test_running_or_over(self, sim, bob):
        sim.submit()
        sim.run(1)
        assert text(sim.hold(1)) == ("wrong_state", "Job is no longer pending execution")
        assert text(sim.hold(1, who=bob)) == DENIED
        sim.complete(1)
        assert text(sim.hold(1)) == DONE


class TestRequeue:
    def test_running(self, sim):
        """The attempt ends REQUEUED in history, the job waits for its nodes to settle, then runs as 2."""
        sim.submit()
        sim.run(1)
        started = sim.job(1).start_at
        assert sim.requeue(1) is None
        assert (sim.job(1).state, sim.job(1).fence.outcome) == (COMPLETING, PENDING)
        sim.confirm(1)
        job = sim.job(1)
        assert (job.state, job.reason, job.run_attempt, job.restarts) == (PENDING, "BeginTime", 1, 1)
        assert (job.start_at, job.end_at, job.slices, job.exits) == (None, None, (), {})
        assert job.not_before is not None
        assert events.JobQueued(1) in sim.events
        old, new = sim.row(1, 1), sim.row(1, 2)
        assert (old.state, old.start_at, old.end_at is not None) == (JobState.REQUEUED, started, True)
        assert (new.state, new.start_at) == (PENDING, None)
        assert sim.begin(1, attempt=1).refusal is not None
        sim.run(1)
        sim.complete(1)
        assert sim.row(1, 2).state is JobState.COMPLETED
        assert sim.row(1, 1).state is JobState.REQUEUED

    def test_running_and_hold(self, sim):
        sim.submit()
        sim.run(1)
        sim.requeue(1, hold=True)
        sim.confirm(1)
        job = sim.job(1)
        assert (job.state, job.reason, job.desc) == (PENDING, "JobHeldUser", "job requeued in held state")
        assert (job.priority, job.prior_priority, job.not_before) == (0, 1000, None)

    def test_ended(self, sim):
        sim.submit()
        sim.run(1)
        sim.complete(1, code=3)
        assert sim.requeue(1) is None
        job = sim.job(1)
        assert (job.state, job.exit.code, job.end_at, job.restarts) == (PENDING, 0, None, 1)
        assert sim.row(1, 1).state is JobState.FAILED
        assert sim.row(1, 2).state is PENDING

    def test_cancelled_before_it_ever_ran(self, sim):
        sim.submit()
        sim.cancel(1)
        assert sim.requeue(1) is None
        assert (sim.job(1).state, sim.job(1).run_attempt) == (PENDING, 0)
        assert sim.row(1, 1).state is PENDING
        sim.run(1)

    def test_a_launch_in_flight(self, sim):
        sim.submit()
        sim.begin(1)
        assert sim.requeue(1) is None
        sim.confirm(1)
        assert (sim.job(1).state, sim.job(1).restarts) == (PENDING, 0)

    @pytest.mark.parametrize(
        ("request_", "state", "refusal"),
        [
            ({}, "pending", ("wrong_state", "Job is pending execution")),
            ({"srun": True}, "running", ("wrong_state", "Requested operation is presently disabled")),
            ({"requeue": False}, "running", ("wrong_state", "Requested operation is presently disabled")),
        ],
    )
    def test_refusals(self, sim, request_, state, refusal):
        sim.submit(**request_)
        if state == "running":
            sim.run(1)
        assert text(sim.requeue(1)) == refusal

    def test_who_may(self, sim, bob):
        sim.submit()
        sim.run(1)
        assert text(sim.requeue(1, who=bob)) == DENIED

    def test_incomplete_only_leaves_ended_jobs(self, sim):
        sim.submit()
        sim.run(1)
        sim.complete(1)
        assert sim.requeue(1, incomplete_only=True) is None
        assert sim.job(1).state is JobState.COMPLETED


class TestUpdate:
    def test_pending(self, sim):
        sim.submit()
        assert sim.update(1, time_limit=120, comment="x", nice=5, num_tasks=3) is None
        request = sim.job(1).request
        assert (request.time_limit, request.comment, request.nice, request.num_tasks) == (120, "x", 5, 3)
        assert sim.row(1).comment == "x"

    def test_running_takes_only_what_does_not_change_its_shape(self, sim):
        sim.submit(time_limit=600)
        sim.run(1)
        assert sim.update(1, time_limit=120, comment="x") is None
        assert text(sim.update(1, num_tasks=3)) == ("wrong_state", "Job is no longer pending execution")
        assert text(sim.update(1, comment="y", num_tasks=3)) is not None
        assert sim.job(1).request.comment == "x"

    @pytest.mark.parametrize("old", [600, 4294967295])
    def test_an_owner_may_only_lower_a_running_limit(self, sim, admin, old):
        sim.submit(time_limit=old)
        sim.run(1)
        assert sim.update(1, time_limit=300) is None
        assert text(sim.update(1, time_limit=301)) == DENIED
        assert text(sim.update(1, time_limit_delta=60)) == DENIED
        assert text(sim.update(1, time_limit=4294967295)) == DENIED
        assert sim.update(1, time_limit=301, who=admin) is None
        assert sim.update(1, time_limit_delta=-60) is None
        assert sim.job(1).request.time_limit == 241

    def test_an_unlimited_limit_has_no_delta(self, sim):
        sim.submit(time_limit=4294967295)
        assert sim.update(1, time_limit_delta=60) is not None

    def test_priority(self, sim, admin):
        sim.submit()
        assert sim.update(1, priority=5) is None
        assert sim.job(1).priority == 5
        sim.update(1, priority=2000)
        assert sim.job(1).priority == 5
        sim.update(1, priority=2000, who=admin)
        assert sim.job(1).priority == 2000
        sim.update(1, priority=0)
        assert sim.job(1).reason == "JobHeldUser"

    def test_an_owner_cannot_release_an_administrators_hold_by_priority(self, sim, admin):
        sim.submit()
        sim.hold(1, who=admin)
        sim.update(1, priority=500)
        assert (sim.job(1).reason, sim.job(1).priority) == ("JobHeldAdmin", 0)

    def test_refusals(self, sim, bob):
        sim.submit(nice=10)
        assert text(sim.update(1, partitions=("nosuch",)))[1] == "Invalid partition name specified"
        assert text(sim.update(1, nice=9)) == DENIED
        assert text(sim.update(1, comment="x", who=bob)) == DENIED
        assert text(sim.update(9, comment="x")) == UNKNOWN
        assert text(sim.update(1, uid=0)) is not None
        assert text(sim.update(1, script=b"")) is not None
        assert text(sim.update(1, nosuch=1)) is not None
        assert text(sim.update(1, num_tasks="three")) is not None
        sim.cancel(1)
        assert text(sim.update(1, comment="x")) == ("already_done", "Job has already finished")


def test_the_controller_itself_may_do_everything(sim):
    sim.submit()
    assert sim.cancel(1, who=Who()) is None


GPU = (Gres(name="gpu", count=2),)
SHARD = Gres(name="shard", count=1)


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({"gres": (*GPU, SHARD)}, {"gres_total": GPU}, {"gres": (SHARD,), "gres_total": GPU}),
        ({"gres_total": GPU}, {"gres_per_task": GPU}, {"gres_total": (), "gres_per_task": GPU}),
        ({"gres_per_task": GPU}, {"gres": GPU}, {"gres_per_task": (), "gres": GPU}),
        ({"gres_total": GPU}, {"gres": (SHARD,)}, {"gres_total": GPU, "gres": (SHARD,)}),
        ({"gres_total": GPU}, {"gres_total": ()}, {"gres_total": ()}),
        ({"memory_per_gpu_mb": 5}, {"memory_per_node_mb": 7}, {"memory_per_gpu_mb": None}),
        ({"memory_per_gpu_mb": 5}, {"comment": "x"}, {"memory_per_gpu_mb": 5}),
    ],
)
def test_one_form_of_gpus_and_memory_takes_the_place_of_another(sim, before, changes, after):
    sim.submit(**before)
    assert sim.update(1, **changes) is None
    assert {name: getattr(sim.job(1).request, name) for name in after} == after


def test_the_least_limit_is_no_more_than_the_limit(sim):
    sim.submit(time_limit=600)
    assert sim.update(1, time_min=900).code == "bad_request"
    assert sim.update(1, time_min=300) is None
    assert sim.update(1, time_limit=200).code == "bad_request"
