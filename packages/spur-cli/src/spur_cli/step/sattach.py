"""sattach: join the input and output of a running step."""

import os
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.options.engine import REQUIRED, Option, Parsed, Table
from spur_cli.options.front import common, open_options
from spur_cli.step import targets
from spur_core.errors import ConfigError, GrammarError
from spur_core.ids import STEP_BATCH, STEP_EXTERN, step_name
from spur_core.states import TERMINAL_STATES

if TYPE_CHECKING:
    from spur_cli.transport import Transport
    from spur_core.grammar.jobid import JobRef
    from spur_proto import common_pb2, controller_pb2

USAGE = "Usage: sattach [options] <jobid.stepid>"
NO_INFO = "Could not get job step info"
UNPARSED = "Failed to parse stepid from command line options"
OVER = "Job/step already completing or completed"
#: The null device's number.
_NULL = os.makedev(1, 3)
_STREAMS = ("stdout", "stderr")


def table() -> Table:
    """The options of sattach."""
    return Table(
        [
            Option("error-filter", "", REQUIRED, "only the error output of this task", metavar="TASK"),
            Option("input-filter", "", REQUIRED, "give input only to this task", metavar="TASK"),
            Option("label", "l", help="put the task's rank before each line"),
            Option("layout", "", help="only tell which tasks run where"),
            Option("output", "", REQUIRED, "only this stream", metavar="stdout|stderr"),
            Option("output-filter", "", REQUIRED, "only the output of this task", metavar="TASK"),
            Option("output-only", "", help="give no input"),
            Option("pty", "", help="let this terminal stand for the step's"),
            Option("quiet", "Q", help="print no information"),
            *common(),
        ],
        synopsis="[OPTIONS] JOB[.STEP]",
    )


def run(ctx: Context) -> int:
    """The command."""
    options = open_options(ctx, table())
    wanted = Wanted(ctx, options)
    from spur_cli.transport import Transport

    try:
        transport = Transport(ctx, options.get("controller"))
        found = wanted.find(transport)
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        raise ctx.stop(f"{NO_INFO}: {failure.text}") from None
    wanted.check(found.step)
    if options.has("layout"):
        ctx.out(layout(found.step))
        return 0
    from spur_cli.step.attach_run import AttachRun

    return AttachRun(transport, found, wanted).run()


class Wanted:
    """What the options say, checked.

    ctx: the caller's context, fit for the terminal that may stand for the step's.
    pty: that terminal.  input: whether input is to be given.  out, err: which task's, "" = all, or "none".
    """

    def __init__(self, ctx: Context, options: Parsed) -> None:
        self.ctx = ctx
        self.quiet = options.has("quiet")
        self.verbose = options.has("verbose") and not self.quiet
        self.label = options.has("label")
        self.ref = self._operand(options.operands)
        self.input_task = self._task(options, "input-filter")
        self.out = self.err = ""
        for name in ("output-filter", "error-filter"):
            task = self._task(options, name)
            if task is not None and name == "output-filter":
                self.out = str(task)
            elif task is not None:
                self.err = str(task)
        self._stream(options.get("output"))
        self.input = not options.has("output-only") and not self._has_no_input()
        self.pty = None
        if options.has("pty"):
            from spur_cli.step import pty_run

            self.pty = pty_run.asked_for(ctx, None, 1)
            self.ctx = self.pty.ctx if self.pty is not None else ctx

    def _operand(self, words: list[str]) -> "JobRef":
        from spur_core.grammar.jobid import parse_job_ref

        name = self.ctx.name
        if len(words) != 1:
            text = "too many parameters" if words else "no job step was given"
            raise Stop(1, f"{name}: error: {text}", USAGE)
        try:
            ref = parse_job_ref(words[0])
        except GrammarError:
            raise Stop(1, f"{name}: error: {UNPARSED}", USAGE) from None
        if ref.het is not None:
            raise self.ctx.stop("components of heterogeneous jobs are not supported by this release")
        return ref

    def _task(self, options: Parsed, name: str) -> int | None:
        text = options.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise self.ctx.stop(f"--{name}={text}: must be the number of a task")
        return int(text)

    def _stream(self, text: str | None) -> None:
        if text is None:
            return
        if text not in _STREAMS:
            raise self.ctx.stop(f"--output={text}: must be stdout or stderr")
        if text == "stdout":
            self.err = "none"
        else:
            self.out, self.err = "none", self.err or "all"

    def _has_no_input(self) -> bool:
        """Scripts run with the null device as their input: that is no wish to end the step's."""
        try:
            found = os.fstat(self.ctx.stdin)
        except OSError:
            return True
        return found.st_rdev == _NULL

    def find(self, transport: "Transport") -> "controller_pb2.WatchStepResponse":
        """What the controller knows of the step now.

        Raises:
            CallFailed: there is no such step.
        """
        from spur_proto import controller_pb2 as pb

        job_id = targets.job_id_of(transport, self.ref)
        step_id = self.ref.step
        if step_id is None:
            step_id = targets.only_step(transport, job_id)
        if step_id in (STEP_BATCH, STEP_EXTERN):
            what = f"the output of {job_id}.{step_name(step_id)} goes to files"
            text = what if step_id == STEP_BATCH else f"{job_id}.extern has no output"
            raise CallFailed("FAILED_PRECONDITION", "wrong_state", text)
        request = pb.WatchStepRequest()
        request.rid.job_id, request.rid.step_id = job_id, step_id
        parts = transport.stream("WatchStep", request, pb.WatchStepResponse)
        found = next(iter(parts), None)
        parts.cancel()
        if found is None:
            raise CallFailed("NOT_FOUND", "no_such_job", targets.NO_SUCH_JOB)
        if int(found.step.state) in TERMINAL_STATES:
            raise CallFailed("FAILED_PRECONDITION", "already_done", OVER)
        return found

    def check(self, step: "common_pb2.StepInfo") -> None:
        """Compare the wishes with the step's shape.

        Raises:
            Stop: it has no such task, or a task cannot be given input alone.
        """
        ranks = {rank: held for held in step.slices for rank in held.ranks}
        for name, text in (("output-filter", self.out), ("error-filter", self.err)):
            if text.isdigit() and ranks and int(text) not in ranks:
                raise self.ctx.stop(f"--{name}={text}: the step has only tasks 0-{max(ranks)}")
        if self.input_task is None or not ranks:
            return
        held = ranks.get(self.input_task)
        if held is None:
            raise self.ctx.stop(f"--input-filter={self.input_task}: the step has only tasks 0-{max(ranks)}")
        if len(held.ranks) > 1:
            raise self.ctx.stop(
                f"--input-filter={self.input_task}: other tasks on {held.node} would get the same input"
            )


def layout(step: "common_pb2.StepInfo") -> str:
    """What `--layout` prints."""
    tasks, nodes = step.num_tasks, len(step.slices)
    lines = ["Job step layout:", f"  {tasks} tasks, {nodes} nodes ({step.nodelist})", ""]
    for index, held in enumerate(step.slices):
        ranks = " ".join(str(rank) for rank in held.ranks)
        lines.append(f"  Node {index} ({held.node}), {len(held.ranks)} task(s): {ranks}")
    return "\n".join(lines) + "\n"
