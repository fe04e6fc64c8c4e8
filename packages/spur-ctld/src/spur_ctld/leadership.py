"""From the replication's role changes to an office that is open or closed.  One at a time, in order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from spur_core.errors import BusyError
from spur_ctld.office import Office
from spur_ctld.replication.roles import Role
from spur_ctld.site import Site

log = logging.getLogger(__name__)

#: Between tries to open an office that could not be opened.
_RETRY_SECS: Final = 0.5


class Leadership:
    """Opens an office at each begin of a term, and closes it at the end.

    Args:
        make: makes the office of a term.
        alone: a failure to open is the failure of the start, for there is no other controller.
        aside: true when somebody else had better lead, and does; asked before an office opens.
    """

    def __init__(
        self, site: Site, make: Callable[[int], Office], aside: Callable[[], Awaitable[bool]], *, alone: bool
    ) -> None:
        self._site = site
        self._aside = aside
        self._make = make
        self._alone = alone
        self._term: int | None = None
        self._office: Office | None = None
        self._wake = asyncio.Event()
        self._settled: list[asyncio.Future[None]] = []
        self._failure: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []
        #: Held while an office is being closed, which is not to be broken off in the middle.
        self._closing = asyncio.Lock()
        site.ledger.lead(leads=False)

    @property
    def office(self) -> Office | None:
        """The present one, open or about to be."""
        return self._office

    @property
    def open(self) -> bool:
        """Whether calls that only a leader can answer are answered here."""
        return self._site.office is not None and self._site.office.ready

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever an office has opened or closed."""
        self._listeners.append(listener)

    def on_role(self, role: Role, term: int) -> None:
        """The replication's word; called on the event loop."""
        self._term = term if role is Role.LEADER else None
        office = self._office
        if office is not None and office.term != self._term:
            office.leave()
            self._site.office = None
            self._site.ledger.lead(leads=False)
            log.warning("leads_no_longer term=%d", office.term)
            self._tell()
        self._wake.set()

    def start(self) -> None:
        """Begin to follow the roles."""
        self._task = asyncio.create_task(self._run(), name="leadership")

    async def opened(self) -> None:
        """Return when an office is open.

        Raises:
            Exception: why the only controller could not open it.
        """
        while not self.open:
            if self._failure is not None:
                raise self._failure
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settled.append(waiter)
            await waiter

    async def stop(self) -> None:
        """Close the office, if there is one."""
        self._term = None
        if self._task is not None:
            async with self._closing:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._close()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._office is not None and self._office.term != self._term:
                await self._close()
            if self._office is None and self._term is not None:
                await self._open(self._term)

    async def _open(self, term: int) -> None:
        if await self._aside() or term != self._term:
            # Nothing was stamped with a clock that is wrong.
            return
        self._site.ledger.lead(leads=True)
        office = self._office = self._site.office = self._make(term)
        try:
            await office.open()
        except Exception as error:
            await self._close()
            if self._alone:
                self._failure = error
                self._tell()
                return
            level = logging.INFO if isinstance(error, BusyError) else logging.ERROR
            log.log(level, "office_not_opened term=%d", term, exc_info=error)
            asyncio.get_running_loop().call_later(_RETRY_SECS, self._wake.set)
            return
        if office.ready:
            state = self._site.ledger.state
            log.info("leads term=%d jobs=%d nodes=%d", term, len(state.jobs), len(state.nodes))
        self._tell()

    async def _close(self) -> None:
        async with self._closing:
            office = self._office
            if office is None:
                return
            self._site.office = None
            self._site.ledger.lead(leads=False)
            await office.close()
            self._office = None
        self._tell()

    def _tell(self) -> None:
        for waiter in self._settled:
            if not waiter.done():
                waiter.set_result(None)
        self._settled.clear()
        for listener in self._listeners:
            listener()
