"""The priorities that a controller makes of the jobs that it has, by both formulas."""

import math

import msgspec
import pytest

from spur_core.config import parse_config
from spur_ctld.priority_rules import as_slurm_shows, priority_rules
from spur_ctld.scheduling.priorities import Priorities
from spur_ctld.settings import partition_record
from spur_ctld.state import ops
from spur_ctld.state.events import ConfigChanged, NodeChanged, StateReplaced
from spur_ctld.state.pending import pending_views
from spur_ctld.state.records import UNLIMITED, Gres, Partition
from spur_ctld.state.settings import Settings

ADMIN = ops.Who(uid=0, user="root", admin=True)
DAY = 86_400
MULTI = 'priority_type = "multifactor"\n'


class Books:
    """What a ledger is to priorities: the state, and who hears of changes."""

    def __init__(self, sim):
        self.sim = sim
        self.heard = []
        known = sim.machine.on_events

        def tell(events):
            known(events)
            for hear in self.heard:
                hear(events)

        sim.machine.on_events = tell

    @property
    def state(self):
        return self.sim.state

    def subscribe(self, hear):
        self.heard.append(hear)


class Pages:
    """A catalog."""

    def __init__(self, sim):
        self.sim = sim

    def partitions(self):
        return self.sim.state.partitions


@pytest.fixture
def made(sim):
    """Makes priorities by a `[scheduler]` text; the clock is the simulation's."""

    def make(text="", shares=None):
        config = parse_config(f'cluster_name = "c"\n[licenses]\nx = 10\n[scheduler]\n{text}')
        return Priorities(Books(sim), Pages(sim), priority_rules(config), lambda: sim.now, shares)

    return make


def value(priorities, sim, job_id):
    priorities.refresh()
    return priorities.of(sim.job(job_id))


class Known:
    """Fair shares of alice and everybody else."""

    version = 1

    def factor(self, user, account):
        return 0.5 if user == "alice" else 0.25

    def ratio(self, user, account):
        return 2.0 if user == "alice" else 0.5


class TestSimpleFormula:
    def test_grows_with_the_wait(self, sim, made):
        priorities = made()
        sim.submit(priority=1000)
        assert value(priorities, sim, 1) == 1000
        sim.now += 3.5 * DAY
        assert value(priorities, sim, 1) == 1500
        sim.now += 100 * DAY
        assert value(priorities, sim, 1) == 2000

    def test_ages_are_all_of_one_instant(self, sim, made):
        """A job that is looked at later is not older for it than one that was looked at before."""
        priorities = made()
        ids = [sim.submit(priority=10**6)]
        value(priorities, sim, 1)
        for _ in range(10):
            sim.now += 60
            ids.append(sim.submit(priority=10**6))
            # Its record is made anew, so it is looked at again.
            sim.update(ids[0], comment="x")
            values = [value(priorities, sim, job_id) for job_id in ids]
            assert values == sorted(values, reverse=True)
        assert values[0] > values[-1]

    def test_it_is_made_anew_when_the_period_is_over(self, sim, made):
        priorities = made("priority_calc_period_secs = 100\n")
        sim.submit(priority=10**6)
        first = value(priorities, sim, 1)
        sim.now += 50
        assert value(priorities, sim, 1) == first
        sim.now += 51
        assert value(priorities, sim, 1) > first

    def test_a_clock_that_is_put_back_does_not_stop_it(self, sim, made):
        priorities = made()
        sim.submit(priority=10**6)
        value(priorities, sim, 1)
        sim.now -= 500
        assert value(priorities, sim, 1) == 10**6

    def test_tier_and_fair_share(self, sim, made):
        priorities = made(shares=Known())
        sim.do(
            ops.Configure(
                at=0,
                settings=Settings(),
                partitions=(
                    Partition(name="main", nodes=("n1",)),
                    Partition(name="fast", nodes=("n1",), priority_tier=3),
                ),
            )
        )
        sim.submit(priority=1000)
        sim.submit(priority=1000, partitions=("main", "fast"))
        sim.submit(priority=1000, who=ops.Who(uid=7, user="bob"))
        assert [value(priorities, sim, job_id) for job_id in (1, 2, 3)] == [2000, 6000, 500]

    def test_a_changed_configuration_is_seen_at_once(self, sim, made):
        priorities = made()
        sim.submit(priority=1000)
        assert value(priorities, sim, 1) == 1000
        part = Partition(name="main", nodes=("n1",), priority_tier=4)
        sim.do(ops.Configure(at=0, settings=Settings(), partitions=(part,)))
        assert value(priorities, sim, 1) == 4000

    def test_held_and_set_by_hand(self, sim, made):
        sim.do(ops.RaiseCommandVersion(at=0, to=4))
        priorities = made()
        sim.submit(held=True)
        sim.submit()
        sim.update(2, who=ADMIN, priority=77)
        sim.now += 7 * DAY
        assert [value(priorities, sim, job_id) for job_id in (1, 2)] == [0, 77]

    def test_it_is_explained_as_a_sum(self, sim, made):
        priorities = made(shares=Known())
        sim.submit(priority=1000)
        sim.now = sim.job(1).eligible_at + 3.5 * DAY
        priorities.refresh()
        found = priorities.explain(sim.job(1), "main")
        assert found.priority == 3000 == value(priorities, sim, 1)
        assert (found.weighted.fairshare, found.weighted.age, found.weighted.partition) == (1000, 1000, 0)
        assert found.normalized.age == 0.5

    def test_without_weights_nobody_asks_for_totals(self, sim, made):
        priorities = made()
        assert priorities.weights(1000).age == 1000.0


