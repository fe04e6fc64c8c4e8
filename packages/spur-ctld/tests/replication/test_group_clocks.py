"""Clocks that differ: told apart from slow answers, shown on all sides, well again when they are set."""

import time

import pytest

from spur_ctld.replication.clocks import Clocks
from spur_ctld.replication.limits import Limits

OFTEN = Limits(compare_secs=0.1)


@pytest.mark.parametrize(
    ("told", "round_trip", "alarms"),
    [
        (100.0, 0.0, []),
        (101.9, 0.0, []),
        (98.1, 0.0, []),
        (105.0, 0.0, ["the clock of controller 2 is 5 s ahead of controller 1's"]),
        (93.0, 0.0, ["the clock of controller 1 is 7 s ahead of controller 2's"]),
        # In the middle of the round trip it is 100.4 here; half of it is in doubt.
        (102.7, 0.8, []),
        (102.9, 0.8, ["the clock of controller 2 is 2 s ahead of controller 1's"]),
        (98.1, 0.8, []),
        (97.9, 0.8, ["the clock of controller 1 is 2 s ahead of controller 2's"]),
        # Somebody stood still.
        (500.0, 3.0, []),
        # A release that does not tell.
        (0.0, 0.0, []),
    ],
)
def test_when_a_clock_differs(told: float, round_trip: float, alarms: list[str]) -> None:
    clocks = Clocks(1)
    clocks.measured(2, 100.0, told, round_trip)
    assert clocks.alarms() == alarms


def test_a_clock_that_was_set_is_well_again(caplog) -> None:
    caplog.set_level("INFO")
    clocks = Clocks(2)
    clocks.measured(1, 100.0, 95.0, 0.0)
    clocks.measured(3, 100.0, 110.0, 0.0)
    clocks.measured(3, 101.0, 111.0, 0.0)
    assert len(clocks.alarms()) == 2
    assert caplog.text.count("clock_differs member=3 ahead_secs=10.0") == 1, "once"
    clocks.measured(3, 101.0, 500.0, 2.0)
    assert len(clocks.alarms()) == 2, "an answer that says nothing changes nothing"
    clocks.measured(3, 101.0, 101.1, 0.0)
    assert clocks.alarms() == ["the clock of controller 2 is 5 s ahead of controller 1's"]
    assert "clock_agrees member=3" in caplog.text


async def test_members_find_the_clock_that_differs(group, until) -> None:
    shift = [5.0]
    await group.start(1, 2, limits=OFTEN)
    await group.start(3, limits=OFTEN, wall=lambda: time.time() + shift[0])
    await group.leader()
    wrong = [f"the clock of controller 3 is 5 s ahead of controller {one}'s" for one in (1, 2)]
    await until(lambda: group.nodes[3].alarms() == wrong)
    await until(lambda: [group.nodes[one].alarms() for one in (1, 2)] == [[wrong[0]], [wrong[1]]])
    shift[0] = 0.5
    await until(lambda: not any(node.alarms() for node in group.nodes.values()))


@pytest.mark.parametrize(
    ("members", "others", "off"),
    [
        (3, [3600.0, 3601.0], 3600.0),
        (3, [-3600.0, -3601.5], -3601.5),
        # One differs: who is wrong, nobody knows.
        (3, [3600.0, 0.0], 0.0),
        (3, [3600.0], 0.0),
        # All three differ.
        (3, [3600.0, 1800.0], 0.0),
        (3, [30.0, -30.0], 0.0),
        # Not worth a change of leaders.
        (3, [5.0, 5.0], 0.0),
        (5, [50.0, 51.0, 900.0, 50.5], 50.0),
        (5, [50.0, 51.0, 900.0, 0.0], 0.0),
    ],
)
def test_when_ones_own_clock_is_the_wrong_one(members: int, others: list[float], off: float) -> None:
    clocks = Clocks(9)
    for member, ahead in enumerate(others, 1):
        clocks.measured(member, 10_000.0, 10_000.0 + ahead, 0.0)
    assert clocks.wrong(members) == off


async def test_whose_clock_is_wrong_does_not_go_on_leading(group, until, caplog) -> None:
    shift = [0.0]
    await group.start(1, 2, limits=OFTEN)
    await group.start(3, limits=OFTEN, wall=lambda: time.time() + shift[0])
    leader = await group.leader()
    if leader.member_id != 3:
        await leader.transfer_leadership(3)
    await until(lambda: group.nodes[3].leader() == 3)
    assert not await group.nodes[3].step_aside()
    shift[0] = 3600.0
    await until(lambda: group.nodes[1].leader() in (1, 2))
    await until(lambda: "leadership_left reason=clock" in caplog.text)
    # Nobody hands over to it, however far it is.
    leader = await group.leader()
    await until(lambda: leader._clocks.far(3))
    assert await leader.transfer_leadership() != 3
