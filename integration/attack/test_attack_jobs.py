"""What a user's job can see, reach and damage on the node it runs on."""

import json
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spur_core.ids import STEP_BATCH, RuntimeId
from spur_proto_lite.paths import SessionPaths, StatePaths

pytestmark = [pytest.mark.root, pytest.mark.node]

#: Run by the attacker's job; tells what it is and what it could open.
PROBE = r"""#!/usr/bin/python3
import glob, json, os, socket, sys
fds = sorted(int(n) for n in os.listdir("/proc/self/fd"))
status = dict(l.split(":\t", 1) for l in open("/proc/self/status").read().splitlines() if ":\t" in l)
def opened(path):
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            open(path, "rb").read(1)
        return True
    except OSError:
        return False
def connected(path):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(path); return True
    except OSError:
        return False
parent = os.getppid()
targets = json.loads(open(sys.argv[0] + ".json").read()) if 0 else json.loads(os.environ["TARGETS"])
own = os.path.dirname(os.path.abspath(sys.argv[0]))
print(json.dumps({
    "uids": os.getresuid(), "gids": os.getresgid(), "groups": sorted(os.getgroups()),
    "caps": [status[n].strip() for n in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
    "fds": [f for f in fds if os.path.exists(f"/proc/self/fd/{f}")],
    "umask": os.umask(0),
    "opened": [p for p in targets["files"] if opened(p)],
    "connected": [p for p in targets["sockets"] if connected(p)],
    "parent": [n for n in ("environ", "mem", "maps", "fd", "cwd", "root")
               if opened(f"/proc/{parent}/{n}")],
    "siblings": opened(os.path.dirname(own)),
    "env": dict(os.environ), "cmdline": open(f"/proc/{parent}/cmdline").read(),
    "sid": os.getsid(0),
}))
"""


@pytest.fixture(scope="module")
def exposed(target: Any) -> Iterator[Any]:
    """The cluster with every directory open that an administrator may have opened: what is closed now is
    closed by the daemons themselves."""
    folder = target.cluster.folder
    doors = [folder, folder / "state", *(folder / "state").glob("spurd-*")]
    before = [(path, stat.S_IMODE(path.stat().st_mode)) for path in doors]
    for path, _ in before:
        path.chmod(0o755)
    yield target
    for path, mode in before:
        path.chmod(mode)


def run_as_stranger(target: Any, stranger: str, script: str, **fields: Any) -> str:
    """Submit as the stranger and wait for the end; the job id."""
    answer = target.submit(stranger, script=script.encode(), hold=False, **fields)
    assert answer.code == "OK", answer
    job = str(answer.message.job_id)
    target.cluster.wait(job)
    return job


@pytest.fixture
def room(exposed: Any, helpers: Any, tmp_path: Path) -> Path:
    """A directory of the stranger's."""
    helpers.open_folder(tmp_path)
    found = tmp_path / "room"
    found.mkdir()
    user = pwd.getpwnam(helpers.stranger)
    os.chown(found, user.pw_uid, user.pw_gid)
    return found


def test_a_job_has_its_users_rights_and_nothing_else(
    exposed: Any, stranger: str, helpers: Any, room: Path
) -> None:
    cluster = exposed.cluster
    victim = cluster.sbatch("-o", "/dev/null", "--wrap", "exec sleep 600")
    cluster.wait(victim, "RUNNING")
    files, sockets = [], []
    for base in (*(cluster.folder / "state").glob("spurd-*"), cluster.folder / "log", cluster.folder / "run"):
        for path in base.rglob("*"):
            if stat.S_ISSOCK(path.lstat().st_mode):
                sockets.append(str(path))
            elif path.is_file() or path.name in ("runtime", "sessions"):
                files.append(str(path))
    files += [str(cluster.folder / "key"), str(cluster.folder / "token")]
    files += [str(cluster.folder / "state" / "spurctld-1" / "accounting.sqlite")]
    assert sockets
    assert any(path.endswith("launch.json") for path in files)
    wanted = json.dumps({"files": files, "sockets": sockets})
    env = [b"PATH=/usr/bin:/bin", f"TARGETS={wanted}".encode()]
    out = room / "out"
    job = run_as_stranger(
        exposed, stranger, PROBE, environment=env, stdout_path=str(out), work_dir=str(room), umask=0o027
    )
    cluster.run("scancel", victim)
    assert cluster.state(job) == "COMPLETED", out.read_text()
    found = json.loads(out.read_text())
    user = pwd.getpwnam(helpers.stranger)
    assert found["uids"] == [user.pw_uid] * 3
    assert found["gids"] == [user.pw_gid] * 3
    assert found["groups"] == sorted(set(os.getgrouplist(user.pw_name, user.pw_gid)))
    assert {int(text, 16) for text in found["caps"]} == {0}
    assert found["fds"] == [0, 1, 2]
    assert found["umask"] == 0o027
    assert found["opened"] == []
    assert found["connected"] == []
    assert found["parent"] == []
    assert not found["siblings"], "the spool can be listed"
    key = exposed.key.decode()
    told = json.dumps(found["env"]) + found["cmdline"]
    assert key not in told
    assert "eyJ" not in told, "a token"
    assert (out.stat().st_uid, stat.S_IMODE(out.stat().st_mode)) == (user.pw_uid, 0o640)


