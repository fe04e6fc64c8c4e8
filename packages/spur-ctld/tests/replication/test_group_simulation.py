"""Whole groups in bad weather: every seed is one deterministic run, and a failure names its seed."""

import random

import pytest

from spur_ctld.replication.core import Core
from spur_ctld.replication.roles import Role
from spur_ctld.replication.testing.invariants import Invariants, Violation
from spur_ctld.replication.testing.sim import CALM, RAIN, STORM, Simulator, Weather
from spur_ctld.replication.types import ORIGIN, Entry, HardState, VoteReply


@pytest.mark.parametrize("weather", [CALM, RAIN, STORM], ids=["calm", "rain", "storm"])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_groups_keep_every_promise(size: int, weather: Weather) -> None:
    acknowledged = crashes = elections = 0
    for seed in range(10):
        run = Simulator(seed, size, weather)
        try:
            run.run(12_000)
        except AssertionError as violation:
            raise AssertionError(f"seed {seed}, {size} members: {violation}") from violation
        acknowledged += run.acknowledged
        crashes += run.crashes
        elections += len(run.watch.leaders)
    assert acknowledged > 100
    assert elections >= 10
    if weather is not CALM:
        assert crashes > 10


def test_a_seed_decides_everything() -> None:
    first, second = Simulator(42, 3), Simulator(42, 3)
    first.run(5000)
    second.run(5000)
    assert first.watch.chosen == second.watch.chosen
    assert first.acknowledged == second.acknowledged > 0


def test_the_watch_sees_faults() -> None:
    watch = Invariants()
    watch.sent(VoteReply(1, 2, 5, True, False))
    watch.sent(VoteReply(1, 2, 5, True, False))
    with pytest.raises(Violation, match="voted twice in term 5"):
        watch.sent(VoteReply(1, 3, 5, True, False))
    watch.applied(1, 0, Entry(1, 1, b"a"))
    with pytest.raises(Violation, match="another entry 1"):
        watch.applied(2, 0, Entry(1, 2, b"a"))
    with pytest.raises(Violation, match="applied 3 after 1"):
        watch.applied(2, 1, Entry(3, 2, b"a"))
    watch.acknowledge(9)
    with pytest.raises(Violation, match="read at 8"):
        watch.read(1, 8, watch.acknowledged)
    leader = Core(1, [1], HardState(1, 1), ORIGIN, [], random.Random(1))
    leader.role = Role.LEADER
    with pytest.raises(Violation, match="lacks committed entry 1"):
        watch.leads(leader)
