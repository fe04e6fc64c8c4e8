"""Identity of processes, pidfds, and the three process attributes."""

import os
import select
import signal
import subprocess
import sys

import pytest

from spur_core.linux import pidfd, procfs

pytestmark = pytest.mark.node

TAIL = "S 11 12 13 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {ticks} 99 100"


@pytest.mark.parametrize("name", ["sh", "a) b", ")", "(((", ") R 1 2 3", "x\ny"])
def test_fields_are_counted_after_the_last_parenthesis(name):
    found = procfs.parse_stat(f"77 ({name}) " + TAIL.format(ticks=4242))
    assert found == ("S", 11, 12, 13, 4242)


@pytest.mark.parametrize("text", ["", "77 (sh", "77 (sh) S 1"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="not a stat line"):
        procfs.parse_stat(text)


def test_own_identity_lives():
    me = procfs.identity(os.getpid())
    assert procfs.is_alive(me)
    assert procfs.stat(os.getpid()).ppid == os.getppid()
    assert procfs.stat(os.getpid()).session == os.getsid(0)


@pytest.mark.parametrize(
    "change",
    [{"pid": 0}, {"pid": -1}, {"boot_id": "other"}, {"start_ticks": 1}],
)
def test_any_difference_is_death(change):
    assert not procfs.is_alive(procfs.identity(os.getpid())._replace(**change))


def test_a_zombie_is_dead():
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert procfs.stat(child.pid).state == "Z"
    assert procfs.start_ticks(child.pid) is None
    child.wait()


def test_descendants_and_session(tmp_path):
    """Parents come before their children; a session is found by scanning."""
    script = "import os, subprocess; p = subprocess.Popen(['cat']); os.write(1, b'x'); p.wait()"
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    child.stdout.read(1)
    below = procfs.descendants(os.getpid())
    assert child.pid in below
    (grandchild,) = procfs.children(child.pid)
    assert below.index(child.pid) < below.index(grandchild)
    assert set(procfs.in_session(child.pid)) == {child.pid, grandchild}
    child.stdin.close()
    child.stdout.close()
    child.wait()
    assert procfs.in_session(child.pid) == []


def test_pidfd_tells_death_and_signals_only_the_right_one():
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    who = procfs.identity(child.pid)
    fd = pidfd.open_checked(who)
    assert not pidfd.send_checked(who._replace(start_ticks=1), signal.SIGKILL)
    assert pidfd.open_checked(who._replace(pid=0)) is None
    assert pidfd.send_checked(who, signal.SIGTERM)
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    assert poller.poll(10_000)
    assert child.wait() == -signal.SIGTERM
    child.stdin.close()
    os.close(fd)
    assert not pidfd.send_checked(who, signal.SIGTERM)


def test_process_attributes():
    code = (
        "from spur_core.linux import prctl; prctl.set_child_subreaper(); prctl.set_not_dumpable();"
        "prctl.set_no_new_privs(); print(open('/proc/self/status').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "NoNewPrivs:\t1" in done.stdout
