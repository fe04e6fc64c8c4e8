"""The scan at start: read every session, classify it, take it back or clear it away.

1. Half-deleted directories are deleted, names that are no identity are quarantined.
2. Everything of a session is read (descriptor, journal, claim), its supervisor is asked, all in parallel.
3. `classify` decides; no signal reaches a step that is adopted.
4. Sessions of an attempt below another one of the same job are ended.
One bad session is never fatal, and the agent serves nothing before the scan is over.
"""

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from spur_agent import claim as claims
from spur_agent import leftovers
from spur_agent.allocation import AllocationTable
from spur_agent.classify import Evidence, Found, classify
from spur_agent.keeper import Keeper, identity_of
from spur_agent.launch import stop_supervisor
from spur_agent.logs import value
from spur_agent.sessions import Phase, Session, SessionTable
from spur_core.errors import GrammarError, SpurError, Unreachable
from spur_core.ids import RuntimeId
from spur_core.linux import procfs
from spur_proto_lite import control, journal
from spur_proto_lite.descriptor import Descriptor
from spur_proto_lite.errors import BadDocument, CorruptJournal
from spur_proto_lite.paths import SessionPaths, StatePaths

log = logging.getLogger(__name__)

#: A live supervisor gets so long to answer, twice.
ANSWER_SECS: Final = 10.0
#: Steps of an attempt that has a successor here get so long to be gone.
SUPERSEDE_SECS: Final = 30.0


class Read(NamedTuple):
    """One session as it lies on disk.  None: not there or not readable."""

    rid: RuntimeId
    paths: SessionPaths
    descriptor: Descriptor | None
    descriptor_word: str
    story: journal.Story | None
    claim: claims.Claim | None


