"""Commands inside a step: its context, their streams and ends, and that the step does not notice."""

import contextlib
import os
import random
import re
import signal
import socket
from pathlib import Path

import pytest

from spur_core.ids import STEP_EXTERN
from spur_core.linux import cgroup, procfs
from spur_proto_lite import control, framing, unixsock
from spur_proto_lite.control import Refused
from spur_proto_lite.exits import exit_of
from spur_proto_lite.launch_spec import HookSpec, RlimitSpec

pytestmark = pytest.mark.node

OUT, ERR = framing.DATA_OUT, framing.DATA_ERR
ROOT = os.geteuid() == 0


@pytest.fixture(params=["batch", "hold"])
def running(request, fast_node, gate):
    """A step that runs until its gate opens, or until it is torn down."""
    if request.param == "hold":
        return begin(fast_node.spec(step_id=STEP_EXTERN, hold=True), fast_node)
    return begin(fast_node.script(f"read x < {gate.path}; exit 3\n"), fast_node)


def begin(spec, place):
    session = place.spawn(spec)
    assert session.start().failure_kind == ""
    return session


def finish(session, gate=None):
    """End the step; its exit."""
    if gate is not None:
        gate.open()
    else:
        session.client().teardown("cancelled", 0.0)
    ended = session.wait()
    session.ack(ended.exit_seq)
    assert "Traceback" not in session.log()
    return ended.exit


class Run:
    """One command and what has come of it."""

    def __init__(self, session, *argv, timeout=30.0, **options):
        self.channel = session.client().execute(argv, **options)
        self.channel.sock.settimeout(timeout)
        self.out = {OUT: bytearray(), ERR: bytearray()}
        self.exit = None

    @property
    def pid(self):
        return self.channel.pid

    def take(self):
        frame = self.channel.receive()
        if frame is None:
            return False
        if frame.kind in self.out:
            rank, offset, data = framing.decode_data(frame.payload)
            assert (rank, offset) == (0, len(self.out[frame.kind]))
            self.out[frame.kind] += data
        elif frame.kind == framing.EXIT:
            self.exit = exit_of(frame)
        return True

    def until(self, pattern, stream=OUT):
        while not (found := re.search(pattern, self.out[stream])):
            assert self.take(), f"ended before {pattern!r}: {self.out}"
        return found

    def end(self):
        while self.take():
            pass
        assert self.exit is not None, "the connection ended without an exit"
        return self.exit


def sh(session, text, **options):
    return Run(session, "/bin/sh", "-c", text, **options)


def dead(pid):
    return procfs.start_ticks(pid) is None


# -- context ---------------------------------------------------------------------------------------


def test_a_command_is_where_the_step_is(fast_node, gate):
    """Groups, rights, limits, environment, directory, mask; and nothing open but its three streams."""
    spec = fast_node.script(
        f"read x < {gate.path}; exit 3\n",
        env={"PATH": "/usr/bin:/bin", "FROM": "step", "BOTH": "step"},
        groups=(4, 5) if ROOT else (),
        rlimits=(RlimitSpec(name="NOFILE", soft=77, hard=99),),
        umask=0o037,
        task_prolog=HookSpec(paths=("/nonexistent",)),
    )
    session = fast_node.spawn(spec.replace(task_prolog=HookSpec()))
    reply = session.start()
    text = (
        "cat /proc/self/status | grep -E '^(Uid|Gid|Groups|NoNewPrivs)'; ulimit -n; umask; pwd;"
        "echo $FROM $BOTH $OVER; ls /proc/self/fd | xargs; cat /proc/self/cgroup;"
        "ps -o pgid=,sid= -p $$; echo $$"
    )
    run = sh(session, text, env={"BOTH": "exec", "OVER": "lay"})
    assert run.end().code == 0
    lines = [line.split() for line in run.out[OUT].decode().splitlines()]
    uid, gid = str(spec.uid), str(spec.gid)
    assert lines[0] == ["Uid:", *[uid] * 4]
    assert lines[1] == ["Gid:", *[gid] * 4]
    if ROOT:
        assert set(lines[2][1:]) == {"4", "5", gid}
    assert lines[3] == ["NoNewPrivs:", "1"]
    assert lines[4:8] == [["77"], ["0037"], [str(fast_node.work)], ["step", "exec", "lay"]]
    assert lines[8] == ["0", "1", "2", "3"]  # the last one is that of `ls` itself
    joined = " ".join(" ".join(line) for line in lines[9:-2])
    for directory in reply.cgroup:
        assert directory.split(f"/{fast_node.cgroup_root}/")[1] in joined
    assert lines[-2] == [lines[-1][0]] * 2 == [str(run.pid)] * 2
    assert finish(session, gate).code == 3


