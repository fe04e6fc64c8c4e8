"""completing, wait_job, write and token of scontrol."""

import time
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed, is_no_such_job
from spur_cli.context import Context, Stop, write_all
from spur_cli.control.layout import Style
from spur_cli.control.show import Connect

if TYPE_CHECKING:
    from collections.abc import Container

    from spur_proto import common_pb2

#: Seconds between two looks at a job.
LOOK_SECS = 0.5


def completing(ctx: Context, connect: Connect, words: list[str], style: Style) -> int:
    """Jobs that are being ended, each with the nodes that still work on it."""
    from spur_cli.nodes.fetch import all_nodes
    from spur_cli.queue import select
    from spur_core.states import JobState, NodeBase

    _no_more(ctx, "completing", words, 0)
    try:
        transport = connect()
        jobs = select.fetch(transport, states=[JobState.COMPLETING])
        down = (
            {node.name for node in all_nodes(transport) if int(node.base) == NodeBase.DOWN} if jobs else set()
        )
    except CallFailed as failure:
        raise Stop(1, f"slurm_load_jobs error: {failure.text}") from None
    ctx.out("".join(completing_line(job, down, style) for job in jobs))
    return 0


def completing_line(job: "common_pb2.JobInfo", down: "Container[str]", style: Style) -> str:
    """One job; every field ends with a blank, as Slurm prints it."""
    from spur_core.grammar import duration, hostlist

    end = job.end_at if job.HasField("end_at") else 0.0
    names = hostlist.expand(job.nodelist)
    line = f"JobId={job.job_id} EndTime={style.moment(end)} "
    line += f"CompletingTime={duration.long_form(max(style.now - end, 0.0) if end else 0.0)} "
    for word, found in (
        ("COMPLETING", [name for name in names if name not in down]),
        ("DOWN", [name for name in names if name in down]),
    ):
        if found:
            line += f"Nodes({word})={hostlist.compress(found)} "
    return line + "\n"


def wait_job(ctx: Context, connect: Connect, words: list[str]) -> int:
    """Until the nodes of a job are ready, or it is over."""
    from spur_cli.queue import select
    from spur_core.states import JobState

    if not words:
        raise Stop(1, "too few arguments for keyword:wait_job")
    _no_more(ctx, "wait_job", words, 1)
    try:
        refs = select.parse_refs(words)
    except ValueError:
        refs = []
    if len(refs) != 1 or refs[0].step is not None:
        raise Stop(1, f"Invalid job_id {words[0]}")
    while True:
        try:
            jobs = select.fetch(connect(), refs=refs)
        except CallFailed as failure:
            if not is_no_such_job(failure):
                raise Stop(1, f"slurm_load_jobs error: {failure.text}") from None
            jobs = []
        states = {int(job.state) for job in jobs}
        if states & {int(JobState.RUNNING), int(JobState.SUSPENDED)}:
            ctx.info(f"Nodes are ready for job {words[0]}")
            return 0
        if not states & {int(JobState.PENDING), int(JobState.CONFIGURING)}:
            ctx.info(f"Job {words[0]} no longer running")
            return 1
        time.sleep(LOOK_SECS)


def write(ctx: Context, connect: Connect, words: list[str], *, quiet: bool) -> int:
    """`write batch_script JOB [FILE]`: to `slurm-JOB.sh`, or to standard output for `-`."""
    from spur_cli.queue import select
    from spur_proto import controller_pb2 as pb

    if not words:
        raise Stop(1, "too few arguments for keyword:write")
    what = words[0].lower().replace("_", "")
    if what and "config".startswith(what):
        raise ctx.stop(f"write {words[0]} is not supported by this release")
    if not what or not "batchscript".startswith(what):
        raise Stop(1, f"invalid write argument: {words[0]}")
    if len(words) == 1:
        raise Stop(1, "too few arguments for keyword:write")
    _no_more(ctx, "write", words, 3)
    try:
        refs = select.parse_refs(words[1:2])
    except ValueError:
        refs = []
    if len(refs) != 1 or refs[0].step is not None:
        raise Stop(1, "job script retrieval failed: Invalid job id specified")
    try:
        request = pb.GetJobsRequest(jobs=[select.target(refs[0])], script=True, page_size=1)
        jobs = connect().call("GetJobs", request, pb.GetJobsResponse).jobs
    except CallFailed as failure:
        raise Stop(1, f"job script retrieval failed: {failure.text}") from None
    if not jobs:
        raise Stop(1, "job script retrieval failed: Invalid job id specified")
    job = jobs[0]
    if not job.script:
        # The controller gives it to its owner and administrators; a batch job without one there is not.
        why = "Access/permission denied" if job.batch else "Job script not specified"
        raise Stop(1, f"job script retrieval failed: {why}")
    name = words[2] if len(words) == 3 else f"slurm-{job.job_id}.sh"
    if name == "-":
        write_all(ctx.stdout, job.script)
        return 0
    try:
        with open(ctx.path(name), "wb") as file:
            file.write(job.script)
    except OSError as error:
        raise Stop(1, f"failed to open file `{name}`: {error.strerror}") from None
    if not quiet:
        ctx.out(f"batch script for job {job.job_id} written to {name}\n")
    return 0


def token(ctx: Context, words: list[str]) -> int:
    """`token [lifespan=SECONDS] [username=USER]`, signed here with the cluster's key."""
    from spur_cli import keys
    from spur_core.errors import RequestError

    given = {"lifespan": "1800", "username": ""}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key.lower() not in given:
            raise ctx.stop(f"invalid argument for keyword:token: {word}")
        given[key.lower()] = value
    if not (given["lifespan"].isascii() and given["lifespan"].isdigit() and int(given["lifespan"])):
        raise ctx.stop(f"lifespan={given['lifespan']} is not supported: write a number of seconds")
    key_, cluster = keys.cluster_key(ctx, None)
    try:
        text = keys.user_token(ctx, key_, cluster, given["username"], float(given["lifespan"]))
    except RequestError as error:
        raise ctx.stop(error.text) from None
    ctx.out(f"SLURM_JWT={text}\n")
    return 0


def _no_more(ctx: Context, keyword: str, words: list[str], most: int) -> None:
    if len(words) > most:
        raise ctx.stop(f"too many arguments for keyword:{keyword}: {' '.join(words[most:])}")
