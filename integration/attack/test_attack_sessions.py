"""Attaching to steps, running commands inside them: of other users, and more of it than is good."""

import contextlib
import os
import pwd
import re
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from spur_core.ids import STEP_BATCH, STEP_EXTERN
from spur_proto import agent_pb2 as ap
from spur_proto import common_pb2

pytestmark = [pytest.mark.root, pytest.mark.node]

DENIED = "Access/permission denied"
MODES = (ap.SESSION_MODE_UNSPECIFIED, ap.SESSION_MODE_OWNER, ap.SESSION_MODE_WATCHER, ap.SESSION_MODE_EXEC)


class Place(NamedTuple):
    """An allocation of one user's."""

    token: str
    job: int
    node: str

    def rid(self, step: int | None, attempt: int = 1) -> Any:
        return common_pb2.RuntimeId(job_id=self.job, run_attempt=attempt, step_id=step)


@pytest.fixture(scope="module")
def room(target: Any, stranger: str) -> Iterator[Place]:
    """The attacker's own allocation."""
    job, node = target.allocate(stranger)
    yield Place(stranger, job, node)
    target.cluster.run("scancel", str(job))


@pytest.fixture(scope="module")
def victim(target: Any, helpers: Any, room: Place) -> Iterator[tuple[Place, int]]:
    """Another user's, with a terminal in it that prints a secret."""
    token = target.user_token(helpers.victim)
    job, node = target.allocate(token, nodelist=room.node)
    made = target.step(
        token, job, "sh", "-c", "echo secret; exec sleep 600", overlap=True, shape={"pty": True}
    )
    assert made.code == "OK", made
    yield Place(token, job, node), made.message.step.rid.step_id
    target.cluster.run("scancel", str(job))


def begin(target: Any, room: Place, *argv: str, **fields: Any) -> Any:
    """A step of the attacker's own: its id."""
    made = target.step(room.token, room.job, *argv, overlap=True, **fields)
    assert made.code == "OK", made
    return made.message.step.rid


def execute(target: Any, room: Place, *argv: str, step: int | None = None, **init: Any) -> Any:
    """A command inside the allocation: (its exit, its output)."""
    joined = target.join(
        room.node,
        room.token,
        room.rid(step),
        mode=ap.SESSION_MODE_EXEC,
        argv=[word.encode() for word in argv],
        **init,
    )
    answer = joined.end()
    assert answer.code == "OK", answer
    return answer.message[-1].exit.exit, joined.output().decode()


def descriptors(pid: int) -> int:
    """Open descriptors of a daemon."""
    return len(os.listdir(f"/proc/{pid}/fd"))


# -- other users' -----------------------------------------------------------------------------------------


def test_no_session_in_another_users_job(target: Any, stranger: str, victim: tuple[Place, int]) -> None:
    place, step = victim
    for attempt in (1, 0, 2, 2**32 - 1):
        for number in (step, None, STEP_EXTERN, STEP_BATCH, 0, 9, 2**32 - 1):
            for mode in MODES:
                rid = place.rid(number, attempt)
                answer = target.join(place.node, stranger, rid, mode=mode, argv=[b"id"]).end()
                assert (answer.code, answer.text) == ("PERMISSION_DENIED", DENIED), (rid, mode, answer)
                assert not answer.message


