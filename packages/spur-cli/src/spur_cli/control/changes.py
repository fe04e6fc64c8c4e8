"""hold, uhold, release, requeue, requeuehold, suspend, resume."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.control.show import Connect

if TYPE_CHECKING:
    from spur_cli.transport import Transport
    from spur_proto import controller_pb2


def targets(ctx: Context, transport: "Transport", words: list[str]) -> "list[controller_pb2.JobTarget]":
    """The jobs of `12,13_[1-3]` or `jobname=X`.

    Raises:
        Stop: a word that is no id, or a name that no job has.
    """
    from spur_cli.queue import select
    from spur_proto import controller_pb2 as pb

    made: list[pb.JobTarget] = []
    for word in words:
        key, equals, name = word.partition("=")
        if equals and key.lower() in ("jobname", "name"):
            found = [job for job in select.fetch(transport, states=select.LIVE_STATES) if job.name == name]
            if not found:
                raise Stop(1, f"Job name {name} not found")
            ids = {job.array_job_id if job.HasField("array_job_id") else job.job_id for job in found}
            made += [pb.JobTarget(job_id=job_id) for job_id in sorted(ids)]
            continue
        try:
            made += [select.target(ref) for ref in select.parse_refs([word])]
        except ValueError as error:
            raise Stop(1, f"Invalid job id specified for job {error}") from None
    return made


def report(ctx: Context, results: "Iterable[controller_pb2.TargetResult]", prefix: str = "") -> int:
    """Print what failed; the exit code."""
    from spur_cli.queue.scancel import target_name

    code = 0
    for result in results:
        if result.code:
            if prefix:
                ctx.err(f"{prefix} error: {result.text}\n")
            ctx.err(f"{result.text} for job {target_name(result.target)}\n")
            code = 1
    return code


def hold(ctx: Context, connect: Connect, keyword: str, words: list[str]) -> int:
    """hold, uhold and release."""
    from spur_proto import controller_pb2 as pb

    if not words:
        raise Stop(1, f"too few arguments for keyword:{keyword}")
    action = {
        "hold": pb.HOLD_ACTION_HOLD,
        "uhold": pb.HOLD_ACTION_USER_HOLD,
        "release": pb.HOLD_ACTION_RELEASE,
    }[keyword]
    try:
        transport = connect()
        request = pb.UpdateJobRequest(targets=targets(ctx, transport, words), hold=action)
        answer = transport.call("UpdateJob", request, pb.UpdateJobResponse)
    except CallFailed as failure:
        raise Stop(1, f"slurm_suspend error: {failure.text}") from None
    return report(ctx, answer.results, "slurm_suspend")


def requeue(ctx: Context, connect: Connect, keyword: str, words: list[str]) -> int:
    """requeue and requeuehold."""
    from spur_proto import controller_pb2 as pb

    incomplete, ids = False, []
    for word in words:
        lower = word.lower()
        if lower == "incomplete":
            incomplete = True
        elif lower.startswith("state="):
            raise ctx.stop(f"{word} is not supported by this release")
        else:
            ids.append(word)
    if not ids:
        raise Stop(1, f"too few arguments for keyword:{keyword}")
    try:
        transport = connect()
        request = pb.RequeueJobRequest(
            targets=targets(ctx, transport, ids),
            hold=keyword == "requeuehold",
            incomplete_only=incomplete,
        )
        answer = transport.call("RequeueJob", request, pb.RequeueJobResponse)
    except CallFailed as failure:
        raise Stop(1, f"slurm_requeue error: {failure.text}") from None
    return report(ctx, answer.results)


def suspend(ctx: Context, connect: Connect, keyword: str, words: list[str]) -> int:
    """suspend and resume."""
    from spur_proto import controller_pb2 as pb

    if not words:
        raise Stop(1, f"too few arguments for keyword:{keyword}")
    try:
        transport = connect()
        chosen = targets(ctx, transport, words)
        if keyword == "suspend":
            request = pb.SuspendJobRequest(targets=chosen)
            results = transport.call("SuspendJob", request, pb.SuspendJobResponse).results
        else:
            again = pb.ResumeJobRequest(targets=chosen)
            results = transport.call("ResumeJob", again, pb.ResumeJobResponse).results
    except CallFailed as failure:
        raise Stop(1, f"slurm_{keyword} error: {failure.text}") from None
    return report(ctx, results, f"slurm_{keyword}")
