"""The tasks of a step on this node: rank, command, CPUs, devices, own part of the environment.  Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from spur_agent import binding
from spur_agent.share import Share, gpu_ids
from spur_core.errors import RequestError
from spur_core.ids import is_numbered
from spur_proto import agent_pb2
from spur_proto_lite.launch_spec import MOST_TASKS, TaskSpec
from spur_proto_lite.record import EMPTY

#: Each names devices by index; all get the same list, since a counted GPU has no known vendor.
VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")


class TaskPlan(NamedTuple):
    """`tasks` is empty for a step that runs once without being asked how often.

    cpu_bind: SLURM_CPU_BIND and its parts, without the prefix; empty when nothing was asked for.
    """

    tasks: tuple[TaskSpec, ...] = ()
    cpu_bind: Mapping[str, str] = EMPTY
    verbose: bool = False


def make(wire: agent_pb2.LaunchSpec, share: Share, pinned: bool, places: binding.Places) -> TaskPlan:
    """The plan of a numbered step; a batch script runs once, whatever it asked for.

    Args:
        pinned: the share's CPU numbers are real.

    Raises:
        RequestError: too many tasks, or a binding that does not exist or does not fit.
    """
    if wire.hold or not is_numbered(wire.rid.step_id):
        return TaskPlan()
    ranks = list(wire.slice.ranks) or [0]
    if len(ranks) > MOST_TASKS:
        raise RequestError(f"{len(ranks)} tasks on one node: of one step at most {MOST_TASKS} run on a node")
    shape = wire.shape
    bound = binding.bind_cpus(
        binding.parse(shape.cpu_bind),
        share.step.cpu_ids if pinned else (),
        len(ranks),
        wire.cpus_per_task,
        places,
    )
    gpus = binding.bind_gpus(shape.gpu_bind, shape.gpus_per_task, gpu_ids(share.step), len(ranks))
    commands = {rank: tuple(map(text, c.argv)) for c in shape.commands for rank in c.ranks}
    if any(not argv for argv in commands.values()):
        raise RequestError("a rank has an empty command of its own")
    tasks = []
    for local, rank in enumerate(ranks):
        env = task_env(local, ranks)
        if gpus is not None:
            env.update(dict.fromkeys(VISIBLE, ",".join(map(str, gpus[local]))))
        tasks.append(
            TaskSpec(
                rank=rank,
                local_rank=local,
                env=env,
                argv=commands.get(rank, ()),
                cpu_ids=bound.cpus[local],
            )
        )
    return TaskPlan(tuple(tasks), _bind_words(bound), bound.verbose)


def _bind_words(bound: binding.BoundTasks) -> dict[str, str]:
    if not bound.type_word:
        return {}
    loud = "verbose" if bound.verbose else "quiet"
    return {
        "CPU_BIND": f"{loud},{bound.type_word}{bound.list_word}",
        "CPU_BIND_VERBOSE": loud,
        "CPU_BIND_TYPE": bound.type_word,
        "CPU_BIND_LIST": bound.list_word,
    }


def task_env(local: int, ranks: Sequence[int]) -> dict[str, str]:
    """What one task's environment has beside the step's; its numbers as Slurm names them come from the
    supervisor."""
    return {
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(len(ranks)),
        "NPROC_PER_NODE": str(len(ranks)),
        "SPUR_TASK_OFFSET": str(ranks[0]),
    }


def text(data: bytes) -> str:
    """Bytes of the user's as Python keeps them in texts."""
    return data.decode("utf-8", "surrogateescape")
