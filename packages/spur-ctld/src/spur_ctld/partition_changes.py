"""Changes of partitions at run time: words of `scontrol update partition` to records.  Pure.

Every value goes through what reads the same key of the configuration file, and what comes out must hold
together as the file must.  They stand until the file itself says something else (`settings.differs`).
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from spur_core.config import Config
from spur_core.config.rules import partitions as consistent
from spur_core.config.rules import priorities
from spur_core.config.sections import PartitionEntry, SchedulerSection
from spur_core.errors import GrammarError, RequestError
from spur_core.grammar.hostlist import expand
from spur_core.states import ACTIVE_STATES, JobState
from spur_ctld.settings import partition_record
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import Partition

_NONE: Final = frozenset({"none", "unlimited", "infinite", "-1"})
_SPECS: Final = {field.name: field.metadata["spec"] for field in dataclasses.fields(PartitionEntry)}


def _word(text: str) -> object:
    return text


def _lower(text: str) -> object:
    return text.lower()


def _number(text: str) -> object:
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    raise GrammarError("must be a whole number")


def _bound(text: str) -> object:
    return None if text.lower() in _NONE else _number(text)


def _duration(text: str) -> object:
    return "UNLIMITED" if text.lower() in _NONE else text


def _size(text: str) -> object:
    return 0 if text.lower() in _NONE else int(text) if text.isascii() and text.isdigit() else text


def _flag(text: str) -> object:
    if text.lower() not in ("yes", "no"):
        raise GrammarError("must be YES or NO")
    return text.lower() == "yes"


def _list(text: str) -> object:
    if text.lower() in ("", "all", "none"):
        return []
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


#: Slurm's key in lower case -> key of the file, and how its text becomes a value as the file has them.
KEYS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "allowaccounts": ("allow_accounts", _list),
    "allowgroups": ("allow_groups", _list),
    "allowqos": ("allow_qos", _list),
    "alternate": ("alternate", lambda text: "" if text.lower() == "none" else text),
    "default": ("default", _flag),
    "defaulttime": ("default_time", _duration),
    "defmempercpu": ("def_mem_per_cpu", _size),
    "defmempernode": ("def_mem_per_node", _size),
    "denyaccounts": ("deny_accounts", _list),
    "denyqos": ("deny_qos", _list),
    "disablerootjobs": ("disable_root_jobs", _flag),
    "exclusiveuser": ("exclusive_user", _flag),
    "gracetime": ("grace_time", _number),
    "lln": ("lln", _flag),
    "maxcpuspernode": ("max_cpus_per_node", _bound),
    "maxmempernode": ("max_mem_per_node", _size),
    "maxnodes": ("max_nodes", _bound),
    "maxtime": ("max_time", _duration),
    "minnodes": ("min_nodes", lambda text: max(1, int(str(_number(text))))),
    "nodes": ("nodes", _word),
    "oversubscribe": ("oversubscribe", _word),
    "preemptmode": ("preempt_mode", _lower),
    "priorityjobfactor": ("priority_job_factor", _number),
    "prioritytier": ("priority_tier", _number),
    "reqresv": ("req_resv", _flag),
    "rootonly": ("root_only", _flag),
    "shared": ("oversubscribe", _word),
    "state": ("state", _word),
}


def entry_of(record: Partition) -> PartitionEntry:
    """The entry of the configuration file that would give this record."""
    fields = {name: getattr(record, name) for name in _SPECS if hasattr(record, name)}
    fields["nodes"] = "ALL" if record.all_nodes else ",".join(record.nodes)
    fields["preempt_mode"] = record.preempt_mode.lower()
    return PartitionEntry(**fields)


def created(
    name: str, changes: Iterable[tuple[str, str]], state: ClusterState, *, multifactor: bool
) -> tuple[Partition, ...]:
    """All partitions with a new one behind them.

    Raises:
        RequestError: there is one of that name, or a value cannot be.
    """
    try:
        _SPECS["name"].convert(name)
    except GrammarError as error:
        raise RequestError(f"Invalid partition name specified: {error.text}") from None
    if name in state.partitions:
        raise RequestError(f"Partition name {name} is in use already")
    words = list(changes)
    if not any(key.lower() == "nodes" and value for key, value in words):
        raise RequestError("Nodes must be specified for a new partition")
    entries = [entry_of(one) for one in state.partitions.values()]
    return _with(entries, PartitionEntry(name=name), words, state, multifactor=multifactor)


def updated(
    name: str, changes: Iterable[tuple[str, str]], state: ClusterState, *, multifactor: bool
) -> tuple[Partition, ...]:
    """All partitions, one of them changed.

    Raises:
        RequestError: a value that cannot be.
    """
    words = list(changes)
    if not words:
        raise RequestError("No changes specified")
    entries = [entry_of(one) for one in state.partitions.values()]
    old = entry_of(state.partitions[name])
    return _with(entries, old, words, state, multifactor=multifactor)


def without(name: str, state: ClusterState) -> tuple[Partition, ...]:
    """All partitions but one.

    Raises:
        RequestError: a job waits or runs in it, or it takes the jobs of another one.
    """
    for job in state.jobs.values():
        alive = job.state is JobState.PENDING or job.state in ACTIVE_STATES
        if alive and name in (job.partition, *job.request.partitions):
            raise RequestError("Partition is in use")
    for one in state.partitions.values():
        if one.alternate == name:
            raise RequestError(f"Partition is in use: it is the Alternate of {one.name}")
    return tuple(one for one in state.partitions.values() if one.name != name)


def _with(
    entries: Sequence[PartitionEntry],
    old: PartitionEntry,
    words: Sequence[tuple[str, str]],
    state: ClusterState,
    *,
    multifactor: bool,
) -> tuple[Partition, ...]:
    fields = dict(_field(key, value) for key, value in words)
    entry = dataclasses.replace(old, **fields)
    unknown = [name for name in expand(entry.nodes) if name not in state.nodes] if not entry.all_nodes else []
    if "nodes" in fields and unknown:
        raise RequestError(f"Invalid node name specified: {unknown[0]}")
    others = [
        dataclasses.replace(one, default=False) if entry.default and one.name != entry.name else one
        for one in entries
    ]
    places = [place for place, one in enumerate(others) if one.name == entry.name]
    if places:
        others[places[0]] = entry
    else:
        others.append(entry)
    config = Config(
        partitions=tuple(others),
        scheduler=SchedulerSection(priority_type="multifactor" if multifactor else "basic"),
    )
    where = "[[partitions]] "
    for problem in (*consistent(config), *(text for text in priorities(config) if text.startswith(where))):
        raise RequestError(f"Partition {problem.removeprefix(where)}")
    return tuple(partition_record(one) for one in others)


def _field(key: str, value: str) -> tuple[str, Any]:
    found = KEYS.get(key.lower())
    if found is None:
        raise RequestError(f"Update of this parameter is not supported: {key[:64]}={value[:64]}")
    name, parse = found
    try:
        given = parse(value.strip())
        # What stands for nothing is what the file has by not having it.
        converted = None if given is None else _SPECS[name].convert(given)
    except GrammarError as error:
        raise RequestError(f"{key[:64]}={value[:64]}: {error.text}") from None
    return name, converted
