"""The sample file: every key that has an effect, with its meaning and its default."""

import dataclasses
from typing import Any

from spur_core.config.model import Config
from spur_core.config.schema import Spec, shown, specs
from spur_core.config.unsupported import row_for

_HEADER = """\
# SPUR configuration, one file for controller, agents and commands.
# Usual place: /etc/spur/spur.conf.  Only cluster_name is required; a line that begins with "#key" shows
# the default (or an example, where it says so).  Check it with `spurctld --check-config`.
# Keys marked (live) are applied by `scontrol reconfigure`, the others by a restart.
"""
_ACTIVE = {"partitions.name", "partitions.default", "partitions.nodes", "cluster_name"}
_VALUES = {"partitions.name": "batch", "partitions.default": True, "partitions.nodes": "ALL"}


def render() -> str:
    """The text of `spur.conf.sample`."""
    lines = [_HEADER]
    # TOML wants the keys of the top level before the first section.
    for name, spec in sorted(specs(Config).items(), key=lambda item: item[1].table is not None):
        if spec.table is None:
            lines += _key(name, name, spec, _default(Config, name))
        else:
            lines += _section(name, spec)
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(path: str, spec: Spec) -> list[str]:
    assert spec.table is not None
    keys: list[str] = []
    inner: list[str] = []
    for name, sub in specs(spec.table).items():
        if sub.table is not None:
            inner += _section(f"{path}.{name}", sub)
        else:
            keys += _key(f"{path}.{name}", name, sub, _default(spec.table, name))
    if not keys:
        return inner
    heading = f"[[{path}]]" if spec.is_list else f"[{path}]"
    # A list entry exists as soon as its heading does, so an optional one is shown commented out.
    optional = spec.is_list and not any(f"{path}." in active for active in _ACTIVE)
    return ["", f"# {spec.doc}", f"{'#' if optional else ''}{heading}", *keys, *inner]


def _key(path: str, name: str, spec: Spec, default: object) -> list[str]:
    row = row_for(path)
    if row is not None and not row.partial:
        return []
    value = _VALUES.get(path, default)
    note = " (live)" if spec.live else ""
    if path not in _VALUES and spec.example is not None and default in (None, "", (), {}, 0):
        value = spec.example
        note += " (example)"
    if value is None:
        return [f"# {spec.doc}{note}: {name} = ..."]
    return [f"# {spec.doc}{note}", f"{'' if path in _ACTIVE else '#'}{name} = {shown(value)}"]


def _default(cls: type[Any], name: str) -> object:
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


if __name__ == "__main__":
    import sys

    sys.stdout.write(render())
