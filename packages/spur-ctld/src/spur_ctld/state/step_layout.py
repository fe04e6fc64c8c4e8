"""Where the tasks of a step go inside its job's allocation.  Pure.

A step takes all CPUs and memory that its job has on the nodes it uses; an exact one (`--exact`, or a number
of CPUs per task) only what it asks for; an overlapping one shares, and never waits.  GPUs and other gres that
were not asked for come along: to a step that takes whole nodes for itself, to the others shared.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from spur_core.errors import GrammarError
from spur_ctld.state import distribution
from spur_ctld.state.distribution import NO_BOUND, Distribution
from spur_ctld.state.ops import Refusal
from spur_ctld.state.records import Gres, Slice, Step, StepAsk

#: More tasks than this in one step is a typing error.
MAX_TASKS: Final = 4_194_304

BUSY: Final = Refusal("busy", "Requested nodes are busy")
NO_SHAPE: Final = Refusal("bad_request", "Requested node configuration is not available")
TOO_MANY: Final = Refusal("bad_request", "More processors requested than permitted")
NO_MEMORY: Final = Refusal("bad_request", "Memory required by task is not available")
NO_GRES: Final = Refusal("bad_request", "Invalid generic resource (gres) specification")
BAD_TASKS: Final = Refusal("bad_request", "Task count specification invalid")
BAD_NODES: Final = Refusal("bad_request", "Node count specification invalid")
BAD_CPUS: Final = Refusal("bad_request", "CPU count specification invalid")


class Held(NamedTuple):
    """What steps hold for themselves on one node."""

    cpus: int = 0
    memory_mb: int = 0
    gres: Mapping[tuple[str, str], int] = {}


class Placed(NamedTuple):
    """The step's slices in its node order, and how it was understood."""

    slices: tuple[Slice, ...]
    num_tasks: int
    cpus_per_task: int
    exact: bool
    gres_shared: bool


class _Site(NamedTuple):
    """A node that may take part: what the job has there, and what is left of it for this step."""

    whole: Slice
    #: None = the node is not to be had now.
    free: Held | None


def held_by(steps: Iterable[Step], own: Iterable[Slice] = ()) -> dict[str, Held]:
    """What is taken inside an allocation, by node.

    Args:
        own: slices that the job's own tasks use (a stand-alone srun's).
    """
    found: dict[str, Held] = {}
    for part in own:
        _add(found, part, with_gres=True)
    for step in steps:
        if step.overlap:
            continue
        for part in step.slices:
            if part.node not in step.exits and part.node not in step.gone:
                _add(found, part, with_gres=not step.gres_shared)
    return found


def _add(found: dict[str, Held], part: Slice, *, with_gres: bool) -> None:
    held = found.get(part.node, Held())
    gres = dict(held.gres)
    for item in part.gres if with_gres else ():
        gres[item.name, item.type] = gres.get((item.name, item.type), 0) + item.count
    found[part.node] = Held(held.cpus + part.cpus, held.memory_mb + part.memory_mb, gres)


def place(
    ask: StepAsk, parts: Sequence[Slice], held: Mapping[str, Held], closed: Collection[str] = ()
) -> Placed | Refusal:
    """Place the tasks.

    Args:
        parts: what the job has, in allocation order.
        held: what other steps hold.
        closed: nodes of the allocation that take no more steps.

    Returns:
        Where they go; `BUSY` when they would fit with nothing held; else why they never will.
    """
    if refusal := _absurd(ask):
        return refusal
    try:
        how = distribution.parse(ask.distribution)
    except GrammarError as error:
        return Refusal("bad_value", error.text)
    names = [part.node for part in parts]
    required = tuple(dict.fromkeys(ask.nodelist))
    open_names = names[ask.relative or 0 :]
    excluded = set(ask.exclude) | set(closed)
    open_names = [name for name in open_names if name not in excluded]
    if not open_names or not set(required) <= set(open_names):
        return NO_SHAPE
    if ask.max_nodes is not None and len(required) > ask.max_nodes:
        return NO_SHAPE
    exact = ask.exact or ask.cpus_per_task is not None
    by_name = {part.node: part for part in parts}
    sites = [_site(by_name[name], held.get(name, Held()), ask, exact) for name in open_names]
    plan = _arbitrary(ask, required, sites) if how.kind == "arbitrary" else _spread(ask, required, sites, how)
    if isinstance(plan, Refusal):
        return plan
    shared = ask.gres is None and not ask.gres_per_task and (exact or ask.overlap)
    slices = tuple(_slice(site, own, ask, exact=exact) for site, own in plan)
    tasks = sum(len(own) for _, own in plan)
    return Placed(slices, tasks, ask.cpus_per_task or 1, exact, shared)


def _absurd(ask: StepAsk) -> Refusal | None:
    for value, refusal in (
        (ask.num_tasks, BAD_TASKS),
        (ask.tasks_per_node, BAD_TASKS),
        (ask.min_nodes, BAD_NODES),
        (ask.max_nodes, BAD_NODES),
        (ask.cpus_per_task, BAD_CPUS),
    ):
        if value is not None and not 0 < value <= MAX_TASKS:
            return refusal
    if ask.max_nodes is not None and ask.max_nodes < (ask.min_nodes or 1):
        return BAD_NODES
    return None


