"""Clusters with three controllers, and the kit of the matrix tests."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "matrix"))

from step_kit import Step
from testkit.ha_cluster import HaCluster, NetCluster


def _folder(factory: pytest.TempPathFactory) -> Path:
    base = factory.mktemp("ha")
    for part in (base, base.parent, base.parent.parent):
        with contextlib.suppress(PermissionError):
            part.chmod(part.stat().st_mode | 0o755)
    return base


def _maker(kind: type[HaCluster], base: Path, made: list[HaCluster]) -> Callable[..., Any]:
    def make(**how: Any) -> HaCluster:
        cluster = kind(base / f"c{len(made)}", **how)
        made.append(cluster)
        cluster.start_all()
        cluster.leader()
        cluster.until(cluster.idle, "all nodes are idle")
        return cluster

    return make


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HaCluster]:
    """Three controllers, three agents, for all tests of a file."""
    made: list[HaCluster] = []
    try:
        yield _maker(HaCluster, _folder(tmp_path_factory), made)()
    finally:
        for one in made:
            one.stop()


@pytest.fixture
def ha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., HaCluster]]:
    """Makes clusters with a leader and idle nodes; all are ended, with their jobs, after the test."""
    made: list[HaCluster] = []
    yield _maker(HaCluster, _folder(tmp_path_factory), made)
    for cluster in made:
        cluster.stop()


@pytest.fixture
def ha_net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., NetCluster]]:
    """The same, each controller in a network namespace of its own."""
    made: list[HaCluster] = []
    yield _maker(NetCluster, _folder(tmp_path_factory), made)
    for cluster in made:
        cluster.stop()


@pytest.fixture
def step() -> Iterator[Callable[..., Step]]:
    """Makes steps, not begun yet; no client outlives the test."""
    made: list[Step] = []

    def make(cluster: HaCluster, kind: str, **how: Any) -> Step:
        made.append(Step(cluster, kind, **how))
        return made[-1]

    yield make
    for one in made:
        one.gone()
