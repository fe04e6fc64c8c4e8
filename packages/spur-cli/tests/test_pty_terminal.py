"""Commands on a real pseudo terminal against a scripted agent: keys, sizes, and the terminal put back."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from queue import SimpleQueue

import grpc
import pytest

from spur_cli.step.link_notices import LinkNotices
from spur_proto import agent_pb2 as ag
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

OUT = ag.OUTPUT_STREAM_STDOUT
#: The command of `words` on the terminal that is its stdin; `setsid` makes that its controlling terminal.
_LAUNCH = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from spur_cli.fast import main
main(sys.argv[1], sys.argv[2:])
"""

#: Some other program in its place.
_LAUNCH_PROGRAM = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class OnTerminal:
    """A command on a pseudo terminal of its own; the test holds the other side."""

    def __init__(self, address, folder, *words, rows=31, cols=97, launch=_LAUNCH, stdout=None):
        self.master, self.slave = os.openpty()
        termios.tcsetwinsize(self.master, (rows, cols))
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "TERM": "xterm-test",
            "SPUR_CONTROLLER_ADDR": address,
            "GRPC_ENABLE_FORK_SUPPORT": "0",
        }
        self.child = subprocess.Popen(
            [sys.executable, "-c", launch, *words],
            env=env,
            cwd=folder,
            stdin=self.slave,
            stdout=self.slave if stdout is None else stdout,
            stderr=self.slave,
        )

    def type(self, data):
        os.write(self.master, data)

    def read_until(self, pattern, secs=20):
        """Everything up to the match, which is taken off."""
        deadline = time.monotonic() + secs
        while not (match := re.search(pattern, self.seen)):
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.seen!r}"
            if select.select([self.master], [], [], left)[0]:
                self.seen += os.read(self.master, 1 << 16)
        self.seen, taken = self.seen[match.end() :], self.seen[: match.end()]
        return taken

    def wait(self, secs=20):
        """The exit code; what is printed meanwhile stays in `seen`."""
        deadline = time.monotonic() + secs
        while self.child.poll() is None:
            assert time.monotonic() < deadline, f"still there: {self.seen!r}"
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 1 << 16)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 1 << 16)
        return self.child.returncode

    @property
    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def is_as_before(self):
        return termios.tcgetattr(self.slave) == self.before

    def until(self, condition, secs=20):
        deadline = time.monotonic() + secs
        while not condition():
            assert time.monotonic() < deadline
            if select.select([self.master], [], [], 0.02)[0]:
                self.seen += os.read(self.master, 1 << 16)

    def close(self):
        if self.child.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(os.tcgetpgrp(self.master), signal.SIGKILL)
            self.child.kill()
        self.child.wait()
        os.close(self.master)
        os.close(self.slave)


def output(data, offset=0):
    return ag.InteractiveSessionResponse(output=ag.OutputChunk(rank=0, stream=OUT, offset=offset, data=data))


def ready(offset=0, *, writer=True):
    return ag.InteractiveSessionResponse(ready=ag.SessionReady(stdin_offset=offset, writer=writer, pty=True))


def ended(**how):
    status = c.ExitStatus(**how)
    return ag.InteractiveSessionResponse(exit=ag.StepExit(ranks=[ag.RankExit(rank=0, exit=status)]))


class Remote:
    """A scripted job 31 whose step 0 has a terminal; the test says what that prints and sees what it gets."""

    def __init__(self, peer):
        self.peer = peer
        self.say = SimpleQueue()
        self.got = b""
        self.end_of_input = threading.Event()
        self.windows = SimpleQueue()
        self.signals = SimpleQueue()
        self.inits = []
        self.writer = True
        self.refusal = None
        self.refused = threading.Event()
        self.at = 0
        job = c.JobInfo(job_id=31, run_attempt=2, state=c.JOB_STATE_RUNNING, num_tasks=1, start_at=1.0)
        job.slices.append(c.NodeSlice(node="n1", ranks=[0]))
        nodes = [pb.NodeAddress(node="n1", address=peer.address)]
        step = c.StepInfo(state=c.JOB_STATE_RUNNING, num_tasks=1, nodelist="n1", slices=job.slices)
        step.rid.job_id, step.rid.run_attempt, step.rid.step_id = 31, 2, 0
        self.held = threading.Event()
        peer.answers.update(
            SubmitJob=pb.SubmitJobResponse(job_id=31),
            CancelJob=pb.CancelJobResponse(),
            WatchJob=lambda _: self._watch(pb.WatchJobResponse(job=job, nodes=nodes)),
            WatchStep=lambda _: self._watch(pb.WatchStepResponse(step=step, nodes=nodes)),
            InteractiveSession=self.talk,
        )

    def _watch(self, first):
        yield first
        self.held.wait(60)

    def answer_next_with(self, refusal):
        """Sessions are refused from now on; None = they are served again."""
        self.refusal = refusal

    def break_off(self):
        """End the session that stands."""
        self.say.put(None)

    def talk(self, requests):
        if self.refusal is not None:
            self.refused.set()
            raise self.refusal
        self.inits.append(next(requests).init)
        yield ready(len(self.got), writer=self.writer)
        threading.Thread(target=self._take, args=(requests,), daemon=True).start()
        while True:
            what = self.say.get()
            if what is None:
                raise self.refusal
            if isinstance(what, bytes):
                yield output(what, self.at)
                self.at += len(what)
            else:
                yield what
                if what.WhichOneof("kind") == "exit":
                    return

    def _take(self, requests):
        try:
            for request in requests:
                kind = request.WhichOneof("kind")
                if kind == "stdin":
                    self.got += request.stdin[len(self.got) - request.stdin_offset :]
                    self.say.put(ag.InteractiveSessionResponse(stdin_accepted=len(self.got)))
                elif kind == "stdin_eof":
                    self.end_of_input.set()
                elif kind == "resize":
                    self.windows.put((request.resize.rows, request.resize.cols))
                elif kind == "signal":
                    self.signals.put(request.signal)
        except grpc.RpcError:
            return


