"""Limits of associations and QOS: each with its reason, groups at every level, and what a pass admits.

Long because every limit has its rows here, beside the few helpers that all of them use.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_sched.api import JobView, NodeShare, Placement, Running
from spur_sched.limits import tokens
from spur_sched.limits.accrual import accruing
from spur_sched.limits.check import Checker
from spur_sched.limits.footprint import asked
from spur_sched.limits.submit import refused
from spur_sched.limits.tables import (
    Association,
    GroupLimits,
    JobLimits,
    Past,
    Qos,
    ShareLimits,
    Tables,
)

NOW = 1_000_000.0
ALICE, BOB = 1000, 1001
GPU = ("gpu", "")


def job(job_id=1, **more):
    fields = {
        "priority": 1000,
        "submit_at": NOW,
        "eligible_at": NOW,
        "partitions": ("batch",),
        "min_nodes": 1,
        "max_nodes": 1,
        "num_tasks": 1,
        "tasks_given": True,
        "tasks_per_node": None,
        "cpus_per_task": 1,
        "memory_per_node_mb": None,
        "memory_per_cpu_mb": None,
        "gres": {},
        "exclusive": False,
        "nodelist": frozenset(),
        "exclude": frozenset(),
        "constraint": "",
        "time_limit": 3600,
        "uid": ALICE,
        "account": "physics",
        "qos": "normal",
    } | more
    return JobView(job_id=job_id, **fields)


def share(node="n1", cpus=1, memory_mb=0, gres=None):
    return NodeShare(node, cpus, memory_mb, gres or {}, (0,))


def running(job_id=900, uid=ALICE, account="physics", qos="normal", end=NOW + 3600, shares=None, **more):
    return Running(
        job_id,
        1,
        1000,
        1,
        more.pop("partition", "batch"),
        uid,
        account,
        qos,
        NOW,
        end,
        tuple(shares or [share()]),
        **more,
    )


def place(one, *shares, task=None):
    return Placement(one.job_id, task, "batch", tuple(shares or [share()]))


def tables(*associations, qos=(), **more):
    found = {(one.account, one.uid): one for one in associations}
    return Tables(found, {one.name: one for one in qos}, **more)


def assoc(**more):
    """The user's own association."""
    return Association("physics", ALICE, **more)


def reason(which, one, live=(), **more):
    verdict = Checker(which, live, NOW, **more).admit(one)
    return verdict.reason if verdict is not None else None


