"""Launching one step: checked, reserved, written down, spawned, started, answered.

1. Who asks, for which node, by which term, for what: refused without a trace if anything is wrong.
2. Older attempts of the job on this node are killed and gone before anything new is made.
3. Resources are reserved, `launch.json` is on the disk, a supervisor is there and answers `hello`.
4. `start`: from here on user code runs, and the step belongs to the keeper.
Whatever fails before leaves nothing behind: no process, no reservation, no directory.
"""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from spur_agent import accounts, claim, environment, leftovers, local_spec, trust
from spur_agent.allocation import AllocationTable, Grant, NoRoom, Want
from spur_agent.control_calls import Terms
from spur_agent.keeper import Keeper
from spur_agent.ledger import Ledger
from spur_agent.logs import value
from spur_agent.program import ProgramUnusable
from spur_agent.sessions import Phase, Session, SessionTable
from spur_agent.spawner import SpawnFailed, SupervisorSource
from spur_core.errors import (
    AccessDenied,
    AlreadyExists,
    BusyError,
    RequestError,
    StateError,
    Unreachable,
    WrongState,
)
from spur_core.ids import RuntimeId
from spur_core.linux import fsync, pidfd, private_dir, procfs
from spur_core.linux.cgroup_layout import Root
from spur_proto import agent_pb2 as pb
from spur_proto_lite import control, journal
from spur_proto_lite.errors import CorruptJournal
from spur_proto_lite.launch_spec import LaunchSpec
from spur_proto_lite.paths import SessionPaths, StatePaths
from spur_proto_lite.versions import negotiate

log = logging.getLogger(__name__)

READY_SECS: Final = 10.0
#: `start` makes work directories, which may lie on a slow file system.
START_SECS: Final = 30.0
DISPLACE_SECS: Final = 30.0
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


class Order(NamedTuple):
    """A launch request whose caller, target and statement have been checked."""

    rid: RuntimeId
    wire: pb.LaunchSpec
    digest: str


class LaunchSite(NamedTuple):
    """What a launch needs of this node.

    names: the names that mean this node.
    root: where this agent's control groups lie, None without any.
    drain: asks the controller for no more work, with the reason.
    """

    names: frozenset[str]
    rules: local_spec.NodeRules
    trust: trust.Rules
    here: environment.NodeContext
    paths: StatePaths
    table: SessionTable
    allocation: AllocationTable
    keeper: Keeper
    ledger: Ledger
    source: SupervisorSource
    terms: Terms
    boot_id: str
    root: Root | None
    drain: Callable[[str], Awaitable[None]]


