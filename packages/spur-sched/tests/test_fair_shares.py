"""Fair tree, classic fair shares and half-lives, with the figures that Slurm publishes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_sched.priority import decay
from spur_sched.priority.fairtree import PARENT, Association, classic, fair_tree

#: account, user, parent, shares, own usage, then as published: norm shares, raw usage, effective usage, fair
#: share, level.  None = not shown.
FAIR_TREE = [
    ("", "u1", "", 10, 0, 0.048077, 0, 0.0, 1.0, math.inf),
    ("", "u2", "", 10, 10, 0.048077, 10, 0.041667, 0.666667, 1.153846),
    ("aA", "", "", 40, 0, 0.192308, 45, 0.187500, None, 1.025641),
    ("aAA", "", "aA", 30, 0, 0.75, 20, 0.444444, None, 1.6875),
    ("aAA", "uAA1", "", 1, 20, 1.0, 20, 1.0, 0.619048, 1.0),
    ("aAB", "", "aA", 10, 0, 0.25, 25, 0.555556, None, 0.45),
    ("aAB", "uAB1", "", 1, 25, 0.5, 25, 1.0, 0.523810, 0.5),
    ("aAB", "uAB2", "", 1, 0, 0.5, 0, 0.0, 0.571429, math.inf),
    ("aB", "", "", 60, 0, 0.288462, 25, 0.104167, None, 2.769231),
    ("aBA", "", "aB", 25, 0, 0.416667, 25, 1.0, None, 0.416667),
    ("aBA", "uBA1", "", 1, 25, 1.0, 25, 1.0, 0.714286, 1.0),
    ("aBB", "", "aB", 35, 0, 0.583333, 0, 0.0, None, math.inf),
    ("aBB", "uBB1", "", 1, 0, 1.0, 0, 0.0, 0.761905, math.inf),
    ("aC", "", "", 0, 0, 0.0, 30, 0.125, None, 0.0),
    ("aC", "uC1", "", 0, 30, 0.0, 30, 1.0, 0.047619, 0.0),
    ("aD", "", "", 50, 0, 0.240385, 110, 0.458333, None, 0.524476),
    ("aD", "uD1", "", PARENT, 20, 0.240385, 20, 0.181818, 0.476190, None),
    # Published is 0.238095 for uD2: there the last digit of its level differs from uD3's, although both are
    # 22/17.  Here what is equal ties.
    ("aD", "uD2", "", 40, 20, 0.235294, 20, 0.181818, 0.333333, 1.294118),
    ("aD", "uD3", "", 50, 25, 0.294118, 25, 0.227273, 0.333333, 1.294118),
    ("aDA", "", "aD", PARENT, 0, 0.240385, None, None, None, None),
    ("aDA", "uDA1", "", PARENT, 10, 0.240385, 10, 0.090909, 0.476190, None),
    ("aDA", "uDA2", "", 30, 10, 0.176471, 10, 0.090909, 0.380952, 1.941176),
    ("aDA", "uDA3", "", 50, 25, 0.294118, 25, 0.227273, 0.333333, 1.294118),
    ("aE", "", "", 10, 0, 0.048077, 0, 0.0, None, math.inf),
    ("aE", "aE1", "", 10, 0, 0.5, 0, 0.0, 1.0, math.inf),
    ("aE", "aE2", "", 10, 0, 0.5, 0, 0.0, 1.0, math.inf),
    ("aF", "", "", 20, 0, 0.096154, 0, 0.0, None, math.inf),
    ("aF", "uF1", "", 10, 0, 0.333333, 0, 0.0, 1.0, math.inf),
    ("aF", "uF2", "", 20, 0, 0.666667, 0, 0.0, 1.0, math.inf),
    ("aG", "", "", 8, 0, 0.038462, 20, 0.083333, None, 0.461538),
    ("aG", "uG1", "", 10, 10, 0.5, 10, 0.5, 0.190476, 1.0),
    ("aGA", "", "aG", 10, 0, 0.5, 10, 0.5, None, 1.0),
    ("aGA", "uGA1", "", 20, 4, 0.5, 4, 0.4, 0.190476, 1.25),
    ("aGA", "uGA2", "", 20, 6, 0.5, 6, 0.6, 0.095238, 0.833333),
]
#: account, user, parent, shares, usage, then norm shares, effective usage, fair share of users.
CLASSIC_WITH_PARENTS = [
    ("A", "", "", 40, 0, 0.266667, 0.214286, None),
    ("B", "", "A", 30, 0, 0.2, 0.184524, None),
    ("B", "1", "", 1, 20, 0.2, 0.184524, 0.527550),
    ("C", "", "A", 10, 0, 0.066667, 0.142857, None),
    ("C", "2", "", 1, 25, 0.033333, 0.130952, 0.065672),
    ("C", "3", "", 1, 0, 0.033333, 0.071429, 0.226431),
    ("D", "", "", 60, 0, 0.4, 0.119048, None),
    ("E", "", "D", 25, 0, 0.166667, 0.119048, None),
    ("E", "4", "", 1, 25, 0.166667, 0.119048, 0.609507),
    ("F", "", "D", 35, 0, 0.233333, 0.069444, None),
    ("F", "5", "", 1, 0, 0.233333, 0.069444, 0.813594),
    ("G", "", "", 0, 0, 0.0, 0.142857, None),
    ("G", "6", "", 0, 30, 0.0, 0.142857, 0.0),
    ("H", "", "", 50, 0, 0.333333, 0.523810, None),
    ("H", "r1", "", PARENT, 20, 0.333333, 0.523810, 0.336475),
    ("H", "r2", "", 40, 20, 0.078431, 0.196078, 0.176777),
    ("H", "r3", "", 50, 25, 0.098039, 0.238095, 0.185749),
    ("T", "", "H", PARENT, 0, 0.333333, 0.523810, None),
    ("T", "s1", "", PARENT, 10, 0.333333, 0.523810, 0.336475),
    ("T", "s2", "", 30, 10, 0.058824, 0.131653, 0.211966),
    ("T", "s3", "", 50, 25, 0.098039, 0.238095, 0.185749),
]


def association(row):
    return Association(row[0], row[1], row[2], row[3], float(row[4]))


class TestFairTree:
    @pytest.mark.parametrize("row", FAIR_TREE, ids=lambda row: f"{row[0]}-{row[1]}")
    def test_the_tree_of_slurms_own_test(self, row):
        found = fair_tree(map(association, FAIR_TREE))[row[0], row[1]]
        shown = (found.norm_shares, found.usage, found.effective_usage, found.factor, found.level)
        for value, expected in zip(shown, row[5:], strict=True):
            if expected is not None:
                assert value == pytest.approx(expected, abs=5e-7)

    def test_the_first_account_that_differs_decides(self):
        """root => 1 => 12 => A and root => 1 => 16 => B: 12 against 16, whatever A and B have used."""
        found = fair_tree(
            [
                Association("1"),
                Association("12", parent="1", shares=10),
                Association("16", parent="1", shares=10),
                Association("12", "A", usage=50.0),
                Association("16", "B", usage=20.0, shares=1),
                Association("16", "C", usage=40.0, shares=1000),
            ]
        )
        assert found["12", "A"].factor == 1.0
        assert found["16", "C"].factor == pytest.approx(2 / 3)
        assert found["16", "B"].factor == pytest.approx(1 / 3)

    def test_one_user_has_everything(self):
        assert fair_tree([Association("a"), Association("a", "u", usage=7.0)])["a", "u"].factor == 1.0

    def test_accounts_alike_have_their_users_merged(self):
        rows = [
            Association("a"),
            Association("b"),
            Association("a", "a1", usage=9.0),
            Association("a", "a2", usage=1.0),
            Association("b", "b1", usage=8.0),
            Association("b", "b2", usage=2.0),
        ]
        found = fair_tree(rows)
        order = sorted(["a1", "a2", "b1", "b2"], key=lambda user: -found[user[0], user].factor)
        assert order == ["a2", "b2", "b1", "a1"]

    @pytest.mark.parametrize(
        "rows",
        [
            [Association("a", parent="b"), Association("b", parent="a")],
            [Association("a", parent="a")],
            [Association("a", "u")],
            [Association("a", parent="zz")],
            [Association("a", parent="b", shares=PARENT), Association("b", parent="a", shares=PARENT)],
        ],
    )
    def test_what_is_no_tree_is_refused(self, rows):
        with pytest.raises(ValueError, match=r"tree|known"):
            fair_tree(rows)

    @given(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 50)), min_size=1, max_size=20)
    )
    def test_accounts_never_interleave_unless_alike(self, users):
        accounts = sorted({account for account, _, _ in users})
        rows = [Association(str(account), shares=account + 1) for account in accounts]
        rows += [
            Association(str(account), str(at), shares=shares, usage=float(usage))
            for at, (account, shares, usage) in enumerate(users)
        ]
        found = fair_tree(rows)
        factors = [share.factor for (_, user), share in found.items() if user]
        assert max(factors) == 1.0
        assert all(0.0 < value <= 1.0 for value in factors)
        for one in accounts:
            for other in accounts:
                if found[str(one), ""].level > found[str(other), ""].level * (1 + 1e-9):
                    mine = [s.factor for (a, user), s in found.items() if user and a == str(one)]
                    theirs = [s.factor for (a, user), s in found.items() if user and a == str(other)]
                    assert min(mine) > max(theirs)

    @given(st.lists(st.integers(0, 1000), min_size=2, max_size=12), st.data())
    def test_who_uses_more_never_comes_earlier(self, usages, data):
        at = data.draw(st.integers(0, len(usages) - 1))

        def factor(extra):
            rows = [Association("a")]
            rows += [Association("a", str(n), usage=float(u)) for n, u in enumerate(usages)]
            rows[at + 1] = rows[at + 1]._replace(usage=rows[at + 1].usage + extra)
            return fair_tree(rows)["a", str(at)].factor

        assert factor(100.0) <= factor(0.0)


class TestClassic:
    def test_the_example_of_the_page(self):
        """Five users in two levels of accounts; the machine was used for 70%."""
        found = classic(
            [
                Association("A", shares=40),
                Association("D", shares=60),
                Association("B", parent="A", shares=30),
                Association("C", parent="A", shares=10),
                Association("E", parent="D", shares=25),
                Association("F", parent="D", shares=35),
                Association("B", "1", usage=0.2),
                Association("C", "2", usage=0.25),
                Association("C", "3"),
                Association("E", "4", usage=0.25),
                Association("F", "5"),
            ],
            whole=1.0,
        )
        usage = {"A": 0.45, "D": 0.25, "B": 0.3875, "C": 0.3, "E": 0.25, "F": 0.1458}
        for account, expected in usage.items():
            assert found[account, ""].effective_usage == pytest.approx(expected, abs=5e-5)
        users = {
            ("B", "1"): (0.3, 0.3875, 0.408479),
            ("C", "2"): (0.05, 0.275, 0.022097),
            ("C", "3"): (0.05, 0.15, 0.125),
            ("E", "4"): (0.25, 0.25, 0.5),
            ("F", "5"): (0.35, 0.1458, 0.749154),
        }
        for key, (shares, effective, factor) in users.items():
            assert found[key].norm_shares == pytest.approx(shares)
            assert found[key].effective_usage == pytest.approx(effective, abs=5e-5)
            assert found[key].factor == pytest.approx(factor, abs=1e-5)

    @pytest.mark.parametrize("row", CLASSIC_WITH_PARENTS, ids=lambda row: f"{row[0]}-{row[1]}")
    def test_the_tree_of_slurms_own_test(self, row):
        found = classic(map(association, CLASSIC_WITH_PARENTS))[row[0], row[1]]
        for value, expected in zip(
            (found.norm_shares, found.effective_usage, found.factor), row[5:], strict=True
        ):
            assert value == (None if expected is None else pytest.approx(expected, abs=1e-6))

    def test_dampening_takes_less_notice(self):
        rows = [Association("a"), Association("a", "u", usage=3.0), Association("a", "v", usage=1.0)]
        plain, damped = classic(rows)["a", "u"].factor, classic(rows, dampening=5.0)["a", "u"].factor
        assert 0 < plain < damped < 1

    def test_nobody_used_anything(self):
        found = classic([Association("a"), Association("a", "u")])
        assert found["a", "u"].factor == 1.0


DAY = 86_400.0
amounts = st.floats(0, 1e9, allow_nan=False)
instants = st.floats(0, 1e9, allow_nan=False)


class TestDecay:
    def test_half_after_a_half_life(self):
        assert decay.at(decay.Usage(100.0, 0.0), 7 * DAY, 7 * DAY).amount == 50.0
        assert decay.at(decay.Usage(100.0, 0.0), 21 * DAY, 7 * DAY).amount == 12.5

    def test_without_a_half_life_nothing_is_forgotten(self):
        assert decay.at(decay.Usage(100.0, 0.0), 1e9, 0.0).amount == 100.0

    def test_the_sum_over_periods_of_the_page(self):
        """U = U0 + D * U1 + D**2 * U2 with periods of a day and a half-life of two."""
        usage = decay.Usage()
        for day, amount in ((0, 300.0), (1, 200.0), (2, 100.0)):
            usage = decay.add(usage, amount, day * DAY, 2 * DAY)
        each = 2**-0.5
        assert usage.amount == pytest.approx(100 + each * 200 + each**2 * 300)

    def test_ages_beyond_counting_are_nothing(self):
        assert decay.factor(1e12, 1.0) == 0.0

    @given(st.lists(st.tuples(instants, amounts), max_size=10), st.floats(3600, 1e7), st.randoms())
    def test_the_order_of_records_does_not_matter(self, records, half_life, random):
        now = 2e9
        shuffled = list(records)
        random.shuffle(shuffled)
        usage = decay.Usage()
        for when, amount in shuffled:
            usage = decay.add(usage, amount, when, half_life)
        found = decay.at(usage, now, half_life).amount
        assert found == pytest.approx(decay.total(records, now, half_life), rel=1e-6, abs=1e-9)

    @given(st.floats(1, 1e6), st.floats(60, 1e6), st.integers(1, 50))
    def test_a_span_is_the_sum_of_its_parts(self, length, half_life, parts):
        whole = decay.add_span(decay.Usage(), 4.0, 0.0, length, half_life)
        usage = decay.Usage()
        for part in range(parts):
            usage = decay.add_span(usage, 4.0, length * part / parts, length * (part + 1) / parts, half_life)
        assert usage.amount == pytest.approx(whole.amount, rel=1e-6)
        assert whole.amount <= 4.0 * length * (1 + 1e-9)

    def test_a_span_without_half_life_is_its_area(self):
        assert decay.add_span(decay.Usage(), 4.0, 10.0, 20.0, 0.0) == decay.Usage(40.0, 20.0)
        assert decay.add_span(decay.Usage(1.0, 5.0), 4.0, 20.0, 20.0, 0.0) == decay.Usage(1.0, 5.0)
