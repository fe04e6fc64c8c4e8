"""What a job's processes try, to stay, to hide, to harm their supervisor, and to starve others."""

import contextlib
import os
import pwd
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.node]


@pytest.fixture
def room(target: Any, helpers: Any, tmp_path: Path) -> Path:
    """A directory of the stranger's."""
    helpers.open_folder(tmp_path)
    found = tmp_path / "room"
    found.mkdir()
    user = pwd.getpwnam(helpers.stranger)
    os.chown(found, user.pw_uid, user.pw_gid)
    return found


@pytest.fixture(autouse=True)
def nothing_left(target: Any, helpers: Any) -> Iterator[None]:
    """After every attack: no process of the user's, no group of a job's, idle nodes."""
    uid = pwd.getpwnam(helpers.stranger).pw_uid
    before = set(of_user(uid))
    yield
    target.cluster.ok("scancel", "--me", env={"SPUR_AUTH_TOKEN": target.user_token(helpers.stranger)})
    helpers.until(lambda: target.cluster.idle(), "idle", 30)
    helpers.until(lambda: not set(of_user(uid)) - before, f"no process of uid {uid}", 60)
    helpers.until(lambda: not groups(target), "no group of a job", 60)


def of_user(uid: int) -> list[int]:
    """Live processes whose real uid that is."""
    found = []
    for path in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            text = path.read_text()
            if re.search(rf"^Uid:\t{uid}\t", text, re.M) and not re.search(r"^State:\tZ", text, re.M):
                found.append(int(path.parent.name))
    return found


def bases(target: Any) -> list[Path]:
    """The groups of this cluster's agents: those in which its spawners are."""
    names = set()
    for node in ("node1", "node2"):
        pid = target.cluster.pid(f"spurd-{node}")
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                    text = (path.parent / "cgroup").read_text()
                    names |= set(re.findall(r"/(spur\w*)/stepd", text))
    return [base for name in names for base in Path("/sys/fs/cgroup").glob(f"*/{name}")]


def groups(target: Any) -> list[Path]:
    """Groups of jobs of this cluster."""
    return [path for base in bases(target) for path in base.glob("job_*")]


def submit(target: Any, stranger: str, script: str, **fields: Any) -> str:
    """As the stranger; the job id."""
    shebang = "" if script.startswith("#!") else "#!/bin/sh\n"
    answer = target.submit(stranger, script=(shebang + script).encode(), hold=False, **fields)
    assert answer.code == "OK", answer
    return str(answer.message.job_id)


SPY = r"""#!/usr/bin/python3
import ctypes, json, os, signal
libc = ctypes.CDLL(None, use_errno=True)
parent = os.getppid()
found = {}
for name in ("mem", "environ", "fd", "maps", "auxv", "stack", "syscall", "io", "root", "cwd", "exe"):
    path = f"/proc/{parent}/{name}"
    try:
        if name in ("root", "cwd", "exe"):
            os.readlink(path)
        elif name == "fd":
            os.listdir(path)
        else:
            open(path, "rb").read(1)
        found[name] = "open"
    except OSError:
        pass
for word, number in (("attach", 16), ("seize", 0x4206)):
    if libc.ptrace(number, parent, 0, 0) == 0:
        found[word] = "traced"
for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, 0):
    try:
        os.kill(parent, number)
        found[f"signal {number}"] = "sent"
    except OSError:
        pass
pidfd = os.pidfd_open(parent)
for number in range(0, 40):
    if libc.syscall(438, pidfd, number, 0) >= 0:
        found[f"pidfd_getfd {number}"] = "taken"
try:
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    found["pidfd signal"] = "sent"
except OSError:
    pass
class iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
local, remote = iovec(ctypes.addressof(buffer), 8), iovec(0x400000, 8)
libc.process_vm_readv(parent, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
if ctypes.get_errno() not in (1, 3):
    found["vm_readv"] = ctypes.get_errno()
ctypes.set_errno(0)
try:
    os.sched_setaffinity(parent, {0}); found["affinity"] = "set"
except OSError:
    pass
try:
    os.setpriority(os.PRIO_PROCESS, parent, 19); found["nice"] = "set"
except OSError:
    pass
try:
    open(f"/proc/{parent}/oom_score_adj", "w").write("1000"); found["oom"] = "set"
except OSError:
    pass
import resource
try:
    resource.prlimit(parent, resource.RLIMIT_NOFILE, (3, 3)); found["prlimit"] = "set"
except (OSError, PermissionError):
    pass
print(json.dumps(found))
"""


