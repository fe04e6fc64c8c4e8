"""The completion report and what the controller's verdict on it means.  Pure."""

from enum import Enum
from typing import Final

from spur_agent.membership import rid_message
from spur_agent.sessions import Session
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb
from spur_proto_lite.exits import ExitRecord, TaskExit

#: "No such job" is believed after so many seconds of the same answer.
UNKNOWN_SECS: Final = 600.0


class Verdict(Enum):
    """What the agent does next."""

    SETTLED = "the controller has it, or nobody wants it: acknowledge"
    AGAIN = "keep it and report again"


def judge(said: int | None, unknown_for: float | None) -> Verdict:
    """What follows from a verdict.

    Args:
        said: a `ReportVerdict`; None when no controller answered.
        unknown_for: seconds since "unknown" was said first, None when the last answer was another.
    """
    if said in (pb.REPORT_VERDICT_ACCEPTED, pb.REPORT_VERDICT_FINAL):
        return Verdict.SETTLED
    if said == pb.REPORT_VERDICT_UNKNOWN and unknown_for is not None and unknown_for >= UNKNOWN_SECS:
        return Verdict.SETTLED
    return Verdict.AGAIN


def exit_message(found: ExitRecord | TaskExit) -> common_pb2.ExitStatus:
    """The wire form of an exit, of a step or of one task."""
    return common_pb2.ExitStatus(
        code=found.code,
        signal=found.signal,
        oom=found.oom if isinstance(found, ExitRecord) else False,
        core_dumped=found.core,
    )


def epilog_error(session: Session) -> str:
    """What went wrong with the epilog, "" if nothing did or it is not known yet."""
    found = session.epilog
    if found is None or found.ok:
        return ""
    return found.text or f"exit status {found.status}"


def report_request(session: Session, node: str) -> pb.ReportJobStatusRequest:
    """The report of a finished session.  Times are the supervisor's, not those of the reporting."""
    found = session.exit
    assert found is not None, session.rid
    return pb.ReportJobStatusRequest(
        rid=rid_message(session.rid),
        node=node,
        exit=exit_message(found),
        started_at=found.started_at or session.started_at,
        ended_at=found.ended_at,
        usage=pb.ResourceUsage(
            user_secs=found.user_secs, system_secs=found.system_secs, max_rss_kb=found.max_rss_kb
        ),
        stdout_path=session.stdout_path,
        stderr_path=session.stderr_path,
        tasks=[pb.TaskExit(rank=task.rank, exit=exit_message(task)) for task in found.tasks]
        if len(found.tasks) > 1
        else [],
    )
