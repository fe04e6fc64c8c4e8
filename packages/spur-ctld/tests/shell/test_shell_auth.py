"""Who may call what: kinds of token, forged and expired ones, ownership, visibility."""

import time

import grpc
import pytest

from spur_auth import mint
from spur_core.states import JobState
from spur_ctld.api.caller import KINDS
from spur_proto import accounting_pb2, common_pb2, controller_pb2
from spur_proto import controller_pb2 as pb

KEY = b"0123456789abcdef0123456789abcdef"
CODES = grpc.StatusCode


async def refused(call):
    """(status, code of ours, sentence) of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = caught.value
    return error.code(), dict(error.trailing_metadata()).get("x-spur-code"), error.details()


def bearer(token):
    return (("authorization", f"Bearer {token}"),)


def test_every_rpc_says_which_token_it_takes():
    declared = set()
    for file in (controller_pb2.DESCRIPTOR, accounting_pb2.DESCRIPTOR):
        for service in file.services_by_name.values():
            declared |= {f"/{service.full_name}/{method.name}" for method in service.methods}
    assert declared == set(KINDS)


USER_CALLS = [
    ("SubmitJob", pb.SubmitJobRequest(spec=common_pb2.JobSpec(script=b"#!/bin/sh\n"))),
    ("GetJobs", pb.GetJobsRequest()),
    ("CancelJob", pb.CancelJobRequest(targets=[pb.JobTarget(job_id=1)])),
    ("UpdateJob", pb.UpdateJobRequest(targets=[pb.JobTarget(job_id=1)], comment="x")),
    ("RequeueJob", pb.RequeueJobRequest(targets=[pb.JobTarget(job_id=1)])),
    ("GetNodes", pb.GetNodesRequest()),
    ("UpdateNode", pb.UpdateNodeRequest(names="n1", state="RESUME")),
    ("GetPartitions", pb.GetPartitionsRequest()),
    ("GetConfig", pb.GetConfigRequest()),
    ("CreateReservation", pb.CreateReservationRequest(nodes="n1", duration_secs=60, users=["root"])),
    ("UpdateReservation", pb.UpdateReservationRequest(name="r", comment="x")),
    ("DeleteReservation", pb.DeleteReservationRequest(name="r")),
    ("ListReservations", pb.ListReservationsRequest()),
    ("GetLicenses", pb.GetLicensesRequest()),
    ("GetTopology", pb.GetTopologyRequest()),
    ("GetStatistics", pb.GetStatisticsRequest()),
]
NODE_CALLS = [
    ("RegisterAgent", pb.RegisterAgentRequest(node="n1", cpus=1, port=1)),
    ("Heartbeat", pb.HeartbeatRequest(node="n1")),
    ("DeregisterAgent", pb.DeregisterAgentRequest(node="n1")),
    (
        "ReportJobStatus",
        pb.ReportJobStatusRequest(node="n1", rid=common_pb2.RuntimeId(job_id=1, run_attempt=1, step_id=0)),
    ),
    ("ReportStepdRecovery", pb.ReportStepdRecoveryRequest(hostname="n1", boot_id="boot-1")),
]


async def test_a_node_token_cannot_submit_and_a_user_token_cannot_report(cluster):
    await cluster.add_agent("n1")
    for name, request in USER_CALLS:
        status, code, text = await refused(
            getattr(cluster.stub, name)(request, metadata=cluster.as_node("n1"))
        )
        assert (status, code) == (CODES.UNAUTHENTICATED, "credential_wrong_kind"), name
        assert text == "a node credential was sent where a user credential is required"
    for name, request in NODE_CALLS:
        status, code, _ = await refused(getattr(cluster.stub, name)(request, metadata=cluster.user("nobody")))
        # Registering is also an administrator's to do, which this one is not.
        assert (status, code) == (CODES.UNAUTHENTICATED, "credential_wrong_kind"), name


@pytest.mark.parametrize(("name", "request_"), [*USER_CALLS, *NODE_CALLS])
async def test_without_a_token_nothing(cluster, name, request_):
    status, code, text = await refused(getattr(cluster.stub, name)(request_))
    assert (status, code) == (CODES.UNAUTHENTICATED, "credential_missing")
    assert "spur token user" in text


async def test_bad_tokens_are_told_apart(cluster):
    call = cluster.stub.GetJobs
    now = time.time()
    forged = mint.mint_user(b"another key of 32 bytes, honestly", "root", None, 60, now)
    expired = mint.mint_user(KEY, "root", None, 60, now - 1000)
    future = mint.mint_user(KEY, "root", None, 60, now + 1000)
    controller = mint.mint_controller(KEY, now)
    for metadata, code in (
        (bearer(forged), "credential_forged"),
        (bearer(expired), "credential_expired"),
        (bearer(future), "credential_not_yet_valid"),
        (bearer(controller), "credential_wrong_kind"),
        (bearer("nonsense"), "credential_malformed"),
        ((("authorization", "Basic abc"),), "credential_malformed"),
    ):
        status, found, _ = await refused(call(pb.GetJobsRequest(), metadata=metadata))
        assert (status, found) == (CODES.UNAUTHENTICATED, code)
    # What a caller says of itself counts for nothing beside a token that is asked for.
    status, code, _ = await refused(call(pb.GetJobsRequest(), metadata=(("x-spur-user", "root"),)))
    assert code == "credential_missing"


async def test_a_token_that_expires_is_refused_soon_after_it_was_accepted(cluster):
    metadata = cluster.user(ttl=30)
    await cluster.stub.GetJobs(pb.GetJobsRequest(), metadata=metadata)
    cluster.clock.ahead += 100
    _status, code, _ = await refused(cluster.stub.GetJobs(pb.GetJobsRequest(), metadata=metadata))
    assert code == "credential_expired"


async def test_a_node_speaks_only_for_itself(cluster):
    one = await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    job = await cluster.submit(nodelist="n1")
    await cluster.in_state(job, JobState.RUNNING)
    for name, request in NODE_CALLS:
        status, _, _ = await refused(getattr(cluster.stub, name)(request, metadata=cluster.as_node("n2")))
        assert status is CODES.PERMISSION_DENIED, name
    status, _, _ = await refused(
        cluster.stub.DrainNode(pb.DrainNodeRequest(node="n1", reason="x"), metadata=cluster.as_node("n2"))
    )
    assert status is CODES.PERMISSION_DENIED
    await cluster.stub.DrainNode(
        pb.DrainNodeRequest(node="n1", reason="epilog script failed"), metadata=cluster.as_node("n1")
    )
    assert cluster.state.nodes["n1"].drain
    request = pb.ReportJobStatusRequest(
        node="n2", rid=common_pb2.RuntimeId(job_id=job, run_attempt=1, step_id=one.launches[0].rid.step_id)
    )
    answer = await cluster.stub.ReportJobStatus(request, metadata=cluster.as_node("n2"))
    assert answer.verdict == pb.REPORT_VERDICT_WRONG_NODE
    assert cluster.state.jobs[job].state is JobState.RUNNING


async def test_another_users_job(cluster):
    await cluster.add_agent("n1")
    job = await cluster.submit(comment="secret", work_dir="/home/x")
    await cluster.in_state(job, JobState.RUNNING)
    target = [pb.JobTarget(job_id=job)]
    other = cluster.user("nobody")
    for call, request in (
        (cluster.stub.CancelJob, pb.CancelJobRequest(targets=target)),
        (cluster.stub.CancelJob, pb.CancelJobRequest(targets=target, signal=10, full=True)),
        (cluster.stub.CancelJob, pb.CancelJobRequest(targets=target, signal=9)),
        (cluster.stub.UpdateJob, pb.UpdateJobRequest(targets=target, comment="mine")),
        (cluster.stub.UpdateJob, pb.UpdateJobRequest(targets=target, hold=pb.HOLD_ACTION_HOLD)),
        (cluster.stub.RequeueJob, pb.RequeueJobRequest(targets=target)),
    ):
        answer = await call(request, metadata=other)
        assert answer.results[0].code == "access_denied"
        assert answer.results[0].text == "Access/permission denied"
    assert cluster.state.jobs[job].state is JobState.RUNNING
    assert not cluster.agents["n1"].cancels
    shown = await cluster.job(job, user="nobody")
    assert (shown.comment, shown.work_dir, shown.nodelist, shown.user) == ("", "", "", "root")
    assert (await cluster.job(job)).comment == "secret"


async def test_a_script_is_for_its_owner_and_administrators(clusters):
    cluster = await clusters(controller='job_info_visibility = "full"')
    job = await cluster.submit(script=b"#!/bin/sh\necho secret\n")
    request = pb.GetJobsRequest(jobs=[pb.JobTarget(job_id=job)], script=True)
    for user, seen in (("root", b"#!/bin/sh\necho secret\n"), ("nobody", b"")):
        answer = await cluster.stub.GetJobs(request, metadata=cluster.user(user))
        assert [one.script for one in answer.jobs] == [seen]
    request.script = False
    answer = await cluster.stub.GetJobs(request, metadata=cluster.user())
    assert answer.jobs[0].script == b""


async def test_only_administrators_change_nodes(cluster):
    await cluster.add_agent("n1")
    request = pb.UpdateNodeRequest(names="n1", state="DRAIN", reason="disk")
    status, code, text = await refused(cluster.stub.UpdateNode(request, metadata=cluster.user("nobody")))
    assert (status, code, text) == (
        CODES.PERMISSION_DENIED,
        "access_denied",
        "Access/permission denied",
    )
    await cluster.stub.UpdateNode(request, metadata=cluster.user())
    assert cluster.state.nodes["n1"].drain


async def test_a_user_that_the_host_does_not_know(cluster):
    status, code, text = await refused(
        cluster.stub.SubmitJob(
            pb.SubmitJobRequest(spec=common_pb2.JobSpec(script=b"#!/bin/sh\n")),
            metadata=cluster.user("nosuchuser99"),
        )
    )
    assert (status, code) == (CODES.FAILED_PRECONDITION, "unknown_user")
    assert "nosuchuser99" in text


async def test_bytes_that_are_no_message(cluster):
    raw = cluster.channel.unary_unary("/slurm.SlurmController/SubmitJob")
    status, code, text = await refused(raw(b"\xff\xff\xff\xff", metadata=cluster.user()))
    assert (status, code) == (CODES.INVALID_ARGUMENT, "bad_request")
    assert text == "the request is not a valid message for SubmitJob"


async def test_plugin_none_believes_local_callers(clusters):
    made = await clusters()
    await made.down()
    made.text = made.text.replace('plugin = "jwt"', 'plugin = "none"').replace('"required"', '"disabled"')
    await made.restart()
    spec = common_pb2.JobSpec(script=b"#!/bin/sh\n", hold=True)
    request = pb.SubmitJobRequest(spec=spec)
    answer = await made.stub.SubmitJob(request, metadata=(("x-spur-user", "nobody"),))
    assert made.state.jobs[answer.job_id].request.user == "nobody"
    _status, code, _ = await refused(made.stub.SubmitJob(request))
    assert code == "credential_missing"
    _status, code, _ = await refused(made.stub.SubmitJob(request, metadata=(("x-spur-user", "nosuch"),)))
    assert code == "unknown_user"
