"""Small clusters in a line of code."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spur_sched import kernel
from spur_sched.api import JobView, License, Limits, NodeView, PartitionView, Policy, Running, Window

NOW = 1_000_000.0


class Snap:
    """A snapshot made of lists."""

    index = 1

    def __init__(
        self, nodes: list[NodeView], parts: list[PartitionView], jobs: list[JobView], **more: Any
    ) -> None:
        self._nodes, self._parts, self._jobs = nodes, parts, jobs
        self._more = more

    def nodes(self) -> list[NodeView]:
        return list(self._nodes)

    def partitions(self) -> dict[str, PartitionView]:
        return {part.name: part for part in self._parts}

    def pending(self) -> list[JobView]:
        return list(self._jobs)

    def policy(self) -> Policy:
        return self._more.get("policy", Policy())

    def running(self) -> list[Running]:
        return list(self._more.get("running", ()))

    def windows(self) -> list[Window]:
        return list(self._more.get("windows", ()))

    def licenses(self) -> dict[str, License]:
        return dict(self._more.get("licenses", {}))

    def limits(self) -> Limits | None:
        found: Limits | None = self._more.get("limits")
        return found


def make_node(name: str, cpus: int = 4, **more: Any) -> NodeView:
    """A node; `running` fills the used counters by itself."""
    running = tuple(more.pop("running", ()))
    gres = more.pop("gres", {})
    used_gres: dict[tuple[str, str], int] = {}
    for _, _, _, held in running:
        for key, number in held.items():
            used_gres[key] = used_gres.get(key, 0) + number
    fields: dict[str, Any] = {
        "memory_mb": 1000,
        "schedulable": True,
        "known": True,
        "weight": 1,
        "features": frozenset(),
        "used_cpus": sum(item[1] for item in running),
        "used_memory_mb": sum(item[2] for item in running),
        "jobs": len(running),
    }
    fields.update(more)
    return NodeView(name=name, cpus=cpus, gres=gres, used_gres=used_gres, running=running, **fields)


def make_part(name: str, nodes: list[NodeView], **more: Any) -> PartitionView:
    fields: dict[str, Any] = {
        "up": True,
        "state": "UP",
        "max_time": None,
        "max_nodes": None,
        "min_nodes": 1,
        "priority_tier": 1,
    }
    fields.update(more)
    return PartitionView(name=name, nodes=frozenset(node.name for node in nodes), **fields)


def make_job(job_id: int, **more: Any) -> JobView:
    fields: dict[str, Any] = {
        "priority": 1000,
        "submit_at": NOW - 10,
        "eligible_at": NOW - 10,
        "partitions": ("main",),
        "min_nodes": 1,
        "max_nodes": 1,
        "num_tasks": 1,
        "tasks_given": False,
        "tasks_per_node": None,
        "cpus_per_task": 1,
        "memory_per_node_mb": None,
        "memory_per_cpu_mb": None,
        "gres": {},
        "exclusive": False,
        "nodelist": frozenset(),
        "exclude": frozenset(),
        "constraint": "",
        "time_limit": 3600,
    }
    if "num_tasks" in more:
        fields["tasks_given"] = True
        fields["max_nodes"] = more["num_tasks"]
    if "min_nodes" in more:
        fields["max_nodes"] = more["min_nodes"]
        if "num_tasks" not in more:
            fields["num_tasks"] = more["min_nodes"]
    fields.update(more)
    return JobView(job_id=job_id, **fields)


@pytest.fixture(scope="session")
def now() -> float:
    return NOW


@pytest.fixture(scope="session")
def snap() -> Callable[..., Snap]:
    def build(
        nodes: list[NodeView], jobs: list[JobView], parts: list[PartitionView] | None = None, **more: Any
    ) -> Snap:
        return Snap(nodes, parts if parts is not None else [make_part("main", nodes)], jobs, **more)

    return build


@pytest.fixture(scope="session")
def node() -> Callable[..., NodeView]:
    return make_node


@pytest.fixture(scope="session")
def job() -> Callable[..., JobView]:
    return make_job


@pytest.fixture(scope="session")
def part() -> Callable[..., PartitionView]:
    return make_part


@pytest.fixture(scope="session")
def hatch_build() -> ModuleType:
    """The hook that builds the kernel."""
    place = Path(__file__).parents[1] / "hatch_build.py"
    spec = importlib.util.spec_from_file_location("hatch_build", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", autouse=True)
def built_kernel(hatch_build: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel of the source as it is, which all these tests use; its own need a compiler."""
    place = tmp_path_factory.mktemp("kernel")
    shutil.copy(kernel.HERE / "_kernel.c", place)
    hatch_build.build(place)
    kernel.look_in(place)
    return place
