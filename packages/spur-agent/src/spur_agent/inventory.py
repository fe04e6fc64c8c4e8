"""What the controller is told of this node's CPUs and devices, so that it chooses among them.  Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spur_agent.allocation import GresKey
from spur_agent.resources import DeviceEntry, NodeResources
from spur_core.grammar import idlist
from spur_proto import controller_pb2 as pb

#: Of what there is more, only the number is told.
MOST_DEVICES: Final = 1024


class Unit(NamedTuple):
    """One device as the configuration describes it."""

    near: int = 0
    links: tuple[int, ...] = ()


def message(have: NodeResources) -> pb.NodeInventory:
    """The inventory of a node."""
    sockets = _sockets(have)
    return pb.NodeInventory(
        sockets=[pb.SocketCpus(threads=threads) for threads in sockets],
        devices=_devices(have.gres, have.devices, idlist.mask_from(have.cpu_ids)),
    )


def _sockets(have: NodeResources) -> list[list[str]]:
    """Of each socket the first threads of its cores, the second ones, and so on.

    CPUs of which nothing is known, or that make no regular shape, are cores of one thread on one socket.
    """
    found: dict[int, dict[int, list[int]]] = {}
    if have.pinned and len(have.hardware.seats) == len(have.cpu_ids):
        for cpu, (package, core) in zip(have.cpu_ids, have.hardware.seats, strict=True):
            found.setdefault(package, {}).setdefault(core, []).append(cpu)
    shapes = {(len(cores), len(cpus)) for cores in found.values() for cpus in cores.values()}
    shape = have.topology
    if len(found) != shape.sockets or shapes != {(shape.cores_per_socket, shape.threads_per_core)}:
        return [[idlist.text_of(idlist.mask_from(have.cpu_ids))]]
    texts = []
    for _, cores in sorted(found.items(), key=lambda item: min(map(min, item[1].values()))):
        lists = [
            idlist.mask_from(cpus[at] for cpus in cores.values()) for at in range(shape.threads_per_core)
        ]
        if not _aligned(lists, cores.values()):
            return [[idlist.text_of(idlist.mask_from(have.cpu_ids))]]
        texts.append([idlist.text_of(one) for one in lists])
    return texts


def _aligned(lists: Iterable[int], cores: Iterable[list[int]]) -> bool:
    """Whether the CPUs at the same place of each list are those of one core."""
    told = {tuple(core) for core in zip(*map(idlist.numbers, lists), strict=True)}
    return told == {tuple(core) for core in cores}


def _devices(
    gres: Mapping[GresKey, int], entries: Iterable[DeviceEntry], cpus: int
) -> Iterable[pb.DeviceSet]:
    """The devices by kind, links and CPUs near them; numbered as the allocation table does."""
    units: dict[GresKey, list[Unit]] = {}
    counted: set[GresKey] = set()
    for entry in entries:
        key = (entry.name, entry.type)
        links = tuple(int(word) for word in entry.links.split(",")) if entry.links else ()
        unit = Unit(idlist.mask_of(entry.cores) & cpus, links)
        units.setdefault(key, []).extend([unit] * min(entry.size, MOST_DEVICES))
        if entry.counted:
            counted.add(key)
    by_name: dict[str, list[tuple[str, Unit] | None]] = {}
    for (name, kind), count in gres.items():
        told = by_name.setdefault(name, [])
        if (name, kind) in counted or count > MOST_DEVICES or len(told) + count > idlist.HIGHEST:
            told.extend([None] * min(count, idlist.HIGHEST))
            continue
        known = units.get((name, kind), [])
        told.extend((kind, known[at] if at < len(known) else Unit()) for at in range(count))
    for name, told in by_name.items():
        groups = _link_groups([item[1].links if item is not None else () for item in told])
        sets: dict[tuple[str, str, int], int] = {}
        for index, item in enumerate(told):
            if item is not None:
                kind, unit = item
                label = (kind, groups[index], unit.near)
                sets[label] = sets.get(label, 0) | 1 << index
        for (kind, link, near), mask in sets.items():
            yield pb.DeviceSet(
                name=name, type=kind, indices=idlist.text_of(mask), link=link, near=idlist.text_of(near)
            )


def _link_groups(links: list[tuple[int, ...]]) -> list[str]:
    """A word for each device: the same for those that are linked, be it over others; empty = not linked.

    Args:
        links: of each device how many it has to device 0, 1, ...
    """
    head = list(range(len(links)))

    def find(at: int) -> int:
        while head[at] != at:
            at = head[at]
        return at

    for at, row in enumerate(links):
        for other, count in enumerate(row[: len(links)]):
            if count > 0 and other != at:
                one, two = sorted((find(at), find(other)))
                head[two] = one
    heads = [find(at) for at in range(len(links))]
    return [f"link{one}" if heads.count(one) > 1 else "" for one in heads]