SINGLE = [
    # limit, job, reason when of an association, reason when of a QOS.
    ({"wall": 59}, {}, "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit"),
    ({"wall": 0}, {}, "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit"),
    (
        {"wall": 9999},
        {"time_limit": None},
        "AssocMaxWallDurationPerJobLimit",
        "QOSMaxWallDurationPerJobLimit",
    ),
    ({"wall": 60}, {}, None, None),
    (
        {"tres": {"cpu": 3}},
        {"num_tasks": 2, "cpus_per_task": 2},
        "AssocMaxCpuPerJobLimit",
        "QOSMaxCpuPerJobLimit",
    ),
    ({"tres": {"cpu": 4}}, {"num_tasks": 2, "cpus_per_task": 2}, None, None),
    ({"tres": {"cpu": 0}}, {}, "AssocMaxCpuPerJobLimit", "QOSMaxCpuPerJobLimit"),
    (
        {"tres": {"node": 1}},
        {"min_nodes": 2, "max_nodes": 2},
        "AssocMaxNodePerJobLimit",
        "QOSMaxNodePerJobLimit",
    ),
    ({"tres": {"mem": 100}}, {"memory_per_node_mb": 101}, "AssocMaxMemPerJob", "QOSMaxMemoryPerJob"),
    (
        {"tres": {"mem": 100}},
        {"memory_per_cpu_mb": 60, "num_tasks": 2},
        "AssocMaxMemPerJob",
        "QOSMaxMemoryPerJob",
    ),
    ({"tres": {"gres/gpu": 1}}, {"gres": {GPU: 2}}, "AssocMaxGRESPerJob", "QOSMaxGRESPerJob"),
    ({"tres": {"gres/gpu": 1}}, {"gres": {("gpu", "h100"): 2}}, "AssocMaxGRESPerJob", "QOSMaxGRESPerJob"),
    ({"tres": {"gres/gpu:a100": 0}}, {"gres": {("gpu", "h100"): 2}}, None, None),
    ({"tres": {"gres/gpu": 3}}, {"gres_total": {GPU: 4}}, "AssocMaxGRESPerJob", "QOSMaxGRESPerJob"),
    (
        {"tres": {"gres/gpu": 3}},
        {"gres_per_task": {GPU: 2}, "num_tasks": 2},
        "AssocMaxGRESPerJob",
        "QOSMaxGRESPerJob",
    ),
    ({"tres": {"license/x": 1}}, {"licenses": (("x", 2),)}, "AssocMaxLicensePerJob", "QOSMaxLicensePerJob"),
    ({"tres": {"license/x": 1}}, {"licenses": (("x", 2),), "licenses_any": True}, None, None),
    ({"tres": {"billing": 1}}, {"num_tasks": 2}, "AssocMaxBillingPerJob", "QOSMaxBillingPerJob"),
    ({"tres_per_node": {"cpu": 2}}, {"num_tasks": 3}, "AssocMaxCpuPerNode", "QOSMaxCpuPerNode"),
    ({"tres_per_node": {"cpu": 2}}, {"num_tasks": 4, "max_nodes": 2, "min_nodes": 2}, None, None),
    ({"tres_per_node": {"mem": 9}}, {"memory_per_node_mb": 10}, "AssocMaxMemPerNode", "QOSMaxMemoryPerNode"),
    ({"tres_per_node": {"gres/gpu": 1}}, {"gres": {GPU: 2}}, "AssocMaxGRESPerNode", "QOSMaxGRESPerNode"),
    (
        {"tres_mins": {"cpu": 119}},
        {"num_tasks": 2},
        "AssocMaxCpuMinutesPerJobLimit",
        "QOSMaxCpuMinutesPerJobLimit",
    ),
    ({"tres_mins": {"cpu": 120}}, {"num_tasks": 2}, None, None),
    (
        {"tres_mins": {"mem": 1}},
        {"memory_per_node_mb": 1},
        "AssocMaxMemMinutesPerJob",
        "QOSMaxMemoryMinutesPerJob",
    ),
    ({"tres_mins": {"gres/gpu": 1}}, {"time_limit": None}, None, None),
    ({"tres_mins": {"node": 59}}, {}, "AssocMaxNodeMinutesPerJob", "QOSMaxNodeMinutesPerJob"),
]


class TestOneJob:
    @pytest.mark.parametrize(("limit", "fields", "of_assoc", "of_qos"), SINGLE)
    def test_of_an_association_and_of_a_qos(self, limit, fields, of_assoc, of_qos):
        one = job(**fields)
        assert reason(tables(assoc(job=JobLimits(**limit))), one) == of_assoc
        assert reason(tables(qos=[Qos("normal", job=JobLimits(**limit))]), one) == of_qos

    @pytest.mark.parametrize(
        ("least", "expected"),
        [
            ({"cpu": 2}, "QOSMinCpuNotSatisfied"),
            ({"node": 2}, "QOSMinNode"),
            ({"mem": 1}, "QOSMinMemory"),
            ({"gres/gpu": 1}, "QOSMinGRES"),
            ({"license/x": 1}, "QOSMinLicense"),
            ({"cpu": 1}, None),
        ],
    )
    def test_the_least_of_a_qos(self, least, expected):
        assert reason(tables(qos=[Qos("normal", min_tres=least)]), job()) == expected


