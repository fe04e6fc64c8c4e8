"""Steps of several tasks, file patterns, spooled output and attached clients."""

import os
import signal
import threading
from pathlib import Path

import pytest

from spur_core.errors import Unreachable
from spur_proto_lite import framing, spool
from spur_proto_lite.control import Refused
from spur_proto_lite.exits import exit_of
from spur_proto_lite.launch_spec import TaskSpec

pytestmark = pytest.mark.node

TWO = (TaskSpec(rank=4, local_rank=0), TaskSpec(rank=5, local_rank=1, env={"EXTRA": "yes"}))


def sh(text):
    return ("/bin/sh", "-c", text)


def step(place, text, **changes):
    return place.spec(**{"step_id": 0, "argv": sh(text), "spool_output": True, **changes})


def collect(attached, credit=False):
    """Everything until the end: ((rank, stream) -> bytes, exit)."""
    attached.sock.settimeout(30)
    got = {}
    while True:
        frame = attached.receive()
        assert frame is not None, "the connection ended without an exit"
        if frame.kind == framing.EXIT:
            assert attached.receive() is None
            return {key: bytes(data) for key, data in got.items()}, exit_of(frame)
        chunk = framing.decode_data(frame.payload)
        data = got.setdefault((chunk.rank, frame.kind), bytearray())
        assert chunk.offset >= len(data)
        data += b"?" * (chunk.offset - len(data)) + chunk.data
        if credit:
            attached.credit(frame.kind, chunk.rank, chunk.offset + len(chunk.data))


@pytest.mark.parametrize(
    ("text", "code", "sig"),
    [
        ("exit $SLURM_PROCID", 5, 0),
        ("[ $SLURM_LOCALID = 0 ] || kill -9 $$", 137, 9),
        ("[ $SLURM_LOCALID = 0 ] && exit 200; kill -15 $$", 200, 0),
        ("true", 0, 0),
    ],
)
def test_the_exit_of_a_step_is_its_worst(fast_node, text, code, sig):
    _, ended = fast_node.run(step(fast_node, text, tasks=TWO))
    assert (ended.code, ended.signal) == (code, sig)
    assert [task.rank for task in ended.tasks] == [4, 5]


def test_tasks_have_their_numbers_their_files_and_one_group(fast_node):
    text = "echo $SLURM_PROCID $SPUR_LOCALID $EXTRA; ps -o pgid= -p $$ >&2"
    spec = step(
        fast_node,
        text,
        tasks=TWO,
        spool_output=False,
        stdout_pattern="o-%J-%t-%n-%N-%x-%r-%3a",
        stderr_pattern="e.%j",
        array_job_id=3,
        array_task_id=9,
        node="n1.dom.ain",
        node_id=6,
        restart_count=2,
        job_name="a/b",
    )
    session = fast_node.spawn(spec)
    reply = session.start()
    assert reply.stdout_path == f"{fast_node.work}/o-7.0-4-6-n1-a_b-2-009"
    assert len(reply.task_pids) == 2
    session.ack(session.wait().exit_seq)
    assert fast_node.read("o-7.0-4-6-n1-a_b-2-009") == "4 0\n"
    assert fast_node.read("o-7.0-5-6-n1-a_b-2-009") == "5 1 yes\n"
    assert set(fast_node.read("e.7").split()) == {str(reply.pgid)}


def test_default_names_and_modes(fast_node):
    (fast_node.work / "slurm-3_9.out").write_text("old\n")
    os.chmod(fast_node.work / "slurm-3_9.out", 0o666)
    array = {"array_job_id": 3, "array_task_id": 9}
    fast_node.run(fast_node.script("echo one\n", open_mode="append", **array))
    assert fast_node.read("slurm-3_9.out") == "old\none\n"
    fast_node.run(fast_node.script("echo two\n", attempt=2, **array))
    assert fast_node.read("slurm-3_9.out") == "two\n"


