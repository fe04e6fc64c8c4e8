"""Where a node's agent can be reached."""

from spur_ctld.state.records import Node

DEFAULT_AGENT_PORT = 6818


def node_address(node: Node) -> str:
    """`host:port` of the agent, with brackets around IPv6; "" when it never said."""
    host = node.address
    if not host:
        return ""
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"{host}:{node.port or DEFAULT_AGENT_PORT}"
