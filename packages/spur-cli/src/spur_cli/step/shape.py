"""How the tasks of a step are started: options to the fields of a `StepShape`."""

import os
from collections.abc import Mapping
from typing import Any

from spur_cli.context import Context
from spur_cli.step import mpi
from spur_core.errors import GrammarError

Fields = dict[str, Any]
Values = Mapping[str, str | None]

_CPU_WORDS = ("none", "no", "rank", "threads", "cores", "sockets", "ldoms")
_CPU_LISTS = ("map_cpu", "mask_cpu")
_GPU_WORDS = ("none", "closest")
_GPU_LISTS = ("map_gpu", "mask_gpu", "single", "per_task")
_LATER = ("rank_ldom", "map_ldom", "mask_ldom", "boards")


def fields(ctx: Context, values: Values, code: int) -> Fields:
    """The fields that options alone decide (not the terminal, the commands of ranks and the input).

    Args:
        code: exit code of a wrong value.

    Raises:
        Stop: a value that cannot be used.
    """
    found: Fields = {}
    for option, words, lists in (
        ("cpu-bind", _CPU_WORDS, _CPU_LISTS),
        ("gpu-bind", _GPU_WORDS, _GPU_LISTS),
    ):
        text = values.get(option)
        if text:
            check_binding(ctx, option, text, words, lists, code)
            found[option.replace("-", "_")] = text
    if kind := mpi.chosen(ctx, values.get("mpi"), code):
        found["mpi"] = kind
    for option in ("task-prolog", "task-epilog"):
        name = values.get(option)
        if name:
            found[option.replace("-", "_")] = ctx.path(name)
    return found


def check_binding(
    ctx: Context, option: str, text: str, words: tuple[str, ...], lists: tuple[str, ...], code: int
) -> None:
    """Refuse what is no `[quiet,|verbose,]TYPE[:LIST]`.

    Raises:
        Stop: it is none, or of a kind that comes later.
    """
    rest = text.lower()
    while rest:
        word, _, tail = rest.partition(",")
        if word not in ("q", "quiet", "v", "verbose"):
            break
        rest = tail
    kind, colon, _ = rest.partition(":")
    if kind in _LATER:
        raise ctx.stop(f"--{option}={text} is not supported by this release", code)
    good = (kind in lists) if colon else (not rest or rest in words)
    if not good:
        shown = ", ".join([*words, *(f"{name}:" for name in lists)])
        raise ctx.stop(f"Invalid --{option} argument: {text}; use {shown}", code)


def commands(ctx: Context, operands: list[str], tasks: int | None, code: int) -> tuple[list[Fields], int]:
    """`--multi-prog`: the commands of ranks and how many ranks there are.

    Args:
        operands: the file, then arguments for every program.
        tasks: ranks of the step, None = the file decides.

    Raises:
        Stop: the file cannot be used.
    """
    from spur_cli.step import multiprog

    name = operands[0]
    try:
        with open(ctx.path(name), encoding="utf-8", errors="surrogateescape") as file:
            plan = multiprog.parse(file.read(), name, tasks, operands[1:])
    except OSError as error:
        raise ctx.stop(f"cannot read the program file {name}: {error.strerror}") from None
    except GrammarError as error:
        raise ctx.stop(error.text, code) from None
    made = [{"ranks": ranks, "argv": [os.fsencode(w) for w in argv]} for ranks, argv in plan.commands]
    return made, plan.tasks