def test_a_job_cannot_touch_its_supervisor(target: Any, stranger: str, room: Path) -> None:
    """Neither read it, nor trace it, signal it, slow it down, or take its descriptors."""
    job = submit(target, stranger, SPY, stdout_path=str(room / "out"), work_dir=str(room))
    target.cluster.wait(job, "COMPLETED")
    assert (room / "out").read_text().strip() == "{}"


def test_a_step_and_a_command_cannot_touch_theirs(target: Any, stranger: str, room: Path) -> None:
    """The same from a numbered step's task and from a command inside the allocation."""
    from spur_proto import agent_pb2, common_pb2

    (room / "spy").write_text(SPY)
    (room / "spy").chmod(0o755)
    job, node = target.allocate(stranger)
    made = target.step(stranger, job, str(room / "spy"), overlap=True)
    joined = target.join(node, stranger, made.message.step.rid, mode=agent_pb2.SESSION_MODE_OWNER)
    joined.end()
    assert joined.output().strip() == b"{}"
    rid = common_pb2.RuntimeId(job_id=job, run_attempt=1)
    joined = target.join(
        node, stranger, rid, mode=agent_pb2.SESSION_MODE_EXEC, argv=[str(room / "spy").encode()]
    )
    joined.end()
    assert joined.output().strip() == b"{}"
    target.cluster.ok("scancel", str(job))


def test_killing_everything_in_a_step_and_a_command(target: Any, stranger: str) -> None:
    """`kill -9 -1` beside a terminal, a step and a hold: supervisors and agents stay."""
    from spur_proto import agent_pb2, common_pb2

    job, node = target.allocate(stranger)
    rid = common_pb2.RuntimeId(job_id=job, run_attempt=1)
    made = target.step(stranger, job, "sh", "-c", "kill -9 -1", overlap=True)
    answer = target.join(node, stranger, made.message.step.rid, mode=agent_pb2.SESSION_MODE_OWNER).end()
    assert answer.message[-1].exit.exit == common_pb2.ExitStatus()  # it spares whoever asks for it
    answer = target.join(
        node, stranger, rid, mode=agent_pb2.SESSION_MODE_EXEC, argv=[b"sh", b"-c", b"kill -9 -1; kill -9 $$"]
    ).end()
    assert answer.message[-1].exit.exit.signal == 9
    assert target.cluster.state(str(job)) == "RUNNING"
    target.cluster.ok("scancel", str(job))


def test_a_fork_bomb_stays_within_its_limit(target: Any, stranger: str, room: Path) -> None:
    """Others on the node go on, and all of it is gone after a cancel."""
    bomb = (
        "#!/usr/bin/python3\nimport os, time\n"
        "while True:\n"
        "    try:\n"
        "        if os.fork() == 0 and os.fork() == 0:\n"
        "            os.setsid()\n"
        "    except OSError:\n"
        "        time.sleep(0.2)\n"
    )
    job = submit(target, stranger, bomb, num_tasks=1, work_dir=str(room), rlimits=["NPROC=-1:-1"])
    target.cluster.wait(job, "RUNNING")
    node = target.node_of(job)
    uid = pwd.getpwnam(_stranger_of(target, job)).pw_uid
    most = 0
    ended = time.monotonic() + 6
    while time.monotonic() < ended:
        most = max(most, len(of_user(uid)))
    assert 500 < most <= 1100, most
    other = target.cluster.sbatch("-o", "/dev/null", "-w", node, "--wrap", "true")
    target.cluster.wait(other, "COMPLETED", secs=60)
    begun = time.monotonic()
    target.cluster.ok("scancel", job)
    target.cluster.wait(job, "CANCELLED", secs=90)
    assert time.monotonic() - begun < 60


def _stranger_of(target: Any, job: str) -> str:
    return str(target.cluster.ok("squeue", "-h", "-j", job, "-o", "%u").strip())


