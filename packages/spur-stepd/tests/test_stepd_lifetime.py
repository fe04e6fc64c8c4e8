"""The end of a job on a node: its other steps, its group, the epilog, and who is told what."""

import os
import signal
import threading

import pytest
from testkit.supervisor_client import ControlClient, MessageStream

from spur_core.ids import STEP_EXTERN
from spur_core.linux import cgroup, procfs
from spur_proto_lite import notify, unixsock
from spur_proto_lite.launch_spec import HookSpec

pytestmark = pytest.mark.node


@pytest.fixture
def hook(top):
    """Make an executable script; its path."""

    def make(name, body, mode=0o755):
        path = top / name
        path.write_text("#!/bin/sh\n" + body)
        path.chmod(mode)
        return str(path)

    return make


class Agent:
    """Answers every notification `accepted` and keeps it."""

    def __init__(self, path):
        import socket

        self.got = []
        self._listener = socket.socket(fileno=unixsock.bind(path))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            stream = MessageStream(sock)
            self.got.append(notify.Notification.from_json(stream.receive()))
            stream.send(notify.encode_answer(notify.ACCEPTED))
            sock.close()

    def close(self):
        self._listener.close()


@pytest.fixture
def agent(fast_node):
    made = Agent(fast_node.paths.notify_sock)
    yield made
    made.close()


def test_the_other_steps_end_with_the_job(node, until, hook, top):
    """D3: extern ends, so do a running, a held, a stopped and a never started step of the attempt; another
    attempt and another job stay."""
    log = top / "log"
    log.touch()
    log.chmod(0o666)
    epilog = HookSpec(paths=(hook("epilog", f"echo epilog >> {log}\n"),))
    own = node.spawn(node.spec(step_id=STEP_EXTERN, hold=True, job_lifetime=True, epilog=epilog))
    own.start()
    stubborn = "trap '' TERM HUP; setsid sleep 1000 & wait; wait"
    running = node.spawn(node.spec(step_id=0, argv=("sh", "-c", stubborn), kill_wait_secs=1000))
    held = node.spawn(node.spec(step_id=1, hold=True))
    stopped = node.spawn(node.spec(step_id=2, argv=("sleep", "1000")))
    fresh = node.spawn(node.spec(step_id=3, argv=("sleep", "1000")))
    other_attempt = node.spawn(node.spec(attempt=2, step_id=0, argv=("sleep", "1000")))
    other_job = node.spawn(node.spec(job_id=71, step_id=0, argv=("sleep", "1000")))
    for session in (running, held, stopped, other_attempt, other_job):
        assert session.start().failure_kind == ""
    stopped.client().suspend()
    own.client().teardown("timeout", 5.0)
    ended = own.wait()
    until(lambda: own.story().epilog, what="the epilog's result")
    assert own.story().epilog.ok
    assert [e for e in own.events() if e not in ("Signalled", "TeardownRequested")] == [
        *("Prepared", "Started", "ExitObserved", "CleanupDone", "EpilogResult"),
    ]
    assert (running.story().exit.signal, running.story().exit.teardown_reason) == (9, "timeout")
    assert held.story().exit.code == 0
    assert stopped.story().exit.signal == 9
    fresh.gone()
    assert fresh.story().abandoned
    for session in (running, held, stopped):
        assert "CleanupDone" in session.events()
    assert other_attempt.client().query().state == "running"
    assert other_job.client().query().state == "running"
    assert log.read_text() == "epilog\n"
    with ControlClient(own.paths.dir, own.spec.rid) as client:
        assert client.query().epilog.ok
    own.ack(ended.exit_seq)


@pytest.mark.root
def test_a_sibling_whose_supervisor_is_dead_is_ended_through_the_group(fast_node, until):
    own = fast_node.spawn(fast_node.spec(step_id=STEP_EXTERN, hold=True, job_lifetime=True))
    groups = own.start().cgroup
    lost = fast_node.spawn(fast_node.spec(step_id=0, argv=("sleep", "1000")))
    task = lost.start().task_pid
    os.kill(lost.pid, signal.SIGKILL)
    lost.gone()
    assert procfs.start_ticks(task) is not None
    own.client().teardown("cancelled", 0.0)
    ended = own.wait()
    until(lambda: procfs.start_ticks(task) is None, what="the end of the task")
    until(lambda: not any(os.path.exists(d) for d in cgroup.job_dirs(groups)), what="the group's end")
    own.ack(ended.exit_seq)


