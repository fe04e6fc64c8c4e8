"""Agents come back, supervisors do not: reports, verdicts, one fence, kept cohorts.

The test moves the clock, and agents only say things."""

import asyncio
from typing import Any

import grpc
import pytest

from spur_auth import mint
from spur_core.errors import ConfigError
from spur_core.ids import STEP_BATCH, STEP_EXTERN
from spur_core.states import JobState, NodeAvail
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

KEY = b"0123456789abcdef0123456789abcdef"
CODES = grpc.StatusCode
LIVE, STALE, FINISHED, CORRUPT = (
    pb.RECOVERY_STATE_LIVE,
    pb.RECOVERY_STATE_STALE,
    pb.RECOVERY_STATE_FINISHED,
    pb.RECOVERY_STATE_CORRUPT,
)
KEEP, WAIT, FENCE, FORGET, RESTORE = (
    pb.RECOVERY_VERDICT_KEEP,
    pb.RECOVERY_VERDICT_WAIT,
    pb.RECOVERY_VERDICT_FENCE,
    pb.RECOVERY_VERDICT_FORGET,
    pb.RECOVERY_VERDICT_RESTORE,
)


def entry(job: int, attempt: int, state: int, step: int = STEP_BATCH, detail: str = "") -> Any:
    rid = common_pb2.RuntimeId(job_id=job, run_attempt=attempt, step_id=step)
    return pb.RecoveryEntry(rid=rid, state=state, detail=detail)


async def recover(cluster: Any, node: str, *entries: Any, token: str = "", metadata: Any = None) -> list[int]:
    """The verdicts on a report."""
    request = pb.ReportStepdRecoveryRequest(
        hostname=node, boot_id="boot-1", entries=entries, node_token=token
    )
    answer = await cluster.stub.ReportStepdRecovery(request, metadata=metadata or cluster.as_node(node))
    assert [a.rid for a in answer.answers] == [e.rid for e in entries]
    assert all(a.verdict_id for a in answer.answers)
    return [a.verdict for a in answer.answers]


async def refused(call: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), dict(caught.value.trailing_metadata())["x-spur-code"]


async def reach(condition: Any, what: str = "") -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(what or "never came true")


async def two_nodes(cluster: Any, **fields: Any) -> tuple[Any, Any, int]:
    """Two agents and a job that runs on both."""
    one, two = await cluster.add_agent("n1"), await cluster.add_agent("n2")
    fields = {"min_nodes": 2, "max_nodes": 2, "num_tasks": 2, "requeue": True} | fields
    job = await cluster.submit(**fields)
    await cluster.in_state(job, JobState.RUNNING)
    assert {s.node for s in cluster.state.jobs[job].slices} == {"n1", "n2"}
    return one, two, job


def forget_lists(cluster: Any) -> None:
    """The controller has heard of no node's steps for a while."""
    cluster.controller.site.memory._lists.clear()


# -- V18: who may report, and what has no effect


