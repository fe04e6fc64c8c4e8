"""Request keys: a repeat is answered and not carried out again, whatever happened meanwhile."""

import msgspec

from spur_core.states import JobState
from spur_ctld.state import codec, ops
from spur_ctld.state.cluster import MOST_ANSWERS, ClusterState
from spur_ctld.state.machine import apply

ROOT = ops.Who(uid=0, user="root", admin=True)


def requeue(job_id, key, at=50.0):
    return ops.Requeue(at=at, targets=(ops.Target(job_id),), who=ROOT, key=key)


def test_a_repeat_is_answered_and_changes_nothing(sim):
    job = sim.submit()
    first, events = apply(sim.state, 100, requeue(job, "Requeue:ab:0/0"))
    before = codec.digest(sim.state)
    held = ops.Hold(at=60.0, targets=(ops.Target(job),), who=ROOT, mode="hold")
    apply(sim.state, 101, held)
    again, later = apply(sim.state, 102, requeue(job, "Requeue:ab:0/0"))
    assert again == first
    assert later == ()
    assert sim.state.jobs[job].reason != "None"
    assert codec.digest(sim.state) != before


def test_the_answer_survives_snapshots(sim):
    job = sim.submit()
    op = ops.Cancel(at=50.0, targets=(ops.Target(job),), who=ROOT, key="Cancel:cd:0/0")
    first, _ = apply(sim.state, 100, op)
    assert sim.state.jobs[job].state is JobState.CANCELLED
    restored = codec.restore(list(codec.freeze(sim.state)))
    again, _ = apply(restored, 101, op)
    assert again == first
    # Another request for the same is answered by what is now.
    other, _ = apply(restored, 102, msgspec.structs.replace(op, key="Cancel:ef:0/0"))
    assert other != first


def test_refusals_are_not_kept(sim):
    """A request that was refused did nothing; its repeat is looked at again."""
    op = ops.NodeUpdate(at=1.0, names=("nowhere",), who=ROOT, state="drain", reason="x", key="k")
    result, _ = apply(sim.state, 100, op)
    assert result.refusal is not None
    assert "k" not in sim.state.answers


def test_answers_are_bounded_and_the_oldest_go_first():
    state = ClusterState.empty()
    for number in range(MOST_ANSWERS + 10):
        state.remember(f"k{number}", b"", float(number))
    assert len(state.answers) == MOST_ANSWERS
    assert "k9" not in state.answers
    assert "k10" in state.answers
    restored = codec.restore(list(codec.freeze(state)))
    assert list(restored.answers) == list(state.answers)


def test_the_time_of_the_state_never_goes_back(sim):
    apply(sim.state, 100, ops.Deadline(at=5000.0, job_ids=()))
    apply(sim.state, 101, ops.Deadline(at=900.0, job_ids=()))
    assert sim.state.time == 5000.0
    assert codec.restore(list(codec.freeze(sim.state))).time == 5000.0
