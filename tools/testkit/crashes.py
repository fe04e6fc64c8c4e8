"""The fixture `crash`: clusters whose daemons get killed."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testkit.crash_cluster import CrashCluster


@pytest.fixture
def crash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., CrashCluster]]:
    """Makes clusters; all of them are ended, with their jobs, after the test."""
    base = tmp_path_factory.mktemp("cr")
    for part in (base, base.parent, base.parent.parent):
        with contextlib.suppress(PermissionError):
            part.chmod(part.stat().st_mode | 0o755)
    made: list[CrashCluster] = []

    def make(**how: Any) -> CrashCluster:
        cluster = CrashCluster(base / f"c{len(made)}", **how)
        made.append(cluster)
        cluster.start_all()
        return cluster

    yield make
    for cluster in made:
        cluster.stop()