async def test_v18_reports_that_prove_nothing_have_no_effect(cluster):
    agent = await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    job = await cluster.submit(nodelist="n1")
    await cluster.in_state(job, JobState.RUNNING)
    now = cluster.clock.time()
    lost = entry(job, 1, STALE)
    before = cluster.state.applied
    forged = mint.mint_node(b"another key of 32 bytes, honestly", "n1", now)
    expired = mint.mint_node(KEY, "n1", now - 8 * 86400)
    user = mint.mint_user(KEY, "n1", None, 60, now)
    other = mint.mint_node(KEY, "n2", now)
    for token, status, code in (
        (forged, CODES.UNAUTHENTICATED, "credential_forged"),
        (expired, CODES.UNAUTHENTICATED, "credential_expired"),
        (user, CODES.UNAUTHENTICATED, "credential_wrong_kind"),
        (other, CODES.PERMISSION_DENIED, "access_denied"),
    ):
        # As the call's own credential, and as the token of the request beside a good one.
        bearer = (("authorization", f"Bearer {token}"),)
        assert await refused(recover(cluster, "n1", lost, metadata=bearer)) == (status, code)
        assert await refused(recover(cluster, "n1", lost, token=token)) == (status, code)
    assert await refused(recover(cluster, "n9", lost)) == (CODES.NOT_FOUND, "not_found")
    request = pb.ReportStepdRecoveryRequest(hostname="n1", boot_id="boot-2", entries=[lost])
    stale_boot = cluster.stub.ReportStepdRecovery(request, metadata=cluster.as_node("n1"))
    assert await refused(stale_boot) == (CODES.FAILED_PRECONDITION, "wrong_state")
    # Attempt 0 is "not given", a missing step is not the batch step, a missing state is none.
    nothing = pb.RecoveryEntry(rid=common_pb2.RuntimeId(job_id=job, run_attempt=1), state=STALE)
    for bad in (entry(job, 0, STALE), nothing, entry(job, 1, 0)):
        assert (await refused(recover(cluster, "n1", lost, bad)))[0] is CODES.INVALID_ARGUMENT
    assert cluster.state.applied == before
    assert cluster.state.jobs[job].fence is None
    assert not agent.cancels


async def test_v18_runs_that_are_not_the_reporters_have_no_effect(cluster):
    await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    job = await cluster.submit(nodelist="n1")
    await cluster.in_state(job, JobState.RUNNING)
    before = cluster.state.applied
    for node, what, verdict in (
        ("n1", entry(job + 5, 1, STALE), WAIT),
        ("n1", entry(job + 5, 1, LIVE), WAIT),
        ("n1", entry(job, 2, STALE), WAIT),
        ("n2", entry(job, 1, STALE), FORGET),
        ("n2", entry(job, 1, LIVE), FENCE),
        ("n1", entry(job, 1, STALE, step=3), FORGET),
        ("n1", entry(job, 1, LIVE, step=3), FENCE),
        ("n1", entry(job, 1, STALE, step=STEP_EXTERN), FORGET),
    ):
        assert await recover(cluster, node, what) == [verdict], what
    assert cluster.state.applied == before
    assert cluster.state.jobs[job].fence is None


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
        assert caught.value.code() in (CODES.PERMISSION_DENIED, CODES.FAILED_PRECONDITION), metadata
    # Nor can a copy with the cluster's key speak for it: it is told to register again, and cannot.
    beat = pb.HeartbeatRequest(node="n1", boot_id="boot-1", has_snapshot=True)
    code = "credential_not_current"
    for metadata in (node(""), node("another")):
        call = cluster.stub.Heartbeat(beat, metadata=metadata)
        assert await refused(call) == (CODES.UNAUTHENTICATED, code)
        lost = recover(cluster, "n1", entry(job, 1, STALE), metadata=metadata)
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


# -- V20, V21: one fence for an incomplete cohort, none for a complete one


async def test_v20_racing_reports_fence_once(cluster):
    one, two, job = await two_nodes(cluster)
    forget_lists(cluster)
    one.held.clear()
    two.held.clear()
    two.gate.clear()
    first = await recover(cluster, "n1", entry(job, 1, LIVE))
    assert first == [WAIT]
    cluster.clock.ahead += 61
    # n2 comes back at last, past the deadline, n1 repeats its report, and the clock strikes.
    found = await asyncio.gather(
        recover(cluster, "n2", entry(job, 1, STALE)),
        recover(cluster, "n1", entry(job, 1, LIVE)),
        recover(cluster, "n2", entry(job, 1, STALE)),
        cluster.controller.timers.tick(),
    )
    assert all(verdict in (FENCE, FORGET) for answer in found[:3] for verdict in answer), found
    two.gate.set()
    await cluster.beat(one)
    await cluster.beat(two)
    await reach(lambda: cluster.state.jobs[job].run_attempt == 2, "requeued and started again")
    await cluster.in_state(job, JobState.RUNNING)
    record = cluster.state.jobs[job]
    assert (record.run_attempt, record.restarts, record.recovery_fences) == (2, 1, 1)
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [FENCE], "the old attempt"
    assert await recover(cluster, "n1", entry(job, 1, STALE)) == [FORGET]
    assert cluster.state.jobs[job].fence is None


