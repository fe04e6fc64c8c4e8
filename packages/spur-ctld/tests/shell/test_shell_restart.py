"""The controller dies at every point of a launch and of a fence: nothing is launched twice, nothing is lost.

The fixture checks after every test that no (job, attempt) was launched more than once.
"""

import asyncio

from spur_core.ids import STEP_BATCH
from spur_core.states import JobState, NodeAvail
from spur_ctld.state.ops import DispatchBegin
from spur_ctld.state.records import Slice
from spur_proto import controller_pb2 as pb


async def reach(condition, what="", tries=1000):
    for _ in range(tries):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what or "never came true")


async def dispatch_only(cluster, job):
    """A dispatch that is recorded while nobody acts on it, as if the process died right after."""
    cluster.controller.machine.on_events = None
    await cluster.controller.ledger.commit(
        DispatchBegin(
            at=cluster.clock.time(),
            job_id=job,
            attempt=1,
            partition="debug",
            slices=(Slice(node="n1", cpus=1, ranks=(0,)),),
        )
    )


async def test_between_the_record_and_the_launch(cluster):
    agent = await cluster.add_agent("n1")
    cluster.controller.machine.on_events = None
    job = await cluster.submit()
    await dispatch_only(cluster, job)
    await cluster.crash()
    assert not agent.launches
    await cluster.restart()
    # Attempt 1 is never launched: the node is asked, the attempt is undone, the next one is number 2.
    await reach(lambda: cluster.state.jobs[job].state is JobState.PENDING)
    assert (job, 1, STEP_BATCH) in agent.probes
    assert not agent.launches
    cluster.clock.ahead += 60
    cluster.controller.scheduler.wake()
    await cluster.in_state(job, JobState.RUNNING)
    assert agent.attempts == [(job, 2)]


async def test_after_the_launch_before_its_commit(cluster):
    agent = await cluster.add_agent("n1")
    agent.gate.clear()
    job = await cluster.submit()
    await reach(lambda: agent.entered)
    await cluster.crash()
    # The agent had it all the same.
    agent.held[(job, 1, STEP_BATCH)] = "live"
    agent.gate.set()
    await cluster.restart()
    await cluster.in_state(job, JobState.RUNNING)
    assert cluster.state.jobs[job].run_attempt == 1
    assert not agent.cancels
    await cluster.report(agent, job, code=7)
    assert cluster.state.jobs[job].exit.code == 7


async def test_a_job_that_ended_while_the_controller_was_down(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)
    await cluster.crash()
    await cluster.restart()
    assert cluster.state.jobs[job].state is JobState.RUNNING
    assert await cluster.report(agent, job, code=3) == pb.REPORT_VERDICT_ACCEPTED
    assert cluster.state.jobs[job].exit.code == 3
    assert agent.attempts == [(job, 1)]


async def test_half_of_a_cohort_is_undone(cluster):
    one, two = await cluster.add_agent("n1", cpus=1), await cluster.add_agent("n2", cpus=1)
    two.gate.clear()
    job = await cluster.submit(srun_job=True, argv=[b"true"], min_nodes=2, num_tasks=2)
    await reach(lambda: one.held and two.entered)
    await cluster.crash()
    two.gate.set()
    two.held.clear()
    await cluster.restart()
    await reach(lambda: cluster.state.jobs[job].state is JobState.PENDING)
    assert not one.held
    assert (job, 1, 0) in two.probes


async def test_while_fencing(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)
    agent.obeys = False
    await cluster.stub.CancelJob(
        pb.CancelJobRequest(targets=[pb.JobTarget(job_id=job)]), metadata=cluster.user()
    )
    await reach(lambda: agent.cancels)
    await cluster.crash()
    count = len(agent.cancels)
    await cluster.restart()
    await reach(lambda: len(agent.cancels) > count, "the fence went on")
    assert cluster.state.jobs[job].state is JobState.COMPLETING
    assert cluster.state.use["n1"].jobs == {job}, "resources are held until the end is certain"
    agent.obeys = True
    await cluster.in_state(job, JobState.CANCELLED)
    assert not agent.held
    assert not cluster.state.use["n1"].jobs


async def test_a_requeue_runs_attempt_2_and_the_late_report_of_1_changes_nothing(cluster):
    agent = await cluster.add_agent("n1")
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)
    answer = await cluster.stub.RequeueJob(
        pb.RequeueJobRequest(targets=[pb.JobTarget(job_id=job)]), metadata=cluster.user()
    )
    assert answer.results[0].code == ""
    await reach(lambda: cluster.state.jobs[job].state is JobState.PENDING)
    cluster.clock.ahead += 30
    cluster.controller.scheduler.wake()
    await cluster.in_state(job, JobState.RUNNING)
    assert await cluster.report(agent, job, attempt=1, code=9) == pb.REPORT_VERDICT_FINAL
    record = cluster.state.jobs[job]
    assert (record.state, record.run_attempt, record.restarts) == (JobState.RUNNING, 2, 1)
    await cluster.report(agent, job, attempt=2)
    assert cluster.state.jobs[job].state is JobState.COMPLETED


async def test_an_idle_restart_keeps_everything(cluster):
    await cluster.add_agent("n1")
    held = [await cluster.submit(hold=True) for _ in range(3)]
    digest = {job: cluster.state.jobs[job] for job in held}
    await cluster.down()
    await cluster.restart()
    assert {job: cluster.state.jobs[job] for job in held} == digest
    assert cluster.state.nodes["n1"].avail is NodeAvail.UP
    assert await cluster.submit(hold=True) == held[-1] + 1


async def test_the_configuration_is_taken_over_at_a_start_with_another_file(cluster):
    await cluster.add_agent("n1")
    cluster.text += '\n[[partitions]]\nname = "long"\nnodes = "n1"\nmax_time = "2-0"\n'
    await cluster.down()
    await cluster.restart()
    applied = cluster.state.applied
    assert cluster.state.partitions["long"].max_time == 2 * 86400
    await cluster.down()
    await cluster.restart()
    assert cluster.state.applied <= applied + 1, "an unchanged file proposes nothing"


async def test_terms_only_grow(cluster):
    agent = await cluster.add_agent("n1")
    first = await cluster.submit()
    await cluster.in_state(first, JobState.RUNNING)
    await cluster.down()
    await cluster.restart()
    second = await cluster.submit()
    await cluster.in_state(second, JobState.RUNNING)
    assert agent.terms[0] < agent.terms[1]