def test_a_file_limit_leaves_no_descriptor(exposed: Any, stranger: str, room: Path) -> None:
    out = room / "fds"
    run_as_stranger(
        exposed,
        stranger,
        "#!/bin/sh\nls /proc/$$/fd | tr '\\n' ' '\n",
        stdout_path=str(out),
        rlimits=["NOFILE=4:4"],
    )
    # The shell itself holds its script open on a number that it chooses.
    numbers = {int(word) for word in out.read_text().split()} if out.exists() else set()
    assert numbers <= {0, 1, 2, 3, 10, 255}


def test_killing_everything_kills_only_ones_own(exposed: Any, stranger: str, helpers: Any) -> None:
    cluster = exposed.cluster
    answer = exposed.submit(
        stranger, script=b"#!/bin/sh\nsleep 600 &\nkill -KILL -1\nkill -KILL $$\n", hold=False
    )
    job = str(answer.message.job_id)
    cluster.wait(job, "FAILED", "CANCELLED", "COMPLETED")
    row = cluster.history(job, "State,ExitCode", "-X")[0]
    assert row == ["FAILED", "0:9"], row
    helpers.until(cluster.idle, "the nodes are idle again")
    exposed.works()


def test_stopping_everything_does_not_stop_the_node(exposed: Any, stranger: str, helpers: Any) -> None:
    cluster = exposed.cluster
    answer = exposed.submit(stranger, script=b"#!/bin/sh\nkill -STOP -1\nkill -STOP $$\n", hold=False)
    job = str(answer.message.job_id)
    cluster.wait(job, "RUNNING")
    cluster.ok("scancel", job)
    cluster.wait(job, "CANCELLED", secs=60)


# -- output ---------------------------------------------------------------------------------------------


@pytest.fixture
def treasure(room: Path) -> Iterator[Path]:
    """A file of root's beside the stranger's directory, with a door that only root opens."""
    closed = room.parent / "closed"
    closed.mkdir(mode=0o700)
    found = closed / "treasure"
    found.write_text("precious")
    yield found
    assert found.read_text() == "precious"
    assert found.stat().st_uid == 0
    assert sorted(path.name for path in closed.iterdir()) == ["treasure"]


def paths(room: Path, treasure: Path) -> dict[str, dict[str, Any]]:
    """Word -> fields of a submission whose output root could write and the stranger cannot."""
    link = room / "link"
    link.symlink_to(treasure)
    door = room / "door"
    door.symlink_to(treasure.parent)
    readable = room.parent / "readable"
    readable.write_text("precious")
    readable.chmod(0o644)
    return {
        "symlink": {"stdout_path": str(link)},
        "symlinked directory": {"stdout_path": f"{door}/new"},
        "direct": {"stdout_path": str(treasure)},
        "a system file": {"stdout_path": "/etc/passwd"},
        "readable": {"stdout_path": str(readable)},
        "append": {"stdout_path": str(readable), "open_mode": "append"},
        "error": {"stdout_path": "/dev/null", "stderr_path": str(treasure)},
        "input": {"stdin_path": str(treasure), "stdout_path": f"{room}/copy"},
        "proc": {"stdout_path": "/proc/1/fd/1"},
        "device": {"stdout_path": "/dev/kmsg"},
    }


WORDS = (
    "symlink",
    "symlinked directory",
    "direct",
    "a system file",
    "readable",
    "append",
    "error",
    "input",
    "proc",
    "device",
)


