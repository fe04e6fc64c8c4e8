"""`spur explain JOB`: why it waits, where it runs, or how it ended; in sentences."""

from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed, is_no_such_job
from spur_cli.context import Context, Stop
from spur_cli.control.layout import Style
from spur_cli.options.engine import Table
from spur_cli.options.front import common, open_options
from spur_cli.printable import printable
from spur_cli.queue import names
from spur_core.states import TERMINAL_STATES, JobState

if TYPE_CHECKING:
    from spur_cli.transport import Transport
    from spur_core.grammar.jobid import JobRef
    from spur_proto import accounting_pb2, common_pb2

    Job = common_pb2.JobInfo
    #: A job that is over looks the same in the controller and in the history.
    Ended = common_pb2.JobInfo | accounting_pb2.JobHistory

NO_SUCH_JOB = "Invalid job id specified"
UNLIMITED = 0xFFFFFFFF


def table() -> Table:
    """The options of explain."""
    return Table(list(common()), synopsis="[OPTIONS] JOB ...")


def run(ctx: Context) -> int:
    """The command."""
    from spur_cli.queue import select
    from spur_cli.transport import Transport
    from spur_core.errors import ConfigError

    options = open_options(ctx, table())
    try:
        refs = select.parse_refs(options.operands)
    except ValueError as error:
        raise ctx.stop(f"Invalid job id {error}") from None
    if not refs:
        raise ctx.stop("no job was given")
    if any(ref.step is not None for ref in refs):
        raise ctx.stop("name a job, not a step")
    style = Style(False, True, ctx.env.get("SLURM_TIME_FORMAT", ""), ctx.clock())
    code = 0
    try:
        transport = Transport(ctx, options.get("controller"))
        for ref in refs:
            found = explained(transport, ref, style)
            ctx.out("".join(f"{printable(line)}\n" for line in found))
            if not found:
                ctx.error(f"{ref.job_id}: {NO_SUCH_JOB}")
                code = 1
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        raise ctx.stop(failure.text) from None
    return code


def explained(transport: "Transport", ref: "JobRef", style: Style) -> list[str]:
    """The lines about one job or array; none for a job that nobody knows.

    Raises:
        CallFailed: the controller cannot be asked.
    """
    from spur_cli.queue import select

    try:
        jobs = select.fetch(transport, refs=[ref], detail=True)
    except CallFailed as failure:
        if not is_no_such_job(failure):
            raise
        jobs = []
    if jobs:
        return [line for job in jobs for line in job_lines(job, style)]
    return [line for job in _history(transport, ref) for line in ended(job, _name(job), style)]


def _history(transport: "Transport", ref: "JobRef") -> "list[accounting_pb2.JobHistory]":
    """What the accounting knows of a job that the controller has forgotten; nothing where there is none."""
    from spur_cli.transport import ACCOUNTING
    from spur_proto import accounting_pb2 as pb

    target = pb.HistoryTarget(job_id=ref.job_id, array_tasks=ref.tasks or "")
    request = pb.GetJobHistoryRequest(jobs=[target], window_start=0.0, all_users=True, without_steps=True)
    try:
        answer = transport.call("GetJobHistory", request, pb.GetJobHistoryResponse, service=ACCOUNTING)
    except CallFailed as failure:
        raise Stop(1, f"spur explain: error: {ref.job_id}: {NO_SUCH_JOB}; history: {failure.text}") from None
    return [job for job in answer.jobs if int(job.state) in TERMINAL_STATES]


def _name(job: "accounting_pb2.JobHistory") -> str:
    if job.HasField("array_job_id") and job.HasField("array_task_id"):
        return f"{job.array_job_id}_{job.array_task_id}"
    return str(job.job_id)


