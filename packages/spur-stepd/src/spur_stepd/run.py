"""From a detached process to a supervisor that serves, and how it ends."""

from __future__ import annotations

import os

from spur_core.errors import SpurError
from spur_core.ids import RuntimeId, step_name
from spur_core.linux import cgroup
from spur_proto_lite import spawn
from spur_stepd import launch
from spur_stepd.log import say
from spur_stepd.supervisor import Supervisor, errno_of

_COMM_BYTES = 15


def supervise(session_dir: str, record: int, *, join_group: bool) -> int:
    """Serve a session until its end; the exit code.

    Args:
        record: descriptor of the pipe to whoever started us, -1 without one.  It is closed when the
            supervisor is ready, after an error record when it cannot get ready.
        join_group: leave the starter's groups for the supervisors' own (a spawner is there already).
    """
    try:
        supervisor = Supervisor(session_dir)
        show_step(supervisor.spec.rid)
        if join_group:
            join_supervisors(supervisor.spec.cgroup_root)
        supervisor.prepare()
    except (SpurError, OSError) as error:
        say("not_ready", error=error)
        if record >= 0:
            os.write(record, spawn.error_record(errno_of(error)))
            os.close(record)
        return 127
    if record >= 0:
        os.close(record)
    code = supervisor.run()
    say("ended", code=code)
    return code


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
