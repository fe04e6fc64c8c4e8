"""From a detached process to a supervisor that serves, and how it ends."""

from __future__ import annotations

import gc
import os

from spur_core.errors import SpurError
from spur_core.ids import RuntimeId, step_name
from spur_core.linux import cgroup, clone
from spur_proto_lite import spawn
from spur_stepd import launch
from spur_stepd.log import say
from spur_stepd.supervisor import Supervisor, errno_of

_COMM_BYTES = 15
#: So many objects a supervisor has beyond those it began with only when something leaks.
_GARBAGE = 20_000


def supervise(session_dir: str, record: int, *, alone: bool) -> int:
    """Serve a session until its end; the exit code.

    Args:
        record: descriptor of the pipe to whoever started us, -1 without one.  It is closed when the
            supervisor is ready, after an error record when it cannot get ready.
        alone: no spawner made this process: it tells its pid itself, and leaves the starter's control groups
            for the supervisors' own.
    """
    try:
        supervisor = Supervisor(session_dir)
        if alone:
            move_in(supervisor.spec.cgroup_root)
            _tell(record, spawn.pid_record(os.getpid()))
        show_step(supervisor.spec.rid)
        supervisor.prepare()
    except (SpurError, OSError) as error:
        say("not_ready", error=error)
        _tell(record, spawn.error_record(errno_of(error)))
        if record >= 0:
            os.close(record)
        return 127
    if record >= 0:
        os.close(record)
    code = supervisor.run()
    say("ended", code=code)
    return code


def settle() -> None:
    """Keep the collector from what has been loaded, for it is never freed.

    In a spawner its pages stay shared with the supervisors so; and later objects are so few that it need
    look only when something leaks.
    """
    # Behind everything else in memory, for few steps have MPI programs and the others must not touch it.
    from spur_stepd import pmi_server  # noqa: F401

    gc.freeze()
    gc.set_threshold(_GARBAGE)


def _tell(record: int, data: bytes) -> None:
    if record >= 0:
        os.write(record, data)


def move_in(cgroup_root: str) -> None:
    """Be in the supervisors' groups: in the v2 one by birth, where that goes.

    What runs on is then a child of the process that called, in a session of its own.
    """
    root, _ = launch.group_root(cgroup_root)
    if root is not None and root.unified is not None:
        pid = clone.fork_into(cgroup.supervisors_dir(root.unified))
        if pid:
            os._exit(0)
        if pid == 0:
            os.setsid()
    join_supervisors(cgroup_root)


def show_step(rid: RuntimeId) -> None:
    """Let `ps -o comm` tell which step this process serves: `stepd 12.batch`."""
    step = f"{rid.job_id}.{step_name(rid.step_id)}"
    # The kernel keeps 15 bytes; half an id would name another step.
    name = next((text for text in (f"stepd {step}", step) if len(text) <= _COMM_BYTES), "spurstepd")
    try:
        # Not by the builtin `open`: it would import the codec, after the fork, in every supervisor.
        fd = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return  # not worth a launch
    try:
        os.write(fd, name.encode("utf-8"))
    except OSError:
        pass
    finally:
        os.close(fd)


def join_supervisors(cgroup_root: str) -> None:
    """Move this process out of the agent's groups where that is possible; else say why not."""
    root, why = launch.group_root(cgroup_root)
    if root is None:
        if cgroup_root != "none":
            say("no_supervisor_group", why=why)
        return
    try:
        cgroup.join_supervisors(root)
    except OSError as error:
        say("no_supervisor_group", why=error)