GROUP = [
    # limit, what runs (a footprint on n1), job, reason of association, of QOS.
    ({"jobs": 1}, {}, {}, "AssocGrpJobsLimit", "QOSGrpJobsLimit"),
    ({"jobs": 2}, {}, {}, None, None),
    ({"tres": {"cpu": 4}}, {"cpus": 3}, {"num_tasks": 2}, "AssocGrpCpuLimit", "QOSGrpCpuLimit"),
    ({"tres": {"cpu": 4}}, {"cpus": 3}, {}, None, None),
    ({"tres": {"mem": 9}}, {"memory_mb": 5}, {"memory_per_node_mb": 5}, "AssocGrpMemLimit", "QOSGrpMemLimit"),
    ({"tres": {"gres/gpu": 3}}, {"gres": {GPU: 2}}, {"gres": {GPU: 2}}, "AssocGrpGRES", "QOSGrpGRES"),
    ({"tres": {"node": 1}}, {}, {"min_nodes": 2, "max_nodes": 2}, "AssocGrpNodeLimit", "QOSGrpNodeLimit"),
    ({"tres": {"node": 1}}, {}, {}, None, None),
    ({"tres_run_mins": {"cpu": 100}}, {}, {}, "AssocGrpCPURunMinutesLimit", "QOSGrpCPURunMinutesLimit"),
    ({"tres_run_mins": {"cpu": 120}}, {}, {}, None, None),
    (
        {"tres_run_mins": {"mem": 99}},
        {"memory_mb": 1},
        {"memory_per_node_mb": 1},
        "AssocGrpMemRunMinutes",
        "QOSGrpMemoryRunMinutes",
    ),
    ({"tres_run_mins": {"node": 100}}, {}, {}, "AssocGrpNodeRunMinutes", "QOSGrpNodeRunMinutes"),
    (
        {"tres_run_mins": {"cpu": 9e9}},
        {},
        {"time_limit": None},
        "AssocGrpCPURunMinutesLimit",
        "QOSGrpCPURunMinutesLimit",
    ),
    ({"tres_run_mins": {"gres/gpu": 5}}, {}, {"time_limit": None}, None, None),
]