@pytest.mark.parametrize("word", WORDS)
def test_root_touches_nothing_for_a_user(
    exposed: Any, stranger: str, room: Path, treasure: Path, word: str
) -> None:
    passwd = Path("/etc/passwd").read_bytes()
    fields = {"work_dir": str(room), **paths(room, treasure)[word]}
    ran = room / "ran"
    job = run_as_stranger(exposed, stranger, f"#!/bin/sh\ncat\necho overwritten\n: > {ran}\n", **fields)
    assert exposed.cluster.state(job) == "FAILED"
    assert not ran.exists(), "it ran although its output could not be opened"
    assert Path("/etc/passwd").read_bytes() == passwd
    assert (room.parent / "readable").read_text() == "precious"
    assert not (room / "copy").exists() or "precious" not in (room / "copy").read_text()


def test_a_job_name_does_not_lead_out_of_the_directory(
    exposed: Any, stranger: str, room: Path, treasure: Path
) -> None:
    up = room.parent / "up"
    up.mkdir()
    up.chmod(0o777)
    fields: dict[str, Any] = {"work_dir": str(room), "stdout_path": f"{room}/%x", "name": "../up/out"}
    job = run_as_stranger(exposed, stranger, "#!/bin/sh\necho here\n", **fields)
    assert exposed.cluster.state(job) == "COMPLETED"
    assert list(up.iterdir()) == []
    assert [path.read_text() for path in room.iterdir()] == ["here\n"]


def test_work_directories_are_made_with_the_users_rights(
    exposed: Any, stranger: str, room: Path, treasure: Path
) -> None:
    out = room / "where"
    script = "#!/bin/sh\npwd\n"
    job = run_as_stranger(
        exposed, stranger, script, work_dir=str(treasure.parent / "new"), stdout_path=str(out)
    )
    assert exposed.cluster.state(job) == "COMPLETED"
    assert str(treasure.parent) not in out.read_text().splitlines()[-1]


# -- session directories ----------------------------------------------------------------------------------


def _prepare_dir(path: Path, other: Path) -> None:
    path.mkdir(mode=0o700)


def _prepare_open(path: Path, other: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def _prepare_foreign(path: Path, other: Path) -> None:
    path.mkdir(mode=0o700)
    (path / "launch.json").write_text("{}")
    os.chown(path, 65534, 65534)


def _prepare_link(path: Path, other: Path) -> None:
    path.symlink_to(other)


@pytest.mark.parametrize(
    "prepare", [_prepare_open, _prepare_foreign, _prepare_link], ids=["loose", "foreign", "symlink"]
)
def test_a_prepared_session_directory_is_not_used(
    exposed: Any, helpers: Any, tmp_path: Path, prepare: Any
) -> None:
    """The attempt fails, what was prepared stays as it is, and the next attempt runs."""
    cluster = exposed.cluster
    last = int(cluster.sbatch("-H", "--wrap", "true"))
    cluster.run("scancel", str(last))
    rid = RuntimeId(last + 1, 1, STEP_BATCH)
    traps = []
    for node in ("node1", "node2"):
        state = StatePaths(str(cluster.folder / "state" / f"spurd-{node}"))
        trap = Path(state.session(rid).dir)
        trap.parent.mkdir(parents=True, exist_ok=True)
        prepare(trap, tmp_path)
        traps.append(trap)
    before = [(trap.lstat().st_uid, trap.lstat().st_mode) for trap in traps]
    job = cluster.sbatch("-o", "/dev/null", "--wrap", "true")
    assert int(job) == rid.job_id
    cluster.wait(job, "COMPLETED", secs=60)
    assert [(trap.lstat().st_uid, trap.lstat().st_mode) for trap in traps] == before
    assert list(tmp_path.iterdir()) == []
    for trap in traps:
        if trap.is_symlink():
            trap.unlink()
        else:
            for path in trap.iterdir():
                assert path.read_text() == "{}"
                path.unlink()
            trap.rmdir()


def test_session_files_are_private(exposed: Any) -> None:
    cluster = exposed.cluster
    job = cluster.sbatch("-o", "/dev/null", "--wrap", "exec sleep 600")
    cluster.wait(job, "RUNNING")
    found = [
        path for base in (cluster.folder / "state").glob("spurd-*") for path in (base / "runtime").rglob("*")
    ]
    assert any(path.name == SessionPaths.LAUNCH for path in found)
    for path in found:
        mode = path.lstat()
        if path.parent.name == "spool" or path.name == "spool":
            continue
        assert mode.st_uid == 0, path
        assert stat.S_IMODE(mode.st_mode) & 0o077 == 0, (path, oct(mode.st_mode))
        if path.is_file():
            assert exposed.key not in path.read_bytes()
            # The one credential on a node is the proof of its name, which lies outside every session.
            assert path.name == "node.json" or b"eyJ" not in path.read_bytes(), f"a token in {path}"
    cluster.ok("scancel", job)
