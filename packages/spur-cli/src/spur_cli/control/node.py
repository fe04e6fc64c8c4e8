"""`spur node drain NODES`."""

from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.options.engine import REQUIRED, Option, Table
from spur_cli.options.front import common, open_options
from spur_core.states import JobState

if TYPE_CHECKING:
    from spur_cli.transport import Transport

#: What comes later, refused by name.
LATER = ("label", "remove")


def table() -> Table:
    """The options of node."""
    return Table(
        [Option("reason", "r", REQUIRED, "why; others see it", metavar="TEXT"), *common()],
        synopsis="drain NODES --reason TEXT",
    )


def run(ctx: Context) -> int:
    """The command."""
    from spur_cli.transport import Transport
    from spur_core.errors import ConfigError, GrammarError
    from spur_core.grammar import hostlist

    options = open_options(ctx, table())
    verb = options.operands[0] if options.operands else ""
    if verb in LATER:
        raise ctx.stop(f"{verb} is not supported by this release")
    if verb != "drain" or len(options.operands) != 2:
        raise ctx.stop("write `spur node drain NODES --reason TEXT`")
    reason = options.text("reason")
    if not reason:
        raise ctx.stop("--reason TEXT is needed")
    wanted = options.operands[1]
    try:
        transport = Transport(ctx, options.get("controller"))
        known = _running(transport)
        names = list(known) if wanted == "ALL" else hostlist.expand(wanted)
        return _drain(ctx, transport, names, known, reason)
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except GrammarError as error:
        raise Stop(1, *(f"{ctx.name}: error: {line}" for line in error.text.split("\n"))) from None
    except CallFailed as failure:
        raise ctx.stop(failure.text) from None


def _running(transport: "Transport") -> dict[str, int]:
    """Every node with the number of jobs that hold a part of it."""
    from spur_cli.nodes.fetch import all_nodes
    from spur_cli.queue import select
    from spur_core.grammar import hostlist

    counts = {node.name: 0 for node in all_nodes(transport)}
    states = [state for state in select.LIVE_STATES if state != JobState.PENDING]
    for job in select.fetch(transport, states=states):
        for name in hostlist.expand(job.nodelist) if job.nodelist else ():
            if name in counts:
                counts[name] += 1
    return counts


def _drain(ctx: Context, transport: "Transport", names: list[str], known: dict[str, int], reason: str) -> int:
    """One by one, so that one that cannot be drained keeps no other from it."""
    from spur_proto import controller_pb2 as pb

    failed = []
    for name in names:
        try:
            request = pb.UpdateNodeRequest(names=name, state="DRAIN", reason=reason)
            transport.call("UpdateNode", request, pb.UpdateNodeResponse)
        except CallFailed as failure:
            ctx.err(f"error: {name}: {failure.text}\n")
            failed.append(name)
            continue
        jobs = known.get(name, 0)
        if jobs:
            left = f"{jobs} running job{'' if jobs == 1 else 's'} will finish first"
            ctx.err(f"Node {name} set to draining ({left})\n")
        else:
            ctx.err(f"Node {name} set to drain\n")
        ctx.err(f"  reason: {reason}\n")
    if failed:
        ctx.err(f"failed on {len(failed)} of {len(names)} node(s): {', '.join(failed)}\n")
    return 1 if failed else 0
