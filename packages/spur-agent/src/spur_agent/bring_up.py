"""Bringing up one session: on the disk, spawned, ready, started; or nothing of it left.

1. `launch.json` is on the disk, a supervisor is there and answers `hello`.
2. `start`: from here on user code runs, and the step belongs to the keeper.
"""

import asyncio
import logging
import os
import time
from typing import Final

from spur_agent import claim, halt, leftovers
from spur_agent.keeper import Keeper
from spur_agent.logs import value
from spur_agent.sessions import Session, SessionTable
from spur_agent.spawner import SupervisorSource
from spur_core import faults
from spur_core.errors import StateError, Unreachable
from spur_core.linux import fsync, private_dir, procfs
from spur_core.linux.cgroup_layout import Root
from spur_proto import agent_pb2 as pb
from spur_proto_lite import control, journal
from spur_proto_lite.errors import CorruptJournal
from spur_proto_lite.launch_spec import LaunchSpec
from spur_proto_lite.paths import SessionPaths
from spur_proto_lite.versions import negotiate

log = logging.getLogger(__name__)

READY_SECS: Final = 10.0
#: `start` makes work directories, which may lie on a slow file system.
START_SECS: Final = 30.0
_FIRST_POLL: Final = 0.001
_LAST_POLL: Final = 0.2


class LaunchFailed(StateError):
    """Nothing runs and nothing is left.

    Attributes:
        kind: a `LaunchFailure`.
        drain: the node itself is broken and should get no more work.
    """

    code = "launch_failed"

    def __init__(self, kind: pb.LaunchFailure, text: str, drain: bool = False) -> None:
        super().__init__(text)
        self.kind = kind
        self.drain = drain


class BringUp:
    """Turns a prepared session into a running step.

    Args:
        root: where this agent's control groups lie, None without any.
    """

    def __init__(
        self,
        source: SupervisorSource,
        table: SessionTable,
        keeper: Keeper,
        boot_id: str,
        root: Root | None,
    ) -> None:
        self._source = source
        self._table = table
        self._keeper = keeper
        self._boot_id = boot_id
        self._root = root

    async def bring_up(self, session: Session) -> control.StartReply:
        """Spawn, wait until ready, start.

        Raises:
            ProgramUnusable, SpawnFailed, LaunchFailed: nothing of the user's runs.
        """
        synced = asyncio.create_task(asyncio.to_thread(sync_session, session.paths))
        try:
            found = await self._source.spawn(session.paths.dir)
            session.stepd = procfs.Identity(found.pid, found.start_ticks, self._boot_id)
            if not self._keeper.watch(session):
                raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, _last_words(session.paths, "it ended at once"))
            await self._ready(session)
        finally:
            # Also when spawning failed: nobody may delete the directory under it.
            await synced
        faults.after("spawned")
        try:
            started = await session.link.start(START_SECS)
        except control.Refused as error:
            raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, f"the supervisor refused to start: {error}") from None
        except Unreachable as error:
            if (begun := await asyncio.to_thread(self._begun, session)) is None:
                text = _last_words(session.paths, error.text)
                raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, text) from None
            # User code runs, or has run: the launch succeeded, whatever became of the supervisor.  The
            # keeper reads the journal and reports an end, or a loss; undoing it would run it twice.
            log.warning("start_unanswered step=%s error=%s", session.rid, value(error.text))
            self._keeper.suspect(session)
            return begun
        if started.failure_kind:
            node_fault = started.failure_kind == control.FAIL_NODE
            kind = pb.LAUNCH_FAILURE_NODE if node_fault else pb.LAUNCH_FAILURE_JOB
            raise LaunchFailed(kind, started.text, drain=node_fault and started.failure_errno != 0)
        faults.after("started")
        return started

    def _begun(self, session: Session) -> control.StartReply | None:
        """The answer to `start`, as far as the disk tells it; None when no user code can have run."""
        try:
            story = journal.story(journal.read(session.paths.journal).entries)
        except (CorruptJournal, OSError) as error:
            log.error("journal_unreadable step=%s error=%s", session.rid, value(error))
            return None
        if story.started_at is None:
            return None
        groups = leftovers.groups_of(self._root, session.rid)
        return control.StartReply(started_at=story.started_at, cgroup=groups)

    async def _ready(self, session: Session) -> None:
        pause = _FIRST_POLL
        deadline = time.monotonic() + READY_SECS
        while True:
            try:
                hello = await session.link.hello(max(deadline - time.monotonic(), 0.1))
                break
            except control.Refused as error:
                raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, f"the supervisor says {error}") from None
            except Unreachable as error:
                if session.dead.is_set():
                    text = _last_words(session.paths, "it ended before it was ready")
                    raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, text) from None
                if time.monotonic() >= deadline:
                    text = f"the supervisor was not ready within {READY_SECS:g} s: {error.text}"
                    raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, text) from None
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_POLL)
        if hello.rid != session.rid:
            raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, f"the supervisor holds {hello.rid}")
        if negotiate(hello.min, hello.max) is None:
            text = f"the supervisor speaks protocol {hello.min} to {hello.max} only"
            raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, text)

    async def undo(self, session: Session, keep_directory: bool) -> None:
        """Leave nothing of a launch that failed."""
        if session.stepd is not None:
            await halt.stop(session.stepd)
            # A supervisor that died half-way through `start` has made groups, and tasks that wait in them.
            await self._keeper.kill_leftovers(session)
        if keep_directory:
            self._table.remove(session)
            session.quiet.set()
            session.settled.set()
            return
        await self._keeper.remove(session)


class DirectoryTaken(LaunchFailed):
    """The session's directory is there and not ours to use; it stays as it is."""


def write_session(paths: SessionPaths, spec: LaunchSpec, made: claim.Claim) -> None:
    """Make the session directory with its `launch.json`; `sync_session` brings it to the disk.

    Raises:
        LaunchFailed: it cannot be made; `drain` when the disk is at fault.
    """
    try:
        fd = private_dir.ensure(paths.dir)
    except private_dir.NotPrivate as error:
        raise DirectoryTaken(pb.LAUNCH_FAILURE_NODE, error.text) from None
    except OSError as error:
        raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, f"{paths.dir}: {error.strerror}", drain=True) from None
    try:
        if os.listdir(fd):  # noqa: PTH208 - through the descriptor
            raise DirectoryTaken(pb.LAUNCH_FAILURE_NODE, f"{paths.dir}: is there already")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        faults.before("launch_json")
        with open(os.open(SessionPaths.LAUNCH, flags, 0o600, dir_fd=fd), "wb") as file:
            file.write(made.encode_with(spec))
    except OSError as error:
        raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, f"{paths.dir}: {error.strerror}", drain=True) from None
    finally:
        os.close(fd)


def sync_session(paths: SessionPaths) -> None:
    """Wait until the session is on the disk.  It may be read before; nothing of the user's may run before.

    Raises:
        LaunchFailed: the disk does not take it.
    """
    try:
        fd = os.open(paths.launch, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        fsync.sync_dir(paths.dir)
        fsync.sync_dir(os.path.dirname(paths.dir))  # noqa: PTH120
        faults.after("launch_json")
    except OSError as error:
        raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, f"{paths.dir}: {error.strerror}", drain=True) from None


def _last_words(paths: SessionPaths, fallback: str) -> str:
    """Why a supervisor did not get far: the last line of its log, else `fallback`."""
    try:
        with open(paths.log, "rb") as file:
            lines = file.read()[-2000:].decode(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return f"supervisor failed: {lines[-1] if lines else fallback}"
