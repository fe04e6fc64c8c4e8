"""Which release understands what: operations and their fields by the version in which they came.

The log of a group is applied by several releases while it is upgraded.  Each announces `COMMAND_VERSION`, the
newest version that it applies; `ClusterState.command_version` is the one that the group uses.  The leader
raises it by an operation when every member has announced it, never before and never back.  Until then what
is newer does not enter the log.

Whoever adds to the operations follows four rules:

1. A new operation gets a row in `SINCE`, with `COMMAND_VERSION`.  Its proposer meets `ledger.NotYet` while
   the group is older: a caller's request may fail with that, what the controller does by itself asks
   `Ledger.takes` first.
2. A new field of an operation, or of any record inside of one, gets a default that means "as before" and is
   what most people's requests have.  An operation that sets it to anything else is held back like a new one.
   Those in `FITTED` go without it instead, because the group cannot do without them; they come again after
   the raise.  Nothing is to be written down: what `released` does not name is new.
3. When `apply` gives another result than the release before for an operation that it knew, the new rule goes
   behind `if state.command_version >= N`.  The old rule stays: replays of old logs must end as they did.
4. New tables of the state are written into snapshots only when there is something in them: a release that
   does not know them must be able to load one in which they were never used.

`COMMAND_VERSION` is raised by one for the first of these after a release.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec
import msgspec.inspect

from spur_core.errors import ConfigError
from spur_ctld.state import ops, released
from spur_ctld.state.records import Request

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

#: Newest version that this release applies.
COMMAND_VERSION: Final = 4
#: Of a state that does not say: from before versions were kept in it.
FIRST: Final = 3

#: Operation -> version in which it came.
SINCE: Final[dict[type[ops.Op], int]] = {
    ops.Configure: 1,
    ops.Submit: 1,
    ops.Cancel: 1,
    ops.Hold: 1,
    ops.Update: 1,
    ops.Requeue: 1,
    ops.DispatchBegin: 1,
    ops.DispatchCommit: 1,
    ops.DispatchAbort: 1,
    ops.FenceBegin: 1,
    ops.FenceConfirm: 1,
    ops.NodeComplete: 1,
    ops.TimeLimitSignalled: 1,
    ops.PendingReasons: 1,
    ops.Deadline: 1,
    ops.NodeRegister: 1,
    ops.NodeSilent: 1,
    ops.NodeBack: 1,
    ops.NodeDown: 1,
    ops.NodeUpdate: 1,
    ops.OutboxAck: 1,
    ops.Purge: 1,
    # Steps, allocations, suspension.
    ops.StepCreate: 2,
    ops.StepLaunched: 2,
    ops.StepCancel: 2,
    ops.StepGone: 2,
    ops.StepForget: 2,
    ops.AllocComplete: 2,
    ops.Suspend: 2,
    ops.SuspendTold: 2,
    ops.ClientSeen: 2,
    # 3: keys of requests, a field that older ones pass over.
    ops.RaiseCommandVersion: 4,
    ops.Preempt: 4,
    ops.PreemptTold: 4,
    ops.WarnBegin: 4,
    ops.WarnTold: 4,
    ops.ReservationCreate: 4,
    ops.ReservationUpdate: 4,
    ops.ReservationDelete: 4,
    ops.ReservationExpire: 4,
}

#: What the group cannot do without, so it goes without its newer fields.
FITTED: Final = (ops.Configure, ops.NodeRegister)


def needed(op: "ops.AnyOp") -> int:
    """The oldest version that carries out all of `op`."""
    return max(SINCE[type(op)], *_fields(op), 0)


def usable(kind: type[ops.Op], version: int) -> bool:
    """Whether a group that uses `version` takes such operations."""
    return SINCE[kind] <= version


def fitted(value: _Struct, version: int) -> _Struct:
    """`value` without what came after `version`."""
    return cast(_Struct, _fit(value, version))


def structs() -> dict[str, type[msgspec.Struct]]:
    """Every operation, and every record inside of one, by name."""
    found: dict[str, type[msgspec.Struct]] = {}

    def walk(kind: Any) -> None:
        if isinstance(kind, msgspec.inspect.StructType) and kind.cls.__name__ not in found:
            found[kind.cls.__name__] = kind.cls
            for field in kind.fields:
                walk(field.type)
        for name in ("types", "item_types"):
            for inner in getattr(kind, name, ()):
                walk(inner)
        for name in ("item_type", "key_type", "value_type"):
            if hasattr(kind, name):
                walk(getattr(kind, name))

    walk(msgspec.inspect.type_info(ops.AnyOp))
    return found


def newer(kind: type[msgspec.Struct]) -> dict[str, int]:
    """Fields of an operation or record -> version, of those that came after the record itself and `FIRST`."""
    if not released.known(kind.__name__):
        return {}
    rows = {name: released.since(kind.__name__, name) or COMMAND_VERSION for name in kind.__struct_fields__}
    return {name: version for name, version in rows.items() if version > FIRST}


def _fields(value: Any) -> Iterator[int]:
    """The versions of the fields that are set, `value`'s own and those of everything inside."""
    if isinstance(value, msgspec.Struct):
        for name, version in newer(type(value)).items():
            if getattr(value, name) != _default(type(value), name):
                yield version
        for name in value.__struct_fields__:
            yield from _fields(getattr(value, name))
        if isinstance(value, ops.Update):
            rows = newer(Request)
            yield from (rows[name] for name in value.changes if name in rows)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _fields(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _fields(item)


def _fit(value: Any, version: int) -> Any:
    if isinstance(value, msgspec.Struct):
        rows = newer(type(value))
        changes = {
            name: _default(type(value), name)
            if rows.get(name, 0) > version
            else _fit(getattr(value, name), version)
            for name in value.__struct_fields__
        }
        if isinstance(value, ops.Update):
            rows = newer(Request)
            changes["changes"] = {k: v for k, v in value.changes.items() if rows.get(k, 0) <= version}
        return msgspec.structs.replace(value, **changes)
    if isinstance(value, (tuple, list)):
        return type(value)(_fit(item, version) for item in value)
    if isinstance(value, Mapping):
        return {key: _fit(item, version) for key, item in value.items()}
    return value


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    found = {}
    for field in msgspec.structs.fields(kind):
        if field.default_factory is not msgspec.NODEFAULT:
            found[field.name] = field.default_factory()
        elif field.default is not msgspec.NODEFAULT:
            found[field.name] = field.default
    return found


def _default(kind: type[msgspec.Struct], name: str) -> Any:
    """Raises KeyError for a field without a default, which a later version cannot have added."""
    return _defaults(kind)[name]


# --- an older release, for tests ----------------------------------------------------------------------

_known = COMMAND_VERSION


def known() -> int:
    """The newest version that this process applies: `COMMAND_VERSION`, but in tests of upgrades."""
    return _known


def pretend(environ: Mapping[str, str] = os.environ) -> None:
    """Be an older release if `SPUR_TEST_COMMAND_VERSION` says so.  Called once at the start.

    Raises:
        ConfigError: it is set outside a test, or is no version.
    """
    global _known
    text = environ.get("SPUR_TEST_COMMAND_VERSION", "")
    if not text:
        return
    if environ.get("SPUR_TEST_FAULTS") != "1":
        raise ConfigError(
            "SPUR_TEST_COMMAND_VERSION is set but SPUR_TEST_FAULTS=1 is not: unset it, it is for tests only"
        )
    if not text.isdecimal() or not FIRST <= int(text) <= COMMAND_VERSION:
        raise ConfigError(f"SPUR_TEST_COMMAND_VERSION: {text!r} is not in {FIRST} to {COMMAND_VERSION}")
    _known = int(text)


if __name__ == "__main__":
    for name, kind in sorted(structs().items()):
        new = [field for field in kind.__struct_fields__ if released.since(name, field) is None]
        if new:
            sys.stdout.write(f'"{name}": "{" ".join(new)}",\n')
