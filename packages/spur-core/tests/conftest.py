"""Helpers shared by the tests of spur-core."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def zone() -> Iterator[Callable[[str], None]]:
    """Sets the process's time zone for one test."""
    before = os.environ.get("TZ")

    def choose(name: str) -> None:
        os.environ["TZ"] = name
        time.tzset()

    yield choose
    if before is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.fixture
def loaded_modules() -> Callable[[str], set[str]]:
    """The modules that a fresh interpreter without site holds after `import NAME`."""

    def run(name: str) -> set[str]:
        source = Path(__file__).parents[1] / "src"
        code = f"import sys; sys.path.insert(0, {str(source)!r}); import {name}; print(*sys.modules)"
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
        )
        return set(done.stdout.split())

    return run
