"""Nodes that go and come back, fences that wait for them, and administration."""

import pytest

from spur_core.states import JobState, NodeAvail
from spur_ctld.state import events, ops
from spur_ctld.state.records import Node, Partition
from spur_ctld.state.settings import Settings

PENDING, COMPLETING = JobState.PENDING, JobState.COMPLETING


@pytest.fixture
def lost(sim):
    """A job that ran on n1 when n1 was lost."""
    sim.submit()
    sim.run(1)
    sim.down("n1")
    return sim


def test_the_fence_waits_for_the_node(lost):
    sim = lost
    assert sim.state.nodes["n1"].avail is NodeAvail.DOWN
    job = sim.job(1)
    assert (job.state, job.fence.targets, job.fence.outcome) == (COMPLETING, ("n1",), PENDING)
    assert sim.state.use["n1"].cpus == 1


def test_a_reboot_is_the_confirmation(lost):
    """Nothing of another boot runs: the attempt is over and the job goes back."""
    sim = lost
    sim.register("n1", boot="boot-2")
    job = sim.job(1)
    assert (job.state, job.run_attempt, sim.state.use["n1"].cpus) == (PENDING, 1, 0)
    assert sim.row(1, 1).state is JobState.NODE_FAIL
    assert sim.row(1, 2).state is PENDING


def test_the_same_boot_confirms_nothing(lost):
    sim = lost
    sim.register("n1")
    assert sim.state.nodes["n1"].avail is NodeAvail.UP
    assert sim.job(1).state is COMPLETING
    sim.confirm(1)
    assert sim.job(1).state is PENDING


def test_the_nodes_late_report_confirms_it(lost):
    assert lost.complete(1) == "accepted"
    assert lost.job(1).state is PENDING


@pytest.mark.parametrize("request_", [{"requeue": False}, {"srun": True}])
def test_a_job_that_may_not_be_requeued_ends(sim, request_):
    sim.submit(**request_)
    sim.run(1)
    sim.down("n1")
    sim.confirm(1)
    job = sim.job(1)
    assert (job.state, job.reason, sim.row(1).state) == (JobState.NODE_FAIL, "NodeDown", JobState.NODE_FAIL)


def test_an_unnoticed_reboot_ends_what_ran(sim):
    """The node was never down for us, and came back as another boot."""
    sim.submit()
    sim.run(1)
    sim.register("n1", boot="boot-2")
    assert sim.job(1).state is PENDING


def test_a_reboot_confirms_a_cancel(sim):
    sim.submit()
    sim.run(1)
    sim.cancel(1)
    sim.register("n1", boot="boot-2")
    assert sim.job(1).state is JobState.CANCELLED


def test_loss_of_one_of_two_nodes_ends_the_attempt_on_both(sim):
    sim.submit(srun=True, min_nodes=2, max_nodes=2, num_tasks=2)
    sim.run(1, ("n1", "n2"))
    sim.down("n2")
    assert sim.job(1).fence.targets == ("n1", "n2")
    assert events.FenceRequested(1, 1) in sim.events
    sim.confirm(1, "n1")
    assert sim.state.use["n1"].cpus == 0
    sim.register("n2", boot="boot-2")
    assert sim.job(1).state is JobState.NODE_FAIL


def test_loss_of_a_companion_node_ends_a_batch_job(sim):
    """The script runs on n1, its other node is gone: the allocation is no longer what was asked for."""
    sim.submit(min_nodes=2, max_nodes=2)
    sim.run(1, ("n1", "n2"))
    sim.down("n2")
    job = sim.job(1)
    assert job.fence is not None
    sim.confirm(1, "n1")
    assert sim.job(1).fence.targets == ("n2",), "nobody knows yet that nothing holds on there"
    sim.confirm(1, "n2")
    assert sim.job(1).state is PENDING


