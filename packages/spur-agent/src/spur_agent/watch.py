"""Watching supervisors: their death is an event, and a supervisor that does not answer is found out.

With pidfds a death is seen at once; on kernels without them every process is looked at every two seconds.
Now and then every running step's supervisor is asked, so that neither a push that never arrives nor a
supervisor that hangs goes unnoticed.
"""

import asyncio
import errno
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from spur_agent.chores import Chores
from spur_agent.logs import value
from spur_agent.sessions import Phase, Session, SessionTable
from spur_core.errors import Unreachable
from spur_core.linux import pidfd, procfs
from spur_proto_lite.control import Refused

log = logging.getLogger(__name__)

SWEEP_SECS: Final = 30.0
#: Between two looks at processes whose death is no event.
POLL_SECS: Final = 2.0
#: A supervisor that leaves so many queries unanswered is taken for dead.
_QUERIES: Final = 3
QUERY_PAUSE: Final = 5.0


def pidfds_work() -> bool:
    """Whether this kernel has descriptors of processes."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return error.errno != errno.ENOSYS
    return True


class Watch:
    """Of every supervisor that is there.

    Args:
        died: called once for each watched supervisor that has died.
        look: asks one running step's supervisor and acts on what it says.
        events: deaths are events; None = find out.
    """

    def __init__(
        self,
        table: SessionTable,
        chores: Chores,
        died: Callable[[Session], Coroutine[Any, Any, None]],
        look: Callable[[Session], Coroutine[Any, Any, None]],
        events: bool | None = None,
    ) -> None:
        self._table = table
        self._chores = chores
        self._died = died
        self._look = look
        self._events = pidfds_work() if events is None else events
        self.sweep_secs = SWEEP_SECS
        self.poll_secs = POLL_SECS
        self.query_pause = QUERY_PAUSE

    def begin(self, session: Session) -> bool:
        """Make the supervisor's death an event; False when it is dead already (then nothing is called)."""
        if session.stepd is None:
            return False
        if not self._events:
            session.watched = procfs.is_alive(session.stepd)
            return session.watched
        fd = pidfd.open_checked(session.stepd)
        if fd is None:
            return False
        session.pidfd, session.watched = fd, True
        asyncio.get_running_loop().add_reader(fd, self._on_death, session)
        return True

    def _on_death(self, session: Session) -> None:
        self.end(session)
        session.dead.set()
        session.changed.set()
        self._chores.start(self._died(session))

    def end(self, session: Session) -> None:
        """Stop watching; nothing happens to the supervisor."""
        session.watched = False
        if session.pidfd is not None:
            asyncio.get_running_loop().remove_reader(session.pidfd)
            os.close(session.pidfd)
            session.pidfd = None

    async def sweep(self) -> None:
        """For ever: look at processes without events, ask supervisors of running steps."""
        next_round = time.monotonic() + self.sweep_secs
        while True:
            pause = self.sweep_secs if self._events else self.poll_secs
            await asyncio.sleep(min(pause, max(next_round - time.monotonic(), 0.01)))
            if not self._events:
                for session in self._table:
                    if session.watched and session.stepd is not None and not procfs.is_alive(session.stepd):
                        self._on_death(session)
            if time.monotonic() >= next_round:
                await self._ask_all()
                next_round = time.monotonic() + self.sweep_secs

    async def _ask_all(self) -> None:
        for session in self._table:
            waits = session.phase is Phase.FINISHED and not session.epilog_known
            if not session.watched or not (session.phase is Phase.LIVE or waits):
                continue
            try:
                await self._look(session)
            except Refused as error:
                log.warning("query_refused step=%s error=%s", session.rid, value(error))
            except Unreachable:
                self.suspect(session)

    def suspect(self, session: Session) -> None:
        """A supervisor did not answer: find out whether it still does."""
        if not session.suspected and session.watched:
            session.suspected = True
            self._chores.start(self._interrogate(session))

    async def _interrogate(self, session: Session) -> None:
        for _ in range(_QUERIES):
            try:
                await session.link.query()
            except Refused:
                pass
            except Unreachable:
                await asyncio.sleep(self.query_pause)
                continue
            session.suspected = False
            return
        if session.watched and session.stepd is not None:
            log.error("supervisor_unresponsive step=%s pid=%d", session.rid, session.stepd.pid)
            pidfd.send_checked(session.stepd, signal.SIGKILL)
