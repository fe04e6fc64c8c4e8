"""spur exec: run a command inside a running job or step."""

import os
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.options.engine import REQUIRED, Option, Parsed, Table, UsageError, parse
from spur_cli.options.front import answer_information, common, usage_stop
from spur_cli.step import targets
from spur_core.errors import ConfigError, GrammarError
from spur_core.states import TERMINAL_STATES, JobState

if TYPE_CHECKING:
    from spur_cli.step.pty_run import PtyRun
    from spur_cli.step.session import Rid
    from spur_cli.transport import Transport
    from spur_core.grammar.jobid import JobRef

USAGE = "Usage: spur exec [options] JOB[.STEP] [--] COMMAND [ARGUMENTS]"
#: What a program on the other side must know of this terminal.
_TERMINAL_VARIABLES = ("TERM", "COLORTERM")
_NOT_RUNNING = {
    JobState.PENDING: "Job is pending execution",
    JobState.CONFIGURING: "Job is pending execution",
}
OVER = "Job/step already completing or completed"


def table() -> Table:
    """The options of exec."""
    return Table(
        [
            Option("chdir", "D", REQUIRED, "work directory, else the step's", metavar="DIR"),
            Option(
                "env",
                "e",
                REQUIRED,
                "a variable; without a value: as it is here",
                metavar="NAME[=VALUE]",
                raw=True,
            ),
            Option("node", "w", REQUIRED, "on this node of the job, else its first", metavar="NODE"),
            Option("pty", "t", help="give the command a terminal"),
            Option("quiet", "Q", help="print no information"),
            *common(),
        ],
        in_order=True,
        synopsis="[OPTIONS] JOB[.STEP] [--] COMMAND [ARGUMENTS]",
    )


def run(ctx: Context) -> int:
    """The command."""
    wish = Wish(ctx)
    from spur_cli.step.exec_run import ExecRun
    from spur_cli.transport import Transport

    try:
        transport = Transport(wish.ctx, wish.controller)
        rid, node, address = place(wish, transport)
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        raise ctx.stop(failure.text) from None
    return ExecRun(transport, wish, rid, node, address).run()


class Wish:
    """The words of one call, checked.

    ctx: the caller's context, fit for the terminal of `pty`.
    ref: the job or step.  node: "" = the first.  environment: "NAME=value" each.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        words, self.ref, self.argv = self._words()
        self.controller = words.get("controller")
        self.node = words.text("node")
        self.quiet = words.has("quiet")
        self.work_dir = words.text("chdir")
        if self.work_dir and not self.work_dir.startswith("/"):
            raise ctx.stop(f"--chdir={self.work_dir}: must be an absolute path on the node")
        self.environment = self._environment(words)
        self.pty: PtyRun | None = None
        if words.has("pty"):
            from spur_cli.step import pty_run

            self.pty = pty_run.asked_for(ctx, None, 1)
            if self.pty is not None:
                self.ctx = self.pty.ctx

    def _words(self) -> "tuple[Parsed, JobRef, list[bytes]]":
        """Options before and after the job; what follows them is the command."""
        from spur_core.grammar.jobid import parse_job_ref

        ctx, options = self.ctx, table()
        try:
            first = parse(options, ctx.argv)
            answer_information(ctx, options, first)
            if not first.operands:
                raise Stop(1, f"{ctx.name}: error: no job was given", USAGE)
            name, *rest = first.operands
            second = parse(options, rest)
        except UsageError as problem:
            raise usage_stop(ctx, problem, 1) from None
        answer_information(ctx, options, second)
        try:
            ref = parse_job_ref(name)
        except GrammarError:
            raise ctx.stop(f"Invalid job id specified: {name}") from None
        if ref.het is not None:
            raise ctx.stop("components of heterogeneous jobs are not supported by this release")
        if not second.operands:
            raise Stop(1, f"{ctx.name}: error: no command was given", USAGE)
        for option, value in second.given:
            first.add(option, value)
        return first, ref, [os.fsencode(word) for word in second.operands]

    def _environment(self, words: Parsed) -> list[bytes]:
        """What is laid over the step's environment."""
        env = self.ctx.env
        found = {}
        if words.has("pty"):
            found.update({name: env[name] for name in _TERMINAL_VARIABLES if name in env})
        for text in words.every("env"):
            name, equals, value = text.partition("=")
            if not name:
                raise self.ctx.stop(f"--env={text}: must be NAME or NAME=VALUE")
            if equals:
                found[name] = value
            elif name in env:
                found[name] = env[name]
            else:
                raise self.ctx.stop(f"--env={text}: {name} is not set here")
        return [os.fsencode(f"{name}={value}") for name, value in found.items()]


def place(wish: Wish, transport: "Transport") -> "tuple[Rid, str, str]":
    """(run, node, address of its agent) of what the command joins.

    Raises:
        CallFailed: there is no such job or step, or the controller cannot be asked.
        Stop: it does not run, or not on that node.
    """
    from spur_proto import controller_pb2 as pb

    ref, ctx = wish.ref, wish.ctx
    job_id = targets.job_id_of(transport, ref)
    if ref.step is None:
        jobs = transport.stream("WatchJob", pb.WatchJobRequest(job_id=job_id), pb.WatchJobResponse)
        job_news = next(iter(jobs), None)
        jobs.cancel()
        attempt = job_news.job.run_attempt if job_news is not None else 0
        state = job_news.job.state if job_news is not None else None
        nodes = job_news.nodes if job_news is not None else ()
    else:
        request = pb.WatchStepRequest()
        request.rid.job_id, request.rid.step_id = job_id, ref.step
        steps = transport.stream("WatchStep", request, pb.WatchStepResponse)
        step_news = next(iter(steps), None)
        steps.cancel()
        attempt = step_news.step.rid.run_attempt if step_news is not None else 0
        state = step_news.step.state if step_news is not None else None
        nodes = step_news.nodes if step_news is not None else ()
    if state is None:
        raise CallFailed("NOT_FOUND", "no_such_job", targets.NO_SUCH_JOB)
    if int(state) in TERMINAL_STATES or int(state) == JobState.COMPLETING:
        raise ctx.stop(OVER)
    if int(state) in _NOT_RUNNING or not nodes:
        raise ctx.stop(_NOT_RUNNING.get(JobState(int(state)), "Job is pending execution"))
    addresses = {one.node: one.address for one in nodes}
    node = wish.node or nodes[0].node
    if node not in addresses:
        from spur_core.grammar import hostlist

        raise ctx.stop(f"node {node} is none of the job's: {hostlist.compress(list(addresses))}")
    return (job_id, attempt, ref.step), node, addresses[node]
