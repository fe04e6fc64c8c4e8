"""How far each task of a step is: waiting at the gate, become its program, ended.  No system calls.

A task says on its status pipe when it is ready and why an exec failed; the pipe closes when the exec has
succeeded or the task is gone.  How it ended counts only after that, so that a failed exec is known by then.
"""

from __future__ import annotations

import os

from spur_proto_lite import exits
from spur_stepd.task import EXEC_STAGE, READY_STAGE, decode_status

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from spur_stepd.launch import Forked
    from spur_stepd.task import Status


class Progress:
    """The tasks of one step, in the order in which they were forked."""

    def __init__(self) -> None:
        self.exec_errno: dict[int, int] = {}
        self._tasks: tuple[Forked, ...] = ()
        self._heard: dict[int, bytearray] = {}
        self._not_ready: set[int] = set()
        self._not_execed: set[int] = set()
        self._reaped: dict[int, int] = {}
        self._ended: dict[int, exits.TaskExit] = {}

    def begin(self, tasks: tuple[Forked, ...]) -> None:
        """These tasks have been forked."""
        self._tasks = tasks
        for task in tasks:
            self._heard[task.rank] = bytearray()
            self._not_ready.add(task.rank)
            self._not_execed.add(task.rank)

    def heard(self, rank: int, data: bytes) -> Status | None:
        """Take what came from a status pipe; the failure that the task has told of, if it has."""
        self._heard[rank] += data
        failed = None
        for record in decode_status(bytes(self._heard[rank])):
            if record.stage == READY_STAGE:
                self._not_ready.discard(rank)
            elif failed is None:
                failed = record
        if failed is not None and failed.stage == EXEC_STAGE:
            self.exec_errno[rank] = failed.errno
        return failed

    @property
    def all_ready(self) -> bool:
        """Every task is at the gate, or has passed it."""
        return not self._not_ready

    def closed(self, rank: int) -> bool:
        """A status pipe has closed; whether it was the last one."""
        waited = rank in self._not_execed
        self._not_execed.discard(rank)
        return waited and not self._not_execed

    def reaped(self, pid: int, status: int) -> None:
        """A task's process was collected, with that wait status."""
        self._reaped[pid] = status

    def is_reaped(self, pid: int) -> bool:
        return pid in self._reaped

    def newly_ended(self, now: float) -> list[exits.TaskExit]:
        """Tasks whose end is known now and has not been told, at the wall-clock time `now`."""
        found = []
        for task in self._tasks:
            if task.rank in self._ended or task.rank in self._not_execed or task.pid not in self._reaped:
                continue
            status = self._reaped[task.pid]
            exited = os.WIFEXITED(status)
            ended = exits.TaskExit(
                rank=task.rank,
                code=os.WEXITSTATUS(status) if exited else 0,
                signal=0 if exited else os.WTERMSIG(status),
                core=not exited and os.WCOREDUMP(status),
                exec_errno=self.exec_errno.get(task.rank, 0),
                ended_at=now,
            )
            self._ended[task.rank] = ended
            found.append(ended)
        return found

    def ends(self) -> tuple[exits.TaskExit, ...]:
        """How every task has ended, once all have."""
        return tuple(self._ended[task.rank] for task in self._tasks)
