"""What srun decides from its options before anybody is asked, for steps of both kinds."""

from collections.abc import Mapping
from typing import Any

from spur_cli.context import Context
from spur_cli.step import shape, source
from spur_cli.step.pty_run import PtyRun
from spur_cli.step.rules import EndRules
from spur_cli.step.wishes import OutputFactory, Wishes

Values = Mapping[str, str | None]
CODE = 255


class Setup:
    """One call's options, checked.

    ctx: the caller's context, fit for the terminal that may stand for the step's.
    argv: the command.  tasks: how many there are to be, None = not known here.
    step: fields of the `StepShape`.  source: where the input comes from.
    """

    def __init__(
        self, ctx: Context, values: Values, given: Values, operands: list[str], tasks: int | None
    ) -> None:
        """`given`: the options of the command line, `values` with those of variables below.

        Raises:
            Stop: a value that cannot be used.
        """
        self.values = values
        self.pty = _pty(ctx, values, given)
        self.ctx = ctx = self.pty.ctx if self.pty is not None else ctx
        self.argv = operands
        self.tasks = tasks
        self.step: dict[str, Any] = shape.fields(ctx, values, CODE)
        if self.pty is not None:
            self.step.update(self.pty.fields())
        if "multi-prog" in values:
            self.step["commands"], self.tasks = shape.commands(ctx, operands, tasks, CODE)
            self.argv = operands[:1]
        self.rules = _rules(ctx, values)
        self.source = source.choose(ctx, values.get("input"), self.tasks)
        if self.source.rank is not None:
            self.step["stdin_rank"] = self.source.rank

    def wishes(self) -> Wishes:
        """What the run of the step needs to know."""
        values = self.values
        return Wishes(
            rules=self.rules,
            stdin=self.source.fd,
            stdin_rank=self.source.rank,
            pty=self.pty,
            quiet="quiet" in values,
            verbose="verbose" in values,
            silent_interrupt="disable-status" in values,
            one_interrupt="quit-on-interrupt" in values,
        )

    def output(self, *, append: bool) -> OutputFactory:
        """Where the tasks' output goes."""
        values = self.values
        return OutputFactory(
            self.ctx,
            values.get("output") or "",
            values.get("error") or "",
            label="label" in values and self.pty is None,
            append=append,
            work_dir=self.ctx.cwd,
        )


def with_gpus_per_task(step: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """The step's fields; with `--gpus-per-task` each task sees its own GPUs."""
    text = values.get("gpus-per-task")
    count = text.rpartition(":")[2] if text else ""
    return {**step, "gpus_per_task": int(count)} if count.isdigit() else dict(step)


def _pty(ctx: Context, values: Values, given: Values) -> PtyRun | None:
    """The caller's terminal when `--pty` asks for one and there is one."""
    if "pty" not in values:
        return None
    from spur_cli.step import pty_run

    pty_run.incompatible(ctx, given, CODE)
    return pty_run.asked_for(ctx, values["pty"], CODE)


def _rules(ctx: Context, values: Values) -> EndRules:
    kill_bad = False
    if "kill-on-bad-exit" in values:
        text = values["kill-on-bad-exit"]
        if text not in (None, "0", "1"):
            raise ctx.stop(f"Invalid --kill-on-bad-exit specification: {text}; use 0 or 1", CODE)
        kill_bad = text != "0"
    text = values.get("wait") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ctx.stop(f'Invalid numeric value "{text}" for --wait.', CODE)
    return EndRules(kill_bad=kill_bad, wait_secs=int(text))
