"""What the descriptor says of a session at each moment."""

from __future__ import annotations

import os

from spur_proto_lite.descriptor import Descriptor

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from spur_proto_lite.control import StartReply
    from spur_proto_lite.launch_spec import LaunchSpec
    from spur_stepd.targets import Targets


def descriptor(
    spec: LaunchSpec,
    spec_sha256: str,
    start_ticks: int,
    boot_id: str,
    created_at: float,
    targets: Targets,
    started: StartReply,
) -> Descriptor:
    """The descriptor of this process's session.

    Args:
        start_ticks: of this process.
        started: the answer to `start`, with nothing in it before that.
    """
    return Descriptor(
        rid=spec.rid,
        stepd_pid=os.getpid(),
        stepd_start_ticks=start_ticks,
        boot_id=boot_id,
        task_pid=started.task_pid,
        task_start_ticks=None if started.task_pid is None else targets.tasks.get(started.task_pid),
        pgid=started.pgid,
        cgroup=targets.groups,
        node=spec.node,
        cohort=spec.cohort,
        step_nodes=spec.n_nodes,
        uid=spec.uid,
        gid=spec.gid,
        user=spec.user,
        partition=spec.partition,
        nodelist=spec.nodelist,
        cpus=spec.cpus,
        cpu_ids=spec.cpu_ids,
        memory_mb=spec.memory_mb,
        gpu_ids=spec.gpu_ids,
        gres=spec.gres,
        stdout_path=started.stdout_path,
        stderr_path=started.stderr_path,
        stdin_path=started.stdin_path,
        work_dir=started.work_dir,
        spec_sha256=spec_sha256,
        created_at=created_at,
    )