def test_silence_starts_nothing_new_and_ends_nothing(sim):
    sim.submit()
    sim.run(1)
    sim.do(ops.NodeSilent(at=0, name="n1", reason="restart"))
    assert sim.state.nodes["n1"].avail is NodeAvail.SILENT
    assert sim.job(1).state is JobState.RUNNING
    sim.do(ops.NodeBack(at=0, name="n1"))
    assert sim.state.nodes["n1"].avail is NodeAvail.UP


def test_a_beat_lifts_a_time_out_but_not_an_administrators_word(sim, admin):
    sim.down("n1")
    assert sim.state.nodes["n1"].reason == "Not responding"
    assert sim.do(ops.NodeBack(at=0, name="n1")).refusal is None
    assert (sim.state.nodes["n1"].avail, sim.state.nodes["n1"].reason) == (NodeAvail.UP, "")
    sim.down("n1", who=admin)
    assert sim.do(ops.NodeBack(at=0, name="n1")).refusal is not None
    sim.register("n1")
    assert sim.state.nodes["n1"].avail is NodeAvail.DOWN
    sim.do(ops.NodeUpdate(at=0, names=("n1",), who=admin, state="resume"))
    assert sim.state.nodes["n1"].avail is NodeAvail.UP


def test_drain_and_resume(sim, admin):
    sim.do(ops.NodeUpdate(at=0, names=("n1", "n2"), who=admin, state="drain", reason="disk"))
    node = sim.state.nodes["n1"]
    assert (node.drain, node.reason, node.reason_uid) == (True, "disk", 0)
    # Drains and their reasons outlive loss and return.
    sim.down("n1")
    sim.register("n1", boot="boot-2")
    node = sim.state.nodes["n1"]
    assert (node.drain, node.reason, node.avail) == (True, "disk", NodeAvail.UP)
    sim.do(ops.NodeUpdate(at=0, names=("n1",), who=admin, state="resume"))
    assert events.RoomFreed(("n1",)) in sim.events
    assert (sim.state.nodes["n1"].drain, sim.state.nodes["n1"].reason) == (False, "")


def test_unknown_nodes(sim, admin):
    assert (
        sim.do(ops.NodeUpdate(at=0, names=("n1", "n9"), who=admin, state="drain", reason="x")).refusal
        is not None
    )
    assert not sim.state.nodes["n1"].drain
    assert sim.do(ops.NodeDown(at=0, name="n9", reason="x")).refusal is not None
    assert sim.do(ops.NodeSilent(at=0, name="n9", reason="x")).refusal is not None


def test_a_node_that_comes_back_smaller_than_what_it_holds_is_drained(sim, admin):
    sim.submit()
    sim.run(1, cpus=3)
    sim.register("n1", cpus=2)
    node = sim.state.nodes["n1"]
    assert node.drain
    assert "CPU" in node.reason
    resume = ops.NodeUpdate(at=0, names=("n1",), who=admin, state="resume")
    assert sim.do(resume).refusal.code == "wrong_state"
    sim.complete(1)
    assert sim.do(resume).refusal is None


def test_configuration_overlays_nodes_and_keeps_used_partitions(sim):
    sim.submit()
    assert sim.state.nodes["n1"].cpus == 4
    sim.do(
        ops.Configure(
            at=0,
            settings=Settings(first_job_id=100),
            partitions=(Partition(name="other", nodes=("n1",)),),
            nodes=(Node(name="n1", weight=7, features=("ib",)), Node(name="n8", weight=2)),
        )
    )
    assert list(sim.state.partitions) == ["other", "main"]
    assert sim.state.partitions["main"].state == "INACTIVE"
    node = sim.state.nodes["n1"]
    assert (node.cpus, node.weight, node.features, node.avail) == (4, 7, ("ib",), NodeAvail.UP)
    assert sim.state.nodes["n8"].avail is NodeAvail.UNKNOWN
    assert sim.submit(partitions=("other",)) == 100
    sim.register("n1", boot="boot-2")
    assert sim.state.nodes["n1"].features == ("ib",)