@pytest.fixture
def remote(peer):
    made = Remote(peer)
    yield made
    made.held.set()
    made.say.put(ended())


@pytest.fixture
def on_terminal(peer, tmp_path):
    made = []

    def make(*words, **how):
        made.append(OnTerminal(peer.address, tmp_path, *words, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


def begin(on_terminal, remote, *words, **how):
    """Start it and wait until the remote side's first words are here."""
    here = on_terminal(*words, **how)
    remote.say.put(b"$ ")
    here.read_until(rb"\$ ")
    here.until(lambda: here.is_raw)
    return here


def test_a_shell_with_a_terminal(on_terminal, remote):
    """Size at the start, keys as bytes (those of signals too), output untouched, code, terminal back."""
    here = begin(on_terminal, remote, "srun", "--pty", "sh")
    step = remote.peer.last("SubmitJob").spec.step
    assert (step.pty, step.pty_rows, step.pty_cols) == (True, 31, 97)
    assert (remote.inits[0].window.rows, remote.inits[0].window.cols) == (31, 97)
    here.type(b"ls\r\x03\x1a\x1c\x04\xff\x00\x11\x13")
    here.until(lambda: len(remote.got) == 11)
    assert remote.got == b"ls\r\x03\x1a\x1c\x04\xff\x00\x11\x13"
    remote.say.put(b"one\r\ntwo\nthree\xfe>")
    assert here.read_until(b">") == b"one\r\ntwo\nthree\xfe>"
    remote.say.put(ended(code=7))
    assert here.wait() == 7
    assert b"srun: error: n1: task 0: Exited with exit code 7\r\n" in here.seen
    assert here.is_as_before()


def test_the_size_follows(on_terminal, remote):
    here = begin(on_terminal, remote, "srun", "--pty", "sh")
    assert remote.windows.get(timeout=20) == (31, 97)
    termios.tcsetwinsize(here.master, (50, 132))
    assert remote.windows.get(timeout=20) == (50, 132)
    remote.say.put(ended())
    assert here.wait() == 0


def test_a_signal_ends_it(on_terminal, remote):
    here = begin(on_terminal, remote, "srun", "--pty", "sh")
    remote.say.put(ended(signal=signal.SIGKILL))
    assert here.wait() == 137
    assert b"srun: error: n1: task 0: Killed" in here.seen
    assert here.is_as_before()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT]
)
def test_signals_to_srun_are_the_shells(on_terminal, remote, number):
    here = begin(on_terminal, remote, "srun", "--pty", "sh")
    here.child.send_signal(number)
    assert remote.signals.get(timeout=20) == number
    assert here.is_raw
    remote.say.put(ended(signal=number))
    assert here.wait() == 128 + number
    assert here.is_as_before()


def test_under_a_shell_with_job_control(on_terminal, remote, tmp_path):
    """kill -TSTP gives the shell its terminal back; fg goes on as if nothing had been."""
    script = tmp_path / "srun"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nfrom spur_cli.fast import main\nmain('srun', sys.argv[1:])\n"
    )
    script.chmod(0o755)
    here = on_terminal("/bin/bash", "--norc", "--noediting", "-i", launch=_LAUNCH_PROGRAM)
    here.read_until(rb"[$#] $")
    here.type(b"./srun --pty sh\n")
    remote.say.put(b"remote> ")
    here.read_until(rb"remote> ")
    here.until(lambda: here.is_raw)
    srun = os.tcgetpgrp(here.master)
    os.kill(srun, signal.SIGTSTP)
    here.read_until(rb"Stopped")
    here.until(lambda: not here.is_raw)
    here.type(b"echo local-$((1+1))\n")
    here.read_until(rb"local-2\r\n")
    termios.tcsetwinsize(here.master, (21, 61))
    here.type(b"fg\n")
    here.until(lambda: here.is_raw)
    here.type(b"x\x1a")
    here.until(lambda: remote.got == b"x\x1a")
    sizes = [remote.windows.get(timeout=20)]
    while sizes[-1] != (21, 61):
        sizes.append(remote.windows.get(timeout=20))
    remote.say.put(ended(code=3))
    here.read_until(rb"Exited with exit code 3\s+\S*[$#] $")  # what comes sooner is the remote side's
    here.type(b"echo code-$?; exit\n")
    here.read_until(rb"code-3\r\n")
    here.wait()


