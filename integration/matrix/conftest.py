"""The matrix tests find their kit beside them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from matrix_kit import SmallDisk


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
