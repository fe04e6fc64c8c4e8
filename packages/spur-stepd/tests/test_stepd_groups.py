"""Groups of running steps: who is in them, who is reached through them, their limits and their end."""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from spur_core.ids import STEP_EXTERN
from spur_core.linux import cgroup, procfs
from spur_proto_lite import journal
from spur_proto_lite.control import Refused

pytestmark = [pytest.mark.node, pytest.mark.root]


def limit(groups, name):
    """The one value of a limit file over all hierarchies."""
    found = [path.read_text().strip() for path in (Path(d, name) for d in groups) if path.exists()]
    assert len(found) == 1, found
    return found[0]


@pytest.fixture
def foreign():
    """Start processes that are nobody's task; they are ended with the test."""
    made = []

    def start(uid=65534, argv=("sleep", "1000")):
        made.append(subprocess.Popen(argv, user=uid, group=uid, start_new_session=True))
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.wait()


def test_v05_a_process_known_only_by_its_group_is_reached(fast_node, foreign, gate):
    """No descendant of the supervisor, another session and group: SIGTERM and SIGKILL arrive all the same."""
    session = fast_node.spawn(fast_node.script(f"trap '' TERM\nread x < {gate.path}\n"))
    groups = session.start().cgroup
    first, second = foreign(), foreign()
    cgroup.adopt(groups, first.pid)
    assert session.client().query().pids == 2
    sent = session.client().signal(signal.SIGTERM)
    assert sent.path == "cgroup"
    assert sent.count >= 2
    assert first.wait(20) == -signal.SIGTERM
    cgroup.adopt(groups, second.pid)
    session.client().signal(signal.SIGKILL)
    assert second.wait(20) == -signal.SIGKILL
    ended = session.wait()
    assert ended.exit.signal == signal.SIGKILL
    session.ack(ended.exit_seq)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_v06_an_empty_group_is_not_a_delivery(fast_node, number, until):
    """The task is moved out of its groups by hand: the signal still arrives by another way."""
    session = fast_node.spawn(fast_node.spec(argv=("sleep", "1000")))
    reply = session.start()
    outside = tuple(os.path.dirname(os.path.dirname(directory)) for directory in reply.cgroup)
    cgroup.adopt(tuple(f"{directory}/stepd" for directory in outside), reply.task_pid)
    assert cgroup.procs(reply.cgroup) == []
    sent = session.client().signal(number)
    assert sent.count == 1
    assert sent.path in ("children", "group", "leader")
    assert session.wait().exit.signal == number


def test_v16_a_torn_journal_line_costs_nothing_before_it(fast_node, gate):
    session = fast_node.spawn(fast_node.script(f"read x < {gate.path}\nexit 3\n"))
    task = session.start().task_pid
    os.kill(session.pid, signal.SIGKILL)
    session.gone()
    os.kill(task, signal.SIGKILL)
    whole = Path(session.paths.journal).read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(whole)):
        os.truncate(session.paths.journal, cut)
        assert session.events() == ["Prepared"]
        Path(session.paths.journal).write_bytes(whole)
    os.truncate(session.paths.journal, len(whole) - 5)
    writer = journal.JournalWriter(session.paths.journal)
    assert writer.append(journal.FENCED, 1.0, {"reason": "lost"}) == 2
    writer.close()
    assert session.events() == ["Prepared", "Fenced"]


def test_tasks_are_born_in_their_groups(fast_node, gate):
    """All of them, and in every hierarchy; the supervisor in none."""
    session = fast_node.spawn(fast_node.script(f"read x < {gate.path}\n", cpus=1, memory_mb=64))
    reply = session.start()
    for directory in reply.cgroup:
        assert cgroup.procs((directory,)) == [reply.task_pid]
    mine = Path(f"/proc/{session.pid}/cgroup").read_text()
    assert "job_7.1" not in mine
    gate.open()
    session.ack(session.wait().exit_seq)


def test_limits_of_job_and_step(fast_node, gate):
    """The step's lie inside the job's; swap is not given; processes by CPUs."""
    spec = fast_node.script(
        f"read x < {gate.path}\n",
        cpus=5,
        memory_mb=64,
        cpu_ids=(0,),
        job_cpus=6,
        job_memory_mb=96,
        job_cpu_ids=tuple(sorted(os.sched_getaffinity(0))[:2]),
    )
    session = fast_node.spawn(spec)
    reply = session.start()
    step, job = reply.cgroup, cgroup.job_dirs(reply.cgroup)
    assert reply.warnings == ()
    assert [limit(groups, "memory.limit_in_bytes") for groups in (step, job)] == [
        str(64 << 20),
        str(96 << 20),
    ]
    assert [limit(groups, "pids.max") for groups in (step, job)] == ["1280", "1536"]
    assert [limit(groups, "cpu.cfs_quota_us") for groups in (step, job)] == ["500000", "600000"]
    assert limit(step, "cpuset.cpus") == "0"
    for directory in (*step, *job):
        swap = Path(directory, "memory.memsw.limit_in_bytes")
        if swap.exists():
            assert swap.read_text() == Path(directory, "memory.limit_in_bytes").read_text()
    gate.open()
    session.ack(session.wait().exit_seq)
    assert not any(os.path.exists(directory) for directory in (*step, *job))