def test_the_directory(running, fast_node):
    (fast_node.work / "below").mkdir()
    run = Run(running, "pwd", work_dir=str(fast_node.work / "below"))
    assert run.end().code == 0
    assert run.out[OUT].decode() == f"{fast_node.work}/below\n"
    client = running.client()
    with pytest.raises(Refused, match="cannot enter /nonexistent: No such file") as caught:
        client.execute(("pwd",), work_dir="/nonexistent")
    assert caught.value.code == control.BAD_REQUEST
    assert client.query().state == "running"  # the connection speaks messages again
    finish(running)


# -- ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "number"),
    [("exit 0", 0, 0), ("exit 200", 200, 0), ("kill -9 $$", 0, 9), ("kill -15 $$", 0, 15)],
)
def test_the_end_of_a_command_is_its_own(running, text, code, number):
    run = sh(running, f"echo out; echo err >&2; {text}")
    ended = run.end()
    assert (ended.code, ended.signal, len(ended.tasks)) == (code, number, 1)
    assert ended.shell_code == (128 + number if number else code)
    assert run.out == {OUT: b"out\n", ERR: b"err\n"}
    finish(running)


@pytest.mark.parametrize(
    ("program", "mode", "code", "word"),
    [
        ("nosuch", None, 127, "No such file or directory"),
        ("./none", None, 127, "No such file or directory"),
        ("./file/below", 0o755, 127, "No such file or directory"),
        ("./file", 0o644, 126, "Permission denied"),
        ("./file", 0o755, 126, "Exec format error"),
    ],
)
def test_what_cannot_be_executed(running, fast_node, program, mode, code, word):
    """As a shell reports it: 127 for what is not there, 126 for what cannot be run."""
    if mode is not None:
        (fast_node.work / "file").write_bytes(b"\0nothing")
        (fast_node.work / "file").chmod(mode)
    run = Run(running, program, "x")
    assert run.end().code == code
    assert run.out[ERR].decode() == f"slurmstepd: error: execve(): {program}: {word}\n"
    finish(running)


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ({}, "argv"),
        ({"argv": []}, "a command is needed"),
        ({"argv": [""]}, "a command is needed"),
        ({"argv": ["a\0b"]}, "zero byte"),
        ({"argv": ["true"], "env": {"A=B": "x"}}, "A=B"),
        ({"argv": ["true"], "env": {"A": 3}}, "env"),
        ({"argv": ["true"], "work_dir": "a\0"}, "zero byte"),
        ({"argv": ["true"], "pty": "yes"}, "pty"),
    ],
)
def test_malformed_commands_are_refused(fast_node, args, word):
    session = begin(fast_node.spec(step_id=STEP_EXTERN, hold=True), fast_node)
    client = session.client()
    with pytest.raises(Refused, match=word) as caught:
        client.call(control.EXEC, 2, **args)
    assert caught.value.code == control.BAD_REQUEST
    with pytest.raises(Refused, match="protocol 2"):
        client.call(control.EXEC, 1, argv=["true"])
    finish(session)


def test_no_command_before_the_start_nor_after_the_end_nor_in_between(fast_node, gate):
    session = fast_node.spawn(fast_node.script(f"read x < {gate.path}\n"))
    for state in ("ready", "suspended", "exited"):
        if state == "suspended":
            session.start()
            session.client().suspend()
        elif state == "exited":
            session.client().resume()
            gate.open()
            session.wait()
            session.cleaned()
        with pytest.raises(Refused, match=state) as caught:
            session.client().execute(("true",))
        assert caught.value.code == control.BAD_STATE
    session.ack(session.wait().exit_seq)


# -- streams ---------------------------------------------------------------------------------------


def test_streams_of_a_command_both_ways(running):
    """8 MiB through `cat` with a client that takes and gives at its own pace."""
    data = random.Random(1).randbytes(8 << 20)
    run = Run(running, "cat")
    run.channel.write(data)
    run.channel.write_eof()
    assert run.end().code == 0
    assert run.out[OUT] == data
    finish(running)


def test_a_client_that_does_not_read_makes_its_command_wait(running):
    run = sh(running, "head -c 20000000 /dev/zero; echo end >&2")
    size = 0
    for _ in range(3):
        # Others are served meanwhile.
        assert sh(running, "echo quick").end().code == 0
        size = int(Path(f"/proc/{running.pid}/statm").read_text().split()[1]) * 4096
    assert not dead(run.pid)
    assert size < 64 << 20
    assert run.end().code == 0
    assert len(run.out[OUT]) == 20_000_000
    finish(running)


