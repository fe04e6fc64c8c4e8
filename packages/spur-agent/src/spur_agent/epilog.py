"""The epilog of an attempt whose supervisor died before it could run it: once, and never a second time.

The file `epilog.started` in the session directory is there before the first script runs, whoever runs it.
If it is there and no result is in the journal, nobody can tell how far it came: that counts as failed.
"""

import asyncio
import logging
import os
import time
from pathlib import Path

from spur_agent import hooks
from spur_agent.logs import value
from spur_agent.sessions import Session
from spur_core.linux import fsync
from spur_proto_lite import journal
from spur_proto_lite.errors import BadDocument, CorruptJournal
from spur_proto_lite.exits import EpilogRecord
from spur_proto_lite.launch_spec import HookSpec, LaunchSpec
from spur_proto_lite.paths import SessionPaths

log = logging.getLogger(__name__)


async def run_missing(session: Session) -> EpilogRecord:
    """The result: of the journal, or of running the scripts now.  It is in the journal when this returns."""
    recorded = await asyncio.to_thread(_recorded, session.paths)
    if recorded is not None:
        return recorded
    try:
        spec = await asyncio.to_thread(_scripts, session.paths)
        first = await asyncio.to_thread(_mark_started, session.paths)
    except (OSError, BadDocument) as error:
        result = EpilogRecord(ok=False, text=f"the epilog cannot be started: {error}")
    else:
        if first:
            log.warning("epilog_by_agent step=%s", session.rid)
            result = await _run(spec)
        else:
            result = EpilogRecord(ok=False, text="the epilog was started and nobody saw its end")
    await asyncio.to_thread(_record, session.paths, result)
    return result


async def _run(spec: HookSpec) -> EpilogRecord:
    try:
        work_dir = spec.env.get("SPUR_JOB_WORK_DIR", "")
        await hooks.run(spec.paths, spec.env, work_dir, spec.timeout_secs)
    except hooks.HookFailed as error:
        return EpilogRecord(ok=False, status=1, text=error.text)
    return EpilogRecord(ok=True)


def _scripts(paths: SessionPaths) -> HookSpec:
    """The scripts with their environment and time limit.

    Raises:
        OSError, BadDocument: `launch.json` cannot be used.
    """
    return LaunchSpec.decode(Path(paths.launch).read_bytes()).epilog


def _recorded(paths: SessionPaths) -> EpilogRecord | None:
    try:
        return journal.story(journal.read(paths.journal).entries).epilog
    except (CorruptJournal, OSError):
        return None


def _mark_started(paths: SessionPaths) -> bool:
    """Whether nobody has started it before."""
    try:
        fd = os.open(paths.epilog_started, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    fsync.sync_dir(paths.dir)
    return True


def _record(paths: SessionPaths, result: EpilogRecord) -> None:
    try:
        writer = journal.JournalWriter(paths.journal)
        try:
            writer.append(journal.EPILOG_RESULT, time.time(), result.to_json())
        finally:
            writer.close()
    except (CorruptJournal, OSError) as error:
        log.error("epilog_not_written journal=%s error=%s", value(paths.journal), value(error))