def test_raw_again_after_sigstop(on_terminal, remote):
    """Shells put the terminal into their own mode when a job of theirs stops."""
    here = begin(on_terminal, remote, "srun", "--pty", "sh")
    here.child.send_signal(signal.SIGSTOP)
    here.until(lambda: _state(here.child.pid) == "T")
    termios.tcsetattr(here.slave, termios.TCSANOW, here.before)
    termios.tcsetwinsize(here.master, (20, 60))
    here.child.send_signal(signal.SIGCONT)
    here.until(lambda: here.is_raw)
    sizes = [remote.windows.get(timeout=20)]
    while sizes[-1] != (20, 60):
        sizes.append(remote.windows.get(timeout=20))
    remote.say.put(ended())
    assert here.wait() == 0


def _state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_the_terminal_is_put_back_when_the_session_is_refused(on_terminal, remote, refuse):
    here = begin(on_terminal, remote, "srun", "--pty", "sh")
    remote.answer_next_with(refuse(grpc.StatusCode.PERMISSION_DENIED, ""))
    remote.break_off()
    assert here.wait() == 1
    assert b"lost contact with StepId=31.0: Access/permission denied\r\n" in here.seen
    assert here.is_as_before()


def test_keys_struck_while_the_agent_is_away_arrive(on_terminal, remote, refuse):
    here = begin(on_terminal, remote, "srun", "--pty", "sh")
    here.type(b"one")
    here.until(lambda: remote.got == b"one")
    remote.answer_next_with(refuse(grpc.StatusCode.UNAVAILABLE, "away"))
    remote.break_off()
    assert remote.refused.wait(20)
    here.type(b" two")
    remote.answer_next_with(None)
    here.until(lambda: remote.got == b"one two")
    remote.say.put(ended())
    assert here.wait() == 0
    assert here.seen == b""
    offsets = [(o.rank, o.offset) for o in remote.inits[-1].offsets]
    assert offsets == [(0, 2)]


def test_a_long_loss_is_told_once(on_terminal, remote, refuse):
    here = begin(on_terminal, remote, "srun", "--pty", "sh")
    remote.answer_next_with(refuse(grpc.StatusCode.UNAVAILABLE, "away"))
    remote.break_off()
    here.read_until(rb"srun: error: n1: lost contact with StepId=31.0, retrying\r\n")
    remote.answer_next_with(None)
    here.read_until(rb"srun: n1: contact with StepId=31.0 is back\r\n")
    assert here.is_raw
    remote.say.put(ended())
    assert here.wait() == 0
    assert b"srun" not in here.seen


def test_without_a_terminal(cli, remote):
    remote.say.put(b"hi\n")
    remote.say.put(ended())
    text = "srun: error: Not using a pseudo-terminal, disregarding --pty option\n"
    assert cli("srun", "--pty", "hostname") == (0, "hi\n", text)
    assert not remote.peer.last("SubmitJob").spec.step.pty


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--pty=x", "sh"], 255, "srun: fatal: --pty=x must be numeric file descriptor\n"),
        (["--pty", "-o", "f", "sh"], 255, "srun: error: --output is incompatible with --pty\n"),
        (["--pty", "-e", "f", "sh"], 255, "srun: error: --error is incompatible with --pty\n"),
        (["--pty", "-i", "none", "sh"], 255, "srun: error: --input is incompatible with --pty\n"),
    ],
)
def test_bad_words(cli, peer, words, code, text):
    assert cli("srun", *words) == (code, "", text)
    assert not peer.requests


def test_another_terminal_by_number(on_terminal, remote, peer, tmp_path):
    """`--pty=FD`: the size and the mode are those of that terminal."""
    here = begin(on_terminal, remote, "srun", "--pty=1", "sh", rows=11, cols=22)
    step = remote.peer.last("SubmitJob").spec.step
    assert (step.pty_rows, step.pty_cols) == (11, 22)
    remote.say.put(ended())
    assert here.wait() == 0


