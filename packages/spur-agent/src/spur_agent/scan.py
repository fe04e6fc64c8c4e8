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
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from spur_agent import claim as claims
from spur_agent import halt, leftovers
from spur_agent.allocation import AllocationTable
from spur_agent.classify import Evidence, Found, classify
from spur_agent.keeper import Keeper, identity_of
from spur_agent.logs import value
from spur_agent.restore import LOST_JOURNAL
from spur_agent.sessions import Phase, Session, SessionTable
from spur_core.errors import GrammarError, SpurError, Unreachable
from spur_core.ids import STEP_BATCH, STEP_EXTERN, RuntimeId
from spur_core.linux import procfs
from spur_proto_lite import control, journal
from spur_proto_lite.descriptor import Descriptor
from spur_proto_lite.errors import BadDocument, CorruptJournal
from spur_proto_lite.paths import SessionPaths, StatePaths
from spur_proto_lite.versions import negotiate

log = logging.getLogger(__name__)

#: A live supervisor gets so long to answer, twice.
ANSWER_SECS: Final = 10.0
#: Steps of an attempt that has a successor here get so long to be gone.
SUPERSEDE_SECS: Final = 30.0
#: How often a session may turn out to be another thing than it was a moment ago.
_LOOKS: Final = 3

_WHY: Final = {
    Found.STALE: "its supervisor is gone",
    Found.UNRESPONSIVE: "its supervisor did not answer",
}


