"""Every call to an agent names its run exactly; an incomplete identity is never sent."""

from typing import Any

import pytest

from spur_core.errors import RequestError
from spur_core.ids import STEP_BATCH, RuntimeId
from spur_core.states import JobState
from spur_ctld.dispatch import exact
from spur_ctld.dispatch.agents import AgentPool, Credentials
from spur_proto import agent_pb2, common_pb2

#: Belong to the job's owner; there attempt 0 may stand for the present one.
STREAMS = {"StreamJobOutput", "InteractiveSession"}


def test_every_call_of_the_agent_is_decided_about():
    service = agent_pb2.DESCRIPTOR.services_by_name["SlurmAgent"]
    assert {method.name for method in service.methods} - STREAMS == set(exact.IDENTITY)
    for name, (field, _) in exact.IDENTITY.items():
        request = service.methods_by_name[name].input_type
        assert field in request.fields_by_name
        if field == "rid":
            assert request.fields_by_name["rid"].message_type.name == "RuntimeId"


@pytest.mark.parametrize("name", sorted(exact.IDENTITY))
@pytest.mark.parametrize(
    ("rid", "whole", "part"),
    [
        ({"job_id": 1, "run_attempt": 1, "step_id": 0}, True, True),
        ({"job_id": 1, "run_attempt": 1, "step_id": STEP_BATCH}, True, True),
        ({"job_id": 1, "run_attempt": 1}, False, True),
        ({"job_id": 1, "run_attempt": 0, "step_id": 0}, False, False),
        ({"job_id": 1, "step_id": 0}, False, False),
        ({"run_attempt": 1, "step_id": 0}, False, False),
        ({}, False, False),
    ],
)
def test_what_counts_as_exact(name, rid, whole, part):
    message = common_pb2.RuntimeId(**rid)
    if whole if exact.IDENTITY[name][1] else part:
        exact.require(name, message)
    else:
        with pytest.raises(RequestError, match=f"{name}: .*nothing was sent"):
            exact.require(name, message)


CALLS: list[Any] = [
    lambda pool, at: pool.launch(at, "n1", agent_pb2.LaunchSpec()),
    lambda pool, at: pool.run_command(at, "n1", agent_pb2.LaunchSpec()),
    lambda pool, at: pool.suspend(at, 1, 0, resume=False),
    lambda pool, at: pool.end(at, 1, 0, 0, "cancelled"),
    lambda pool, at: pool.end(at, 0, 1, 0, "cancelled"),
    lambda pool, at: pool.end_step(at, RuntimeId(1, 0, 0), 0, "cancelled"),
    lambda pool, at: pool.signal(at, 1, 0, 9),
    lambda pool, at: pool.signal(at, 1, 0, 9, step_id=0),
    lambda pool, at: pool.probe(at, RuntimeId(1, 0, STEP_BATCH)),
]


@pytest.mark.parametrize("call", CALLS)
async def test_v01_attempt_zero_never_leaves(call):
    pool = AgentPool(Credentials(None, "test"), lambda: 1)
    with pytest.raises(RequestError, match="must be given"):
        await call(pool, "127.0.0.1:1")
    await pool.close()


async def test_what_agents_are_told_names_job_and_attempt(cluster):
    """Over a life with a signal, a cancel and a requeue: nothing arrives without both."""
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(requeue=True)
    await cluster.in_state(job, JobState.RUNNING)
    pool, address = cluster.controller.office.agents, f"127.0.0.1:{agent.port}"
    await pool.signal(address, job, 1, 10)
    await pool.end_step(address, RuntimeId(job, 1, 0), 5, "cancelled")
    await pool.end(address, job, 1, 5, "cancelled")
    await pool.probe(address, RuntimeId(job, 1, STEP_BATCH))
    assert all(c.rid.job_id == job and c.rid.run_attempt == 1 for c in agent.cancels)
    assert [c.rid.HasField("step_id") for c in agent.cancels] == [False, True, False]
    assert agent.probes == [(job, 1, STEP_BATCH)]
