"""What must hold when something dies, is replaced, is full or is far away."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from testkit.supervisor_client import MessageStream

from spur_core.linux import procfs
from spur_proto_lite import journal, notify, unixsock
from spur_proto_lite.paths import StatePaths

pytestmark = pytest.mark.node


def until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.002)
    return found


def test_a_killed_supervisor_leaves_a_readable_journal(node, gate):
    session = node.spawn(node.script(f"read x < {gate.path}\n"))
    reply = session.start()
    os.kill(session.pid, signal.SIGKILL)
    session.gone()
    told = session.story()
    assert (told.exit, told.acknowledged) == (None, False)
    assert told.started_at is not None
    assert procfs.start_ticks(reply.task_pid) is not None  # row 9: the task goes on
    os.kill(reply.task_pid, signal.SIGKILL)
    writer = journal.JournalWriter(session.paths.journal)
    assert writer.append(journal.FENCED, 1.0, {"reason": "lost"}) == 3
    writer.close()


def test_the_end_of_the_spawner_hurts_nobody(spawner_factory, gate):
    spawner, node = spawner_factory()
    session = node.spawn(node.script(f"read x < {gate.path}; exit 5\n"))
    session.start()
    spawner.close()
    gate.open()
    assert session.wait().exit.code == 5


class Agent:
    """The agent's end of `notify.sock`: answers as told, one connection at a time."""

    def __init__(self, path, answers):
        self.got = []
        self._answers = iter(answers)
        self._listener = socket.socket(fileno=unixsock.bind(path))
        self._listener.settimeout(30)
        self.peers = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        for answer in self._answers:
            sock, _ = self._listener.accept()
            self.peers.append(unixsock.peer(sock.fileno())[1])
            sock.settimeout(30)
            stream = MessageStream(sock)
            self.got.append(notify.Notification.from_json(stream.receive()))
            if answer is not None:
                stream.send(notify.encode_answer(answer))
            sock.close()

    def close(self):
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._listener.close()


def test_the_end_is_pushed_until_it_is_taken(fast_node):
    """A lost connection, then `deferred`, then `accepted`: after that it is quiet until the ack."""
    agent = Agent(fast_node.paths.notify_sock, [None, notify.DEFERRED, notify.ACCEPTED])
    session = fast_node.spawn(fast_node.script("exit 9\n"))
    session.start()
    seq = session.wait().exit_seq
    agent.close()
    assert [(n.rid, n.seq, n.exit.code) for n in agent.got] == [(session.spec.rid, seq, 9)] * 3
    assert set(agent.peers) == {os.geteuid()}
    assert not session.story().acknowledged
    session.ack(seq)


def test_known_is_an_acknowledgement(fast_node):
    agent = Agent(fast_node.paths.notify_sock, [notify.KNOWN])
    session = fast_node.spawn(fast_node.script("exit 9\n"))
    session.start()
    session.gone()
    agent.close()
    assert session.story().acknowledged
    assert session.story().exit.code == 9


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda s: Path(s.paths.launch).write_bytes(b"{"), "not JSON"),
        (lambda s: os.unlink(s.paths.launch), "No such file"),
        (lambda s: os.chmod(s.paths.dir, 0o755), "mode 0755"),
        (lambda s: Path(s.paths.launch).write_bytes(b'{"version":99}'), "format 99"),
        (
            lambda s: Path(s.paths.launch).write_bytes(s.node.spec(job_id=8).encode()),
            "launch.json names 8.1.batch",
        ),
        (
            lambda s: Path(s.paths.journal).write_text('{"seq":1,"at":1,"event":"Prepared"}\n'),
            "used already",
        ),
    ],
)
def test_sessions_that_cannot_be_used(node, damage, word):
    """The failure comes back at once, with an errno; the log says why."""
    session = node.prepare(node.script("true\n"))
    damage(session)
    before = time.monotonic()
    pid, _, number = node.raw_spawn(session.paths.dir)
    assert number
    assert time.monotonic() - before < 5
    os.chmod(session.paths.dir, 0o700)
    assert word in session.log()
    until(lambda: not pid or procfs.start_ticks(pid) is None)
    assert not os.path.exists(session.paths.control)


def test_a_session_that_is_not_there(fast_node):
    _, _, number = fast_node.raw_spawn(f"{fast_node.paths.sessions}/9.1.0")
    assert number


def test_a_state_directory_of_any_length(node, top):
    node.paths = StatePaths(str(top / ("d" * 100) / ("e" * 100)))
    os.makedirs(node.paths.state_dir)
    for path in (node.paths.runtime, node.paths.sessions):
        os.mkdir(path, 0o700)
    agent = Agent(node.paths.notify_sock, [notify.ACCEPTED])
    _, ended = node.run(node.script("exit 4\n"))
    agent.close()
    assert ended.code == 4
    assert agent.got[0].exit.code == 4


def test_the_script_goes_elsewhere_when_the_user_cannot_enter(node):
    os.chmod(node.top, 0o755)
    os.chmod(node.paths.state_dir, 0o700)
    _, ended = node.run(node.script("echo $0\n", work_dir=str(node.work)))
    assert ended.code == 0