class Scan:
    """Brings the table to what is really on the node."""

    def __init__(
        self,
        paths: StatePaths,
        table: SessionTable,
        allocation: AllocationTable,
        keeper: Keeper,
        boot_id: str,
    ) -> None:
        self._paths = paths
        self._table = table
        self._allocation = allocation
        self._keeper = keeper
        self._boot_id = boot_id

    async def run(self) -> dict[Found, int]:
        """Do it; returns how many sessions of each class there were."""
        begun = time.monotonic()
        counts = dict.fromkeys(Found, 0)
        reads = await asyncio.to_thread(self._read_all, counts)
        found = await asyncio.gather(*(self._judge(read) for read in reads))
        for read, kind in zip(reads, found, strict=True):
            counts[kind] += 1
            try:
                await self._act(read, kind)
            except (SpurError, OSError) as error:
                log.error("session_failed step=%s class=%s error=%s", read.rid, kind.name, value(error))
        await self._supersede()
        words = " ".join(f"{kind.name.lower()}={count}" for kind, count in counts.items() if count)
        log.info("scanned sessions=%d ms=%.0f %s", len(reads), (time.monotonic() - begun) * 1000, words)
        return counts

    # -- reading

    def _read_all(self, counts: dict[Found, int]) -> list[Read]:
        reads = []
        for name in sorted(os.listdir(self._paths.sessions)):  # noqa: PTH208 - names are wanted
            path = f"{self._paths.sessions}/{name}"
            if leftovers.is_half_deleted(name):
                leftovers.remove_session(path, f"{self._paths.spool}/{name}")
                continue
            try:
                rid = RuntimeId.from_dirname(name)
            except GrammarError:
                counts[Found.UNKNOWN] += 1
                leftovers.quarantined(Path(path), self._paths.quarantine)
                continue
            reads.append(read_session(rid, SessionPaths(path)))
        return reads

    # -- judging

    async def _judge(self, read: Read) -> Found:
        answer, alive = "", False
        if read.descriptor is not None:
            alive = procfs.is_alive(identity_of(read.descriptor), self._boot_id)
            if alive:
                answer = await self._ask(read)
        story = read.story
        return classify(
            Evidence(
                descriptor=read.descriptor_word,
                journal_ok=story is not None,
                same_boot=read.descriptor is not None and read.descriptor.boot_id == self._boot_id,
                alive=alive,
                answer=answer,
                started=story is not None and story.started_at is not None,
                exited=story is not None and story.exit is not None,
                acknowledged=story is not None and (story.acknowledged or story.fenced),
                abandoned=story is not None and story.abandoned,
            )
        )

    async def _ask(self, read: Read) -> str:
        """The supervisor's state by its own word; empty when it does not answer to this identity."""
        link = Session(read.rid, read.paths, claims.Claim(wire_sha256=""), 0, "", Phase.LIVE).link
        try:
            for _ in range(2):
                try:
                    hello = await link.hello(ANSWER_SECS)
                except control.Refused as error:
                    log.error("hello_refused step=%s error=%s", read.rid, value(error))
                    return ""
                except Unreachable as error:
                    log.warning("hello_unanswered step=%s error=%s", read.rid, value(error))
                    await asyncio.sleep(0.1)
                    continue
                return hello.state if hello.rid == read.rid else ""
            return ""
        finally:
            link.close()

    # -- acting

    async def _act(self, read: Read, kind: Found) -> None:
        if kind is not Found.LIVE:
            log.info("session_found step=%s class=%s", read.rid, kind.name.lower())
        session = self._session(read)
        if kind in (Found.DONE, Found.UNSTARTED):
            await self._clear(session, read)
            return
        self._table.add(session)
        if kind is Found.LIVE:
            self._allocation.restore(session.owner, session.claim.grant)
            self._keeper.watch(session)
        elif kind is Found.FINISHED:
            assert read.story is not None
            assert read.story.exit is not None
            alive = session.stepd is not None and procfs.is_alive(session.stepd, self._boot_id)
            if not (alive and self._keeper.watch(session)):
                await self._keeper.kill_leftovers(session)
            self._keeper.finish(session, read.story.exit, read.story.exit_seq)
        else:
            if kind is Found.UNRESPONSIVE or (kind is Found.CORRUPT and session.stepd is not None):
                await stop_supervisor(session)
            session.corrupt = kind is Found.CORRUPT
            await self._keeper.lose(session)

    def _session(self, read: Read) -> Session:
        found = read.descriptor
        kept = read.claim or (claims.from_descriptor(found) if found else claims.Claim(wire_sha256=""))
        uid, user = (found.uid, found.user) if found else (0, "")
        session = Session(read.rid, read.paths, kept, uid, user, Phase.LIVE)
        if found is not None:
            session.stepd = identity_of(found)
            session.cgroup = found.cgroup if found.boot_id == self._boot_id else ()
            session.stdout_path, session.stderr_path = found.stdout_path, found.stderr_path
        if read.story is not None:
            session.started_at = read.story.started_at or 0.0
        return session

    async def _clear(self, session: Session, read: Read) -> None:
        if session.stepd is not None and procfs.is_alive(session.stepd, self._boot_id):
            await stop_supervisor(session)
        await self._keeper.kill_leftovers(session)
        script_dir = f"{self._paths.spool}/{read.rid.dirname()}"
        await asyncio.to_thread(leftovers.remove_session, read.paths.dir, script_dir)

    async def _supersede(self) -> None:
        """Of two attempts of one job only the higher one may go on."""
        newest: dict[int, int] = {}
        for session in self._table:
            job_id = session.rid.job_id
            newest[job_id] = max(newest.get(job_id, 0), session.rid.run_attempt)
        old = [s for s in self._table if s.phase is Phase.LIVE and s.rid.run_attempt < newest[s.rid.job_id]]
        for session in old:
            log.warning("attempt_superseded step=%s by=%d", session.rid, newest[session.rid.job_id])
        try:
            async with asyncio.timeout(SUPERSEDE_SECS):
                await asyncio.gather(*(self._keeper.end_now(s, "superseded") for s in old))
        except TimeoutError:
            log.error("superseded_lingers first=%s", old[0].rid)


def read_session(rid: RuntimeId, paths: SessionPaths) -> Read:
    """Everything that lies in a session's directory."""
    descriptor: Descriptor | None = None
    word = "ok"
    try:
        descriptor = Descriptor.decode(Path(paths.descriptor).read_bytes(), rid)
    except FileNotFoundError:
        word = "missing"
    except (OSError, BadDocument) as error:
        log.error("descriptor_unusable step=%s error=%s", rid, value(error))
        word = "bad"
    story: journal.Story | None = None
    try:
        story = journal.story(journal.read(paths.journal).entries)
    except (OSError, CorruptJournal) as error:
        log.error("journal_unusable step=%s error=%s", rid, value(error))
    kept: claims.Claim | None = None
    try:
        kept = claims.decode(Path(paths.launch).read_bytes())
    except (OSError, BadDocument) as error:
        log.warning("claim_unusable step=%s error=%s", rid, value(error))
    return Read(rid, paths, descriptor, word, story, kept)
