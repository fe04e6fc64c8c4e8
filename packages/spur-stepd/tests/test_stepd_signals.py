"""Signals, teardown, suspend, leftovers, memory, and what a user can do to his supervisor."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from spur_core.linux import cgroup, procfs
from spur_proto_lite.control import Refused

pytestmark = pytest.mark.node

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"


def until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.002)
    return found


def written(node, name="slurm-7.out"):
    path = node.work / name
    return path.read_text() if path.exists() else ""


def test_teardown_gives_a_grace_and_then_kills(fast_node):
    body = "trap 'echo TERM' TERM\necho up\nwhile :; do sleep 0.02; done\n"
    session = fast_node.spawn(fast_node.script(body))
    session.start()
    until(lambda: "up" in written(fast_node))
    client = session.client()
    client.teardown("timeout", 60.0)
    until(lambda: "TERM\n" in written(fast_node))
    assert client.query().state == "running"
    client.teardown("cancelled", 0.05)  # a shorter grace shortens; the first reason stays
    ended = session.wait()
    assert (ended.exit.signal, ended.exit.teardown_reason) == (signal.SIGKILL, "timeout")
    line = rf"slurmstepd: error: \*\*\* JOB 7 ON n1 CANCELLED AT {STAMP} DUE TO TIME LIMIT \*\*\*\n"
    assert len(re.findall(line, written(fast_node))) == 1
    client.teardown("cancelled", 0.0)  # after the end: nothing
    events = session.events()
    assert events.count("TeardownRequested") == 1
    session.ack(ended.exit_seq)


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("cancelled", rf"slurmstepd: error: \*\*\* STEP 7.0 ON n1 CANCELLED AT {STAMP} \*\*\*\n"),
        (
            "preempted",
            rf"slurmstepd: error: \*\*\* STEP 7.0 ON n1 CANCELLED AT {STAMP} DUE TO PREEMPTION \*\*\*\n",
        ),
        ("", ""),
    ],
)
def test_last_words_of_a_step(fast_node, reason, line):
    spec = fast_node.spec(step_id=0, argv=("sleep", "1000"), stderr_pattern="err")
    session = fast_node.spawn(spec)
    session.start()
    session.client().teardown(reason)
    ended = session.wait()
    assert ended.exit.signal == signal.SIGTERM
    assert re.fullmatch(line, written(fast_node, "err"))
    session.ack(ended.exit_seq)


def test_sigterm_to_the_supervisor_is_a_teardown(node):
    session = node.spawn(node.spec(argv=("sleep", "1000")))
    session.start()
    for harmless in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        os.kill(session.pid, harmless)
    assert session.client().query().state == "running"
    os.kill(session.pid, signal.SIGTERM)
    ended = session.wait()
    assert (ended.exit.signal, ended.exit.teardown_reason) == (signal.SIGTERM, "stopped")
    session.ack(ended.exit_seq)


def test_teardown_before_start(fast_node):
    session = fast_node.spawn(fast_node.script("touch ran\n"))
    session.client().teardown("cancelled")
    session.gone()
    assert session.events() == ["Prepared", "Abandoned"]
    assert not (fast_node.work / "ran").exists()


def test_never_started_is_given_up(node):
    session = node.spawn(node.script("touch ran\n", start_timeout_secs=0.5))
    session.gone()
    assert session.events() == ["Prepared", "Abandoned"]
    assert not (node.work / "ran").exists()


def test_v05_a_signal_reaches_who_left_the_process_group(node):
    """V5: a process in a session of its own gets it too."""
    body = "trap 'echo outer' USR1\n"
    body += "setsid sh -c 'trap \"echo inner; exit\" USR1; echo up; while :; do sleep 0.02; done' &\n"
    body += "while :; do wait; done\n"
    session = node.spawn(node.script(body))
    session.start()
    until(lambda: "up" in written(node))
    sent = session.client().signal(signal.SIGUSR1)
    assert sent.count >= 2
    assert sent.path == ("cgroup" if node.cgroup_root != "none" else "children")
    until(lambda: {"inner", "outer"} <= set(written(node).split()))
    session.client().teardown("", 0)
    session.ack(session.wait().exit_seq)


@pytest.mark.parametrize("scope", ["leader", "group"])
def test_smaller_scopes(fast_node, scope):
    body = "trap 'echo parent' USR1\n"
    body += "sh -c 'trap \"echo child\" USR1; echo up; while :; do sleep 0.02; done' &\n"
    body += "while :; do wait; done\n"
    session = fast_node.spawn(fast_node.script(body))
    session.start()
    until(lambda: "up" in written(fast_node))
    assert session.client().signal(signal.SIGUSR1, scope).path == scope
    until(lambda: "parent" in written(fast_node))
    if scope == "group":
        until(lambda: "child" in written(fast_node))
    session.client().teardown("", 0)
    session.ack(session.wait().exit_seq)
    assert ("child" in written(fast_node)) == (scope == "group")


def test_v06_without_a_group_descendants_are_found(fast_node):
    """V6 and 8.3: nothing in a cgroup, still everybody gets it."""
    body = "setsid sh -c 'echo up; exec sleep 1000' & wait\n"
    session = fast_node.spawn(fast_node.script(body, cgroup_root="none"))
    session.start()
    until(lambda: "up" in written(fast_node))
    assert session.client().query().pids == 2
    sent = session.client().signal(signal.SIGTERM)
    assert (sent.count, sent.path) == (2, "children")
    assert session.wait().exit.signal == signal.SIGTERM
    session.cleaned()


@pytest.mark.parametrize("grouped", [True, False])
def test_suspend_and_resume(fast_node, grouped):
    body = "i=0; while :; do i=$((i+1)); echo $i > tick; sleep 0.01; done\n"
    changes = {} if grouped else {"cgroup_root": "none"}
    session = fast_node.spawn(fast_node.script(body, **changes))
    session.start()
    until(lambda: written(fast_node, "tick"))
    client = session.client()
    client.suspend()
    client.suspend()
    assert client.query().state == "suspended"

    def frozen():
        before, stop = written(fast_node, "tick"), time.monotonic() + 0.1
        until(lambda: time.monotonic() > stop)
        return before == written(fast_node, "tick")

    until(frozen)
    client.resume()
    assert client.query().state == "running"
    before = written(fast_node, "tick")
    until(lambda: written(fast_node, "tick") not in ("", before))
    client.suspend()
    client.signal(signal.SIGTERM)  # thaws first
    assert session.wait().exit.signal == signal.SIGTERM
    with pytest.raises(Refused):
        client.suspend()


def test_a_suspended_step_can_be_torn_down(fast_node):
    session = fast_node.spawn(fast_node.spec(argv=("sleep", "1000")))
    session.start()
    session.client().suspend()
    session.client().teardown("cancelled", 60.0)
    assert session.wait().exit.signal == signal.SIGTERM


@pytest.mark.parametrize("grouped", [True, False])
def test_leftovers_are_killed(fast_node, grouped, gate):
    """Row 11: the exit counts at once, what stays behind is ended."""
    changes = {} if grouped else {"cgroup_root": "none"}
    body = (
        f"setsid sh -c 'trap \"\" TERM HUP; echo $$ > pid; exec sleep 1000' &\nread x < {gate.path}\nexit 6\n"
    )
    session = fast_node.spawn(fast_node.script(body, **changes))
    session.start()
    pid = int(until(lambda: written(fast_node, "pid")))
    gate.open()
    ended = session.wait()
    assert ended.exit.code == 6
    until(lambda: procfs.start_ticks(pid) is None)
    session.cleaned()
    session.ack(ended.exit_seq)


def test_orphans_are_adopted_and_reaped(fast_node, gate):
    body = f"(sh -c 'echo $PPID > /dev/null; exec true' &)\n(sleep 0.01 &)\nread x < {gate.path}\n"
    session = fast_node.spawn(fast_node.script(body))
    reply = session.start()
    until(lambda: procfs.children(session.pid) == [reply.task_pid])
    gate.open()
    session.ack(session.wait().exit_seq)


@pytest.mark.root
def test_groups_and_limits_of_a_running_step(fast_node, gate):
    session = fast_node.spawn(fast_node.script(f"read x < {gate.path}\n", cpus=1, memory_mb=64, cpu_ids=(0,)))
    reply = session.start()
    assert reply.warnings == ()
    assert cgroup.procs(reply.cgroup) == [reply.task_pid]
    mine = Path(f"/proc/{session.pid}/cgroup").read_text()
    task = Path(f"/proc/{reply.task_pid}/cgroup").read_text()
    assert f"/{fast_node.cgroup_root}/stepd\n" in mine
    assert "job_7.1" not in mine
    for controller in ("memory", "cpu", "cpuset", "pids", ""):
        assert re.search(
            rf":{controller}:/{fast_node.cgroup_root}/job_7.1/step_{session.spec.rid.step_id}\n", task
        )
    assert "Cpus_allowed_list:\t0\n" in Path(f"/proc/{reply.task_pid}/status").read_text()
    session.client().update(memory_mb=128)
    limits = [p for p in (Path(d, "memory.limit_in_bytes") for d in reply.cgroup) if p.exists()]
    assert [p.read_text() for p in limits] == [f"{128 << 20}\n"]
    assert session.client().query().memory_bytes > 0
    gate.open()
    session.ack(session.wait().exit_seq)
    assert not any(os.path.exists(os.path.dirname(directory)) for directory in reply.cgroup)


@pytest.mark.root
def test_v17_out_of_memory_is_told_and_ends_the_step(fast_node):
    """V17 and row 10: with its journal complete, the supervisor unharmed."""
    body = "python3 -c 'x = bytearray(300 << 20)'\nsleep 1000\n"
    session = fast_node.spawn(fast_node.script(body, memory_mb=32))
    session.start()
    ended = session.wait()
    assert ended.exit.oom
    assert ended.exit.signal == signal.SIGKILL
    text = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. "
    text += "Some of the step tasks have been OOM Killed.\n"
    assert text in written(fast_node)
    session.cleaned()
    assert session.story().exit.oom
    session.ack(ended.exit_seq)


@pytest.mark.root
def test_kill_9_minus_1_as_an_ordinary_user_does_not_end_its_supervisor(node):
    """Row 29: `kill -KILL -1` as an ordinary user."""
    body = "/bin/kill -KILL -1\nsleep 1000\n"
    session = node.spawn(
        node.script(body, uid=4_000_321, gid=4_000_321, work_dir="/tmp", stdout_pattern="/dev/null")
    )
    session.start()
    ended = session.wait()
    assert ended.exit.signal == signal.SIGKILL
    session.cleaned()
    session.ack(ended.exit_seq)


@pytest.mark.root
def test_ids_and_groups_of_supervisor_and_task(fast_node, gate):
    body = f"id -u; id -g; id -G; read x < {gate.path}\n"
    session = fast_node.spawn(fast_node.script(body, groups=(65534, 4_000_001)))
    reply = session.start()
    status = Path(f"/proc/{session.pid}/status").read_text()
    assert re.search(r"Uid:\t0\t65534\t0\t65534", status)
    task = Path(f"/proc/{reply.task_pid}/status").read_text()
    assert "Uid:\t65534\t65534\t65534\t65534" in task
    assert "Gid:\t65534\t65534\t65534\t65534" in task
    gate.open()
    session.ack(session.wait().exit_seq)
    assert written(fast_node).split() == ["65534", "65534", "65534", "4000001"]
    assert (fast_node.work / "slurm-7.out").stat().st_uid == 65534


@pytest.mark.root
def test_root_cannot_be_made_to_touch_what_the_user_could_not(fast_node):
    secret = fast_node.top / "secret"
    secret.write_text("mine\n")
    secret.chmod(0o600)
    (fast_node.work / "slurm-7.out").symlink_to(secret)
    session = fast_node.spawn(fast_node.script("echo overwritten\n"))
    reply = session.start()
    assert (reply.failure_kind, reply.failure_errno) == ("io", 13)
    assert secret.read_text() == "mine\n"


@pytest.mark.root
def test_jobs_of_root_need_permission(fast_node):
    session = fast_node.spawn(fast_node.script("true\n", uid=0, gid=0))
    assert "allow_root_jobs" in session.start().text
    _, ended = fast_node.run(fast_node.script("id -u\n", attempt=2, uid=0, gid=0, allow_root_jobs=True))
    assert ended.code == 0
    assert written(fast_node) == "0\n"
