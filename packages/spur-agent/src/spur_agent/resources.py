"""What this node offers: the hardware, with what the configuration says about it on top."""

from typing import NamedTuple

from spur_agent.allocation import GresKey
from spur_agent.discovery import Hardware, Topology
from spur_core.config import Config
from spur_core.grammar.gres import parse_gres
from spur_core.grammar.hostlist import expand


class DeviceEntry(NamedTuple):
    """A `[[devices.gres]]` entry: so many devices, the CPUs near them, their links to those of that name.

    counted: nothing but a number.
    """

    name: str
    type: str
    size: int
    cores: str = ""
    links: str = ""
    counted: bool = False


class NodeResources(NamedTuple):
    """What jobs can get here.

    cpu_ids: logical CPUs, or plain numbers from 0 when the configuration gives another count.
    pinned: `cpu_ids` are real, so steps may be bound to them.
    """

    hardware: Hardware
    cpu_ids: tuple[int, ...]
    pinned: bool
    topology: Topology
    memory_mb: int
    gres: dict[GresKey, int]
    #: What the configuration says about devices, in its order.
    devices: tuple[DeviceEntry, ...] = ()


def offered(hardware: Hardware, config: Config, node: str, labels: dict[str, str]) -> NodeResources:
    """The node's resources: as found, except for what its `[[nodes]]` entry gives.

    An entry may also give more CPUs than there are, so that several agents can share a host.
    """
    entry = config.node_entry(node, labels)
    cpu_ids, topology = hardware.cpu_ids, hardware.topology
    memory_mb = hardware.memory_mb
    gres: dict[GresKey, int] = {}
    devices = []
    for item in config.devices.gres:
        key = (item.name, item.type)
        count = item.count or (len(expand(item.file)) if item.file else 1)
        gres[key] = gres.get(key, 0) + count
        counted = "count_only" in item.flags
        devices.append(DeviceEntry(item.name, item.type, count, item.cores, item.links, counted))
    pinned = True
    if entry is not None:
        if entry.cpus and entry.cpus != len(cpu_ids):
            cpu_ids, topology, pinned = tuple(range(entry.cpus)), Topology(1, entry.cpus, 1), False
        memory_mb = entry.memory_mb or memory_mb
        if entry.gres:
            gres = {(name, kind): count for name, kind, count in parse_gres(",".join(entry.gres))}
    return NodeResources(hardware, cpu_ids, pinned, topology, memory_mb, gres, tuple(devices))
