"""Multifactor priorities: every factor by table, the sum, its rounding, and the simple formula."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_sched.priority import basic, factors, multifactor
from spur_sched.priority.factors import Cluster, Facts, PartitionFacts
from spur_sched.priority.rules import HIGHEST, Rules, Weights

DAY = 86_400.0
#: Ten nodes of eight CPUs.
CLUSTER = Cluster(
    cpus=80,
    nodes=10,
    partitions={
        "batch": PartitionFacts(
            job_factor=1, max_time=1440.0, tres={"cpu": 80.0, "mem": 640.0, "gres/gpu": 8.0}
        ),
        "fast": PartitionFacts(job_factor=4, tres={"cpu": 16.0}),
        "none": PartitionFacts(job_factor=0),
    },
    tres={"license/matlab": 20.0},
    qos={"low": 10, "high": 40},
    most_assoc=50,
)


def facts(**more):
    fields = {"submit_at": 0.0, "accrue_at": 0.0, "cpus": 8, "min_nodes": 1, "partition": "batch"} | more
    return Facts(**fields)


class TestAge:
    @pytest.mark.parametrize(
        ("waited", "expected"),
        [
            (0, 0.0),
            (3.5 * DAY, 0.5),
            (7 * DAY, 1.0),
            (70 * DAY, 1.0),
            (-5, 0.0),
            (0.9, 0.0),
            (1.2, 1 / (7 * DAY)),
        ],
    )
    def test_grows_up_to_the_maximal_age(self, waited, expected):
        assert factors.age(facts(), Rules(), waited) == pytest.approx(expected)

    def test_the_maximal_age_is_configured(self):
        assert factors.age(facts(), Rules(max_age=DAY), DAY / 4) == 0.25

    def test_who_waits_for_something_else_does_not_age(self):
        assert factors.age(facts(accrue_at=None), Rules(), 3 * DAY) == 0.0

    def test_unless_everybody_does(self):
        always = Rules(accrue_always=True, max_age=4 * DAY)
        assert factors.age(facts(accrue_at=None), always, DAY) == 0.25
        assert factors.age(facts(submit_at=DAY, accrue_at=3 * DAY), always, 3 * DAY) == 0.5

    def test_fractions_of_seconds_do_not_count(self):
        assert factors.age(facts(accrue_at=0.9), Rules(), 10.1) == 10 / (7 * DAY)


class TestJobSize:
    @pytest.mark.parametrize(
        ("nodes", "cpus", "large", "small"),
        [
            (10, 80, 1.0, 0.0),
            (1, 8, 0.1, 0.9),
            (5, 40, 0.5, 0.5),
            (1, 0, 0.1, 0.9),
            # Mean of a tenth of the nodes and an eightieth of the CPUs.
            (1, 1, 0.05625, 0.94375),
            (20, 1000, 1.0, 0.0),
        ],
    )
    def test_is_a_part_of_the_cluster(self, nodes, cpus, large, small):
        job = facts(min_nodes=nodes, cpus=cpus)
        assert factors.job_size(job, CLUSTER, Rules()) == pytest.approx(large)
        assert factors.job_size(job, CLUSTER, Rules(favor_small=True)) == pytest.approx(small)

    @pytest.mark.parametrize(
        ("nodes", "cpus", "limit", "expected"),
        [
            # "A full-system job with a time limit of one will receive a job size factor of 1.0".
            (10, 80, 1.0, 1.0),
            (10, 80, 60.0, 1 / 60),
            (10, 80, 0.0, 1.0),
            # A node counts with the mean of its CPUs.
            (1, 1, 10.0, 0.01),
            (1, 16, 10.0, 0.02),
            # "while a tiny job with a large time limit will receive a job size factor close to 0.0".
            (1, 1, 1e6, 1e-7),
            (1, 8, math.inf, 0.0),
            # Without a limit that of the partition counts.
            (1, 8, None, 0.1 / 1440),
        ],
    )
    def test_relative_to_time(self, nodes, cpus, limit, expected):
        job = facts(min_nodes=nodes, cpus=cpus, time_limit=limit)
        rules = Rules(relative_to_time=True)
        assert factors.job_size(job, CLUSTER, rules) == pytest.approx(expected)
        small = rules._replace(favor_small=True)
        assert factors.job_size(job, CLUSTER, small) == pytest.approx(1 - expected)

    def test_of_a_cluster_without_nodes_is_nothing(self):
        assert factors.job_size(facts(), Cluster(0, 0, {}), Rules()) == 0.0


class TestOthers:
    @pytest.mark.parametrize(
        ("partition", "normal", "raw"),
        [("batch", 0.25, 1.0), ("fast", 1.0, 4.0), ("none", 0.0, 0.0), ("zz", 0.0, 0.0)],
    )
    def test_partition(self, partition, normal, raw):
        job = facts(partition=partition)
        assert factors.partition(job, CLUSTER, Rules()) == normal
        assert factors.partition(job, CLUSTER, Rules(normal_partition=False)) == raw

    def test_partitions_that_all_have_nothing(self):
        bare = Cluster(1, 1, {"p": PartitionFacts(job_factor=0)})
        assert factors.partition(facts(partition="p"), bare, Rules()) == 0.0

    @pytest.mark.parametrize(
        ("qos", "normal", "raw"), [("", 0.0, 0.0), ("low", 0.25, 10.0), ("high", 1.0, 40.0)]
    )
    def test_qos(self, qos, normal, raw):
        assert factors.qos(facts(qos=qos), CLUSTER, Rules()) == normal
        assert factors.qos(facts(qos=qos), CLUSTER, Rules(normal_qos=False)) == raw
        assert factors.qos(facts(qos=qos), Cluster(1, 1, {}), Rules()) == 0.0

    def test_association(self):
        assert factors.assoc(facts(assoc=5), CLUSTER, Rules()) == 0.1
        assert factors.assoc(facts(assoc=5), CLUSTER, Rules(normal_assoc=False)) == 5.0

    def test_tres(self):
        rules = Rules(
            Weights(tres=(("cpu", 10), ("gres/gpu", 5), ("license/matlab", 1), ("mem", 0), ("zz", 7)))
        )
        job = facts(tres={"cpu": 8, "gres/gpu": 2, "license/matlab": 5, "mem": 64})
        # Of the partition; what belongs to none of the whole; one without a weight is not shown.
        assert factors.tres(job, CLUSTER, rules) == (
            ("cpu", 0.1),
            ("gres/gpu", 0.25),
            ("license/matlab", 0.25),
            ("zz", 0.0),
        )
        raw = rules._replace(normal_tres=False)
        assert factors.tres(job, CLUSTER, raw) == (
            ("cpu", 8.0),
            ("gres/gpu", 2.0),
            ("license/matlab", 5.0),
            ("zz", 0.0),
        )


#: The page's sample configuration: AGE 1000, FAIRSHARE 10000, JOBSIZE 1000, PARTITION 1000, QOS 0; 14 days.
SAMPLE = Rules(Weights(age=1000, fairshare=10_000, job_size=1000, partition=1000), max_age=14 * DAY)


class TestSum:
    def test_the_sample_configuration(self):
        job = facts(min_nodes=5, cpus=40, partition="fast", nice=30, site=7)
        found = multifactor.breakdown(job, CLUSTER, SAMPLE, 7 * DAY, 0.59534)
        assert found.normalized == factors.Factors(age=0.5, fairshare=0.59534, job_size=0.5, partition=1.0)
        assert found.weighted.age == 500.0
        assert found.weighted.fairshare == pytest.approx(5953.4)
        assert found.priority == 500 + 5953 + 500 + 1000 - 30 + 7

    def test_a_weight_that_is_too_small_hides_a_difference(self):
        """With a fair-share weight of only 10, .59534 and .50002 come to the same."""

        def value(weight, share):
            rules = Rules(Weights(fairshare=weight))
            return multifactor.breakdown(facts(), CLUSTER, rules, 0.0, share).priority

        assert value(10, 0.59534) == value(10, 0.50002) == 5
        assert value(1000, 0.59534) == 595
        assert value(1000, 0.50002) == 500

    @pytest.mark.parametrize(
        ("total", "expected"),
        [(-5.0, 1), (0.0, 1), (0.99, 1), (1.99, 1), (2.0, 2), (1e12, HIGHEST), (4294967294.9, 4294967294)],
    )
    def test_is_cut_down_and_kept_within_bounds(self, total, expected):
        assert multifactor.whole(total) == expected
        vector = multifactor.priorities([total], [math.inf], [0.0], Rules(), 0.0)
        assert vector.tolist() == [expected]

    weights = st.builds(
        Weights,
        **{
            name: st.integers(0, HIGHEST)
            for name in ("age", "assoc", "fairshare", "job_size", "partition", "qos")
        },
        tres=st.sampled_from([(), (("cpu", 1000), ("mem", 7))]),
    )
    jobs = st.builds(
        Facts,
        submit_at=st.floats(0, 1e7),
        accrue_at=st.floats(0, 1e7),
        cpus=st.integers(0, 200),
        min_nodes=st.integers(1, 12),
        partition=st.sampled_from(["batch", "fast", "none"]),
        tres=st.fixed_dictionaries({"cpu": st.integers(0, 99), "mem": st.integers(0, 9999)}),
        nice=st.integers(-(2**31) + 3, 2**31 - 3),
        site=st.integers(-1000, 1000),
        qos=st.sampled_from(["", "low", "high"]),
        assoc=st.integers(0, 50),
    )

    @given(weights, st.lists(st.tuples(jobs, st.floats(0, 1)), max_size=8), st.floats(0, 2e7))
    def test_many_at_once_are_the_same_as_one_by_one(self, weights, queue, now):
        rules = Rules(weights)
        single = [multifactor.breakdown(job, CLUSTER, rules, now, share).priority for job, share in queue]
        many = multifactor.priorities(
            [multifactor.still_sum(job, CLUSTER, rules) for job, _ in queue],
            [job.accrue_at for job, _ in queue],
            [share for _, share in queue],
            rules,
            now,
        )
        assert many.tolist() == single
        assert all(1 <= value <= HIGHEST for value in single)

    @given(weights, jobs, st.floats(0, 1), st.floats(0, 1e7), st.floats(0, 1e6))
    def test_waiting_and_kindness_never_lower_it(self, weights, job, share, now, more):
        rules = Rules(weights)
        before = multifactor.breakdown(job, CLUSTER, rules, now, share).priority
        assert multifactor.breakdown(job, CLUSTER, rules, now + more, share).priority >= before
        kinder = job._replace(nice=job.nice - 10)
        assert multifactor.breakdown(kinder, CLUSTER, rules, now, share).priority >= before
        assert multifactor.breakdown(job, CLUSTER, rules, now, min(1.0, share + 0.1)).priority >= before

    def test_ten_thousand_jobs_at_once_are_quick(self):
        """Not a figure, but a guard against going over them one by one."""
        import time

        count = 10_000
        still, since, shares = np.arange(count) * 1.0, np.zeros(count), np.ones(count)
        rules = Rules(Weights(age=1000, fairshare=1000))
        began = time.process_time()
        for _ in range(10):
            found = multifactor.priorities(still, since, shares, rules, 1000.0)
        assert len(found) == count
        assert time.process_time() - began < 0.5


class TestBasic:
    @pytest.mark.parametrize(
        ("base", "tier", "waited", "share", "expected"),
        [
            (1000, 1, 0, 1.0, 1000),
            (1000, 0, 0, 1.0, 1000),
            (1000, 3, 0, 1.0, 3000),
            (1000, 1, 3.5 * DAY, 1.0, 1500),
            (1000, 1, 7 * DAY, 1.0, 2000),
            (1000, 1, 700 * DAY, 1.0, 2000),
            # A minute is 1/10080.
            (10_080, 1, 60, 1.0, 10_081),
            (1000, 1, 0, 0.25, 250),
            (1000, 1, 0, 100.0, 10_000),
            (1, 1, 0, 0.0, 1),
            (HIGHEST, 10, 0, 1.0, HIGHEST),
        ],
    )
    def test_the_formula(self, base, tier, waited, share, expected):
        found = basic.priority(base, tier=tier, since=0.0, now=waited, share=share)
        assert found == expected

    @given(st.integers(1, 10**6), st.floats(0, 1e7), st.floats(0, 1e7), st.floats(0, 1e7))
    def test_of_two_alike_the_older_is_never_behind(self, base, one, other, now):
        first, second = sorted((one, other))
        values = [basic.priority(base, tier=1, since=at, now=now) for at in (first, second)]
        assert values[0] >= values[1]
