"""`docs/slurm-compatibility.md`, from the tables that the commands themselves read.

python -m spur_cli.options.compatibility > docs/slurm-compatibility.md
"""

import sys
from collections.abc import Callable, Iterator

from spur_cli.control import scontrol, sdiag
from spur_cli.dispatch import LATER
from spur_cli.history import sacct
from spur_cli.nodes import sinfo
from spur_cli.options import submit_table
from spur_cli.options.engine import FLAG, OPTIONAL, Option, Table
from spur_cli.queue import scancel, sprio, squeue
from spur_cli.step import sattach

#: Slurm's commands that this release serves, in the order of the page.
TABLES: dict[str, Callable[[], Table]] = {
    "sbatch": lambda: submit_table.table("B"),
    "srun": lambda: submit_table.table("R"),
    "salloc": lambda: submit_table.table("A"),
    "squeue": squeue.table,
    "sinfo": sinfo.table,
    "scancel": scancel.table,
    "sacct": sacct.table,
    "scontrol": scontrol.table,
    "sprio": sprio.table,
    "sdiag": sdiag.table,
    "sattach": sattach.table,
}
_HEAD = """# Options of Slurm's commands

Made from the tables that the commands read (`python -m spur_cli.options.compatibility`). An option acts, or
is refused by name, or, for the reason given, is accepted because what it asks for is so anyway. What is in
no table is answered with `unrecognized option`. So nothing is silently ignored.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    for command, make in TABLES.items():
        options = sorted(make().options, key=lambda option: option.name)
        acting = [option for option in options if not option.refuse and not option.idle]
        partly = [option for option in options if option.refuse not in ("", "*") and not option.idle]
        idle = [option for option in options if option.idle]
        refused = [option for option in options if option.refuse == "*"]
        yield f"## {command}\n"
        yield "| option | what it does | variables |\n|---|---|---|"
        for option in [*acting, *partly]:
            only = f" (only {_values(option)})" if option.refuse else ""
            variables = ", ".join(f"`{name}`" for name in option.env)
            yield f"| {_shown(option)} | {_cell(option.help)}{only} | {variables} |"
        if idle:
            yield "\n| accepted | values | why nothing is done |\n|---|---|---|"
            for option in idle:
                accepted = _values(option) if option.refuse else "any"
                yield f"| {_shown(option)} | {accepted} | {_cell(option.idle)} |"
        if refused:
            yield "\nRefused: " + ", ".join(_shown(option) for option in refused) + "."
        yield ""
    yield "## Not in this release\n"
    yield (
        "One line on stderr, exit status 1: "
        + ", ".join(f"`{name}` ({why})" for name, why in LATER.items())
        + "."
    )


def _shown(option: Option) -> str:
    short = "".join(f"`-{letter}`, " for letter in option.short)
    value = (
        f"=[{option.metavar}]"
        if option.form == OPTIONAL
        else f"={option.metavar}"
        if option.form != FLAG
        else ""
    )
    return f"{short}`--{option.name}{value}`".replace("|", "\\|")


def _values(option: Option) -> str:
    """The accepted values; an empty word stands for none."""
    return ", ".join(f"`{word}`" if word else "without a value" for word in option.refuse.split(" "))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
