"""A node in miniature: a state directory, sessions, and supervisors started both ways."""

import contextlib
import getpass
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from testkit.supervisor_client import ControlClient, SpawnerClient

import spur_core
import spur_proto_lite
import spur_stepd
from spur_core.ids import STEP_BATCH, RuntimeId
from spur_core.linux import cgroup, cgroup_layout, procfs
from spur_proto_lite import journal, spawn
from spur_proto_lite.descriptor import Descriptor
from spur_proto_lite.launch_spec import LaunchSpec
from spur_proto_lite.paths import StatePaths

PROGRAM = str(Path(sys.executable).with_name("spurstepd"))
PATH = "/usr/local/bin:/usr/bin:/bin"
IS_ROOT = os.geteuid() == 0
#: Whom jobs belong to: an ordinary user under root, else ourselves.
JOB_UID = 65534 if IS_ROOT else os.getuid()
JOB_GID = 65534 if IS_ROOT else os.getgid()


def until(condition, seconds=20.0, what="the condition"):
    """Poll until `condition()` is true and return what it returned."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.002)
    return found


def children_of(pid):
    """Direct children, read by root or the same user."""
    return procfs.children(pid)


class Session:
    """One session directory and its supervisor."""

    def __init__(self, node, spec):
        self.node = node
        self.spec = spec
        self.paths = node.paths.session(spec.rid)
        self.pid = 0
        self.ticks = 0

    def client(self, rid=None, timeout=10.0):
        return self.node.keep(ControlClient(self.paths.dir, rid or self.spec.rid, timeout))

    def start(self):
        with ControlClient(self.paths.dir, self.spec.rid, 20.0) as client:
            return client.start()

    def wait(self, timeout=30.0):
        with ControlClient(self.paths.dir, self.spec.rid, 20.0) as client:
            reply = client.wait(timeout)
        assert reply.exit is not None, self.log()
        return reply

    def run(self):
        """Start, wait for the end, acknowledge, see the supervisor go; the exit."""
        reply = self.start()
        assert reply.failure_kind == "", reply
        ended = self.wait()
        self.ack(ended.exit_seq)
        return ended.exit

    def ack(self, seq):
        with ControlClient(self.paths.dir, self.spec.rid, 20.0) as client:
            client.ack(seq)
        self.gone()

    def gone(self):
        until(lambda: procfs.start_ticks(self.pid) != self.ticks, what="the supervisor's end")

    def events(self):
        return [entry.event for entry in journal.read(self.paths.journal).entries]

    def story(self):
        return journal.story(journal.read(self.paths.journal).entries)

    def log(self):
        return Path(self.paths.log).read_text(errors="replace")

    def cleaned(self):
        until(lambda: "CleanupDone" in self.events(), what="the cleanup")


class Node:
    """A state directory with sessions."""

    def __init__(self, top, mode, cgroup_root, spawner, program=PROGRAM):
        self.top = top
        self.paths = StatePaths(str(top / "state"))
        self.mode = mode
        self.cgroup_root = cgroup_root
        self._spawner = spawner
        self._program = program
        #: For supervisors that are started in exec mode.
        self.environ = {"PATH": PATH}
        self._kept = []
        self.sessions = []
        os.makedirs(self.paths.state_dir, exist_ok=True)
        for path in (self.paths.runtime, self.paths.sessions):
            os.mkdir(path, 0o700)
        self.tmp = top / "t"
        self.tmp.mkdir()
        self.tmp.chmod(0o1777)
        self.work = top / "work"
        self.work.mkdir()
        os.chown(self.work, JOB_UID, JOB_GID)

    def keep(self, thing):
        self._kept.append(thing)
        return thing

    def spec(self, job_id=7, attempt=1, step_id=STEP_BATCH, **changes):
        fields = {
            "rid": RuntimeId(job_id, attempt, step_id),
            "node": "n1",
            "nodelist": "n1",
            "job_name": "test",
            "user": getpass.getuser() if not IS_ROOT else "nobody",
            "env": {"PATH": PATH, "LANG": "C.UTF-8"},
            "work_dir": str(self.work),
            "uid": JOB_UID,
            "gid": JOB_GID,
            "cgroup_root": self.cgroup_root,
            "tmp_dir": str(self.tmp),
            "cohort": ("n1",),
            **changes,
        }
        return LaunchSpec(**fields)

    def script(self, body, **changes):
        return self.spec(script="#!/bin/sh\n" + body, **changes)

    def prepare(self, spec):
        """The session directory, as an agent makes it."""
        session = Session(self, spec)
        os.mkdir(session.paths.dir, 0o700)
        Path(session.paths.launch).write_bytes(spec.encode())
        os.chmod(session.paths.launch, 0o600)
        self.sessions.append(session)
        return session

    def spawn(self, spec):
        """A supervisor that is ready."""
        session = self.prepare(spec)
        session.pid, session.ticks, number = self.raw_spawn(session.paths.dir)
        assert not number, session.log()
        hello = session.client().hello()
        assert (hello.stepd_pid, hello.state) == (session.pid, "ready")
        return session

    def raw_spawn(self, session_dir):
        """(pid, start ticks, errno) the way this node's mode does it."""
        if self.mode == "spawner":
            reply = self._spawner.spawn(session_dir, self.cgroup_root)
            return reply.pid, reply.start_ticks, reply.errno
        read, write = os.pipe()
        process = subprocess.Popen(
            [self._program, "--session", session_dir],
            stdin=subprocess.DEVNULL,
            stdout=write,
            env=self.environ,
        )
        os.close(write)
        with open(read, "rb") as pipe:
            records = pipe.read()
        process.wait()
        pid, number = spawn.decode_records(records)
        return pid, procfs.start_ticks(pid) or 0, number

    @contextlib.contextmanager
    def other_spawner(self, program):
        """This node, its supervisors made by a spawner that is another program."""
        process = SpawnerProcess(program)
        before, self._spawner = self._spawner, process.client
        try:
            yield self
        finally:
            self._spawner = before
            process.close()

    def run(self, spec):
        session = self.spawn(spec)
        return session, session.run()

    def read(self, name):
        return (self.work / name).read_text()

    def close(self):
        for thing in self._kept:
            thing.close()
        for session in self.sessions:
            with contextlib.suppress(OSError):
                if "Traceback" in session.log():
                    print(session.log())
                if session.pid and procfs.start_ticks(session.pid) == session.ticks:
                    below = procfs.descendants(session.pid)
                    os.kill(session.pid, signal.SIGKILL)
                    for pid in below:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    session.gone()
                found = Descriptor.decode(Path(session.paths.descriptor).read_bytes())
                cgroup.kill(found.cgroup)
                assert cgroup.wait_empty(found.cgroup, 10)
                cgroup.remove(found.cgroup)


