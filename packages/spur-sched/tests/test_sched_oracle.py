"""The scheduler against one that is slow and obvious, on thousands of random small clusters.

SPUR_ORACLE=N looks at N clusters of each kind instead of the few of an ordinary run; SPUR_ORACLE_SEED begins
elsewhere.
"""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.slow_scheduler import Slow, Wrong
from testkit.small_clusters import NOW, draw

from spur_sched import kernel
from spur_sched.plan import plan

POLICIES = ("none", "easy", "conservative")
KINDS = {
    "one partition": {"parts": False},
    "several partitions": {"parts": True},
    "reservations": {"parts": False, "windows": True},
    "magnetic reservations": {"parts": True, "windows": True, "magnets": True},
    "licences": {"parts": False, "licenses": True},
    "wishes": {"parts": True, "wishes": True},
    "shared CPUs": {"parts": True, "wishes": True, "sharing": True},
    "everything": {"parts": True, "windows": True, "licenses": True, "wishes": True},
    "everything shared": {
        "parts": True,
        "windows": True,
        "licenses": True,
        "wishes": True,
        "sharing": True,
        "magnets": True,
    },
}
ROUNDS = int(os.environ.get("SPUR_ORACLE", "100"))
SEED = int(os.environ.get("SPUR_ORACLE_SEED", "1"))


def agree(cluster):
    found = plan(cluster, NOW)
    before = kernel.use(False)
    try:
        assert found == plan(cluster, NOW)
    finally:
        kernel.use(before)
    try:
        Slow(cluster, NOW).judge(found)
    except Wrong as wrong:
        pytest.fail(f"{wrong}\n{cluster}\n{found}", pytrace=False)


@pytest.mark.parametrize("backfill", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_on_clusters_from_a_seed(kind, backfill):
    for number in range(SEED, SEED + ROUNDS):
        chance = random.Random(f"{kind} {backfill} {number}")
        agree(draw(chance.randint, backfill=backfill, **KINDS[kind]))


@pytest.mark.parametrize("backfill", POLICIES)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_on_clusters_that_hypothesis_makes(backfill, data):
    agree(
        draw(
            lambda low, high: data.draw(st.integers(low, high)),
            backfill=backfill,
            **KINDS["everything"],
        )
    )