def test_input_files(fast_node):
    (fast_node.work / "in-7").write_text("hello\n")
    os.chmod(fast_node.work / "in-7", 0o644)
    fast_node.run(fast_node.script("cat; echo end\n", stdin_pattern="in-%j"))
    assert fast_node.read("slurm-7.out") == "hello\nend\n"
    fast_node.run(fast_node.script("cat; echo end\n", attempt=2))
    assert fast_node.read("slurm-7.out") == "end\n"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"stdout_pattern": "none/x"}, "cannot open the output .*/none/x: No such file or directory"),
        ({"stdout_pattern": "/proc/version"}, "Permission denied"),
        ({"stderr_pattern": "."}, "Is a directory"),
        ({"stdin_pattern": "missing"}, "cannot open the input .*missing: No such file"),
        ({"stdin_pattern": "x", "stdout_pattern": "x"}, "read and written at the same time"),
    ],
)
def test_files_that_cannot_be_opened(fast_node, changes, word):
    """The job's own fault, before anything of the user's has run, and nothing is left."""
    session = fast_node.spawn(fast_node.script("touch ran\n", **changes))
    reply = session.start()
    assert reply.failure_kind == "io"
    import re

    assert re.search(word, reply.text), reply.text
    session.gone()
    assert session.events() == ["Prepared", "Abandoned"]
    assert session.story().abandoned
    assert not (fast_node.work / "ran").exists()
    assert not (fast_node.work / "none").exists()
    assert os.listdir(fast_node.paths.spool) == []
    assert not [path for path in groups(fast_node) if path.exists()]


def groups(node):
    return [path / "job_7.1" for path in Path("/sys/fs/cgroup").glob(f"*/{node.cgroup_root}")]


@pytest.mark.parametrize(
    ("changes", "kind", "word"),
    [
        ({"script": ""}, "job", "neither a script nor a program"),
        ({"label": True}, "job", "spool_output"),
        ({"open_mode": "sideways"}, "job", "sideways"),
        ({"env": {"A=B": "x"}}, "job", "A=B"),
        ({"script_args": ("a\0b",)}, "job", "zero byte"),
    ],
)
def test_specs_that_are_refused(fast_node, changes, kind, word):
    session = fast_node.spawn(fast_node.spec(**{"script": "#!/bin/sh\n", **changes}))
    reply = session.start()
    assert (reply.failure_kind, word in reply.text) == (kind, True)
    session.gone()


def test_spooled_output_reaches_whoever_attaches(fast_node, gate):
    spec = step(fast_node, f"echo out; echo err >&2; read x < {gate.path}; echo $x more", tasks=TWO[:1])
    session = fast_node.spawn(spec)
    attached = session.client().attach()
    assert session.start().stdout_path == ""
    gate.open()
    got, ended = collect(attached)
    assert got == {(4, framing.DATA_OUT): b"out\nmore\n", (4, framing.DATA_ERR): b"err\n"}
    assert ended.code == 0
    assert spool.read_from(session.paths.dir, framing.DATA_OUT, 4, 0) == (0, b"out\nmore\n")
    late, _ = collect(session.client().attach(((4, framing.DATA_OUT, 4), (4, framing.DATA_ERR, 99))))
    assert late == {(4, framing.DATA_OUT): b"????more\n"}
    session.ack(session.wait().exit_seq)


def test_attach_resumes_from_an_offset(fast_node, gate):
    session = fast_node.spawn(step(fast_node, f"printf 12345; read x < {gate.path}; printf 67890"))
    session.start()
    first = session.client().attach()
    chunk = framing.decode_data(first.receive().payload)
    assert (chunk.offset, chunk.data) == (0, b"12345")
    first.close()
    second = session.client().attach(((0, framing.DATA_OUT, 3),))
    chunk = framing.decode_data(second.receive().payload)
    assert (chunk.offset, chunk.data) == (3, b"45")
    gate.open()
    got, _ = collect(second)
    assert got == {(0, framing.DATA_OUT): b"?????67890"}
    session.ack(session.wait().exit_seq)


def test_a_long_stream_is_bounded_and_lossless(fast_node):
    """20 MiB through a spool of 1 MiB: the task waits for credit, nothing is lost, segments go."""
    size = 20 << 20
    text = f"head -c {size} /dev/zero | tr '\\0' 'x'; echo end"
    session = fast_node.spawn(step(fast_node, text, spool_limit=1 << 20))
    session.start()
    idle = session.client()
    with pytest.raises(Unreachable):
        session.client(timeout=0.3).call("wait", timeout=20)  # nobody takes anything: it cannot end
    assert idle.query().state == "running"
    kept = sum(
        os.path.getsize(f"{session.paths.dir}/{spool.segment_name(s)}")
        for s in spool.segments(session.paths.dir)
    )
    assert kept == 1 << 20
    got, ended = collect(session.client().attach(), credit=True)
    assert got[0, framing.DATA_OUT] == b"x" * size + b"end\n"
    assert ended.code == 0
    assert len(spool.segments(session.paths.dir)) <= 5
    session.ack(session.wait().exit_seq)