class TestSumOfFactors:
    def test_age_and_size(self, sim, made):
        """Two nodes of four CPUs each."""
        priorities = made(MULTI + "priority_weight_age = 1000\npriority_weight_job_size = 100\n")
        sim.submit(min_nodes=1, num_tasks=4, nice=3)
        sim.submit(min_nodes=2, num_tasks=8)
        priorities.refresh()
        assert [priorities.of(sim.job(job_id)) for job_id in (1, 2)] == [50 - 3, 100]
        sim.now = sim.job(1).eligible_at + 3.5 * DAY
        priorities.refresh()
        assert [priorities.of(sim.job(job_id)) for job_id in (1, 2)] == [550 - 3, 599]

    def test_all_at_once_is_the_same_as_each_by_itself(self, sim, made):
        text = MULTI + "priority_weight_age = 123456\npriority_weight_job_size = 7777\n"
        at_once, single = made(text, Known()), made(text, Known())
        single.refresh()
        for number in range(20):
            sim.submit(num_tasks=number % 8 + 1, nice=number, priority=1000 - number)
            sim.now += 97
        sim.now += 10_000
        at_once.refresh()
        found = [at_once.of(sim.job(job_id)) for job_id in sorted(sim.state.pending)]
        single._known.clear()
        single._at = at_once._at
        assert [single.of(sim.job(job_id)) for job_id in sorted(sim.state.pending)] == found
        assert found == [
            at_once.explain(sim.job(job_id), "main").priority for job_id in sorted(sim.state.pending)
        ]

    def test_partitions_count_by_the_best_and_are_explained_one_by_one(self, sim, made):
        priorities = made(MULTI + "priority_weight_partition = 1000\n")
        sim.do(
            ops.Configure(
                at=0,
                settings=Settings(),
                partitions=(
                    Partition(name="main", nodes=("n1",)),
                    Partition(name="fast", nodes=("n1",), priority_job_factor=4),
                ),
            )
        )
        sim.submit()
        sim.submit(partitions=("main", "fast"))
        assert [value(priorities, sim, job_id) for job_id in (1, 2)] == [250, 1000]
        parts = [priorities.explain(sim.job(2), name).priority for name in ("main", "fast")]
        assert parts == [250, 1000]

    def test_tres_are_measured_by_the_partition_and_licences_by_the_cluster(self, sim, made):
        """n1 and n2 have four CPUs, 1000 MiB and two GPUs each."""
        weights = '{ cpu = 80, mem = 200, "gres/gpu" = 40, "license/x" = 1000 }'
        priorities = made(MULTI + f"priority_weight_tres = {weights}\n")
        sim.submit(num_tasks=2, memory_per_node_mb=500, gres=(Gres(name="gpu", count=1),), licenses="x:1")
        assert value(priorities, sim, 1) == 20 + 50 + 10 + 100
        by_name = dict(priorities.explain(sim.job(1), "main").weighted.tres)
        assert by_name == {"cpu": 20.0, "mem": 50.0, "gres/gpu": 10.0, "license/x": 100.0}

    def test_size_by_the_limit(self, sim, made):
        text = MULTI + 'priority_weight_job_size = 1000\npriority_flags = ["SMALL_RELATIVE_TO_TIME"]\n'
        priorities = made(text)
        sim.submit(num_tasks=8, min_nodes=2, time_limit=120)
        sim.submit(num_tasks=8, min_nodes=2, time_limit=UNLIMITED)
        assert [value(priorities, sim, job_id) for job_id in (1, 2)] == [500, 1]

    def test_fair_shares_come_through_the_border(self, sim, made):
        priorities = made(MULTI, Known())
        priorities.rules = priorities.rules._replace(
            rules=priorities.rules.rules._replace(
                weights=priorities.rules.rules.weights._replace(fairshare=1000)
            )
        )
        sim.submit()
        sim.submit(who=ops.Who(uid=7, user="bob"))
        assert [value(priorities, sim, job_id) for job_id in (1, 2)] == [500, 250]
        Known.version, before = 2, Known.version
        try:
            assert value(priorities, sim, 1) == 500
        finally:
            Known.version = before

    def test_a_job_that_waits_for_another_one_does_not_age(self, sim, made):
        sim.do(ops.RaiseCommandVersion(at=0, to=4))
        weight = MULTI + "priority_weight_age = 7000\n"
        priorities, always = made(weight), made(weight + 'priority_flags = ["ACCRUE_ALWAYS"]\n')
        sim.submit()
        sim.submit(dependency="afterany:1")
        sim.do(ops.PendingReasons(at=0, reasons=((2, "Dependency", ""),)))
        sim.now = 1000.0 + DAY
        assert value(priorities, sim, 2) == 1
        assert 990 < value(always, sim, 2) <= 1000
        sim.do(ops.PendingReasons(at=0, reasons=((2, "Resources", ""),)))
        assert value(priorities, sim, 2) == 1
        sim.now += DAY
        assert 990 < value(priorities, sim, 2) <= 1000

    def test_the_site_factor_is_added(self, sim, made):
        sim.do(ops.RaiseCommandVersion(at=0, to=4))
        priorities = made(MULTI)
        sim.submit()
        assert value(priorities, sim, 1) == 1
        sim.update(1, who=ADMIN, site_factor=41)
        assert value(priorities, sim, 1) == 41

    def test_nodes_that_come_are_seen(self, sim, made):
        priorities = made(MULTI + "priority_weight_job_size = 1000\n")
        sim.submit(num_tasks=4)
        assert value(priorities, sim, 1) == 500
        sim.register("n3")
        sim.register("n4")
        sim.now += 2
        assert value(priorities, sim, 1) == 250

    def test_what_runs_keeps_what_it_started_with(self, sim, made):
        sim.do(ops.RaiseCommandVersion(at=0, to=4))
        weight = MULTI + "priority_weight_age = 7000\n"
        priorities, anew = made(weight), made(weight + 'priority_flags = ["CALCULATE_RUNNING"]\n')
        sim.submit()
        sim.begin(1)
        sim.state.put_job(msgspec.structs.replace(sim.job(1), start_priority=321))
        sim.now += DAY
        assert value(priorities, sim, 1) == 321
        assert 990 < value(anew, sim, 1) <= 1000

    def test_a_new_one_is_judged_before_it_is_there(self, sim, made):
        priorities = made(MULTI + "priority_weight_job_size = 100\n")
        sim.submit(num_tasks=4)
        priorities.refresh()
        request = sim.job(1).request
        assert priorities.of_new(request, 1000, False, sim.now) == priorities.of(sim.job(1)) == 50
        assert priorities.of_new(request, 9, True, sim.now) == 9