def test_daemons_of_a_job_end_with_it(target: Any, stranger: str, room: Path) -> None:
    """Double forks, sessions of their own, ignored and blocked signals, stopped processes, groups below."""
    script = """#!/usr/bin/python3
import os, signal, sys
def daemon(doing):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(1, 65):
                try: signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError): pass
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            doing()
            while True: signal.pause()
        os._exit(0)
    os.wait()
own = [l.split(':', 2)[2].strip() for l in open('/proc/self/cgroup') if l.startswith('0::')]
def hide():
    for root in ('/sys/fs/cgroup/unified', '/sys/fs/cgroup'):
        try:
            os.mkdir(root + own[0] + '/below'); os.mkdir(root + own[0] + '/below/deeper')
            open(root + own[0] + '/below/deeper/cgroup.procs', 'w').write(str(os.getpid()))
            open(root + own[0] + '/below/cgroup.freeze', 'w').write('1')
        except OSError: pass
daemon(lambda: None)
daemon(lambda: os.kill(os.getpid(), signal.SIGSTOP))
daemon(hide)
daemon(lambda: os.execvpe('sleep', ['sleep', '600'], {}))
print('up', flush=True)
"""
    job = submit(target, stranger, script, stdout_path=str(room / "out"), work_dir=str(room))
    target.cluster.wait(job, "COMPLETED", secs=60)
    assert (room / "out").read_text() == "up\n"


def test_groups_too_deep_to_be_named_hide_nobody(target: Any, stranger: str, room: Path) -> None:
    """A user may divide his step's group; however deep that is, the job can be ended and removed."""
    script = """#!/usr/bin/python3
import os, sys, time
own = [l.split(':', 2)[2].strip() for l in open('/proc/self/cgroup') if l.startswith('0::')][0]
root = '/sys/fs/cgroup/unified' if os.path.isdir('/sys/fs/cgroup/unified') else '/sys/fs/cgroup'
os.chdir(root + own)
depth = 0
try:
    for depth in range(40):
        os.mkdir('d' * 200)
        os.chdir('d' * 200)
except OSError as error:
    print(error.errno)
if os.fork() == 0:
    os.setsid()
    open('cgroup.procs', 'w').write(str(os.getpid()))
    time.sleep(600)
print(depth, flush=True)
time.sleep(600)
"""
    job = submit(target, stranger, script, stdout_path=str(room / "out"), work_dir=str(room))
    target.cluster.until(lambda: (room / "out").exists() and (room / "out").read_text().strip(), "it is deep")
    target.cluster.ok("scancel", job)
    target.cluster.wait(job, "CANCELLED", secs=60)


def test_a_memory_hog_takes_nobody_with_it(target: Any, stranger: str, room: Path) -> None:
    """It ends OUT_OF_MEMORY while a job beside it on the node goes on."""
    other = target.cluster.sbatch(
        "-o", "/dev/null", "-w", "node1", "-n1", "--mem=50", "--wrap", "exec sleep 600"
    )
    target.cluster.wait(other, "RUNNING")
    script = (
        "#!/usr/bin/python3\nimport os\n"
        "for _ in range(4):\n    os.fork()\n"
        "held = []\nwhile True: held.append(bytearray(1 << 20))\n"
    )
    job = submit(
        target, stranger, script, memory_per_node_mb=64, num_tasks=1, nodelist="node1", work_dir=str(room)
    )
    target.cluster.wait(job, "OUT_OF_MEMORY", secs=60)
    assert target.cluster.state(other) == "RUNNING"
    target.cluster.ok("scancel", other)
    target.cluster.wait(other, "CANCELLED")


def test_endless_output_stops_at_the_cap(target: Any, stranger: str) -> None:
    """Of a step that nobody watches: the task blocks, the disk does not fill, the job can be ended."""
    job, _ = target.allocate(stranger)
    made = target.step(stranger, job, "sh", "-c", "yes & yes >&2", overlap=True)
    step = made.message.step.rid.step_id
    folder = next((target.cluster.folder / "state").rglob(f"sessions/{job}.1.{step}"))

    def spooled() -> int:
        return sum(path.stat().st_size for path in folder.iterdir() if path.name[:3] in ("out", "err"))

    target.cluster.until(lambda: spooled() >= 128 << 20, "both streams are at their cap", 60)
    assert spooled() <= 130 << 20
    before = spooled()
    target.cluster.ok("sinfo")
    assert spooled() == before
    target.cluster.ok("scancel", str(job))
    target.cluster.wait(str(job))


