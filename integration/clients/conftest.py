"""One cluster of two nodes that all the programs share, and an environment with the programs."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_E2E = importlib.util.spec_from_file_location(
    "spur_clients_cluster", Path(__file__).parents[1] / "e2e" / "conftest.py"
)
assert _E2E is not None
assert _E2E.loader is not None
_e2e = importlib.util.module_from_spec(_E2E)
_E2E.loader.exec_module(_e2e)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of two nodes; commands are run by `shared.run` as a user's shell would."""
    cluster = _e2e.Cluster(_e2e.open_folder(tmp_path_factory.mktemp("up")) / "c", 2, "--cpus", "4")
    yield cluster
    cluster.down()
