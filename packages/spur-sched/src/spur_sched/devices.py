"""Which CPUs and which devices of a node a job gets.  Pure, and the same on every machine.

Planning counts; this gives the counted things names.  CPUs and devices are masks: bit n stands for number n.

* Devices: all of one link group if one has enough of them, of those groups the one that is left the fullest;
  in a group those near the same CPUs first.
* CPUs: the ones near the chosen devices first.  All on one socket if one has enough, of those sockets the one
  that is left the fullest; on it whole cores first, and what is less than a core from cores in use already.

Replicas call this while they apply an entry of their log: an answer that changes from one release to the next
makes them differ.  A new rule goes behind a command version (`spur_ctld.state.versions`), as a parameter
here; `tests/test_devices_golden.py` keeps the old answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: A socket: the mask of each of its cores, in their order.
Socket = tuple[int, ...]
#: (name, type, count); an empty type takes any.
Wish = tuple[str, str, int]


class DeviceSet(NamedTuple):
    """Devices of one kind that share links and have the same CPUs near them.

    mask: their indices, counted over all types of that name.
    link: the same word = linked to each other; empty = to none but those of this set.
    near: CPUs; 0 = all alike.
    """

    name: str
    type: str
    mask: int
    link: str = ""
    near: int = 0


class Inventory(NamedTuple):
    """What a node has."""

    sockets: tuple[Socket, ...]
    devices: tuple[DeviceSet, ...] = ()


class Taken(NamedTuple):
    """What is not to be had.

    cpus: in use.
    late: CPUs that are given only when nothing else is left, the worst last: because somebody wants them
        back, or because others share them.
    devices: by name.
    """

    cpus: int = 0
    late: tuple[int, ...] = ()
    devices: Mapping[str, int] = {}


class Choice(NamedTuple):
    """What the job gets; `devices` has one mask for each wish, in their order."""

    cpus: int
    devices: tuple[int, ...] = ()


def choose(inventory: Inventory, taken: Taken, cpus: int, wishes: Sequence[Wish] = ()) -> Choice | None:
    """Exactly so many CPUs and devices, none of them taken; None when there are not so many."""
    picked = _devices(inventory.devices, taken.devices, wishes)
    if picked is None:
        return None
    masks, near = picked
    every = 0
    for socket in inventory.sockets:
        for core in socket:
            every |= core
    free = every & ~taken.cpus
    if cpus > free.bit_count():
        return None
    late = 0
    for mask in taken.late:
        late |= mask
    found = 0
    for tier in (~late, *taken.late):
        left = cpus - found.bit_count()
        if left:
            here = free & tier & ~found
            found |= _cpus(inventory.sockets, here, min(left, here.bit_count()), near)
    return Choice(found, masks)


# --- devices ---------------------------------------------------------------------------------------------


def _devices(
    sets: Sequence[DeviceSet], taken: Mapping[str, int], wishes: Sequence[Wish]
) -> tuple[tuple[int, ...], int] | None:
    """(mask of each wish, CPUs near what was chosen), or None."""
    used = dict(taken)
    masks = [0] * len(wishes)
    near = 0
    # Typed wishes first: an untyped one can make do with what they leave.
    for at in sorted(range(len(wishes)), key=lambda place: not wishes[place][1]):
        name, kind, count = wishes[at]
        if not count:
            continue
        free = [
            one._replace(mask=one.mask & ~used.get(name, 0))
            for one in sets
            if one.name == name and kind in ("", one.type)
        ]
        found = _linked([one for one in free if one.mask], count, near)
        if found is None:
            return None
        masks[at] = found
        used[name] = used.get(name, 0) | found
        for one in free:
            if one.mask & found:
                near |= one.near
    return tuple(masks), near


def _linked(free: Sequence[DeviceSet], count: int, near: int) -> int | None:
    """So many of `free`, of as few link groups as can be."""
    groups: dict[tuple[str, int], list[DeviceSet]] = {}
    for at, one in enumerate(free):
        # A set without a link word is a group of its own.
        groups.setdefault((one.link, 0 if one.link else at), []).append(one)
    found = 0
    left = list(groups.values())
    while count:
        if not left:
            return None
        best = _best(left, count, near)
        part = _within(left.pop(best), count, near)
        found |= part
        count -= part.bit_count()
    return found


def _best(groups: Sequence[Sequence[DeviceSet]], count: int, near: int) -> int:
    """The place of the group to take from: the smallest that is enough, else the largest; near `near`."""

    def key(at: int) -> tuple[bool, bool, int, int]:
        size = sum(one.mask.bit_count() for one in groups[at])
        far = bool(near) and not any(one.near & near for one in groups[at])
        return (size < count, far, size if size >= count else -size, at)

    return min(range(len(groups)), key=key)


def _within(group: Sequence[DeviceSet], count: int, near: int) -> int:
    """So many of one group, or all of it: of as few sets as can be, in each the lowest."""
    found = 0
    left = list(group)
    while left and count:
        best = _best([(one,) for one in left], count, near)
        part = lowest(left.pop(best).mask, count)
        found |= part
        count -= part.bit_count()
    return found


def lowest(mask: int, count: int) -> int:
    """The lowest `count` bits of a mask, or all of them."""
    if mask.bit_count() <= count:
        return mask
    found = 0
    for _ in range(count):
        bit = mask & -mask
        found |= bit
        mask ^= bit
    return found


# --- CPUs ------------------------------------------------------------------------------------------------


def _cpus(sockets: Sequence[Socket], free: int, count: int, near: int) -> int:
    """So many of `free`, those in `near` first; there are as many."""
    close = free & near
    if close and count and close != free:
        first = min(count, close.bit_count())
        found = _packed(sockets, close, first)
        return found | _packed(sockets, free & ~near, count - first, _touched(sockets, found))
    return _packed(sockets, free, count)


def _touched(sockets: Sequence[Socket], cpus: int) -> int:
    """Places of the sockets on which these CPUs are."""
    return sum(1 << at for at, socket in enumerate(sockets) if any(core & cpus for core in socket))


def _packed(sockets: Sequence[Socket], free: int, count: int, begun: int = 0) -> int:
    """So many of `free`, of as few sockets as can be.

    Args:
        begun: sockets that the job is on already, by place; they come first.
    """
    if count <= 0:
        return 0
    if count == free.bit_count():
        return free
    sizes = []
    for at, socket in enumerate(sockets):
        whole = part = 0
        for core in socket:
            here = (core & free).bit_count()
            part += here
            if here and core & free == core:
                whole += here
        if part:
            sizes.append((at, whole, part))
    found = 0
    while count:
        at, whole, part = best = min(sizes, key=lambda size: _order(size, count, begun))
        sizes.remove(best)
        took = _of_socket(sockets[at], free, count)
        found |= took
        count -= took.bit_count()
    return found


def _order(size: tuple[int, int, int], count: int, begun: int) -> tuple[bool, bool, bool, int, int]:
    at, whole, part = size
    enough = part >= count
    return (not begun >> at & 1, not enough, whole < count, part if enough else -part, at)


def _of_socket(socket: Socket, free: int, count: int) -> int:
    """So many of one socket, or all that is free there."""
    found = 0
    whole = [core for core in socket if core and core & free == core]
    broken = [core & free for core in socket if core & free and core & free != core]
    at = 0
    while at < len(whole) and whole[at].bit_count() <= count:
        found |= whole[at]
        count -= whole[at].bit_count()
        at += 1
    if not count:
        return found
    # Less than a core is left to give: a core in use that has just enough, so that whole ones stay whole.
    fitting = [core for core in broken if core.bit_count() >= count]
    if fitting:
        return found | lowest(min(fitting, key=int.bit_count), count)
    if at < len(whole):
        return found | lowest(whole[at], count)
    for core in sorted(broken, key=int.bit_count, reverse=True):
        part = lowest(core, count)
        found |= part
        count -= part.bit_count()
        if not count:
            break
    return found


def total(inventory: Inventory) -> tuple[int, dict[tuple[str, str], int]]:
    """(CPUs, devices by name and type) that an inventory counts."""
    cpus = sum(core.bit_count() for socket in inventory.sockets for core in socket)
    counts: dict[tuple[str, str], int] = {}
    for one in inventory.devices:
        key = (one.name, one.type)
        counts[key] = counts.get(key, 0) + one.mask.bit_count()
    return cpus, counts


def disjoint(masks: Iterable[int]) -> bool:
    """Whether no bit is in two of the masks."""
    seen = 0
    for mask in masks:
        if seen & mask:
            return False
        seen |= mask
    return True