class SpawnerProcess:
    """`spurstepd --spawner` and our end of its socket."""

    def __init__(self, program=PROGRAM):
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [program, "--spawner"], stdin=theirs, stdout=subprocess.DEVNULL, env={"PATH": PATH}
        )
        theirs.close()
        self.client = SpawnerClient(ours)

    def close(self):
        self.client.close()
        assert self.process.wait(20) == 0


@pytest.fixture(name="until")
def _until():
    """`until`, for tests, which cannot import from here."""
    return until


@pytest.fixture(scope="session")
def cgroup_root():
    """A part of every hierarchy of our own, "none" where nothing may be written."""
    name = f"spurtest_stepd_{os.getpid()}"
    root, _why = cgroup_layout.choose_root(cgroup_layout.detect(), name)
    if root is None:
        yield "none"
        return
    yield name
    for base in filter(None, (root.unified, *root.v1.values())):
        until(lambda base=base: not cgroup.procs((f"{base}/stepd",)), what="the end of all supervisors")
        for at in reversed(cgroup._walk(base)):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(at)


@pytest.fixture(scope="session")
def spawner_process(cgroup_root):
    process = SpawnerProcess()
    yield process
    process.close()


@pytest.fixture
def top():
    """A short directory that the job's user can enter."""
    path = Path(tempfile.mkdtemp(prefix="stepd-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=["spawner", "exec"])
def node(request, top, cgroup_root, spawner_process):
    """A node that starts its supervisors one way; tests that take it run both ways."""
    made = Node(top, request.param, cgroup_root, spawner_process.client)
    yield made
    made.close()


@pytest.fixture
def fast_node(top, cgroup_root, spawner_process):
    """A node with the spawner only, for what does not depend on how a supervisor was started."""
    made = Node(top, "spawner", cgroup_root, spawner_process.client)
    yield made
    made.close()


@pytest.fixture
def faulty_node(top, cgroup_root, spawner_process):
    """A node whose supervisors (exec mode) strike the fault points named in `node.fault(...)`."""
    made = Node(top, "exec", cgroup_root, spawner_process.client)
    made.environ = {**made.environ, "SPUR_TEST_FAULTS": "1"}
    made.fault = lambda *names, once="": made.environ.update(
        {"SPUR_FAULT": ",".join(names), **({"SPUR_FAULT_ONCE": once} if once else {})}
    )
    yield made
    made.close()


class Gate:
    """A FIFO on which a job blocks until the test lets it go on."""

    def __init__(self, path):
        self.path = path
        os.mkfifo(path, 0o666)
        os.chmod(path, 0o666)

    def open(self):
        """Let one reader go on; returns when it has read."""
        fd = until(self._try_open, what="somebody at the gate")
        os.write(fd, b"\n")
        os.close(fd)

    def _try_open(self):
        try:
            return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return 0


@pytest.fixture
def gate(top):
    return Gate(str(top / "gate"))


def readable(fd, seconds=20.0):
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


@pytest.fixture
def spawner_factory(top, cgroup_root):
    """Make a (spawner, node) pair of its own."""
    made = []

    def make():
        spawner = SpawnerProcess()
        made.append(Node(top, "spawner", cgroup_root, spawner.client))
        return spawner, made[-1]

    yield make
    for node in made:
        node.close()


@pytest.fixture
def installed_node(top, cgroup_root):
    """A node that runs the program from a copy of the packages, laid out as pip does it."""
    installation = top / "prefix"
    site = installation / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for package in (spur_core, spur_proto_lite, spur_stepd):
        source = Path(package.__file__).parent
        shutil.copytree(source, site / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    (installation / "bin").mkdir()
    shutil.copy(PROGRAM, installation / "bin" / "spurstepd")
    (installation / "bin" / "python").symlink_to(sys.executable)
    made = Node(top, "exec", cgroup_root, None, str(installation / "bin" / "spurstepd"))
    made.installation = str(installation)
    yield made
    made.close()
