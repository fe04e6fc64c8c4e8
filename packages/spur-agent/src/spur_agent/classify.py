"""What a session directory found at start is.  Pure; the table is in the test."""

from enum import Enum
from typing import NamedTuple


class Found(Enum):
    """Class of a session, with what follows from it."""

    LIVE = "supervisor alive and it answers: adopt"
    FINISHED = (
        "an exit is recorded and not acknowledged: report it; if the supervisor is gone, finish its work"
    )
    DONE = "acknowledged: delete"
    UNSTARTED = "no user code ever ran: stop the supervisor if there is one, delete"
    STALE = "supervisor gone without an exit, or a new one that has not taken over: kill, tell the controller"
    UNRESPONSIVE = "supervisor alive but mute: kill it, then as stale (or unstarted, if nothing ever ran)"
    CORRUPT = "descriptor or journal unreadable: fence by the directory's name"
    UNKNOWN = "the name is no identity: quarantine"


#: States of a supervisor in which it has not begun to run user code.
NOT_STARTED = frozenset({"init", "ready", "failed", "abandoned"})


class Evidence(NamedTuple):
    """What was seen.

    name_ok: the directory's name is an identity.
    descriptor: "ok", "missing" or "bad" (damaged, newer, or of another identity).
    journal_ok: the journal can be read (a torn last line is no damage).
    same_boot: the descriptor was written since the machine booted.
    alive: exactly the supervisor of the descriptor lives.
    answer: the supervisor's state by its `hello`; empty when it did not answer.
    started, exited, acknowledged, abandoned: what the journal says.
    taken_over: an earlier supervisor of this session had started it and was lost.
    """

    name_ok: bool = True
    descriptor: str = "ok"
    journal_ok: bool = True
    same_boot: bool = True
    alive: bool = True
    answer: str = "running"
    started: bool = True
    exited: bool = False
    acknowledged: bool = False
    abandoned: bool = False
    taken_over: bool = False


def classify(seen: Evidence) -> Found:
    """The class of a session."""
    if seen.taken_over:
        if not seen.started and (seen.abandoned or seen.answer in NOT_STARTED):
            return Found.STALE  # the new supervisor has not begun
        seen = seen._replace(started=True)
    if not seen.name_ok:
        return Found.UNKNOWN
    if not seen.journal_ok:
        return Found.CORRUPT
    if seen.acknowledged:
        return Found.DONE
    if seen.descriptor == "bad":
        return Found.FINISHED if seen.exited else Found.CORRUPT
    if seen.descriptor == "missing":
        if seen.exited:
            return Found.FINISHED
        # The descriptor is there before the supervisor is ready, so without one nothing was started.
        return Found.CORRUPT if seen.started else Found.UNSTARTED
    if seen.exited:
        return Found.FINISHED
    if seen.abandoned:
        return Found.UNSTARTED
    if not (seen.same_boot and seen.alive):
        return Found.STALE if seen.started else Found.UNSTARTED
    if not seen.answer:
        return Found.UNRESPONSIVE
    if not seen.started and seen.answer in NOT_STARTED:
        return Found.UNSTARTED
    return Found.LIVE
