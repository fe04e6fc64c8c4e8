"""Where the tasks' input comes from: `-i`."""

import os
from typing import NamedTuple

from spur_cli.context import Context
from spur_core.grammar import filepattern


class Source(NamedTuple):
    """The input of a step.

    fd: descriptor that the client reads, None = it gives nothing.
    rank: the only task that gets it, None = every task.
    path: a pattern of which every task opens its own file, on its node.
    """

    fd: int | None
    rank: int | None = None
    path: str = ""


def choose(ctx: Context, text: str | None, tasks: int | None) -> Source:
    """The source for the value of `-i`.

    Args:
        tasks: of the step, None when they are not known.

    Raises:
        Stop: the file cannot be opened, or there is no such task.
    """
    kind, rank = filepattern.stream_target(text or "all")
    if kind == "all":
        return Source(ctx.stdin)
    if kind == "none":
        return Source(None)
    if kind == "rank":
        if tasks is not None and rank >= tasks:
            raise ctx.stop(f"--input={text}: there is no task {rank} in a step of {tasks}", 255)
        return Source(ctx.stdin, rank)
    assert text is not None
    if filepattern.codes(text) - {"%"}:
        return Source(None, None, text)
    try:
        plain = filepattern.expand(text, _NOBODY)
        return Source(os.open(ctx.path(plain), os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise ctx.stop(f"Could not open stdin file {text}: {error.strerror}") from None


_NOBODY = filepattern.PatternValues(0, None, None, 0, 0, "", 0, "", "", 0)
