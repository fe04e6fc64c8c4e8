"""Entries and snapshots as bytes: whole, typed, the same on every replica, readable for ever."""

import struct
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from spur_core.errors import StateError
from spur_core.states import JobState
from spur_ctld.state import codec, invariants, ops
from spur_ctld.state.inventory import DeviceSet, Inventory
from spur_ctld.state.log_machine import LogMachine
from spur_ctld.state.records import (
    Exit,
    Gres,
    Node,
    Partition,
    Request,
    Slice,
    StepAsk,
    Usage,
)
from spur_ctld.state.reservations import Reservation
from spur_ctld.state.settings import Settings

ROOT = ops.Who(uid=0, user="root", admin=True)
FIXTURES = Path(__file__).parent / "fixtures"


def frames(raw):
    """Entries of a fixture: u32 little-endian length, then the entry."""
    at = 0
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        yield raw[at + 4 : at + 4 + length]
        at += 4 + length


def story():
    """One of every operation, in an order in which they have an effect."""
    request = Request(
        warn_signal="USR1@30",
        name="job",
        user="alice",
        uid=1000,
        gid=100,
        partitions=("main",),
        script=b"#!/bin/sh\n",
        env=b"A=1",
    )
    node = Node(
        name="n1",
        cpus=8,
        memory_mb=1000,
        gres=(Gres(name="gpu", type="h100", count=2),),
        boot_id="b1",
        labels={"rack": "r1"},
        address="10.0.0.1",
        inventory=Inventory(
            sockets=(("0-3", "4-7"),),
            devices=(DeviceSet(name="gpu", type="h100", indices="0-1", link="a", near="0-7"),),
        ),
    )
    target = (ops.Target(job_id=1, tasks=((4, 4, 1),)),)
    piece = (
        Slice(node="n1", cpus=2, memory_mb=10, gres=(Gres(name="gpu", type="h100", count=1),), ranks=(0,)),
    )
    main = Partition(name="main", default=True, nodes=("n1",), selector={"rack": "r1"}, max_time=86400)
    kept = Reservation(
        name="",
        start_at=40.0,
        end_at=50.0,
        first_start=40.0,
        first_end=50.0,
        repeat="DAILY",
        zone="Europe/Berlin",
        nodes=("n1",),
        cpus=(("n1", 2),),
        users=("alice",),
        flags=("MAINT",),
        licenses=(("m", 1),),
    )
    return [
        ops.RaiseCommandVersion(at=0.5, to=4),
        ops.Configure(at=1.0, settings=Settings(), partitions=(main,), nodes=(Node(name="n1", weight=3),)),
        ops.NodeRegister(at=2.0, node=node),
        ops.Submit(at=3.0, request=request, array=((0, 8, 2), (9, 9, 1)), array_throttle=2, request_id="r"),
        ops.Submit(at=3.5, request=request, held=True, priority=7),
        ops.PendingReasons(at=4.0, reasons=((1, "Resources", "text"),), cancel=()),
        ops.Hold(at=5.0, targets=(ops.Target(job_id=2),), who=ROOT, mode="release"),
        ops.Update(
            at=6.0,
            targets=(ops.Target(job_id=2),),
            who=ROOT,
            changes={"time_limit": msgspec.msgpack.encode(60)},
            priority=9,
        ),
        ops.DispatchBegin(at=7.0, job_id=1, attempt=1, partition="main", slices=piece, task=2),
        ops.DispatchCommit(at=8.0, job_id=3, attempt=1, start_at=7.5, stdout_real="/out", stderr_real="/err"),
        ops.StepCreate(
            at=8.1,
            job_id=3,
            attempt=1,
            who=ROOT,
            ask=StepAsk(num_tasks=2, gres=(Gres(name="gpu", count=1),), distribution="cyclic"),
            request_id="s",
            name="a",
            time_limit=60,
        ),
        ops.StepLaunched(at=8.2, job_id=3, attempt=1, step_id=0, start_at=8.15),
        ops.NodeComplete(
            at=8.3,
            job_id=3,
            attempt=1,
            step_id=0,
            node="n1",
            exit=Exit(code=1),
            started_at=8.15,
            ended_at=8.25,
        ),
        ops.StepCreate(at=8.4, job_id=3, attempt=1, who=ROOT, ask=StepAsk(), interactive=True, pty=True),
        ops.StepForget(at=8.45, job_id=3, attempt=1, step_id=4294967290),
        ops.StepCreate(at=8.5, job_id=3, attempt=1, who=ROOT, ask=StepAsk(cpus_per_task=1), name="b"),
        ops.StepCancel(at=8.6, job_id=3, attempt=1, step_id=1, who=ROOT, hard=True, text="x"),
        ops.StepGone(at=8.7, job_id=3, attempt=1, step_id=1, node="n1", lost=True, exit=Exit(signal=9)),
        ops.ClientSeen(at=8.75, job_id=3, attempt=1),
        ops.Suspend(at=8.8, targets=(ops.Target(job_id=3),), who=ROOT),
        ops.SuspendTold(at=8.85, job_id=3, attempt=1, nodes=("n1",), suspended=True),
        ops.Suspend(at=8.9, targets=(ops.Target(job_id=3),), who=ROOT, resume=True),
        ops.Preempt(at=8.91, job_id=3, attempt=1, by=2, mode="suspend"),
        ops.SuspendTold(at=8.92, job_id=3, attempt=1, nodes=("n1",), suspended=True),
        ops.Preempt(at=8.93, job_id=3, attempt=1, by=2, mode="resume"),
        ops.Preempt(at=8.94, job_id=3, attempt=1, by=2, mode="cancel", grace_secs=60),
        ops.PreemptTold(at=8.945, job_id=3, attempt=1, nodes=("n1",)),
        ops.WarnBegin(at=8.946, job_id=3, attempt=1),
        ops.WarnTold(at=8.947, job_id=3, attempt=1, nodes=("n1",)),
        ops.Submit(at=8.95, request=msgspec.structs.replace(request, alloc_only=True, script=b"")),
        ops.DispatchBegin(
            at=8.96,
            job_id=4,
            attempt=1,
            partition="main",
            slices=(Slice(node="n1", cpus=1),),
            everywhere=True,
        ),
        ops.AllocComplete(at=8.97, job_id=4, who=ROOT, exit=Exit(code=2)),
        ops.TimeLimitSignalled(at=9.0, job_id=3, attempt=1),
        ops.NodeComplete(
            at=10.0,
            job_id=3,
            attempt=1,
            step_id=4294967291,
            node="n1",
            exit=Exit(signal=15, core=True),
            started_at=7.5,
            ended_at=9.5,
            usage=Usage(user_secs=1.5, max_rss_kb=100),
        ),
        ops.DispatchBegin(at=11.0, job_id=2, attempt=1, partition="main", slices=piece),
        ops.DispatchAbort(at=12.0, job_id=2, attempt=1, reason="JobLaunchFailure", desc="x", clear=()),
        ops.FenceConfirm(at=13.0, job_id=2, attempt=1, node="n1"),
        ops.DispatchBegin(at=20.0, job_id=2, attempt=2, partition="main", slices=piece),
        ops.FenceBegin(at=21.0, job_id=2, attempt=2, outcome=JobState.PENDING, reason="None", recovery=True),
        ops.NodeSilent(at=22.0, name="n1", reason="restart"),
        ops.NodeBack(at=23.0, name="n1"),
        ops.NodeDown(at=24.0, name="n1", reason="Not responding"),
        ops.NodeUpdate(at=25.0, names=("n1",), who=ROOT, state="drain", reason="disk", weight=2, comment="c"),
        ops.NodeRegister(at=26.0, node=msgspec.structs.replace(node, boot_id="b2")),
        ops.Cancel(at=27.0, targets=target, who=ROOT),
        ops.Requeue(at=28.0, targets=(ops.Target(job_id=3),), who=ROOT, hold=True),
        ops.Deadline(at=29.0, job_ids=(2,)),
        ops.OutboxAck(at=30.0, rows=((2, 1, 5),), steps=((3, 1, 0, 9),)),
        ops.Purge(at=31.0, job_ids=(2, 99), answers_before=4.0),
        ops.ReservationCreate(at=32.0, who=ROOT, reservation=kept),
        ops.ReservationUpdate(
            at=33.0, who=ROOT, reservation=msgspec.structs.replace(kept, name="alice_1"), seen=99
        ),
        ops.ReservationExpire(
            at=34.0, name="alice_1", start_at=40.0, end_at=50.0, next_start=90.0, next_end=99.0
        ),
        ops.ReservationCreate(
            at=35.0, who=ROOT, reservation=msgspec.structs.replace(kept, name="b"), seen=99
        ),
        ops.ReservationDelete(at=36.0, who=ROOT, name="b"),
    ]


