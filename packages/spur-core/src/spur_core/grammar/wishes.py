"""`SLURM_GPUS` and its like: the variables that tell a job what it asked for."""

from spur_core.grammar.gres import parse_gres

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

#: Variable -> field of a `JobWishes`.
_LISTS = {"GPUS": "gres_total", "GPUS_PER_TASK": "gres_per_task", "GPUS_PER_SOCKET": "gres_per_socket"}
_NUMBERS = {
    "CPUS_PER_GPU": "cpus_per_gpu",
    "MEM_PER_GPU": "memory_per_gpu_mb",
    "NTASKS_PER_SOCKET": "ntasks_per_socket",
    "NTASKS_PER_CORE": "ntasks_per_core",
    "NTASKS_PER_GPU": "ntasks_per_gpu",
    "THREADS_PER_CORE": "threads_per_core",
}
#: Every variable of this module, without `SLURM_`.
NAMES = (*_LISTS, *_NUMBERS, "GPUS_PER_NODE", "HINT")


def gpus_text(items: "Iterable[str]") -> str:
    """`gpu:h100:2` and the like as the `--gpus` options write it: `h100:2`; other resources are left out."""
    found = [item for item in parse_gres(",".join(items) or "none") if item[0] == "gpu"]
    return ",".join(f"{kind}:{count}" if kind else str(count) for _, kind, count in found)


def variables(wishes: "Any", gres: "Iterable[str]") -> dict[str, str]:
    """Values by name without `SLURM_`, of what was asked for only.

    Args:
        wishes: a `JobWishes` of the wire.
        gres: what was asked for of each node.
    """
    found = {name: gpus_text(getattr(wishes, field)) for name, field in _LISTS.items()}
    if wishes.gpus_per_node:
        found["GPUS_PER_NODE"] = gpus_text(gres)
    found.update(
        (name, str(getattr(wishes, field))) for name, field in _NUMBERS.items() if wishes.HasField(field)
    )
    found["HINT"] = wishes.hint
    return {name: value for name, value in found.items() if value}
