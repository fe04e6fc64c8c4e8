"""Supervisors that die, stop or find the disk full at the worst moments."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from testkit.supervisor_client import ControlClient

from spur_core.errors import Unreachable
from spur_core.linux import procfs
from spur_proto_lite.control import Refused
from spur_proto_lite.exits import TaskExit
from spur_stepd.loop import Loop
from spur_stepd.oom import OomWatch

pytestmark = pytest.mark.node

#: Point -> events that are in the journal when the supervisor was killed just after it.
AFTER = {
    "Prepared": ["Prepared"],
    "ready": ["Prepared"],
    "forked": ["Prepared"],
    "Started": ["Prepared", "Started"],
    "gate": ["Prepared", "Started"],
    "ExitObserved": ["Prepared", "Started", "ExitObserved"],
    "push": ["Prepared", "Started", "ExitObserved"],
    "CleanupDone": ["Prepared", "Started", "ExitObserved", "CleanupDone"],
    "Acknowledged": ["Prepared", "Started", "ExitObserved", "CleanupDone", "Acknowledged"],
}


def provoke(session):
    """Take the session as far as it goes."""
    try:
        with ControlClient(session.paths.dir, session.spec.rid, 20.0) as client:
            if client.start().failure_kind:
                return
            ended = client.wait(20.0)
            client.ack(ended.exit_seq)
    except (Unreachable, Refused):
        pass


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", AFTER)
def test_a_supervisor_killed_at_each_point(faulty_node, until, point, when):
    """What it had not written has not happened; nothing of the user's ran before `Started`."""
    node = faulty_node
    node.fault(f"crash_{when}:{point}")
    session = node.prepare(node.script("echo ran > ran\nexit 3\n"))
    session.pid, session.ticks, _ = node.raw_spawn(session.paths.dir)
    provoke(session)
    session.gone()
    expected = AFTER[point]
    if when == "before" and point in expected:
        expected = expected[: expected.index(point)]
    assert [name for name in session.events() if name != "Signalled"] == expected
    assert bool(session.story().exit) == ("ExitObserved" in expected)
    if "Started" not in expected:
        assert not (node.work / "ran").exists()


@pytest.mark.parametrize("point", ["forked", "Started"])
def test_tasks_at_the_gate_die_with_their_supervisor(faulty_node, until, point):
    """Row 6: nobody opens the gate any more."""
    node = faulty_node
    node.fault(f"crash_after:{point}")
    session = node.prepare(node.script("echo ran > ran\nsleep 1000\n"))
    session.pid, session.ticks, _ = node.raw_spawn(session.paths.dir)
    provoke(session)
    session.gone()
    until(lambda: not procfs.in_session(session.pid), what="the end of the tasks")
    assert not (node.work / "ran").exists()


def test_a_start_that_cannot_be_recorded_fails(faulty_node):
    """Row 19: a full disk before the gate is a fault of the node, and nothing has run."""
    node = faulty_node
    node.fault("fail:Started")
    session = node.spawn(node.script("echo ran > ran\n"))
    reply = session.start()
    assert (reply.failure_kind, reply.failure_errno) == ("node", 28)
    session.gone()
    assert session.events() == ["Prepared", "Abandoned"]
    assert not (node.work / "ran").exists()
    assert not any(os.path.exists(directory) for directory in reply.cgroup)


def test_a_session_that_cannot_be_prepared_is_refused_at_once(faulty_node):
    node = faulty_node
    node.fault("fail:Prepared")
    session = node.prepare(node.script("true\n"))
    _, _, number = node.raw_spawn(session.paths.dir)
    assert number == 28
    assert "No space left on device" in session.log()


def test_an_exit_that_the_disk_refuses_is_kept_and_tried_again(faulty_node):
    """Row 20: told as not durable, not acknowledged, written as soon as there is room."""
    node = faulty_node
    node.fault("fail:ExitObserved", once=str(node.work / "struck"))
    session = node.spawn(node.script("exit 3\n"))
    session.start()
    ended = session.wait()
    assert ended.exit.code == 3
    assert "exit_not_written" in session.log()
    session.ack(ended.exit_seq)
    assert session.events() == ["Prepared", "Started", "ExitObserved", "CleanupDone", "Acknowledged"]


def test_an_exit_on_a_disk_that_stays_full(faulty_node, until):
    """Row 20: it stays in memory, `query` says that it is not durable, and an ack does not count."""
    node = faulty_node
    node.fault("fail:ExitObserved")
    session = node.spawn(node.script("exit 3\n"))
    session.start()
    client = session.client()
    found = until(lambda: (reply := client.query()).exit and reply)
    assert (found.exit.code, found.exit_seq) == (3, 0)
    with pytest.raises(Refused):
        client.ack(1)
    assert client.wait(0.1).exit is None
    assert session.log().count("exit_not_written") >= 1


def test_an_acknowledgement_that_the_disk_refuses(faulty_node):
    node = faulty_node
    node.fault("fail:Acknowledged", once=str(node.work / "struck"))
    session = node.spawn(node.script("exit 3\n"))
    session.start()
    seq = session.wait().exit_seq
    with pytest.raises(Refused, match="acknowledge again"):
        session.client().ack(seq)
    session.cleaned()
    session.ack(seq)
    assert session.events()[-1] == "Acknowledged"


def test_a_stopped_supervisor_goes_on_where_it_was(faulty_node, until):
    node = faulty_node
    node.fault("stop_at:ExitObserved")
    session = node.spawn(node.script("exit 3\n"))
    session.start()
    until(lambda: procfs.stat(session.pid).state == "T", what="the stop")
    assert "ExitObserved" not in session.events()
    os.kill(session.pid, signal.SIGCONT)
    ended = session.wait()
    assert ended.exit.code == 3
    session.ack(ended.exit_seq)


@pytest.mark.parametrize(
    ("environ", "word"),
    [
        ({"SPUR_FAULT": "crash_after:Started"}, "SPUR_TEST_FAULTS=1 is not"),
        ({"SPUR_FAULT": "crash_after:Nothing", "SPUR_TEST_FAULTS": "1"}, "is no KIND:POINT"),
        ({"SPUR_FAULT": "explode:Started", "SPUR_TEST_FAULTS": "1"}, "is no KIND:POINT"),
    ],
)
def test_fault_points_are_refused_outside_tests_and_by_unknown_names(environ, word):
    program = str(Path(sys.executable).with_name("spurstepd"))
    for args in (["--session", "/tmp/none"], ["--spawner"]):
        done = subprocess.run([program, *args], env=environ, capture_output=True, text=True)
        assert done.returncode == 2
        assert word in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("ordered", "signals", "hits", "found"),
    [
        (False, (9,), 4, 1),
        (False, (0, 9, 9), 4, 2),
        (False, (15,), 4, 0),
        (True, (9,), 4, 0),
        (False, (9,), 3, 0),
    ],
)
def test_want_of_memory_on_a_kernel_that_does_not_count_its_kills(tmp_path, ordered, signals, hits, found):
    """7.5: the limit was reached since the start, and a SIGKILL that nobody ordered."""
    count = tmp_path / "memory.failcnt"
    count.write_text("3\n")
    watch = OomWatch(Loop(), lambda: None)
    watch.begin((str(tmp_path),))
    count.write_text(f"{hits}\n")
    ends = tuple(TaskExit(rank=rank, signal=number) for rank, number in enumerate(signals))
    assert watch.killed_among(ends, ordered) == found
    watch.close()