def replay(entries):
    machine = LogMachine()
    results = []
    for index, raw in enumerate(entries, 1):
        results.append(machine.apply(index, raw))
        assert not invariants.check(machine.state)
    return machine, results


def test_the_story_has_every_operation():
    assert {type(op) for op in story()} == set(get_args(ops.AnyOp))


@pytest.mark.parametrize("op", story(), ids=lambda op: type(op).__name__)
def test_operations_come_back_as_they_were(op):
    assert codec.decode_op(codec.encode_op(op)) == op


@pytest.mark.parametrize(
    "result",
    [
        ops.Done(),
        ops.Done(refusal=ops.Refusal("wrong_state", "no")),
        ops.SubmitResult(job_id=7),
        ops.DispatchResult(job_id=8),
        ops.CompleteResult(verdict="final"),
        ops.StepResult(attempt=2, step_id=3),
        ops.TargetsResult(results=(None, ops.Refusal("access_denied", "x"))),
    ],
)
def test_results_come_back_as_they_were(result):
    assert codec.decode_result(codec.encode_result(result)) == result


def test_all_of_the_story_has_an_effect():
    _, results = replay(codec.encode_op(op) for op in story())
    for op, raw in zip(story(), results, strict=True):
        result = codec.decode_result(raw)
        assert result.refusal is None, op
        if isinstance(result, ops.TargetsResult):
            assert result.results == (None,), op
        if isinstance(result, ops.CompleteResult):
            assert result.verdict == "accepted"


