"""What every command does with its words first: parse, help, version, and the values of variables."""

from spur_cli.context import Context, Stop
from spur_cli.options.engine import (
    REQUIRED,
    NotTextError,
    Option,
    Parsed,
    Table,
    UsageError,
    check_operands,
    from_environment,
    help_text,
    parse,
    usage_text,
)

#: What `-V` says under a Slurm name; launchers parse two numbers out of it.
SLURM_VERSION = "slurm 25.11.0"


def common(*, help_short: str = "h", verbose_short: str = "v") -> list[Option]:
    """The options of every command."""
    return [
        Option(
            "controller",
            "",
            REQUIRED,
            "controllers to ask, in this order",
            metavar="ADDR[,ADDR]",
        ),
        Option("verbose", verbose_short, help="say more on stderr"),
        Option("version", "V", help="print the version and exit"),
        Option("usage", help="print a short usage and exit"),
        Option("help", help_short, help="print this text and exit"),
        Option("autocomplete", "", REQUIRED, metavar="SHELL", refuse="*"),
    ]


def cluster_option(env: tuple[str, ...] = ()) -> Option:
    """`-M`: only the one local cluster, or `all`."""
    return Option(
        "clusters",
        "M",
        REQUIRED,
        "clusters to ask: this one's name, or all",
        metavar="NAMES",
        env=(*env, "SLURM_CLUSTERS"),
    )


def open_options(ctx: Context, table: Table, *, code: int = 1, environment: bool = True) -> Parsed:
    """The parsed words of `ctx`, variables filled in below them.

    Args:
        code: exit code of an error in the options.

    Raises:
        Stop: an error, or `--help`, `--usage` or `--version` was answered.
    """
    try:
        words = parse(table, ctx.argv)
        if not table.in_order:
            check_operands(words.operands)
    except UsageError as problem:
        raise usage_stop(ctx, problem, code) from None
    answer_information(ctx, table, words)
    if not environment:
        return words
    try:
        below = from_environment(table, ctx.env)
    except UsageError as problem:
        raise usage_stop(ctx, problem, code) from None
    for name, value in below.items():
        if not words.has(name):
            words.add(name, value)
    return words


def answer_information(ctx: Context, table: Table, words: Parsed) -> None:
    """Serve `--help`, `--usage` and `--version`.

    Raises:
        Stop: one of them was given.
    """
    if words.has("version"):
        ctx.out(SLURM_VERSION + "\n")
        raise Stop(0)
    if words.has("help"):
        ctx.out(help_text(ctx.name, table))
        raise Stop(0)
    if words.has("usage"):
        ctx.out(usage_text(ctx.name, table))
        raise Stop(0)


def usage_stop(ctx: Context, problem: UsageError, code: int) -> Stop:
    """The end of a command whose options cannot be parsed."""
    if isinstance(problem, NotTextError):
        code = 1
    if problem.hint:
        return Stop(code, f"{ctx.name}: {problem.text}", f'Try "{ctx.name} --help" for more information')
    return ctx.stop(problem.text, code)
