"""Steps of a job that has memory for each CPU and leaves threads of its cores idle."""

import pytest

from spur_ctld.api import step_request
from spur_ctld.state.records import Request, Slice
from spur_ctld.state.step_layout import NO_MEMORY, Placed, place
from spur_proto import controller_pb2 as pb

#: Three tasks on three cores of two threads, one of each used.
MINE = (Slice(node="n1", cpus=6, memory_mb=300, ranks=(0, 1, 2)),)


def placed(threads, **more):
    job = Request(name="j", user="u", uid=1, gid=1, memory_per_cpu_mb=100, threads_per_core=threads)
    request = pb.CreateJobStepRequest(argv=[b"true"], num_tasks=3, **more)
    found = place(step_request.resolve(request, "", job).ask, MINE, {}, set())
    return [(one.cpus, one.memory_mb) for one in found.slices] if isinstance(found, Placed) else found


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({}, [(6, 300)]),
        ({"memory_per_cpu_mb": 100}, [(6, 300)]),
        ({"memory_per_cpu_mb": 100, "exact": True}, [(3, 300)]),
        ({"memory_per_cpu_mb": 50}, [(6, 300)]),
        ({"memory_per_cpu_mb": 101}, NO_MEMORY),
    ],
)
def test_memory_of_the_cpus_that_are_used(more, wanted):
    assert placed(1, **more) == wanted


def test_without_idle_threads_every_cpu_counts():
    assert placed(None, memory_per_cpu_mb=100) == NO_MEMORY
