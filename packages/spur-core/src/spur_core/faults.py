"""Fault points: places in the programs where a test can make the worst happen.

`SPUR_FAULT` names them, joined by commas, and is read once when the program starts; it is refused unless
`SPUR_TEST_FAULTS=1` says that this is a test.  Unset, which is always outside tests, a point costs a look
at an empty dictionary.

    crash_before:POINT, crash_after:POINT    SIGKILL to this process, just before or just after POINT
    stop_at:POINT                            SIGSTOP to this process just before POINT
    fail:POINT                               POINT fails with "no space left on device"

With `SPUR_FAULT_ONCE=PREFIX` each fault strikes once over all processes that share the prefix: the first
to make the file `PREFIX.KIND.POINT` is struck.  POINTS lists every point, with the rows of the failure
matrix that it serves.
"""

from __future__ import annotations

import errno
import os

from spur_core.errors import SpurError
from spur_core.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Point -> who passes it, and what has been done just after it.
POINTS: dict[str, str] = {
    # The supervisor.
    "Prepared": "supervisor: the journal's first record is on the disk",
    "ready": "supervisor: the control socket listens (row 3)",
    "forked": "supervisor: the tasks wait at the gate (row 6)",
    "Started": "supervisor: the start is recorded, nothing of the user's has run (row 6)",
    "gate": "supervisor: the tasks run, nobody has been told (row 4)",
    "ExitObserved": "supervisor: the exit is on the disk, nobody has been told (rows 8, 20)",
    "push": "supervisor: the agent has been notified, or could not be",
    "CleanupDone": "supervisor: groups, script and scratch are gone",
    "epilog": "supervisor: the epilog has been started (row 27)",
    "EpilogResult": "supervisor: the epilog's result is on the disk (row 27)",
    "Acknowledged": "supervisor: the acknowledgement is on the disk",
    # The agent.
    "launch_json": "agent: launch.json is on the disk, nothing is spawned (rows 3, 19)",
    "prolog": "agent: the prolog has ended well",
    "spawned": "agent: a supervisor is there and ready, start has not been sent (row 3)",
    "started": "agent: start was answered, the controller has no answer (row 4)",
    "notified": "agent: a notification was accepted, nothing is reported (row 2)",
    "reported": "agent: the controller has the completion, it is not acknowledged (row 5)",
    # The controller.
    "dispatch_begun": "controller: a dispatch is committed, no launch has left",
    "launches_answered": "controller: every node has answered a launch, nothing is proposed (row 14)",
    "step_created": "controller: a step is committed, no launch has left",
    "step_launch_sent": "controller: the first node has answered a step's launch",
    "fence_begun": "controller: a fence is committed, no kill has left",
    "launch_sent": "controller: the first node has answered a launch (row 14)",
    "kill_sent": "controller: the first node has answered a kill (row 15)",
    "exit_told": "controller: an agent was told that its report is taken (rows 5, 14)",
    "snapshot_adopted": "controller: another one's snapshot has its name, the log does not know of it",
    "snapshot_installed": "controller: another one's snapshot is in log and state, nobody has been told",
    # The controller's log, by operation.  Before: nothing is proposed.  After: it is committed and applied,
    # nobody has been told and nothing was done about it.
    "Submit": "controller: a submission is in the log",
    "DispatchBegin": "controller: a dispatch is in the log (row 14)",
    "DispatchCommit": "controller: a launch's success is in the log (row 14)",
    "DispatchAbort": "controller: a launch's failure is in the log (row 14)",
    "Cancel": "controller: a cancel, and its fence, is in the log (row 15)",
    "Requeue": "controller: a requeue, and its fence, is in the log (row 15)",
    "FenceBegin": "controller: a fence is in the log (row 15)",
    "FenceConfirm": "controller: a node is crossed off a fence; the last one ends it (row 15)",
    "NodeComplete": "controller: an exit is in the log (rows 2, 5)",
    "StepCreate": "controller: a step is in the log",
    "StepLaunched": "controller: a step's launch is in the log",
    "StepCancel": "controller: a step's end is in the log",
    "RaiseCommandVersion": "controller: the group uses a newer version of commands",
    "AllocComplete": "controller: the end of an allocation, by its client, is in the log",
}

KINDS = ("crash_before", "crash_after", "stop_at", "fail")

#: "KIND:POINT" -> where the mark of having struck goes, "" = it strikes every time.
_armed: dict[str, str] = {}


class BadFault(SpurError):
    """`SPUR_FAULT` cannot be used."""

    code = "bad_fault"


def arm(environ: Mapping[str, str]) -> None:
    """Read the switch.  Called once by each program, before it does anything.

    Raises:
        BadFault: it is set outside a test, or names a point or kind that does not exist.
    """
    _armed.clear()
    text = environ.get("SPUR_FAULT", "")
    if not text:
        return
    if environ.get("SPUR_TEST_FAULTS") != "1":
        raise BadFault("SPUR_FAULT is set but SPUR_TEST_FAULTS=1 is not: unset it, it is for tests only")
    prefix = environ.get("SPUR_FAULT_ONCE", "")
    for name in text.split(","):
        kind, _, point = name.partition(":")
        if kind not in KINDS or point not in POINTS:
            raise BadFault(f"SPUR_FAULT: {name!r} is no KIND:POINT; kinds are {', '.join(KINDS)}")
        _armed[name] = f"{prefix}.{kind}.{point}" if prefix else ""


def armed(point: str) -> bool:
    """Whether anything happens at `point`; for those that cost something to pass."""
    return any(name.endswith(f":{point}") for name in _armed)


def before(point: str) -> None:
    """The program is about to do what `point` names.

    Raises:
        OSError: the point is made to fail.
    """
    if _armed:
        if _strikes(f"fail:{point}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if _strikes(f"stop_at:{point}"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if _strikes(f"crash_before:{point}"):
            os.kill(os.getpid(), signal.SIGKILL)


def after(point: str) -> None:
    """The program has done what `point` names."""
    if _armed and _strikes(f"crash_after:{point}"):
        os.kill(os.getpid(), signal.SIGKILL)


def _strikes(name: str) -> bool:
    mark = _armed.get(name)
    if mark is None:
        return False
    if not mark:
        return True
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True
