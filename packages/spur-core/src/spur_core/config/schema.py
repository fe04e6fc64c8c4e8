"""How a section says what its keys are, and how a TOML table becomes a section.

A section is a frozen dataclass whose fields are made by `key`.  `Reader` fills one from a table and
collects every problem instead of stopping at the first.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from spur_core.errors import GrammarError

Section = TypeVar("Section")
#: A TOML value to its stored form.
Convert = Callable[[Any], Any]


class Spec(NamedTuple):
    """What is known of one key.  `live`: a reconfigure applies it; otherwise a restart does."""

    convert: Convert
    doc: str
    live: bool
    #: What the sample file shows for a key whose default cannot be written.
    example: object
    required: bool
    #: The dataclass of a sub-table, or of each table in a list.
    table: "type[Any] | None" = None
    is_list: bool = False
    #: Its value never appears in a message.
    secret: bool = False


class Seen(NamedTuple):
    """A key found in the file: dotted path without list positions, where it stands, value, default."""

    path: str
    where: str
    value: object
    default: object


def key(
    default: object,
    convert: Convert,
    doc: str,
    *,
    live: bool = False,
    example: object = None,
    required: bool = False,
    secret: bool = False,
) -> Any:
    """One plain key of a section."""
    metadata = {"spec": Spec(convert, doc, live, example, required, secret=secret)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def table(cls: type[Any], doc: str) -> Any:
    """A sub-table `[name]`."""
    metadata = {"spec": Spec(_unused, doc, False, None, False, cls)}
    return dataclasses.field(default_factory=cls, metadata=metadata)


def tables(cls: type[Any], doc: str) -> Any:
    """A list of tables `[[name]]`."""
    metadata = {"spec": Spec(_unused, doc, False, None, False, cls, True)}
    return dataclasses.field(default=(), metadata=metadata)


def _unused(value: object) -> object:
    return value


def specs(cls: type[Any]) -> dict[str, Spec]:
    """The keys of a section by name, in the order of its definition."""
    return {field.name: field.metadata["spec"] for field in dataclasses.fields(cls)}


def shown(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    if isinstance(value, dict):
        inner = ", ".join(f"{shown(name)} = {shown(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return str(value)


class Reader:
    """Reads one document.

    Attributes:
        problems: one line each, in file order.
        seen: every known key of the file whose value could be read.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.seen: list[Seen] = []

    def read(
        self, cls: type[Section], table: Mapping[str, object], path: str = "", where: str = ""
    ) -> Section:
        """`cls` filled from `table`; a key that cannot be read has its default and left a problem."""
        known = specs(cls)
        defaults = {field.name: _default(field) for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        for name, raw in table.items():
            spec = known.get(name)
            if spec is None:
                self._unknown(name, raw, known, where)
            elif spec.table is not None:
                values[name] = self._nested(spec, name, raw, f"{path}{name}.")
            else:
                label = f"{where}{name} = {'(hidden)' if spec.secret else shown(raw)}"
                try:
                    values[name] = spec.convert(raw)
                except GrammarError as error:
                    self.problems.append(f"{label}: {error.text}")
                    continue
                self.seen.append(Seen(path + name, label, values[name], defaults[name]))
        for name, spec in known.items():
            if spec.required and name not in table:
                self.problems.append(f"{where}{name} is required")
        return cls(**{**defaults, **values})

    def _nested(self, spec: Spec, name: str, raw: object, path: str) -> Any:
        assert spec.table is not None
        outer = path.rstrip(".")
        if not spec.is_list:
            if isinstance(raw, dict):
                return self.read(spec.table, raw, path, f"[{outer}] ")
            self.problems.append(f"{name} must be a table: write [{outer}]")
            return spec.table()
        if not isinstance(raw, list) or not all(isinstance(item, dict) for item in raw):
            self.problems.append(f"{name} must be a list of tables: write [[{outer}]]")
            return ()
        return tuple(
            self.read(spec.table, item, path, f"[[{outer}]] {_title(item, at)} ")
            for at, item in enumerate(raw)
        )

    def _unknown(self, name: str, raw: object, known: Mapping[str, Spec], where: str) -> None:
        # Imported here: only a faulty file pays for it.
        from difflib import get_close_matches

        is_section = not where and isinstance(raw, (dict, list))
        alike = [other for other, spec in known.items() if where or (spec.table is not None) == is_section]
        close = get_close_matches(name.lower(), alike, n=1, cutoff=0.6)
        label = f"[{name}] is an unknown section" if is_section else f"{where}{name} is an unknown key"
        if not close:
            self.problems.append(label)
        elif is_section:
            self.problems.append(f"{label}; did you mean [{close[0]}]?")
        else:
            self.problems.append(f"{label}; did you mean {close[0]}?")


def _title(item: Mapping[str, object], at: int) -> str:
    for naming in ("name", "names"):
        if isinstance(item.get(naming), str) and item[naming]:
            return shown(item[naming])
    return f"#{at + 1}"


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default
