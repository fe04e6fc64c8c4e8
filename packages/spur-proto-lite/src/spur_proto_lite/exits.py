"""How a step ended, as the journal, the control socket and the notification tell it."""

from __future__ import annotations

from spur_proto_lite.errors import BadDocument
from spur_proto_lite.framing import EXIT, decode_body
from spur_proto_lite.record import Record, nests

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from spur_proto_lite.framing import Frame


class TaskExit(Record):
    """How one task ended: `code` when it exited, `signal` when a signal killed it; the other is 0."""

    rank: int
    code: int = 0
    signal: int = 0
    core: bool = False
    #: errno of a failed exec, 0 otherwise; `code` then holds what the step reports for it.
    exec_errno: int = 0
    ended_at: float = 0.0


nests(TaskExit)


class ExitRecord(Record):
    """How a step ended on this node.

    With one task: its code, or 0 and its signal.  With several: the highest of code or 128 + signal, in
    `code`; `signal` is then the signal of the task that made the highest, 0 if it exited.
    """

    code: int = 0
    signal: int = 0
    oom: bool = False
    core: bool = False
    #: Why the supervisor itself was ending the step ("cancelled", "timeout", ...), "" if it was not.
    teardown_reason: str = ""
    started_at: float = 0.0
    ended_at: float = 0.0
    #: Seconds of CPU and KiB of the largest process, over all reaped processes.
    user_secs: float = 0.0
    system_secs: float = 0.0
    max_rss_kb: int = 0
    tasks: tuple[TaskExit, ...] = ()

    @property
    def shell_code(self) -> int:
        """What a shell would report: the code, or 128 + signal."""
        if len(self.tasks) == 1 and self.signal:
            return 128 + self.signal
        return self.code


nests(ExitRecord)


def exit_of(frame: Frame) -> ExitRecord:
    """The record in an exit frame.

    Raises:
        BadDocument: it is no exit frame, or cannot be read.
    """
    if frame.kind != EXIT:
        raise BadDocument("not an exit frame")
    return ExitRecord.from_json(decode_body(frame.payload))


def combine(
    tasks: tuple[TaskExit, ...],
    *,
    oom: bool = False,
    teardown_reason: str = "",
    started_at: float = 0.0,
    ended_at: float = 0.0,
    user_secs: float = 0.0,
    system_secs: float = 0.0,
    max_rss_kb: int = 0,
) -> ExitRecord:
    """The step's exit from those of its tasks."""
    code = signal = 0
    if len(tasks) == 1:
        code, signal = tasks[0].code, tasks[0].signal
    else:
        for task in tasks:
            value = 128 + task.signal if task.signal else task.code
            if value > code:
                code, signal = value, task.signal
    return ExitRecord(
        code=code,
        signal=signal,
        oom=oom,
        core=any(task.core for task in tasks),
        teardown_reason=teardown_reason,
        started_at=started_at,
        ended_at=ended_at,
        user_secs=user_secs,
        system_secs=system_secs,
        max_rss_kb=max_rss_kb,
        tasks=tasks,
    )


class EpilogRecord(Record):
    """How the node's epilog ended after the step."""

    ok: bool
    status: int = 0
    text: str = ""


nests(EpilogRecord)
