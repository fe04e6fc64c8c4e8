"""What the administrator's scripts are told of the job, and what the launch spec says of them.  Pure."""

from typing import Final

from spur_agent import hooks
from spur_agent.environment import NodeContext
from spur_agent.share import Share, cpu_count, gpu_ids
from spur_core.grammar import hostlist
from spur_core.ids import is_numbered
from spur_proto import agent_pb2
from spur_proto_lite.launch_spec import HookSpec

#: Scripts of the administrator's need the system's own programs first.
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

PROLOG: Final = "prolog_slurmd"
EPILOG: Final = "epilog_slurmd"
TASK_PROLOG: Final = "prolog_task"
TASK_EPILOG: Final = "epilog_task"


def build(spec: agent_pb2.LaunchSpec, share: Share, here: NodeContext, context: str) -> dict[str, str]:
    """The environment of a script; that of a task's is laid over the task's own.

    Args:
        context: the value of SLURM_SCRIPT_CONTEXT.
    """
    job = str(spec.rid.job_id)
    facts = {
        "JOB_ID": job,
        "JOBID": job,
        "JOB_NAME": spec.job_name,
        "JOB_PARTITION": spec.partition,
        "JOB_ACCOUNT": spec.account,
        "JOB_NODELIST": hostlist.compress_sorted(list(spec.nodes)),
        "NODELIST": hostlist.compress_sorted(list(spec.nodes)),
        "JOB_USER": spec.user or str(spec.uid),
        "JOB_UID": str(spec.uid),
        "UID": str(spec.uid),
        "JOB_GID": str(spec.gid),
        "JOB_WORK_DIR": spec.work_dir,
        "JOB_GPUS": ",".join(map(str, gpu_ids(share.job))),
        "JOB_MEMORY_MB": str(share.job.memory_mb),
        "CPUS_ON_NODE": str(cpu_count(Share(share.job, share.job), 0)),
        "RESTART_COUNT": str(spec.restarts),
        "CLUSTER_NAME": spec.cluster_name,
        "SCRIPT_CONTEXT": context,
    }
    if spec.HasField("array_job_id"):
        facts["ARRAY_JOB_ID"], facts["ARRAY_TASK_ID"] = str(spec.array_job_id), str(spec.array_task_id)
    if is_numbered(spec.rid.step_id):
        facts["STEP_ID"] = facts["STEPID"] = str(spec.rid.step_id)
    env = {"SLURMD_NODENAME": here.node, "SPURD_NODENAME": here.node}
    for name, value in facts.items():
        env[f"SLURM_{name}"] = env[f"SPUR_{name}"] = value
    if here.config:
        env["SLURM_CONF"] = env["SPUR_CONF"] = here.config
    return env


def node_env(spec: agent_pb2.LaunchSpec, share: Share, here: NodeContext, context: str) -> dict[str, str]:
    """The whole environment of a script that runs as root beside the job."""
    return {"PATH": PATH, **build(spec, share, here, context)}


def specs(
    wire: agent_pb2.LaunchSpec,
    share: Share,
    here: NodeContext,
    files: hooks.HookFiles,
    settings: hooks.Hooks,
) -> tuple[HookSpec, HookSpec, HookSpec]:
    """(epilog, task prolog, task epilog) for the supervisor.

    srun's own task scripts run after the node's before a task, and before them after it; they are the
    user's, as whom all of these run.
    """
    epilog = task_prolog = task_epilog = HookSpec()
    before = (*files.task_prolog, *filter(None, (wire.shape.task_prolog,)))
    after = (*filter(None, (wire.shape.task_epilog,)), *files.task_epilog)
    if files.epilog:
        env = node_env(wire, share, here, EPILOG)
        epilog = HookSpec(paths=files.epilog, env=env, timeout_secs=settings.epilog_timeout_secs)
    if before:
        env = build(wire, share, here, TASK_PROLOG)
        task_prolog = HookSpec(paths=before, env=env, timeout_secs=settings.timeout_secs)
    if after:
        env = build(wire, share, here, TASK_EPILOG)
        task_epilog = HookSpec(paths=after, env=env, timeout_secs=settings.timeout_secs)
    return epilog, task_prolog, task_epilog
