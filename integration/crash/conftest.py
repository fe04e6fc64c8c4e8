"""Clusters whose daemons get killed."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from crash_harness import CrashCluster


@pytest.fixture
def crash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., CrashCluster]]:
    """Makes clusters; all of them are ended, with their jobs, after the test."""
    base = tmp_path_factory.mktemp("cr")
    for part in (base, base.parent, base.parent.parent):
        with contextlib.suppress(PermissionError):
            part.chmod(part.stat().st_mode | 0o755)
    made: list[CrashCluster] = []

    def make(**how: Any) -> CrashCluster:
        made.append(CrashCluster(base / f"c{len(made)}", **how))
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop()