class TestGroups:
    @pytest.mark.parametrize(("limit", "held", "fields", "of_assoc", "of_qos"), GROUP)
    def test_of_an_account_and_of_a_qos(self, limit, held, fields, of_assoc, of_qos):
        """What another user has in use counts too."""
        live = [running(uid=BOB, shares=[share(**held)])]
        account = Association("physics", group=GroupLimits(**limit))
        assert reason(tables(account), job(**fields), live) == of_assoc
        assert reason(tables(qos=[Qos("normal", group=GroupLimits(**limit))]), job(**fields), live) == of_qos

    @pytest.mark.parametrize("level", ["root", "science", "physics", "alice"])
    def test_every_ancestor_holds(self, level):
        where = {
            "root": ("", None),
            "science": ("science", None),
            "physics": ("physics", None),
            "alice": ("physics", ALICE),
        }
        group = GroupLimits(tres={"cpu": 2})
        rows = [
            Association("", group=group if level == "root" else GroupLimits()),
            Association("science", group=group if level == "science" else GroupLimits()),
            Association("physics", parent="science", group=group if level == "physics" else GroupLimits()),
            Association("physics", ALICE, group=group if level == "alice" else GroupLimits()),
            Association("biology", parent="science"),
        ]
        assert where[level] in {(row.account, row.uid) for row in rows}
        which = tables(*rows)
        assert reason(which, job(num_tasks=2)) is None
        mine = running(shares=[share(cpus=1)])
        assert reason(which, job(num_tasks=2), [mine]) == "AssocGrpCpuLimit"
        # Somebody in another account counts from their common ancestor upwards.
        other = running(uid=BOB, account="biology")
        expected = "AssocGrpCpuLimit" if level in ("root", "science") else None
        assert reason(which, job(num_tasks=2), [other]) == expected

    @pytest.mark.parametrize(
        ("held", "expected_user", "expected_account"),
        [
            ({"cpus": 3}, "QOSMaxCpuPerUserLimit", "MaxCpuPerAccount"),
            ({"cpus": 2}, None, None),
        ],
    )
    def test_per_user_and_per_account(self, held, expected_user, expected_account):
        live = [running(shares=[share(**held)])]
        caps = ShareLimits(tres={"cpu": 4})
        per_user = tables(qos=[Qos("normal", user=caps)])
        per_account = tables(qos=[Qos("normal", account=caps)])
        two = {"num_tasks": 2}
        assert reason(per_user, job(**two), live) == expected_user
        assert reason(per_user, job(uid=BOB, **two), live) is None
        assert reason(per_user, job(qos="other", **two), live) is None
        assert reason(per_account, job(uid=BOB, **two), live) == expected_account
        assert reason(per_account, job(account="biology", **two), live) is None

    @pytest.mark.parametrize(
        ("name", "per_user", "per_account"),
        [
            ("node", "QOSMaxNodePerUserLimit", "MaxNodePerAccount"),
            ("mem", "QOSMaxMemoryPerUser", "MaxMemoryPerAccount"),
            ("gres/gpu", "QOSMaxGRESPerUser", "MaxGRESPerAccount"),
            ("license/x", "QOSMaxLicensePerUser", "MaxLicensePerAccount"),
        ],
    )
    def test_reasons_of_the_other_tres(self, name, per_user, per_account):
        caps = ShareLimits(tres={name: 0})
        one = job(memory_per_node_mb=1, gres={GPU: 1}, licenses=(("x", 1),))
        assert reason(tables(qos=[Qos("normal", user=caps)]), one) == per_user
        assert reason(tables(qos=[Qos("normal", account=caps)]), one) == per_account

    def test_counts(self):
        live = [running()]
        assert reason(tables(assoc(own=ShareLimits(jobs=1))), job(), live) == "AssocMaxJobsLimit"
        assert reason(tables(assoc(own=ShareLimits(jobs=0))), job()) == "AssocMaxJobsLimit"
        assert reason(tables(assoc(own=ShareLimits(jobs=1))), job(), [running(account="x")]) is None
        user = tables(qos=[Qos("normal", user=ShareLimits(jobs=1))])
        assert reason(user, job(), live) == "QOSMaxJobsPerUserLimit"
        assert reason(user, job(uid=BOB), live) is None
        accounts = tables(qos=[Qos("normal", account=ShareLimits(jobs=1))])
        assert reason(accounts, job(uid=BOB), live) == "MaxJobsPerAccount"

    def test_a_suspended_or_launching_attempt_counts(self):
        live = [running()._replace(started=None)]
        assert reason(tables(assoc(own=ShareLimits(jobs=1))), job(), live) == "AssocMaxJobsLimit"

    def test_wall_time_that_is_used_up(self):
        account = Association("physics", group=GroupLimits(wall=100), past=Past(wall=100.0))
        assert reason(tables(account), job()) == "AssocGrpWallLimit"
        assert reason(tables(account._replace(past=Past(wall=99.0))), job()) is None
        qos = Qos("normal", group=GroupLimits(wall=0))
        assert reason(tables(qos=[qos]), job()) == "QOSGrpWallLimit"

    @pytest.mark.parametrize(
        ("past", "safe", "of_assoc"),
        [
            (99.0, False, None),
            (100.0, False, "AssocGrpCPUMinutesLimit"),
            # A job of 60 minutes, and one that runs for 30 more.
            (10.0, True, None),
            (11.0, True, "AssocGrpCPUMinutesLimit"),
        ],
    )
    def test_minutes_that_are_used_up(self, past, safe, of_assoc):
        group = GroupLimits(tres_mins={"cpu": 100})
        used = Past(tres_mins={"cpu": past})
        live = [running(end=NOW + 1800)]
        of_qos = of_assoc.replace("Assoc", "QOS") if of_assoc else None
        account = Association("physics", group=group, past=used)
        assert reason(tables(account, safe=safe), job(), live) == of_assoc
        qos = Qos("normal", group=group, past=used)
        assert reason(tables(qos=[qos], safe=safe), job(), live) == of_qos

    def test_time_that_runs_off_frees_run_minutes(self):
        account = Association("physics", group=GroupLimits(tres_run_mins={"cpu": 90}))
        live = [running(end=NOW + 1860)]
        assert reason(tables(account), job(), live) == "AssocGrpCPURunMinutesLimit"
        assert Checker(tables(account), live, NOW + 60).admit(job()) is None


