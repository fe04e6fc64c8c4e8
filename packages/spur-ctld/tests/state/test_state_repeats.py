"""Request keys: a repeat is answered and not carried out again, whatever happened meanwhile."""

import msgspec
import pytest

from spur_core.states import JobState
from spur_ctld.state import codec, ops
from spur_ctld.state.answers import LARGEST, MOST_BYTES, owner_of, total
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.machine import apply

ROOT = ops.Who(uid=0, user="root", admin=True)


def requeue(job_id, key, at=50.0):
    return ops.Requeue(at=at, targets=(ops.Target(job_id),), who=ROOT, key=key)


def test_a_repeat_is_answered_and_changes_nothing(sim):
    job = sim.submit()
    first, _events = apply(sim.state, 100, requeue(job, "Requeue:ab:0/0"))
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


def test_answers_are_bounded_and_the_oldest_of_who_has_most_go_first():
    state = ClusterState.empty()
    state.remember("7:first", b"x", 0.0)
    last = 0
    state.remember("8:0", b"x", 0.0)
    while "8:0" in state.answers:
        last += 1
        state.remember(f"8:{last}", b"x" * 60_000, float(last))
        assert total(state.answers) <= MOST_BYTES
    assert "7:first" in state.answers
    assert f"8:{last}" in state.answers
    assert total(state.answers) > MOST_BYTES * 3 // 4
    restored = codec.restore(list(codec.freeze(state)))
    assert list(restored.answers) == list(state.answers)
    # What one replica remembered all along and another one restored leaves both alike.
    for number in range(400):
        for one in (state, restored):
            one.remember(f"9:{number}", b"y" * 50_000, float(number))
        assert list(restored.answers) == list(state.answers)
    assert "7:first" in state.answers


def test_an_endless_answer_is_not_kept():
    state = ClusterState.empty()
    state.remember("8:a", b"x" * (LARGEST + 1), 0.0)
    assert not state.answers


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("8:step:9:1/0", "8"),
        ("step:8:17:9:x", "8"),
        ("CancelJob:ab:8/0", "8"),
        ("CancelJob:9:9/0:8/0", "8"),
        ("UpdateNode:ab:8/node1", "8"),
    ],
)
def test_whose_an_answer_is_no_id_decides(key, owner):
    assert owner_of(key) == owner


def test_the_time_of_the_state_never_goes_back(sim):
    apply(sim.state, 100, ops.Deadline(at=5000.0, job_ids=()))
    apply(sim.state, 101, ops.Deadline(at=900.0, job_ids=()))
    assert sim.state.time == 5000.0
    assert codec.restore(list(codec.freeze(sim.state))).time == 5000.0
