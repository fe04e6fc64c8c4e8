"""The document around a tree: who made it, with which words; written as JSON or as YAML."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spur_cli.context import Context
    from spur_cli.options.engine import Parsed

#: The version of Slurm's data parser whose keys the trees have; older ones get the same trees.
PARSER = "data_parser/v0.0.44"
_ASKED = re.compile(r"v0\.0\.4[0-4](\+[a-z_]+)*")
LIST = "".join(f"data_parser/v0.0.{number}\n" for number in range(44, 39, -1))


def wanted(ctx: "Context", options: "Parsed") -> str:
    """ "json", "yaml", or "" when no document was asked for; the one given last wins.

    Raises:
        Stop: `list` was answered, or another parser was asked for.
    """
    from spur_cli.context import Stop

    given = [(name, value) for name, value in options.given if name in ("json", "yaml")]
    if not given:
        return ""
    name, value = given[-1]
    if value == "list":
        raise Stop(0, "Possible data_parser plugins:", *LIST.split())
    if value and not _ASKED.fullmatch(value.lower().removeprefix("data_parser/")):
        raise ctx.stop(f"--{name}={value}: no such data_parser; v0.0.40 to v0.0.44 are known")
    return name


def text(ctx: "Context", form: str, tree: Mapping[str, Any], *, cluster: str = "") -> str:
    """The whole document with its newline; `tree` first.

    Args:
        form: "json" or "yaml".
        tree: what the command tells, by root key.
        cluster: the cluster's name.
    """
    whole = {**tree, "meta": meta(ctx, cluster), "errors": [], "warnings": []}
    if form == "yaml":
        return "---\n" + "".join(f"{line}\n" for line in _yaml(whole, 0)) + "...\n"
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def meta(ctx: "Context", cluster: str) -> dict[str, Any]:
    """Who made the document."""
    from spur_cli.options.front import SLURM_VERSION
    from spur_cli.users import group_name, name_of

    release = SLURM_VERSION.partition(" ")[2]
    major, minor, micro = release.split(".")
    words = [ctx.name, *ctx.argv]
    return {
        "plugin": {
            "type": "",
            "name": "",
            "data_parser": PARSER,
            "accounting_storage": "accounting_storage/slurmdbd",
        },
        "client": {
            "source": _terminal(ctx.stdin),
            "user": name_of(os.getuid()),
            "group": group_name(os.getgid()),
        },
        "command": [word.encode("utf-8", "replace").decode() for word in words],
        "slurm": {
            "version": {"major": major, "micro": micro, "minor": minor},
            "release": release,
            "cluster": cluster,
        },
    }


def _terminal(fd: int) -> str:
    try:
        return os.ttyname(fd)
    except OSError:
        return ""


def _scalar(value: object) -> str:
    # A JSON string, number, true, false and null are the same in YAML.
    return json.dumps(value, ensure_ascii=False)


def _yaml(value: object, depth: int) -> Iterator[str]:
    """The lines of a block that is not empty."""
    pad = "  " * depth
    if isinstance(value, Mapping):
        for key, held in value.items():
            yield from _entry(f"{pad}{_key(key)}:", held, depth + 1)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from _entry(f"{pad}-", held, depth + 1)
    else:
        yield f"{pad}{_scalar(value)}"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_]+", key) else _scalar(key)


def _entry(head: str, held: object, depth: int) -> Iterator[str]:
    if isinstance(held, Mapping | list | tuple):
        if not held:
            yield f"{head} {{}}" if isinstance(held, Mapping) else f"{head} []"
            return
        yield head
        yield from _yaml(held, depth)
    else:
        yield f"{head} {_scalar(held)}"