class Launcher:
    """Answers LaunchJob."""

    def __init__(self, site: LaunchSite) -> None:
        self._site = site
        #: job -> (lock, launches that hold it or wait for it)
        self._locks: dict[int, tuple[asyncio.Lock, int]] = {}
        self._running: set[asyncio.Task[pb.LaunchJobResponse]] = set()
        self._open = True

    def check(self, request: pb.LaunchJobRequest, now: float) -> Order:
        """Judge a request before anything is done for it.

        Raises:
            RequestError, AccessDenied, WrongState, CredentialError: it is refused.
        """
        site = self._site
        if request.target_node not in site.names:
            raise WrongState(f"the launch is for node {request.target_node!r}, this is {site.rules.node}")
        site.terms.check(request.term)
        wire = pb.LaunchSpec()
        try:
            wire.ParseFromString(request.spec)
        except DecodeError:
            raise RequestError("the launch spec is no message of that type") from None
        rid = local_spec.rid_of(wire)
        digest = hashlib.sha256(request.spec).hexdigest()
        trust.check_statement(
            site.trust, request.launch_token, rid, wire.uid, wire.gid, digest, request.target_node, now
        )
        if wire.uid == 0 and os.geteuid() == 0 and not site.rules.allow_root_jobs:
            raise AccessDenied("jobs of root are not allowed on this node ([auth] allow_root_jobs)")
        return Order(rid, wire, digest)

    async def launch(self, request: pb.LaunchJobRequest) -> pb.LaunchJobResponse:
        """The answer to LaunchJob.  A launch goes on when its caller hangs up: the controller asks again."""
        if not self._open:
            raise BusyError("the agent is stopping")
        order = self.check(request, time.time())
        task = asyncio.create_task(self._ordered(order))
        self._running.add(task)
        task.add_done_callback(self._settled)
        return await asyncio.shield(task)

    def _settled(self, task: asyncio.Task[pb.LaunchJobResponse]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever called has it; without a caller it is in the log already

    async def stop(self, timeout: float) -> None:
        """Take no more launches and let those in flight come to an end."""
        self._open = False
        if self._running:
            await asyncio.wait(self._running, timeout=timeout)

    async def _ordered(self, order: Order) -> pb.LaunchJobResponse:
        """One launch of a job at a time."""
        job_id = order.rid.job_id
        lock, users = self._locks.get(job_id, (asyncio.Lock(), 0))
        self._locks[job_id] = (lock, users + 1)
        try:
            async with lock:
                return await self._one(order)
        finally:
            users = self._locks[job_id][1] - 1
            if users:
                self._locks[job_id] = (lock, users)
            else:
                del self._locks[job_id]

    async def _one(self, order: Order) -> pb.LaunchJobResponse:
        held = self._site.table.get(order.rid)
        if held is not None:
            return self._repeated(order, held)
        if order.rid in self._site.ledger:
            raise WrongState(f"{order.rid} has run here and its end is acknowledged")
        newest = max((s.rid.run_attempt for s in self._site.table.of_job(order.rid.job_id)), default=0)
        if newest > order.rid.run_attempt:
            raise WrongState(f"{order.rid}: attempt {newest} of that job is on this node")
        try:
            await self._displace(order.rid)
            return await self._fresh(order)
        except NoRoom as error:
            return self._failed(order.rid, pb.LAUNCH_FAILURE_RESOURCES, error.text)
        except (ProgramUnusable, SpawnFailed) as error:
            return self._failed(order.rid, pb.LAUNCH_FAILURE_NODE, error.text)
        except LaunchFailed as error:
            if error.drain:
                await self._site.drain(error.text)
            return self._failed(order.rid, error.kind, error.text)

    @staticmethod
    def _failed(rid: RuntimeId, kind: pb.LaunchFailure, text: str) -> pb.LaunchJobResponse:
        log.warning("launch_failed step=%s kind=%s error=%s", rid, pb.LaunchFailure.Name(kind), value(text))
        return pb.LaunchJobResponse(success=False, failure=kind, error=text)

    def _repeated(self, order: Order, held: Session) -> pb.LaunchJobResponse:
        """A run is never begun twice."""
        if held.claim.wire_sha256 != order.digest:
            raise AlreadyExists(f"{order.rid} is on this node, launched from another spec")
        if held.phase is Phase.LOST:
            return self._failed(order.rid, pb.LAUNCH_FAILURE_NODE, "the supervisor of that run was lost")
        log.info("launch_repeated step=%s", order.rid)
        return _answer(held)

    async def _displace(self, rid: RuntimeId) -> None:
        """Kill every older attempt of the job until it is gone."""
        site = self._site
        older = [s for s in site.table.of_job(rid.job_id) if s.rid.run_attempt < rid.run_attempt]
        for session in older:
            if session.phase is Phase.LOST:
                await site.keeper.remove(session)
            elif not session.quiet.is_set():
                log.warning("attempt_displaced step=%s by=%s", session.rid, rid)
        try:
            async with asyncio.timeout(DISPLACE_SECS):
                await asyncio.gather(
                    *(site.keeper.end_now(s, "superseded") for s in older if s.phase is not Phase.LOST)
                )
        except TimeoutError:
            text = f"an older attempt of job {rid.job_id} did not end within {DISPLACE_SECS:g} s"
            raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, text, drain=True) from None

    async def _fresh(self, order: Order) -> pb.LaunchJobResponse:
        site, rid, wire = self._site, order.rid, order.wire
        begun = time.monotonic()
        owner = (rid.job_id, rid.run_attempt)
        wanted = tuple((g.name, g.type, g.count) for g in wire.slice.gres)
        had = owner in site.allocation.held()
        grant = site.allocation.reserve(owner, Want(wire.slice.cpus, wire.slice.memory_mb, wanted))
        session: Session | None = None
        try:
            spec = await asyncio.to_thread(self._local_spec, wire, grant)
            made = claim.make(order.digest, grant, wire.spool_output)
            paths = site.paths.session(rid)
            session = Session(rid, paths, made, wire.uid, wire.user, Phase.LAUNCHING)
            site.table.add(session)
            await asyncio.to_thread(write_session, paths, spec, made)
            started = await self._bring_up(session)
        except Exception as error:
            # Not when cancelled: then the agent is going, and the next one finds out how far this came.
            if session is not None:
                await self._undo(session, keep_directory=isinstance(error, DirectoryTaken))
            if not had:
                site.allocation.release(owner)
            raise
        session.started_at = started.started_at or time.time()
        session.stdout_path, session.stderr_path = started.stdout_path, started.stderr_path
        session.cgroup = started.cgroup
        site.keeper.launched(session)
        for warning in started.warnings:
            log.warning("start_warning step=%s text=%s", rid, value(warning))
        log.info("launched step=%s uid=%d ms=%.1f", rid, wire.uid, (time.monotonic() - begun) * 1000)
        session.settled.set()
        return _answer(session)

    def _local_spec(self, wire: pb.LaunchSpec, grant: Grant) -> LaunchSpec:
        """Pure but for two look-ups in the user database, which may ask a network."""
        here = self._site.here._replace(account=accounts.account_of(wire.uid))
        env = environment.build(wire, grant, here)
        groups = accounts.groups_of(wire.user, wire.gid)
        if here.account is None:
            log.warning("user_unknown uid=%d groups=%s", wire.uid, value(groups))
        return local_spec.build(wire, env, groups, grant, self._site.rules)

    async def _bring_up(self, session: Session) -> control.StartReply:
        """Spawn, wait until ready, start.

        Raises:
            ProgramUnusable, SpawnFailed, LaunchFailed: nothing of the user's runs.
        """
        synced = asyncio.create_task(asyncio.to_thread(sync_session, session.paths))
        try:
            found = await self._site.source.spawn(session.paths.dir)
            session.stepd = procfs.Identity(found.pid, found.start_ticks, self._site.boot_id)
            if not self._site.keeper.watch(session):
                raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, _last_words(session.paths, "it ended at once"))
            await self._ready(session)
        finally:
            # Also when spawning failed: nobody may delete the directory under it.
            await synced
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
            self._site.keeper.suspect(session)
            return begun
        if started.failure_kind:
            node_fault = started.failure_kind == control.FAIL_NODE
            kind = pb.LAUNCH_FAILURE_NODE if node_fault else pb.LAUNCH_FAILURE_JOB
            raise LaunchFailed(kind, started.text, drain=node_fault and started.failure_errno != 0)
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
        groups = leftovers.groups_of(self._site.root, session.rid)
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

    async def _undo(self, session: Session, keep_directory: bool) -> None:
        """Leave nothing of a launch that failed."""
        if session.stepd is not None:
            await stop_supervisor(session)
            # A supervisor that died half-way through `start` has made groups, and tasks that wait in them.
            await self._site.keeper.kill_leftovers(session)
        if keep_directory:
            self._site.table.remove(session)
            return
        await self._site.keeper.remove(session)


async def stop_supervisor(session: Session, patience: float = 1.0) -> None:
    """TERM, `patience` seconds, KILL: to exactly this supervisor."""
    assert session.stepd is not None
    for number, wait in ((15, patience), (9, 5.0)):
        if not pidfd.send_checked(session.stepd, number):
            return
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            if not procfs.is_alive(session.stepd, session.stepd.boot_id):
                return
            await asyncio.sleep(0.01)
    log.error("supervisor_survives step=%s pid=%d", session.rid, session.stepd.pid)


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


def _answer(session: Session) -> pb.LaunchJobResponse:
    return pb.LaunchJobResponse(
        success=True,
        stdout_path=session.stdout_path,
        stderr_path=session.stderr_path,
        started_at=session.started_at,
    )