class TestWhichLimitCounts:
    def test_associations_are_looked_at_first(self):
        which = tables(assoc(job=JobLimits(tres={"cpu": 0})), qos=[Qos("normal", job=JobLimits(wall=0))])
        assert reason(which, job()) == "AssocMaxCpuPerJobLimit"

    def test_within_one_source_counts_come_first_and_groups_last(self):
        everything = Qos(
            "normal",
            job=JobLimits(wall=0, tres={"node": 0, "cpu": 0}),
            user=ShareLimits(jobs=0, tres={"cpu": 0}),
            account=ShareLimits(tres={"cpu": 0}),
            group=GroupLimits(wall=0, tres={"cpu": 0}),
        )
        strip = [
            ("QOSMaxJobsPerUserLimit", {"user": ShareLimits(tres={"cpu": 0})}),
            ("QOSGrpWallLimit", {"group": GroupLimits(tres={"cpu": 0})}),
            ("QOSMaxWallDurationPerJobLimit", {"job": JobLimits(tres={"node": 0, "cpu": 0})}),
            ("QOSMaxCpuPerJobLimit", {"job": JobLimits(tres={"node": 0})}),
            ("QOSMaxNodePerJobLimit", {"job": JobLimits()}),
            ("QOSMaxCpuPerUserLimit", {"user": ShareLimits()}),
            ("MaxCpuPerAccount", {"account": ShareLimits()}),
            ("QOSGrpCpuLimit", {"group": GroupLimits()}),
        ]
        for expected, change in strip:
            assert reason(tables(qos=[everything]), job()) == expected
            everything = everything._replace(**change)
        assert reason(tables(qos=[everything]), job()) is None

    def test_a_qos_goes_before_the_association(self):
        """MaxJobs=20 of the partition's QOS counts, and not the 4 of the user's association."""
        which = tables(
            assoc(own=ShareLimits(jobs=4, submit_jobs=50)),
            qos=[Qos("part", user=ShareLimits(jobs=20)), Qos("normal")],
            partition_qos={"batch": "part"},
        )
        live = [running(job_id=number) for number in range(100, 119)]
        assert reason(which, job(), live) is None
        assert reason(which, job(), [*live, running(job_id=119)]) == "QOSMaxJobsPerUserLimit"
        elsewhere = job(partitions=("other",))
        assert reason(which, elsewhere, live) == "AssocMaxJobsLimit"

    def test_a_group_limit_of_a_qos_replaces_those_of_all_accounts(self):
        which = tables(
            Association("", group=GroupLimits(tres={"cpu": 1, "mem": 5})),
            Association("physics", group=GroupLimits(tres={"cpu": 1})),
            qos=[Qos("normal", group=GroupLimits(tres={"cpu": 8}))],
        )
        assert reason(which, job(num_tasks=8)) is None
        assert reason(which, job(num_tasks=9)) == "QOSGrpCpuLimit"
        assert reason(which, job(memory_per_node_mb=6)) == "AssocGrpMemLimit"

    def test_a_user_has_what_the_nearest_account_sets(self):
        which = tables(
            Association("", own=ShareLimits(jobs=9), job=JobLimits(wall=30)),
            Association("physics", own=ShareLimits(jobs=1)),
            assoc(job=JobLimits(tres={"cpu": 1})),
        )
        assert reason(which, job(), [running()]) == "AssocMaxJobsLimit"
        # It counts the user's own jobs and not the account's.
        assert reason(which, job(time_limit=60), [running(uid=BOB)]) is None
        assert reason(which, job()) == "AssocMaxWallDurationPerJobLimit"
        assert reason(which, job(uid=BOB, time_limit=60), [running(uid=BOB)]) == "AssocMaxJobsLimit"

    def test_nothing_is_limited_by_tables_that_know_nobody(self):
        assert reason(Tables(), job(account="zz", qos="zz"), [running()]) is None

    def test_accounts_in_a_circle_end(self):
        rows = [Association("a", parent="b"), Association("b", parent="a")]
        assert reason(tables(*rows), job(account="a")) is None


