"""An attempt that may have begun unheard counts as a run: its successor is a restart."""

import pytest

from spur_ctld.state import ops
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.machine import apply
from spur_ctld.state.records import Node, Partition, Request, Slice
from spur_ctld.state.settings import Settings


@pytest.mark.parametrize(("clear", "restarts"), [(("n1",), 0), ((), 1)])
def test_restarts_after_a_failed_launch(clear: tuple[str, ...], restarts: int) -> None:
    state = ClusterState.empty()
    steps = [
        ops.Configure(at=0.0, settings=Settings(), partitions=(Partition(name="p", all_nodes=True),)),
        ops.NodeRegister(at=0.0, node=Node(name="n1", cpus=4)),
        ops.Submit(at=1.0, request=Request(name="j", user="u", uid=5, gid=5, partitions=("p",))),
        ops.DispatchBegin(at=2.0, job_id=1, attempt=1, partition="p", slices=(Slice(node="n1", cpus=1),)),
        ops.DispatchAbort(at=3.0, job_id=1, attempt=1, reason="JobLaunchFailure", clear=clear),
    ]
    for index, op in enumerate(steps, 1):
        result, _ = apply(state, index, op)
        assert result.refusal is None
    if not clear:
        apply(state, 9, ops.FenceConfirm(at=4.0, job_id=1, attempt=1, node="n1"))
    assert (state.jobs[1].state.name, state.jobs[1].restarts) == ("PENDING", restarts)
