"""The leader's part of an upgrade: when every member applies newer operations, the group uses them.

A member that is away keeps the group where it is: what it runs when it comes back is not known.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from spur_core.errors import SpurError
from spur_ctld.ledger import Ledger
from spur_ctld.replication.api import MemberView
from spur_ctld.state import versions
from spur_ctld.state.ops import RaiseCommandVersion

log = logging.getLogger(__name__)

#: Seconds between two looks at the members, until all of them have this leader's release.
_LOOK_SECS: Final = 0.5


def common(members: Sequence[MemberView]) -> int:
    """The newest version that every member applies; 0 while one of them has not said so."""
    return min(member.command_version if member.present else 0 for member in members)


class Upgrade:
    """Raises the group's command version in one term.

    Args:
        raised: called after each raise, until it ends well: what was held back can be proposed.
    """

    def __init__(
        self,
        ledger: Ledger,
        members: Callable[[], Sequence[MemberView]],
        clock: Callable[[], float],
        raised: Callable[[], Awaitable[None]],
    ) -> None:
        self._ledger = ledger
        self._members = members
        self._clock = clock
        self._raised = raised
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Raise the version if that is possible.

        Raises:
            SpurError: it could not be recorded.
        """
        to, used = min(common(self._members()), versions.known()), self._ledger.state.command_version
        if to <= used:
            return
        await self._ledger.commit(RaiseCommandVersion(at=self._clock(), to=to))
        log.info("command_version_raised to=%d from=%d", to, used)

    def start(self) -> None:
        """Look again and again until there is nothing more to raise."""
        if self._ledger.state.command_version < versions.known():
            self._task = asyncio.create_task(self._run(), name="upgrade")

    async def stop(self) -> None:
        """Look no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        told = self._ledger.state.command_version
        while told < versions.known():
            await asyncio.sleep(_LOOK_SECS)
            try:
                await self.look()
                # Also when nobody could tell how the last look ended.
                used = self._ledger.state.command_version
                if used > told:
                    await self._raised()
                    told = used
            except SpurError as error:
                log.info("upgrade_waits error=%r", error.text)
