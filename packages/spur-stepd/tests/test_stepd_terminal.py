"""Steps at a terminal: the line discipline, job control, lost clients, the end."""

import contextlib
import grp
import os
import random
import re
import signal
import stat

import pytest
from testkit.supervisor_client import Unconfirmed

from spur_core.linux import procfs
from spur_proto_lite import framing
from spur_proto_lite.control import WATCHER
from spur_proto_lite.exits import exit_of
from spur_proto_lite.journal import read
from spur_proto_lite.launch_spec import TaskSpec

pytestmark = pytest.mark.node

ROOT = os.geteuid() == 0


def step(place, *argv, **changes):
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TERM": "dumb", "PS1": "$ ", "LANG": "C", "HOME": "/"}
    fields = {"step_id": 0, "argv": argv, "spool_output": True, "pty": True, "env": env, **changes}
    return place.spec(**fields)


class Screen:
    """A client at a terminal: what has come is `text`."""

    def __init__(self, channel):
        self.channel = channel
        channel.sock.settimeout(30)
        self.text = b""
        self.at = None
        self.exit = None

    def take(self):
        frame = self.channel.receive()
        if frame is None:
            return False
        assert frame.kind != framing.DATA_ERR
        if frame.kind == framing.DATA_OUT:
            rank, offset, data = framing.decode_data(frame.payload)
            assert rank == 0
            assert self.at in (None, offset)
            self.at = offset + len(data)
            self.text += data
            self.channel.credit(framing.DATA_OUT, 0, self.at)
        elif frame.kind == framing.EXIT:
            self.exit = exit_of(frame)
        return True

    def until(self, pattern):
        """Until that has come; what was before it and the match are taken off."""
        while not (found := re.search(pattern, self.text)):
            assert self.take(), f"ended before {pattern!r}: {self.text!r}"
        self.text = self.text[found.end() :]
        return found

    def type(self, text):
        self.channel.write(text.encode())
        return self

    def end(self):
        while self.take():
            pass
        assert self.exit is not None
        return self.exit


def begin(place, *argv, rows=0, cols=0, **changes):
    session = place.spawn(step(place, *argv, **changes))
    session.start()
    screen = Screen(session.client().join(rows=rows, cols=cols))
    assert screen.channel.pty
    return session, screen


def done(session):
    session.ack(session.wait().exit_seq)
    assert "Traceback" not in session.log()


def test_a_task_at_a_terminal(node):
    """Its own session and group, the terminal at its three descriptors and for control, nothing else."""
    text = (
        "tty; stat -c '%u %a %g' $(tty); ls -l /proc/self/fd | wc -l; ps -o pid=,pgid=,sid=,tpgid= -p $$;"
        "echo $$ $TERM; stty size; echo err >&2; read x; exit 5"
    )
    session, screen = begin(node, "/bin/sh", "-c", text, pty_rows=33, pty_cols=99)
    screen.until(rb"/dev/pts/\d+\r\n")
    owner, mode, group = screen.until(rb"(\d+) (\d+) (\d+)\r\n").groups()
    assert int(owner) == node.spec().uid
    assert mode == (b"620" if ROOT else mode)
    if ROOT:
        assert int(group) == grp.getgrnam("tty").gr_gid
    assert screen.until(rb"(\d+)\r\n").group(1) == b"5"  # total, 0, 1, 2, and the directory itself
    pid, pgid, sid, tpgid = screen.until(rb"(\d+) +(\d+) +(\d+) +(\d+)\r\n").groups()
    assert pid == pgid == sid == tpgid
    screen.until(pid + rb" dumb\r\n33 99\r\nerr\r\n")
    found = procfs.stat(int(pid))
    assert found.ppid == session.pid
    assert found.session == int(pid) != procfs.stat(session.pid).session
    screen.type("\n")
    assert screen.end().code == 5
    done(session)