def test_a_command_that_reads_nothing_makes_its_client_wait(running, fast_node, gate):
    fifo = f"{fast_node.work}/fifo"
    os.mkfifo(fifo, 0o666)
    os.chmod(fifo, 0o666)
    run = sh(running, f"read x < {fifo}; wc -c")
    run.channel.write(b"z" * (8 << 20))
    run.channel.write_eof()
    run.channel.sock.settimeout(0.3)
    with contextlib.suppress(Exception):
        while run.take():
            pass
    assert run.channel.source.confirmed < 2 * framing.STDIN_WINDOW
    run.channel.sock.settimeout(30)
    Path(fifo).write_text("\n")
    assert run.end().code == 0
    assert int(run.out[OUT]) == 8 << 20
    finish(running)


def test_a_command_that_ignores_its_input(running):
    run = sh(running, "exec <&-; echo closed; sleep 0.1; exit 6")
    run.until(b"closed")
    run.channel.write(b"z" * (4 << 20))
    assert run.end().code == 6
    finish(running)


def test_signals_go_to_the_commands_group(running, fast_node):
    run = sh(running, "sh -c \"trap 'echo child' TERM; echo up; while :; do sleep 0.02; done\"; exit 4")
    run.until(b"up\n")
    run.channel.signal(signal.SIGTERM)
    ended = run.end()
    assert ended.signal == 15
    finish(running)


def test_a_command_at_a_terminal(running):
    run = Run(
        running, "/bin/bash", "--norc", "-i", pty=True, rows=31, cols=77, env={"PS1": "$ ", "TERM": "dumb"}
    )
    assert run.channel.pty
    run.until(rb"\$ $")
    run.channel.write(b"stty size; tty; echo $$\n")
    run.until(rb"31 77\r\n/dev/pts/\d+\r\n(\d+)\r\n")
    run.channel.resize(41, 87)
    run.channel.write(b"stty size\n")
    run.until(rb"41 87\r\n")
    run.channel.write(b"sh -c 'echo fg; exec sleep 1000'\n")
    run.until(rb"\nfg\r\n")
    run.channel.signal(signal.SIGINT)
    run.channel.write(b"echo st=$?\n")
    run.until(rb"\nst=130\r\n")
    run.channel.write(b"sh -c 'echo again; exec sleep 1000'\n")
    run.until(rb"\nagain\r\n")
    run.channel.write(b"\x03")
    run.channel.write_eof()
    ended = run.end()
    assert ended.code == 130
    assert run.out[ERR] == b""
    finish(running)


def test_all_output_comes_before_the_exit(running):
    for pty in (False, True) * 8:
        run = sh(running, "[ -t 1 ] && stty -opost; head -c 150000 /dev/zero; echo end", pty=pty)
        assert run.end().code == 0
        assert run.out[OUT] == b"\0" * 150_000 + b"end\n"
    finish(running)


# -- nothing stays ---------------------------------------------------------------------------------


def test_what_a_command_has_left_ends_with_it(running):
    """In the background, and in a session of its own."""
    run = sh(running, "sleep 1000 & echo $!; setsid sh -c 'echo $$; exec sleep 1000' & sleep 0.2; exit 2")
    found = run.until(rb"(\d+)\n(\d+)\n").groups()
    assert run.end().code == 2
    assert all(dead(int(pid)) for pid in found)
    assert running.client().query().state == "running"
    finish(running)


@pytest.mark.parametrize("pty", [False, True])
def test_a_command_dies_with_its_connection(running, until, pty):
    text = "trap '' HUP; sleep 1000 & echo $!; setsid sh -c 'echo $$; exec sleep 1000' & echo $$; wait"
    run = sh(running, text, pty=pty)
    found = [int(pid) for pid in run.until(rb"(\d+)\r?\n(\d+)\r?\n(\d+)\r?\n").groups()]
    assert run.pid in found
    run.channel.close()
    until(lambda: all(dead(pid) for pid in found), what="the end of the command")
    assert running.client().query().state == "running"
    finish(running)


def test_a_command_hears_that_its_client_is_gone(running, fast_node, until):
    run = sh(running, "trap 'echo heard > heard; exit' HUP; echo up; while :; do sleep 0.02; done")
    run.until(b"up\n")
    run.channel.close()
    until(lambda: (fast_node.work / "heard").exists() and fast_node.read("heard"), what="the hang-up")
    until(lambda: dead(run.pid), what="the end of the command")
    finish(running)


@pytest.mark.parametrize("way", ["end", "teardown"])
def test_a_command_dies_with_its_step(fast_node, gate, way):
    session = begin(fast_node.script(f"read x < {gate.path}; exit 3\n"), fast_node)
    runs = [sh(session, "echo up; exec sleep 1000") for _ in range(3)]
    for run in runs:
        run.until(b"up\n")
    if way == "end":
        gate.open()
    else:
        session.client().teardown("cancelled", 0.0)
    for run in runs:
        ended = run.end()
        assert ended.signal == 9
        assert dead(run.pid)
    ended = session.wait()
    session.cleaned()
    assert (ended.exit.code, ended.exit.signal) == ((3, 0) if way == "end" else (0, 9))
    assert len(ended.exit.tasks) == 1
    for directory in session.start().cgroup:
        assert not os.path.exists(directory)
    session.ack(ended.exit_seq)


