"""Task prologs and epilogs, programs of single ranks, and what tasks are bound to."""

import os
import re
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.linux import procfs
from spur_proto_lite.launch_spec import HookSpec, TaskSpec
from spur_stepd import task_prolog

pytestmark = pytest.mark.node

CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def hook(top):
    def make(name, body, mode=0o755):
        path = top / name
        path.write_text("#!/bin/sh\n" + body)
        path.chmod(mode)
        return str(path)

    return make


@pytest.mark.parametrize(
    ("output", "env", "printed"),
    [
        (b"", {}, b""),
        (b"export A=1\nexport B = x y \nexport C=\n", {b"A": b"1", b"B": b" x y ", b"C": b""}, b""),
        (b"unset A\nexport A=1\nunset A\n", {b"A": None}, b""),
        (b"print hello  world\nprint \nprint last", {}, b"hello  world\n\nlast\n"),
        (b"export A\nexport =x\nexport a b=1\nunset\nprinted x\nPRINT x\n x\n", {}, b""),
        (b"export A=b=c\r\n", {b"A": b"b=c\r"}, b""),
        (b"export A=x\0y\n", {b"A": b"xy"}, b""),
    ],
)
def test_what_the_output_of_a_prolog_means(output, env, printed):
    assert task_prolog.parse(output) == (env, printed)


@given(st.binary(max_size=300))
def test_any_output_is_understood_somehow(output):
    changes = task_prolog.parse(output)
    for name, value in changes.env.items():
        assert name
        assert b"=" not in name or value is None
        assert b"\0" not in name + (value or b"")


def test_a_prolog_changes_the_task(fast_node, hook):
    """Each task runs it by itself, as the user, in the work directory, with the task's environment."""
    first = hook(
        "first",
        'echo "export WHO=$SLURM_PROCID $(id -u) $PWD $SITE"\n'
        "echo unset GONE\necho print hello from $SPUR_LOCALID\necho ignored\necho complaint >&2\n",
    )
    second = hook("second", 'echo "export SEEN=$WHO"\n')
    spec = fast_node.spec(
        argv=("sh", "-c", 'echo "$WHO/${GONE-none}/$SEEN/$SITE"'),
        tasks=(TaskSpec(rank=4, local_rank=0), TaskSpec(rank=9, local_rank=1)),
        env={"PATH": "/usr/bin:/bin", "GONE": "here"},
        stdout_pattern="out.%t",
        stderr_pattern="err.%t",
        step_id=0,
        task_prolog=HookSpec(paths=(first, second), env={"SITE": "x"}),
    )
    _, ended = fast_node.run(spec)
    assert ended.code == 0
    uid = fast_node.spec().uid
    for rank, local in ((4, 0), (9, 1)):
        who = f"{rank} {uid} {fast_node.work} x"
        assert fast_node.read(f"out.{rank}") == f"hello from {local}\n{who}/none/{who}/\n"
        assert fast_node.read(f"err.{rank}") == "complaint\n"


@pytest.mark.parametrize(
    ("body", "mode", "code", "words"),
    [
        ("echo print before\nexit 3\n", 0o755, 3, "TaskProlog failed status=3"),
        ("kill -TERM $$\n", 0o755, 143, "TaskProlog failed killed by signal 15"),
        ("exec sleep 1000\n", 0o755, 137, "TaskProlog failed timed out after 0.3 seconds"),
        ("true\n", 0o644, 126, "TaskProlog failed status=126"),
    ],
)
def test_a_prolog_that_fails_ends_the_task(fast_node, hook, body, mode, code, words):
    spec = fast_node.script(
        "echo ran > ran\n",
        task_prolog=HookSpec(
            paths=(hook("prolog", body, mode), hook("next", "echo print next\n")),
            timeout_secs=0.3 if "sleep" in body else 60.0,
        ),
    )
    _, ended = fast_node.run(spec)
    assert ended.code == code
    assert words in fast_node.read("slurm-7.out")
    assert "next" not in fast_node.read("slurm-7.out")
    assert not (fast_node.work / "ran").exists()


