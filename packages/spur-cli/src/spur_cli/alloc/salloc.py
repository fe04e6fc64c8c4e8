"""salloc: get an allocation, run a command or a shell in it, give it back."""

import os
import signal
from typing import TYPE_CHECKING, Any

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.options import submit_table
from spur_cli.printable import utf8
from spur_cli.submit import layers
from spur_cli.submit.request import Builder
from spur_cli.submit.sbatch import USAGE_CODE, cluster_name, exit_code, with_exit_code
from spur_core.errors import ConfigError, GrammarError

if TYPE_CHECKING:
    from spur_cli.alloc.child import Child
    from spur_cli.step.session import Event
    from spur_cli.transport import Transport
    from spur_proto import common_pb2

SHELL_NAME, BARE_NAME = "interactive", "no-shell"


def run(ctx: Context) -> int:
    """The command."""
    try:
        return _run(ctx)
    except Stop as stop:
        raise with_exit_code(ctx, stop) from None


def _run(ctx: Context) -> int:
    table = submit_table.table("A")
    words = layers.command_line(ctx, table, USAGE_CODE)
    values = layers.merge(ctx, layers.variables(ctx, table, USAGE_CODE), words.values)
    if "verbose" in values and "quiet" in values:
        raise ctx.fatal("don't specify both --verbose (-v) and --quiet (-Q)", USAGE_CODE)
    bare = "no-shell" in values
    if bare and words.operands:
        raise ctx.stop("--no-shell takes no command", USAGE_CODE)
    fields = Builder(ctx, values).build()
    command = words.operands or [_shell(ctx)]
    name = BARE_NAME if bare else command[0].rsplit("/", 1)[-1] if words.operands else SHELL_NAME
    fields["name"] = values.get("job-name") or utf8(name)
    fields["alloc_only"] = True
    fields["command"] = utf8(" ".join(words.operands))
    fields["submit_line"] = utf8(" ".join([ctx.name, *ctx.argv]))
    hang_up = _hang_up(ctx, values)
    child = None
    if not bare:
        from spur_cli.alloc.child import Child

        terminal = os.isatty(ctx.stdin)
        if terminal:
            _wait_for_foreground(ctx)
        # Before any thread and before gRPC.
        child = Child(ctx, command, fields["work_dir"], terminal=terminal)
    try:
        return _launch(ctx, values, fields, child, hang_up)
    finally:
        if child is not None:
            child.forget()


def _shell(ctx: Context) -> str:
    shell = ctx.env.get("SHELL")
    if shell:
        return shell
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        return "/bin/sh"


def _hang_up(ctx: Context, values: layers.Values) -> int:
    """The signal for the command when the allocation ends."""
    if "kill-command" not in values:
        return int(signal.SIGHUP)
    text = values["kill-command"]
    if not text:
        return int(signal.SIGTERM)
    from spur_core.grammar.counts import parse_signal

    try:
        return parse_signal(text)
    except GrammarError:
        raise ctx.stop(f"Invalid --kill-command specification: {text}", USAGE_CODE) from None


def _wait_for_foreground(ctx: Context) -> None:
    """The command is to have the terminal, and only who has it can give it."""
    told = False
    while True:
        try:
            if os.tcgetpgrp(ctx.stdin) == os.getpgrp():
                return
        except OSError:
            return  # not our controlling terminal
        if not told:
            ctx.error("Waiting for program to be placed in the foreground")
            told = True
        os.killpg(os.getpgrp(), signal.SIGTTIN)


def _launch(
    ctx: Context, values: layers.Values, fields: dict[str, Any], child: "Child | None", hang_up: int
) -> int:
    from queue import SimpleQueue

    from spur_cli.alloc.run import CAUGHT, AllocRun
    from spur_cli.signals import Caught
    from spur_cli.submit import send
    from spur_cli.submit.request import message
    from spur_cli.transport import Transport

    events: SimpleQueue[Event] = SimpleQueue()
    # Caught before there is a job: whoever interrupts the submission must not leave one behind.
    with Caught(CAUGHT, events) as signals:
        try:
            transport = Transport(ctx, values.get("controller"))
            cluster_name(ctx, transport, values.get("clusters"))
            answer = send.submit(ctx, transport, message(fields))
        except ConfigError as error:
            raise ctx.fatal(error.text) from None
        except CallFailed as failure:
            raise _refused(ctx, values, failure) from None
        signals.impatient = False
        for text in answer.warnings:
            ctx.warning(text)

        def environment(job: "common_pb2.JobInfo") -> dict[str, str]:
            return _environment(ctx, transport, values, job)

        return AllocRun(
            ctx,
            transport,
            answer.job_id,
            child,
            environment,
            events,
            hang_up=hang_up,
            quiet="quiet" in values,
            bell=True if "bell" in values else False if "no-bell" in values else None,
        ).run()


def _environment(
    ctx: Context, transport: "Transport", values: layers.Values, job: "common_pb2.JobInfo"
) -> dict[str, str]:
    from spur_cli.alloc.environment import command_environment
    from spur_cli.submit import caller

    where = transport.where
    more = {
        "SUBMIT_DIR": ctx.cwd,
        "SUBMIT_HOST": caller.host(),
        "UMASK": f"{caller.umask():04o}",
        "PRIO_PROCESS": str(os.nice(0)),
        "CLUSTER_NAME": where.client.cluster_name if where.config else _ask_name(transport),
    }
    env = command_environment(ctx.env, job, {k: v for k, v in more.items() if v}, values)
    # What runs in the allocation asks the same cluster.
    if values.get("controller"):
        env["SPUR_CONTROLLER_ADDR"] = values["controller"] or ""
    if where.config:
        env["SLURM_CONF"] = env["SPUR_CONF"] = where.config
    return env


def _ask_name(transport: "Transport") -> str:
    from spur_proto import controller_pb2 as pb

    try:
        return transport.call("Ping", pb.PingRequest(), pb.PingResponse, timeout=10.0).cluster_name
    except CallFailed:
        return ""


def _refused(ctx: Context, values: layers.Values, failure: CallFailed) -> Stop:
    from spur_cli.submit.sbatch import notices

    if "immediate" in values and failure.text.startswith("Requested nodes are busy"):
        text = ctx.env.get("SLURM_EXIT_IMMEDIATE", "")
        code = int(text) if text.isascii() and text.isdigit() and int(text) < 256 else exit_code(ctx)
        return ctx.stop(f"Unable to allocate resources: {failure.text}", code)
    for line in notices(failure.text, values.get("partition")):
        ctx.error(line)
    return ctx.stop(f"Job submit/allocate failed: {failure.text}")
