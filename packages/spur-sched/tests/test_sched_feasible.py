"""What is refused at submit, and with which sentence."""

import pytest

from spur_sched.feasible import feasible

SHAPE = "Requested node configuration is not available"


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ({}, None),
        ({"num_tasks": 8}, None),
        ({"num_tasks": 9}, "More processors requested than permitted"),
        ({"num_tasks": 5, "max_nodes": 1}, SHAPE),
        ({"cpus_per_task": 5}, SHAPE),
        ({"min_nodes": 3}, SHAPE),
        ({"memory_per_node_mb": 1000}, None),
        ({"memory_per_node_mb": 1001}, SHAPE),
        ({"memory_per_cpu_mb": 501, "cpus_per_task": 2}, SHAPE),
        ({"gres": {("gpu", "h100"): 1}}, None),
        ({"gres": {("gpu", ""): 2}}, None),
        ({"gres": {("gpu", ""): 3}}, SHAPE),
        ({"gres": {("gpu", "a100"): 1}}, SHAPE),
        ({"constraint": "ib"}, None),
        ({"constraint": "ib*1", "min_nodes": 2}, None),
        ({"constraint": "ib*2", "min_nodes": 2}, SHAPE),
        ({"constraint": "nosuch"}, "Invalid feature specification"),
        ({"constraint": "nosuch*2"}, "Invalid feature specification"),
        ({"constraint": "ib", "min_nodes": 2}, SHAPE),
        ({"nodelist": frozenset({"n1"})}, None),
        ({"nodelist": frozenset({"n1"}), "exclude": frozenset({"n1"})}, SHAPE),
        ({"nodelist": frozenset({"n9"})}, "Requested nodes not in this partition"),
        ({"gres_total": {("gpu", ""): 2}, "max_nodes": 1}, None),
        ({"gres_total": {("gpu", ""): 2}, "max_nodes": 1, "nodelist": frozenset({"n1"})}, SHAPE),
        ({"exclude": frozenset({"n1", "n2"})}, SHAPE),
        ({"partitions": ("gone",)}, "Invalid partition name specified"),
        ({"partitions": ("gone", "main")}, None),
        ({"time_limit": 10**9}, None),
    ],
)
def test_feasible(node, part, job, shape, text):
    """Two nodes of four CPUs, 1000 MiB; n2 has two GPUs and `ib`.  Partition limits refuse nothing."""
    nodes = [node("n1"), node("n2", gres={("gpu", "h100"): 2}, features=frozenset({"ib"}))]
    parts = {"main": part("main", nodes, max_time=60, max_nodes=1)}
    found = feasible(job(1, **shape), nodes, parts)
    assert (None if found is None else found.text) == text


def test_down_nodes_count(node, part, job):
    nodes = [node("n1", schedulable=False)]
    assert feasible(job(1), nodes, {"main": part("main", nodes)}) is None


def test_nodes_never_seen_are_given_the_doubt(node, part, job):
    nodes = [node("n1", cpus=0, known=False), node("n2")]
    parts = {"main": part("main", nodes)}
    assert feasible(job(1, cpus_per_task=500, constraint="ib"), nodes, parts) is None
    assert feasible(job(1, cpus_per_task=500, nodelist=frozenset({"n2"})), nodes, parts) is not None