def _site(part: Slice, held: Held, ask: StepAsk, exact: bool) -> _Site:
    if ask.overlap:
        return _Site(part, Held(part.cpus, part.memory_mb, _gres(part.gres)))
    if not exact and held.cpus:
        return _Site(part, None)
    gres = _gres(part.gres)
    for key, count in held.gres.items():
        gres[key] = gres.get(key, 0) - count
    return _Site(part, Held(part.cpus - held.cpus, part.memory_mb - held.memory_mb, gres))


def _gres(items: Iterable[Gres]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for item in items:
        found[item.name, item.type] = found.get((item.name, item.type), 0) + item.count
    return found


def _room(part: Slice, left: Held | None, ask: StepAsk) -> int:
    """Tasks that fit on a node of which `left` is to be had."""
    if left is None:
        return 0
    each = ask.cpus_per_task or 1
    exact = ask.exact or ask.cpus_per_task is not None
    room = NO_BOUND if ask.overcommit and left.cpus else left.cpus // each
    if part.memory_mb:
        if ask.memory_per_node_mb and ask.memory_per_node_mb > left.memory_mb:
            return 0
        if ask.memory_per_node_mb == 0 and left.memory_mb < part.memory_mb:
            return 0
        if ask.memory_per_cpu_mb:
            if exact:
                room = min(room, left.memory_mb // (ask.memory_per_cpu_mb * each))
            elif ask.memory_per_cpu_mb * part.cpus > left.memory_mb:
                return 0
    if ask.gres is not None and _take(left.gres, ask.gres) is None:
        return 0
    if ask.gres_per_task:
        room = min(room, _tasks_with_gres(left, ask))
    return room if ask.tasks_per_node is None else min(room, ask.tasks_per_node)


def _take(have: Mapping[tuple[str, str], int], want: Iterable[Gres]) -> tuple[Gres, ...] | None:
    """The items of `have` that meet `want`, or None; an item without a type may be of any."""
    left = dict(have)
    taken: dict[tuple[str, str], int] = {}
    # Typed wishes first: the others can do with what they leave.
    for item in sorted(want, key=lambda wish: (not wish.type, wish.name, wish.type)):
        missing = item.count
        for key in sorted(left):
            if key[0] != item.name or (item.type and key[1] != item.type):
                continue
            part = min(missing, left[key])
            if part > 0:
                left[key] -= part
                taken[key] = taken.get(key, 0) + part
                missing -= part
        if missing > 0:
            return None
    return tuple(Gres(name=name, type=kind, count=count) for (name, kind), count in sorted(taken.items()))


def _want(ask: StepAsk, tasks: int) -> tuple[Gres, ...]:
    """What so many tasks of the step ask for on one node."""
    each = (msgspec.structs.replace(item, count=item.count * tasks) for item in ask.gres_per_task)
    return (*(ask.gres or ()), *each)


def _tasks_with_gres(left: Held, ask: StepAsk) -> int:
    """How many tasks the gres of a node is enough for."""
    have: dict[str, int] = {}
    for (name, _), count in left.gres.items():
        have[name] = have.get(name, 0) + count
    most = min(have.get(item.name, 0) // item.count for item in ask.gres_per_task)
    while most > 0 and _take(left.gres, _want(ask, most)) is None:
        most -= 1
    return max(most, 0)


_Plan = list[tuple[_Site, tuple[int, ...]]]


def _spread(
    ask: StepAsk, required: Collection[str], sites: Sequence[_Site], how: Distribution
) -> _Plan | Refusal:
    whole = [_room(site.whole, _all_of(site.whole), ask) for site in sites]
    if refusal := _never(ask, required, sites, whole):
        return refusal
    free = [_room(site.whole, site.free, ask) for site in sites]
    chosen = _choose(ask, required, sites, free)
    if chosen is None:
        return BUSY
    tasks, picked = chosen
    given = distribution.counts([free[at] for at in picked], tasks, how)
    used = [(at, count) for at, count in zip(picked, given, strict=True) if count]
    dealt = distribution.ranks([count for _, count in used], how)
    return [(sites[at], own) for (at, _), own in zip(used, dealt, strict=True)]


def _all_of(part: Slice) -> Held:
    return Held(part.cpus, part.memory_mb, _gres(part.gres))


def _never(
    ask: StepAsk, required: Collection[str], sites: Sequence[_Site], whole: Sequence[int]
) -> Refusal | None:
    """Why it does not fit even with nothing held; None when it does."""
    if _choose(ask, required, sites, whole) is not None:
        return None
    bare = StepAsk(
        num_tasks=ask.num_tasks,
        min_nodes=ask.min_nodes,
        max_nodes=ask.max_nodes,
        cpus_per_task=ask.cpus_per_task,
        tasks_per_node=ask.tasks_per_node,
        overcommit=ask.overcommit,
        nodelist=ask.nodelist,
    )
    room = [_room(site.whole, _all_of(site.whole), bare) for site in sites]
    if _choose(bare, required, sites, room) is None:
        low = _fewest(ask, required, len(sites))
        return NO_SHAPE if low > len(sites) else TOO_MANY
    if ask.gres is not None and any(_take(_gres(s.whole.gres), ask.gres) is None for s in sites):
        return NO_GRES
    if ask.gres_per_task and _choose(_without_gres(ask), required, sites, _whole(ask, sites)) is not None:
        return NO_GRES
    return NO_MEMORY


def _without_gres(ask: StepAsk) -> StepAsk:
    return msgspec.structs.replace(ask, gres=None, gres_per_task=())


def _whole(ask: StepAsk, sites: Sequence[_Site]) -> list[int]:
    """Tasks that fit on whole nodes if gres did not matter."""
    bare = _without_gres(ask)
    return [_room(site.whole, _all_of(site.whole), bare) for site in sites]


def _fewest(ask: StepAsk, required: Collection[str], sites: int) -> int:
    low = ask.min_nodes
    if low is None:
        low = len(required) or (sites if ask.num_tasks is None else 1)
        if ask.max_nodes is not None:
            low = min(low, ask.max_nodes)
    low = max(low, len(required))
    return low if ask.num_tasks is None else min(low, ask.num_tasks)


def _choose(
    ask: StepAsk, required: Collection[str], sites: Sequence[_Site], room: Sequence[int]
) -> tuple[int, list[int]] | None:
    """(tasks, places of the nodes in `sites`): the fewest nodes that hold all tasks, in allocation order; the
    first ones if they will do, else the roomiest."""
    low = _fewest(ask, required, len(sites))
    each = ask.tasks_per_node or 1
    least = each if ask.num_tasks is None else 1
    usable = [at for at, tasks in enumerate(room) if tasks >= least]
    musts = [at for at, site in enumerate(sites) if site.whole.node in required]
    if not set(musts) <= set(usable):
        return None
    others = [at for at in usable if sites[at].whole.node not in required]
    high = len(sites) if ask.max_nodes is None else ask.max_nodes
    if ask.num_tasks is None:
        if len(usable) < low:
            return None
        picked = sorted((musts + others)[:low])
        return each * len(picked), picked
    tasks = ask.num_tasks
    high = min(high, tasks)
    if len(musts) > high or low > len(usable):
        return None
    best = musts + sorted(others, key=lambda at: (-room[at], at))
    size, held = 0, 0
    while size < len(best) and size < high and (size < low or held < tasks):
        held += room[best[size]]
        size += 1
    if held < tasks or size < max(low, len(musts)):
        return None
    first = musts + others
    if sum(room[at] for at in first[:size]) >= tasks:
        best = first
    return tasks, sorted(best[:size])


def _arbitrary(ask: StepAsk, required: Sequence[str], sites: Sequence[_Site]) -> _Plan | Refusal:
    """The list of nodes names the place of each task."""
    tasks = len(ask.nodelist) if ask.num_tasks is None else ask.num_tasks
    if not required or tasks > len(ask.nodelist):
        return NO_SHAPE
    places: dict[str, list[int]] = {}
    for rank, name in enumerate(ask.nodelist[:tasks]):
        places.setdefault(name, []).append(rank)
    by_name = {site.whole.node: site for site in sites}
    plan: _Plan = []
    busy = False
    for name, own in places.items():
        site = by_name[name]
        if _room(site.whole, _all_of(site.whole), ask) < len(own):
            return TOO_MANY
        busy = busy or _room(site.whole, site.free, ask) < len(own)
        plan.append((site, tuple(own)))
    return BUSY if busy else plan


def _slice(site: _Site, own: tuple[int, ...], ask: StepAsk, *, exact: bool) -> Slice:
    """What the step gets on one node."""
    left = site.free
    assert left is not None
    cpus = max(1, min(len(own) * (ask.cpus_per_task or 1), left.cpus)) if exact else left.cpus
    if ask.memory_per_node_mb:
        memory = ask.memory_per_node_mb
    elif ask.memory_per_cpu_mb:
        memory = ask.memory_per_cpu_mb * cpus
    elif exact and ask.memory_per_node_mb is None:
        # Nothing was asked for: it lives within its job's memory.
        memory = 0
    else:
        memory = max(0, left.memory_mb)
    if ask.gres_per_task:
        keep = _take(left.gres, _want(ask, len(own))) or ()
    elif ask.gres is None:
        # The agent chooses a step's own among those of its job.
        shared = (msgspec.structs.replace(item, indices="") for item in site.whole.gres)
        keep = tuple(shared) if exact or ask.overlap else _left(left.gres)
    else:
        keep = _take(left.gres, ask.gres) or ()
    return Slice(node=site.whole.node, cpus=cpus, memory_mb=memory, gres=keep, ranks=own)


def _left(have: Mapping[tuple[str, str], int]) -> tuple[Gres, ...]:
    return tuple(
        Gres(name=name, type=kind, count=count) for (name, kind), count in sorted(have.items()) if count > 0
    )
