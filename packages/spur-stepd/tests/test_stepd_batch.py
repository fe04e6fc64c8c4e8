"""Batch jobs through their sockets, with real processes, both ways of starting a supervisor."""

import contextlib
import os
import signal
import socket
from pathlib import Path

import pytest

from spur_core.linux import procfs
from spur_proto_lite import control, framing, unixsock
from spur_proto_lite.control import Refused
from spur_proto_lite.descriptor import Descriptor

pytestmark = pytest.mark.node


def test_one_job_from_launch_to_acknowledgement(node):
    session = node.spawn(node.script('echo "out $SLURM_PROCID $SPUR_LOCALID $(pwd)"; echo err >&2; exit 3\n'))
    reply = session.start()
    assert reply.failure_kind == ""
    assert reply.stdout_path == reply.stderr_path == str(node.work / "slurm-7.out")
    ended = session.wait()
    assert (ended.exit.code, ended.exit.signal, ended.exit.oom) == (3, 0, False)
    assert ended.exit.started_at <= ended.exit.ended_at
    assert session.story().exit == ended.exit
    session.cleaned()
    session.ack(ended.exit_seq)
    assert session.events() == ["Prepared", "Started", "ExitObserved", "CleanupDone", "Acknowledged"]
    assert node.read("slurm-7.out") == f"out 0 0 {node.work}\nerr\n"
    assert os.listdir(node.paths.spool) == []


def test_descriptor_names_the_running_step(node, gate):
    session = node.spawn(node.script(f"read x < {gate.path}\n", cpus=2, memory_mb=100, gpu_ids=(1,)))
    before = Descriptor.decode(Path(session.paths.descriptor).read_bytes(), session.spec.rid)
    assert before.task_pid is None
    reply = session.start()
    after = Descriptor.decode(Path(session.paths.descriptor).read_bytes(), session.spec.rid)
    assert (after.stepd_pid, after.stepd_start_ticks) == (session.pid, session.ticks)
    assert (after.task_pid, after.pgid) == (reply.task_pid, reply.pgid)
    assert procfs.start_ticks(after.task_pid) == after.task_start_ticks
    assert (after.cpus, after.memory_mb, after.gpu_ids) == (2, 100, (1,))
    assert after.boot_id == procfs.boot_id()
    assert bool(after.cgroup) == (node.cgroup_root != "none")
    gate.open()
    session.ack(session.wait().exit_seq)


def test_structure_of_the_processes(node, gate):
    """3.3: nobody's child, a session of its own, the task in a group of its own with 0, 1, 2 only."""
    session = node.spawn(node.script(f"ls -l /proc/self/fd; read x < {gate.path}\n"))
    reply = session.start()
    me, task = procfs.stat(session.pid), procfs.stat(reply.task_pid)
    assert me.ppid != os.getpid()
    assert me.session == me.pgrp == session.pid
    with open(f"/proc/{session.pid}/comm") as file:
        assert file.read() == "stepd 7.batch\n"
    assert task.ppid == session.pid
    assert task.session == session.pid
    assert task.pgrp == reply.task_pid == reply.pgid
    gate.open()
    session.ack(session.wait().exit_seq)
    listed = [line.split(" -> ")[0].split()[-1] for line in node.read("slurm-7.out").splitlines()[1:]]
    assert listed == ["0", "1", "2", "3"]  # 3 is what ls reads


def test_no_python_between_supervisor_and_task(fast_node, gate):
    session = fast_node.spawn(fast_node.spec(argv=("cat", gate.path)))
    reply = session.start()
    assert Path(f"/proc/{reply.task_pid}/exe").resolve() == Path("/usr/bin/cat").resolve()
    assert Path(f"/proc/{reply.task_pid}/cmdline").read_bytes() == b"cat\0" + gate.path.encode() + b"\0"
    gate.open()
    session.ack(session.wait().exit_seq)


@pytest.mark.parametrize("name", ["TERM", "KILL", "USR1"])
def test_death_by_signal(fast_node, name):
    _, ended = fast_node.run(fast_node.script(f"kill -{name} $$\n"))
    assert (ended.code, ended.signal) == (0, getattr(signal, f"SIG{name}"))


