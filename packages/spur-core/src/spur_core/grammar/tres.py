"""TRES strings: `cpu=3,mem=300M,node=2,billing=3,gres/gpu=1`."""

from collections.abc import Mapping

from spur_core.errors import GrammarError
from spur_core.grammar.size import format_mem, parse_mem

#: Order of everything but gres and licences, which follow by name.
_ORDER = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
_ALIASES = {"memory": "mem", "cpus": "cpu", "nodes": "node", "gpu": "gres/gpu"}


def format_tres(amounts: Mapping[str, int], *, by_name: bool = False) -> str:
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
    return format_mem(amount) if name in ("mem", "vmem") else str(amount)


def parse_tres(text: str) -> dict[str, int]:
    """Amounts by canonical name; mem in MiB; a repeated name: the last wins.

    Raises:
        GrammarError: naming the item.
    """
    out: dict[str, int] = {}
    for item in text.split(","):
        word = item.strip()
        if not word:
            continue
        name, equals, value = word.partition("=")
        name = name.lower()
        name = _ALIASES.get(name, name)
        known = name in _ORDER or name.startswith(("gres/", "license/", "bb/"))
        if not equals or not known:
            raise GrammarError(f"Invalid TRES specification: {word}")
        if name in ("mem", "vmem"):
            try:
                out[name] = parse_mem(value)
            except GrammarError:
                raise GrammarError(f"Invalid TRES specification: {word}") from None
        elif value.isascii() and value.isdigit():
            out[name] = int(value)
        else:
            raise GrammarError(f"Invalid TRES specification: {word}")
    return out
