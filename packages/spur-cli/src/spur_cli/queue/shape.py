"""What a job asks of its nodes, as squeue and scontrol print it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spur_core.grammar.size import format_mem

if TYPE_CHECKING:
    from spur_proto import common_pb2

    Job = common_pb2.JobInfo


def number(job: "Job", field: str) -> str:
    """A number of the job's wishes, `*` for none."""
    return str(getattr(job.wishes, field)) if job.wishes.HasField(field) else "*"


def sockets_cores_threads(job: "Job") -> str:
    """`2:4:*`."""
    names = ("sockets_per_node", "cores_per_socket", "threads_per_core")
    return ":".join(number(job, name) for name in names)


def tasks_of_parts(job: "Job") -> str:
    """`NtasksPerN:B:S:C`: tasks of a node, a board, a socket and a core."""
    per_node = job.tasks_per_node if job.HasField("tasks_per_node") else 0
    return f"{per_node}:0:{number(job, 'ntasks_per_socket')}:{number(job, 'ntasks_per_core')}"


def min_cpus(job: "Job") -> int:
    """CPUs that each node must have."""
    per_node = job.tasks_per_node if job.HasField("tasks_per_node") else 1
    return max(max(job.cpus_per_task, 1) * max(per_node, 1), job.wishes.min_cpus)


def min_memory(job: "Job", *, noconvert: bool = False) -> str:
    """Memory of a node, or of a CPU."""
    size = job.memory_per_cpu_mb if job.HasField("memory_per_cpu_mb") else job.memory_per_node_mb
    return format_mem(size, noconvert=noconvert)


def min_tmp_disk(job: "Job", *, noconvert: bool = False) -> str:
    """`2G`, `0`."""
    return format_mem(job.wishes.tmp_disk_mb, noconvert=noconvert)


def over_subscribe(job: "Job") -> str:
    """Whether its CPUs may be shared: `OK` leaves it to the partition."""
    if job.wishes.exclusive_user:
        return "USER"
    if job.exclusive:
        return "NO"
    return "YES" if job.wishes.oversubscribe else "OK"


def exclusive(job: "Job") -> str:
    """Whether it shares nodes with others."""
    return "USER" if job.wishes.exclusive_user else "YES" if job.exclusive else "NO"


def tres(job: "Job") -> dict[str, str]:
    """`TresPerJob` and its like, those that were asked for, in Slurm's order."""
    wishes = job.wishes
    found = {
        "CpusPerTres": f"gres/gpu:{wishes.cpus_per_gpu}" if wishes.HasField("cpus_per_gpu") else "",
        "MemPerTres": f"gres/gpu:{wishes.memory_per_gpu_mb}" if wishes.HasField("memory_per_gpu_mb") else "",
        "TresPerJob": _listed(wishes.gres_total),
        "TresPerNode": _listed(job.gres),
        "TresPerSocket": _listed(wishes.gres_per_socket),
        "TresPerTask": _listed(wishes.gres_per_task),
        "NtasksPerTRES": f"gres/gpu:{wishes.ntasks_per_gpu}" if wishes.HasField("ntasks_per_gpu") else "",
    }
    return {name: text for name, text in found.items() if text}


def _listed(items: Iterable[str]) -> str:
    return ",".join(f"gres/{item}" for item in items)