def test_a_terminal_belongs_to_its_user_alone(
    target: Any, room: Place, victim: tuple[Place, int], helpers: Any
) -> None:
    """Mode and owner of the device, and what another user's job can do with it."""
    place, step = victim
    pid = _task_of(target, place.job, step)
    device = os.readlink(f"/proc/{pid}/fd/0")
    assert device.startswith("/dev/pts/")
    found = Path(device).stat()
    assert found.st_uid == pwd.getpwnam(helpers.victim).pw_uid
    assert stat.S_IMODE(found.st_mode) in (0o600, 0o620)
    assert found.st_gid != pwd.getpwnam(helpers.victim).pw_gid or stat.S_IMODE(found.st_mode) == 0o600
    script = (
        "import fcntl, termios, os\n"
        f"for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):\n"
        "    try:\n"
        f"        fd = os.open({device!r}, flags | os.O_NOCTTY)\n"
        "        fcntl.ioctl(fd, termios.TIOCSTI, b'x')\n"
        "        print('in')\n"
        "    except OSError as error:\n"
        "        print(error.errno)\n"
    )
    _, said = execute(target, room, "python3", "-c", script)
    assert said.split() == ["13", "13", "13"]


def _task_of(target: Any, job: int, step: int) -> int:
    found = list((target.cluster.folder / "state").rglob(f"sessions/{job}.1.{step}/descriptor.json"))
    assert len(found) == 1, found
    return int(re.findall(r'"task_pid":\s*(\d+)', found[0].read_text())[0])


# -- a command inside a step ------------------------------------------------------------------------------


def test_a_command_gets_no_more_than_the_job_has(target: Any, room: Place, helpers: Any) -> None:
    user = pwd.getpwnam(helpers.stranger)
    script = (
        "import os, json\n"
        "lines = open('/proc/self/status').read().splitlines()\n"
        "status = dict(l.split(':\\t', 1) for l in lines if ':\\t' in l)\n"
        "print(json.dumps([os.getresuid(), os.getresgid(), sorted(os.getgroups()), status['NoNewPrivs'],\n"
        "  int(status['CapEff'], 16), int(status['CapPrm'], 16),\n"
        "  sorted(map(int, os.listdir('/proc/self/fd')))[:4],\n"
        "  os.environ.get('HOME'), os.environ['SLURM_JOB_ID'], open('/proc/self/cgroup').read()]))\n"
    )
    import json

    env = [b"LD_PRELOAD=", b"SLURM_JOB_ID=1", b"HOME=/root", b"PATH=/usr/bin:/bin"]
    ended, said = execute(target, room, "python3", "-c", script, environment=env)
    assert ended.code == 0, said
    uids, gids, groups, nnp, effective, permitted, fds, _home, _job, groups_of = json.loads(said)
    assert uids == [user.pw_uid] * 3
    assert gids == [user.pw_gid] * 3
    assert groups == sorted(set(os.getgrouplist(user.pw_name, user.pw_gid)))
    assert nnp.strip() == "1"
    assert effective == permitted == 0
    assert fds == [0, 1, 2, 3]
    for line in groups_of.splitlines():
        if any(word in line for word in (":memory:", ":pids:")):
            assert f"job_{room.job}.1" in line, line


def test_a_command_may_not_move_itself_out_of_its_step(target: Any, room: Place) -> None:
    """Writing its pid into any other group's list of processes.  Its step's own group was given to the user:
    there it may stay beyond its client, but not beyond its step."""
    script = (
        "import glob, os\n"
        "lists = glob.glob('/sys/fs/cgroup/**/cgroup.procs', recursive=True)\n"
        "lists += glob.glob('/sys/fs/cgroup/**/tasks', recursive=True)\n"
        "tried = 0\n"
        "for path in lists:\n"
        "    try:\n"
        "        with open(path, 'w') as file: file.write(str(os.getpid()))\n"
        "    except OSError: tried += 1\n"
        "print(tried > 5)\n"
        "print(open('/proc/self/cgroup').read())\n"
    )
    _, said = execute(target, room, "cat", "/proc/self/cgroup")
    before = [line.partition("/exec_")[0] for line in said.split()]
    assert any(f"job_{room.job}.1/step_" in line for line in before)
    _, said = execute(target, room, "python3", "-c", script)
    tried, *after = said.split()
    assert tried == "True"
    assert [line.partition("/exec_")[0] for line in after] == before


