"""The prolog: run once for each (job, attempt) on a node, before anything of it runs here.

A mark on the disk, `runtime/prologs/JOB.ATTEMPT`, makes that true over restarts of the agent:

* it says "running" before the first script is started, so no prolog is ever started twice;
* it says "done" before the launch goes on, so a repeated launch does not run it again, and no step can run
  whose prolog has not ended well;
* a prolog in the middle of which the agent died is neither repeated nor trusted: what is left of it is
  killed when the next agent starts, and that attempt is refused here.  The next attempt has its own.

Marks of another boot mean nothing: whatever the prolog had made may be gone with it.
"""

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Collection
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from spur_agent.allocation import Owner
from spur_agent.hooks import HookFailed, Started
from spur_agent.logs import value
from spur_core.errors import StateError
from spur_core.linux import fsync, private_dir, procfs

log = logging.getLogger(__name__)

#: A mark of an attempt that is not here any more is kept for so long, for a launch that is repeated.
KEPT_SECS: Final = 3600.0


class Stage(Enum):
    """What a mark says."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class PrologFailed(StateError):
    """The prolog of this attempt failed: the node is not fit for work.

    Attributes:
        fresh: it did so just now, and not at an earlier launch of the same attempt.
    """

    code = "prolog_failed"

    def __init__(self, text: str, fresh: bool) -> None:
        super().__init__(text)
        self.fresh = fresh


class PrologInterrupted(StateError):
    """The agent ended while the prolog of this attempt ran; nobody knows how it went."""

    code = "prolog_interrupted"


class Mark(NamedTuple):
    """`pid`, `ticks`: the script that runs, 0 if none has been started."""

    stage: Stage
    boot_id: str
    error: str = ""
    pid: int = 0
    ticks: int = 0


#: Runs the scripts and tells the pid of each.  Raises HookFailed.
Run = Callable[[Started], Awaitable[None]]


class Prologs:
    """The marks of one agent.

    Args:
        runtime: the agent's private directory.
    """

    def __init__(self, runtime: str, boot_id: str) -> None:
        self._folder = f"{runtime}/prologs"
        self._boot_id = boot_id

    async def once(self, owner: Owner, run: Run) -> None:
        """Have the prolog of that attempt run, unless it has.

        Raises:
            PrologFailed: it failed, now or before.
            PrologInterrupted: an agent died in the middle of it.
            OSError: the mark cannot be written; nothing was run.
        """
        found = await asyncio.to_thread(self._read, owner)
        if found is not None:
            if found.stage is Stage.DONE:
                return
            if found.stage is Stage.FAILED:
                raise PrologFailed(found.error, fresh=False)
            raise PrologInterrupted("spurd was restarted while the prolog of this attempt ran")
        await asyncio.to_thread(self._write, owner, Mark(Stage.RUNNING, self._boot_id))

        async def note(pid: int) -> None:
            mark = Mark(Stage.RUNNING, self._boot_id, pid=pid, ticks=procfs.start_ticks(pid) or 0)
            # Not synced: only a later agent of this boot wants to know, and it reads what we wrote.
            await asyncio.to_thread(self._write, owner, mark, sync=False)

        begun = time.monotonic()
        try:
            await run(note)
        except HookFailed as error:
            mark = Mark(Stage.FAILED, self._boot_id, error.text)
            await asyncio.to_thread(self._write, owner, mark)
            raise PrologFailed(error.text, fresh=True) from None
        await asyncio.to_thread(self._write, owner, Mark(Stage.DONE, self._boot_id))
        log.info("prolog_done job=%d attempt=%d ms=%.0f", *owner, (time.monotonic() - begun) * 1000)

    def interrupt_leftovers(self) -> None:
        """At start: kill what a prolog of the agent before us left running."""
        for owner, _ in self._marks():
            mark = self._read(owner)
            if mark is None or mark.stage is not Stage.RUNNING or not mark.pid:
                continue
            if procfs.is_alive(procfs.Identity(mark.pid, mark.ticks, mark.boot_id), self._boot_id):
                log.warning("prolog_interrupted job=%d attempt=%d pid=%d", *owner, mark.pid)
                try:
                    os.killpg(mark.pid, signal.SIGKILL)
                except OSError as error:
                    log.error("kill_failed pid=%d error=%s", mark.pid, error.strerror)

    def prune(self, here: Collection[Owner]) -> None:
        """Forget attempts that are not here: overtaken ones at once, the others after a while."""
        marks = self._marks()
        newest: dict[int, int] = {}
        for job_id, attempt in (*here, *(owner for owner, _ in marks)):
            newest[job_id] = max(newest.get(job_id, 0), attempt)
        for owner, age in marks:
            if owner not in here and (newest[owner[0]] > owner[1] or age > KEPT_SECS):
                self._path(owner).unlink(missing_ok=True)

    def _path(self, owner: Owner) -> Path:
        return Path(f"{self._folder}/{owner[0]}.{owner[1]}")

    def _marks(self) -> list[tuple[Owner, float]]:
        """(attempt, age in seconds) of every mark."""
        found = []
        now = time.time()
        try:
            entries = list(os.scandir(self._folder))
        except OSError:
            return []
        for entry in entries:
            job_id, dot, attempt = entry.name.partition(".")
            if not (dot and job_id.isdecimal() and attempt.isdecimal()):
                continue
            try:
                age = now - entry.stat().st_mtime
            except FileNotFoundError:
                continue  # another launch has just forgotten it
            found.append(((int(job_id), int(attempt)), age))
        return found

    def _read(self, owner: Owner) -> Mark | None:
        """The mark of this boot; an unreadable one counts as a prolog that was interrupted."""
        try:
            data = self._path(owner).read_bytes()
        except FileNotFoundError:
            return None
        try:
            said = json.loads(data)
            mark = Mark(Stage(said["stage"]), said["boot_id"], said["error"], said["pid"], said["ticks"])
        except (ValueError, KeyError, TypeError):
            log.error("prolog_mark_unreadable job=%d attempt=%d text=%s", *owner, value(repr(data[:200])))
            return Mark(Stage.RUNNING, self._boot_id)
        return mark if mark.boot_id == self._boot_id else None

    def _write(self, owner: Owner, mark: Mark, sync: bool = True) -> None:
        data = json.dumps({**mark._asdict(), "stage": mark.stage.value}).encode()
        path = self._path(owner)
        if sync:
            os.close(private_dir.ensure(self._folder))
            fsync.write_whole(str(path), data)
            return
        temporary = path.with_name(f".note-{path.name}")
        temporary.write_bytes(data)
        temporary.replace(path)