def test_a_slow_prolog_holds_up_neither_start_nor_supervisor(fast_node, hook, gate, until):
    spec = fast_node.script(
        "exit 4\n", task_prolog=HookSpec(paths=(hook("prolog", f"read x < {gate.path}\n"),))
    )
    session = fast_node.spawn(spec)
    reply = session.start()
    assert reply.failure_kind == ""
    client = session.client()
    assert client.query().state == "running"
    assert client.start().task_pid == reply.task_pid
    gate.open()
    ended = session.wait()
    assert ended.exit.code == 4
    session.ack(ended.exit_seq)


def test_a_task_can_be_ended_in_its_prolog(fast_node, hook, until):
    pid_file = fast_node.work / "pid"
    body = f"echo $$ > {pid_file}\nexec sleep 1000\n"
    session = fast_node.spawn(fast_node.script("true\n", task_prolog=HookSpec(paths=(hook("prolog", body),))))
    session.start()
    pid = int(until(lambda: pid_file.exists() and pid_file.read_text()))
    session.client().teardown("cancelled", 30.0)
    ended = session.wait()
    assert ended.exit.signal == signal.SIGTERM
    until(lambda: procfs.start_ticks(pid) is None)
    session.ack(ended.exit_seq)


def test_nothing_of_python_is_left_between_supervisor_and_program(fast_node, hook, gate, until):
    """3.5: also after a prolog the task is the user's program itself."""
    spec = fast_node.spec(
        argv=("sh", "-c", f"read x < {gate.path}"), task_prolog=HookSpec(paths=(hook("prolog", "true\n"),))
    )
    session = fast_node.spawn(spec)
    pid = session.start().task_pid
    shell = os.path.realpath("/bin/sh")

    def program():
        try:
            return os.readlink(f"/proc/{pid}/exe")
        except PermissionError:
            return ""  # still a copy of the supervisor, which nobody may look into

    until(lambda: program() == shell)
    assert procfs.stat(pid).ppid == session.pid
    assert sorted(os.listdir(f"/proc/{pid}/fd")) in (["0", "1", "2"], ["0", "1", "2", "3"])
    gate.open()
    session.ack(session.wait().exit_seq)


def test_a_task_epilog_runs_behind_each_task(fast_node, hook):
    """As the user, with the task's numbers; before the step is cleaned up; its failure changes nothing."""
    body = 'echo "$SLURM_PROCID $SLURM_TASK_PID $(id -u) $PWD $SITE $(umask)" '
    body += "> ep.$SLURM_PROCID\n"
    body += "echo gone wrong >&2\nexit 1\n"
    spec = fast_node.spec(
        argv=("sh", "-c", "exit $SLURM_PROCID"),
        tasks=(TaskSpec(rank=0, local_rank=0), TaskSpec(rank=5, local_rank=1)),
        step_id=0,
        umask=0o027,
        stdout_pattern="/dev/null",
        task_epilog=HookSpec(paths=(hook("epilog", body),), env={"SITE": "x"}),
    )
    session = fast_node.spawn(spec)
    reply = session.start()
    ended = session.wait()
    session.cleaned()
    assert ended.exit.code == 5
    uid = fast_node.spec().uid
    for rank, pid in zip((0, 5), reply.task_pids, strict=True):
        found = fast_node.read(f"ep.{rank}")
        assert found == f"{rank} {pid} {uid} {fast_node.work} x 0027\n"
        assert (fast_node.work / f"ep.{rank}").stat().st_uid == uid
    assert session.log().count("line='gone wrong'") == 2
    assert session.log().count("task_epilog_failed") == 2
    session.ack(ended.exit_seq)


def test_the_exit_does_not_wait_for_a_task_epilog(fast_node, hook, gate):
    spec = fast_node.script(
        "exit 4\n", task_epilog=HookSpec(paths=(hook("epilog", f"read x < {gate.path}\necho done > done\n"),))
    )
    session = fast_node.spawn(spec)
    session.start()
    ended = session.wait()
    client = session.client()
    assert (ended.exit.code, client.query().cleaned) == (4, False)
    client.ack(ended.exit_seq)
    assert client.query().state == "exiting"
    gate.open()
    session.gone()
    assert fast_node.read("done") == "done\n"