def test_input_reaches_every_task(fast_node):
    session = fast_node.spawn(step(fast_node, "cat; echo done", tasks=TWO))
    attached = session.client().attach(stdin=True)
    attached.send(framing.encode_frame(framing.STDIN, b"before\n"))
    session.start()
    attached.send(framing.encode_frame(framing.STDIN, b"after\n"))
    with pytest.raises(Refused, match="another client") as caught:
        session.client().attach(stdin=True)
    assert caught.value.code == "bad_state"
    attached.send(framing.encode_frame(framing.STDIN_EOF))
    got, ended = collect(attached)
    assert got == {(rank, framing.DATA_OUT): b"before\nafter\ndone\n" for rank in (4, 5)}
    assert ended.code == 0
    session.ack(session.wait().exit_seq)


def test_much_input_through_a_small_spool(fast_node):
    """8 MiB in and out at once, with a spool of 1 MiB: neither side may wait for the other for ever."""
    size = 8 << 20
    session = fast_node.spawn(step(fast_node, "head -c 2000000 /dev/zero; exec cat", spool_limit=1 << 20))
    attached = session.client().attach(stdin=True)
    attached.sock.settimeout(30)
    session.start()
    one_at_a_time, send = threading.Lock(), attached.send

    def send_whole(frame):
        with one_at_a_time:
            send(frame)

    attached.send = send_whole

    def feed():
        for _ in range(size >> 16):
            attached.send(framing.encode_frame(framing.STDIN, b"y" * (1 << 16)))
        attached.send(framing.encode_frame(framing.STDIN_EOF))

    feeder = threading.Thread(target=feed)
    feeder.start()
    got, ended = collect(attached, credit=True)
    feeder.join()
    assert got[0, framing.DATA_OUT] == b"\0" * 2_000_000 + b"y" * size
    assert ended.code == 0
    session.ack(session.wait().exit_seq)


def test_signals_over_the_attached_channel(fast_node):
    session = fast_node.spawn(
        step(fast_node, "trap 'echo got; exit 4' USR1; echo up; while :; do sleep 0.01; done")
    )
    session.start()
    attached = session.client().attach()
    assert framing.decode_data(attached.receive().payload).data == b"up\n"
    attached.send(framing.encode_signal(signal.SIGUSR1))
    got, ended = collect(attached)
    assert (got[0, framing.DATA_OUT], ended.code) == (b"???got\n", 4)
    session.ack(session.wait().exit_seq)


def test_a_missing_program_of_srun(fast_node):
    session = fast_node.spawn(step(fast_node, "", argv=("nosuch", "x")))
    session.start()
    got, ended = collect(session.client().attach())
    line = b"slurmstepd: error: execve(): nosuch: No such file or directory\n"
    assert got == {(0, framing.DATA_ERR): line}
    assert ended.code == 2
    session.ack(session.wait().exit_seq)


def test_a_stranger_who_keeps_the_pipe_does_not_hold_the_end_up(fast_node, gate):
    """Output ends with the step even when somebody outside of it has its pipe open."""
    session = fast_node.spawn(step(fast_node, f"echo hi; read x < {gate.path}"))
    reply = session.start()
    attached = session.client().attach()
    assert framing.decode_data(attached.receive().payload).data == b"hi\n"
    holder = os.open(f"/proc/{reply.task_pid}/fd/1", os.O_WRONLY)
    try:
        gate.open()
        _, ended = collect(attached)
        assert ended.code == 0
    finally:
        os.close(holder)
    session.ack(session.wait().exit_seq)


@pytest.mark.parametrize("step_id", [0xFFFFFFF1, 0xFFFFFFFD, 0xFFFFFFFE, 0xFFFFFFFF])
def test_numbers_that_are_no_steps_are_refused(fast_node, step_id):
    session = fast_node.prepare(fast_node.spec(step_id=step_id, argv=("true",)))
    _, _, number = fast_node.raw_spawn(session.paths.dir)
    assert number
    assert "there is no step of that number" in session.log()
