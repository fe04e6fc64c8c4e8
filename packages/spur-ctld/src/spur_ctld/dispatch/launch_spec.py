"""From a dispatched job to the launch specification of each of its nodes.  Pure.

The bytes of the serialized spec are what the launch token signs, so a spec is built and serialized once
per node and launch.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from spur_core.ids import RuntimeId
from spur_ctld.state.apply_complete import step_of
from spur_ctld.state.cluster import launch_nodes
from spur_ctld.state.records import UNLIMITED, Gres, Job, Slice
from spur_proto import agent_pb2 as pb
from spur_proto import common_pb2


class ClusterFacts(NamedTuple):
    """What a launch needs to know of the cluster besides the job."""

    cluster_name: str
    kill_wait_secs: int


def runtime_id(job: Job) -> RuntimeId:
    """The identity of the present attempt's first step."""
    return RuntimeId(job.job_id, job.run_attempt, step_of(job))


def rid_message(rid: RuntimeId) -> common_pb2.RuntimeId:
    """The wire form; the step is always present."""
    return common_pb2.RuntimeId(job_id=rid.job_id, run_attempt=rid.run_attempt, step_id=rid.step_id)


def run_length(values: Sequence[int]) -> str:
    """Slurm's form of a per-node list: 2, 2, 2, 1 is `2(x3),1`."""
    parts = []
    for value, run in groupby(values):
        count = len(list(run))
        parts.append(f"{value}(x{count})" if count > 1 else str(value))
    return ",".join(parts)


def gres_messages(gres: Sequence[Gres]) -> list[common_pb2.GresCount]:
    return [common_pb2.GresCount(name=g.name, type=g.type, count=g.count) for g in gres]


def slice_message(part: Slice) -> common_pb2.NodeSlice:
    return common_pb2.NodeSlice(
        node=part.node,
        cpus=part.cpus,
        memory_mb=part.memory_mb,
        gres=gres_messages(part.gres),
        ranks=part.ranks,
    )


def split_environment(env: bytes) -> list[bytes]:
    """The entries of a NUL-joined environment; nothing in, nothing out."""
    return env.split(b"\0") if env else []


def build(job: Job, facts: ClusterFacts, start_at: float) -> list[pb.LaunchSpec]:
    """One spec per node that launches something (`launch_nodes`), in allocation order.

    Args:
        start_at: when the attempt starts, for the job's environment; the limit counts from here.
    """
    request = job.request
    nodes = [part.node for part in job.slices]
    tasks = [len(part.ranks) for part in job.slices]
    limit = request.time_limit
    base = pb.LaunchSpec(
        rid=rid_message(runtime_id(job)),
        cluster_name=facts.cluster_name,
        job_name=request.name,
        user=request.user,
        uid=request.uid,
        gid=request.gid,
        partition=job.partition,
        account=request.account,
        qos=request.qos,
        script=request.script,
        argv=request.argv,
        script_args=request.script_args,
        environment=split_environment(request.env),
        work_dir=request.work_dir,
        stdout_path=request.stdout,
        stderr_path=request.stderr,
        stdin_path=request.stdin,
        open_mode=request.open_mode,
        spool_output=request.srun,
        label=request.label,
        rlimits=request.rlimits,
        nodes=nodes,
        total_tasks=sum(tasks) or request.num_tasks,
        cpus_per_task=request.cpus_per_task,
        tasks_given=request.tasks_given,
        tasks_per_node_text=run_length(tasks),
        cpus_per_node_text=run_length([part.cpus for part in job.slices]),
        restarts=job.restarts,
        start_at=start_at,
        end_at=0.0 if limit is None or limit == UNLIMITED else start_at + limit,
        submit_host=request.submit_host,
        submit_dir=request.submit_dir or request.work_dir,
        dependency=request.dependency,
        kill_wait_secs=facts.kill_wait_secs,
        cpus_per_task_given=request.cpus_per_task_given,
    )
    for name, value in (
        ("umask", request.umask),
        ("tasks_per_node", request.tasks_per_node),
        ("memory_per_node_mb", request.memory_per_node_mb),
        ("memory_per_cpu_mb", request.memory_per_cpu_mb),
    ):
        if value is not None:
            setattr(base, name, value)
    if job.array_job_id is not None and job.array_task_id is not None:
        base.array_job_id = job.array_job_id
        base.array_task_id = job.array_task_id
        base.array_task_count = job.array_count
        base.array_task_min = job.array_min
        base.array_task_max = job.array_max
        base.array_task_step = job.array_step
    specs = []
    launching = launch_nodes(job)
    for index, part in enumerate(job.slices):
        if part.node not in launching:
            continue
        spec = pb.LaunchSpec()
        spec.CopyFrom(base)
        spec.node_index = index
        spec.slice.CopyFrom(slice_message(part))
        specs.append(spec)
    return specs
