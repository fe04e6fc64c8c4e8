"""Reservations that draw jobs in that do not name them."""

from spur_sched.api import Policy, Window
from spur_sched.plan import plan


def look(snap, jobs, windows, now, **more):
    view = snap([more["node"](name, cpus=2) for name in ("n1", "n2")], jobs, windows=windows)
    return plan(view, now)


def starts(found):
    return [(one.job_id, one.task, one.shares[0].node, one.reservation) for one in found.placements]


def magnet(now, *jobs, nodes=("n2",), start=-10.0, end=600.0, **more):
    return Window("r", now + start, now + end, frozenset(nodes), draws=frozenset(jobs), **more)


def test_its_jobs_start_in_it_before_others(snap, node, job, now):
    jobs = [job(number, num_tasks=2, tasks_given=True, time_limit=60) for number in (1, 2, 3)]
    found = look(snap, jobs, [magnet(now, 2, 3)], now, node=node)
    assert starts(found) == [(2, None, "n2", "r"), (1, None, "n1", "")]
    # It waits in its own place, and for what others wait for.
    assert [one.job_id for one in found.waiting] == [3]


def test_what_it_has_no_room_for_runs_as_others_do(snap, node, job, now):
    jobs = [job(1, num_tasks=2, tasks_given=True, tasks=(1, 2, 5), time_limit=60)]
    found = look(snap, jobs, [magnet(now, 1)], now, node=node)
    assert starts(found) == [(1, 1, "n2", "r"), (1, 2, "n1", "")]
    assert [(one.job_id, one.reason) for one in found.waiting] == [(1, "Resources")]


def test_who_would_not_end_in_time_is_not_drawn(snap, node, job, now):
    found = look(snap, [job(1, time_limit=601)], [magnet(now, 1)], now, node=node)
    assert starts(found) == [(1, None, "n1", "")]
    # Nor who has no limit: he did not ask to be ended with the reservation.
    found = look(snap, [job(1, time_limit=None)], [magnet(now, 1)], now, node=node)
    assert starts(found) == [(1, None, "n1", "")]
    found = look(
        snap, [job(1, time_limit=None)], [magnet(now, 1, flex=True, nodes=("n1", "n2"))], now, node=node
    )
    assert starts(found) == [(1, None, "n1", "r")]


def test_only_while_it_holds(snap, node, job, now):
    found = look(snap, [job(1, time_limit=60)], [magnet(now, 1, start=10)], now, node=node)
    assert starts(found) == [(1, None, "n1", "")]


def test_who_names_one_comes_first(snap, node, job, now):
    own = job(9, num_tasks=2, tasks_given=True, reservation="r", time_limit=60)
    other = job(1, num_tasks=2, tasks_given=True, time_limit=60)
    found = look(snap, [own, other], [magnet(now, 1)], now, node=node)
    assert starts(found) == [(9, None, "n2", ""), (1, None, "n1", "")]


def test_nobody_is_pushed_aside_for_it(snap, node, job, now):
    view = snap(
        [node("n1", cpus=2)],
        [job(1, time_limit=60)],
        windows=[magnet(now, 1, nodes=("n2",))],
        policy=Policy(preempt_type="partition_prio"),
    )
    assert starts(plan(view, now)) == [(1, None, "n1", "")]
