"""Agents come back, supervisors do not: reports, verdicts, one fence, kept cohorts.

The test moves the clock, and agents only say things."""

import asyncio
from typing import Any

import grpc
import pytest

from spur_auth import mint
from spur_core.ids import STEP_BATCH, STEP_EXTERN, RuntimeId
from spur_core.states import JobState, NodeAvail
from spur_ctld.api.grpc_errors import Refused
from spur_ctld.recovery.cohorts import Loss
from spur_ctld.recovery.policy import loss_op
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


async def asked_again(cluster: Any, job: int) -> None:
    """The job's fence has asked its node once more, in vain."""
    waiters = cluster.controller.ledger._waiters
    await reach(lambda: waiters.get(job), "it waits for its next try")
    before = set(waiters[job])
    cluster.controller.ledger.wake_all()
    await reach(lambda: set(waiters.get(job, ())) - before, "it has tried again")


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


async def test_v20_the_log_itself_takes_only_one_of_two_fences(cluster):
    """Two leaders, or two handlers that both looked before either wrote."""
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(requeue=True)
    await cluster.in_state(job, JobState.RUNNING)
    agent.obeys = False
    loss = Loss(RuntimeId(job, 1, STEP_BATCH), "n1", "gone")
    twice = [loss_op(cluster.state, loss, cluster.clock.time()) for _ in range(2)]
    assert None not in twice
    found = await asyncio.gather(
        *(cluster.controller.ledger.commit(op) for op in twice), return_exceptions=True
    )
    assert [isinstance(one, Exception) for one in found] == [False, True]
    agent.obeys = True
    await reach(lambda: cluster.state.jobs[job].run_attempt == 2)
    with pytest.raises(Refused):
        await cluster.controller.ledger.commit(twice[0])
    assert (cluster.state.jobs[job].run_attempt, cluster.state.jobs[job].recovery_fences) == (2, 1)


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


async def test_a_job_outlives_an_upgrade_that_is_rolled_over_its_nodes(cluster):
    """The second agent stays away for longer than a window, as it had announced."""
    one, two, job = await two_nodes(cluster)
    forget_lists(cluster)
    for name in ("n1", "n2"):
        request = pb.DeregisterAgentRequest(node=name)
        await cluster.stub.DeregisterAgent(request, metadata=cluster.as_node(name))
    await two.stop()
    await cluster.register(one)
    forget_lists(cluster)
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [WAIT]
    for _ in range(3):
        cluster.clock.ahead += 70
        await cluster.beat(one)
        await cluster.controller.timers.tick()
        assert cluster.state.nodes["n2"].avail is NodeAvail.SILENT
        assert cluster.state.jobs[job].fence is None
    await two.start()
    await cluster.register(two)
    await cluster.controller.timers.tick()
    assert await recover(cluster, "n2", entry(job, 1, LIVE)) == [KEEP]
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [KEEP]
    assert cluster.state.jobs[job].run_attempt == 1


async def test_a_partition_that_heals_after_the_requeue(clusters):
    """Row 18 of the failure matrix: the old attempt is ended by exact identity, the new one is untouched."""
    cluster = await clusters(controller='fence_unreachable = "requeue"')
    one = await cluster.add_agent("n1")
    job = await cluster.submit(requeue=True)
    await cluster.in_state(job, JobState.RUNNING)
    await one.stop()
    cluster.clock.ahead += 91
    await cluster.controller.timers.tick()
    await cluster.in_state(job, JobState.PENDING)
    two = await cluster.add_agent("n2")
    await reach(lambda: cluster.state.jobs[job].run_attempt == 2)
    await cluster.in_state(job, JobState.RUNNING)
    assert [s.node for s in cluster.state.jobs[job].slices] == ["n2"]
    await one.start()
    await cluster.beat(one)
    await reach(lambda: not one.held)
    assert {(c.rid.job_id, c.rid.run_attempt) for c in one.cancels} == {(job, 1)}
    assert await recover(cluster, "n1", entry(job, 1, LIVE)) == [FENCE]
    await cluster.beat(two)
    assert not two.cancels
    assert (cluster.state.jobs[job].state, cluster.state.jobs[job].fence) == (JobState.RUNNING, None)


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


async def test_a_lost_extern_supervisor_is_replaced(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit(alloc_only=True, script=b"")
    await cluster.in_state(job, JobState.RUNNING)
    extern = STEP_EXTERN
    assert await recover(cluster, "n1", entry(job, 1, STALE, step=extern)) == [RESTORE]
    agent.held[job, 1, extern] = "lost"
    await cluster.beat(agent)
    assert cluster.state.jobs[job].fence is None, "its agent is at work"
    assert await recover(cluster, "n1", entry(job, 1, STALE, step=extern)) == [RESTORE], "asked again"
    agent.held[job, 1, extern] = "live"
    assert await recover(cluster, "n1", entry(job, 1, LIVE, step=extern)) == [KEEP]
    cluster.clock.ahead += 61
    await cluster.controller.timers.tick()
    assert cluster.state.jobs[job].state is JobState.RUNNING


async def test_an_extern_supervisor_that_cannot_be_replaced_ends_the_allocation(cluster):
    await cluster.add_agent("n1")
    jobs = [await cluster.submit(alloc_only=True, script=b"") for _ in range(2)]
    for job in jobs:
        await cluster.in_state(job, JobState.RUNNING)
    entries = [entry(job, 1, STALE, step=STEP_EXTERN) for job in jobs]
    assert await recover(cluster, "n1", *entries) == [RESTORE, RESTORE]
    failed = entry(jobs[0], 1, STALE, step=STEP_EXTERN, detail="restore failed")
    assert await recover(cluster, "n1", failed) == [FENCE]
    await cluster.in_state(jobs[0], JobState.NODE_FAIL)
    # The other agent never says how it went.
    cluster.clock.ahead += 61
    await cluster.beat(cluster.agents["n1"], snapshot=False)
    await cluster.controller.timers.tick()
    await cluster.in_state(jobs[1], JobState.NODE_FAIL)


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
    await asked_again(cluster, job)
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
        if outcome is JobState.COMPLETING:
            await asked_again(cluster, job)
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