class Read(NamedTuple):
    """One session as it lies on disk.  None: not there or not readable.

    taken_over: what was told by the journal of an earlier supervisor that was lost.
    trouble: what is wrong with the files.
    """

    rid: RuntimeId
    paths: SessionPaths
    descriptor: Descriptor | None
    descriptor_word: str
    story: journal.Story | None
    claim: claims.Claim | None
    taken_over: journal.Story | None = None
    trouble: str = ""


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
        #: What supervisors said of their state.
        self._answers: dict[RuntimeId, str] = {}
        self._keeper = keeper
        self._boot_id = boot_id
        self.answer_secs = ANSWER_SECS

    async def run(self) -> dict[Found, int]:
        """Do it; returns how many sessions of each class there were."""
        begun = time.monotonic()
        counts = dict.fromkeys(Found, 0)
        reads = await asyncio.to_thread(self._read_all, counts)
        found = await asyncio.gather(*(self._judge(read) for read in reads))
        for read, kind in zip(reads, found, strict=True):
            try:
                counts[await self._take(read, kind)] += 1
            except (SpurError, OSError) as error:
                counts[kind] += 1
                log.error("session_failed step=%s class=%s error=%s", read.rid, kind.name, value(error))
        await self._supersede(read.rid for read in reads)
        words = " ".join(f"{kind.name.lower()}={count}" for kind, count in counts.items() if count)
        log.info("scanned sessions=%d ms=%.0f %s", len(reads), (time.monotonic() - begun) * 1000, words)
        return counts

    # -- reading

    def _read_all(self, counts: dict[Found, int]) -> list[Read]:
        reads = []
        for name in sorted(os.listdir(self._paths.sessions)):  # noqa: PTH208 - names are wanted
            path = f"{self._paths.sessions}/{name}"
            if (gone := leftovers.half_deleted(name)) is not None:
                leftovers.remove_session(path, leftovers.script_dirs(self._paths, gone))
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
                answer = self._answers[read.rid] = await self._ask(read)
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
                acknowledged=story is not None and story.acknowledged,
                abandoned=story is not None and story.abandoned,
                taken_over=read.taken_over is not None,
            )
        )

    async def _ask(self, read: Read) -> str:
        """The supervisor's state by its own word; empty when it does not answer to this identity."""
        link = Session(read.rid, read.paths, claims.Claim(wire_sha256=""), 0, "", Phase.LIVE).link
        try:
            for _ in range(2):
                try:
                    hello = await link.hello(self.answer_secs)
                except control.Refused as error:
                    log.error("hello_refused step=%s error=%s", read.rid, value(error))
                    return ""
                except Unreachable as error:
                    log.warning("hello_unanswered step=%s error=%s", read.rid, value(error))
                    await asyncio.sleep(0.1)
                    continue
                if negotiate(hello.min, hello.max) is None:
                    log.error("protocol_unknown step=%s min=%d max=%d", read.rid, hello.min, hello.max)
                    return ""
                return hello.state if hello.rid == read.rid else ""
            return ""
        finally:
            link.close()

    # -- acting

    async def _take(self, read: Read, kind: Found) -> Found:
        """Act on one session; what it turned out to be."""
        for _ in range(_LOOKS):
            if await self._act(read, kind):
                return kind
            # Meanwhile it has begun after all.
            log.warning("session_changed step=%s class=%s", read.rid, kind.name.lower())
            read = await asyncio.to_thread(read_session, read.rid, read.paths)
            kind = await self._judge(read)
        raise Unreachable("it changes all the time")

    async def _act(self, read: Read, kind: Found) -> bool:
        """False: it is not any more what it was taken for, and nothing was done."""
        if kind is not Found.LIVE:
            log.info("session_found step=%s class=%s", read.rid, kind.name.lower())
        session = self._session(read)
        if kind is Found.DONE:
            await self._clear(session)
            return True
        never_ran = read.story is not None and read.story.started_at is None and read.taken_over is None
        if kind is Found.UNSTARTED or (kind is Found.UNRESPONSIVE and never_ran):
            if not await self._is_unstarted(session):
                return False
            await self._clear(session)
            return True
        self._table.add(session)
        if kind is Found.LIVE:
            self._allocation.restore(session.owner, session.claim.grant)
            session.asleep = self._answers.get(read.rid) == "suspended"
            self._keeper.watch(session)
            self._keeper.counters.add("adopted")
        elif kind is Found.FINISHED:
            assert read.story is not None
            assert read.story.exit is not None
            session.epilog = read.story.epilog
            self._keeper.watch(session)
            self._keeper.finish(session, read.story.exit, read.story.exit_seq)
        else:
            await self._give_up(session, read, kind)
        return True

    async def _give_up(self, session: Session, read: Read, kind: Found) -> None:
        """There is no supervisor that could go on with it."""
        session.corrupt = kind is Found.CORRUPT
        session.fenced = read.story is not None and read.story.fenced
        who = session.stepd
        if session.corrupt and who is None:
            who = session.stepd = await asyncio.to_thread(halt.listener, read.paths)
        if who is not None and procfs.is_alive(who, self._boot_id):
            await halt.stop(who, 0.0)
        why = read.trouble if session.corrupt else _WHY[kind]
        if session.rebooted:
            why = "the node has booted since"
        await self._keeper.lose(session, why)

    def _session(self, read: Read) -> Session:
        found = read.descriptor
        kept = read.claim or (claims.from_descriptor(found) if found else None)
        if kept is None:
            lasting = read.rid.step_id in (STEP_BATCH, STEP_EXTERN)
            kept = claims.Claim(wire_sha256="", job_lifetime=lasting)
        uid, user = (found.uid, found.user) if found else (0, "")
        session = Session(read.rid, read.paths, kept, uid, user, Phase.LIVE)
        if found is not None:
            session.stepd = identity_of(found)
            session.rebooted = found.boot_id != self._boot_id
            session.cgroup = () if session.rebooted else found.cgroup
            session.stdout_path, session.stderr_path = found.stdout_path, found.stderr_path
        for story in (read.story, read.taken_over):
            if story is not None and story.started_at is not None:
                session.started_at = story.started_at
        return session

    async def _is_unstarted(self, session: Session) -> bool:
        """End its supervisor, if there is one; whether nothing of the user's has run and now never will."""
        if session.stepd is not None:
            return await halt.put_down(session.stepd, session.paths)
        return True

    async def _clear(self, session: Session) -> None:
        if session.stepd is not None and procfs.is_alive(session.stepd, self._boot_id):
            await halt.stop(session.stepd)
        await self._keeper.kill_leftovers(session)
        scripts = leftovers.script_dirs(self._paths, session.rid)
        await asyncio.to_thread(leftovers.remove_session, session.paths.dir, scripts)

    async def _supersede(self, found: Iterable[RuntimeId]) -> None:
        """Of two attempts of one job only the higher one may go on."""
        newest: dict[int, int] = {}
        for rid in found:
            newest[rid.job_id] = max(newest.get(rid.job_id, 0), rid.run_attempt)
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
    word, trouble = "ok", ""
    try:
        descriptor = Descriptor.decode(Path(paths.descriptor).read_bytes(), rid)
    except FileNotFoundError:
        word, trouble = "missing", "descriptor.json is missing"
    except (OSError, BadDocument) as error:
        log.error("descriptor_unusable step=%s error=%s", rid, value(error))
        word, trouble = "bad", str(error)
    story: journal.Story | None = None
    try:
        story = _story(paths.journal)
    except (OSError, CorruptJournal) as error:
        log.error("journal_unusable step=%s error=%s", rid, value(error))
        trouble = f"journal: {error}"
    taken_over: journal.Story | None = None
    try:
        earlier = Path(paths.dir, LOST_JOURNAL)
        if earlier.exists():
            taken_over = _story(str(earlier))
    except (OSError, CorruptJournal) as error:
        log.error("journal_unusable step=%s error=%s", rid, value(error))
    kept: claims.Claim | None = None
    try:
        kept = claims.decode(Path(paths.launch).read_bytes())
    except (OSError, BadDocument) as error:
        log.warning("claim_unusable step=%s error=%s", rid, value(error))
    return Read(rid, paths, descriptor, word, story, kept, taken_over, trouble)


def _story(path: str) -> journal.Story:
    return journal.story(journal.read(path).entries)
