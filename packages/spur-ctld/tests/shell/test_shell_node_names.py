"""A node's name belongs to the agent that registered (V19), and the key in a file is the key (V22)."""

import asyncio
from typing import Any

import grpc
import pytest

from spur_auth import mint
from spur_core.errors import ConfigError
from spur_core.ids import STEP_BATCH
from spur_core.states import JobState, NodeAvail
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

KEY = b"0123456789abcdef0123456789abcdef"
CODES = grpc.StatusCode


async def refused(call: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), dict(caught.value.trailing_metadata())["x-spur-code"]


# -- V19: a name belongs to the agent that registered


async def test_v19_a_stranger_cannot_take_a_live_nodes_name(clusters):
    cluster = await clusters()
    await cluster.down()
    cluster.text = cluster.text.replace('mode = "required"', 'mode = "permissive"')
    await cluster.restart()
    agent = await cluster.add_agent("n1")
    now = cluster.clock.time()

    def node(secret: str, name: str = "n1") -> Any:
        return (("authorization", f"Bearer {mint.mint_node(KEY, name, now, holder=secret)}"),)

    def registration(port: int, boot: str = "boot-9") -> Any:
        return pb.RegisterAgentRequest(
            node="n1", address="127.0.0.1", port=port, cpus=4, memory_mb=4000, boot_id=boot, version="1"
        )

    # The agent of the name upgrades to one that knows a secret.
    mine = await cluster.stub.RegisterAgent(registration(agent.port, "boot-1"), metadata=node("mine"))
    job = await cluster.submit(requeue=True)
    await cluster.in_state(job, JobState.RUNNING)
    before = cluster.state.applied
    held = cluster.state.nodes["n1"]
    strangers = (
        (),
        node(""),
        node("another"),
        node("mine", "n2"),
        cluster.user("nobody"),
        (("authorization", f"Bearer {mint.mint_user(KEY, 'n1', None, 60, now)}"),),
    )
    for metadata in strangers:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await cluster.stub.RegisterAgent(registration(1), metadata=metadata)
        assert caught.value.code() in (CODES.PERMISSION_DENIED, CODES.UNAUTHENTICATED), metadata
    # Nor can a copy with the cluster's key speak for it: it is told to register again, and cannot.
    beat = pb.HeartbeatRequest(node="n1", boot_id="boot-1", has_snapshot=True)
    rid = common_pb2.RuntimeId(job_id=job, run_attempt=1, step_id=STEP_BATCH)
    stale = pb.RecoveryEntry(rid=rid, state=pb.RECOVERY_STATE_STALE)
    report = pb.ReportStepdRecoveryRequest(hostname="n1", boot_id="boot-1", entries=[stale])
    code = "credential_not_current"
    for metadata in (node(""), node("another")):
        call = cluster.stub.Heartbeat(beat, metadata=metadata)
        assert await refused(call) == (CODES.UNAUTHENTICATED, code)
        lost = cluster.stub.ReportStepdRecovery(report, metadata=metadata)
        assert await refused(lost) == (CODES.UNAUTHENTICATED, code)
        drain = pb.DrainNodeRequest(node="n1", reason="x")
        assert await refused(cluster.stub.DrainNode(drain, metadata=metadata)) == (
            CODES.UNAUTHENTICATED,
            code,
        )
    assert cluster.state.applied == before
    assert cluster.state.nodes["n1"] == held
    assert cluster.state.jobs[job].fence is None
    # The holder comes back any time: with the controller's token, or one it made with key and secret.
    given = (("authorization", f"Bearer {mine.node_token}"),)
    for metadata in (given, node("mine")):
        await cluster.stub.RegisterAgent(registration(agent.port, "boot-1"), metadata=metadata)
    assert cluster.state.jobs[job].run_attempt == 1
    # While it only announced a restart its name stays its own, too.
    await cluster.stub.DeregisterAgent(pb.DeregisterAgentRequest(node="n1"), metadata=given)
    assert (await refused(cluster.stub.RegisterAgent(registration(1), metadata=node("another"))))[1] == (
        "node_name_taken"
    )