def test_the_shebang_and_its_arguments_count(fast_node):
    spec = fast_node.spec(
        script="#!/usr/bin/env -S awk -f\r\nBEGIN { print ARGV[1] ARGV[2] }\n", script_args=("a b", "'")
    )
    _, ended = fast_node.run(spec)
    assert ended.code == 0
    assert fast_node.read("slurm-7.out") == "a b'\n"


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"script": "#!/no/such\n"}, 2, "slurm_script (interpreter /no/such): No such file or directory"),
        ({"script": "no shebang\n"}, 8, "Exec format error"),
        ({"argv": ("nosuch",)}, 2, "slurmstepd: error: execve(): nosuch: No such file or directory\n"),
        ({"argv": ("/etc/passwd",)}, 13, "execve(): /etc/passwd: Permission denied"),
        ({"argv": ("/",)}, 13, "Permission denied"),
        ({"argv": ("x",), "env": {"PATH": "/etc/passwd:/nowhere"}}, 2, "execve(): x: No such file"),
    ],
)
def test_programs_that_cannot_be_executed(fast_node, changes, code, text):
    """Slurm's way: the task ends with the errno, the user reads why."""
    session = fast_node.spawn(fast_node.spec(**changes))
    reply = session.start()
    assert reply.exec_errnos == (code,)
    ended = session.wait()
    assert ended.exit.code == code
    assert ended.exit.tasks[0].exec_errno == code
    assert text in fast_node.read("slurm-7.out")
    session.ack(ended.exit_seq)


def test_environment_is_complete_and_only_what_was_given(fast_node):
    spec = fast_node.spec(argv=("/usr/bin/env", "-0"), env={"A": "1", "B": "x\ny", "BYTES": "\udcff"})
    session, _ = fast_node.run(spec)
    raw = (fast_node.work / "slurm-7.out").read_bytes()
    found = dict(item.split(b"=", 1) for item in raw.split(b"\0") if item)
    pid = str(session.story() and found[b"SLURM_TASK_PID"].decode())
    assert pid.isdigit()
    names = {b"SLURM_PROCID", b"SLURM_LOCALID", b"SLURM_TASK_PID"}
    assert set(found) == names | {b"SPUR" + name[5:] for name in names} | {b"A", b"B", b"BYTES"}
    assert found[b"BYTES"] == b"\xff"


def test_umask_limits_and_signals_of_the_task(fast_node):
    body = "umask; ulimit -c; ulimit -n; grep -E 'Sig(Blk|Ign)|NoNewPrivs' /proc/self/status\n"
    limits = [{"name": "CORE", "soft": 0, "hard": 0}, {"name": "NOFILE", "soft": 77, "hard": 88}]
    document = fast_node.script(body, umask=0o027).to_json()
    spec = type(fast_node.spec()).from_json({**document, "rlimits": limits})
    fast_node.run(spec)
    lines = fast_node.read("slurm-7.out").split()
    assert lines[:3] == ["0027", "0", "77"]
    assert lines[3:] == ["NoNewPrivs:", "1", "SigBlk:", "0" * 16, "SigIgn:", "0" * 16] or lines[3:] == [
        "SigBlk:", "0" * 16, "SigIgn:", "0" * 16, "NoNewPrivs:", "1",
    ]  # fmt: skip
    assert (fast_node.work / "slurm-7.out").stat().st_mode & 0o777 == 0o640


def test_v01_another_identity_is_refused_and_changes_nothing(fast_node, gate):
    session = fast_node.spawn(fast_node.script(f"read x < {gate.path}\n"))
    session.start()
    for wrong in (
        session.spec.rid._replace(run_attempt=2),
        session.spec.rid._replace(run_attempt=0),
        session.spec.rid._replace(step_id=0),
        session.spec.rid._replace(job_id=8),
    ):
        client = session.client(rid=wrong)
        for act in (
            lambda client=client: client.signal(signal.SIGKILL),
            lambda client=client: client.teardown("cancelled", 0),
            client.suspend,
            client.hello,
            lambda client=client: client.call("nonsense"),
            lambda client=client: client.ack(3),
        ):
            with pytest.raises(Refused) as caught:
                act()
            assert caught.value.code == "identity_mismatch"
            assert caught.value.held == session.spec.rid
    assert session.client().query().state == "running"
    gate.open()
    assert session.wait().exit.code == 0


