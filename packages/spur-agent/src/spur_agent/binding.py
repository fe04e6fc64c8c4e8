"""Which CPUs and which GPUs of a step each of its tasks on this node gets.  Pure.

`--cpu-bind` is `[verbose,|quiet,]TYPE[:LIST]`.  Entries of a list belong to tasks by local rank and repeat
when there are more tasks; `ENTRY*COUNT` stands for so many of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from spur_core.errors import RequestError

#: CPUs of one task; empty = those of the step.
Cpus = tuple[int, ...]

_GROUPED: Final = ("threads", "cores", "sockets", "ldoms")
_LISTED: Final = ("map_cpu", "mask_cpu")
_PLAIN: Final = ("none", "rank", *_GROUPED)
_HIGHEST_CPU: Final = 1 << 16
#: Entries of a list, repetitions counted: `0*65536` again and again would fill the agent's memory.
_MOST_ENTRIES: Final = 1 << 16


class Places(NamedTuple):
    """Where logical CPUs are: by number of the CPU, something that is the same for those in one place."""

    core: Mapping[int, object]
    socket: Mapping[int, object]
    ldom: Mapping[int, object]


NOWHERE: Final = Places({}, {}, {})


class CpuBind(NamedTuple):
    """A parsed `--cpu-bind`.  `kind` is "" when only words about verbosity were given."""

    kind: str
    entries: tuple[Cpus, ...] = ()
    verbose: bool = False


class BoundTasks(NamedTuple):
    """What tasks are bound to, one entry per local rank; and how SLURM_CPU_BIND* tell it ("" = not bound)."""

    cpus: tuple[Cpus, ...]
    type_word: str
    list_word: str
    verbose: bool


def parse(text: str) -> CpuBind:
    """The meaning of `--cpu-bind`.

    Raises:
        RequestError: no such type, or a list that is none.
    """
    verbose, kind, entries = False, "", tuple[Cpus, ...]()
    rest = text.strip()
    while rest and not kind:
        word, _, rest = rest.partition(",")
        if word in ("q", "quiet", "v", "verbose"):
            verbose = word[0] == "v"
            continue
        kind, colon, first = word.partition(":")
        kind = "none" if kind == "no" else kind
        if kind in _LISTED and colon:
            read = _number if kind == "map_cpu" else _mask
            entries = _listed([first, *(rest.split(",") if rest else ())], read, text)
            rest = ""
        elif kind not in _PLAIN or colon or rest:
            raise RequestError(f"--cpu-bind={text}: use none, {', '.join(_PLAIN[1:])}, map_cpu:, mask_cpu:")
    return CpuBind(kind, entries, verbose)


def _listed(items: Sequence[str], read: Callable[[str], Cpus], whole: str) -> tuple[Cpus, ...]:
    """Every entry of a list.

    Raises:
        RequestError: one is none, or there are too many.
    """
    found: list[Cpus] = []
    for item in items:
        found.extend(_repeated(item, read, whole))
        if len(found) > _MOST_ENTRIES:
            raise RequestError(f"--cpu-bind={whole[:80]}: more than {_MOST_ENTRIES} entries")
    return tuple(found)


def _repeated(item: str, read: Callable[[str], Cpus], whole: str) -> list[Cpus]:
    entry, star, count = item.partition("*")
    try:
        times = int(count) if star else 1
        if not 1 <= times <= 1 << 16:
            raise ValueError
        return [read(entry)] * times
    except ValueError:
        raise RequestError(f"--cpu-bind={whole}: {item!r} is no entry of such a list") from None


def _number(text: str) -> Cpus:
    number = int(text, 0)
    if not 0 <= number < _HIGHEST_CPU:
        raise ValueError
    return (number,)


def _mask(text: str) -> Cpus:
    return bits(int(text, 16))


def bits(mask: int) -> Cpus:
    """The numbers of the bits that are set.

    Raises:
        ValueError: none is, or absurdly high ones.
    """
    if not 0 < mask < 1 << _HIGHEST_CPU:
        raise ValueError
    return tuple(number for number in range(mask.bit_length()) if mask >> number & 1)


def mask_of(cpus: Sequence[int]) -> str:
    """`0x5` for 0 and 2."""
    return f"0x{sum(1 << cpu for cpu in set(cpus)):X}"


def bind_cpus(
    bind: CpuBind, step: Sequence[int], tasks: int, cpus_per_task: int, places: Places
) -> BoundTasks:
    """The CPUs of each of `tasks` tasks.

    Args:
        step: CPUs of the step, real numbers; empty = they are not, so nothing can be bound.

    Raises:
        RequestError: an entry names only CPUs that the step does not have.
    """
    unbound: tuple[Cpus, ...] = ((),) * tasks
    if bind.kind in ("", "none") or not step:
        return BoundTasks(unbound, "none" if bind.kind == "none" else "", "", bind.verbose)
    if bind.kind in _LISTED:
        found = tuple(_allowed(bind.entries[rank % len(bind.entries)], step) for rank in range(tasks))
    elif bind.kind == "rank":
        found = tuple((step[rank % len(step)],) for rank in range(tasks))
    else:
        groups = _groups(bind.kind, step, places)
        found = tuple(_of_groups(groups, rank, max(cpus_per_task, 1)) for rank in range(tasks))
    return BoundTasks(found, "mask_cpu:", ",".join(mask_of(one) for one in found), bind.verbose)


def _allowed(wanted: Cpus, step: Sequence[int]) -> Cpus:
    found = tuple(cpu for cpu in wanted if cpu in step)
    if not found:
        raise RequestError(f"CPU binding outside of job step allocation, allocated CPUs are: {mask_of(step)}")
    return found


def _groups(kind: str, step: Sequence[int], places: Places) -> list[Cpus]:
    """The step's CPUs by place; CPUs of which nothing is known stand for themselves."""
    place = {"threads": {}, "cores": places.core, "sockets": places.socket, "ldoms": places.ldom}[kind]
    found: dict[object, list[int]] = {}
    for cpu in step:
        found.setdefault(place.get(cpu, ("cpu", cpu)), []).append(cpu)
    return [tuple(group) for group in found.values()]


