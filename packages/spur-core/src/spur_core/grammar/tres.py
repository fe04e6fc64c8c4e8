"""TRES strings: `cpu=3,mem=300M,node=2,billing=3,gres/gpu=1`."""

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits
from spur_core.grammar.size import format_mem, parse_mem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Order of everything but gres and licences, which follow by name.
_ORDER = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
_ALIASES = {"memory": "mem", "cpus": "cpu", "nodes": "node", "gpu": "gres/gpu"}
#: What stands before the slash of a name that a site chooses.
_FAMILIES = ("gres", "license", "bb")
_MEMORY = ("mem", "vmem")


def format_tres(amounts: "Mapping[str, int]", *, by_name: bool = False) -> str:
    """`name=value` joined by commas, zeros left out; mem is MiB with a binary suffix.

    Args:
        by_name: sacct's order; otherwise scontrol's and squeue's.
    """
    names = [name for name, value in amounts.items() if value]
    if by_name:
        names.sort()
    else:
        names.sort(key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    return ",".join(f"{name}={_value(name, amounts[name])}" for name in names)


def _value(name: str, amount: int) -> str:
    return format_mem(amount) if name in _MEMORY else str(amount)


def parse_tres(text: str) -> dict[str, int]:
    """Amounts by canonical name; mem in MiB; of a repeated name the last wins.

    Names are not case sensitive, the type of a gres is.

    Raises:
        GrammarError: "Invalid TRES specification: ITEM".
    """
    out: dict[str, int] = {}
    for item in text.split(","):
        word = item.strip()
        if not word:
            continue
        written, equals, value = word.partition("=")
        kind, slash, rest = written.partition("/")
        name = kind.lower() + slash + rest
        if kind.lower() == "fs":
            name = name.lower()
        name = _ALIASES.get(name, name)
        known = name in _ORDER or name == "gres/gpu" or (kind.lower() in _FAMILIES and rest)
        amount = _amount(name, value)
        if not equals or not known or amount is None:
            raise GrammarError(f"Invalid TRES specification: {word}")
        out[name] = amount
    return out


def _amount(name: str, value: str) -> int | None:
    if name not in _MEMORY:
        return digits(value)
    try:
        return parse_mem(value)
    except GrammarError:
        return None
