"""srun outside an allocation: submit, wait, run, exit as the command did."""

import os

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.options import submit_table
from spur_cli.submit import layers
from spur_cli.submit.request import Builder
from spur_cli.submit.sbatch import USAGE_CODE, cluster_name, exit_code, with_exit_code
from spur_core.errors import ConfigError

MPI_LIST = "MPI plugin types are...\n\tnone\n"
#: Set to run a job of its own even inside an allocation.
NEW_JOB = "SPUR_SRUN_NEW_JOB"
_IMMEDIATE_TEXTS = ("Requested nodes are busy", "Immediate execution impossible")


def run(ctx: Context) -> int:
    """The command."""
    try:
        return _run(ctx)
    except Stop as stop:
        raise with_exit_code(ctx, stop) from None


def _run(ctx: Context) -> int:
    table = submit_table.table("R")
    words = layers.command_line(ctx, table, USAGE_CODE)
    if words.get("mpi") == "list":
        ctx.out(MPI_LIST)
        return 0
    inside = ctx.env.get("SLURM_JOB_ID") or ctx.env.get("SPUR_JOB_ID")
    if words.has("jobid") or (inside and not ctx.env.get(NEW_JOB)):
        where = words.get("jobid") or inside
        raise ctx.stop(f"steps inside an allocation (job {where}) come with a later release")
    values = layers.merge(ctx, layers.variables(ctx, table, USAGE_CODE), words.values)
    if "verbose" in values and "quiet" in values:
        raise ctx.fatal("don't specify both --verbose (-v) and --quiet (-Q)", USAGE_CODE)
    if not words.operands:
        raise ctx.fatal("No command given to execute.")
    fields = Builder(ctx, values).build()
    command = words.operands
    fields["argv"] = [os.fsencode(word) for word in command]
    fields["srun_job"] = True
    fields["name"] = values.get("job-name") or command[0].rsplit("/", 1)[-1]
    fields["command"] = " ".join(command)
    fields["submit_line"] = " ".join([ctx.name, *ctx.argv])
    stdin = _stdin(ctx, values, fields)
    return _launch(ctx, values, fields, stdin)


def _stdin(ctx: Context, values: layers.Values, fields: dict[str, object]) -> int | None:
    """The descriptor that the tasks read from; None = their input is empty.

    Raises:
        Stop: the file cannot be opened, or input for one of several tasks is asked for.
    """
    text = values.get("input") or "all"
    if text.lower() == "all":
        return ctx.stdin
    if text.lower() == "none":
        return None
    if text.isascii() and text.isdigit():
        shape = {fields.get("num_tasks", 1), fields.get("max_nodes", 1), fields.get("tasks_per_node", 1)}
        if text == "0" and shape == {1}:
            return ctx.stdin
        raise ctx.stop(f"--input={text} with several tasks is not supported by this release", USAGE_CODE)
    if "%" in text and not text.startswith("\\"):
        raise ctx.stop(f"--input={text}: a pattern is not supported by this release", USAGE_CODE)
    try:
        return os.open(ctx.path(text.removeprefix("\\")), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ctx.stop(f"Could not open stdin file {text}: {error.strerror}") from None


def _launch(ctx: Context, values: layers.Values, fields: dict[str, object], stdin: int | None) -> int:
    from spur_cli.step.run import OutputFactory, StepRun, Wishes
    from spur_cli.submit import send
    from spur_cli.submit.request import message
    from spur_cli.transport import Transport

    test_only = "test-only" in values
    try:
        transport = Transport(ctx, values.get("controller"))
        cluster_name(ctx, transport, values.get("clusters"))
        answer = send.submit(ctx, transport, message(fields), test_only=test_only)
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        raise _refused(ctx, values, failure, test_only) from None
    for text in answer.warnings:
        ctx.warning(text)
    if test_only:
        ctx.info(answer.test_result)
        return 0
    out = OutputFactory(
        ctx,
        values.get("output") or "",
        values.get("error") or "",
        label="label" in values,
        append=fields.get("open_mode") == "append",
        work_dir=ctx.cwd,
    )
    wishes = Wishes(
        quiet="quiet" in values,
        one_interrupt="disable-status" in values or "quit-on-interrupt" in values,
        stdin=stdin,
    )
    return StepRun(ctx, transport, answer.job_id, wishes, out).run()


def _refused(ctx: Context, values: layers.Values, failure: CallFailed, test_only: bool) -> Stop:
    from spur_cli.submit.sbatch import notices

    if test_only:
        return Stop(1, f"allocation failure: {failure.text}")
    code = exit_code(ctx)
    if "immediate" in values and failure.text.startswith(_IMMEDIATE_TEXTS):
        text = ctx.env.get("SLURM_EXIT_IMMEDIATE", "")
        code = int(text) if text.isascii() and text.isdigit() and int(text) < 256 else 1
    for line in notices(failure.text, values.get("partition")):
        ctx.error(line)
    return ctx.stop(f"Unable to allocate resources: {failure.text}", code)
