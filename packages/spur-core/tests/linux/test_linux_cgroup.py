"""Control groups: layouts as tables, and real groups where root may make them."""

import os
import signal
from pathlib import Path

import pytest

from spur_core.linux import cgroup, clone
from spur_core.linux.cgroup_layout import Layout, Root, choose_root, detect, parse_mounts, parse_own

pytestmark = pytest.mark.node

V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
HYBRID = (
    "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
    "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
    "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
    "cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n"
    "cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n"
    "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
)


def test_mounts():
    assert parse_mounts(V2) == (["/sys/fs/cgroup"], {})
    assert parse_mounts(HYBRID) == (
        ["/sys/fs/cgroup/unified"],
        {
            "cpu": "/sys/fs/cgroup/cpu,cpuacct",
            "memory": "/sys/fs/cgroup/memory",
            "freezer": "/sys/fs/cgroup/freezer",
        },
    )
    assert parse_mounts("proc /proc proc rw 0 0\nx\n") == ([], {})


def test_own_path():
    assert parse_own("4:memory:/x\n0::/user.slice/a\n") == "/user.slice/a"
    assert parse_own("4:memory:/x\n") is None


FULL = frozenset({"memory", "cpu", "pids", "cpuset"})
PURE = Layout("/c", FULL, {})
MIXED = Layout("/c/unified", frozenset(), {"memory": "/c/memory", "freezer": "/c/freezer"})
OLD = Layout(None, frozenset(), {"memory": "/c/memory", "freezer": "/c/freezer"})
NONE = Layout(None, frozenset(), {})


@pytest.mark.parametrize(
    ("layout", "setting", "own", "writable", "root"),
    [
        (PURE, "auto", "/", {"/c"}, Root("/c/spur", FULL, {})),
        (PURE, "/my/part", "/", {"/c"}, Root("/c/my/part", FULL, {})),
        (PURE, "auto", "/user.slice", {"/c/user.slice"}, Root("/c/user.slice/spur", FULL, {})),
        (PURE, "mine", "/user.slice", {"/c/user.slice"}, None),
        (PURE, "auto", "/user.slice", set(), None),
        (PURE, "auto", None, set(), None),
        (PURE, "none", "/", {"/c"}, None),
        (PURE, "../x", "/", {"/c"}, None),
        (
            MIXED,
            "auto",
            "/",
            {"/c/unified", "/c/memory", "/c/freezer"},
            Root("/c/unified/spur", frozenset(), {"memory": "/c/memory/spur"}),
        ),
        (MIXED, "auto", "/", {"/c/unified"}, Root("/c/unified/spur", frozenset(), {})),
        (
            OLD,
            "auto",
            None,
            {"/c/memory", "/c/freezer"},
            Root(None, frozenset(), {"memory": "/c/memory/spur", "freezer": "/c/freezer/spur"}),
        ),
        (NONE, "auto", None, set(), None),
    ],
)
def test_where_our_groups_go(layout, setting, own, writable, root):
    found, why = choose_root(layout, setting, own, writable.__contains__)
    assert found == root
    assert (why == "") == (root is not None)


@pytest.mark.parametrize(("cpus", "pids"), [(0, 1024), (4, 1024), (5, 1280)])
def test_pids_limit(cpus, pids):
    assert cgroup.pids_limit(cpus) == pids


@pytest.fixture
def root():
    found, why = choose_root(detect(), f"spurtest_{os.getpid()}")
    assert found, why
    yield found
    for base in filter(None, (found.unified, *found.v1.values())):
        for at in reversed(cgroup._walk(base)):
            if os.path.isdir(at):
                os.rmdir(at)