def test_sizes(fast_node):
    """The first client's size, then what it says; a watcher's only once it gives the input."""
    text = "trap 'stty size' WINCH; echo up; while :; do read -t 0.02 x && echo got $x; done"
    session = fast_node.spawn(step(fast_node, "/bin/bash", "-c", text))
    owner = session.client().join(rows=40, cols=132)
    session.start()
    screen = Screen(owner)
    screen.until(b"up\r\n")
    owner.resize(50, 140)
    screen.until(b"50 140\r\n")
    owner.resize(0, 7)  # not known: nothing changes
    watcher = Screen(session.client().join(WATCHER, want_input=True, rows=11, cols=22))
    watcher.channel.resize(12, 23)
    screen.type("a\n").until(b"got a\r\n")
    assert b"23" not in screen.text
    owner.close()
    watcher.until(b"got a\r\n")
    watcher.until(b"12 23\r\n")
    watcher.type("b\n").until(b"got b\r\n")
    watcher.channel.resize(13, 24)
    watcher.until(b"13 24\r\n")
    session.client().signal(signal.SIGKILL)
    assert watcher.end().signal == 9
    done(session)


@pytest.mark.parametrize("way", ["byte", "frame"])
def test_an_interrupt_reaches_the_foreground_only(fast_node, way):
    """Typed, or as a signal: the foreground job ends, the shell and its background job go on."""
    session, screen = begin(fast_node, "/bin/bash", "--norc", "-i")
    screen.until(rb"\$ $")
    screen.type("sleep 1000 & echo bg=$!\n")
    background = int(screen.until(rb"bg=(\d+)\r\n").group(1))
    screen.type("sh -c 'echo fg=$$; exec sleep 1000'\n")
    foreground = int(screen.until(rb"fg=(\d+)\r\n").group(1))
    assert procfs.stat(foreground).pgrp not in (procfs.stat(background).pgrp, procfs.stat(foreground).session)
    if way == "byte":
        screen.type("\x03")
    else:
        screen.channel.signal(signal.SIGINT)
    screen.until(rb"\$ ")
    screen.type("echo status=$?\n")
    screen.until(b"status=130\r\n")
    assert procfs.start_ticks(background) is not None
    screen.type("exit 7\n")
    assert screen.end().code == 7
    assert procfs.start_ticks(background) is None  # what is left of the step ends with it
    done(session)


def test_job_control(fast_node):
    session, screen = begin(fast_node, "/bin/bash", "--norc", "-i")
    assert b"no job control" not in screen.until(rb"(?s)^.*\$ $").group(0)
    screen.type("sh -c 'echo up; exec cat'\n").until(rb"\nup\r\n")
    screen.type("once\n").until(rb"once\r\nonce\r\n")
    screen.type("\x1a").until(rb"Stopped")
    screen.type("fg; true\n").until(rb"\nsh -c .*\r\n")
    screen.type("twice\n").until(rb"twice\r\ntwice\r\n")
    screen.type("\x04").until(rb"\$ ")
    screen.type("\x04")
    assert screen.end().code == 0
    done(session)


def test_a_signal_that_kills_is_the_exit(fast_node):
    session, screen = begin(fast_node, "/bin/sh", "-c", "echo up; exec sleep 1000")
    screen.until(b"up\r\n")
    screen.channel.signal(signal.SIGTERM)
    ended = screen.end()
    assert (ended.signal, ended.shell_code) == (15, 143)
    done(session)


def test_the_end_of_the_clients_input(fast_node):
    """^D, not a hang-up: every read gets it, and what runs goes on with its output."""
    text = "cat; echo one; cat; echo two; read x || echo three; exec sh -c 'printf end; exit 3'"
    session, screen = begin(fast_node, "/bin/sh", "-c", text)
    screen.type("line\nhalf")
    screen.channel.write_eof()
    assert screen.end().code == 3
    # Echoed input, and what `cat` and the others make of it.
    assert screen.text.replace(b"\r\n", b"\n") in (
        b"line\nhalfline\nhalfone\ntwo\nthree\nend",
        b"line\nline\nhalfhalfone\ntwo\nthree\nend",
    )
    done(session)


def test_a_shell_without_input_ends(fast_node):
    """The end comes before the shell has taken over the terminal, and is not lost by that."""
    session = fast_node.spawn(step(fast_node, "/bin/bash", "--norc", "-i"))
    screen = Screen(session.client().join())
    screen.channel.write_eof()
    session.start()
    assert screen.end().code == 0
    done(session)


