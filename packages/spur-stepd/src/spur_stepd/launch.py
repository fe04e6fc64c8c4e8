"""The start sequence up to the gate, and its undoing."""

from __future__ import annotations

import os

from spur_core.lean import namedtuple, signal
from spur_core.linux import cgroup, cgroup_layout
from spur_proto_lite import control, framing
from spur_stepd import prepare, script, task, words
from spur_stepd.log import say
from spur_stepd.prepare import StartFailure

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NamedTuple

    from spur_proto_lite.launch_spec import LaunchSpec
    from spur_proto_lite.paths import StatePaths
    from spur_stepd import pmi_server
    from spur_stepd.attachments import Attachments
    from spur_stepd.loop import Loop
    from spur_stepd.privileges import Privileges

    class Forked(NamedTuple):
        """A task that waits at the gate, or has passed it."""

        rank: int
        pid: int
        #: Read end of its status pipe.
        status: int

    class Launched(NamedTuple):
        tasks: tuple[Forked, ...]
        groups: tuple[str, ...]
        pgid: int
        #: Write end of the gate's pipe, -1 once it is open.
        gate: int
        work_dir: prepare.WorkDir
        script: prepare.Script | None
        stdin_path: str
        stdout_path: str
        stderr_path: str
        #: The first task's stderr, kept for what the supervisor has to say; -1 when output is spooled.
        stderr: int
        warnings: tuple[str, ...]
else:
    Forked = namedtuple("Forked", ("rank", "pid", "status"))
    Launched = namedtuple(
        "Launched",
        (
            "tasks",
            "groups",
            "pgid",
            "gate",
            "work_dir",
            "script",
            "stdin_path",
            "stdout_path",
            "stderr_path",
            "stderr",
            "warnings",
        ),
    )


PMI2 = "pmi2"
#: Types of `--mpi` that a step can have.
MPI_TYPES = ("", "none", PMI2)


def mpi_server(
    spec: LaunchSpec, loop: Loop, on_abort: Callable[[int, int, str], None]
) -> pmi_server.Server | None:
    """What serves the step's MPI programs; None: it has none.

    The module has been loaded before the fork, behind all others (`run.settle`): most steps never touch it.
    """
    if spec.mpi != PMI2:
        return None
    from spur_stepd.pmi_server import Server

    return Server(loop, on_abort)


def check(spec: LaunchSpec, privileges: Privileges) -> None:
    """Refuse what this supervisor may not or cannot run.

    Raises:
        StartFailure: the text says why.
    """
    job, node = control.FAIL_JOB, control.FAIL_NODE
    if privileges.is_root and spec.uid == 0 and not spec.allow_root_jobs:
        raise StartFailure(job, "jobs of root are refused here ([auth] allow_root_jobs)")
    if not privileges.is_root and spec.uid != os.getuid():
        raise StartFailure(
            node,
            f"an agent of uid {os.getuid()} cannot run a job of uid {spec.uid}: it must be started as root",
        )
    if not (spec.script or spec.argv or spec.hold or (spec.tasks and all(t.argv for t in spec.tasks))):
        raise StartFailure(job, "neither a script nor a program is given")
    if spec.label and not spec.spool_output:
        raise StartFailure(job, "labelled output needs an attached client (spool_output)")
    if spec.pty and not spec.spool_output:
        raise StartFailure(job, "a terminal needs an attached client (spool_output)")
    if spec.open_mode.lower() not in ("truncate", "append"):
        raise StartFailure(job, f"open mode {spec.open_mode!r} is neither truncate nor append")
    if spec.mpi not in MPI_TYPES:
        raise StartFailure(job, f"MPI type {spec.mpi!r} is not known here")
    if spec.mpi == PMI2 and spec.mpi_size != len(spec.task_list()):
        raise StartFailure(
            job, "--mpi=pmi2 works within one node in this release: use -N1, or start the program by mpiexec"
        )
    if problem := task.check_texts(spec):
        raise StartFailure(job, problem)


def launch(
    spec: LaunchSpec,
    state: StatePaths,
    privileges: Privileges,
    attachments: Attachments,
    pmi: pmi_server.Server | None,
) -> Launched:
    """Groups, work directory, script, files, tasks; whatever was made is undone on a failure.

    Raises:
        StartFailure: with whose fault it is.
        OSError: processes or descriptors cannot be had.
    """
    check(spec, privileges)
    with privileges.root():
        groups, warnings = _make_groups(spec, privileges)
    directory: prepare.WorkDir | None = None
    spooled: prepare.Script | None = None
    files: prepare.TaskFiles | None = None
    try:
        directory = prepare.work_dir(spec, privileges)
        if spec.script and not spec.hold:
            spooled = prepare.spool_script(spec, state, privileges)
        files = prepare.TaskFiles(spec, directory.path)
        plan = task.Plan(
            argv=(spooled.path, *spec.script_args) if spooled else spec.argv,
            interpreter=script.interpreter(words.raw(spec.script)) if spooled else "",
            work_dir=directory.path,
            cgroup=groups,
        )
        if directory.warning:
            warnings.append(directory.warning.strip())
        if pmi is not None:
            pmi.open(tuple(one.rank for one in spec.task_list()), spec.rid)
        tasks, gate, stderr = _fork_all(spec, plan, privileges, files, attachments, pmi)
        if pmi is not None:
            pmi.forked()
        paths = ("", "", "") if spec.spool_output or not tasks else files.paths(spec.task_list()[0])
    except BaseException:
        attachments.abort()
        if pmi is not None:
            pmi.close()
        _undo(groups, directory, spooled, privileges)
        raise
    finally:
        if files is not None:
            files.close()
    return Launched(
        tasks=tasks,
        groups=groups,
        pgid=tasks[0].pid if tasks else 0,
        gate=gate,
        work_dir=directory,
        script=spooled,
        stdin_path=paths[0],
        stdout_path=paths[1],
        stderr_path=paths[2],
        stderr=stderr,
        warnings=tuple(warnings),
    )


