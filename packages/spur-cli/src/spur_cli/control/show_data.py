"""`scontrol show partition --json|--yaml`."""

from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.control.show import Connect, entity_of

if TYPE_CHECKING:
    from spur_cli.options.engine import Parsed


def show_data(ctx: Context, options: "Parsed", connect: Connect, keyword: str, words: list[str]) -> int:
    """The command; `words` follow its keyword.

    Raises:
        Stop: this release has no such document, or the partition does not exist.
    """
    from spur_cli.data import document
    from spur_cli.data.partition import partition_tree
    from spur_cli.nodes.fetch import all_partitions
    from spur_cli.submit.sbatch import cluster_name

    form = document.wanted(ctx, options)
    name, equals, value = words[0].partition("=") if words else ("", "", "")
    if keyword != "show" or entity_of(name) != "partitions":
        asked = " ".join([keyword, name] if name else [keyword])
        raise ctx.stop(f"--{form} of {asked} is not supported by this release")
    wanted = [word for word in ([value] if equals else []) + words[1:] if word]
    try:
        transport = connect()
        cluster = cluster_name(ctx, transport, "all")
        found = all_partitions(transport)
    except CallFailed as failure:
        raise Stop(1, f"slurm_load_partitions error: {failure.text}") from None
    if wanted:
        found = [part for part in found if part.name == wanted[0]]
        if not found:
            raise Stop(1, f"Partition {wanted[0]} not found")
    tree = {"partitions": [partition_tree(part, cluster) for part in found]}
    ctx.out(document.text(ctx, form, tree, cluster=cluster))
    return 0
