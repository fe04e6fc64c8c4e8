"""Names for what a dispatch takes: which CPUs and which devices of a node.  Pure.

The planner counts.  Names are given while the dispatch is applied, so they are never stale, and each replica
gives the same.  Nothing is refused for want of a name: a slice without one is chosen by the node's agent, and
as long as one holds something there the next ones are, too, because nobody here knows what it got.
"""

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final

import msgspec

from spur_core.grammar import idlist
from spur_ctld.state.cluster import ClusterState, NodeUse
from spur_ctld.state.inventory import DeviceSet, Inventory
from spur_ctld.state.records import Gres, Slice
from spur_sched import devices

#: The version of commands since which a dispatch gives names.
SINCE: Final = 4
#: Of one resource on one node; of what there is more, only the number counts.
MOST_DEVICES: Final = 4096

#: Of a list of CPUs or devices; there are few different ones, and they are asked for often.
mask = lru_cache(maxsize=1 << 16)(idlist.mask_of)


def named(state: ClusterState, part: Slice) -> Slice:
    """The slice with names, as far as they can be given."""
    node = state.nodes.get(part.node)
    if node is None or node.inventory is None:
        return part
    use = state.use.get(part.node)
    if use is None or not use.parts:
        # The same on all empty nodes of a make.
        names = _of_empty(node.inventory, part.cpus, part.gres)
    else:
        names = _choose(node.inventory, part, use.parts.values())
    if names is None:
        return part
    return msgspec.structs.replace(part, cpu_ids=names[0], gres=names[1])


#: CPUs and the named gres of a slice; None = no names can be given.
_Names = tuple[str, tuple[Gres, ...]] | None


@lru_cache(maxsize=4096)
def _of_empty(said: Inventory, cpus: int, gres: tuple[Gres, ...]) -> _Names:
    return _choose(said, Slice(node="", cpus=cpus, gres=gres), ())


def _choose(said: Inventory, part: Slice, held: Iterable[Slice]) -> _Names:
    inventory = _inventory(said)
    known = {(one.name, one.type) for one in inventory.devices}
    wishes = [item for item in part.gres if item.count and (item.name, item.type) in known]
    taken = _taken(held, {item.name for item in wishes}, part.layer)
    if taken is None:
        return None
    found = devices.choose(
        inventory, taken, part.cpus, [(item.name, item.type, item.count) for item in wishes]
    )
    if found is None:
        return None
    indices = dict(zip(((one.name, one.type) for one in wishes), found.devices, strict=True))
    return (
        idlist.text_of(found.cpus),
        tuple(
            msgspec.structs.replace(item, indices=idlist.text_of(indices[item.name, item.type]))
            if item.count and (item.name, item.type) in indices
            else item
            for item in part.gres
        ),
    )


def in_use(use: NodeUse, cpu_ids: str, job_id: int) -> bool:
    """Whether one of these CPUs is another job's now."""
    mine = mask(cpu_ids)
    return bool(mine) and any(
        part.cpus and mask(part.cpu_ids) & mine for other, part in use.parts.items() if other != job_id
    )


def _taken(held: Iterable[Slice], wanted: Collection[str], layer: int) -> devices.Taken | None:
    """What the slices on a node have; None when nobody knows what one of them has of CPUs or of `wanted`.

    Args:
        layer: of shared CPUs; those of other layers may be given once more, the least shared ones first.
    """
    cpus = 0
    tiers: list[int] = []
    cards: dict[str, int] = {}
    for part in held:
        mine = mask(part.cpu_ids)
        if not mine:
            return None
        if part.cpus and (not part.layer or part.layer == layer):
            cpus |= mine
        else:
            _stack(tiers, mine)
        for item in part.gres:
            if item.indices:
                cards[item.name] = cards.get(item.name, 0) | mask(item.indices)
            elif item.count and item.name in wanted:
                return None
    return devices.Taken(cpus, tuple(tiers), cards)


def _stack(tiers: list[int], mine: int) -> None:
    """Count one more on each of these CPUs: `tiers[n]` are the CPUs with n + 1."""
    for at in range(len(tiers) - 1, -1, -1):
        both = tiers[at] & mine
        if both:
            if at + 1 == len(tiers):
                tiers.append(0)
            tiers[at] ^= both
            tiers[at + 1] |= both
            mine ^= both
    if not tiers:
        tiers.append(0)
    tiers[0] |= mine


@lru_cache(maxsize=1024)
def _inventory(said: Inventory) -> devices.Inventory:
    return devices.Inventory(
        tuple(_socket(threads) for threads in said.sockets), tuple(_devices(one) for one in said.devices)
    )


def _socket(threads: tuple[str, ...]) -> devices.Socket:
    cores = zip(*(idlist.numbers(idlist.mask_of(text)) for text in threads), strict=True)
    return tuple(idlist.mask_from(core) for core in cores)


def _devices(one: DeviceSet) -> devices.DeviceSet:
    return devices.DeviceSet(
        one.name, one.type, idlist.mask_of(one.indices), one.link, idlist.mask_of(one.near)
    )


def problem(said: Inventory, cpus: int, gres: Iterable[Gres]) -> str:
    """What is wrong with an inventory beside the counts of its node; empty = nothing.

    Raises:
        GrammarError: a list is none.
    """
    try:
        made = _inventory(said)
    except ValueError:
        return "a socket's lists of threads differ in length"
    cores = [core for socket in made.sockets for core in socket]
    found, counts = devices.total(made)
    if found != cpus or not devices.disjoint(cores):
        return f"the sockets have {found} CPUs, the node {cpus}"
    have = {(item.name, item.type): item.count for item in gres}
    for key, count in counts.items():
        if count != have.get(key, 0):
            return f"{count} devices {':'.join(key).rstrip(':')}, the node has {have.get(key, 0)}"
        if count > MOST_DEVICES:
            return f"more than {MOST_DEVICES} devices of a kind"
    names = {one.name for one in made.devices}
    if not all(devices.disjoint(o.mask for o in made.devices if o.name == name) for name in names):
        return "a device is in two sets"
    return ""