def test_requests_that_make_no_sense(fast_node, gate):
    session = fast_node.spawn(fast_node.script(f"read x < {gate.path}\n"))
    client = session.client()
    for op, args, code in (
        ("nonsense", {}, "bad_request"),
        ("signal", {"signal": 15}, "bad_state"),
        ("signal", {"signal": 0}, "bad_request"),
        ("signal", {"signal": "TERM"}, "bad_request"),
        ("signal", {"signal": 15, "scope": "moon"}, "bad_request"),
        ("suspend", {}, "bad_state"),
        ("ack", {"seq": 1}, "bad_state"),
        ("ack", {}, "bad_request"),
        ("wait", {"timeout": -1}, "bad_request"),
        ("attach", {"offsets": [[0, 9, 0]]}, "bad_request"),
        ("attach", {}, "bad_state"),
        ("update", {"cpu_ids": "all"}, "bad_request"),
    ):
        with pytest.raises(Refused) as caught:
            client.call(op, **args)
        assert caught.value.code == code, op
    assert client.hello().state == "ready"
    session.start()
    gate.open()
    session.ack(session.wait().exit_seq)


def test_no_request_ends_a_supervisor(fast_node, gate):
    """A wait without a time is one without end; and what a request breaks is its own answer."""
    session = fast_node.spawn(fast_node.script(f"read x < {gate.path}\n"))
    session.start()
    waiting = fast_node.keep(socket.socket(fileno=unixsock.connect(session.paths.control)))
    document = control.encode_request(5, "wait", session.spec.rid, {})
    waiting.sendall(framing.encode_message({**document, "timeout": None}))
    client = session.client()
    for op, args in (
        ("update", {"memory_mb": 10**40, "cpus": -(10**40), "cpu_ids": [10**40]}),
        ("teardown", {"grace": "x"}),
        ("exec", {"argv": ["x"], "rows": 10**40, "cols": -1, "pty": True}),
        ("attach", {"offsets": [[10**40, 1, 10**40]]}),
    ):
        with contextlib.suppress(Refused):
            client.call(op, **args)
        assert session.client().hello().state == "running"
    gate.open()
    session.ack(session.wait().exit_seq)
    assert "Traceback" not in session.log()


def test_a_version_that_nobody_speaks(fast_node):
    from testkit.supervisor_client import MessageStream

    session = fast_node.spawn(fast_node.script("true\n"))
    sock = fast_node.keep(socket.socket(fileno=unixsock.connect(session.paths.control)))
    sock.settimeout(10)
    stream = MessageStream(sock)
    stream.send(control.encode_request(1, "query", session.spec.rid, {}, v=99))
    with pytest.raises(Refused, match="99") as caught:
        control.decode_reply(stream.receive(), 1)
    assert caught.value.code == "version"
    stream.send(control.encode_request(2, "hello", session.spec.rid, {}, v=99))
    hello = control.decode_reply(stream.receive(), 2)
    assert (hello["min"], hello["max"]) == (1, 2)


def test_start_twice_starts_once(fast_node, gate):
    session = fast_node.spawn(fast_node.script(f"echo ran; read x < {gate.path}\n"))
    assert session.start() == session.start()
    gate.open()
    ended = session.wait()
    assert session.start().task_pid
    assert fast_node.read("slurm-7.out") == "ran\n"
    session.ack(ended.exit_seq)


def test_wait_times_out_and_is_served_later(fast_node, gate):
    session = fast_node.spawn(fast_node.script(f"read x < {gate.path}\n"))
    session.start()
    client = session.client()
    assert client.wait(0.01).exit is None
    gate.open()
    assert client.wait(20).exit.code == 0


def test_a_wrong_ack_is_refused(fast_node):
    session = fast_node.spawn(fast_node.script("true\n"))
    session.start()
    seq = session.wait().exit_seq
    with pytest.raises(Refused):
        session.client().ack(seq + 1)
    session.ack(seq)
    assert session.story().acknowledged
