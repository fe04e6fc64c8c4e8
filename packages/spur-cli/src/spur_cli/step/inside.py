"""srun inside an allocation: one more step of that job."""

import os
from typing import TYPE_CHECKING, Any

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context
from spur_cli.options.engine import Parsed
from spur_cli.printable import utf8
from spur_cli.step import mpi
from spur_cli.step.request import StepBuilder, defaults
from spur_cli.step.setup import CODE, Setup, with_gpus_per_task
from spur_cli.submit import layers
from spur_cli.submit.sbatch import cluster_name
from spur_core.errors import ConfigError

if TYPE_CHECKING:
    from spur_proto import controller_pb2


def run_step(ctx: Context, words: Parsed, below: layers.Values, job: str) -> int:
    """Run the command line as a step of `job`.

    Args:
        below: options set by variables.

    Raises:
        Stop: it cannot be done.
    """
    if not (job.isascii() and job.isdigit() and len(job) < 11):
        raise ctx.stop(f'Invalid numeric value "{job}" for --jobid.', CODE)
    given = words.values
    values = layers.merge(ctx, defaults(below, given), given)
    if "test-only" in values:
        raise ctx.stop(
            "--test-only asks for an allocation, and there is one (use --jobid only without it)", CODE
        )
    fields = StepBuilder(ctx, values, given, CODE).build()
    setup = Setup(ctx, values, given, words.operands, fields.get("num_tasks"))
    ctx = setup.ctx
    if setup.step.get("mpi"):
        mpi.on_one_node(ctx, fields, CODE)
    command = words.operands
    if setup.tasks is not None:
        fields["num_tasks"] = setup.tasks
    fields.update(
        job_id=int(job),
        request_id=os.urandom(16).hex(),
        name=values.get("job-name") or utf8(command[0].rsplit("/", 1)[-1]),
        argv=[os.fsencode(word) for word in setup.argv],
        label="label" in values,
        shape=with_gpus_per_task(setup.step, values),
        stdin_path=setup.source.path,
        interactive="interactive" in values,
        immediate="immediate" in values and not values["immediate"],
        submit_line=utf8(" ".join([ctx.name, *ctx.argv])),
    )
    return _launch(setup, values, fields)


def _launch(setup: Setup, values: layers.Values, fields: dict[str, Any]) -> int:
    from spur_cli.step.inside_run import InsideRun, Surroundings
    from spur_cli.step.local import run_program
    from spur_cli.transport import Transport

    ctx, env = setup.ctx, setup.ctx.env
    try:
        transport = Transport(ctx, values.get("controller"))
        cluster_name(ctx, transport, values.get("clusters"))
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        raise ctx.stop(f"Unable to confirm allocation for job {fields['job_id']}: {failure.text}") from None
    restarts = env.get("SLURM_RESTART_COUNT", "")
    around = Surroundings(
        env.get("SLURM_JOB_NAME", ""),
        env.get("SLURM_JOB_USER", ""),
        int(restarts) if restarts.isascii() and restarts.isdigit() else 0,
    )
    append = (values.get("open-mode") or "").lower().startswith("a")
    run_program(ctx, "prolog", values.get("prolog"), setup.argv, {})
    run = InsideRun(
        ctx,
        transport,
        _message(fields),
        setup.wishes(),
        setup.output(append=append),
        around,
        _patience(ctx, values),
    )
    try:
        with run.signals:
            run.signals.impatient = False
            return run.run()
    finally:
        step = {"SLURM_STEP_ID": run.step.partition(".")[2]}
        run_program(ctx, "epilog", values.get("epilog"), setup.argv, step)


def _message(fields: dict[str, Any]) -> "controller_pb2.CreateJobStepRequest":
    from spur_proto import controller_pb2

    return controller_pb2.CreateJobStepRequest(**fields)


def _patience(ctx: Context, values: layers.Values) -> float | None:
    """Seconds that the step may wait for resources (`--immediate[=SECS]`); None = for ever."""
    if "immediate" not in values:
        return None
    text = values["immediate"] or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        raise ctx.stop(f'Invalid numeric value "{text}" for --immediate.', CODE)
    return float(text)
