"""What the state keeps for priorities: set by hand, since when age counts, what an attempt began with."""

import pytest

from spur_ctld.state import ops
from spur_ctld.state.records import Slice

ADMIN = ops.Who(uid=0, user="root", admin=True)
DEFAULT = 1000


@pytest.fixture(params=[3, 4])
def new(sim, request):
    """Whether the group uses the rules of this release."""
    if request.param > 3:
        sim.do(ops.RaiseCommandVersion(at=0, to=request.param))
    return request.param > 3


@pytest.fixture
def raised(sim):
    sim.do(ops.RaiseCommandVersion(at=0, to=4))


class TestByHand:
    def test_an_administrators_priority_is_marked_and_clears_the_nice_value(self, sim, new):
        sim.submit(nice=100, priority=900)
        sim.update(1, who=ADMIN, priority=77)
        job = sim.job(1)
        assert (job.priority, job.priority_given) == (77, new)
        assert job.request.nice == (0 if new else 100)

    def test_a_nice_value_of_the_same_update_stays(self, sim, raised):
        sim.submit()
        sim.update(1, who=ADMIN, priority=77, nice=5)
        assert (sim.job(1).priority, sim.job(1).request.nice) == (77, 5)

    def test_hold_and_release_give_it_back_to_the_factors(self, sim, new):
        """As Slurm's manual says of priorities that were set by hand."""
        sim.submit(priority=77, priority_given=True, nice=30)
        sim.hold(1)
        assert sim.job(1).priority == 0
        sim.hold(1, mode="release")
        job = sim.job(1)
        assert job.priority_given is False
        assert (job.priority, job.prior_priority) == ((DEFAULT - 30, DEFAULT - 30) if new else (77, 77))

    def test_a_release_leaves_a_base_alone(self, sim, new):
        sim.submit(priority=77)
        sim.hold(1)
        sim.hold(1, mode="release")
        assert sim.job(1).priority == 77

    def test_priority_zero_is_a_hold_and_marks_nothing(self, sim, raised):
        sim.submit(nice=5)
        sim.update(1, who=ADMIN, priority=0)
        job = sim.job(1)
        assert (job.priority, job.priority_given, job.request.nice) == (0, False, 5)


class TestSiteFactor:
    def test_only_administrators_set_it(self, sim, raised):
        sim.submit()
        assert sim.update(1, site_factor=5).code == "access_denied"
        assert sim.update(1, who=ADMIN, site_factor=-5) is None
        assert sim.job(1).request.site_factor == -5


class TestAge:
    def test_begins_when_a_hold_is_lifted(self, sim, new):
        sim.submit(held=True)
        sim.now += 500
        sim.hold(1, mode="release")
        assert sim.job(1).accrue_at == (sim.now if new else 0.0)

    def test_begins_when_a_dependency_is_met(self, sim, new):
        sim.submit()
        sim.submit(dependency="afterany:1")
        sim.do(ops.PendingReasons(at=0, reasons=((2, "Dependency", ""),)))
        assert sim.job(2).accrue_at == 0.0
        sim.now += 500
        sim.do(ops.PendingReasons(at=0, reasons=((2, "Resources", ""),)))
        assert sim.job(2).accrue_at == (sim.now if new else 0.0)
        met = sim.job(2).accrue_at
        sim.do(ops.PendingReasons(at=0, reasons=((2, "Priority", ""),)))
        assert sim.job(2).accrue_at == met


class TestStart:
    def test_an_attempt_keeps_what_it_started_with(self, sim, raised):
        sim.submit()
        slices = (Slice(node="n1", cpus=1),)
        sim.do(
            ops.DispatchBegin(
                at=0, job_id=1, attempt=1, partition="main", slices=slices, everywhere=True, priority=4321
            )
        )
        sim.commit(1)
        assert sim.job(1).start_priority == 4321
        sim.complete(1)
        assert sim.row(1).priority == 4321

    def test_a_requeue_forgets_it(self, sim, raised):
        sim.submit()
        sim.run(1)
        sim.requeue(1)
        sim.confirm(1)
        assert sim.job(1).start_priority == 0
