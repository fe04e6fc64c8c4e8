"""What the parts of one running member have in common."""

import asyncio
from collections.abc import Callable

from spur_ctld.replication.api import StateMachine
from spur_ctld.replication.core import Core
from spur_ctld.replication.digests import DigestBook
from spur_ctld.replication.disk import DiskWatch
from spur_ctld.replication.files import Files
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.reads import Reads
from spur_ctld.replication.recovery import Opened
from spur_ctld.replication.waiting import WaitingRoom
from spur_ctld.replication.writer import Worker


class Shared:
    """Made at the start, when the directory is open and the state restored.

    Args:
        wake: asks for a turn.
        fail: reports that the log, a snapshot or the state machine can no longer be trusted.

    Attributes:
        running: between start and the end of stop.
        stopping: no new work.
        failed: the first error that was reported.
        digests: of the state at its snapshots, here and elsewhere.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        machine: StateMachine,
        core: Core,
        opened: Opened,
        files: Files,
        limits: Limits,
        wake: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.loop = loop
        self.machine = machine
        self.core = core
        self.opened = opened
        self.files = files
        self.limits = limits
        self.wake = wake
        self.fail = fail
        self.room = WaitingRoom()
        self.reads = Reads()
        self.log_thread = Worker(loop, "spur-log")
        self.snapshot_thread = Worker(loop, "spur-snapshot")
        self.disk: DiskWatch
        self.running = True
        self.stopping = False
        self.failed: BaseException | None = None
        self.digests = DigestBook(core.id)

    @property
    def usable(self) -> bool:
        """Turns may do something."""
        return self.running and self.failed is None
