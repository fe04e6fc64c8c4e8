"""sbatch: queue a batch script."""

from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.options import directives, submit_table
from spur_cli.options.engine import Table
from spur_cli.printable import utf8
from spur_cli.submit import layers
from spur_cli.submit import script as scripts
from spur_cli.submit.request import Builder
from spur_core.errors import ConfigError
from spur_core.grammar import filepattern

if TYPE_CHECKING:
    from spur_cli.transport import Transport
    from spur_proto import controller_pb2

USAGE_CODE = 255


def run(ctx: Context) -> int:
    """The command."""
    try:
        return _run(ctx)
    except Stop as stop:
        raise with_exit_code(ctx, stop) from None


def with_exit_code(ctx: Context, stop: Stop) -> Stop:
    """`stop` with SLURM_EXIT_ERROR in place of exit code 1."""
    if stop.code == 1:
        stop.code = exit_code(ctx)
    return stop


def _run(ctx: Context) -> int:
    table = submit_table.table("B")
    words = layers.command_line(ctx, table, USAGE_CODE)
    if words.has("verbose") and words.has("quiet"):
        raise ctx.fatal("don't specify both --verbose (-v) and --quiet (-Q)", USAGE_CODE)
    below = layers.variables(ctx, table, USAGE_CODE)
    early = layers.merge(ctx, below, words.values)
    script = scripts.find(ctx, words.operands, words.get("wrap"), early.get("chdir"))
    lines = _directives(ctx, table, script, quiet="ignore-pbs" in early)
    values = layers.merge(ctx, lines, early)
    if "error" in values and values["error"] == "":
        del values["error"]
    fields = Builder(ctx, values).build()
    fields["script"] = script.body
    fields["name"] = values.get("job-name") or utf8(script.name)
    fields["script_args"] = [word.encode("utf-8", "surrogateescape") for word in script.args]
    fields["command"] = utf8(" ".join([script.path, *script.args])) if script.path else ""
    fields["submit_line"] = utf8(" ".join([ctx.name, *ctx.argv]))
    fields["stdout_path"] = values.get("output") or ""
    fields["stderr_path"] = values.get("error") or ""
    fields["stdin_path"] = values.get("input") or ""
    return _send(ctx, values, fields)


def exit_code(ctx: Context) -> int:
    """The exit code of a failure that is no option error: 1, or what SLURM_EXIT_ERROR says."""
    text = ctx.env.get("SLURM_EXIT_ERROR", "")
    return int(text) if text.isascii() and text.isdigit() and int(text) < 256 else 1


def _directives(ctx: Context, table: Table, script: scripts.Script, *, quiet: bool) -> layers.Values:
    """What the script's lines set; `quiet` keeps silent about #PBS and #BSUB lines."""
    if b"#SBATCH" not in script.body and b"#SLURM" not in script.body and b"#PBS" not in script.body:
        return {}
    try:
        found = directives.read(script.body.decode("utf-8", "surrogateescape"), script.file)
    except directives.DirectiveError as error:
        raise ctx.fatal(error.text) from None
    for number in found.old:
        ctx.error(f"{script.file}: line {number}: #SLURM is out of use, write #SBATCH")
    values = layers.directive_values(ctx, table, found.words, USAGE_CODE)
    if found.foreign and not found.words and not quiet:
        ctx.warning(f"{found.foreign} lines are comments in this release, write #SBATCH")
    return values


def _send(ctx: Context, values: layers.Values, fields: dict[str, object]) -> int:
    from spur_cli.submit import send
    from spur_cli.submit.request import message
    from spur_cli.transport import Transport

    test_only = "test-only" in values
    try:
        transport = Transport(ctx, values.get("controller"))
        cluster = cluster_name(ctx, transport, values.get("clusters"))
        fields["stdout_path"] = fields["stdout_path"] or filepattern.default_pattern(
            "array" in values, slurm_names=transport.where.client.slurm_file_names
        )
        answer = send.submit(ctx, transport, message(fields), test_only=test_only)
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        if test_only:
            raise Stop(1, f"allocation failure: {failure.text}") from None
        for line in notices(failure.text, values.get("partition")):
            ctx.error(line)
        raise ctx.stop(f"Batch job submission failed: {failure.text}") from None
    for text in answer.warnings:
        ctx.warning(text)
    if test_only:
        ctx.info(answer.test_result)
        return 0
    _report(ctx, values, answer, cluster)
    if "wait" in values:
        from spur_cli.submit.wait import wait_for

        return wait_for(ctx, transport, answer.job_id)
    return 0


def _report(
    ctx: Context, values: layers.Values, answer: "controller_pb2.SubmitJobResponse", cluster: str
) -> None:
    if "quiet" in values and "parsable" not in values:
        return
    if "parsable" in values:
        ctx.out(f"{answer.job_id};{cluster}\n" if cluster else f"{answer.job_id}\n")
    else:
        tail = f" on cluster {cluster}" if cluster else ""
        ctx.out(f"Submitted batch job {answer.job_id}{tail}\n")


def notices(text: str, partition: str | None) -> list[str]:
    """The lines that stand before the general one, as Slurm's client adds them."""
    if text.startswith("Invalid partition name specified") and partition:
        return [f"invalid partition specified: {partition}"]
    if text.startswith("Memory required by task is not available"):
        return ["Memory specification can not be satisfied"]
    return []


def cluster_name(ctx: Context, transport: "Transport", option: str | None) -> str:
    """The cluster's name when `-M` asked for it, "" without `-M`.

    Raises:
        Stop: another cluster than this one.
        CallFailed: the controller cannot be asked.
    """
    if not option:
        return ""
    from spur_proto import controller_pb2

    own = transport.call("Ping", controller_pb2.PingRequest(), controller_pb2.PingResponse).cluster_name
    for name in option.split(","):
        if name.strip() not in (own, "all"):
            raise ctx.stop(f"No cluster '{name.strip()}' known by database.")
    return own
