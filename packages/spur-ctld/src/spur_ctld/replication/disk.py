"""How full the log's disk is, and what follows: first the leadership goes, then commands are refused."""

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from spur_ctld.replication.errors import Overloaded
from spur_ctld.replication.limits import Limits

_log = logging.getLogger(__name__)


class Disk(msgspec.Struct, frozen=True):
    """The log's disk after a job of its thread.  Bytes; `seconds` that a write took."""

    seconds: float = 0.0
    free: int = 0
    size: int = 0
    segments: int = 0


class DiskWatch:
    """Two marks of free space.

    Args:
        folder: for messages.
        look: asks for another look; `looked` is called with what it found.

    Attributes:
        low: below the first mark; this member shall not lead.
        refusing: below the second; no commands.
    """

    def __init__(self, folder: Path, limits: Limits, look: Callable[[], None]) -> None:
        self._folder = folder
        self._limits = limits
        self._look = look
        self._asked = float("-inf")
        self.last = Disk()
        self.low = False
        self.refusing = False

    def looked(self, disk: Disk) -> None:
        """News."""
        self.last = disk
        self.low = disk.free < self._limits.free_lead_bytes
        refusing = disk.free < self._limits.free_bytes
        if refusing != self.refusing:
            level = logging.WARNING if refusing else logging.INFO
            _log.log(level, "free_space path=%s free=%d refusing=%s", self._folder, disk.free, refusing)
        self.refusing = refusing

    def look_again(self, now: float) -> None:
        """Look, but not more often than the limits say: while nothing is written nobody else does."""
        if now - self._asked >= self._limits.free_recheck:
            self._asked = now
            self._look()

    def check(self, now: float) -> None:
        """Raises Overloaded while commands are refused."""
        if self.refusing:
            self.look_again(now)
            raise Overloaded(
                f"{self._folder}: {self.last.free >> 20} MiB free, "
                f"commands are refused below {self._limits.free_bytes >> 20} MiB"
            )

    def holds(self, snapshot_bytes: int) -> bool:
        """A new snapshot of about that size leaves the second mark alone."""
        return self.last.free >= self._limits.free_bytes + 2 * snapshot_bytes