def test_replicas_agree_whether_they_replay_or_restore():
    """From the log alone, and from a snapshot at any entry with the rest of the log."""
    entries = [codec.encode_op(op) for op in story()]
    whole, results = replay(entries)
    for cut in range(len(entries)):
        before, _ = replay(entries[:cut])
        follower = LogMachine()
        follower.restore(list(before.freeze()))
        rest = [follower.apply(index, raw) for index, raw in enumerate(entries[cut:], cut + 1)]
        assert rest == results[cut:]
        assert codec.digest(follower.state) == codec.digest(whole.state)


def test_events_are_for_live_entries_only():
    machine = LogMachine()
    entries = [codec.encode_op(op) for op in story()][:-2]
    for index, raw in enumerate(entries[:-1], 1):
        machine.apply(index, raw)
    heard = []
    machine.on_events = heard.append
    machine.apply(len(entries), entries[-1])
    assert len(heard) == 1


@pytest.mark.parametrize("raw", [b"", b"\xc0", msgspec.msgpack.encode({"op": "teleport", "at": 1.0})])
def test_an_entry_of_a_newer_release_stops_the_replica(raw):
    """It is not skipped: a replica that skips is no longer the same as the others."""
    with pytest.raises(StateError):
        LogMachine().apply(1, raw)


def test_a_newer_snapshot_is_refused_by_its_number():
    machine, _ = replay(codec.encode_op(op) for op in story())
    first, *rest = machine.freeze()
    head = msgspec.msgpack.decode(first)
    head["format"] = 99
    with pytest.raises(StateError, match="format 99"):
        codec.restore([msgspec.msgpack.encode(head), *rest])
    with pytest.raises(StateError, match="does not decode"):
        codec.restore([first, b"\xc1"])


@pytest.mark.parametrize("release", sorted(path.name for path in FIXTURES.iterdir()))
def test_logs_and_snapshots_of_old_releases_load(release):
    """Files recorded by each release; none is ever removed or rewritten."""
    machine, _ = replay(frames((FIXTURES / release / "entries.bin").read_bytes()))
    restored = codec.restore(list(frames((FIXTURES / release / "snapshot.bin").read_bytes())))
    assert not invariants.check(restored)
    assert sorted(restored.jobs) == sorted(machine.state.jobs)
    assert restored.next_job_id == machine.state.next_job_id