def test_a_task_epilog_that_hangs_is_ended(fast_node, hook, until):
    """By its own time limit, and by a teardown."""
    slow = hook("epilog", "trap '' TERM\nsleep 1000\n")
    spec = fast_node.script("true\n", task_epilog=HookSpec(paths=(slow,), timeout_secs=0.3))
    session, _ = fast_node.run(spec)
    assert "timed out after 0.3 seconds" in session.log()
    spec = fast_node.script("true\n", attempt=2, task_epilog=HookSpec(paths=(slow,)))
    session = fast_node.spawn(spec)
    session.start()
    ended = session.wait()
    session.client().teardown("cancelled", 0.1)
    session.ack(ended.exit_seq)
    assert not session.story().teardown_reason


def test_every_rank_has_its_own_program(fast_node):
    """Multi-prog: `argv` of a task takes the place of the step's."""
    spec = fast_node.spec(
        argv=("sh", "-c", "echo common $SLURM_PROCID"),
        tasks=(
            TaskSpec(rank=0, local_rank=0),
            TaskSpec(rank=1, local_rank=1, argv=("sh", "-c", "echo own $1", "sh", "x y")),
            TaskSpec(rank=2, local_rank=2, argv=("no-such-program",)),
        ),
        step_id=0,
        stdout_pattern="out.%t",
    )
    session = fast_node.spawn(spec)
    reply = session.start()
    assert reply.exec_errnos == (0, 0, 2)
    ended = session.wait()
    assert [task.code for task in ended.exit.tasks] == [0, 0, 2]
    assert fast_node.read("out.0") == "common 0\n"
    assert fast_node.read("out.1") == "own x y\n"
    assert (
        fast_node.read("out.2") == "slurmstepd: error: execve(): no-such-program: No such file or directory\n"
    )
    session.ack(ended.exit_seq)


def test_a_step_needs_a_program_for_every_rank(fast_node):
    tasks = (TaskSpec(rank=0, local_rank=0, argv=("true",)), TaskSpec(rank=1, local_rank=1))
    session = fast_node.spawn(fast_node.spec(step_id=0, tasks=tasks))
    reply = session.start()
    assert reply.failure_kind == "job"
    session.gone()
    _, ended = fast_node.run(fast_node.spec(step_id=1, tasks=tasks[:1]))
    assert ended.code == 0
    bad = (TaskSpec(rank=0, local_rank=0, argv=("true", "a\0b")),)
    session = fast_node.spawn(fast_node.spec(step_id=2, tasks=bad))
    assert "zero byte" in session.start().text


@pytest.mark.parametrize("verbose", [False, True])
def test_tasks_are_bound_to_their_cpus(fast_node, verbose):
    spec = fast_node.spec(
        argv=("sh", "-c", "grep Cpus_allowed_list /proc/self/status"),
        tasks=tuple(TaskSpec(rank=i, local_rank=i, cpu_ids=(cpu,)) for i, cpu in enumerate(CPUS[:2])),
        step_id=0,
        stdout_pattern="out.%t",
        stderr_pattern="err.%t",
        cpu_bind_verbose=verbose,
    )
    session = fast_node.spawn(spec)
    pids = session.start().task_pids
    session.ack(session.wait().exit_seq)
    for rank, (cpu, pid) in enumerate(zip(CPUS, pids, strict=False)):
        assert fast_node.read(f"out.{rank}") == f"Cpus_allowed_list:\t{cpu}\n"
        line = f"cpu-bind=MASK - n1, task {rank:2d} {rank:2d} [{pid}]: mask 0x{1 << cpu:x} set\n"
        assert fast_node.read(f"err.{rank}") == (line if verbose else "")


@pytest.mark.parametrize(
    ("cpu_ids", "line"),
    [((), r"cpu-bind=NONE - n1, task  0  0 \[\d+\]: mask 0x[0-9a-f]+\n"),
     ((4000,), r"cpu-bind=MASK - n1, task  0  0 \[\d+\]: mask 0x[0-9a-f]+ set FAILED\n")],
)  # fmt: skip
def test_a_binding_that_is_not_there_or_cannot_be(fast_node, cpu_ids, line):
    spec = fast_node.spec(
        argv=("true",),
        tasks=(TaskSpec(rank=0, local_rank=0, cpu_ids=cpu_ids),),
        step_id=0,
        stderr_pattern="err",
        cpu_bind_verbose=True,
    )
    _, ended = fast_node.run(spec)
    assert ended.code == 0
    assert re.fullmatch(line, fast_node.read("err"))