_ROOTS: dict[str, tuple[cgroup_layout.Root | None, str]] = {}


def group_root(setting: str) -> tuple[cgroup_layout.Root | None, str]:
    """Where groups go on this host, or why nowhere.

    Found out once: a spawner asks before it forks, and its supervisors need not look again.
    """
    if setting not in _ROOTS:
        layout, own = cgroup_layout.detect(), cgroup_layout.own_path()
        _ROOTS[setting] = cgroup_layout.choose_root(layout, setting, own)
    return _ROOTS[setting]


def _make_groups(spec: LaunchSpec, privileges: Privileges) -> tuple[tuple[str, ...], list[str]]:
    """The step's groups; without root their absence is a warning only."""
    if spec.cgroup_root == "none":
        return (), []
    root, why = group_root(spec.cgroup_root)
    if root is None:
        if privileges.is_root:
            raise StartFailure(control.FAIL_NODE, f"no control group for the step: {why}")
        return (), [why]
    rid = spec.rid
    step = cgroup.Limits(memory_mb=spec.memory_mb, cpus=spec.cpus, cpu_ids=spec.cpu_ids)
    job = cgroup.Limits(
        memory_mb=spec.job_memory_mb or spec.memory_mb,
        cpus=spec.job_cpus or spec.cpus,
        cpu_ids=spec.job_cpu_ids or spec.cpu_ids,
    )
    try:
        groups, warnings = cgroup.create_step(
            root, f"job_{rid.job_id}.{rid.run_attempt}", f"step_{rid.step_id}", job, step, keep=spec.hold
        )
        if privileges.is_root and spec.uid:
            cgroup.delegate(groups, spec.uid, spec.gid)
        return groups, warnings
    except OSError as error:
        text = f"no control group for the step: {error.strerror}: {error.filename}"
        if privileges.is_root:
            raise StartFailure(control.FAIL_NODE, text, error.errno or 0) from error
        return (), [text]


def _fork_all(
    spec: LaunchSpec,
    plan: task.Plan,
    privileges: Privileges,
    files: prepare.TaskFiles,
    attachments: Attachments,
    pmi: pmi_server.Server | None,
) -> tuple[tuple[Forked, ...], int, int]:
    """Fork every task: (tasks, write end of the gate, a copy of the first one's stderr or -1)."""
    gate = os.pipe2(os.O_CLOEXEC)
    forked: list[Forked] = []
    stderr = -1
    try:
        for one in spec.task_list():
            leads = task.MEMBER
            # Output first: an input must not be a file that is written as well.
            if spec.pty:
                # As with Slurm, the first task of the step has the terminal, and the others nothing.
                if one.rank == 0:
                    source, leads = attachments.add_terminal(one.rank), task.TERMINAL
                else:
                    source = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                out = err = source
            elif spec.spool_output:
                out, err = (attachments.add_output(one.rank, s) for s in (framing.DATA_OUT, framing.DATA_ERR))
                if spec.stdin_pattern:
                    source = files.open_input(files.paths(one)[0])
                else:
                    source = attachments.add_input(one.rank)
            else:
                source_path, out_path, err_path = files.paths(one)
                out, err = files.open_output(out_path), files.open_output(err_path)
                source = files.open_input(source_path)
                if stderr < 0:
                    stderr = os.dup(err)
            try:
                with privileges.root():
                    pgid = forked[0].pid if forked and not spec.pty else 0
                    fds = (source, out, err)
                    pmi_fd = -1 if pmi is None else pmi.fd_of(one.rank)
                    pid, status = task.fork(spec, one, plan, privileges, fds, gate, pgid, leads, pmi_fd)
            finally:
                for fd in {source, out, err} if spec.spool_output else {source}:
                    os.close(fd)
            forked.append(Forked(one.rank, pid, status))
    except BaseException:
        with privileges.root():
            for done in forked:
                os.kill(done.pid, signal.SIGKILL)
                os.waitpid(done.pid, 0)
                os.close(done.status)
        os.close(gate[1])
        if stderr >= 0:
            os.close(stderr)
        raise
    finally:
        os.close(gate[0])
    return tuple(forked), gate[1], stderr


def clean(launched: Launched | None, privileges: Privileges) -> list[str]:
    """Remove what a launch has made, once no process of the step is left.

    Returns:
        Groups that would not go.
    """
    if launched is None:
        return []
    if launched.stderr >= 0:
        os.close(launched.stderr)
    return _undo(launched.groups, launched.work_dir, launched.script, privileges)


def _undo(
    groups: tuple[str, ...],
    directory: prepare.WorkDir | None,
    spooled: prepare.Script | None,
    privileges: Privileges,
) -> list[str]:
    with privileges.root():
        left = cgroup.remove(groups)
    if left:
        say("groups_left", groups=" ".join(left))
    if spooled is not None:
        prepare.remove_script(spooled, privileges)
    if directory is not None and directory.scratch:
        try:
            os.rmdir(directory.path)
        except OSError:
            pass  # the user left something there
    return left
