"""`scontrol show topology`: switches or blocks, in Slurm's layout."""

from typing import TYPE_CHECKING

from spur_cli.context import Context, Stop

if TYPE_CHECKING:
    from spur_cli.transport import Transport
    from spur_proto import controller_pb2 as pb

#: What an operand may be named; without a name it is a switch or a block, else a node.
_KEYS = {"node": "node", "nodes": "node", "nodename": "node", "switch": "switch_name", "block": "switch_name"}


def show(ctx: Context, transport: "Transport", operands: list[str]) -> int:
    """The command.

    Raises:
        Stop: a key that there is not, or no such node or switch.
    """
    from spur_proto import controller_pb2 as pb

    found = transport.call("GetTopology", pb.GetTopologyRequest(), pb.GetTopologyResponse)
    if found.plugin == "none":
        ctx.out("No topology information available\n")
        return 0
    asked: dict[str, str] = {}
    if operands:
        key, equals, value = operands[0].partition("=")
        if equals and key.lower() not in _KEYS:
            raise Stop(1, f"invalid option:{key} for show topology; use node=, switch= or block=")
        names = {one.name for one in found.switches}
        wanted = value if equals else operands[0]
        kind = _KEYS[key.lower()] if equals else ("switch_name" if wanted in names else "node")
        asked = {kind: wanted}
        found = transport.call("GetTopology", pb.GetTopologyRequest(**asked), pb.GetTopologyResponse)
    ctx.out("".join(f"{line(found.plugin, one)}\n" for one in found.switches))
    return 0


def line(plugin: str, one: "pb.TopologySwitch") -> str:
    """One switch or block."""
    if plugin == "block":
        return (
            f"BlockName={one.name} BlockIndex={one.block_index} Nodes={one.nodes} BlockSize={one.block_size}"
        )
    text = f"SwitchName={one.name} Level={one.level} LinkSpeed={one.link_speed}"
    if one.nodes:
        text += f" Nodes={one.nodes}"
    return f"{text} Switches={one.switches}" if one.switches else text