def start_in(dirs, *argv):
    """A process that joins the groups itself before it execs, as the supervisor does it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            cgroup.join(dirs)
            os.setsid()
            os.write(write, b"x")
            os.execvp(argv[0], argv)
        finally:
            os._exit(127)
    os.close(write)
    assert os.read(read, 1) == b"x"
    os.close(read)
    return pid


STEP = cgroup.Limits(memory_mb=32, cpus=1, cpu_ids=(0,))


@pytest.mark.root
def test_groups_of_a_step(root):
    dirs, warnings = cgroup.create_step(
        root,
        "job_7.1",
        "step_0",
        cgroup.Limits(memory_mb=64, cpus=1),
        cgroup.Limits(memory_mb=32, cpus=1, cpu_ids=(0,)),
    )
    assert warnings == []
    if "memory" in root.v1:
        directory = f"{root.v1['memory']}/job_7.1/step_0"
        assert Path(f"{directory}/memory.limit_in_bytes").read_text() == f"{32 << 20}\n"
        assert Path(f"{os.path.dirname(directory)}/memory.limit_in_bytes").read_text() == f"{64 << 20}\n"
    other, _ = cgroup.create_step(root, "job_7.1", "step_1", cgroup.Limits(memory_mb=8), cgroup.Limits())
    if "memory" in root.v1:
        assert Path(f"{directory}/../memory.limit_in_bytes").read_text() == f"{64 << 20}\n"
    other, _ = cgroup.create_step(root, "job_7.1", "step_2", cgroup.Limits(), cgroup.Limits())
    assert not cgroup.is_populated(dirs)
    pid = start_in(dirs, "sleep", "1000")
    assert cgroup.procs(dirs) == [pid]
    assert cgroup.procs(other) == []
    assert cgroup.is_populated(dirs)
    with pytest.raises(FileExistsError):
        cgroup.create_step(root, "job_7.1", "step_0", cgroup.Limits(), cgroup.Limits())
    again, _ = cgroup.create_step(root, "job_7.1", "step_1", cgroup.Limits(), cgroup.Limits())
    assert cgroup.remove(again) == []
    assert cgroup.set_limits(dirs, cgroup.Limits(memory_mb=48)) == []
    assert cgroup.remove(dirs) != []
    assert cgroup.freeze(dirs, True)
    assert cgroup.freeze(dirs, False)
    assert cgroup.kill(dirs)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert cgroup.wait_empty(dirs, 10)
    assert cgroup.remove(dirs) == []
    assert os.path.isdir(os.path.dirname(other[0]))
    assert cgroup.remove(other) == []
    assert cgroup.procs(dirs) == []
    assert not cgroup.kill(dirs)


@pytest.mark.root
def test_joining_the_supervisors_group(root):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            cgroup.join_supervisors(root)
            cgroup.join_supervisors(root)
            bases = [base for base in (root.unified, *root.v1.values()) if base]
            code = not all(
                str(os.getpid()) in Path(f"{base}/stepd/cgroup.procs").read_text() for base in bases
            )
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.root
def test_oom_kill_is_counted(root):
    dirs, _ = cgroup.create_step(root, "job_7.1", "step_0", cgroup.Limits(), cgroup.Limits(memory_mb=16))
    assert cgroup.oom_kills(dirs) == 0
    pid = start_in(dirs, "python3", "-c", "x = bytearray(200 << 20)")
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert cgroup.oom_kills(dirs) >= 1
    assert cgroup.wait_empty(dirs, 10)
    assert cgroup.remove(dirs) == []


def test_without_groups_everything_answers_no(tmp_path):
    dirs = (str(tmp_path / "gone"),)
    assert cgroup.procs(dirs) == []
    assert cgroup.oom_kills(dirs) == cgroup.memory_bytes(dirs) == cgroup.cpu_usec(dirs) == 0
    assert not cgroup.is_populated(dirs)
    assert not cgroup.freeze(dirs, True)
    assert cgroup.wait_empty(dirs, 0)
    assert cgroup.remove(dirs) == []


@pytest.mark.root
def test_a_process_can_be_born_in_a_group(root):
    """With `clone3`: in the v2 group at once, able to fork, reaped as any child."""
    dirs, _ = cgroup.create_step(root, "job_7.1", "step_0", cgroup.Limits(), STEP)
    born_in = cgroup.unified_dir(dirs)
    pid = clone.fork_into(born_in)
    if pid == 0:
        code = 1
        try:
            inside = cgroup.procs(dirs) == [os.getpid()]
            cgroup.join(dirs, born_in)
            inside = inside and all(cgroup.procs((one,)) == [os.getpid()] for one in dirs)
            child = os.fork()
            if child == 0:
                os._exit(3)
            code = 0 if inside and os.waitpid(child, 0)[1] == 3 << 8 else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0) == (pid, 0)
    assert cgroup.wait_empty(dirs, 10)
    assert cgroup.remove(dirs) == []


def test_nobody_is_born_in_what_is_no_group(tmp_path):
    assert clone.fork_into(str(tmp_path)) is None
    assert clone.fork_into(str(tmp_path / "none")) is None


def test_running_into_the_limit_counts_only_where_kills_are_not_counted(tmp_path):
    """An old v1 kernel says how often the limit was hit, but not whom it has killed."""
    (tmp_path / "memory.failcnt").write_text("3\n")
    dirs = (str(tmp_path),)
    assert cgroup.failures(dirs) == 3
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")
    assert cgroup.failures(dirs) == 3
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert (cgroup.failures(dirs), cgroup.oom_kills(dirs)) == (0, 1)