class TestOnePass:
    def test_what_was_charged_counts(self):
        checker = Checker(tables(assoc(own=ShareLimits(jobs=2))), [], NOW)
        for number in (1, 2):
            assert checker.admit(job(number)) is None
            assert checker.charge(job(number), place(job(number))) is None
        assert checker.admit(job(3)).reason == "AssocMaxJobsLimit"
        checker.refund(job(1), place(job(1)))
        assert checker.admit(job(3)) is None
        # A refund of what was not charged changes nothing.
        checker.refund(job(9), place(job(9)))
        checker.refund(job(1), place(job(1)))
        assert checker.charge(job(3), place(job(3))) is None
        assert checker.admit(job(4)).reason == "AssocMaxJobsLimit"

    def test_tasks_of_an_array_are_charged_one_by_one(self):
        checker = Checker(tables(assoc(own=ShareLimits(jobs=2))), [], NOW)
        one = job(tasks=(1, 2, 3))
        verdicts = [checker.charge(one, place(one, task=task)) for task in one.tasks]
        assert [verdict is None for verdict in verdicts] == [True, True, False]

    def test_the_place_counts_and_not_the_request(self):
        """An exclusive job takes more than it asked for."""
        checker = Checker(tables(assoc(group=GroupLimits(tres={"cpu": 4}))), [], NOW)
        assert checker.admit(job()) is None
        assert checker.charge(job(), place(job(), share(cpus=8))).reason == "AssocGrpCpuLimit"
        assert checker.charge(job(), place(job(), share(cpus=4))) is None

    def test_nodes_count_once(self):
        """Node n1 holds a job already: another one there adds no node, one on n2 does."""
        checker = Checker(tables(qos=[Qos("normal", group=GroupLimits(tres={"node": 1}))]), [running()], NOW)
        assert checker.admit(job()) is None
        near = checker.near(job())
        assert (near.nodes, near.fresh, near.over.reason) == (frozenset({"n1"}), 0, "QOSGrpNodeLimit")
        assert checker.charge(job(), place(job(), share("n2"))).reason == "QOSGrpNodeLimit"
        assert checker.charge(job(), place(job(), share("n1"))) is None

    def test_a_node_is_free_again_when_its_last_job_goes(self):
        which = tables(qos=[Qos("normal", user=ShareLimits(tres={"node": 1}))])
        checker = Checker(which, [], NOW)
        for number in (1, 2):
            assert checker.charge(job(number), place(job(number))) is None
        checker.refund(job(1), place(job(1)))
        assert checker.charge(job(3), place(job(3), share("n2"))).reason == "QOSMaxNodePerUserLimit"
        checker.refund(job(2), place(job(2)))
        assert checker.charge(job(3), place(job(3), share("n2"))) is None

    def test_who_has_to_stay_near(self):
        which = tables(
            assoc(group=GroupLimits(tres={"node": 5})),
            qos=[Qos("normal", user=ShareLimits(tres={"node": 6}))],
        )
        assert Checker(which, [], NOW).near(job()) is None
        wide = job(min_nodes=6, max_nodes=6)
        assert Checker(which, [], NOW).near(wide).fresh == 5
        live = [running(shares=[share(f"n{number}") for number in range(4)])]
        live += [running(job_id=901, account="biology", shares=[share(f"m{number}") for number in range(2)])]
        near = Checker(which, live, NOW).near(job(min_nodes=2, max_nodes=2))
        # The user's six of the QOS are used up; the association has one left, on its own four.
        assert (near.fresh, near.over.reason) == (0, "QOSMaxNodePerUserLimit")
        assert near.nodes == {"n0", "n1", "n2", "n3"}
        assert Checker(Tables(), [], NOW).near(job()) is None

    def test_an_endless_job_is_let_go_without_a_trace(self):
        which = tables(assoc(group=GroupLimits(tres_run_mins={"cpu": 100})))
        checker = Checker(which, [running(end=None)], NOW)
        assert checker.admit(job()).reason == "AssocGrpCPURunMinutesLimit"

    def test_the_later_of_too_many_submitted_wait(self):
        which = tables(assoc(own=ShareLimits(submit_jobs=3)))
        queue = [job(7), job(5, tasks=(0, 1)), job(3, uid=BOB), job(9)]
        checker = Checker(which, [running()], NOW, queue)
        assert [(one.job_id, checker.admit(one) is None) for one in queue] == [
            (7, False),
            (5, True),
            (3, True),
            (9, False),
        ]
        assert checker.admit(job(7)).reason == "AssocMaxSubmitJobLimit"

    def test_a_verdict_explains_itself(self):
        which = tables(Association("physics", group=GroupLimits(tres={"cpu": 4})))
        verdict = Checker(which, [running(shares=[share(cpus=3)])], NOW).admit(job(num_tasks=2))
        assert verdict.text == "account physics uses 3 of at most 4 cpu, this job needs 2 more"


