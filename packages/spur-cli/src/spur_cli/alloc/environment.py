"""What an allocation tells the command that runs in it: `SLURM_*` and their `SPUR_*` twins.  Pure."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from spur_cli.alloc.layout import runs
from spur_core.grammar import wishes

if TYPE_CHECKING:
    from spur_proto import common_pb2

#: Names (without SLURM_) of jobs and steps: those of an enclosing job must not shine through.
_NAMES = """
ARRAY_JOB_ID ARRAY_TASK_COUNT ARRAY_TASK_ID ARRAY_TASK_MAX ARRAY_TASK_MIN ARRAY_TASK_STEP CPUS_ON_NODE
CPUS_PER_TASK CPU_BIND CPU_BIND_LIST CPU_BIND_TYPE CPU_BIND_VERBOSE DISTRIBUTION GPUS_ON_NODE GTIDS JOBID
JOB_ACCOUNT JOB_COMMENT JOB_CPUS_PER_NODE JOB_DEPENDENCY JOB_END_TIME JOB_GID JOB_GPUS JOB_ID JOB_LICENSES
JOB_NAME JOB_NODELIST JOB_NUM_NODES JOB_PARTITION JOB_QOS JOB_RESERVATION JOB_START_TIME JOB_UID JOB_USER
LABELIO LAUNCH_NODE_IPADDR LOCALID MEM_PER_CPU MEM_PER_NODE MPI_TYPE NNODES NODEID NODELIST NPROCS NTASKS
NTASKS_PER_NODE PRIO_PROCESS PROCID RESTART_COUNT SRUN_COMM_HOST SRUN_COMM_PORT STEPID STEP_GPUS STEP_ID
STEP_LAUNCHER_PORT STEP_NODELIST STEP_NUM_NODES STEP_NUM_TASKS STEP_TASKS_PER_NODE SUBMIT_DIR SUBMIT_HOST
TASKS_PER_NODE TASK_PID UMASK
"""
_OURS = frozenset((*_NAMES.split(), *wishes.NAMES))


def command_environment(
    base: Mapping[str, str], job: "common_pb2.JobInfo", more: Mapping[str, str], given: Iterable[str]
) -> dict[str, str]:
    """The environment of salloc's command.

    Args:
        base: the caller's.
        more: values without `SLURM_` that the job's record does not have.
        given: options of salloc that were given.
    """
    env = {
        name: value
        for name, value in base.items()
        if not (
            (name.startswith("SLURM_") and name[6:] in _OURS)
            or (name.startswith("SPUR_") and name[5:] in _OURS)
        )
    }
    for name, value in {**of_job(job, frozenset(given)), **more}.items():
        env[f"SLURM_{name}"] = value
        env[f"SPUR_{name}"] = value
    return env


def of_job(job: "common_pb2.JobInfo", given: frozenset[str]) -> dict[str, str]:
    """What the record of the allocated job says, by name without `SLURM_`."""
    number, nodes = str(job.job_id), str(len(job.slices) or job.num_nodes)
    found = {
        "JOB_ID": number,
        "JOBID": number,
        "JOB_NAME": job.name,
        "JOB_PARTITION": job.partition,
        "JOB_UID": str(job.uid),
        "JOB_GID": str(job.gid),
        "JOB_USER": job.user,
        "JOB_NODELIST": job.nodelist,
        "NODELIST": job.nodelist,
        "JOB_NUM_NODES": nodes,
        "NNODES": nodes,
        "TASKS_PER_NODE": runs(_tasks(job)),
        "JOB_CPUS_PER_NODE": runs(held.cpus for held in job.slices),
    }
    optional = {
        "JOB_ACCOUNT": job.account,
        "JOB_QOS": job.qos,
        "JOB_COMMENT": job.comment,
        "JOB_RESERVATION": job.reservation,
        "JOB_LICENSES": job.licenses_alloc,
        "JOB_START_TIME": str(int(job.start_at)) if job.HasField("start_at") else "",
        "JOB_END_TIME": str(int(job.end_at)) if job.HasField("end_at") else "",
        "JOB_DEPENDENCY": job.dependency,
        "NTASKS_PER_NODE": str(job.tasks_per_node) if job.HasField("tasks_per_node") else "",
        "MEM_PER_CPU": str(job.memory_per_cpu_mb) if job.HasField("memory_per_cpu_mb") else "",
        "DISTRIBUTION": job.distribution if "distribution" in given else "",
    }
    if "mem" in given:
        each = [held.memory_mb for held in job.slices]
        optional["MEM_PER_NODE"] = str(job.memory_per_node_mb or min(each, default=0))
    if "ntasks" in given or "ntasks-per-node" in given:
        optional["NTASKS"] = optional["NPROCS"] = str(job.num_tasks)
    if "cpus-per-task" in given:
        optional["CPUS_PER_TASK"] = str(job.cpus_per_task)
    optional |= wishes.variables(job.wishes, job.gres)
    found.update((name, value) for name, value in optional.items() if value)
    return found


def _tasks(job: "common_pb2.JobInfo") -> list[int]:
    """Tasks of each node: where they were placed, else as many as the CPUs give."""
    placed = [len(held.ranks) for held in job.slices]
    if any(placed):
        return placed
    each = max(job.cpus_per_task, 1)
    return [job.tasks_per_node or max(held.cpus // each, 1) for held in job.slices]
