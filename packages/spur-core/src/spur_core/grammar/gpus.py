"""One GPU demand out of `--gpus`, `--gpus-per-node`, `--gpus-per-task` and `--gres=gpu`.

Only one of these forms may be used, and only one type.
"""

from collections import namedtuple

from spur_core.errors import GrammarError
from spur_core.grammar.gres import GresItem, parse_gpus

TYPE_CHECKING = False
TOTAL, PER_NODE, PER_TASK = "gpus", "gpus-per-node", "gpus-per-task"

if TYPE_CHECKING:
    from typing import NamedTuple

    class GpuDemand(NamedTuple):
        """`form` is TOTAL, PER_NODE or PER_TASK; `kind` is "" for any type."""

        form: str
        kind: str
        amount: int
else:
    GpuDemand = namedtuple("GpuDemand", ("form", "kind", "amount"))


def combine(
    total: str = "",
    per_node: str = "",
    per_task: str = "",
    gres: "list[GresItem] | tuple[GresItem, ...]" = (),
) -> GpuDemand | None:
    """The demand of these option values ("" = not given); None = no GPUs.

    Args:
        gres: the parsed `--gres`; its `gpu` items add up.

    Raises:
        GrammarError: a value that is none, more than one form, or more than one type.
    """
    asked = [
        (form, parse_gpus(text))
        for form, text in ((TOTAL, total), (PER_NODE, per_node), (PER_TASK, per_task))
        if text
    ]
    from_gres = [item for item in gres if item[0] == "gpu"]
    if from_gres:
        asked.append((PER_NODE, from_gres))
    if len(asked) > 1:
        names = [f"--{form}" for form, items in asked if items is not from_gres]
        names += ["--gres=gpu"] if from_gres else []
        raise GrammarError(f"GPUs are asked for more than once ({', '.join(names)}); use one of them")
    if not asked:
        return None
    form, items = asked[0]
    kinds = sorted({kind for _, kind, _ in items})
    if len(kinds) > 1:
        shown = ", ".join(kind or "any" for kind in kinds)
        raise GrammarError(f"GPUs of different types are asked for ({shown}); use one type")
    count = sum(count for _, _, count in items)
    return GpuDemand(form, kinds[0], count) if count else None


def check(demand: GpuDemand, nodes: int, tasks: int | None) -> None:
    """Whether the demand fits the job's shape.

    Args:
        tasks: None when the job does not say how many it has.

    Raises:
        GrammarError: fewer GPUs in all than nodes, or a demand per task without tasks.
    """
    if demand.form == TOTAL and demand.amount < nodes:
        raise GrammarError(
            f"--gpus={demand.amount} is less than the {nodes} nodes of the job; each needs one at least"
        )
    if demand.form == PER_TASK and not tasks:
        raise GrammarError("--gpus-per-task needs the number of tasks; add --ntasks")


def spread(total: int, free: "list[int]") -> "list[int] | None":
    """A job total over its nodes: the fullest-stocked first, at least one on each.

    Args:
        free: free GPUs of the wanted type on each node.

    Returns:
        The count of each node in the order of `free`, or None when it does not fit.
    """
    order = sorted(range(len(free)), key=lambda at: (-free[at], at))
    out = [0] * len(free)
    left = total
    for place, at in enumerate(order):
        after = len(order) - place - 1
        out[at] = min(free[at], left - after)
        if out[at] < 1:
            return None
        left -= out[at]
    return None if left else out
