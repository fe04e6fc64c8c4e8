"""What `--pty` adds to the run of a step: the caller's terminal stands for the step's."""

import os
from collections.abc import Iterable
from queue import SimpleQueue

from spur_cli.context import Context
from spur_cli.step.session import Event, NodeSession
from spur_cli.step.terminal import Terminal, TerminalContext

RESIZED = "resized"
#: Options that would send the step's input or output elsewhere than to its terminal.
_ELSEWHERE = ("error", "input", "output")


class PtyRun:
    """The terminal of one run.

    ctx: the caller's context, whose diagnostics are fit for the terminal in every mode.
    """

    def __init__(self, ctx: Context, fd: int) -> None:
        self.terminal = Terminal(fd)
        self.ctx: Context = TerminalContext(ctx, self.terminal)

    def fields(self) -> dict[str, int]:
        """Fields of a `StepShape` that ask for a terminal of the size that it has here."""
        rows, cols = self.terminal.size()
        return {"pty": True, "pty_rows": rows, "pty_cols": cols}

    def begin(self, sessions: Iterable[NodeSession], events: "SimpleQueue[Event]") -> None:
        """The step runs: every key is for it from now on, and changes of the size become events."""
        self.terminal.on_size = lambda: events.put((RESIZED, "", None))
        self.terminal.enter()
        # It may have changed while the job waited.
        self.resize(sessions)

    def resize(self, sessions: Iterable[NodeSession]) -> None:
        """Tell the step the size that the terminal has now."""
        for one in sessions:
            one.send_window(*self.terminal.size())

    def end(self) -> None:
        """Give the terminal back."""
        self.terminal.leave()


def asked_for(ctx: Context, value: str | None, code: int) -> PtyRun | None:
    """For `--pty[=FD]`; None when there is no terminal, which is told and no error.

    Args:
        value: the descriptor of the terminal, None = standard input.
        code: exit code of a wrong value.

    Raises:
        Stop: the value is no descriptor.
    """
    if value and not (value.isascii() and value.isdigit() and len(value) < 10):
        raise ctx.fatal(f"--pty={value} must be numeric file descriptor", code)
    fd = int(value) if value else ctx.stdin
    if not os.isatty(fd):
        shown = f"={value}" if value else ""
        ctx.error(f"Not using a pseudo-terminal, disregarding --pty{shown} option")
        return None
    return PtyRun(ctx, fd)


def incompatible(ctx: Context, given: Iterable[str], code: int) -> None:
    """Refuse options that contradict a terminal.

    Raises:
        Stop: one of them was given.
    """
    for name in _ELSEWHERE:
        if name in given:
            raise ctx.stop(f"--{name} is incompatible with --pty", code)