async def test_v21_an_incomplete_cohort_is_fenced_at_the_deadline(clusters):
    cluster = await clusters(controller="stepd_recovery_grace_secs = 40")
    one, two, job = await two_nodes(cluster)
    forget_lists(cluster)
    await two.stop()
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [WAIT]
    await cluster.controller.timers.tick()
    cluster.clock.ahead += 39
    await cluster.controller.timers.tick()
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [WAIT]
    assert cluster.state.jobs[job].fence is None
    cluster.clock.ahead += 2
    await cluster.controller.timers.tick()
    fence = cluster.state.jobs[job].fence
    assert (fence.outcome, fence.why, fence.desc) == (
        JobState.PENDING,
        "recovery",
        "no word of its supervisor from n2",
    )
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [FENCE]
    assert one.held == {} or await reach(lambda: not one.held) is None
    # The silent node must answer before the job may run elsewhere.
    assert "n2" in cluster.state.jobs[job].fence.targets
    two.held.clear()
    await two.start()
    await reach(lambda: cluster.state.jobs[job].fence is None)


async def test_v21_a_complete_cohort_is_kept(cluster):
    one, two, job = await two_nodes(cluster)
    forget_lists(cluster)
    await two.stop()
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [WAIT]
    cluster.clock.ahead += 55
    assert await recover(cluster, "n2", entry(job, 1, LIVE)) == [KEEP]
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [KEEP]
    cluster.clock.ahead += 30
    await cluster.controller.timers.tick()
    assert cluster.state.jobs[job].fence is None
    assert not one.cancels + two.cancels
    await two.start()


async def test_healthy_nodes_confirm_themselves(cluster):
    """Only the agent that was away reports; the other node is asked, or has just said so."""
    _one, two, job = await two_nodes(cluster)
    forget_lists(cluster)
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [WAIT]
    await cluster.controller.timers.tick()
    await reach(lambda: (job, 1, STEP_BATCH) in two.probes)
    for _ in range(200):
        if await recover(cluster, "n1", entry(job, 1, LIVE)) == [KEEP]:
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError("never kept")
    await cluster.beat(two)
    cluster.clock.ahead += 61
    await cluster.controller.timers.tick()
    await cluster.beat(two)
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [KEEP], "the list was fresh"
    assert cluster.state.jobs[job].fence is None


async def test_a_new_leader_learns_it_again_from_repeated_reports(cluster):
    _one, two, job = await two_nodes(cluster)
    await two.stop()
    forget_lists(cluster)
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [WAIT]
    await cluster.crash()
    await cluster.restart()
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [WAIT]
    assert await recover(cluster, "n2", entry(job, 1, LIVE)) == [KEEP]
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [KEEP]
    assert cluster.state.jobs[job].run_attempt == 1
    await two.start()


async def test_one_node_comes_back_without_it_and_all_are_fenced_once(cluster):
    """Row 30 of the failure matrix."""
    one, two, job = await two_nodes(cluster)
    forget_lists(cluster)
    two.held.clear()
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [WAIT]
    assert await recover(cluster, "n2", entry(job, 1, CORRUPT)) == [FENCE]
    await reach(lambda: cluster.state.jobs[job].run_attempt == 2)
    assert (job, 1) in [(c.rid.job_id, c.rid.run_attempt) for c in one.cancels]
    assert all(c.rid.run_attempt == 1 for c in one.cancels + two.cancels)
    assert cluster.state.jobs[job].recovery_fences == 1


# -- 13.7, by kind of step