def test_more_input_after_its_end(fast_node):
    """A client that comes back after its input ended is heard again."""
    session, screen = begin(fast_node, "/bin/sh", "-c", "while ! read x; do :; done; echo got $x")
    screen.channel.write_eof()
    screen.channel.close()
    again = Screen(session.client().join())
    again.type("this\n")
    assert again.end().code == 0
    assert b"got this\r\n" in again.text
    done(session)


def test_output_survives_the_last_client(fast_node, gate):
    """Whoever comes back goes on where it was; the shell has not noticed."""
    session, screen = begin(fast_node, "/bin/sh", "-c", f"echo one; read x < {gate.path}; echo two; exit 4")
    screen.until(b"one\r\n")
    screen.channel.close()
    gate.open()
    assert session.wait().exit.code == 4
    again = Screen(session.client().join(offsets=((0, framing.DATA_OUT, screen.at),)))
    assert again.end().code == 4
    assert again.text == b"two\r\n"
    done(session)


def test_the_cap_blocks_a_terminal_and_loses_nothing(fast_node):
    size = 3_000_000
    text = f"stty -opost; head -c {size} /dev/zero | tr '\\0' x; echo end"
    session = fast_node.spawn(step(fast_node, "/bin/sh", "-c", text, spool_limit=1 << 20))
    session.start()
    with pytest.raises(Exception, match="no answer"):
        session.client(timeout=0.3).call("wait", timeout=20)
    screen = Screen(session.client().join())
    assert screen.end().code == 0
    assert screen.text == b"x" * size + b"end\n"
    done(session)


def test_all_output_comes_before_the_exit(fast_node):
    """A task that ends right behind a lot of output, over and over."""
    for attempt in range(1, 16):
        spec = step(
            fast_node, "/bin/sh", "-c", "stty -opost; head -c 100000 /dev/zero; echo end", attempt=attempt
        )
        session = fast_node.spawn(spec)
        session.start()
        screen = Screen(session.client().join())
        assert screen.end().code == 0
        assert screen.text == b"\0" * 100_000 + b"end\n"
        done(session)


@pytest.mark.parametrize("seed", range(2))
def test_bytes_survive_a_terminal_and_lost_connections(fast_node, seed):
    chance = random.Random(seed)
    data = chance.randbytes(400_000)
    text = f"stty raw -echo; echo ready; exec head -c {len(data)}"
    session, screen = begin(fast_node, "/bin/sh", "-c", text)
    screen.until(b"ready\n")
    begin_at = screen.at
    screen.channel.close()
    source, got, given, cuts = Unconfirmed(), bytearray(), 0, 0
    while len(got) < len(data):
        channel = session.client().join(offsets=((0, framing.DATA_OUT, begin_at + len(got)),), source=source)
        channel.sock.settimeout(30)
        left = chance.choice([0, 5_000, 60_000]) if cuts < 15 else len(data)
        while left >= 0 and len(got) < len(data):
            if given < len(data) and source.end - source.confirmed < 100_000:
                piece = data[given : given + chance.randint(1, 50_000)]
                given += len(piece)
                channel.write(piece)
            frame = channel.receive()
            if frame.kind == framing.DATA_OUT:
                chunk = framing.decode_data(frame.payload)
                got += chunk.data
                left -= len(chunk.data)
        cuts += 1
        channel.close()
    assert bytes(got) == data
    assert session.wait().exit.code == 0
    done(session)


# -- nobody there ----------------------------------------------------------------------------------


def signals(session):
    return [
        (entry.data["signal"], entry.data["path"])
        for entry in read(session.paths.journal).entries
        if entry.event == "Signalled"
    ]


def test_a_terminal_that_nobody_came_to_is_hung_up(fast_node):
    spec = step(fast_node, "/bin/bash", "--norc", "-i", pty_detach_grace_secs=0.2)
    session = fast_node.spawn(spec)
    session.start()
    ended = session.wait().exit
    assert ended.shell_code in (129, 1)  # by the signal, or by what the shell makes of it
    assert signals(session)[0] == (signal.SIGHUP, "foreground")
    assert ended.teardown_reason == ""
    done(session)


