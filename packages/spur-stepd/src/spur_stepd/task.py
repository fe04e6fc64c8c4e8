"""Forking one task up to the gate, and what it does behind it.

A task prepares itself completely (groups, ids, limits, files), says so on its status pipe, and waits at
the gate; so nothing of the user's runs before `Started` is on the disk, and a failed preparation is a
failed start.  The status pipe closes by itself when the exec succeeds.

    R           ready, waiting at the gate
    E stage errno   stage u8, errno u32
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import struct
import termios

from spur_core.lean import namedtuple
from spur_core.linux import cgroup, clone, prctl
from spur_stepd import detach, task_prolog, words

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple, NoReturn

    from spur_proto_lite.launch_spec import LaunchSpec, TaskSpec
    from spur_stepd.privileges import Privileges

    class Plan(NamedTuple):
        """What is the same for every task of the step."""

        #: Argument vector; the first is looked up in PATH when it has no slash.
        argv: tuple[str, ...]
        #: Interpreter of the batch script, for the message when the exec fails.
        interpreter: str
        work_dir: str
        cgroup: tuple[str, ...]

    class Status(NamedTuple):
        """One record of a status pipe; `stage` "ready" has no errno."""

        stage: str
        errno: int
else:
    Plan = namedtuple("Plan", ("argv", "interpreter", "work_dir", "cgroup"))
    Status = namedtuple("Status", ("stage", "errno"))

#: Whether a task is in the supervisor's session, leads one of its own, or has the terminal at its
#: descriptors for it as well.
MEMBER, SESSION, TERMINAL = 0, 1, 2

READY_STAGE = "ready"
EXEC_STAGE = "exec"
_STAGES = ("setup", "cgroup", "limits", "files", "user", "chdir", EXEC_STAGE)
_ERROR = struct.Struct("<cBI")


def decode_status(data: bytes) -> list[Status]:
    """The records in what a status pipe has brought so far."""
    found = []
    at = 0
    while at < len(data):
        if data[at : at + 1] == b"R":
            found.append(Status(READY_STAGE, 0))
            at += 1
        elif len(data) - at >= _ERROR.size:
            _, stage, number = _ERROR.unpack_from(data, at)
            found.append(Status(_STAGES[stage], number))
            at += _ERROR.size
        else:
            break
    return found


def variables(spec: LaunchSpec, task: TaskSpec, pid: int) -> dict[str, str]:
    """The whole environment of a task: the step's, its own numbers, its own additions."""
    merged: dict[str, str] = dict(spec.env)
    for name, number in (("PROCID", task.rank), ("LOCALID", task.local_rank), ("TASK_PID", pid)):
        merged[f"SLURM_{name}"] = merged[f"SPUR_{name}"] = str(number)
    merged.update(task.env)
    return merged


def environment(spec: LaunchSpec, task: TaskSpec, pid: int) -> dict[bytes, bytes]:
    """`variables` as a program gets them."""
    return words.raw_map(variables(spec, task, pid))


def take_place(spec: LaunchSpec, groups: tuple[str, ...], privileges: Privileges) -> None:
    """In a child that runs something beside the tasks, within a root section: be where they are and what
    they are.

    Raises:
        OSError: refused.
    """
    cgroup.join(groups)
    _set_limits(spec)
    privileges.become_user_for_good()
    if spec.no_new_privs:
        prctl.set_no_new_privs()
    os.umask(spec.umask)


def check_texts(spec: LaunchSpec) -> str:
    """What in the spec cannot be handed to a program, "" if nothing."""
    for name, value in (*spec.env.items(), *(item for task in spec.tasks for item in task.env.items())):
        if "\0" in name or "\0" in value or "=" in name or not name:
            return f"the environment variable {name!r} cannot be set"
    for text in (*spec.argv, *spec.script_args, *(text for task in spec.tasks for text in task.argv)):
        if "\0" in text:
            return "an argument holds a zero byte"
    return ""


def fork(
    spec: LaunchSpec,
    task: TaskSpec,
    plan: Plan,
    privileges: Privileges,
    fds: tuple[int, int, int],
    gate: tuple[int, int],
    pgid: int,
    leads: int = MEMBER,
    pmi_fd: int = -1,
) -> tuple[int, int]:
    """Fork a task that waits at the gate.  To be called within a root section.

    Args:
        fds: what become its descriptors 0, 1 and 2.
        gate: (read end, write end) of the gate's pipe.
        pgid: its process group, 0 = one of its own.
        leads: MEMBER, SESSION or TERMINAL; the last two are in a process group of their own.
        pmi_fd: its end of the step's PMI exchange, -1 = there is none.

    Returns:
        (pid, read end of its status pipe)

    Raises:
        OSError: no process or no pipe can be had.
    """
    status_read, status_write = os.pipe2(os.O_CLOEXEC)
    try:
        # Born in its v2 group where that goes: moving there later takes the kernel many milliseconds.
        born_in = cgroup.unified_dir(plan.cgroup)
        born = clone.fork_into(born_in) if born_in else None
        if born is None:
            born_in = ""
        pid = os.fork() if born is None else born
    except OSError:
        os.close(status_read)
        os.close(status_write)
        raise
    if pid == 0:
        try:
            _be_task(spec, task, plan, privileges, fds, gate, status_write, pgid, leads, born_in, pmi_fd)
        finally:
            os._exit(127)
    os.close(status_write)
    if leads == MEMBER:  # the leader of a group could not begin a session
        try:
            os.setpgid(pid, pgid or pid)
        except OSError:
            pass  # it has done so itself, or is gone
    return pid, status_read


