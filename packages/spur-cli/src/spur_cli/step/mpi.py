"""`srun --mpi`: what there is, and what it asks of the step."""

from typing import Any

from spur_cli.context import Context

PMI2 = "pmi2"
TYPES = ("none", PMI2)
#: Slurm's, which this release does not have.
_LATER = ("pmix", "cray_shasta")
LIST = "MPI plugin types are...\n" + "".join(f"\t{name}\n" for name in TYPES)


def chosen(ctx: Context, text: str | None, code: int) -> str:
    """The type that is asked for; "" = none.

    Raises:
        Stop: there is no such type here.
    """
    if not text or text == "none":
        return ""
    if text == PMI2:
        return PMI2
    if text.partition("_v")[0] in _LATER:
        raise ctx.stop(
            f"--mpi={text} is not supported by this release; use --mpi=pmi2, or start the program by mpiexec",
            code,
        )
    raise ctx.stop(f"Invalid MPI type '{text}', --mpi=list for acceptable types", code)


def on_one_node(ctx: Context, fields: dict[str, Any], code: int) -> None:
    """Keep a step with PMI on one node, which is as far as its exchange reaches.

    Raises:
        Stop: more nodes are asked for.
    """
    if fields.get("min_nodes", 1) > 1:
        text = "--mpi=pmi2 works within one node in this release: use -N1, or start the program by mpiexec"
        raise ctx.stop(text, code)
    fields["min_nodes"] = fields["max_nodes"] = 1