def test_a_full_disk_for_the_script_is_a_fault_of_the_node(fast_node):
    session = fast_node.spawn(fast_node.script("true\n", spool_dir="/dev/null/x"))
    reply = session.start()
    assert reply.failure_kind == "node"
    assert "/dev/null/x" in reply.text


@pytest.mark.parametrize("wanted", ["", "/proc/none", "/dev/null/x"])
def test_v23_scratch_instead_of_a_bad_work_dir(fast_node, wanted, top):
    """Section 11 and V23: private, per job and attempt, removed when empty; a planted file is not touched."""
    uid = fast_node.spec().uid
    scratch = top / "tmp"
    scratch.mkdir()
    scratch.chmod(0o1777)
    planted = scratch / "slurm-7.out"
    planted.write_text("planted")
    for attempt in (1, 2):
        spec = fast_node.script(
            "pwd; stat -c %a .\n", attempt=attempt, work_dir=wanted, tmp_dir=str(scratch), stdout_pattern="o"
        )
        session = fast_node.spawn(spec)
        reply = session.start()
        expected = f"{scratch}/spur-scratch-{uid}/7.{attempt}"
        assert reply.work_dir == expected
        ended = session.wait()
        text = Path(reply.stdout_path).read_text()
        assert text.endswith(f"{expected}\n700\n")
        assert (f"couldn't chdir to `{wanted}'" in text) == bool(wanted)
        session.cleaned()
        assert os.path.isdir(expected)  # the output is in it
        session.ack(ended.exit_seq)
    assert planted.read_text() == "planted"


def test_a_work_dir_is_made_as_the_user(fast_node):
    wanted = fast_node.work / "a" / "b"
    _, ended = fast_node.run(fast_node.script("pwd\n", work_dir=str(wanted)))
    assert ended.code == 0
    assert (wanted / "slurm-7.out").read_text() == f"{wanted}\n"
    assert wanted.stat().st_uid == fast_node.spec().uid


FORBIDDEN = {
    "collections", "enum", "functools", "json", "re", "signal", "types",
    "asyncio", "subprocess", "logging", "dataclasses", "typing", "pathlib", "socket", "selectors", "ctypes",
    "threading", "ssl", "inspect", "argparse", "tempfile", "shutil", "grpc", "google", "msgspec",
    "sqlalchemy", "spur_proto", "spur_agent", "spur_ctld", "spur_sched", "spur_auth", "spur_cli",
}  # fmt: skip


def test_the_supervisor_imports_little():
    """3.5: everything it ever needs, imported before readiness, and nothing heavy or foreign."""
    code = (
        "import sys\n"
        "sys.path[:0] = %r\n"
        "import spur_stepd.main, spur_stepd.run, spur_stepd.spawner\n"
        "print(*sys.modules)" % [p for p in sys.path if p]
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not FORBIDDEN & {name.partition(".")[0] for name in loaded}


@pytest.mark.node
def test_nothing_is_imported_after_the_fork(top, fast_node, gate):
    """3.5, and what an import costs: it would be done, and paid, by every supervisor."""
    told = top / "imports"
    program = top / "stepd"
    program.write_text(
        f"#!{sys.executable} -S\n"
        "import os, sys\n"
        f"sys.path[:0] = {[p for p in sys.path if p]!r}\n"
        "import spur_stepd.main, spur_stepd.spawner\n"
        "us = os.getpid()\n"
        "def tell(event, args):\n"
        "    if event == 'import' and os.getpid() != us:\n"
        f"        fd = os.open({str(told)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)\n"
        "        os.write(fd, (args[0] + '\\n').encode())\n"
        "        os.close(fd)\n"
        "sys.addaudithook(tell)\n"
        "spur_stepd.main.console()\n"
    )
    program.chmod(0o755)
    with fast_node.other_spawner(str(program)) as node:
        session = node.spawn(node.script(f"echo out\nread x < {gate.path}\nexit 3\n", spool_output=True))
        session.start()
        with session.client() as client:
            client.query()
        gate.open()
        ended = session.wait()
        assert ended.exit.code == 3
        session.cleaned()
        session.ack(ended.exit_seq)
    assert not told.exists(), told.read_text()


def test_the_program_explains_itself():
    program = str(Path(sys.executable).with_name("spurstepd"))
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: spurstepd --session DIR")
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("spurstepd 0.")
    done = subprocess.run([program, "--spawner"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "the node agent starts it" in done.stderr


def test_files_of_the_package_replaced_under_a_running_step(installed_node, gate):
    """3.5: a supervisor started from an installation that is gone meanwhile ends its step properly."""
    node = installed_node
    session = node.spawn(node.script(f"read x < {gate.path}\nexit 3\n"))
    session.start()
    os.rename(node.installation, f"{node.installation}.gone")
    gate.open()
    ended = session.wait()
    assert ended.exit.code == 3
    session.cleaned()
    session.ack(ended.exit_seq)
    assert session.events()[-1] == "Acknowledged"
    assert "Traceback" not in session.log()
