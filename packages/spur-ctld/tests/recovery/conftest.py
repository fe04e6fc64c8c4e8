"""A run with its nodes, as the tracker sees it through `look`."""

from collections.abc import Callable
from typing import Any

import pytest

from spur_core.ids import STEP_BATCH, RuntimeId
from spur_ctld.recovery.cohorts import Cohort, Cohorts

GRACE = 60.0


class World:
    """What the state would say: run -> cohort; and the tracker under test with a clock moved by hand."""

    def __init__(self, nodes: Any = ("n1", "n2", "n3")) -> None:
        self.rid = RuntimeId(7, 2, STEP_BATCH)
        self.runs: dict[RuntimeId, Cohort] = {self.rid: Cohort(frozenset(nodes), frozenset())}
        self.now = 1000.0
        self.cohorts = Cohorts(self.runs.get, GRACE)

    def live(self, node: str, **more: Any) -> Any:
        return self.cohorts.live(self.rid, node, self.now, **more)

    def lost(self, node: str, why: str = "gone", **more: Any) -> Any:
        return self.cohorts.lost(self.rid, node, self.now, why, **more)

    def probed(self, node: str, active: bool) -> None:
        self.cohorts.probed(self.rid, node, active, self.now)

    def seen(self, node: str) -> None:
        self.cohorts.seen(node, [self.rid], self.now)

    def due(self, after: float = 0.0) -> Any:
        self.now += after
        return self.cohorts.due(self.now)

    def ended(self, *nodes: str) -> None:
        """Exits came in by other ways."""
        known = self.runs[self.rid]
        self.runs[self.rid] = known._replace(ended=known.ended | set(nodes))

    def excused(self, *nodes: str) -> None:
        """Exactly these agents have announced a restart."""
        self.runs[self.rid] = self.runs[self.rid]._replace(excused=frozenset(nodes))

    def over(self) -> None:
        """The run is fenced, over or superseded."""
        del self.runs[self.rid]


@pytest.fixture(scope="session")
def make_world() -> Callable[..., World]:
    return World


@pytest.fixture
def world() -> World:
    return World()