def test_what_a_command_started_ends_with_its_connection(target: Any, room: Place, helpers: Any) -> None:
    """Daemons in sessions of their own as well."""
    mark = f"7{os.getpid() % 10000:05d}"
    script = f"(setsid sleep {mark} &) ; (trap '' HUP TERM INT; setsid sleep {mark}) & echo up; sleep {mark}"
    joined = target.join(
        room.node, room.token, room.rid(None), mode=ap.SESSION_MODE_EXEC, argv=[b"sh", b"-c", script.encode()]
    )
    while b"up" not in joined.output():
        joined.next()
    helpers.until(lambda: len(_running(mark)) >= 3, "they run")
    joined.close()
    helpers.until(lambda: not _running(mark), "they are gone")


def _running(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == f"sleep\0{mark}\0".encode():
                found.append(int(path.parent.name))
    return found


def test_no_command_after_the_end(target: Any, stranger: str, helpers: Any) -> None:
    job, node = target.allocate(stranger)
    place = Place(stranger, job, node)
    assert execute(target, place, "true")[0].code == 0
    rid = begin(target, place, "true")
    helpers.until(lambda: target.join(node, stranger, rid, mode=ap.SESSION_MODE_WATCHER).end(), "over")
    target.cluster.ok("scancel", str(job))
    target.cluster.wait(str(job))
    for number in (None, rid.step_id, STEP_EXTERN):
        answer = target.join(
            node, stranger, place.rid(number), mode=ap.SESSION_MODE_EXEC, argv=[b"touch", b"/tmp/spur-late"]
        ).end()
        assert answer.code in ("NOT_FOUND", "FAILED_PRECONDITION"), answer
    assert not Path("/tmp/spur-late").exists()


@pytest.mark.parametrize(
    "init",
    [
        {"argv": []},
        {"argv": [b""]},
        {"argv": [b"a\0b"]},
        {"argv": [b"true"] * 300_000},
        {"argv": [b"true", b"x" * 3_000_000]},
        {"argv": [b"true"], "environment": [b"A"]},
        {"argv": [b"true"], "environment": [b"=x"]},
        {"argv": [b"true"], "environment": [b"A=\0"]},
        {"argv": [b"true"], "environment": [b"A%d=x" % n for n in range(200_000)]},
        {"argv": [b"true"], "environment": [b"A=" + b"x" * 3_000_000]},
        {"argv": [b"true"], "work_dir": "\0"},
        {"argv": [b"true"], "work_dir": "x" * 2_000_000},
        {"argv": [b"true"], "work_dir": "/root/nowhere"},
        {"argv": [b"true"], "mode": 77},
        {"offsets": [{"rank": 0, "stream": 0, "offset": 1}], "mode": ap.SESSION_MODE_OWNER},
        {"offsets": [{"rank": 1, "stream": 1, "offset": 1}] * 150_000, "mode": ap.SESSION_MODE_WATCHER},
    ],
    ids=range(16),
)
def test_absurd_beginnings(target: Any, room: Place, quiet: Any, init: dict[str, Any]) -> None:
    """Refused with a sentence; the step and its supervisor go on."""
    answer = target.join(room.node, room.token, quiet, **{"mode": ap.SESSION_MODE_EXEC, **init}).end()
    assert answer.code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"), answer
    assert 0 < len(answer.text) < 1100
    assert execute(target, room, "echo", "on", step=quiet.step_id) == (common_pb2.ExitStatus(), "on\n")


@pytest.fixture(scope="module")
def quiet(target: Any, room: Place) -> Any:
    """A step of the attacker's that reads nothing."""
    return begin(target, room, "sleep", "600")


def test_absurd_messages(target: Any, room: Place, quiet: Any) -> None:
    """Offsets, window sizes and signals that cannot be: the session may end, the step does not."""
    for message in (
        {"signal": 0},
        {"signal": 65},
        {"signal": 2**32 - 1},
        {"resize": {"rows": 2**32 - 1, "cols": 2**32 - 1}},
        {"resize": {"rows": 0, "cols": 0}},
        {"stdin": b"x", "stdin_offset": 2**64 - 1},
        {"stdin": b"x", "stdin_offset": 2**63},
        {"stdin_eof": True, "stdin_offset": 2**64 - 1},
        {"consumed": {"rank": 2**32 - 1, "stream": 2, "offset": 2**64 - 1}},
        {"consumed": {"rank": 0, "stream": 1, "offset": 2**64 - 1}},
        {"consumed": {"rank": 0, "stream": 9, "offset": 1}},
        {"init": {"rid": quiet, "mode": ap.SESSION_MODE_EXEC, "argv": [b"true"]}},
        {},
    ):
        for mode in (ap.SESSION_MODE_OWNER, ap.SESSION_MODE_WATCHER):
            joined = target.join(room.node, room.token, quiet, mode=mode, want_input=True)
            joined.until("ready")
            joined.send(**message)
            joined.send(stdin=b"", stdin_offset=0)
            joined.close()
    assert execute(target, room, "echo", "on", step=quiet.step_id) == (common_pb2.ExitStatus(), "on\n")


def test_a_watcher_gives_no_orders(target: Any, room: Place) -> None:
    """It neither signals nor ends the input of a step that has an owner."""
    rid = begin(target, room, "cat")
    owner = target.join(room.node, room.token, rid, mode=ap.SESSION_MODE_OWNER)
    assert owner.until("ready").writer
    watcher = target.join(room.node, room.token, rid, mode=ap.SESSION_MODE_WATCHER, want_input=True)
    assert not watcher.until("ready").writer
    watcher.send(signal=9)
    watcher.send(stdin=b"forged\n")
    watcher.send(stdin_eof=True, stdin_offset=7)
    watcher.send(consumed={"rank": 0, "stream": 1, "offset": 2**40})
    owner.send(stdin=b"genuine\n")
    owner.send(stdin_eof=True, stdin_offset=8)
    answer = owner.end()
    assert answer.message[-1].exit.exit == common_pb2.ExitStatus()
    assert owner.output() == b"genuine\n"
    watcher.close()


# -- more than is good ------------------------------------------------------------------------------------


def test_a_watcher_that_never_reads_holds_nothing_up(target: Any, room: Place) -> None:
    rid = begin(target, room, "sh", "-c", "head -c 30000000 /dev/zero; echo; echo end")
    asleep = [target.join(room.node, room.token, rid, mode=ap.SESSION_MODE_WATCHER) for _ in range(3)]
    owner = target.join(room.node, room.token, rid, mode=ap.SESSION_MODE_OWNER)
    total = 0
    while owner.next().WhichOneof("kind") != "exit":
        message = owner.got[-1]
        if message.WhichOneof("kind") == "output":
            total += len(message.output.data)
            part = message.output
            owner.send(consumed={"rank": 0, "stream": part.stream, "offset": part.offset + len(part.data)})
    assert total == 30_000_005
    owner.close()
    for one in asleep:
        one.close()


def test_endless_input_stays_within_bounds(target: Any, room: Place, quiet: Any) -> None:
    """Nobody reads it, nobody confirms it: memory of agent and supervisor does not grow with it."""
    joined = target.join(room.node, room.token, quiet, mode=ap.SESSION_MODE_OWNER)
    at = joined.until("ready").stdin_offset
    pids = [target.cluster.pid(f"spurd-{room.node}"), _supervisor(target, room.job, quiet.step_id)]
    before = [_rss(pid) for pid in pids]
    block = b"x" * (1 << 20)
    for number in range(200):
        joined.send(stdin=block, stdin_offset=at + number * len(block))
    ended = time.monotonic() + 4
    while time.monotonic() < ended:
        target.cluster.run("true")
    after = [_rss(pid) for pid in pids]
    joined.close()
    grown = [b - a for a, b in zip(before, after, strict=True)]
    assert max(grown) < 60 << 20, grown
    assert execute(target, room, "echo", "on", step=quiet.step_id)[1] == "on\n"


def _supervisor(target: Any, job: int, step: int) -> int:
    found = list((target.cluster.folder / "state").rglob(f"sessions/{job}.1.{step}/descriptor.json"))
    return int(re.findall(r'"stepd_pid":\s*(\d+)', found[0].read_text())[0])


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_flood_of_signals_does_not_keep_the_job_alive(target: Any, stranger: str) -> None:
    """While its client sends as many as it can, a job is cancelled as soon as any other."""
    job, node = target.allocate(stranger)
    place = Place(stranger, job, node)
    rid = begin(target, place, "sh", "-c", "trap '' USR1; while :; do sleep 1; done")
    joined = target.join(node, stranger, rid, mode=ap.SESSION_MODE_OWNER)
    joined.until("ready")
    for _ in range(100_000):
        joined.send(signal=10)
    begun = time.monotonic()
    target.cluster.ok("scancel", str(job))
    target.cluster.wait(str(job), "CANCELLED", secs=30)
    assert time.monotonic() - begun < 20
    joined.close()
    assert "supervisor_lost" not in target.logs()


def test_thousands_of_sessions_leave_the_node_usable(target: Any, room: Place, quiet: Any) -> None:
    """Watchers of one step, all over one connection."""
    held = [target.join(room.node, room.token, quiet, mode=ap.SESSION_MODE_WATCHER) for _ in range(2000)]
    refused = []
    for one in held:
        try:
            one.until("ready")
        except grpc.RpcError as error:
            refused.append((error.code().name, "attached to this step already" in str(error.details())))  # type: ignore[attr-defined]
    assert set(refused) == {("FAILED_PRECONDITION", True)}
    assert len(refused) > 100  # others have found its queue full, and are told so later
    agent = target.cluster.pid(f"spurd-{room.node}")
    assert descriptors(agent) < 500
    # The step's own client has its place, and others on the same node go on.
    owner = target.join(room.node, room.token, quiet, mode=ap.SESSION_MODE_OWNER)
    owner.until("ready")
    owner.close()
    job = target.cluster.sbatch("-o", "/dev/null", "-w", room.node, "--wrap", "true")
    target.cluster.wait(job, "COMPLETED")
    for one in held:
        one.close()
    target.cluster.until(lambda: descriptors(agent) < 200, "they are closed")
    assert execute(target, room, "echo", "on", step=quiet.step_id)[1] == "on\n"


def test_sessions_that_say_nothing_are_counted(target: Any, room: Place, victim: tuple[Place, int]) -> None:
    """However many steps they are for: one user has his share of an agent's places, another has his own."""
    held = [_Silent(target, room) for _ in range(1100)]
    target.cluster.until(
        lambda: [one.code() for one in held].count("FAILED_PRECONDITION") >= 1100 - 1024, "some are refused"
    )
    place, step = victim
    watcher = target.join(place.node, place.token, place.rid(step), mode=ap.SESSION_MODE_WATCHER)
    watcher.until("ready")
    watcher.close()
    for one in held:
        one.end()


class _Silent:
    """An open call without a first message."""

    def __init__(self, target: Any, room: Place) -> None:
        self._gate = threading.Event()
        call = target.agent(room.node).InteractiveSession
        self.call = call(self._wait(), metadata=[("authorization", f"Bearer {room.token}")], timeout=60)

    def _wait(self) -> Iterator[Any]:
        self._gate.wait(60)
        yield from ()

    def end(self) -> None:
        """Break it off."""
        self.call.cancel()
        self._gate.set()

    def code(self) -> str:
        """Of its end, if it has come to that by now."""
        return self.call.code().name if self.call.done() else ""


def test_the_cluster_has_not_noticed(target: Any) -> None:
    target.works()
