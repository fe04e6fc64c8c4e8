"""srun: run a command on allocated nodes, in an allocation of its own or in the one around it."""

import os
from typing import TYPE_CHECKING, Any

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.options import submit_table
from spur_cli.printable import utf8
from spur_cli.submit import layers
from spur_cli.submit.sbatch import USAGE_CODE, cluster_name, exit_code, with_exit_code
from spur_core.errors import ConfigError

if TYPE_CHECKING:
    from spur_cli.step.setup import Setup

#: Set to run a job of its own even inside an allocation.
NEW_JOB = "SPUR_SRUN_NEW_JOB"
_IMMEDIATE_TEXTS = ("Requested nodes are busy", "Immediate execution impossible")
#: Options that only mean something inside an allocation.
_ONLY_INSIDE = ("interactive", "overcommit", "relative")


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
        from spur_cli.step import mpi

        ctx.out(mpi.LIST)
        return 0
    inside = ctx.env.get("SLURM_JOB_ID") or ctx.env.get("SPUR_JOB_ID")
    below = layers.variables(ctx, table, USAGE_CODE)
    if ("verbose" in words.values or "verbose" in below) and ("quiet" in words.values):
        raise ctx.fatal("don't specify both --verbose (-v) and --quiet (-Q)", USAGE_CODE)
    if not words.operands:
        raise ctx.fatal("No command given to execute.")
    if words.has("jobid") or (inside and not ctx.env.get(NEW_JOB)):
        from spur_cli.step.inside import run_step

        return run_step(ctx, words, below, words.get("jobid") or inside or "")
    return _own_job(ctx, layers.merge(ctx, below, words.values), words.values, words.operands)


def _own_job(ctx: Context, values: layers.Values, given: layers.Values, command: list[str]) -> int:
    from spur_cli.step import mpi
    from spur_cli.step.setup import Setup, with_gpus_per_task
    from spur_cli.submit.request import Builder

    for name in _ONLY_INSIDE:
        if name in given:
            raise ctx.stop(f"--{name} is for steps inside an allocation", USAGE_CODE)
    fields = Builder(ctx, values).build()
    setup = Setup(ctx, values, given, command, _tasks(fields))
    if setup.step.get("mpi"):
        mpi.on_one_node(ctx, fields, USAGE_CODE)
    if "commands" in setup.step:
        fields["num_tasks"] = setup.tasks
    fields["argv"] = [os.fsencode(word) for word in setup.argv]
    fields["srun_job"] = True
    fields["step"] = with_gpus_per_task(setup.step, values)
    fields["stdin_path"] = setup.source.path
    fields["name"] = values.get("job-name") or utf8(command[0].rsplit("/", 1)[-1])
    fields["command"] = utf8(" ".join(command))
    fields["submit_line"] = utf8(" ".join([ctx.name, *ctx.argv]))
    return _launch(setup, values, fields)


def _tasks(fields: dict[str, Any]) -> int | None:
    """How many tasks there will be; None when a range of nodes leaves it open."""
    if "num_tasks" in fields:
        return int(fields["num_tasks"])
    wishes = fields.get("wishes", {})
    if "gres_total" in wishes or "ntasks_per_gpu" in wishes:
        return None  # how many nodes or tasks follow from the GPUs is the controller's to say
    low, high = fields.get("min_nodes", 1), fields.get("max_nodes", 1)
    return low * fields.get("tasks_per_node", 1) if low == high else None


def _launch(setup: "Setup", values: layers.Values, fields: dict[str, Any]) -> int:
    from spur_cli.step.job_run import JobRun
    from spur_cli.step.local import run_program
    from spur_cli.submit import send
    from spur_cli.submit.request import message
    from spur_cli.transport import Transport

    ctx = setup.ctx
    test_only = "test-only" in values
    out = setup.output(append=fields.get("open_mode") == "append")
    try:
        transport = Transport(ctx, values.get("controller"))
        cluster_name(ctx, transport, values.get("clusters"))
        run = JobRun(ctx, transport, setup.wishes(), out)
        if not test_only:
            run_program(ctx, "prolog", values.get("prolog"), setup.argv, {})
        # Signals are caught before there is a job: whoever interrupts the submission leaves none behind.
        with run.signals:
            answer = send.submit(ctx, transport, message(fields), test_only=test_only)
            for text in answer.warnings:
                ctx.warning(text)
            if test_only:
                ctx.info(answer.test_result)
                return 0
            try:
                return run.follow(answer.job_id)
            finally:
                job = {"SLURM_JOB_ID": str(answer.job_id), "SLURM_STEP_ID": "0"}
                run_program(ctx, "epilog", values.get("epilog"), setup.argv, job)
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        raise _refused(ctx, values, failure, test_only) from None


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
