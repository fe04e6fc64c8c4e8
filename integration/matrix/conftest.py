"""The matrix tests find their kit beside them; clusters that several tests share."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from matrix_kit import AGAIN, NOBODY_COMES, SmallDisk
from step_kit import SharedCluster, Step
from testkit.crash_cluster import until


@pytest.fixture
def small_disk() -> Iterator[Any]:
    """Makes small file systems; all are unmounted after the test."""
    made: list[SmallDisk] = []

    def make(path: Path, size: str = "4m") -> SmallDisk:
        made.append(SmallDisk(path, size))
        return made[-1]

    yield make
    for disk in made:
        disk.gone()


class Pool:
    """One cluster of two nodes for tests that leave it as they found it; made anew after one that did not."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._base = factory.mktemp("cs")
        for part in (self._base, self._base.parent, self._base.parent.parent):
            with contextlib.suppress(PermissionError):
                part.chmod(part.stat().st_mode | 0o755)
        self._made = 0
        self._cluster: SharedCluster | None = None

    def take(self) -> SharedCluster:
        """The cluster, all daemons up and without faults."""
        if self._cluster is None:
            self._made += 1
            self._cluster = SharedCluster(self._base / f"c{self._made}", nodes=2, settings=AGAIN)
            self._cluster.start_all()
        return self._cluster

    def give_back(self, *, failed: bool) -> None:
        """The next test can have it, unless this one has left work behind."""
        cluster = self._cluster
        if cluster is None:
            return
        try:
            until(lambda: not cluster.queued() and cluster.idle(), "the cluster is idle", 20)
        except Exception:
            failed = True
        if failed:
            cluster.stop()
            self._cluster = None

    def close(self) -> None:
        """End it; nothing may be left on it.

        Raises:
            AssertionError: something is.
        """
        cluster = self._cluster
        if cluster is None:
            return
        # The clients are all gone: agents that know so wait for none to come back.
        cluster.waits = NOBODY_COMES
        cluster.kill(*cluster.agents)
        try:
            cluster.settle()
            assert cluster.left() == []
        finally:
            cluster.stop()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    pool = Pool(tmp_path_factory)
    yield pool
    pool.close()


@pytest.fixture
def two(pool: Pool, request: pytest.FixtureRequest) -> Iterator[SharedCluster]:
    """Two nodes with eight CPUs each, shared by the tests of a module, idle and without fault points."""
    cluster = pool.take()
    before = request.session.testsfailed
    yield cluster
    # An agent that was started with fault points must not keep them.
    for agent in cluster.armed():
        cluster.kill(agent)
        cluster.start(agent)
    pool.give_back(failed=request.session.testsfailed > before)


@pytest.fixture
def step() -> Iterator[Callable[..., Step]]:
    """Makes steps, not begun yet; no client outlives the test."""
    made: list[Step] = []

    def make(cluster: SharedCluster, kind: str, **how: Any) -> Step:
        made.append(Step(cluster, kind, **how))
        return made[-1]

    yield make
    for one in made:
        one.gone()
