"""From a dispatched job, or a step of it, to the launch specification of each of its nodes.  Pure.

The bytes of the serialized spec are what the launch token signs, so a spec is built and serialized once
per node and launch.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from spur_core.ids import RuntimeId
from spur_ctld import submit_wishes
from spur_ctld.state.apply_complete import step_of
from spur_ctld.state.cluster import holds_only, launch_nodes
from spur_ctld.state.records import UNLIMITED, Gres, Job, Slice, Step
from spur_proto import agent_pb2 as pb
from spur_proto import common_pb2


class ClusterFacts(NamedTuple):
    """What a launch needs to know of the cluster besides the job."""

    cluster_name: str
    kill_wait_secs: int
    #: Node -> its address in the network and the pattern of that; None = the network has no shape.
    where: Callable[[str], tuple[str, str]] | None = None


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
    return [common_pb2.GresCount(name=g.name, type=g.type, count=g.count, indices=g.indices) for g in gres]


def slice_message(part: Slice) -> common_pb2.NodeSlice:
    return common_pb2.NodeSlice(
        node=part.node,
        cpus=part.cpus,
        memory_mb=part.memory_mb,
        gres=gres_messages(part.gres),
        ranks=part.ranks,
        layer=part.layer,
        cpu_ids=part.cpu_ids,
    )


def split_environment(env: bytes) -> list[bytes]:
    """The entries of a NUL-joined environment; nothing in, nothing out."""
    return env.split(b"\0") if env else []


class StepInputs(NamedTuple):
    """What a step runs; its client gave it, and the state does not keep it.

    `shape`: a serialized StepShape.  `address`: the client's host as the controller saw it.
    """

    argv: tuple[bytes, ...] = ()
    environment: tuple[bytes, ...] = ()
    work_dir: str = ""
    umask: int | None = None
    rlimits: tuple[str, ...] = ()
    label: bool = False
    stdin_path: str = ""
    shape: bytes = b""
    address: str = ""


def _base(job: Job, facts: ClusterFacts, start_at: float) -> pb.LaunchSpec:
    """What every step of the job is told of it."""
    request = job.request
    tasks = [len(part.ranks) for part in job.slices]
    limit = request.time_limit
    end_at = 0.0 if limit is None or limit == UNLIMITED else start_at + limit + job.suspended_secs
    base = pb.LaunchSpec(
        cluster_name=facts.cluster_name,
        job_name=request.name,
        user=request.user,
        uid=request.uid,
        gid=request.gid,
        partition=job.partition,
        account=request.account,
        qos=request.qos,
        nodes=[part.node for part in job.slices],
        total_tasks=sum(tasks) or request.num_tasks,
        job_tasks=request.num_tasks,
        cpus_per_task=request.cpus_per_task,
        tasks_given=request.tasks_given,
        tasks_per_node_text=run_length(tasks),
        cpus_per_node_text=run_length([part.cpus for part in job.slices]),
        restarts=job.restarts,
        start_at=start_at,
        end_at=end_at,
        submit_host=request.submit_host,
        submit_dir=request.submit_dir or request.work_dir,
        dependency=request.dependency,
        kill_wait_secs=facts.kill_wait_secs,
        cpus_per_task_given=request.cpus_per_task_given,
        comment=request.comment,
        reservation=job.reservation,
        licenses=",".join(f"{name}:{count}" for name, count in job.licenses),
        wishes=submit_wishes.message(request),
    )
    if request.gpus_per_node:
        gpus = [item for item in request.gres if item.name == "gpu"]
        base.gpus_per_node_text = ",".join(
            f"{item.type}:{item.count}" if item.type else str(item.count) for item in gpus
        )
    for name, value in (
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
    return base


def build(job: Job, facts: ClusterFacts, start_at: float) -> list[pb.LaunchSpec]:
    """One spec per node that launches something (`launch_nodes`), in allocation order.

    A node that only holds its place gets no script and no command, so nothing could run them by mistake.

    Args:
        start_at: when the attempt starts, for the job's environment; the limit counts from here.
    """
    request = job.request
    base = _base(job, facts, start_at)
    base.rid.CopyFrom(rid_message(runtime_id(job)))
    base.environment.extend(split_environment(request.env))
    base.work_dir = request.work_dir
    base.rlimits.extend(request.rlimits)
    base.job_lifetime = True
    if request.umask is not None:
        base.umask = request.umask
    if request.srun:
        base.distribution = request.distribution
        base.step_name = request.name
        base.shape.ParseFromString(request.shape)
        base.srun_host = request.submit_host
        tasked = [part for part in job.slices if not holds_only(job, part.node)]
        _step_layout(base, tasked, sum(len(part.ranks) for part in tasked) or request.num_tasks)
    places = {name: index for index, name in enumerate(base.step_nodes)}
    launching = set(launch_nodes(job))
    specs = []
    for index, part in enumerate(job.slices):
        if part.node not in launching:
            continue
        spec = pb.LaunchSpec()
        spec.CopyFrom(base)
        spec.node_index = index
        spec.step_node_index = places.get(part.node, 0)
        spec.slice.CopyFrom(slice_message(part))
        spec.job_slice.CopyFrom(spec.slice)
        _stands(spec, part.node, facts)
        if holds_only(job, part.node):
            spec.hold = True
        else:
            _command(spec, job)
        specs.append(spec)
    return specs


def _stands(spec: pb.LaunchSpec, node: str, facts: ClusterFacts) -> None:
    if facts.where is not None:
        spec.topology_addr, spec.topology_addr_pattern = facts.where(node)


def _command(spec: pb.LaunchSpec, job: Job) -> None:
    """What a node with a task of the job runs, and where its input and output are."""
    request = job.request
    spec.script = request.script
    spec.argv.extend(request.argv)
    spec.script_args.extend(request.script_args)
    spec.stdout_path = request.stdout
    spec.stderr_path = request.stderr
    spec.stdin_path = request.stdin
    spec.open_mode = request.open_mode
    spec.spool_output = request.srun
    spec.label = request.label


def _step_layout(spec: pb.LaunchSpec, parts: Sequence[Slice], tasks: int) -> None:
    spec.step_nodes.extend(part.node for part in parts)
    spec.step_tasks_per_node_text = run_length([len(part.ranks) for part in parts])
    spec.step_tasks = tasks


def step_id_of(job: Job, step: Step) -> RuntimeId:
    """The identity of a step of the job's present attempt."""
    return RuntimeId(job.job_id, job.run_attempt, step.step_id)