def test_who_ignores_the_hang_up_is_killed(fast_node, gate):
    text = f"trap 'echo heard > {fast_node.work}/heard' HUP; while :; do sleep 0.05; done"
    session, screen = begin(fast_node, "/bin/bash", "-c", text, pty_detach_grace_secs=0.1)
    screen.channel.close()
    ended = session.wait(20).exit
    assert (ended.signal, ended.teardown_reason) == (9, "detached")
    assert fast_node.read("heard") == "heard\n"
    assert [number for number, _ in signals(session)] == [signal.SIGHUP, signal.SIGKILL]
    done(session)


def test_a_client_keeps_the_terminal(fast_node, gate):
    """While one of two is there, and when one comes back in time."""
    text = f"echo up; read x < {gate.path}; echo end"
    session, screen = begin(fast_node, "/bin/sh", "-c", text, pty_detach_grace_secs=1.0)
    screen.until(b"up\r\n")
    watcher = Screen(session.client().join(WATCHER))
    screen.channel.close()
    with contextlib.suppress(Exception):
        session.client(timeout=1.5).call("wait", timeout=20)  # longer than the grace
    again = Screen(session.client().join(offsets=((0, framing.DATA_OUT, screen.at),)))
    watcher.channel.close()
    gate.open()
    assert again.end().code == 0
    assert again.text == b"end\r\n"
    assert signals(session) == []
    done(session)


def test_a_teardown_ends_a_shell_and_says_why(fast_node):
    """Mostly by its hang-up; a shell that loses that beside the other signals is killed a little later."""
    session, screen = begin(fast_node, "/bin/bash", "--norc", "-i", kill_wait_secs=3)
    screen.until(rb"\$ $")
    session.client().teardown("cancelled")
    ended = screen.end()
    assert ended.teardown_reason == "cancelled"
    assert b"CANCELLED" in screen.text
    assert b"***\r\n" in screen.text
    done(session)


# -- the rest of the step --------------------------------------------------------------------------


def test_only_rank_0_has_the_terminal(fast_node):
    tasks = (TaskSpec(rank=0, local_rank=0), TaskSpec(rank=1, local_rank=1))
    text = '[ -t 0 ] && [ -t 1 ] && exec echo terminal; t=$(readlink /proc/$$/fd/[012]); echo "$t" > r1'
    session, screen = begin(fast_node, "/bin/sh", "-c", text, tasks=tasks)
    assert screen.end().code == 0
    assert screen.text == b"terminal\r\n"
    assert fast_node.read("r1") == "/dev/null\n" * 3
    done(session)


def test_a_terminal_needs_its_channel(fast_node):
    session = fast_node.spawn(step(fast_node, "true", spool_output=False))
    reply = session.start()
    assert reply.failure_kind == "job"
    assert "spool_output" in reply.text
    session.gone()


def test_a_program_that_is_missing(fast_node):
    session, screen = begin(fast_node, "nosuch")
    assert screen.end().code == 2
    assert screen.text == b"slurmstepd: error: execve(): nosuch: No such file or directory\r\n"
    done(session)


def test_a_program_may_close_and_open_its_terminal_again(fast_node):
    """Nobody has it open for a moment: that is not the end."""
    text = "tty=$(tty); exec <&- >&- 2>&-; sleep 0.1; exec <$tty >$tty 2>&1; echo back"
    session, screen = begin(fast_node, "/bin/sh", "-c", text)
    assert screen.end().code == 0
    assert screen.text == b"back\r\n"
    done(session)


def test_the_terminal_is_gone_with_the_step(fast_node):
    session, screen = begin(fast_node, "tty")
    screen.end()
    path = screen.text.strip().decode()
    if ROOT:  # nobody else may look
        fds = [os.readlink(f"/proc/{session.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{session.pid}/fd")]
        assert not [target for target in fds if "pts" in target or "ptmx" in target]
    if os.path.exists(path):  # somebody else's by now
        assert stat.S_ISCHR(os.stat(path).st_mode)
    done(session)