@pytest.mark.parametrize("job_lifetime", [False, True])
def test_update_changes_the_limits(fast_node, gate, job_lifetime):
    """Of the step, and of the whole job through its job-lifetime step."""
    cpus = sorted(os.sched_getaffinity(0))
    spec = fast_node.script(
        f"read x < {gate.path}\n", cpus=1, memory_mb=64, cpu_ids=(cpus[0],), job_lifetime=job_lifetime
    )
    session = fast_node.spawn(spec)
    reply = session.start()
    step, job = reply.cgroup, cgroup.job_dirs(reply.cgroup)
    client = session.client()
    if job_lifetime:
        assert client.call("update", memory_mb=128, cpus=2, cpu_ids=cpus[-1:])["warnings"] == []
        assert limit(job, "memory.limit_in_bytes") == limit(step, "memory.limit_in_bytes") == str(128 << 20)
        assert limit(job, "cpu.cfs_quota_us") == limit(step, "cpu.cfs_quota_us") == "200000"
        assert limit(job, "cpuset.cpus") == limit(step, "cpuset.cpus") == str(cpus[-1])
        client.update(memory_mb=32, cpus=1)
    else:
        client.update(memory_mb=32)
        assert limit(job, "memory.limit_in_bytes") == str(64 << 20)
    assert limit(step, "memory.limit_in_bytes") == str(32 << 20)
    gate.open()
    session.ack(session.wait().exit_seq)


def test_a_forking_step_is_killed_whole(fast_node, until):
    """Inside its limit of processes nobody outruns the kill."""
    program = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
    session = fast_node.spawn(fast_node.spec(argv=("python3", "-c", program), cpus=1))
    reply = session.start()
    pids = [Path(d, "pids.max") for d in reply.cgroup if Path(d, "pids.max").exists()]
    for path in pids:
        path.write_text("60")
    until(lambda: len(cgroup.procs(reply.cgroup)) > 50)
    session.client().teardown("cancelled", 0.0)
    ended = session.wait()
    session.cleaned()
    assert ended.exit.signal == signal.SIGKILL
    assert cgroup.procs(reply.cgroup) == []
    session.ack(ended.exit_seq)


def test_a_suspended_step_is_killed_and_not_left_frozen(fast_node):
    session = fast_node.spawn(fast_node.spec(argv=("sleep", "1000")))
    session.start()
    client = session.client()
    client.suspend()
    client.signal(signal.SIGKILL)
    ended = session.wait()
    assert ended.exit.signal == signal.SIGKILL
    session.ack(ended.exit_seq)


def test_a_user_may_divide_his_step_further_and_it_still_ends_whole(fast_node, until):
    """7.2: the step's v2 group is delegated; a threaded group in it hides nobody."""
    body = (
        "own=$(sed -n 's/^0:://p' /proc/self/cgroup)\n"
        "top=$(awk '$3 == \"cgroup2\" { print $2; exit }' /proc/mounts)\n"
        "mkdir $top$own/mine || exit 7\n"
        "sleep 1000 &\n"
        "echo $! > $top$own/mine/cgroup.procs || exit 8\n"
        "mkdir $top$own/../stolen 2>/dev/null && exit 9\n"
        "echo 1 2>/dev/null > $top$own/cgroup.kill && exit 10\n"
        "echo $! > pid\n"
        "exec sleep 1000\n"
    )
    session = fast_node.spawn(fast_node.script(body))
    reply = session.start()
    inner = until(lambda: (fast_node.work / "pid").exists() and (fast_node.work / "pid").read_text().strip())
    assert set(cgroup.procs(reply.cgroup)) == {int(inner), reply.task_pid}
    session.client().teardown("cancelled", 10.0)
    ended = session.wait()
    assert ended.exit.signal == signal.SIGTERM
    until(lambda: procfs.start_ticks(int(inner)) is None)
    session.cleaned()
    assert not any(os.path.exists(directory) for directory in reply.cgroup)
    session.ack(ended.exit_seq)


