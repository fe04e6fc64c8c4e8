"""Passes over long queues: made in slices, with quick ones between, and void when what they were shown is."""

import asyncio
import itertools
import time

import grpc
import pytest

from spur_core.states import JobState
from spur_ctld.scheduling import loop
from spur_ctld.scheduling.pace import Pace
from spur_proto import controller_pb2 as pb

HOUR = 3600
PARTS = """
[[partitions]]
name = "east"
nodes = "n1"
[[partitions]]
name = "west"
nodes = "n2"
"""


class Brake:
    """Planners that, while `on`, do not come to an end.

    Attributes:
        size: of queues from which on it brakes.
        made: lengths of the queues of all planners.
        waits: looks of others at a planner that is held.
    """

    def __init__(self):
        self.on = False
        self.size = 1
        self.made = []
        self.waits = 0

    async def holds(self):
        waits = self.waits
        await reach(lambda: self.waits > waits, "a pass is under way")


@pytest.fixture
def brake(monkeypatch):
    held = Brake()

    class Slow(loop.Planner):
        def __init__(self, view, now):
            super().__init__(view, now)
            held.made.append(len(view.pending()))

        def advance(self, work):
            over = super().advance(work)
            if over and held.on and len(self.queue) >= held.size:
                held.waits += 1
                return False
            return over

    monkeypatch.setattr(loop, "Planner", Slow)
    monkeypatch.setattr(loop, "Pace", lambda: Pace(0.0))
    monkeypatch.setattr(loop, "QUICK_DEPTH", 3)
    return held


async def reach(condition, what=""):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, f"never came true: {what}"
        await asyncio.sleep(0.002)


def whole_pass(cluster):
    """One is due."""
    cluster.controller.scheduler._next_full = 0.0
    cluster.controller.scheduler.wake()


async def settled(cluster):
    """A whole pass is over, and nothing came free since."""
    scheduler = cluster.controller.scheduler
    whole_pass(cluster)
    await reach(lambda: (last := scheduler._settled) and last.promised and not last.freed, "a whole pass")


async def full(cluster, waiting=6):
    """Both nodes are there; a job holds n1 and so many wait behind it."""
    await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    holder = await cluster.submit(partition="east", num_tasks=4, time_limit_secs=HOUR)
    await cluster.in_state(holder, JobState.RUNNING)
    return [await cluster.submit(partition="east", num_tasks=4, time_limit_secs=HOUR) for _ in range(waiting)]


async def test_others_run_while_a_plan_is_made(cluster, monkeypatch):
    monkeypatch.setattr(loop, "_WORK", 1)
    monkeypatch.setattr(loop, "Pace", lambda: Pace(0.0))
    turns = 0
    seen = []
    made = loop.Planner.advance

    def advance(self, work):
        if len(self.queue) > 50:
            seen.append(turns)
        return made(self, work)

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(loop.Planner, "advance", advance)
    await cluster.add_agent("n1", cpus=1)
    holder = await cluster.submit()
    await cluster.in_state(holder, JobState.RUNNING)
    beside = asyncio.create_task(others())
    await asyncio.gather(*(cluster.submit() for _ in range(80)))
    await reach(lambda: len(seen) > 50, "a plan in many slices")
    beside.cancel()
    assert all(after > before for before, after in itertools.pairwise(seen))


async def test_a_job_starts_while_a_pass_over_the_whole_queue_is_under_way(clusters, brake):
    cluster = await clusters(extra=PARTS)
    waiting = await full(cluster)
    brake.size, brake.on = len(waiting), True
    whole_pass(cluster)
    await brake.holds()
    # Each start makes the plan void; it is begun anew, but not for ever.
    for _ in range(loop._MOST_THROWN_AWAY):
        job = await cluster.submit(partition="west")
        await cluster.in_state(job, JobState.RUNNING)
        await brake.holds()
    assert all(cluster.state.jobs[job].state is JobState.PENDING for job in waiting)
    late = await cluster.submit(partition="west")
    for _ in range(5):
        await brake.holds()
    assert cluster.state.jobs[late].state is JobState.PENDING
    brake.on = False
    await cluster.in_state(late, JobState.RUNNING)
    await reach(lambda: cluster.controller.scheduler._settled, "the pass is over")