async def test_v19_the_name_of_a_node_that_is_down_goes_to_its_next_agent(cluster):
    agent = await cluster.add_agent("n1")
    now = cluster.clock.time()
    key = {s: (("authorization", f"Bearer {mint.mint_node(KEY, 'n1', now, holder=s)}"),) for s in ("a", "b")}
    request = pb.RegisterAgentRequest(
        node="n1", address="127.0.0.1", port=agent.port, cpus=4, memory_mb=4000, boot_id="boot-1", version="1"
    )
    await cluster.stub.RegisterAgent(request, metadata=key["a"])
    assert (await refused(cluster.stub.RegisterAgent(request, metadata=key["b"])))[1] == "node_name_taken"
    cluster.clock.ahead += 91
    await cluster.controller.timers.tick()
    assert cluster.state.nodes["n1"].avail is NodeAvail.DOWN
    await cluster.stub.RegisterAgent(request, metadata=key["b"])
    assert cluster.state.nodes["n1"].avail is NodeAvail.UP
    assert (await refused(cluster.stub.RegisterAgent(request, metadata=key["a"])))[1] == "node_name_taken"
    # An administrator decides, and the agent gets a token of its own.
    answer = await cluster.stub.RegisterAgent(request, metadata=cluster.user())
    given = (("authorization", f"Bearer {answer.node_token}"),)
    await cluster.stub.RegisterAgent(request, metadata=given)


async def test_v19_two_that_want_a_free_name_do_not_both_get_it(cluster):
    now = cluster.clock.time()

    def call(secret: str, port: int) -> Any:
        metadata = (("authorization", f"Bearer {mint.mint_node(KEY, 'n1', now, holder=secret)}"),)
        request = pb.RegisterAgentRequest(
            node="n1", address="127.0.0.1", port=port, cpus=1, memory_mb=1000, boot_id="b", version="1"
        )
        return cluster.stub.RegisterAgent(request, metadata=metadata)

    found = await asyncio.gather(call("a", 1), call("b", 2), return_exceptions=True)
    assert [isinstance(one, grpc.aio.AioRpcError) for one in found].count(True) == 1
    assert cluster.state.nodes["n1"].port == (1 if not isinstance(found[0], Exception) else 2)


# -- V22: the key file counts everywhere


async def test_v22_a_key_in_a_file_is_the_key(clusters, tmp_path):
    path = tmp_path / "jwt.key"
    path.write_bytes(KEY + b"\n")
    path.chmod(0o600)
    cluster = await clusters()
    await cluster.down()
    cluster.text = cluster.text.replace(f'jwt_key = "{KEY.decode()}"', f'jwt_key_file = "{path}"')
    await cluster.restart()
    agent = await cluster.add_agent("n1")
    answer = await cluster.register(agent)
    given = (("authorization", f"Bearer {answer.node_token}"),)
    beat = pb.HeartbeatRequest(node="n1", boot_id="boot-1")
    await cluster.stub.Heartbeat(beat, metadata=given)
    await cluster.stub.GetJobs(pb.GetJobsRequest(), metadata=cluster.user())
    assert (await refused(cluster.stub.GetJobs(pb.GetJobsRequest())))[1] == "credential_missing"
    # The agent checks the controller's tokens and the launch statement with the same key.
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)


@pytest.mark.parametrize("fault", ["missing", "open", "empty", "short"])
async def test_v22_a_key_file_that_cannot_be_used_is_not_no_key(clusters, tmp_path, fault):
    path = tmp_path / "jwt.key"
    if fault != "missing":
        path.write_bytes({"open": KEY, "empty": b"\n", "short": b"abc"}[fault])
        path.chmod(0o644 if fault == "open" else 0o600)
    cluster = await clusters()
    text = cluster.text.replace(f'jwt_key = "{KEY.decode()}"', f'jwt_key_file = "{path}"')
    good, cluster.text = cluster.text, text
    with pytest.raises(ConfigError, match="jwt_key_file"):
        cluster.make()
    cluster.text = good
