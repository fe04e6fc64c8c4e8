"""Launching steps: checked, reserved, written down, spawned, started, answered.

LaunchJob starts an attempt's part on this node: the step as long as which it lives (the batch script, an
allocation's hold, a stand-alone srun).  RunCommand starts one more step of an attempt that is here.

1. Who asks, for which node, by which term, for what: refused without a trace if anything is wrong.
2. LaunchJob: older attempts of the job on this node are killed and gone before anything new is made.
3. LaunchJob: resources are reserved and the prolog has run.  RunCommand: the step's part of them is chosen.
4. `bring_up` does the rest.
Whatever fails before the step runs leaves nothing behind: no process, no reservation, no directory.
"""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from spur_agent import accounts, claim, environment, hook_env, hooks, local_spec, task_plan, trust
from spur_agent import share as shares
from spur_agent.allocation import AllocationTable, NoRoom, Owner
from spur_agent.bring_up import BringUp, DirectoryTaken, LaunchFailed, write_session
from spur_agent.hooks import HookFiles
from spur_agent.keeper import Keeper
from spur_agent.ledger import Ledger
from spur_agent.logs import value
from spur_agent.program import ProgramUnusable
from spur_agent.prolog import PrologFailed, PrologInterrupted, Prologs
from spur_agent.sessions import Phase, Session, SessionTable, mark_output_sent
from spur_agent.share import Share
from spur_agent.spawner import SpawnFailed
from spur_agent.terms import Terms
from spur_core import faults
from spur_core.errors import (
    AccessDenied,
    AlreadyExists,
    BusyError,
    IdentityMismatch,
    NotFound,
    RequestError,
    Unreachable,
    WrongState,
)
from spur_core.ids import RuntimeId
from spur_proto import agent_pb2 as pb
from spur_proto_lite import control
from spur_proto_lite.launch_spec import LaunchSpec
from spur_proto_lite.paths import StatePaths

log = logging.getLogger(__name__)

DISPLACE_SECS: Final = 30.0
#: What a node that drains itself because of its prolog says; Slurm's words.
PROLOG_ERROR: Final = "Prolog error"


class Order(NamedTuple):
    """A launch request whose caller, target and statement have been checked."""

    rid: RuntimeId
    wire: pb.LaunchSpec
    digest: str
    term: int

    @property
    def owner(self) -> Owner:
        """Key of the attempt's holding."""
        return (self.rid.job_id, self.rid.run_attempt)


class Answer(NamedTuple):
    """What a launch came to; `session` is None when it failed."""

    session: Session | None
    failure: pb.LaunchFailure = pb.LAUNCH_FAILURE_UNSPECIFIED
    error: str = ""


