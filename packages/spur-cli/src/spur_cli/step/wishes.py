"""What the options of srun say about input, output and the end of a step."""

from typing import TYPE_CHECKING

from spur_cli.context import Context
from spur_cli.step.output import Output
from spur_cli.step.pty_run import PtyRun
from spur_cli.step.rules import EndRules

if TYPE_CHECKING:
    from spur_core.grammar.filepattern import PatternValues


class Wishes:
    """Wishes of one call.

    quiet, verbose: less or more on stderr.
    silent_interrupt: an interrupt goes to the tasks at once and tells nothing (-X).
    one_interrupt: the first interrupt ends the step.
    stdin: descriptor to read from, None = the tasks get an empty input.
    stdin_rank: the one task that gets it, None = every task.
    pty: the caller's terminal, when it stands for the step's.
    rules: when the step is ended from here.
    """

    __slots__ = (
        "one_interrupt", "pty", "quiet", "rules", "silent_interrupt", "stdin", "stdin_rank", "verbose",
    )  # fmt: skip

    def __init__(
        self,
        *,
        rules: EndRules,
        stdin: int | None,
        stdin_rank: int | None = None,
        pty: PtyRun | None = None,
        quiet: bool = False,
        verbose: bool = False,
        silent_interrupt: bool = False,
        one_interrupt: bool = False,
    ) -> None:
        self.rules = rules
        self.stdin = stdin
        self.stdin_rank = stdin_rank
        self.pty = pty
        self.quiet = quiet
        self.verbose = verbose
        self.silent_interrupt = silent_interrupt
        self.one_interrupt = one_interrupt


class OutputFactory:
    """Makes the output once the step's shape is known."""

    def __init__(self, ctx: Context, out: str, err: str, *, label: bool, append: bool, work_dir: str) -> None:
        self._ctx = ctx
        self._out = out
        self._err = err
        self._label = label
        self._append = append
        self._work_dir = work_dir

    def __call__(self, values: "PatternValues", tasks: int) -> Output:
        """`tasks`: how many ranks the step has."""
        return Output(
            self._ctx,
            self._out,
            self._err,
            width=len(str(max(tasks - 1, 0))) if self._label else 0,
            append=self._append,
            values=values,
            work_dir=self._work_dir,
        )