def test_end_of_input(on_terminal, remote):
    """The caller's terminal goes away: the shell is told, and gets the hang-up."""
    here = begin(on_terminal, remote, "srun", "--pty", "sh")
    os.close(here.slave)
    os.close(here.master)
    here.master, here.slave = os.openpty()
    assert remote.signals.get(timeout=2) == signal.SIGHUP
    assert remote.end_of_input.wait(20)
    remote.say.put(ended(signal=signal.SIGHUP))
    assert here.child.wait(20) in (128 + signal.SIGHUP, 1)


# sattach and spur exec on a terminal.


def test_sattach_with_the_keyboard(on_terminal, remote):
    here = begin(on_terminal, remote, "sattach", "--pty", "31.0")
    (init,) = remote.inits
    assert (init.mode, init.want_input) == (ag.SESSION_MODE_WATCHER, True)
    here.type(b"\x03x")
    here.until(lambda: remote.got == b"\x03x")
    termios.tcsetwinsize(here.master, (12, 34))
    sizes = [remote.windows.get(timeout=20)]
    while sizes[-1] != (12, 34):
        sizes.append(remote.windows.get(timeout=20))
    remote.say.put(ended(code=2))
    assert here.wait() == 2
    assert b"sattach: error: n1: task 0: Exited with exit code 2\r\n" in here.seen
    assert here.is_as_before()


def test_sattach_without_the_keyboard_can_be_left_by_an_interrupt(on_terminal, remote):
    """A raw terminal whose keys go nowhere would have no way out."""
    remote.writer = False
    here = on_terminal("sattach", "--pty", "31.0")
    here.read_until(rb"sattach: another client gives StepId=31.0 its input\r\n")
    assert here.is_as_before()
    here.type(b"nothing\r")
    here.type(b"\x03")
    assert here.wait() == 130
    assert b"detached from StepId=31.0" in here.seen
    assert remote.got == b""
    assert here.is_as_before()


def test_sattach_gets_the_keyboard_later_and_loses_it_again(on_terminal, remote):
    remote.writer = False
    here = on_terminal("sattach", "--pty", "31.0")
    here.read_until(rb"another client gives StepId=31.0 its input\r\n")
    remote.say.put(ready(0))
    here.until(lambda: here.is_raw)
    here.type(b"mine")
    here.until(lambda: remote.got == b"mine")
    remote.say.put(ready(4, writer=False))
    here.until(here.is_as_before)
    here.type(b"\x03")
    assert here.wait() == 130


def test_exec_with_a_terminal(on_terminal, remote):
    here = begin(on_terminal, remote, "spur", "exec", "31", "--pty", "bash", "-l")
    (init,) = remote.inits
    assert (init.mode, init.pty, list(init.argv)) == (ag.SESSION_MODE_EXEC, True, [b"bash", b"-l"])
    assert list(init.environment) == [b"TERM=xterm-test"]
    assert (init.window.rows, init.window.cols) == (31, 97)
    here.type(b"\x1a\x04")
    here.until(lambda: remote.got == b"\x1a\x04")
    remote.say.put(ended(signal=signal.SIGTERM))
    assert here.wait() == 143
    assert here.is_as_before()


def test_exec_whose_agent_goes_away(on_terminal, remote, refuse):
    here = begin(on_terminal, remote, "spur", "exec", "--pty", "31", "bash")
    remote.answer_next_with(refuse(grpc.StatusCode.UNAVAILABLE, "restart"))
    remote.break_off()
    assert here.wait() == 255
    assert b"the connection was lost and the command has been ended; it may be run again\r\n" in here.seen
    assert here.is_as_before()


@pytest.mark.parametrize("words", [("srun", "--pty", "sh"), ("spur", "exec", "--pty", "31", "sh")])
def test_a_reader_of_the_output_that_goes_away(on_terminal, remote, tmp_path, words):
    """The terminal is put back although what is printed cannot be written any more."""
    read, write = os.pipe()
    here = on_terminal(*words, stdout=write)
    os.close(write)
    remote.say.put(b"x")
    here.until(lambda: here.is_raw and select.select([read], [], [], 0)[0])
    os.close(read)
    remote.say.put(b"more")
    assert here.wait() in (1, 141)
    assert here.is_as_before()


def test_notices_of_a_lost_link():
    links = LinkNotices("StepId=1.0")
    links.lost("n1", 10.0)
    links.lost("n2", 11.0)
    assert links.due(12.9) == []
    assert links.due(13.0) == ["n1: lost contact with StepId=1.0, retrying"]
    links.lost("n1", 13.5)  # another try failed
    assert links.due(14.0) == ["n2: lost contact with StepId=1.0, retrying"]
    assert links.ready("n1") == "n1: contact with StepId=1.0 is back"
    assert links.ready("n1") == ""
    links.over("n2")
    assert links.due(99.0) == []
    links.lost("n3", 100.0)
    assert links.ready("n3") == ""