class TestQueue:
    def test_it_is_sorted_by_what_the_base_comes_to(self, sim, made):
        priorities = made(MULTI + "priority_weight_job_size = 1000\n")
        sim.submit(num_tasks=1)
        sim.submit(num_tasks=4)
        sim.submit(num_tasks=2)
        priorities.refresh()
        queue = pending_views(sim.state, sim.now + 1, {}, priorities.of)
        assert [view.job_id for view in queue.views] == [2, 3, 1]
        assert [view.priority for view in queue.views] == [500, 375, 312]

    def test_the_tier_goes_before_it(self, sim, made):
        priorities = made(MULTI + "priority_weight_job_size = 1000\n")
        sim.do(
            ops.Configure(
                at=0,
                settings=Settings(),
                partitions=(
                    Partition(name="main", nodes=("n1", "n2")),
                    Partition(name="fast", nodes=("n1",), priority_tier=3),
                ),
            )
        )
        sim.submit(num_tasks=4)
        sim.submit(num_tasks=1, partitions=("fast",))
        priorities.refresh()
        queue = pending_views(sim.state, sim.now + 1, {}, priorities.of)
        assert [view.job_id for view in queue.views] == [2, 1]

    def test_views_are_kept_while_nothing_changes(self, sim, made):
        priorities = made()
        sim.submit(priority=10**6)
        memo = {}
        priorities.refresh()
        (first,) = pending_views(sim.state, sim.now, memo, priorities.of).views
        (second,) = pending_views(sim.state, sim.now, memo, priorities.of).views
        assert second is first
        sim.now += 400
        priorities.refresh()
        (third,) = pending_views(sim.state, sim.now, memo, priorities.of).views
        assert third.priority > first.priority


