"""What an agent says about the CPUs and devices of its node; part of the node's record.

An agent that tells nothing chooses CPUs and devices itself.
"""

import msgspec


class DeviceSet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Devices of one kind, by index, with the same links and the same CPUs near them (empty = all alike)."""

    name: str
    type: str = ""
    indices: str
    link: str = ""
    near: str = ""


class Inventory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Every CPU and device of a node.

    `sockets`: of each as many CPU lists ("0-3") as its cores have threads; the CPUs at the same place of each
    are the threads of one core.
    """

    sockets: tuple[tuple[str, ...], ...] = ()
    devices: tuple[DeviceSet, ...] = ()