async def test_a_lost_batch_supervisor_sends_the_job_back(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(requeue=True)
    await cluster.in_state(job, JobState.RUNNING)
    agent.obeys = False
    assert await recover(cluster, "n1", entry(job, 1, STALE)) == [FENCE]
    fence = cluster.state.jobs[job].fence
    assert (fence.outcome, fence.desc) == (JobState.PENDING, "its supervisor on n1 was lost")
    assert await recover(cluster, "n1", entry(job, 1, FINISHED)) == [KEEP], "an exit is still welcome"
    agent.obeys = True
    await reach(lambda: cluster.state.jobs[job].run_attempt == 2)


async def test_a_lost_batch_supervisor_of_a_job_that_may_not_go_back(cluster):
    await cluster.add_agent("n1")
    job = await cluster.submit(requeue=False)
    await cluster.in_state(job, JobState.RUNNING)
    assert await recover(cluster, "n1", entry(job, 1, STALE)) == [FENCE]
    await cluster.in_state(job, JobState.NODE_FAIL)
    assert await recover(cluster, "n1", entry(job, 1, STALE), entry(job, 1, FINISHED)) == [FORGET, FORGET]


async def test_five_losses_park_the_job(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(requeue=True)
    for attempt in range(1, 6):
        await reach(
            lambda n=attempt: (
                cluster.state.jobs[job].run_attempt == n and cluster.state.jobs[job].state == JobState.RUNNING
            )
        )
        agent.held.clear()
        assert await recover(cluster, "n1", entry(job, attempt, STALE)) == [FENCE]
    await cluster.in_state(job, JobState.PENDING)
    record = cluster.state.jobs[job]
    assert (record.reason, record.priority, record.run_attempt) == ("RecoveryFailed", 0, 5)


async def test_the_lost_step_of_a_stand_alone_srun_ends_its_allocation(cluster):
    await cluster.add_agent("n1")
    job = await cluster.submit(srun_job=True, script=b"", argv=[b"true"])
    await cluster.in_state(job, JobState.RUNNING)
    assert await recover(cluster, "n1", entry(job, 1, STALE, step=0)) == [FENCE]
    await cluster.in_state(job, JobState.FAILED)
    record = cluster.state.jobs[job]
    assert (record.exit.code, record.exit.signal, record.reason) == (0, 9, "RaisedSignal:9(Killed)")


async def test_a_terminal_job_is_forgotten_and_what_lives_of_it_is_ended(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)
    await cluster.report(agent, job)
    agent.held[job, 1, STEP_BATCH] = "live"
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [FORGET]
    await reach(lambda: not agent.held)
    (cancel,) = agent.cancels
    assert (cancel.rid.job_id, cancel.rid.run_attempt, cancel.grace_secs) == (job, 1, 0)


async def test_a_loss_after_the_exit_is_on_file_costs_nothing(cluster):
    one, two, job = await two_nodes(cluster, srun_job=True, script=b"", argv=[b"true"])
    await cluster.report(two, job, step_id=0)
    assert await recover(cluster, "n2", entry(job, 1, STALE, step=0)) == [FORGET]
    assert cluster.state.jobs[job].fence is None
    await cluster.report(one, job, step_id=0)
    await cluster.in_state(job, JobState.COMPLETED)


async def test_launches_are_left_to_the_launcher(cluster):
    one = await cluster.add_agent("n1")
    one.gate.clear()
    job = await cluster.submit()
    await cluster.in_state(job, JobState.CONFIGURING)
    assert await recover(cluster, "n1", entry(job, 1, LIVE), entry(job, 1, STALE)) == [WAIT, WAIT]
    one.gate.set()
    await cluster.in_state(job, JobState.RUNNING)
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [KEEP]


# -- 13.4: who may confirm a fence


async def test_an_administrators_down_confirms_what_cannot_be_asked(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(requeue=True)
    await cluster.in_state(job, JobState.RUNNING)
    await agent.stop()
    request = pb.UpdateNodeRequest(names="n1", state="DOWN", reason="burnt")
    await cluster.stub.UpdateNode(request, metadata=cluster.user())
    await reach(lambda: cluster.state.jobs[job].fence is not None)
    await asyncio.sleep(0.3)
    assert cluster.state.jobs[job].fence is not None, "not in the second in which an agent may be restarting"
    cluster.clock.ahead += 11
    await reach(lambda: cluster.state.jobs[job].state is JobState.PENDING)


async def test_an_administrators_down_does_not_speak_for_an_agent_that_answers(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(requeue=True)
    await cluster.in_state(job, JobState.RUNNING)
    agent.obeys = False
    request = pb.UpdateNodeRequest(names="n1", state="DOWN", reason="noisy")
    await cluster.stub.UpdateNode(request, metadata=cluster.user())
    cluster.clock.ahead += 60
    await reach(lambda: len(agent.cancels) >= 4)
    assert cluster.state.jobs[job].fence is not None
    agent.obeys = True
    await reach(lambda: cluster.state.jobs[job].state is JobState.PENDING)


async def test_silence_alone_confirms_nothing_unless_the_configuration_says_so(clusters):
    for word, outcome in (("wait", JobState.COMPLETING), ("requeue", JobState.PENDING)):
        cluster = await clusters(controller=f'fence_unreachable = "{word}"')
        agent = await cluster.add_agent("n1")
        job = await cluster.submit(requeue=True)
        await cluster.in_state(job, JobState.RUNNING)
        await agent.stop()
        cluster.clock.ahead += 91
        await cluster.controller.timers.tick()
        assert cluster.state.nodes["n1"].avail is NodeAvail.DOWN
        await reach(lambda c=cluster, j=job, o=outcome: c.state.jobs[j].state is o)
        cluster.clock.ahead += 3600
        await asyncio.sleep(0.3)
        assert cluster.state.jobs[job].state is outcome


# -- completions and epilogs


async def test_a_failed_epilog_drains_the_node_even_when_its_report_is_refused(cluster):
    for name in ("n1", "n2"):
        await cluster.add_agent(name)
    unknown = common_pb2.RuntimeId(job_id=999, run_attempt=1, step_id=STEP_BATCH)
    request = pb.ReportJobStatusRequest(node="n1", rid=unknown, epilog_error="exit 3")
    answer = await cluster.stub.ReportJobStatus(request, metadata=cluster.as_node("n1"))
    assert answer.verdict == pb.REPORT_VERDICT_UNKNOWN
    request = pb.ReportJobStatusRequest(
        node="n2", rid=common_pb2.RuntimeId(job_id=999), epilog_error="exit 3"
    )
    call = cluster.stub.ReportJobStatus(request, metadata=cluster.as_node("n2"))
    assert (await refused(call))[0] is CODES.INVALID_ARGUMENT
    for name in ("n1", "n2"):
        node = cluster.state.nodes[name]
        assert (node.drain, node.reason) == (True, "epilog script failed")


async def test_an_epilog_error_does_not_overwrite_another_drain_and_needs_the_nodes_token(cluster):
    await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    request = pb.ReportJobStatusRequest(
        node="n1", rid=common_pb2.RuntimeId(job_id=1, run_attempt=1, step_id=0), epilog_error="exit 3"
    )
    status, _ = await refused(cluster.stub.ReportJobStatus(request, metadata=cluster.as_node("n2")))
    assert status is CODES.PERMISSION_DENIED
    assert not cluster.state.nodes["n1"].drain
    drain = pb.UpdateNodeRequest(names="n1", state="DRAIN", reason="disk")
    await cluster.stub.UpdateNode(drain, metadata=cluster.user())
    await cluster.stub.ReportJobStatus(request, metadata=cluster.as_node("n1"))
    assert cluster.state.nodes["n1"].reason == "disk"


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