def _be_task(
    spec: LaunchSpec,
    task: TaskSpec,
    plan: Plan,
    privileges: Privileges,
    fds: tuple[int, int, int],
    gate: tuple[int, int],
    status: int,
    pgid: int,
    leads: int,
    born_in: str,
    pmi_fd: int,
) -> NoReturn:
    stage = 0
    try:
        os.close(gate[1])  # else the end of the supervisor would not open it
        detach.reset_signals()
        if leads == MEMBER:
            try:
                os.setpgid(0, pgid)
            except OSError:
                os.setpgid(0, 0)
        else:
            os.setsid()
        stage = 1
        cgroup.join(plan.cgroup, born_in)
        stage = 2
        _set_limits(spec)
        bound = _bind(task)
        stage = 3
        _place(fds, (gate[0], status) if pmi_fd < 0 else (gate[0], status, pmi_fd))
        if leads == TERMINAL:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        stage = 4
        privileges.become_user_for_good()
        if spec.no_new_privs:
            prctl.set_no_new_privs()
        stage = 5
        os.umask(spec.umask)
        os.chdir(plan.work_dir)
    except OSError as error:
        os.write(status, _ERROR.pack(b"E", stage, error.errno or errno.EIO))
        os._exit(127)
    os.write(status, b"R")
    if os.read(gate[0], 1) != b"g":
        os._exit(127)
    if spec.cpu_bind_verbose:
        _tell_binding(spec, task, bound)
    env = environment(spec, task, os.getpid())
    if pmi_fd >= 0:
        from spur_stepd import pmi_server

        pmi_server.give(env, spec.rid, task.rank, len(spec.task_list()), pmi_fd)
    if spec.task_prolog.paths and (code := task_prolog.run(spec.task_prolog, env)):
        os._exit(code)
    if pmi_fd >= 0:
        os.set_inheritable(pmi_fd, True)
    argv = task.argv or plan.argv
    number = _exec(argv, env)
    interpreter = "" if task.argv else plan.interpreter
    os.write(2, words.raw(words.no_exec(argv[0], number, interpreter)))
    os.write(status, _ERROR.pack(b"E", _STAGES.index(EXEC_STAGE), number))
    os._exit(exec_code(number))


def _bind(task: TaskSpec) -> bool:
    """Bind this process to the task's CPUs; False when the kernel will not, which is no failure."""
    if task.cpu_ids:
        try:
            os.sched_setaffinity(0, task.cpu_ids)
        except (OSError, ValueError, OverflowError):
            return False
    return True


def _tell_binding(spec: LaunchSpec, task: TaskSpec, bound: bool) -> None:
    mask = sum(1 << cpu for cpu in os.sched_getaffinity(0))
    kind, result = ("MASK", " set" if bound else " set FAILED") if task.cpu_ids else ("NONE", "")
    line = words.cpu_bind(kind, spec.node, task.rank, task.local_rank, os.getpid(), mask, result)
    try:
        os.write(2, words.raw(line))
    except OSError:
        pass  # nobody reads it


def exec_code(number: int) -> int:
    """The exit code of a task whose exec failed with that errno."""
    return number if 0 < number < 126 else 1


def _exec(argv: tuple[str, ...], env: Mapping[bytes, bytes]) -> int:
    """Become the program; returns the errno when that is impossible."""
    raw = [words.raw(text) for text in argv]
    program = raw[0]
    if b"/" in program:
        candidates = [program]
    else:
        path = env.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin")
        candidates = [(directory or b".") + b"/" + program for directory in path.split(b":")]
    worst = errno.ENOENT
    for candidate in candidates:
        try:
            os.execve(candidate, raw, env)  # noqa: S606 - that is what a task is
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                worst = error.errno or errno.EIO
                if worst != errno.EACCES:
                    break
    return worst


def _set_limits(spec: LaunchSpec) -> None:
    """The limits of the spec; who may not raise a hard limit gets the most he may."""
    for limit in spec.rlimits:
        which = getattr(resource, f"RLIMIT_{limit.name}", None)
        if which is None:
            continue
        hard = resource.RLIM_INFINITY if limit.hard < 0 else limit.hard
        soft = resource.RLIM_INFINITY if limit.soft < 0 else limit.soft
        try:
            resource.setrlimit(which, (soft, hard))
        except (OSError, ValueError):
            most = resource.getrlimit(which)[1]
            resource.setrlimit(which, (_at_most(soft, most), _at_most(hard, most)))
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, b"0")
        os.close(fd)
    except OSError:
        pass  # ours is lower, or there is none


def _at_most(value: int, most: int) -> int:
    if most == resource.RLIM_INFINITY:
        return value
    return most if value == resource.RLIM_INFINITY else min(value, most)


def _place(fds: tuple[int, int, int], keep: tuple[int, ...]) -> None:
    """Make `fds` the descriptors 0, 1, 2 and close all others but `keep`, which close at the exec."""
    # Lifted out of the way first: one of them may be 0, 1 or 2 itself.
    lifted = [_above(fd) for fd in fds]
    for target, fd in enumerate(lifted):
        os.dup2(fd, target, inheritable=True)
    low = 3
    for fd in sorted(keep):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _above(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