def _of_groups(groups: Sequence[Cpus], rank: int, cpus_per_task: int) -> Cpus:
    """Consecutive groups that hold `cpus_per_task` CPUs; task after task, from the start again at the end."""
    each = -(-cpus_per_task // len(groups[0]))
    each = min(each, len(groups))
    first = rank * each
    return tuple(sorted({cpu for i in range(each) for cpu in groups[(first + i) % len(groups)]}))


def bind_gpus(text: str, per_task: int, ids: Sequence[int], tasks: int) -> tuple[tuple[int, ...], ...] | None:
    """The GPUs that each task sees; None when all of them see all.

    Args:
        text: `--gpu-bind`; numbers in it are places in the step's own list of GPUs.
        per_task: `--gpus-per-task`, 0 = not given.
        ids: GPUs of the step here, ascending.

    Raises:
        RequestError: no such binding.
    """
    word = text.strip().removeprefix("verbose,").removeprefix("verbose")
    kind, _, rest = word.partition(":")
    if not ids:
        return None
    if kind in ("", "none", "closest"):
        if kind or not per_task:
            return None
        kind, rest = "per_task", str(per_task)
    try:
        if kind == "map_gpu":
            entries = _listed(rest.split(","), _number, text)
        elif kind == "mask_gpu":
            entries = _listed(rest.split(","), _mask, text)
        elif kind == "per_task":
            count = _count(rest)
            count = min(count, len(ids))
            entries = tuple(
                tuple(place % len(ids) for place in range(rank * count, (rank + 1) * count))
                for rank in range(tasks)
            )
        elif kind == "single":
            # So many tasks share one device.
            count = _count(rest)
            entries = tuple((rank // count % len(ids),) for rank in range(tasks))
        else:
            raise ValueError
    except (ValueError, RequestError):
        raise RequestError(f"--gpu-bind={text}: there is no such binding") from None
    found = []
    for rank in range(tasks):
        places = entries[rank % len(entries)]
        mine = tuple(sorted({ids[place] for place in places if place < len(ids)}))
        if not mine:
            raise RequestError(f"--gpu-bind={text}: the step has only {len(ids)} GPUs here")
        found.append(mine)
    return tuple(found)


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number < _HIGHEST_CPU:
        raise ValueError
    return number
