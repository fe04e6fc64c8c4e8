"""Launch spec, descriptor, control and spawn documents: round trips, defaults, refusals."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.ids import STEP_BATCH, U32_MAX, RuntimeId
from spur_proto_lite import control, framing, notify, spawn, versions
from spur_proto_lite.descriptor import Descriptor
from spur_proto_lite.errors import BadDocument, NewerFormat
from spur_proto_lite.exits import EpilogRecord, ExitRecord, TaskExit
from spur_proto_lite.launch_spec import MOST_TASKS, LaunchSpec, RlimitSpec, TaskSpec
from spur_proto_lite.record import Record

RID = RuntimeId(7, 2, STEP_BATCH)
texts = st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
u32 = st.integers(0, 2**32 - 1)


@given(
    rid=st.builds(RuntimeId, u32, u32, u32),
    env=st.dictionaries(texts, texts, max_size=4),
    argv=st.lists(texts, max_size=3).map(tuple),
    ranks=st.lists(u32, max_size=3),
    task_id=st.none() | u32,
)
def test_launch_spec_round_trip(rid, env, argv, ranks, task_id):
    """Bytes that are no UTF-8 survive; so do None and empty lists."""
    spec = LaunchSpec(
        rid=rid,
        env=env,
        argv=argv,
        array_task_id=task_id,
        tasks=tuple(TaskSpec(rank=rank, local_rank=at, env={"A": "b"}) for at, rank in enumerate(ranks)),
        rlimits=(RlimitSpec(name="CORE", soft=0, hard=-1),),
        work_dir="/tmp/\udcff",
    )
    assert LaunchSpec.decode(spec.encode()) == spec


def test_missing_keys_take_defaults_and_unknown_ones_are_ignored():
    rid = {"job_id": 7, "run_attempt": 2, "step_id": STEP_BATCH}
    spec = LaunchSpec.decode(json.dumps({"rid": rid, "from_the_future": [1]}).encode())
    assert spec == LaunchSpec(rid=RID)
    assert spec.umask == 0o022
    assert spec.task_list()[0].rank == 0


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"uid": "0"}, "LaunchSpec.uid: a whole number"),
        ({"uid": True}, "LaunchSpec.uid"),
        ({"env": {"A": 1}}, "LaunchSpec.env.A"),
        ({"env": []}, "LaunchSpec.env"),
        ({"argv": ["a", 1]}, r"LaunchSpec.argv\[1\]"),
        ({"argv": "ls"}, "LaunchSpec.argv: a list"),
        ({"tasks": [{"rank": 0}]}, "TaskSpec.local_rank is missing"),
        ({"spool_output": 1}, "LaunchSpec.spool_output"),
        ({"start_timeout_secs": "soon"}, "LaunchSpec.start_timeout_secs"),
        ({"rid": {"job_id": 7, "run_attempt": 2}}, "rid.step_id"),
        ({"rid": {"job_id": -1, "run_attempt": 2, "step_id": 0}}, "rid.job_id"),
        ({"rid": None}, "rid"),
    ],
)
def test_a_wrong_field_is_refused_by_name(change, word):
    document = {**LaunchSpec(rid=RID).to_json(), **change}
    with pytest.raises(BadDocument, match=word):
        LaunchSpec.decode(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"{}"])
def test_damaged_files_are_refused(data):
    with pytest.raises(BadDocument):
        LaunchSpec.decode(data)
    with pytest.raises(BadDocument):
        Descriptor.decode(data)


def test_newer_formats_are_named_not_guessed():
    with pytest.raises(NewerFormat, match="format 9"):
        LaunchSpec.decode(b'{"version":9}')
    with pytest.raises(NewerFormat, match="format 9"):
        Descriptor.decode(b'{"version":9}')


def test_descriptor_round_trip_and_identity():
    made = Descriptor(rid=RID, stepd_pid=5, stepd_start_ticks=6, boot_id="b", cgroup=("/a", "/b"))
    value = json.loads(made.encode())
    assert (value["job_id"], value["run_attempt"], value["step_id"]) == RID
    assert Descriptor.decode(made.encode(), RID) == made
    with pytest.raises(BadDocument, match="its directory"):
        Descriptor.decode(made.encode(), RuntimeId(7, 1, STEP_BATCH))
    del value["step_id"]
    assert Descriptor.decode(json.dumps(value).encode()).rid.step_id == STEP_BATCH


def test_requests_and_replies():
    document = control.encode_request(4, control.SIGNAL, RID, {"signal": 15, "scope": None})
    request = control.decode_request(json.loads(json.dumps(document)))
    assert request == control.Request(versions.PROTOCOL_MIN, 4, "signal", RID, {"signal": 15})
    reply = control.encode_reply(request, control.SignalReply(count=2, path="cgroup"))
    assert control.SignalReply.from_json(control.decode_reply(reply, 4)).count == 2
    with pytest.raises(BadDocument):
        control.decode_reply(reply, 5)
    refusal = control.encode_error(1, 4, control.IDENTITY_MISMATCH, "no", RID)
    with pytest.raises(control.Refused, match="no") as caught:
        control.decode_reply(json.loads(json.dumps(refusal)), 4)
    assert (caught.value.code, caught.value.held) == ("identity_mismatch", RID)


@pytest.mark.parametrize("gone", ["v", "id", "op", "rid"])
def test_a_request_needs_its_four_fields(gone):
    document = control.encode_request(1, control.HELLO, RID, {})
    del document[gone]
    with pytest.raises(BadDocument):
        control.decode_request(document)


@pytest.mark.parametrize(
    ("theirs", "agreed"), [((1, 1), 1), ((1, 9), 3), ((2, 2), 2), ((4, 9), None), ((0, 0), None)]
)
def test_version_negotiation(theirs, agreed):
    assert versions.negotiate(*theirs, our_min=1, our_max=3) == agreed


def test_what_is_said_about_all_tasks_fits_into_one_message():
    most = tuple(
        TaskExit(rank=U32_MAX - n, code=255, signal=64, exec_errno=133, ended_at=1796043910.5612996)
        for n in range(MOST_TASKS)
    )
    ended = ExitRecord(code=255, tasks=most, started_at=1796043910.5612996, ended_at=1796043910.5612996)
    epilog = EpilogRecord(ok=False, status=1, text="x" * 2000)
    pids = tuple(range(4_194_304 - MOST_TASKS, 4_194_304))  # as large as the kernel makes them
    request = control.decode_request(control.encode_request(7, control.QUERY, RID, {}))
    for body in (
        control.StartReply(task_pids=pids, exec_errnos=(133,) * MOST_TASKS),
        control.QueryReply(state="exited", exit=ended, exit_seq=9, epilog=epilog),
        control.WaitReply(exit=ended, exit_seq=9),
    ):
        framing.encode_message(control.encode_reply(request, body))
    framing.encode_message(notify.Notification(rid=RID, seq=9, exit=ended, epilog=epilog).to_json())
    assert (
        LaunchSpec.decode(LaunchSpec(rid=RID, tasks=tasks(MOST_TASKS)).encode()).tasks[-1].rank
        == MOST_TASKS - 1
    )
    with pytest.raises(BadDocument, match=f"{MOST_TASKS + 1} tasks; at most {MOST_TASKS}"):
        LaunchSpec.decode(LaunchSpec(rid=RID, tasks=tasks(MOST_TASKS + 1)).encode())


def tasks(count):
    return tuple(TaskSpec(rank=n, local_rank=n) for n in range(count))


def test_notification_and_answers():
    made = notify.Notification(rid=RID, seq=4, exit=ExitRecord(signal=9, oom=True))
    assert notify.Notification.from_json(json.loads(json.dumps(made.to_json()))) == made
    for answer in notify.ANSWERS:
        assert notify.decode_answer(notify.encode_answer(answer)) == answer
    assert notify.decode_answer({"answer": "whatever comes later"}) == notify.DEFERRED
    with pytest.raises(BadDocument):
        notify.decode_answer({})


def test_spawn_records():
    assert spawn.decode_records(spawn.pid_record(70_000)) == (70_000, 0)
    assert spawn.decode_records(spawn.pid_record(7) + spawn.error_record(2)) == (7, 2)
    assert spawn.decode_records(b"P\0") == (0, 0)
    with pytest.raises(BadDocument):
        spawn.decode_records(b"hello")


def test_records_are_frozen_values():
    one = ExitRecord(code=1)
    assert one == ExitRecord(code=1)
    assert hash(one) == hash(ExitRecord(code=1))
    assert one.replace(code=2).code == 2
    assert one != one.replace(code=2)
    with pytest.raises(AttributeError, match="frozen"):
        one.code = 3
    with pytest.raises(TypeError, match="no field"):
        ExitRecord(colour=1)
    with pytest.raises(TypeError, match="needs rid"):
        LaunchSpec()


def test_every_annotation_has_a_check():
    """A field of a kind that nobody checks would pass anything."""

    def subclasses(cls):
        for sub in cls.__subclasses__():
            yield sub
            yield from subclasses(sub)

    for cls in subclasses(Record):
        for name, kind in cls._kinds.items():
            with pytest.raises(BadDocument):
                cls.from_json({**dict.fromkeys(cls._kinds, None), name: object()})
            assert kind