class LaunchSite(NamedTuple):
    """What a launch needs of this node.

    names: the names that mean this node.
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
    terms: Terms
    bring_up: BringUp
    hooks: hooks.Hooks
    prologs: Prologs
    drain: Callable[[str], Awaitable[None]]


class Launcher:
    """Answers LaunchJob and RunCommand."""

    def __init__(self, site: LaunchSite) -> None:
        self._site = site
        #: job -> (lock, launches that hold it or wait for it)
        self._locks: dict[int, tuple[asyncio.Lock, int]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._open = True

    # -- requests

    def check(self, request: pb.LaunchJobRequest | pb.RunCommandRequest, now: float) -> Order:
        """Judge a request before anything is done for it.

        Raises:
            RequestError, AccessDenied, WrongState, CredentialError: it is refused.
        """
        site = self._site
        if request.target_node not in site.names:
            raise WrongState(f"the launch is for node {request.target_node!r}, this is {site.rules.node}")
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
        # Only now: who has stolen a credential alone must not lock out later controllers.
        site.terms.check(request.term)
        if wire.uid == 0 and os.geteuid() == 0 and not site.rules.allow_root_jobs:
            raise AccessDenied("jobs of root are not allowed on this node ([auth] allow_root_jobs)")
        return Order(rid, wire, digest, request.term)

    async def launch(self, request: pb.LaunchJobRequest) -> pb.LaunchJobResponse:
        """The answer to LaunchJob.  A launch goes on when its caller hangs up: the controller asks again."""
        order = self._admit(request)
        # What LaunchJob starts is what the attempt lives as long as, also by the word of the release before.
        order.wire.job_lifetime = True
        found = await self._detached(self._attempt(order))
        if found.session is None:
            return pb.LaunchJobResponse(success=False, failure=found.failure, error=found.error)
        return pb.LaunchJobResponse(
            success=True,
            stdout_path=found.session.stdout_path,
            stderr_path=found.session.stderr_path,
            started_at=found.session.started_at,
        )

    async def run_command(self, request: pb.RunCommandRequest) -> pb.RunCommandResponse:
        """The answer to RunCommand; likewise."""
        order = self._admit(request)
        if order.wire.job_lifetime:
            raise RequestError(f"{order.rid} is to begin an attempt: that is what LaunchJob is for")
        found = await self._detached(self._further(order))
        if found.session is None:
            return pb.RunCommandResponse(success=False, failure=found.failure, error=found.error)
        return pb.RunCommandResponse(success=True, started_at=found.session.started_at)

    def _admit(self, request: pb.LaunchJobRequest | pb.RunCommandRequest) -> Order:
        if not self._open:
            raise BusyError("the agent is stopping")
        return self.check(request, time.time())

    async def _detached(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return await asyncio.shield(self._start(work))

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._settled)
        return task

    def _settled(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever called has it; without a caller it is in the log already

    async def stop(self, timeout: float) -> None:
        """Take no more launches and let those in flight end; a prolog that takes longer is killed."""
        self._open = False
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=timeout)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=timeout)

    @asynccontextmanager
    async def _turn(self, job_id: int) -> AsyncIterator[None]:
        """One decision about a job at a time."""
        lock, users = self._locks.get(job_id, (asyncio.Lock(), 0))
        self._locks[job_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            users = self._locks[job_id][1] - 1
            if users:
                self._locks[job_id] = (lock, users)
            else:
                del self._locks[job_id]

    # -- an attempt's first step

    async def _attempt(self, order: Order) -> Answer:
        """Begin an attempt here; the job's turn is held until it runs."""
        async with self._turn(order.rid.job_id):
            self._site.terms.check(order.term)
            held = self._site.table.get(order.rid)
            if held is not None:
                return self._repeated(order, held)
            self._refuse_past(order.rid)
            for session in self._site.table.of_attempt(*order.owner):
                if session.job_lifetime and session.phase is not Phase.LOST:
                    raise WrongState(f"{order.rid}: that attempt is here already, as {session.rid}")
            return await self._caught(order.rid, self._first(order))

    def _refuse_past(self, rid: RuntimeId) -> None:
        """Nothing runs a second time, and no older attempt beside a newer one.

        Raises:
            WrongState: it would.
        """
        if rid in self._site.ledger:
            raise WrongState(f"{rid} has run here and its end is acknowledged")
        newest = max((s.rid.run_attempt for s in self._site.table.of_job(rid.job_id)), default=0)
        if newest > rid.run_attempt:
            raise WrongState(f"{rid}: attempt {newest} of that job is on this node")

    def _repeated(self, order: Order, held: Session) -> Answer:
        """A run is never begun twice."""
        if held.claim.wire_sha256 != order.digest:
            raise AlreadyExists(f"{order.rid} is on this node, launched from another spec")
        if held.phase is Phase.LAUNCHING:
            raise BusyError(f"{order.rid} is being launched; ask again")
        if held.phase is Phase.LOST:
            return _failed(order.rid, pb.LAUNCH_FAILURE_NODE, "the supervisor of that run was lost")
        log.info("launch_repeated step=%s", order.rid)
        return Answer(held)

    async def _first(self, order: Order) -> Answer:
        site, wire = self._site, order.wire
        await self._displace(order.rid)
        files = await self._find_hooks()
        want = local_spec.want(wire.slice)
        # Once it is in the table a later leader's probe or kill meets it.  Until then it was told that
        # nothing is here, so that an order which it has overtaken must not be carried out any more.
        site.terms.check(order.term)
        had = order.owner in site.allocation.held()
        share = shares.whole(site.allocation.reserve(order.owner, want, site.table.asleep()))
        session = self._enter(order, share, bool(files.epilog))
        try:
            await self._run_prolog(order, share, files)
            return await self._fresh(order, session, share, files)
        except Exception as error:
            # Not when cancelled: then the agent is going, and the next one finds out how far this came.
            await site.bring_up.undo(session, keep_directory=isinstance(error, DirectoryTaken))
            if not had:
                site.allocation.release(order.owner)
            raise

    async def _displace(self, rid: RuntimeId) -> None:
        """Kill every older attempt of the job until it is gone."""
        site = self._site
        older = [s for s in site.table.of_job(rid.job_id) if s.rid.run_attempt < rid.run_attempt]
        for session in older:
            if session.phase is Phase.LOST:
                await site.keeper.remove(session)
                continue
            if session.phase is Phase.FINISHED:
                # Whoever waits for the job's output gets it from the newer attempt.
                await asyncio.to_thread(mark_output_sent, session)
                session.output_taken.set()
            if not session.quiet.is_set():
                log.warning("attempt_displaced step=%s by=%s", session.rid, rid)
        try:
            async with asyncio.timeout(DISPLACE_SECS):
                await asyncio.gather(
                    *(site.keeper.end_now(s, "superseded") for s in older if s.phase is not Phase.LOST)
                )
        except TimeoutError:
            text = f"an older attempt of job {rid.job_id} did not end within {DISPLACE_SECS:g} s"
            raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, text, drain=True) from None

    async def _find_hooks(self) -> HookFiles:
        """The scripts of this launch; looked for anew each time, so that directories may change."""
        if not any((self._site.hooks.prolog, *self._site.hooks[1:4])):
            return HookFiles()
        return await asyncio.to_thread(hooks.find_all, self._site.hooks)

    async def _run_prolog(self, order: Order, share: Share, files: HookFiles) -> None:
        """Have the attempt's prolog run, once.

        Raises:
            PrologFailed, PrologInterrupted: nothing of the attempt may run here.
        """
        if not files.prolog:
            return
        site, wire = self._site, order.wire
        env = hook_env.node_env(wire, share, site.here, hook_env.PROLOG)

        async def run(started: hooks.Started) -> None:
            await hooks.run(files.prolog, env, wire.work_dir, site.hooks.timeout_secs, started)

        try:
            await asyncio.to_thread(site.prologs.prune, {s.owner for s in site.table})
            await site.prologs.once(order.owner, run)
        except OSError as error:
            text = f"the mark of the prolog cannot be written: {error.strerror}"
            raise LaunchFailed(pb.LAUNCH_FAILURE_NODE, text, drain=True) from None
        faults.after("prolog")

    # -- further steps

    async def _further(self, order: Order) -> Answer:
        """Steps of an attempt come up side by side; only their parts are chosen one after the other."""
        while True:
            async with self._turn(order.rid.job_id):
                self._site.terms.check(order.term)
                held = self._site.table.get(order.rid)
                if held is None:
                    parent = self._parent(order)
                    try:
                        share = self._choose(order, parent)
                    except NoRoom as error:
                        return _failed(order.rid, pb.LAUNCH_FAILURE_RESOURCES, error.text)
                    session = self._enter(order, share, epilog=False)
                    break
            if held.phase is not Phase.LAUNCHING or held.claim.wire_sha256 != order.digest:
                return self._repeated(order, held)
            await held.settled.wait()
        return await self._caught(order.rid, self._beside(order, session, share, parent))

    def _parent(self, order: Order) -> Session:
        """The session as long as which the attempt lives here.

        Raises:
            NotFound: nothing of the job is here.
            WrongState, IdentityMismatch, AccessDenied: no step of this attempt may be started (any more), or
                not by this user.
            BusyError: it is being launched, or gets a new supervisor.
        """
        rid = order.rid
        self._refuse_past(rid)
        there = self._site.table.of_job(rid.job_id)
        if not there:
            raise NotFound(f"{rid}: job {rid.job_id} is not on this node")
        mine = [s for s in there if s.rid.run_attempt == rid.run_attempt and s.job_lifetime]
        if not mine:
            raise IdentityMismatch(rid, ", ".join(str(s.rid) for s in there))
        parent = mine[0]
        if _coming(parent):
            raise BusyError(f"{rid}: the supervisor of {parent.rid} is being started; ask again")
        if parent.phase is not Phase.LIVE:
            raise WrongState(f"{rid}: {parent.rid} is over, and with it that attempt here")
        gid = parent.claim.gid
        if order.wire.uid != parent.uid or gid not in (None, order.wire.gid):
            raise AccessDenied(f"{rid}: the job belongs to uid {parent.uid}, gid {gid}")
        return parent

    def _choose(self, order: Order, parent: Session) -> Share:
        """The step's part of what the attempt holds here.

        Raises:
            NoRoom: the job has not so much.
        """
        site, wire = self._site, order.wire
        job = site.allocation.held().get(order.owner, parent.claim.grant)
        wish = shares.Wish(
            cpus=wire.slice.cpus,
            memory_mb=wire.slice.memory_mb,
            gres=tuple((g.name, g.type, g.count) for g in wire.slice.gres),
            exact=wire.exact,
            overlap=wire.overlap,
        )
        beside = [
            shares.Beside(s.claim.grant, s.claim.exact, s.claim.overlap)
            for s in site.table.of_attempt(*order.owner)
            if s.phase in (Phase.LAUNCHING, Phase.LIVE) and not s.job_lifetime
        ]
        return shares.choose(job, wish, beside)

    async def _beside(self, order: Order, session: Session, share: Share, parent: Session) -> Answer:
        try:
            answer = await self._fresh(order, session, share, await self._find_hooks())
        except Exception as error:
            await self._site.bring_up.undo(session, keep_directory=isinstance(error, DirectoryTaken))
            raise
        if await self._over(parent):
            # It ended while this step came up, and has perhaps not seen it among those that it has to end.
            log.info("step_too_late step=%s after=%s", session.rid, parent.rid)
            self._start(self._site.keeper.end_now(session, "job_end"))
        return answer

    async def _over(self, parent: Session) -> bool:
        """Whether the attempt has ended here, by the word of its own supervisor.

        One that says no will look for steps to end only later, and then finds those that run now.
        """
        # Meanwhile it may have a new supervisor, and with it a new entry in the table.
        now = self._site.table.get(parent.rid)
        if now is not None and _coming(now):
            return False  # if that fails, everything of the attempt is ended
        if now is None or now.phase is not Phase.LIVE:
            return True
        try:
            return (await now.link.query()).exit is not None
        except control.Refused:
            return False
        except Unreachable:
            self._site.keeper.suspect(now)
            return False

    # -- both

    def _enter(self, order: Order, share: Share, epilog: bool) -> Session:
        """A session in the table, before anything of it is on the disk."""
        made = claim.make(order.digest, share.step, order.wire, epilog)
        paths = self._site.paths.session(order.rid)
        session = Session(order.rid, paths, made, order.wire.uid, order.wire.user, Phase.LAUNCHING)
        self._site.table.add(session)
        return session

    async def _caught(self, rid: RuntimeId, work: Coroutine[Any, Any, Answer]) -> Answer:
        """What failed on this node's side as an answer; what the caller did wrong stays an error."""
        drain = self._site.drain
        try:
            return await work
        except NoRoom as error:
            return _failed(rid, pb.LAUNCH_FAILURE_RESOURCES, error.text)
        except (ProgramUnusable, SpawnFailed, PrologInterrupted) as error:
            return _failed(rid, pb.LAUNCH_FAILURE_NODE, error.text)
        except PrologFailed as error:
            if error.fresh:
                await drain(PROLOG_ERROR)
            return _failed(rid, pb.LAUNCH_FAILURE_PROLOG, error.text)
        except hooks.BrokenHook as error:
            await drain(error.text)
            return _failed(rid, pb.LAUNCH_FAILURE_NODE, error.text)
        except LaunchFailed as error:
            if error.drain:
                await drain(error.text)
            return _failed(rid, error.kind, error.text)

    async def _fresh(self, order: Order, session: Session, share: Share, files: HookFiles) -> Answer:
        """Bring the session up and hand it to the keeper."""
        site, rid, wire = self._site, order.rid, order.wire
        begun = time.monotonic()
        spec = await asyncio.to_thread(self._local_spec, wire, share, files)
        await asyncio.to_thread(write_session, session.paths, spec, session.claim)
        started = await site.bring_up.bring_up(session)
        session.started_at = started.started_at or time.time()
        session.stdout_path, session.stderr_path = started.stdout_path, started.stderr_path
        session.cgroup = started.cgroup
        site.keeper.launched(session)
        for warning in started.warnings:
            log.warning("start_warning step=%s text=%s", rid, value(warning))
        log.info("launched step=%s uid=%d ms=%.1f", rid, wire.uid, (time.monotonic() - begun) * 1000)
        session.settled.set()
        return Answer(session)

    def _local_spec(self, wire: pb.LaunchSpec, share: Share, files: HookFiles) -> LaunchSpec:
        """Pure but for two look-ups in the user database, which may ask a network."""
        site = self._site
        here = site.here._replace(account=accounts.account_of(wire.uid))
        plan = task_plan.make(wire, share, site.rules.pinned, site.rules.places)
        env = environment.build(wire, share, here, plan.cpu_bind)
        groups = accounts.groups_of(wire.user, wire.gid)
        if here.account is None:
            log.warning("user_unknown uid=%d groups=%s", wire.uid, value(groups))
        scripts = hook_env.specs(wire, share, here, files, site.hooks)
        return local_spec.build(wire, env, groups, share, site.rules, plan, scripts)


def _coming(parent: Session) -> bool:
    """Whether the attempt's own supervisor is not there, but is about to be (again)."""
    return parent.phase is Phase.LAUNCHING or (parent.phase is Phase.LOST and parent.restorable)


def _failed(rid: RuntimeId, kind: pb.LaunchFailure, text: str) -> Answer:
    log.warning("launch_failed step=%s kind=%s error=%s", rid, pb.LaunchFailure.Name(kind), value(text))
    return Answer(None, kind, text)
