"""The short forms of the soaks; `hatch run soak` runs the long ones."""

import os
import time
from typing import Any

import pytest

pytestmark = [pytest.mark.node, pytest.mark.slow]

#: A node in whose launch somebody died is soon asked again: most of the end of a run would be that wait.
SOON = {"controller": {"dispatch_reject_cooldown_secs": "2"}}


def seed() -> int:
    """`SPUR_SOAK_SEED` repeats a run."""
    found = int(os.environ.get("SPUR_SOAK_SEED", time.time_ns() % 100000))
    print(f"seed {found}")
    return found


def seconds(usual: float) -> float:
    """`SPUR_SOAK_SECONDS` lengthens a run."""
    return float(os.environ.get("SPUR_SOAK_SECONDS", usual))


def test_daemons_killed_at_random_under_load(crash: Any) -> None:
    from soak import Soak

    run = Soak(crash(settings=SOON), seed(), seconds(15), frozenset())
    faults = run.run()
    assert faults == [], "\n".join(run.deeds)


def test_agents_killed_under_jobs_of_every_kind(crash: Any) -> None:
    """Nothing comes of it: every end is told once, with its true exit code, and every client sees it."""
    from deaths import AgentDeaths

    run = AgentDeaths(crash(nodes=4, cpus=32, settings=SOON), seed(), seconds(14), short=20, long=4)
    faults = run.run()
    assert faults == [], "\n".join(run.deeds)
    assert len(run.deeds) >= 5


def test_supervisors_killed_under_jobs_of_every_kind(crash: Any) -> None:
    """Each loss costs what its kind of step costs, and no job is lost."""
    from deaths import SupervisorDeaths

    run = SupervisorDeaths(crash(nodes=4, cpus=32, settings=SOON), seed(), seconds(14), short=20, long=4)
    faults = run.run()
    assert faults == [], "\n".join(run.deeds)
    assert run.kinds, "no supervisor was hit"
