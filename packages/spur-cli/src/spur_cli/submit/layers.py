"""One value per option out of three layers: directives below variables below the command line."""

from collections.abc import Mapping, Sequence

from spur_cli.context import Context
from spur_cli.options.engine import Parsed, Table, UsageError, from_environment, parse
from spur_cli.options.front import answer_information, usage_stop

#: Options of one group exclude each other; one of a higher layer removes the others of the layers below.
GROUPS = (("mem", "mem-per-cpu", "mem-per-gpu"), ("requeue", "no-requeue"), ("nodelist", "nodefile"))
#: Likewise, but two in one layer are an error of whoever looks at them.
_GPUS = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")

Values = dict[str, str | None]


def command_line(ctx: Context, table: Table, code: int) -> Parsed:
    """The parsed command line; information options are answered.

    Raises:
        Stop: an error, or an answer was given.
    """
    try:
        words = parse(table, ctx.argv)
    except UsageError as problem:
        raise usage_stop(ctx, problem, code) from None
    answer_information(ctx, table, words)
    if words.operands[:1] == [":"]:
        raise ctx.stop("heterogeneous jobs ( : ) are not supported by this release", code)
    return words


def variables(ctx: Context, table: Table, code: int) -> Values:
    """What environment variables set.

    Raises:
        Stop: one asks for what this release cannot do.
    """
    try:
        return from_environment(table, ctx.env)
    except UsageError as problem:
        raise usage_stop(ctx, problem, code) from None


def directive_values(ctx: Context, table: Table, lines: Sequence[Sequence[str]], code: int) -> Values:
    """What directive lines set; a later line wins.

    Raises:
        Stop: a line holds something else than known options.
    """
    found = Parsed()
    for words in lines:
        if words[0] in ("hetjob", "packjob"):
            raise ctx.stop("heterogeneous jobs (#SBATCH hetjob) are not supported by this release", code)
        try:
            line = parse(table, words)
        except UsageError as problem:
            raise usage_stop(ctx, problem, code) from None
        if line.operands:
            raise ctx.stop(f"Invalid directive found in batch script: {line.operands[0]}", code)
        for name, value in line.given:
            found.add(name, value)
    return found.values


def merge(ctx: Context, *layers: Mapping[str, str | None], code: int = 255) -> Values:
    """The layers put over each other, lowest first.

    Raises:
        Stop: one layer asks for two sizes of memory.
    """
    out: Values = {}
    for layer in layers:
        if sum(name in layer for name in GROUPS[0]) > 1:
            raise ctx.fatal("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.", code)
        for group in (*GROUPS, _GPUS):
            given = [name for name in layer if name in group]
            if given:
                for name in group:
                    out.pop(name, None)
        for name, value in layer.items():
            for group in GROUPS:
                if name in group:
                    for other in group:
                        out.pop(other, None)
            out[name] = value
    return out
