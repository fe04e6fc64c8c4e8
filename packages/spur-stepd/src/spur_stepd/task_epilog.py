"""Task epilogs: the scripts that run as the user behind the end of each task, in the step's groups."""

from __future__ import annotations

from spur_stepd import hooks, task

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spur_proto_lite.exits import EpilogRecord
    from spur_proto_lite.launch_spec import LaunchSpec
    from spur_stepd.launch import Launched


def start(
    spec: LaunchSpec,
    launched: Launched,
    rank: int,
    runner: hooks.Hooks,
    now: float,
    done: Callable[[EpilogRecord], None],
) -> None:
    """Run the scripts behind the task of that rank; their failure changes nothing."""
    own = next(one for one in spec.task_list() if one.rank == rank)
    pid = next(one.pid for one in launched.tasks if one.rank == rank)
    hook = spec.task_epilog
    env = {**task.variables(spec, own, pid), **hook.env}
    runner.start(
        "task_epilog",
        hook,
        env,
        launched.work_dir.path,
        lambda: task.take_place(spec, launched.groups, runner.privileges),
        now,
        done,
    )
