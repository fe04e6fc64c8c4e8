"""Frozen values with named, typed fields that travel as JSON objects.

The supervisor may import neither `dataclasses` nor `typing` (start-up time and memory), so this is the
small part of them that the local protocol needs.  A subclass lists its fields as annotations; the type
checker sees a frozen keyword-only dataclass, and `from_json` checks every value by the same annotations.

Unknown keys are ignored and missing ones take their default, so that an agent and a supervisor may differ
by one release.  Texts are kept as Python keeps undecodable bytes (surrogateescape), so an environment or
a path that is not UTF-8 survives the trip.
"""

from __future__ import annotations

from spur_core.ids import U32_MAX, RuntimeId
from spur_core.lean import MappingProxyType
from spur_proto_lite.errors import BadDocument

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, ClassVar, Self, dataclass_transform
else:

    def dataclass_transform(**_options):
        return lambda cls: cls


#: An empty mapping for defaults.
EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """Base of every document and message.  Equality is by class and fields."""

    #: Field name -> annotation text, filled in for each subclass.
    _kinds: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls) -> None:
        own = {
            name: kind
            for name, kind in cls.__dict__.get("__annotations__", {}).items()  # noqa: RUF063 - inspect is heavy
            if not kind.startswith("ClassVar")
        }
        cls._kinds = {**cls._kinds, **own}

    def __init__(self, **values: object) -> None:
        for name in self._kinds:
            if name in values:
                self.__dict__[name] = values.pop(name)
            elif not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} needs {name}")
        if values:
            raise TypeError(f"{type(self).__name__} has no field {next(iter(values))}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is frozen")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._kinds)

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._kinds)
        return f"{type(self).__name__}({shown})"

    def replace(self, **changes: object) -> Self:
        """A copy with some fields changed."""
        values = {name: getattr(self, name) for name in self._kinds}
        values.update(changes)
        return type(self)(**values)

    def to_json(self) -> dict[str, object]:
        """A fresh JSON object with every field."""
        return {name: _plain(getattr(self, name)) for name in self._kinds}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The record that `value`, a decoded JSON object, describes.

        Raises:
            BadDocument: not an object, a field of another type, or a missing field without a default.
        """
        if not isinstance(value, dict):
            raise BadDocument(f"{cls.__name__}: an object is needed, not {type(value).__name__}")
        values: dict[str, Any] = {}
        for name, kind in cls._kinds.items():
            if name in value:
                values[name] = _checked(f"{cls.__name__}.{name}", kind, value[name])
            elif not hasattr(cls, name):
                raise BadDocument(f"{cls.__name__}.{name} is missing")
        return cls(**values)


def _plain(value: object) -> object:
    """`value` as JSON keeps it."""
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, RuntimeId):
        return rid_to_json(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict | MappingProxyType):
        return {key: _plain(item) for key, item in value.items()}
    return value


#: Record classes that may stand as a field of another one, by name.
_NESTED: dict[str, type[Record]] = {}


def nests(cls: type[Record]) -> None:
    """Let `cls` be the type of a field of a later record."""
    _NESTED[cls.__name__] = cls


def _checked(where: str, kind: str, value: object) -> object:
    """`value` if it is of `kind`, brought into our own types.

    Raises:
        BadDocument: it is not.
    """
    if kind.endswith(" | None"):
        return None if value is None else _checked(where, kind[: -len(" | None")], value)
    if kind.startswith("tuple[") and kind.endswith(", ...]"):
        if not isinstance(value, list):
            raise BadDocument(f"{where}: a list is needed")
        inner = kind[len("tuple[") : -len(", ...]")]
        return tuple([_checked(f"{where}[{at}]", inner, item) for at, item in enumerate(value)])
    if kind == "Mapping[str, str]":
        return _checked_mapping(where, value)
    if kind == "RuntimeId":
        return rid_from_json(value)
    if kind in _NESTED:
        return _NESTED[kind].from_json(value)
    return _SCALARS[kind](where, value)


def _checked_mapping(where: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadDocument(f"{where}: an object is needed")
    for key, item in value.items():
        if not isinstance(item, str):
            raise BadDocument(f"{where}.{key}: a text is needed")
    return dict(value)


def _int(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadDocument(f"{where}: a whole number is needed")
    return value


def _float(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadDocument(f"{where}: a number is needed")
    return float(value)


def _bool(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadDocument(f"{where}: true or false is needed")
    return value


def _str(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadDocument(f"{where}: a text is needed")
    return value


_SCALARS: dict[str, Callable[[str, object], object]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
}


def rid_to_json(rid: RuntimeId) -> dict[str, object]:
    """`{job_id, run_attempt, step_id}`."""
    return {"job_id": rid.job_id, "run_attempt": rid.run_attempt, "step_id": rid.step_id}


def rid_from_json(value: object) -> RuntimeId:
    """The RuntimeId of `rid_to_json`; all three parts must be there.

    Raises:
        BadDocument: a part is missing or is no unsigned 32-bit number.
    """
    if not isinstance(value, dict):
        raise BadDocument("rid: an object is needed")
    parts = []
    for name in ("job_id", "run_attempt", "step_id"):
        number = _int(f"rid.{name}", value.get(name))
        if not 0 <= number <= U32_MAX:
            raise BadDocument(f"rid.{name}: out of range")
        parts.append(number)
    return RuntimeId(*parts)