async def test_a_job_that_finds_nothing_leaves_the_plan_as_it_is(clusters, brake):
    cluster = await clusters(extra=PARTS)
    waiting = await full(cluster)
    await settled(cluster)
    brake.size, brake.on = len(waiting), True
    whole_pass(cluster)
    await brake.holds()
    before = [size for size in brake.made if size >= brake.size]
    late = await cluster.submit(partition="east", num_tasks=4)
    await reach(lambda: cluster.state.jobs[late].reason == "Priority", "it is told why it waits")
    await brake.holds()
    assert [size for size in brake.made if size >= brake.size] == before


async def test_who_comes_last_may_fill_a_gap_at_once_but_takes_no_promised_room(clusters, brake, monkeypatch):
    cluster = await clusters(extra=PARTS)
    await cluster.add_agent("n1")
    holder = await cluster.submit(partition="east", num_tasks=3, time_limit_secs=HOUR)
    await cluster.in_state(holder, JobState.RUNNING)
    for _ in range(6):
        await cluster.submit(partition="east", num_tasks=4, time_limit_secs=HOUR)
    scheduler = cluster.controller.scheduler
    await settled(cluster)
    # From here on there are only quick passes.
    scheduler._next_full = float("inf")
    long = await cluster.submit(partition="east", time_limit_secs=2 * HOUR)
    short = await cluster.submit(partition="east", time_limit_secs=600)
    await cluster.in_state(short, JobState.RUNNING)
    assert cluster.state.jobs[long].state is JobState.PENDING
    assert scheduler._next_full == float("inf")
    # Something came free: those in the middle of the queue have to be asked first.
    await cluster.report(cluster.agents["n1"], short)
    later = await cluster.submit(partition="east", time_limit_secs=600)
    passes = scheduler.passes
    scheduler.wake()
    await reach(lambda: scheduler.passes > passes, "a quick pass")
    assert cluster.state.jobs[later].state is JobState.PENDING
    whole_pass(cluster)
    await cluster.in_state(later, JobState.RUNNING)


async def test_a_job_that_changes_while_it_is_planned_starts_as_it_is_then(clusters, brake):
    cluster = await clusters(extra=PARTS)
    await cluster.add_agent("n1")
    brake.on = True
    job = await cluster.submit(partition="east", num_tasks=1)
    await brake.holds()
    shape = pb.UpdateJobRequest(targets=[pb.JobTarget(job_id=job)], num_tasks=3)
    answer = await cluster.stub.UpdateJob(shape, metadata=cluster.user())
    assert not answer.results[0].text
    brake.on = False
    await cluster.in_state(job, JobState.RUNNING)
    assert [part.cpus for part in cluster.state.jobs[job].slices] == [3]


async def test_a_reservation_that_comes_while_a_plan_is_made_is_kept(clusters, brake):
    cluster = await clusters(extra=PARTS)
    await cluster.add_agent("n1")
    brake.on = True
    job = await cluster.submit(partition="east", time_limit_secs=HOUR)
    await brake.holds()
    request = pb.CreateReservationRequest(
        name="r", nodes="n1", users=["nobody"], start_at=cluster.clock.time(), duration_secs=HOUR
    )
    await cluster.stub.CreateReservation(request, metadata=cluster.user())
    brake.on = False
    await reach(lambda: cluster.state.jobs[job].reason == "ReqNodeNotAvail", "it waits for the reservation")
    assert cluster.state.jobs[job].state is JobState.PENDING


async def test_what_nodes_can_do_is_worked_out_anew_only_when_that_changes(cluster):
    agent = await cluster.add_agent("n1")
    await cluster.submit(num_tasks=4)
    builder = cluster.controller.office.builder
    first = builder.able()
    drain = pb.UpdateNodeRequest(names="n1", state="drain", reason="look at it")
    await cluster.stub.UpdateNode(drain, metadata=cluster.user())
    await cluster.register(agent, cpus=4)
    assert builder.able() is first
    with pytest.raises(grpc.aio.AioRpcError, match="More processors requested than permitted"):
        await cluster.submit(num_tasks=5)
    assert builder.able() is first
    # It comes back with more.
    await cluster.register(agent, cpus=8, boot="boot-2")
    await cluster.submit(num_tasks=5)
    assert builder.able() is not first
    second = builder.able()
    await cluster.add_agent("n2")
    assert builder.able() is not second