def build_step(job: Job, step: Step, inputs: StepInputs, facts: ClusterFacts) -> dict[str, pb.LaunchSpec]:
    """One spec per node of a step inside the job's allocation."""
    base = _base(job, facts, job.start_at or step.created_at)
    base.rid.CopyFrom(rid_message(step_id_of(job, step)))
    base.argv.extend(inputs.argv)
    base.environment.extend(inputs.environment)
    base.work_dir = inputs.work_dir or job.request.work_dir
    base.rlimits.extend(inputs.rlimits)
    base.label = inputs.label
    base.stdin_path = inputs.stdin_path
    base.spool_output = True
    if inputs.umask is not None:
        base.umask = inputs.umask
    base.shape.ParseFromString(inputs.shape)
    base.cpus_per_task = step.cpus_per_task
    base.step_name = step.name
    base.distribution = step.distribution
    base.overlap = step.overlap
    base.exact = step.exact
    base.srun_host = step.submit_host
    base.srun_address = inputs.address
    _step_layout(base, step.slices, step.num_tasks)
    whole = {part.node: (index, part) for index, part in enumerate(job.slices)}
    specs = {}
    for place, part in enumerate(step.slices):
        spec = pb.LaunchSpec()
        spec.CopyFrom(base)
        spec.node_index, own = whole[part.node]
        spec.step_node_index = place
        spec.slice.CopyFrom(slice_message(part))
        spec.job_slice.CopyFrom(slice_message(own))
        _stands(spec, part.node, facts)
        specs[part.node] = spec
    return specs
