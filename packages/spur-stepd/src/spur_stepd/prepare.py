"""What must be there before a task can be forked: work directory, script, open files.

Everything of the user's is done with the user's rights.  Nothing here decides about the step; a failure is
a `StartFailure` that says whose fault it is.
"""

from __future__ import annotations

import errno
import os
import stat

from spur_core.errors import SpurError
from spur_core.grammar import filepattern
from spur_core.lean import namedtuple
from spur_core.linux import private_dir
from spur_proto_lite import paths
from spur_proto_lite.control import FAIL_IO, FAIL_JOB, FAIL_NODE
from spur_stepd import script as script_text
from spur_stepd import words

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from spur_proto_lite.launch_spec import LaunchSpec, TaskSpec
    from spur_stepd.privileges import Privileges

    class WorkDir(NamedTuple):
        path: str
        #: Private scratch that we made, to be removed at the end if it is empty.
        scratch: bool
        #: For the job's stderr, "" when all is well.
        warning: str

    class Script(NamedTuple):
        path: str
        directory: str
else:
    WorkDir = namedtuple("WorkDir", ("path", "scratch", "warning"))
    Script = namedtuple("Script", ("path", "directory"))

SCRIPT_NAME = "slurm_script"


class StartFailure(SpurError):
    """A start that cannot succeed.  `kind` is one of `control.FAIL_*`."""

    code = "start_failed"

    def __init__(self, kind: str, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.kind = kind
        self.errno = number


def work_dir(spec: LaunchSpec, privileges: Privileges) -> WorkDir:
    """The directory in which the tasks run.  Never fails: what cannot be used is replaced by scratch."""
    wanted, why = spec.work_dir, ""
    if wanted:
        try:
            os.makedirs(wanted, exist_ok=True)
        except OSError as error:
            why = error.strerror or str(error)
        if not why and not os.access(wanted, os.X_OK, effective_ids=True):
            why = os.strerror(errno.EACCES)
        if not why:
            return WorkDir(wanted, False, "")
    instead, scratch = _scratch(spec, privileges)
    return WorkDir(instead, scratch, words.no_work_dir(wanted, why, instead) if wanted else "")


def _scratch(spec: LaunchSpec, privileges: Privileges) -> tuple[str, bool]:
    """(per-job scratch, True), or (the temporary directory, False) when it cannot be made."""
    top = paths.scratch_top(spec.tmp_dir, privileges.uid)
    leaf = f"{top}/{paths.scratch_name(spec.rid)}"
    try:
        for level in (top, leaf):
            os.close(private_dir.ensure(level, privileges.uid))
    except (OSError, SpurError):
        return spec.tmp_dir, False
    return leaf, spec.job_lifetime  # else it may be the job's, too


def spool_script(spec: LaunchSpec, state: paths.StatePaths, privileges: Privileges) -> Script:
    """Write the batch script where only the user and root can get at it, and the user can execute it.

    Raises:
        StartFailure: a node's fault below the node's own spool, the job's anywhere else.
    """
    own_spool = spec.spool_dir or state.spool
    spare = paths.spare_script_dir(spec.tmp_dir, os.getuid(), own_spool, spec.rid)
    places = [f"{own_spool}/{spec.rid.dirname()}", spare]
    for place in places:
        last = place == spare
        root = os.path.dirname(place)
        try:
            placed = _spool_below(root, place, spec, privileges)
        except OSError as error:
            if last or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                own = not last and error.errno != errno.EDQUOT
                raise StartFailure(
                    FAIL_NODE if own else FAIL_JOB,
                    f"cannot write the batch script below {root}: {error.strerror}",
                    error.errno or 0,
                ) from error
        except private_dir.NotPrivate as error:
            if last:
                raise StartFailure(FAIL_NODE, f"cannot write the batch script: {error}") from error
        else:
            if last or os.access(placed.path, os.X_OK, effective_ids=True):
                return placed
            # A parent that the user may not enter: nothing below this root is of use to him.
            remove_script(placed, privileges)
    raise AssertionError("the last root either serves or raises")


def _spool_below(root: str, directory: str, spec: LaunchSpec, privileges: Privileges) -> Script:
    with privileges.root():
        os.makedirs(root, exist_ok=True)
        found = os.lstat(root)
        if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
            raise private_dir.NotPrivate(root, "is not a directory of our own that nobody else can write")
        os.chmod(root, 0o711)  # noqa: S103 - users pass through to their own, nobody can list
        fd = private_dir.ensure(directory)
        try:
            out = os.open(SCRIPT_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700, dir_fd=fd)
            try:
                rest = memoryview(script_text.body(spec.script))
                while rest:
                    rest = rest[os.write(out, rest) :]
                os.fchmod(out, 0o700)
                if privileges.is_root:
                    os.fchown(out, privileges.uid, privileges.gid)
                    os.fchown(fd, privileges.uid, privileges.gid)
            finally:
                os.close(out)
        finally:
            os.close(fd)
    return Script(f"{directory}/{SCRIPT_NAME}", directory)


def remove_script(script: Script, privileges: Privileges) -> None:
    """Remove a spooled script and its directory, as far as they are there."""
    with privileges.root():
        try:
            os.unlink(script.path)
        except OSError:
            pass
        try:
            os.rmdir(script.directory)
        except OSError:
            pass


def pattern_values(spec: LaunchSpec, task: TaskSpec) -> filepattern.PatternValues:
    """What the codes of the file patterns stand for in one task."""
    return filepattern.PatternValues(
        job_id=spec.rid.job_id,
        array_job_id=spec.array_job_id,
        array_task=spec.array_task_id,
        step=spec.rid.step_id if spec.is_numbered else None,
        task=task.rank,
        node=spec.node,
        node_index=spec.node_id,
        user=spec.user,
        job_name=spec.job_name,
        restarts=spec.restart_count,
    )


class TaskFiles:
    """Opens the files of the tasks, each path once, so that everybody who writes to it shares a place."""

    def __init__(self, spec: LaunchSpec, directory: str) -> None:
        self._spec = spec
        self._directory = directory
        self._opened: dict[str, int] = {}

    def paths(self, task: TaskSpec) -> tuple[str, str, str]:
        """Resolved (stdin, stdout, stderr) of a task; stdin "/dev/null" by default."""
        spec, values = self._spec, pattern_values(self._spec, task)
        default = filepattern.default_pattern(spec.array_task_id is not None)
        out = filepattern.resolve(spec.stdout_pattern or default, values, self._directory)
        err = (
            filepattern.resolve(spec.stderr_pattern, values, self._directory) if spec.stderr_pattern else out
        )
        source = spec.stdin_pattern or "/dev/null"
        return filepattern.resolve(source, values, self._directory), out, err

    def open_input(self, path: str) -> int:
        """A descriptor of an input file, which must exist.

        Raises:
            StartFailure: it does not, may not be read, or is an output file as well.
        """
        if path in self._opened and path != "/dev/null":
            raise StartFailure(FAIL_IO, f"{path} is to be read and written at the same time")
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            raise StartFailure(
                FAIL_IO, f"cannot open the input {path}: {error.strerror}", error.errno or 0
            ) from error
        os.set_blocking(fd, True)
        return fd

    def open_output(self, path: str) -> int:
        """A descriptor of an output file, shared by everybody who names the same path.

        Raises:
            StartFailure: it cannot be opened; a missing directory is not made.
        """
        if path in self._opened:
            return self._opened[path]
        append = self._spec.open_mode.lower() == "append"
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK
        flags |= os.O_APPEND if append else os.O_TRUNC
        old_umask = os.umask(self._spec.umask)
        try:
            try:
                fd = os.open(path, flags, 0o666)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                # A FIFO that nobody reads yet: hold it open without waiting for a reader.
                fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise StartFailure(
                FAIL_IO, f"cannot open the output {path}: {error.strerror}", error.errno or 0
            ) from error
        finally:
            os.umask(old_umask)
        os.set_blocking(fd, True)
        self._opened[path] = fd
        return fd

    def close(self) -> None:
        """Close every shared output descriptor."""
        for fd in self._opened.values():
            os.close(fd)
        self._opened.clear()