def test_a_user_s_groups_stay_within_what_a_path_can_name(fast_node, until):
    """Groups too deep to be named could be neither looked into nor removed: the job's would stay for ever."""
    body = (
        "own=$(sed -n 's/^0:://p' /proc/self/cgroup)\n"
        "top=$(awk '$3 == \"cgroup2\" { print $2; exit }' /proc/mounts)\n"
        "cd $top$own\n"
        "long=$(printf '%0250d' 0)\n"
        "while mkdir $long 2>/dev/null; do cd $long; done\n"
        "setsid sleep 1000 &\n"
        "echo $! > cgroup.procs\n"
        f"echo $! > {fast_node.work}/pid\n"
        "exec sleep 1000\n"
    )
    session = fast_node.spawn(fast_node.script(body))
    reply = session.start()
    inner = until(lambda: (fast_node.work / "pid").exists() and (fast_node.work / "pid").read_text().strip())
    assert int(inner) in cgroup.procs(reply.cgroup)
    session.client().teardown("cancelled", 0.0)
    ended = session.wait()
    until(lambda: procfs.start_ticks(int(inner)) is None)
    session.cleaned()
    assert not any(os.path.exists(os.path.dirname(directory)) for directory in reply.cgroup)
    session.ack(ended.exit_seq)


def test_kills_for_want_of_memory_before_the_start_are_not_this_step_s(fast_node, until):
    """A held step that takes over a group with a past counts from its own start."""
    old = fast_node.spawn(fast_node.spec(step_id=STEP_EXTERN, hold=True, memory_mb=16))
    groups = old.start().cgroup
    hungry = subprocess.Popen(
        ["python3", "-c", "import os\nos.read(0, 1)\nx = bytearray(100 << 20)"], stdin=-1
    )
    keeper = subprocess.Popen(["sleep", "1000"])
    cgroup.adopt(groups, hungry.pid)
    os.kill(old.pid, signal.SIGKILL)
    old.gone()
    cgroup.adopt(groups, keeper.pid)
    hungry.communicate(b"x")
    assert hungry.returncode == -signal.SIGKILL
    assert cgroup.oom_kills(groups) == 1
    for name in os.listdir(old.paths.dir):
        os.unlink(f"{old.paths.dir}/{name}")
    os.rmdir(old.paths.dir)
    fast_node.sessions.remove(old)
    new = fast_node.spawn(old.spec)
    assert new.start().cgroup == groups
    assert cgroup.procs(groups) == [keeper.pid]
    new.client().teardown("cancelled", 20.0)
    ended = new.wait()
    assert not ended.exit.oom
    assert keeper.wait(20) == -signal.SIGTERM
    new.ack(ended.exit_seq)


@pytest.fixture
def extern(fast_node):
    session = fast_node.spawn(fast_node.spec(step_id=STEP_EXTERN, hold=True, memory_mb=64, kill_wait_secs=20))
    session.start()
    yield session
    with contextlib.suppress(Refused):
        session.client().teardown("cancelled", 0.0)
        session.ack(session.wait().exit_seq)


def test_a_process_of_the_user_is_adopted(extern, foreign):
    """It is limited, signalled, counted and ended with the job, and is given the grace of a teardown."""
    process = foreign()
    client = extern.client()
    ticks = procfs.start_ticks(process.pid)
    assert client.adopt_pid(process.pid, ticks) == ticks
    assert client.adopt_pid(process.pid) == ticks  # again: nothing more happens
    assert client.query().pids == 1
    in_groups = Path(f"/proc/{process.pid}/cgroup").read_text()
    assert len(re.findall(f"/job_7.1/step_{STEP_EXTERN}\n", in_groups)) >= 2
    extern.client().teardown("cancelled")
    assert process.wait(20) == -signal.SIGTERM
    assert extern.wait().exit.code == 0


def test_whom_an_extern_step_does_not_take(extern, foreign, fast_node):
    client = extern.client()
    stranger, roots, own = foreign(65533), foreign(0), foreign()
    for process in (stranger, roots):
        with pytest.raises(Refused, match="does not belong") as refused:
            client.adopt_pid(process.pid)
        assert refused.value.code == "bad_request"
    for pid, ticks in ((own.pid, 12345), (4_100_000, None), (-1, None), (0, None)):
        with pytest.raises(Refused) as refused:
            client.adopt_pid(pid, ticks)
        assert refused.value.code == "no_such_process"
    assert client.query().pids == 0
    other = fast_node.spawn(fast_node.spec(step_id=0, argv=("sleep", "1000")))
    with pytest.raises(Refused) as refused:
        other.client().adopt_pid(own.pid)
    assert refused.value.code == "bad_state"
    other.start()
    with pytest.raises(Refused) as refused:
        other.client().adopt_pid(own.pid)
    assert refused.value.code == "bad_state"