def test_the_supervisor_answers_while_it_waits_for_a_slow_sibling(fast_node, until):
    """A stopped supervisor of another step holds nothing up but the epilog."""
    own = fast_node.spawn(fast_node.spec(argv=("true",), job_lifetime=True))
    slow = fast_node.spawn(fast_node.spec(step_id=0, argv=("sleep", "1000")))
    slow.start()
    os.kill(slow.pid, signal.SIGSTOP)
    own.start()
    ended = own.wait()
    own.cleaned()
    client = own.client()
    client.ack(ended.exit_seq)
    for _ in range(3):
        assert client.query().state == "exited"
    assert procfs.start_ticks(own.pid) == own.ticks
    os.kill(slow.pid, signal.SIGCONT)
    own.gone()
    assert slow.story().exit.signal == 9


def test_what_the_epilog_sees(fast_node, until, hook, top):
    """Root's rights, its own environment and nothing else, the work directory, descriptors 0 to 2."""
    out = top / "out"
    body = f"{{ id -u; id -g; id -G; pwd; env | sort; ls /proc/self/fd | wc -l; umask; }} > {out}\n"
    body += "echo to stdout\necho to stderr >&2\nprintf 'no newline' >&2\n"
    spec = fast_node.script(
        "true\n",
        job_lifetime=True,
        epilog=HookSpec(paths=(hook("epilog", body),), env={"SPUR_JOB_ID": "7"}),
        env={"PATH": "/usr/bin:/bin", "SECRET": "x"},
    )
    session = fast_node.spawn(spec)
    session.start()
    ended = session.wait()
    until(lambda: session.story().epilog, what="the epilog's result")
    assert session.story().epilog.ok
    lines = out.read_text().splitlines()
    uid, gid = str(os.geteuid()), str(os.getegid())
    assert lines[:2] == [uid, gid]
    if uid == "0":
        assert lines[2] == "0"
    assert lines[3] == str(fast_node.work)
    names = {line.partition("=")[0] for line in lines[4:-2]}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {"PATH", "SPUR_JOB_ID"}
    assert int(lines[-2]) == 4  # 0, 1, 2 and the directory that ls reads
    assert lines[-1] == "0022"
    log = session.log()
    assert "line='to stderr'" in log
    assert "line='no newline'" in log
    assert "to stdout" not in log
    client = session.client()
    assert client.query().epilog.ok
    session.ack(ended.exit_seq)


@pytest.mark.parametrize(
    ("body", "mode", "word", "status"),
    [
        ("echo first >&2\necho last >&2\nexit 3\n", 0o755, "exit status 3: last", 3),
        ("kill -TERM $$\n", 0o755, "killed by signal 15", 143),
        ("exec sleep 1000\n", 0o755, "timed out after 0.2 seconds", 137),
        ("true\n", 0o644, "cannot be run: Permission denied", 126),
    ],
)
def test_an_epilog_that_fails(fast_node, until, hook, body, mode, word, status):
    """Row 27: the result says how; nothing after the failing script runs; the exit is as it was."""
    after = hook("after", f"touch {fast_node.top}/after-ran\n")
    paths = (hook("epilog", body, mode), after)
    spec = fast_node.script(
        "exit 5\n",
        job_lifetime=True,
        epilog=HookSpec(paths=paths, timeout_secs=0.2 if "sleep" in body else 60.0),
    )
    session = fast_node.spawn(spec)
    session.start()
    ended = session.wait()
    assert ended.exit.code == 5
    result = until(lambda: session.story().epilog, what="the epilog's result")
    assert (result.ok, result.status) == (False, status)
    assert word in result.text
    assert result.text.startswith(paths[0])
    assert not (fast_node.top / "after-ran").exists()
    assert session.client().query().epilog == result
    session.ack(ended.exit_seq)


def test_the_group_of_an_epilog_is_killed_when_its_time_is_over(fast_node, until, hook, top):
    body = f"sleep 1000 &\necho $! > {top}/pid\nexec sleep 1000\n"
    spec = fast_node.spec(
        argv=("true",), job_lifetime=True, epilog=HookSpec(paths=(hook("epilog", body),), timeout_secs=0.5)
    )
    session = fast_node.spawn(spec)
    session.start()
    ended = session.wait()
    until(lambda: session.story().epilog, what="the epilog's result")
    pid = int((top / "pid").read_text())
    until(lambda: procfs.start_ticks(pid) is None, what="the end of what it left behind")
    session.client().query()
    session.ack(ended.exit_seq)


def test_several_epilogs_run_in_the_given_order(fast_node, until, hook, top):
    log = top / "log"
    paths = tuple(hook(name, f"echo {name} >> {log}\n") for name in ("z", "m", "a"))
    session = fast_node.spawn(fast_node.spec(argv=("true",), job_lifetime=True, epilog=HookSpec(paths=paths)))
    session.start()
    ended = session.wait()
    until(lambda: session.story().epilog, what="the epilog's result")
    assert log.read_text().split() == ["z", "m", "a"]
    session.client().query()
    session.ack(ended.exit_seq)


