"""The short form of the soak; `hatch run soak` is the long one."""

import os
import time
from typing import Any

import pytest

pytestmark = [pytest.mark.node, pytest.mark.slow]


def test_daemons_killed_at_random_under_load(crash: Any) -> None:
    """`SPUR_SOAK_SEED` repeats a run, `SPUR_SOAK_SECONDS` lengthens it."""
    from soak import Soak

    seed = int(os.environ.get("SPUR_SOAK_SEED", time.time_ns() % 100000))
    run = Soak(crash(), seed, float(os.environ.get("SPUR_SOAK_SECONDS", "15")), frozenset())
    print(f"seed {seed}")
    faults = run.run()
    assert faults == [], f"seed {seed}\n" + "\n".join(run.deeds)