small = st.integers(0, 6)
some_tres = st.dictionaries(st.sampled_from(["cpu", "node", "mem", "gres/gpu"]), small, max_size=3)
shares = st.builds(lambda jobs, tres: ShareLimits(jobs=jobs, tres=tres), st.none() | small, some_tres)
groups = st.builds(
    lambda jobs, tres, mins: GroupLimits(jobs=jobs, tres=tres, tres_run_mins=mins),
    st.none() | small,
    some_tres,
    st.dictionaries(st.sampled_from(["cpu", "gres/gpu"]), st.integers(0, 500), max_size=1),
)
a_table = st.builds(
    lambda root, account, alice, most, qos, user, per_account: tables(
        Association("", group=root),
        Association("physics", group=account, own=ShareLimits(jobs=most)),
        Association("physics", ALICE, group=alice),
        Association("physics", BOB),
        qos=[Qos("normal", group=qos, user=user, account=per_account)],
    ),
    groups,
    groups,
    groups,
    st.none() | small,
    groups,
    shares,
    shares,
)
pieces = st.lists(
    st.builds(
        share,
        st.sampled_from(["n1", "n2", "n3"]),
        st.integers(1, 4),
        st.integers(0, 4),
        st.sampled_from([{}, {GPU: 1}, {("gpu", "h100"): 2}]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one.node,
)
wanted = st.lists(
    st.tuples(st.sampled_from([ALICE, BOB]), pieces, st.sampled_from([None, 600, 3600])), max_size=12
)


def as_job(number, uid, parts, limit):
    return job(number, uid=uid, time_limit=limit, num_tasks=sum(part.cpus for part in parts))


def in_use(live, member):
    """(jobs, TRES, run minutes) of the jobs that `member` takes, added up the slow way."""
    mine = [one for one in live if member(one)]
    tres = {"cpu": 0, "mem": 0, "gres/gpu": 0}
    mins = {"cpu": 0.0, "gres/gpu": 0.0}
    nodes = set()
    for one in mine:
        left = math.inf if one.end is None else (one.end - NOW) / 60
        for part in one.shares:
            nodes.add(part.node)
            tres["cpu"] += part.cpus
            tres["mem"] += part.memory_mb
            gpus = sum(part.gres.values())
            tres["gres/gpu"] += gpus
            mins["cpu"] += part.cpus * left
            mins["gres/gpu"] += gpus * left if gpus else 0
    return len(mine), tres | {"node": len(nodes)}, mins


class TestProperties:
    @given(a_table, wanted)
    def test_what_a_pass_starts_never_exceeds_a_limit(self, which, queue):
        checker = Checker(which, [], NOW)
        live = []
        for number, (uid, parts, limit) in enumerate(queue, 1):
            one = as_job(number, uid, parts, limit)
            if checker.admit(one) is None and checker.charge(one, place(one, *parts)) is None:
                end = NOW + limit if limit else None
                live.append(running(number, uid=uid, shares=parts, end=end))
        qos = which.qos["normal"]
        members = [
            (qos.group, lambda one: True),
            *((qos.user, lambda one, uid=uid: one.uid == uid) for uid in (ALICE, BOB)),
            (qos.account, lambda one: True),
        ]
        for key, row in which.associations.items():
            # What the QOS sets itself is not the association's any more.
            group = row.group._replace(
                jobs=None if qos.group.jobs is not None else row.group.jobs,
                tres={n: v for n, v in row.group.tres.items() if n not in qos.group.tres},
                tres_run_mins={
                    n: v for n, v in row.group.tres_run_mins.items() if n not in qos.group.tres_run_mins
                },
            )
            members.append((group, lambda one, uid=key[1]: uid is None or one.uid == uid))
        for limits, member in members:
            jobs, tres, mins = in_use(live, member)
            assert limits.jobs is None or jobs <= limits.jobs
            assert all(tres[name] <= most for name, most in limits.tres.items() if tres[name])
            if isinstance(limits, GroupLimits):
                assert all(mins[name] <= most for name, most in limits.tres_run_mins.items() if mins[name])

    @given(a_table, wanted, wanted)
    def test_with_less_in_use_no_job_is_refused_that_was_admitted_with_more(self, which, before, more):
        def live(found):
            return [
                running(number, uid=uid, shares=parts, end=NOW + limit if limit else None)
                for number, (uid, parts, limit) in enumerate(found, 100)
            ]

        one = job(num_tasks=2, memory_per_node_mb=1)
        full = Checker(which, live([*before, *more]), NOW).admit(one)
        if full is None:
            assert Checker(which, live(before), NOW).admit(one) is None

    @given(a_table, wanted)
    def test_a_refund_takes_back_exactly_what_was_charged(self, which, queue):
        first, second = Checker(which, [], NOW), Checker(which, [], NOW)
        jobs = [(as_job(number, *rest), rest[1]) for number, rest in enumerate(queue, 1)]
        charged = [(one, parts) for one, parts in jobs if second.charge(one, place(one, *parts)) is None]
        for one, parts in charged:
            second.refund(one, place(one, *parts))
        for one, parts in jobs:
            assert first.charge(one, place(one, *parts)) == second.charge(one, place(one, *parts))

    def test_without_limits_nothing_is_counted_wrong(self):
        assert asked(job(num_tasks=1, tasks_given=False, min_nodes=3, max_nodes=3)).tres["cpu"] == 3


class TestSubmission:
    def refusal(self, which, one, tasks=1, submitted=None):
        found = refused(which, one, tasks, submitted or {})
        return found.over.reason if found is not None else None

    @pytest.mark.parametrize(
        ("which", "group", "expected"),
        [
            (
                tables(assoc(own=ShareLimits(submit_jobs=5))),
                ("user", "physics", ALICE),
                "AssocMaxSubmitJobLimit",
            ),
            (
                tables(Association("physics", group=GroupLimits(submit_jobs=5))),
                ("account", "physics"),
                "AssocGrpSubmitJobsLimit",
            ),
            (
                tables(qos=[Qos("normal", user=ShareLimits(submit_jobs=5))]),
                ("qos-user", "normal", ALICE),
                "QOSMaxSubmitJobPerUserLimit",
            ),
            (
                tables(qos=[Qos("normal", account=ShareLimits(submit_jobs=5))]),
                ("qos-account", "normal", "physics"),
                "MaxSubmitJobsPerAccount",
            ),
            (
                tables(qos=[Qos("normal", group=GroupLimits(submit_jobs=5))]),
                ("qos", "normal"),
                "QOSGrpSubmitJobsLimit",
            ),
        ],
    )
    def test_too_many_are_refused_as_a_whole(self, which, group, expected):
        assert self.refusal(which, job(), 3, {group: 2}) is None
        assert self.refusal(which, job(), 3, {group: 3}) == expected
        assert self.refusal(which, job(), 6) == expected

    def test_a_wall_time_above_the_associations_is_always_refused(self):
        which = tables(assoc(job=JobLimits(wall=1)), qos=[Qos("normal")])
        assert self.refusal(which, job()) == tokens.ASSOC_MAX_WALL

    @pytest.mark.parametrize(
        "row",
        [
            {"job": JobLimits(tres={"cpu": 1})},
            {"group": GroupLimits(tres={"cpu": 1})},
            {"group": GroupLimits(tres_run_mins={"cpu": 1})},
        ],
    )
    def test_what_can_never_run_only_where_limits_deny(self, row):
        for which in (tables(assoc(**row), qos=[Qos("normal")]), tables(qos=[Qos("normal", **row)])):
            assert self.refusal(which, job(num_tasks=2)) is None
        strict = tables(qos=[Qos("normal", deny=True, **row)])
        assert self.refusal(strict, job(num_tasks=2)) is not None
        # Without a QOS limits deny.
        assert self.refusal(tables(assoc(**row)), job(num_tasks=2, qos="")) is not None

    def test_the_sentence_is_slurms(self):
        which = tables(assoc(own=ShareLimits(submit_jobs=0)))
        assert refused(which, job(), 1, {}).text.startswith("Job violates accounting/QOS policy")


class TestAccrual:
    def test_the_first_of_each_group_grow_older(self):
        which = tables(
            assoc(own=ShareLimits(jobs_accrue=2)),
            qos=[Qos("normal"), Qos("few", group=GroupLimits(jobs_accrue=1))],
        )
        queue = [
            job(1, submit_at=5.0),
            job(2, submit_at=1.0),
            job(3, submit_at=2.0),
            job(4, uid=BOB),
            job(5, uid=BOB, qos="few"),
            job(6, uid=BOB, qos="few"),
        ]
        assert accruing(which, queue) == {2, 3, 4, 5}
        assert accruing(Tables(), queue) == {1, 2, 3, 4, 5, 6}


def test_every_reason_is_one_of_slurms():
    """What the tables make up of patterns has the shapes that Slurm lists."""
    words = {reason for limits in tokens.TRES.values() for row in limits.values() for reason in row.values()}
    assert all(word.isalpha() for word in words)
    assert {"AssocGrpBBMinutes", "QOSMinEnergy", "MaxUnknownPerAccount", "QOSMaxBillingPerUser"} <= words