def test_it_hears_of_what_makes_everything_different(sim, made):
    priorities = made(MULTI)
    for event in (ConfigChanged(), StateReplaced()):
        priorities.refresh()
        assert priorities._at == sim.now
        priorities._on_events((event,))
        assert priorities._at == -math.inf
    priorities.refresh()
    priorities._on_events((NodeChanged("n1"),))
    assert priorities._totals_stale


def test_the_configuration_becomes_rules_and_slurms_lines():
    config = parse_config(
        'cluster_name = "c"\n[scheduler]\n'
        + MULTI
        + 'priority_max_age = "14-0"\npriority_favor_small = true\n'
        'priority_flags = ["NO_NORMAL_ALL", "CALCULATE_RUNNING"]\npriority_weight_age = 5\n'
        'priority_weight_tres = { cpu = 3, mem = 0 }\n[[partitions]]\nname = "p"\npriority_job_factor = 9\n'
    )
    own = priority_rules(config)
    assert own.multifactor
    assert own.running
    assert own.rules.max_age == 14 * DAY
    normal = (own.rules.normal_partition, own.rules.normal_qos, own.rules.normal_tres)
    assert not any(normal)
    assert own.rules.weights.tres == (("cpu", 3),)
    assert partition_record(config.partitions[0]).priority_job_factor == 9
    shown = as_slurm_shows(own)
    assert shown["PriorityType"] == "priority/multifactor"
    assert shown["PriorityMaxAge"] == "14-00:00:00"
    assert shown["PriorityCalcPeriod"] == "00:05:00"
    assert shown["PriorityWeightTRES"] == "cpu=3"
    plain = as_slurm_shows(priority_rules(parse_config('cluster_name = "c"')))
    assert (plain["PriorityType"], plain["PriorityWeightAge"]) == ("priority/basic", "0")
