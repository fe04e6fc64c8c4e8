"""`spur up`: start a cluster on this machine, or resume the one in the folder."""

import os
from pathlib import Path

from spur_cli.cluster import home, processes
from spur_cli.cluster.home import Cluster
from spur_cli.context import Context
from spur_cli.keys import own_options
from spur_cli.options.engine import REQUIRED, Option, Parsed, Table
from spur_core.errors import RequestError

NODES_SECS = 30.0


def table() -> Table:
    """The options of `spur up`."""
    return Table(
        [
            Option("nodes", "N", REQUIRED, "number of nodes (default 1)", metavar="N"),
            Option("controllers", "", REQUIRED, "number of controllers: 1 (default), 3 or 5", metavar="M"),
            Option("cpus", "c", REQUIRED, "CPUs of each node (default: this host's)", metavar="C"),
            Option("gres", "", REQUIRED, "generic resources of each node, such as gpu:2", metavar="SPEC"),
            Option("dir", "d", REQUIRED, "folder of the cluster", metavar="DIR", raw=True),
            Option("help", "h", help="print this text and exit"),
        ]
    )


def run(ctx: Context) -> int:
    """The command."""
    words = own_options(ctx, table())
    if words is None:
        return 0
    if words.operands:
        raise ctx.stop(f"unexpected word {words.operands[0]}")
    try:
        root = home.chosen_root(ctx, words.get("dir"))
        cluster, new = open_cluster(words, root)
        with home.locked(cluster):
            started = start_all(ctx, cluster)
    except RequestError as error:
        raise ctx.stop(error.text) from None
    ctx.out(_how_to_use(ctx, cluster, new, started))
    return 0


def open_cluster(words: Parsed, root: Path) -> tuple[Cluster, bool]:
    """(the cluster in `root`, whether it was made now).

    Raises:
        RequestError: an option that cannot be served or contradicts the cluster that is there.
    """
    count = _count(words, "nodes", 1, 64)
    controllers = _count(words, "controllers", 1, 5)
    if controllers not in (1, 3, 5):
        raise RequestError(
            f"--controllers {controllers}: choose 1, 3 or 5; one more of these bears no more losses"
        )
    cpus = _count(words, "cpus", os.cpu_count() or 1, 4096)
    gres = words.text("gres")
    if gres:
        from spur_core.grammar.gres import format_gres, parse_gres

        gres = format_gres(parse_gres(gres))
    found = home.load(root)
    if found is None:
        return home.create(root, count, cpus, gres, controllers), True
    changed = [f"--{name}" for name in ("cpus", "gres") if words.has(name)]
    if words.has("controllers") and controllers != len(found.ports):
        changed.insert(0, "--controllers")
    if words.has("nodes") and count != len(found.nodes):
        changed.insert(0, "--nodes")
    if changed:
        held = f"{len(found.nodes)} node(s) and {len(found.ports)} controller(s)"
        raise RequestError(
            f"{root} holds a cluster of {held}, which {' and '.join(changed)} cannot"
            " change; leave it out to resume, or run `spur down --purge` first"
        )
    return found, False


def _count(words: Parsed, name: str, default: int, most: int) -> int:
    text = words.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise RequestError(f"--{name} {text}: not a number from 1 to {most}")
    return int(text)


def start_all(ctx: Context, cluster: Cluster) -> list[str]:
    """Start what does not run and wait until every node takes work; the names of what was started.

    Raises:
        RequestError: a daemon cannot start or a node does not get ready; what was started now is stopped.
    """
    from spur_cli.cluster.client import connect, wait_for_nodes

    for name in ("spurctld", "spurd", "spurstepd"):
        processes.program(name)
    started: list[str] = []
    try:
        missing = [name for name in cluster.daemons if processes.pid_of(cluster, name) is None]
        controllers = [name for name in missing if name in cluster.controllers]
        started += controllers
        processes.start_together(cluster, controllers)
        for name in missing[len(controllers) :]:
            started.append(name)
            processes.start(cluster, name)
        wait_for_nodes(connect(ctx, cluster), cluster, NODES_SECS)
    except BaseException:
        processes.stop_together(cluster, started)
        raise
    return started


def _how_to_use(ctx: Context, cluster: Cluster, new: bool, started: list[str]) -> str:
    count = len(cluster.nodes)
    nodes = "1 node" if count == 1 else f"{count} nodes"
    verb = "started" if new else "resumed" if started else "was running already"
    controllers = "controller" if len(cluster.ports) == 1 else f"{len(cluster.ports)} controllers"
    where = ", ".join(cluster.addresses)
    lines = [f"cluster of {nodes} {verb}: {controllers} {where}, logs in {cluster.root / 'log'}"]
    if cluster.root != home.default_root(ctx) or ctx.env.get("SPUR_CONF"):
        lines.append(f"use it:     export SPUR_CONF={cluster.config}")
    lines.append("try:        sbatch --wrap 'hostname; sleep 5'; squeue; sinfo; sacct")
    where = "" if cluster.root == home.default_root(ctx) else f" --dir {cluster.root}"
    lines.append(f"stop it:    spur down{where}")
    return "".join(f"{line}\n" for line in lines)