def test_an_epilog_starts_elsewhere_when_the_work_dir_is_gone(fast_node, until, hook, top):
    spec = fast_node.spec(
        argv=("rmdir", str(fast_node.work / "w")),
        work_dir=str(fast_node.work / "w"),
        stdout_pattern="/dev/null",
        job_lifetime=True,
        epilog=HookSpec(paths=(hook("epilog", f"pwd > {top}/pwd\n"),)),
    )
    session = fast_node.spawn(spec)
    session.start()
    ended = session.wait()
    until(lambda: session.story().epilog, what="the epilog's result")
    assert session.story().epilog.ok
    assert (top / "pwd").read_text() == "/tmp\n"
    session.client().query()
    session.ack(ended.exit_seq)


def test_an_ack_during_the_epilog_does_not_end_the_supervisor(fast_node, until, hook, gate, agent):
    """The exit is told at once, the epilog's result when there is one; only then the supervisor goes."""
    spec = fast_node.script(
        "exit 5\n",
        job_lifetime=True,
        epilog=HookSpec(paths=(hook("epilog", f"read x < {gate.path}\nexit 4\n"),)),
    )
    session = fast_node.spawn(spec)
    session.start()
    ended = session.wait()
    client = session.client()
    until(lambda: os.path.exists(session.paths.epilog_started), what="the epilog's start")
    client.ack(ended.exit_seq)
    found = client.query()
    assert (found.state, found.cleaned, found.epilog) == ("exited", True, None)
    assert "Acknowledged" in session.events()
    gate.open()
    session.gone()
    assert session.events()[-2:] == ["Acknowledged", "EpilogResult"]
    first, last = agent.got[0], agent.got[-1]
    assert (first.exit.code, first.epilog) == (5, None)
    assert (last.exit.code, last.epilog.ok, last.epilog.status) == (5, False, 4)


def test_v14_the_exit_is_kept_when_the_supervisor_dies_in_the_epilog(faulty_node, until, hook):
    """V14: the exit is on the disk before the epilog; a mark without a result says that the epilog failed."""
    node = faulty_node
    node.fault("crash_after:epilog")
    spec = node.script(
        "exit 5\n", job_lifetime=True, epilog=HookSpec(paths=(hook("epilog", "exec sleep 1000\n"),))
    )
    session = node.spawn(spec)
    session.start()
    session.gone()
    told = session.story()
    assert (told.exit.code, told.epilog, told.acknowledged) == (5, None, False)
    assert os.path.exists(session.paths.epilog_started)
    for pid in procfs.in_session(session.pid):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "point", ["crash_before:epilog", "crash_before:EpilogResult", "crash_after:EpilogResult"]
)
def test_a_supervisor_killed_around_its_epilog(faulty_node, hook, point, top):
    node = faulty_node
    node.fault(point)
    spec = node.script(
        "exit 5\n", job_lifetime=True, epilog=HookSpec(paths=(hook("epilog", f"touch {top}/ran\n"),))
    )
    session = node.spawn(spec)
    session.start()
    session.gone()
    told = session.story()
    assert told.exit.code == 5
    assert bool(told.epilog) == (point == "crash_after:EpilogResult")
    assert os.path.exists(session.paths.epilog_started) == (point != "crash_before:epilog")
    assert (top / "ran").exists() == (point != "crash_before:epilog")


def test_an_epilog_result_that_the_disk_refuses_is_tried_again(faulty_node, until, hook):
    node = faulty_node
    node.fault("fail:EpilogResult", once=str(node.work / "struck"))
    session = node.spawn(
        node.spec(argv=("true",), job_lifetime=True, epilog=HookSpec(paths=(hook("epilog", "exit 1\n"),)))
    )
    session.start()
    ended = session.wait()
    result = until(lambda: session.story().epilog, what="the epilog's result")
    assert not result.ok
    session.client().query()
    session.ack(ended.exit_seq)


def test_steps_without_a_job_s_lifetime_run_no_epilog(fast_node, hook, top):
    spec = fast_node.spec(
        step_id=0, argv=("true",), epilog=HookSpec(paths=(hook("epilog", f"touch {top}/ran\n"),))
    )
    session, _ = fast_node.run(spec)
    assert "EpilogResult" not in session.events()
    assert not (top / "ran").exists()


def test_the_batch_step_of_a_job_without_others_ends_as_fast_as_before(fast_node):
    session, ended = fast_node.run(fast_node.script("exit 2\n", job_lifetime=True))
    assert ended.code == 2
    assert sorted(session.events()) == sorted(
        ["Prepared", "Started", "ExitObserved", "CleanupDone", "Acknowledged"]
    )
