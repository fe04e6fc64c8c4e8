"""CPUs of attempts that are stopped serve others where free ones do not suffice."""

import pytest

from spur_agent.allocation import AllocationTable, NoRoom, Want


def test_free_cpus_first_then_those_of_who_sleeps() -> None:
    table = AllocationTable(range(8), 1000, {})
    asleep, awake = (1, 1), (2, 1)
    assert table.reserve(asleep, Want(4, 100)).cpu_ids == (0, 1, 2, 3)
    assert table.reserve(awake, Want(2, 100)).cpu_ids == (4, 5)
    with pytest.raises(NoRoom, match="4 CPUs wanted, 2 of 8 are free"):
        table.reserve((3, 1), Want(4, 100))
    assert table.reserve((3, 1), Want(4, 100), {asleep}).cpu_ids == (0, 1, 6, 7)
    with pytest.raises(NoRoom, match="CPUs wanted"):
        table.reserve((4, 1), Want(3, 100), {asleep})


def test_memory_of_who_sleeps_stays_his() -> None:
    table = AllocationTable(range(2), 1000, {})
    table.reserve((1, 1), Want(2, 600))
    with pytest.raises(NoRoom, match="MB wanted"):
        table.reserve((2, 1), Want(2, 500), {(1, 1)})