def job_lines(job: "Job", style: Style) -> list[str]:
    """The lines about a job that the controller knows."""
    name, state = names.display_id(job), int(job.state)
    if state in TERMINAL_STATES:
        return ended(job, name, style)
    head = f"Job {name} ({job.name})"
    if state == JobState.PENDING:
        return waiting(job, head, style)
    since = f" since {style.moment(job.start_at)}" if job.HasField("start_at") else ""
    if state == JobState.CONFIGURING:
        return [f"{head} is being started on {job.nodelist}."]
    if state == JobState.COMPLETING:
        return [f"{head} is being ended on {job.nodelist}."]
    if state == JobState.SUSPENDED:
        at = f" since {style.moment(job.suspend_at)}" if job.HasField("suspend_at") else ""
        return [f"{head} is suspended on {job.nodelist}{at}; scontrol resume lets it go on."]
    lines = [f"{head} runs on {job.nodelist}{since}."]
    if job.HasField("end_at"):
        lines.append(f"  It must end by {style.moment(job.end_at)}.")
    return lines


def waiting(job: "Job", head: str, style: Style) -> list[str]:
    """A pending job: the reason, what the controller says of it, and the start that it expects."""
    reason = names.reason_of(job)
    if reason == "None":
        lines = [f"{head} waits to be looked at."]
    else:
        lines = [f"{head} waits: {reason}."]
    if job.waits_for:
        # The controller's sentence ends with the expected start, if there is one.
        lines.append(f"  {job.waits_for}.")
    elif job.HasField("start_at"):
        on = f" on {job.sched_nodes}" if job.sched_nodes else ""
        lines.append(f"  It is expected to start by {style.moment(job.start_at)}{on}.")
    if job.dependency:
        lines.append(f"  It depends on {job.dependency}.")
    if job.HasField("begin_at") and job.begin_at > style.now:
        lines.append(f"  It may not begin before {style.moment(job.begin_at)}.")
    if job.restarts:
        lines.append(f"  It was started {_times(job.restarts)} before.")
    return lines


def ended(job: "Ended", name: str, style: Style) -> list[str]:
    """A job that is over: how, when, after how long, and where its output is."""
    head = f"Job {name} ({job.name}) {_how(job)}"
    if job.HasField("end_at"):
        head += f" at {style.moment(job.end_at)}"
    if job.HasField("start_at") and job.start_at:
        head += f", {_length(job)} after its start" if job.HasField("end_at") else ""
        head += f", on {job.nodelist}" if job.nodelist else ""
    elif int(job.state) != JobState.COMPLETED:
        head += ", before it started"
    lines = [f"{head}."]
    reason = getattr(job, "state_desc", "") or job.reason
    if reason and reason != "None" and reason != _exit_reason(job):
        lines.append(f"  Reason: {reason}.")
    if int(job.state) not in (JobState.COMPLETED, JobState.CANCELLED) and job.stdout_path:
        lines.append(f"  Its output is in {job.stdout_path}.")
    return lines


def _exit_reason(job: "Ended") -> str:
    """The reason that says nothing beyond the state."""
    return {JobState.FAILED: "NonZeroExitCode", JobState.TIMEOUT: "TimeLimit"}.get(
        JobState(int(job.state)), ""
    )


def _how(job: "Ended") -> str:
    state = int(job.state)
    if state == JobState.CANCELLED:
        return f"was cancelled by {_user(job.kill_uid)}" if job.HasField("kill_uid") else "was cancelled"
    if state == JobState.TIMEOUT:
        return f"reached its time limit{_limit(job)} and was ended"
    status = f"exit code {job.exit.code}"
    if job.exit.signal:
        status = f"signal {job.exit.signal}" + (" and a core dump" if job.exit.core_dumped else "")
    return {
        int(JobState.COMPLETED): "ended well",
        int(JobState.FAILED): f"failed with {status}",
        int(JobState.OUT_OF_MEMORY): "ran out of memory",
        int(JobState.NODE_FAIL): "was lost with a node",
        int(JobState.PREEMPTED): "was preempted",
        int(JobState.BOOT_FAIL): "could not be started",
        int(JobState.DEADLINE): "missed its deadline",
    }.get(state, f"is {names.state_name(state)}")


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _limit(job: "Ended") -> str:
    from spur_core.grammar import duration

    if not job.HasField("time_limit_secs") or job.time_limit_secs == UNLIMITED:
        return ""
    return f" of {duration.long_form(job.time_limit_secs)}"


def _length(job: "Ended") -> str:
    from spur_core.grammar import duration

    return duration.long_form(max(job.end_at - job.start_at, 0.0))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
