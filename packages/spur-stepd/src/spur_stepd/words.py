"""What the supervisor says in the job's own stderr, word for word as users' tools know it; texts as bytes."""

from __future__ import annotations

import os
import time

from spur_core.ids import STEP_BATCH, RuntimeId, step_name

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_DUE_TO = {
    "timeout": " DUE TO TIME LIMIT",
    "preempted": " DUE TO PREEMPTION",
    "requeue": " DUE TO JOB REQUEUE",
    "node_fail": " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
    "cancelled": "",
}


def raw(text: str) -> bytes:
    """A text of the user's as a program gets it: what was not UTF-8 is again what it was."""
    return text.encode("utf-8", "surrogateescape")


def raw_map(env: Mapping[str, str]) -> dict[bytes, bytes]:
    """An environment as a program gets it."""
    return {raw(name): raw(value) for name, value in env.items()}


def _step_id(rid: RuntimeId) -> str:
    return f"{rid.job_id}.{step_name(rid.step_id)}"


def cancelled(rid: RuntimeId, node: str, reason: str, now: float) -> str | None:
    """The line for a teardown of that reason at the wall-clock time `now`; None: nothing is said."""
    due_to = _DUE_TO.get(reason)
    if due_to is None:
        return None
    what = f"JOB {rid.job_id}" if rid.step_id == STEP_BATCH else f"STEP {_step_id(rid)}"
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
    return f"slurmstepd: error: *** {what} ON {node} CANCELLED AT {at}{due_to} ***\n"


def oom_killed(rid: RuntimeId, count: int) -> str:
    """The line for a step some of whose processes the kernel has killed."""
    events = "event" if count == 1 else "events"
    return (
        f"slurmstepd: error: Detected {count} oom_kill {events} in StepId={_step_id(rid)}. "
        "Some of the step tasks have been OOM Killed.\n"
    )


def mpi_abort(rid: RuntimeId, node: str, rank: int, code: int, text: str) -> str:
    """The line for a step whose end a rank has called for."""
    shown = " ".join(text.split())[:400]
    return (
        f"slurmstepd: error: mpi/pmi2: StepId={_step_id(rid)} on {node}: task {rank} aborted all tasks "
        f"with exit code {code}{': ' + shown if shown else ''}\n"
    )


def no_work_dir(wanted: str, why: str, instead: str) -> str:
    """The line for a work directory that cannot be used."""
    return f"slurmstepd: error: couldn't chdir to `{wanted}': {why}: going to {instead} instead\n"


def task_prolog_failed(path: str, how: str) -> str:
    """The line for a task prolog that failed; `how` as in "status=3"."""
    return f"slurmstepd: error: TaskProlog failed {how}: {path}\n"


def cpu_bind(kind: str, node: str, rank: int, local_rank: int, pid: int, mask: int, result: str) -> str:
    """The line about a task's CPUs; `kind` "MASK" or "NONE", `result` "", " set" or " set FAILED"."""
    return f"cpu-bind={kind} - {node}, task {rank:2d} {local_rank:2d} [{pid}]: mask 0x{mask:x}{result}\n"


def no_exec(program: str, errno: int, interpreter: str = "") -> str:
    """The line for a program that cannot be executed; `interpreter` is the one its first line names."""
    through = f" (interpreter {interpreter})" if interpreter else ""
    return f"slurmstepd: error: execve(): {program}{through}: {os.strerror(errno)}\n"