def test_a_planted_scratch_is_not_used(target: Any, helpers: Any, tmp_path: Path) -> None:
    """Another user, or a link, was there first: the job runs elsewhere, and touches nothing there."""
    helpers.open_folder(tmp_path)
    # A user without a scratch of his own on this host.
    user = next(
        user
        for user in pwd.getpwall()
        if 0 < user.pw_uid < 60000
        and user.pw_name not in (helpers.stranger, helpers.victim)
        and not os.path.lexists(f"/tmp/spur-scratch-{user.pw_uid}")
    )
    trap = Path(f"/tmp/spur-scratch-{user.pw_uid}")
    other = pwd.getpwnam(helpers.victim)
    aim = tmp_path / "aim"
    aim.mkdir()
    aim.chmod(0o777)
    token = target.user_token(user.pw_name)
    plants = {
        "link": lambda: trap.symlink_to(aim),
        "foreign": lambda: (trap.mkdir(), trap.chmod(0o777), os.chown(trap, other.pw_uid, -1)),
        "loose": lambda: (trap.mkdir(), os.chown(trap, user.pw_uid, -1), trap.chmod(0o777)),
    }
    for word, plant in plants.items():
        plant()
        try:
            out = aim.parent / word
            out.touch()
            out.chmod(0o666)
            job = submit(target, token, "pwd\n", stdout_path=str(out), work_dir="/nowhere/at/all")
            target.cluster.wait(job, "COMPLETED")
            assert "spur-scratch" not in out.read_text().splitlines()[-1], word
            assert list(aim.iterdir()) == [], word
            assert trap.is_symlink() or list(trap.iterdir()) == [], word
        finally:
            trap.unlink() if trap.is_symlink() else trap.rmdir()


def test_nothing_of_a_job_stays_in_the_spool(target: Any, stranger: str, room: Path) -> None:
    """The directory of its script is the user's: what he puts, links and renames there goes with the job."""
    script = """#!/bin/sh
own=$(dirname "$(readlink -f "$0")")
echo "$own" > where
mkdir -p "$own"/a/b/c
head -c 1000000 /dev/zero > "$own"/a/b/big
ln -s /etc "$own"/a/link
ln -s /etc/passwd "$own"/out.0
chmod 0 "$own"/a/b/c
mv "$0" "$own"/moved
mkdir "$own"/slurm_script
ls "$own"/.. >/dev/null 2>&1 && echo listed
(echo x > "$own"/../x) 2>/dev/null && echo wrote beside
mv "$own" "$own".away 2>/dev/null && echo moved away
echo done
"""
    passwd = Path("/etc/passwd").read_bytes()
    out = room / "out"
    job = submit(target, stranger, script, stdout_path=str(out), work_dir=str(room))
    target.cluster.wait(job, "COMPLETED")
    assert out.read_text() == "done\n"
    where = Path((room / "where").read_text().strip())
    assert f"{job}.1." in where.name
    target.cluster.until(lambda: not where.exists(), "the directory is gone")
    assert Path("/etc/passwd").read_bytes() == passwd
    assert Path("/etc/hosts").exists()


def test_a_job_that_fills_its_disk_leaves_the_node_alone(target: Any, stranger: str, room: Path) -> None:
    """What it writes is its own affair: its directory is full, it ends, and so does everything of it."""
    small = room / "small"
    small.mkdir()
    assert os.system(f"mount -t tmpfs -o size=1m,mode=1777 none {small}") == 0
    try:
        job = submit(
            target,
            stranger,
            f"head -c 5000000 /dev/zero > {small}/x; echo $? ; yes\n",
            stdout_path=f"{small}/out",
            work_dir=str(small),
        )
        target.cluster.wait(job, "FAILED", "COMPLETED")
    finally:
        os.system(f"umount -l {small}")
    target.works()


def test_nobody_can_lie_to_the_agent(target: Any, stranger: str, room: Path) -> None:
    """A job finds no socket of the agent's, the spawner's or a supervisor's that it could speak to."""
    script = """#!/usr/bin/python3
import os, re, socket
tried = 0
for line in open('/proc/net/unix').read().splitlines()[1:]:
    words = line.split()
    if len(words) < 8 or not re.search(r'spur|\\\\.sock', words[7]): continue
    name = words[7]
    tried += 1
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        s = socket.socket(socket.AF_UNIX, kind)
        s.settimeout(1)
        try:
            s.connect('\\0' + name[1:] if name.startswith('@') else name)
            print('connected', name)
        except OSError: pass
print('done')
"""
    out = room / "out"
    job = submit(target, stranger, script, stdout_path=str(out), work_dir=str(room))
    target.cluster.wait(job, "COMPLETED")
    assert out.read_text() == "done\n"


def test_the_cluster_has_not_noticed(target: Any) -> None:
    target.works()
