"""A new supervisor for a step that only holds an allocation and has lost its own.

The step's group and whatever runs in it stay as they are.  The old journal is kept under another name, so
that a crash on the way leaves a session that is still known to have been started.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Final

from spur_agent import halt
from spur_agent.bring_up import BringUp
from spur_agent.keeper import Keeper
from spur_agent.logs import value
from spur_agent.sessions import Phase, Session, SessionTable
from spur_core.errors import SpurError
from spur_core.linux import fsync
from spur_proto_lite.paths import SessionPaths

log = logging.getLogger(__name__)

#: In the session directory: the journal of the supervisor that was lost.
LOST_JOURNAL: Final = "journal.lost"


async def restore(lost: Session, table: SessionTable, keeper: Keeper, bring_up: BringUp) -> Session | None:
    """The session under its new supervisor, which lives in the table then; None: it could not be done, the
    lost session is there again, and everything of it was killed."""
    fresh = Session(lost.rid, lost.paths, lost.claim, lost.uid, lost.user, Phase.LAUNCHING)
    fresh.started_at = lost.started_at
    fresh.stdout_path, fresh.stderr_path, fresh.cgroup = lost.stdout_path, lost.stderr_path, lost.cgroup
    table.remove(lost)
    table.add(fresh)
    try:
        if not lost.restorable:
            raise SpurError(lost.why_lost or "it cannot be taken over")
        await asyncio.to_thread(_set_aside, lost.paths)
        fresh.cgroup = (await bring_up.bring_up(fresh)).cgroup
    except (SpurError, OSError) as error:
        log.error("restore_failed step=%s error=%s", lost.rid, value(error))
        lost.restore_failed, lost.why_lost = True, "restore failed"
        keeper.unwatch(fresh)
        if fresh.stepd is not None:
            await halt.stop(fresh.stepd)
        fresh.link.close()
        table.remove(fresh)
        table.add(lost)
        fresh.settled.set()
        await keeper.give_up(lost)
        return None
    keeper.restored(lost, fresh)
    keeper.launched(fresh)
    fresh.settled.set()
    log.warning("restored step=%s", fresh.rid)
    return fresh


def _set_aside(paths: SessionPaths) -> None:
    """Make room for a new journal; done already after a crash."""
    earlier = Path(f"{paths.dir}/{LOST_JOURNAL}")
    current = Path(paths.journal)
    if earlier.exists():
        # A supervisor between then and now never started it: only the first journal counts.
        current.unlink(missing_ok=True)
    elif current.exists():
        os.rename(current, earlier)  # noqa: PTH104
    fsync.sync_dir(paths.dir)
