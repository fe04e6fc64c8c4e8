"""`spur restart`: stop one daemon of a one-machine cluster and start it again under its running work."""

from spur_cli.cluster import home, processes
from spur_cli.context import Context
from spur_cli.keys import own_options
from spur_cli.options.engine import REQUIRED, Option, Table
from spur_core.errors import RequestError


def table() -> Table:
    """The options of `spur restart`."""
    return Table(
        [
            Option("dir", "d", REQUIRED, "folder of the cluster", metavar="DIR", raw=True),
            Option("kill", "k", help="SIGKILL instead of SIGTERM"),
            Option("help", "h", help="print this text and exit"),
        ],
        synopsis="[OPTIONS] PROGRAM-NAME (spurctld-1, spurd-node1, ...)",
    )


def run(ctx: Context) -> int:
    """The command."""
    words = own_options(ctx, table())
    if words is None:
        return 0
    if len(words.operands) != 1:
        raise ctx.stop("name one program: spurctld-1, spurd-node1, ...")
    name = words.operands[0]
    try:
        root = home.chosen_root(ctx, words.get("dir"))
        cluster = home.load(root)
        if cluster is None:
            raise RequestError(f"no cluster in {root}")
        cluster.command(name)
        with home.locked(cluster):
            ran = processes.stop(cluster, name, kill=words.has("kill"))
            pid = processes.start(cluster, name)
    except RequestError as error:
        raise ctx.stop(error.text) from None
    ctx.out(f"{name} {'restarted' if ran else 'started'}, pid {pid}\n")
    return 0
