"""Asking a one-machine cluster: every command's transport, with the cluster's configuration."""

import time
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.cluster.home import Cluster
from spur_cli.context import Context
from spur_cli.transport import Transport
from spur_core.errors import RequestError

if TYPE_CHECKING:
    from spur_proto import common_pb2

_POLL_SECS = 0.05
_FOREIGN = ("SPUR_AUTH_TOKEN", "SLURM_JWT", "SPUR_CONTROLLER_ADDR")


def environment(ctx: Context, cluster: Cluster) -> dict[str, str]:
    """The caller's environment, pointed at the cluster."""
    env = {name: value for name, value in ctx.env.items() if name not in _FOREIGN}
    env["SPUR_CONF"] = str(cluster.config)
    return env


def connect(ctx: Context, cluster: Cluster) -> Transport:
    """Calls to the cluster in the caller's name."""
    twin = Context(
        ctx.name,
        [],
        environment(ctx, cluster),
        ctx.cwd,
        ctx.stdin,
        ctx.stdout,
        ctx.stderr,
        ctx.clock,
    )
    return Transport(twin)


def wait_for_nodes(transport: Transport, cluster: Cluster, seconds: float) -> None:
    """Until every node takes work.

    Raises:
        RequestError: one does not within `seconds`; the text names it and its state.
    """
    from spur_cli.nodes import states
    from spur_cli.nodes.fetch import all_nodes

    deadline = time.monotonic() + seconds
    while True:
        problem = "the controller does not answer"
        try:
            nodes = {node.name: node for node in all_nodes(transport)}
        except CallFailed as failure:
            if not failure.busy:
                raise RequestError(failure.text) from None
        else:
            waiting = [name for name in cluster.nodes if not _usable(nodes.get(name))]
            if not waiting:
                return
            shown = [f"{n} is {states.long_state(nodes[n]) if n in nodes else 'unknown'}" for n in waiting]
            problem = ", ".join(shown)
        if time.monotonic() > deadline:
            raise RequestError(f"not all nodes are ready after {seconds:g} s: {problem}")
        time.sleep(_POLL_SECS)


def _usable(node: "common_pb2.NodeInfo | None") -> bool:
    from spur_core.states import NodeBase, NodeFlag

    good = (NodeBase.IDLE, NodeBase.MIXED, NodeBase.ALLOCATED)
    return node is not None and int(node.base) in good and not node.flags & NodeFlag.NOT_RESPONDING