def test_the_exit_of_a_step_knows_nothing_of_commands(fast_node, gate):
    session = begin(fast_node.script(f"read x < {gate.path}; exit 3\n"), fast_node)
    assert sh(session, "exit 9").end().code == 9
    assert sh(session, "kill -9 $$").end().signal == 9
    assert session.client().query().exit is None
    assert session.events() == ["Prepared", "Started"]
    ended = finish(session, gate)
    assert (ended.code, ended.signal, [task.code for task in ended.tasks]) == (3, 0, [3])


def open_files(session):
    """How many descriptors the supervisor has; only root may look."""
    return len(os.listdir(f"/proc/{session.pid}/fd")) if ROOT else 0


def test_many_commands_at_once(running):
    """As many as are allowed, each with its own streams; one more is told so."""
    runs = [sh(running, "read x; echo got $x") for _ in range(64)]
    with pytest.raises(Refused, match="64 commands") as caught:
        running.client().execute(("true",))
    assert caught.value.code == control.BAD_STATE
    for number, run in enumerate(runs):
        run.channel.write(b"%d\n" % number)
    for number, run in enumerate(runs):
        assert run.end().code == 0
        assert run.out[OUT] == b"got %d\n" % number
        run.channel.close()
    before = open_files(running)
    for _ in range(20):
        run = sh(running, "true", pty=True)
        run.end()
        run.channel.close()
    assert sh(running, "echo ok").end().code == 0
    assert open_files(running) <= before + 2
    groups = [g for g in running.start().cgroup if os.path.exists(f"{g}/cgroup.events")]
    assert not [entry for group in groups for entry in os.listdir(group) if entry.startswith("exec_")]
    finish(running)


def test_a_stranger_who_keeps_the_pipe_does_not_hold_the_end_up(running):
    run = sh(running, "echo up; read x; exit 1")
    run.until(b"up\n")
    holder = os.open(f"/proc/{run.pid}/fd/1", os.O_WRONLY)
    try:
        run.channel.write(b"\n")
        assert run.end().code == 1
    finally:
        os.close(holder)
    finish(running)


@pytest.mark.parametrize("hold", [False, True], ids=["batch", "hold"])
def test_processes_of_a_command_are_the_steps(fast_node, gate, until, hold):
    """A signal to the step reaches them, and they count.

    The script ignores the signal: its end would have the command killed, perhaps before the command
    has seen the signal that both were sent.
    """
    spec = fast_node.script(f"trap '' TERM\n: > up\nread x < {gate.path}; exit 3\n")
    if hold:
        spec = fast_node.spec(step_id=STEP_EXTERN, hold=True)
    running = begin(spec, fast_node)
    run = sh(running, "echo up; exec sleep 1000")
    run.until(b"up\n")
    client = running.client()
    assert client.query().pids >= 1
    reply = running.start()
    if reply.cgroup:
        assert run.pid in cgroup.procs(reply.cgroup)
    if not hold:
        until((fast_node.work / "up").exists, what="the script's trap")
    client.suspend()
    client.resume()
    client.signal(signal.SIGTERM)
    assert run.end().signal == 15
    finish(running)


def test_a_client_that_leaves_before_its_answer(running, until):
    """What it has asked for ends, whenever that is."""
    for _ in range(20):
        sock = socket.socket(fileno=unixsock.connect(running.paths.control))
        args = {"argv": ["/bin/sh", "-c", "trap '' HUP; exec sleep 987654"]}
        request = control.encode_request(1, control.EXEC, running.spec.rid, args, 2)
        sock.sendall(framing.encode_message(request))
        sock.close()
    pids = 0 if running.spec.hold else 1
    until(lambda: running.client().query().pids == pids, what="the end of the commands")
    finish(running)


def test_frames_may_come_before_the_answer(running):
    with socket.socket(fileno=unixsock.connect(running.paths.control)) as sock:
        sock.settimeout(20)
        request = control.encode_request(1, control.EXEC, running.spec.rid, {"argv": ["cat"]}, 2)
        early = framing.encode_stdin(0, b"early\n") + framing.encode_stdin_eof(6)
        sock.sendall(framing.encode_message(request) + early)
        got = b""
        while data := sock.recv(4096):
            got += data
    assert b'"ok":true' in got
    assert b"early\n" in got
    finish(running)
