"""What follows the exit of the step on which an attempt's stay on this node hangs.

Its other steps here are ended, the job's group is emptied and removed, and the epilog runs as root.  All
of it goes on beside the loop: the supervisor answers requests meanwhile.
"""

from __future__ import annotations

import os

from spur_core import faults
from spur_core.lean import partial
from spur_core.linux import cgroup
from spur_proto_lite.exits import EpilogRecord
from spur_proto_lite.paths import SessionPaths
from spur_stepd.log import say
from spur_stepd.siblings import Siblings

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spur_proto_lite.launch_spec import LaunchSpec
    from spur_proto_lite.paths import StatePaths
    from spur_stepd.hooks import Hooks

#: Seconds that the other steps have to end, and then whatever is left in the job's group.
SIBLING_PATIENCE = 30.0
GROUP_PATIENCE = 10.0
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.25


class Lifetime:
    """The end of a job on this node, for the supervisor of its job-lifetime step."""

    def __init__(self, spec: LaunchSpec, state: StatePaths, directory: int, hooks: Hooks) -> None:
        """
        Args:
            directory: descriptor of the session directory.
        """
        self._spec = spec
        self._state = state
        self._directory = directory
        self._hooks = hooks
        self._privileges = hooks.privileges
        self._loop = hooks.loop
        self._timers = hooks.timers

    # -- the other steps and the group -------------------------------------------------------------

    def end_others(self, groups: tuple[str, ...], reason: str, now: float, done: Callable[[], None]) -> None:
        """End the attempt's other steps, then everything in the job's group, and remove it.

        Args:
            groups: of this supervisor's own step; they are gone already.
            done: called once all of that has happened, or its time was over.
        """
        siblings = Siblings(self._loop, self._state, self._spec.rid, reason or "cancelled", self._privileges)
        jobs = cgroup.job_dirs(groups)
        self._wait_for_siblings(siblings, jobs, now + SIBLING_PATIENCE, _FIRST_PAUSE, done, now)

    def _wait_for_siblings(
        self,
        siblings: Siblings,
        jobs: tuple[str, ...],
        until: float,
        pause: float,
        done: Callable[[], None],
        now: float,
    ) -> None:
        left = siblings.look()
        if left and now < until:
            again = partial(
                self._wait_for_siblings, siblings, jobs, until, min(2 * pause, _LONGEST_PAUSE), done
            )
            self._timers.at(self, now + pause, again)
            return
        siblings.close()
        if left:
            say("siblings_left", steps=" ".join(map(str, left)))
        self._empty_group(jobs, now + GROUP_PATIENCE, _FIRST_PAUSE, done, now)

    def _empty_group(
        self, jobs: tuple[str, ...], until: float, pause: float, done: Callable[[], None], now: float
    ) -> None:
        with self._privileges.root():
            populated = cgroup.is_populated(jobs)
            if populated:
                cgroup.kill(jobs)
            else:
                # A moment can pass until a group whose last process is gone lets itself be removed.
                populated = bool(cgroup.remove(jobs))
        if populated and now < until:
            again = partial(self._empty_group, jobs, until, min(2 * pause, _LONGEST_PAUSE), done)
            self._timers.at(self, now + pause, again)
            return
        if populated:
            say("job_group_left", groups=" ".join(jobs))
        done()

    # -- the epilog --------------------------------------------------------------------------------

    def run_epilog(self, directory: str, now: float, done: Callable[[EpilogRecord], None]) -> None:
        """Run the node's epilog.

        Args:
            directory: the job's work directory.
            done: called once with the result.
        """
        hook = self._spec.epilog
        try:
            faults.before("epilog")
            self._mark()
        except FileExistsError:
            done(EpilogRecord(ok=False, status=1, text="the epilog had been started before"))
            return
        except OSError as error:
            # Run it all the same: what a missing mark risks is a second run should this process die.
            say("epilog_not_marked", error=error)
        become = self._privileges.become_root_for_good
        self._hooks.start("epilog", hook, hook.env, directory, become, now, done)
        faults.after("epilog")

    def _mark(self) -> None:
        """Leave word that the epilog has been started, for an agent that finds us dead.

        Raises:
            FileExistsError: somebody has done so.
            OSError: it cannot be written.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with self._privileges.root():
            fd = os.open(SessionPaths.EPILOG_STARTED, flags, 0o600, dir_fd=self._directory)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            os.fsync(self._directory)
