"""Replays: what is known of FCFS, EASY and conservative backfill holds on the workload in the repository."""

from pathlib import Path

import pytest

from spur_sched.api import Policy
from spur_sched.simulate import swf
from spur_sched.simulate.figures import figures, nearest_rank, slowdown
from spur_sched.simulate.machine import Size, uniform
from spur_sched.simulate.replay import Arrival, replay
from spur_sched.simulate.work import Reading, prepare

EXAMPLE = Path(__file__).parents[1] / "examples/made-up.swf"
MACHINE = uniform(64, Size(16))
#: The first days of the trace: enough for a queue, short enough for every run of the tests.
JOBS = 350
POLICIES = ("none", "easy", "conservative")


@pytest.fixture(scope="module")
def work():
    """Of exact time limits, and of those that users gave."""
    with EXAMPLE.open() as text:
        trace = swf.read("example", enumerate(text, 1))
    trace = trace._replace(jobs=trace.jobs[:JOBS])
    return {exact: prepare(trace, MACHINE, Reading(exact=exact)).arrivals for exact in (True, False)}


@pytest.fixture(scope="module")
def outcomes(work):
    """(policy, exact) -> outcome."""
    return {
        (name, exact): replay(MACHINE, arrivals, Policy(backfill=name))
        for exact, arrivals in work.items()
        for name in POLICIES
    }


def test_every_job_runs_once_for_its_time(work, outcomes):
    for (_, exact), outcome in outcomes.items():
        assert not outcome.stuck
        run = {arrival.job.job_id: arrival for arrival in work[exact]}
        assert len(outcome.starts) == len(run)
        for start in outcome.starts:
            arrival = run.pop(start.job.job_id)
            assert start.start >= arrival.at
            assert start.end == start.start + arrival.run
            assert start.cpus == start.job.num_tasks


def test_no_instant_has_more_at_work_than_there_is(outcomes):
    for outcome in outcomes.values():
        changes = sorted(
            [(start.end, 0, -start.cpus) for start in outcome.starts if start.end > start.start]
            + [(start.start, 1, start.cpus) for start in outcome.starts if start.end > start.start]
        )
        held = 0
        for _, _, cpus in changes:
            held += cpus
            assert 0 <= held <= MACHINE.cpus


def test_fcfs_starts_in_the_order_of_submission(outcomes):
    for exact in (True, False):
        ids = [start.job.job_id for start in outcomes["none", exact].starts]
        assert ids == sorted(ids)
        assert figures(outcomes["none", exact].starts, MACHINE.cpus, 10).overtakes == 0


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_with_exact_times_a_promise_is_kept(outcomes, policy):
    """Backfill never delays the job at the head, and conservative backfill nobody that was promised a start:
    where limits are exact the first promise is the latest start."""
    starts = outcomes[policy, True].starts
    promised = [start for start in starts if start.first_promise is not None]
    assert len(promised) > 30
    late = [start for start in promised if start.start > start.first_promise]
    assert not late


def test_the_first_job_that_waits_is_not_delayed_by_those_behind(outcomes):
    """Until then everything is as with FCFS."""
    fcfs = {start.job.job_id: start.start for start in outcomes["none", True].starts}
    first = min(job for job, start in fcfs.items() if start > _submitted(outcomes, job))
    for policy in ("easy", "conservative"):
        starts = {start.job.job_id: start.start for start in outcomes[policy, True].starts}
        assert starts[first] == fcfs[first]


def _submitted(outcomes, job_id):
    return next(s.job.submit_at for s in outcomes["none", True].starts if s.job.job_id == job_id)


def test_backfill_pays(outcomes):
    """Average bounded slowdown and wait below FCFS, utilisation not below it."""
    for exact in (True, False):
        fcfs = figures(outcomes["none", exact].starts, MACHINE.cpus, 10)
        for policy in ("easy", "conservative"):
            found = figures(outcomes[policy, exact].starts, MACHINE.cpus, 10)
            assert found.slowdown_mean < fcfs.slowdown_mean / 2
            assert found.wait_mean < fcfs.wait_mean
            assert found.utilisation >= fcfs.utilisation
            assert found.overtakes > 0


def test_twice_is_the_same(work, outcomes):
    for policy in ("none", "easy"):
        assert replay(MACHINE, work[False], Policy(backfill=policy)) == outcomes[policy, False]


def test_jobs_of_no_time_and_jobs_past_their_limit(job):
    """An end at the instant of the start makes room at once; who is overdue holds it until the true end."""
    machine = uniform(1, Size(1))
    jobs = [
        job(1, partitions=("batch",), num_tasks=1, submit_at=0.0, eligible_at=0.0, time_limit=10),
        job(2, partitions=("batch",), num_tasks=1, submit_at=0.0, eligible_at=0.0, time_limit=10),
        job(3, partitions=("batch",), num_tasks=1, submit_at=0.0, eligible_at=0.0, time_limit=10),
    ]
    arrivals = [Arrival(0.0, one, run) for one, run in zip(jobs, (0.0, 500.0, 1.0), strict=True)]
    outcome = replay(machine, arrivals, Policy())
    assert [(start.job.job_id, start.start) for start in outcome.starts] == [(1, 0), (2, 0), (3, 500)]


def test_who_never_starts_has_a_reason(job):
    machine = uniform(1, Size(1))
    never = job(1, partitions=("batch",), num_tasks=5, submit_at=0.0, eligible_at=0.0)
    outcome = replay(machine, [Arrival(0.0, never, 1.0)], Policy())
    assert outcome.starts == ()
    assert [(stuck.job.job_id, stuck.reason) for stuck in outcome.stuck] == [(1, "BadConstraints")]


def test_arithmetic():
    assert slowdown(90, 10, 10) == 10
    assert slowdown(9, 1, 10) == 1
    assert slowdown(0, 0, 0) == 1
    assert nearest_rank([1, 2, 3, 4], 0.5) == 2
    assert nearest_rank(list(range(100)), 0.95) == 94
    assert figures([], 4, 10).jobs == 0
