"""Groups of one step: made with limits, joined, signalled, frozen, killed, removed.

A step's groups are a tuple of directories, the v2 one first if there is one; it is what the descriptor
keeps, so every function below takes just that.  Membership is the same in all of them; the v2 directory
is asked for processes, and freezes and kills.
"""

from __future__ import annotations

import errno
import os
import select
import time

from spur_core.lean import namedtuple, signal
from spur_core.linux.cgroup_layout import LIMITING, Root

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Limits(NamedTuple):
        """0 or empty = not limited."""

        memory_mb: int = 0
        #: Whole CPUs of the quota.
        cpus: int = 0
        cpu_ids: tuple[int, ...] = ()
        #: Swap beside the memory, MiB.
        swap_mb: int = 0
else:
    Limits = namedtuple("Limits", ("memory_mb", "cpus", "cpu_ids", "swap_mb"), defaults=(0, 0, (), 0))

_PERIOD_US = 100_000
_MIB = 1 << 20
_MIN_PIDS = 1024
_PIDS_PER_CPU = 256
#: Looks for processes that were forked while others were being killed.
KILL_ROUNDS = 10
#: How many groups a user may make below a step's that was delegated to him.
_MAX_DESCENDANTS = 1000
#: How deep.  A name has 255 bytes, and all of a path must have less than 4096: what cannot be named can
#: neither be looked into nor removed.
_MAX_DEPTH = 8


def pids_limit(cpus: int) -> int:
    """How many processes and threads a step of `cpus` CPUs may have."""
    return max(_PIDS_PER_CPU * cpus, _MIN_PIDS)


def create_step(
    root: Root, job_name: str, step_name: str, job: Limits, step: Limits, keep: bool = False
) -> tuple[tuple[str, ...], list[str]]:
    """Make `JOB/STEP` below the root of every hierarchy and set the limits.

    The job's own limits are set by whichever step makes the job's group first.

    Args:
        keep: take over a step's group that is there with processes in it (its supervisor was lost).

    Returns:
        (the step's directories, warnings about limits that could not be set)

    Raises:
        OSError: a group cannot be made, or the step's group is there already with processes in it.  An
            empty one from a life before is replaced, not reused: a group that was killed once may kill
            whoever is put into it.
    """
    warnings: list[str] = []
    made: list[str] = []
    places: list[tuple[str, tuple[str, ...]]] = []
    if root.unified:
        places.append((root.unified, tuple(c for c in LIMITING if c in root.unified_controllers)))
    by_mount: dict[str, tuple[str, ...]] = {}
    for controller, directory in root.v1.items():
        by_mount[directory] = (*by_mount.get(directory, ()), controller)
    places.extend(by_mount.items())
    try:
        for base, controllers in places:
            unified = base == root.unified
            directory = _make_nested(base, job_name, step_name, controllers, unified, job, warnings, keep)
            made.append(directory)
            _limit(directory, controllers, unified, step, warnings)
            if unified and "memory" in controllers:
                _try_write(f"{directory}/memory.oom.group", "1", warnings)
    except OSError:
        remove(tuple(made))
        raise
    return tuple(made), warnings


def _make_nested(
    base: str,
    job_name: str,
    step_name: str,
    controllers: tuple[str, ...],
    unified: bool,
    job: Limits,
    warnings: list[str],
    keep: bool,
) -> str:
    """Make base, base/job and base/job/step, handing controllers down; another step may remove the job's
    group between two calls, then it is made again."""
    for _ in range(20):
        _make_passing(base, controllers, unified, warnings)
        parent = f"{base}/{job_name}"
        if _make_passing(parent, controllers, unified, warnings):
            _limit(parent, controllers, unified, job, warnings)
        directory = f"{parent}/{step_name}"
        try:
            _mkdir(directory)
        except FileNotFoundError:
            continue
        except FileExistsError:
            if is_populated((directory,)):
                if keep:
                    return directory
                raise
            if remove((directory,)):
                raise
            continue
        _inherit_cpuset(directory, controllers, unified)
        return directory
    raise OSError(errno.ENOENT, "the job's group keeps vanishing", f"{base}/{job_name}")


def _make_passing(directory: str, controllers: tuple[str, ...], unified: bool, warnings: list[str]) -> bool:
    """Make a group that only holds groups; True when it was not there."""
    if unified:
        # Handed down from the parent one by one: a missing one must not take the others with it.
        for controller in controllers:
            _try_write(f"{os.path.dirname(directory)}/cgroup.subtree_control", f"+{controller}", warnings)
    try:
        _mkdir(directory)
    except FileExistsError:
        made = False
    else:
        made = True
        _inherit_cpuset(directory, controllers, unified)
    if unified:
        for controller in controllers:
            _try_write(f"{directory}/cgroup.subtree_control", f"+{controller}", warnings)
    return made


def _mkdir(directory: str) -> None:
    """Make a group that everybody may look into, as everywhere, whatever our umask."""
    os.mkdir(directory)
    os.chmod(directory, 0o755)  # noqa: S103


def _inherit_cpuset(directory: str, controllers: tuple[str, ...], unified: bool) -> None:
    """A new v1 cpuset is empty and takes nobody: give it its parent's, memory nodes first."""
    if unified or "cpuset" not in controllers:
        return
    for name in ("cpuset.mems", "cpuset.cpus"):
        if not _read(f"{directory}/{name}").strip():
            _write(f"{directory}/{name}", _read(f"{os.path.dirname(directory)}/{name}").strip())


def delegate(dirs: tuple[str, ...], uid: int, gid: int) -> None:
    """Let the job's user divide his step's v2 group further; limits and the group itself stay ours.

    v1 groups are not given away: a user who may write to two of them can move processes between them.
    """
    directory = unified_dir(dirs)
    if not directory:
        return
    _try_write(f"{directory}/cgroup.max.descendants", str(_MAX_DESCENDANTS), [])
    _try_write(f"{directory}/cgroup.max.depth", str(_MAX_DEPTH), [])
    for name in ("", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control"):
        try:
            os.chown(f"{directory}{name}", uid, gid)
        except OSError:
            pass  # an old kernel lacks some of them


def set_limits(dirs: tuple[str, ...], limits: Limits) -> list[str]:
    """Change limits of a step's groups; returns warnings."""
    warnings: list[str] = []
    for directory in dirs:
        unified = _is_unified(directory)
        present = tuple(c for c in LIMITING if _has(directory, c, unified))
        _limit(directory, present, unified, limits, warnings)
    return warnings


def set_job_limits(dirs: tuple[str, ...], limits: Limits) -> list[str]:
    """Change limits of a step's groups and of its job's; returns warnings.

    A step's may never exceed its job's, so what shrinks there goes first and what grows last; CPUs that
    both are to have instead of others are lent to the job for the change.
    """
    jobs = job_dirs(dirs)
    if limits.cpu_ids:
        for directory in jobs:
            path = f"{directory}/cpuset.cpus"
            _try_write(path, f"{_read(path).strip()},{_cpu_list(limits.cpu_ids)}", [])
    set_limits(dirs, limits)
    warnings = set_limits(jobs, limits)
    return warnings + set_limits(dirs, limits)


def _cpu_list(cpu_ids: tuple[int, ...]) -> str:
    return ",".join(map(str, cpu_ids))


def _has(directory: str, controller: str, unified: bool) -> bool:
    probe = {
        "memory": "memory.max" if unified else "memory.limit_in_bytes",
        "cpu": "cpu.max" if unified else "cpu.cfs_quota_us",
        "cpuset": "cpuset.cpus",
        "pids": "pids.max",
    }
    return os.access(f"{directory}/{probe[controller]}", os.F_OK)


def _limit(
    directory: str, controllers: tuple[str, ...], unified: bool, limits: Limits, warnings: list[str]
) -> None:
    if "memory" in controllers and limits.memory_mb:
        memory, swap = limits.memory_mb * _MIB, limits.swap_mb * _MIB
        if unified:
            _try_write(f"{directory}/memory.max", str(memory), warnings)
            if os.access(f"{directory}/memory.swap.max", os.F_OK):
                _try_write(f"{directory}/memory.swap.max", str(swap), warnings)
        else:
            _limit_v1_memory(directory, memory, memory + swap, warnings)
    if "cpu" in controllers and limits.cpus:
        quota = limits.cpus * _PERIOD_US
        if unified:
            _try_write(f"{directory}/cpu.max", f"{quota} {_PERIOD_US}", warnings)
        else:
            _try_write(f"{directory}/cpu.cfs_period_us", str(_PERIOD_US), warnings)
            _try_write(f"{directory}/cpu.cfs_quota_us", str(quota), warnings)
    if "cpuset" in controllers and limits.cpu_ids:
        _try_write(f"{directory}/cpuset.cpus", _cpu_list(limits.cpu_ids), warnings)
    if "pids" in controllers and limits.cpus:
        _try_write(f"{directory}/pids.max", str(pids_limit(limits.cpus)), warnings)


def _limit_v1_memory(directory: str, memory: int, with_swap: int, warnings: list[str]) -> None:
    """Both v1 figures; the one with swap may never be the smaller, so the order depends on the direction."""
    plain, swap = f"{directory}/memory.limit_in_bytes", f"{directory}/memory.memsw.limit_in_bytes"
    has_swap = os.access(swap, os.F_OK)
    raising = has_swap and int(_read(swap) or 0) < with_swap
    if raising:
        _try_write(swap, str(with_swap), warnings)
    _try_write(plain, str(memory), warnings)
    if has_swap and not raising:
        _try_write(swap, str(with_swap), warnings)


def join(dirs: tuple[str, ...], born_in: str = "") -> None:
    """Move the calling process, which must have one thread only, in.

    Children made before stay outside, so it joins before it execs.  Each v1 group is joined by its `tasks`:
    for one thread that moves itself the kernel need not wait for all processors, for `cgroup.procs` it does.

    Args:
        born_in: the one among `dirs` that the process has been in from the beginning.

    Raises:
        OSError: refused; it may be in some of the groups.
    """
    for directory in dirs:
        if directory != born_in:
            _enter(directory)


def _enter(directory: str) -> None:
    try:
        _write(f"{directory}/tasks", "0")
    except FileNotFoundError:
        _write(f"{directory}/cgroup.procs", "0")


def unified_dir(dirs: tuple[str, ...]) -> str:
    """The v2 group among `dirs`, "" without one."""
    return next(filter(_is_unified, dirs), "")


def adopt(dirs: tuple[str, ...], pid: int) -> None:
    """Move another process, with all its threads, in.

    Raises:
        OSError: refused, or it is gone; it may be in some of the groups.
    """
    for directory in dirs:
        _write(f"{directory}/cgroup.procs", str(pid))


def branch(dirs: tuple[str, ...], name: str) -> tuple[tuple[str, ...], str]:
    """Make a group below a step's, so that some of its processes can be told from the others and killed
    alone.  Its limits are the step's.

    Returns:
        (what to join instead of `dirs`, the new group); without a v2 group `dirs` itself and "".
    """
    for directory in dirs:
        if _is_unified(directory):
            made = f"{directory}/{name}"
            try:
                _mkdir(made)
            except OSError:
                break
            return tuple(made if one == directory else one for one in dirs), made
    return dirs, ""


def supervisors_dir(base: str) -> str:
    """The group of supervisors below the root of one hierarchy."""
    return f"{base}/stepd"


def join_supervisors(root: Root) -> None:
    """Move the calling process into the group of supervisors (`stepd` below the root of each hierarchy).

    It has no limits, and it is neither the agent's group nor a job's.

    Raises:
        OSError: refused.
    """
    warnings: list[str] = []
    own = str(os.getpid())
    for base in dict.fromkeys(filter(None, (root.unified, *root.v1.values()))):
        unified = base == root.unified
        controllers = tuple(c for c, directory in root.v1.items() if directory == base)
        directory = supervisors_dir(base)
        if own in _read(f"{directory}/cgroup.procs").split():
            continue
        _make_passing(base, controllers, unified, warnings)
        try:
            _mkdir(directory)
        except FileExistsError:
            pass
        else:
            _inherit_cpuset(directory, controllers, unified)
        _enter(directory)


def _is_unified(directory: str) -> bool:
    return os.access(f"{directory}/cgroup.events", os.F_OK)


def _tracking(dirs: tuple[str, ...]) -> str | None:
    """The directory that is asked for processes."""
    for directory in dirs:
        if _is_unified(directory):
            return directory
    for directory in dirs:
        if os.access(f"{directory}/cgroup.procs", os.F_OK):
            return directory
    return None


def procs(dirs: tuple[str, ...]) -> list[int]:
    """Every process in the groups and the groups below them; empty when they are gone.

    Raises:
        OSError: the groups are there and cannot be read.
    """
    directory = _tracking(dirs)
    if directory is None:
        return []
    found: list[int] = []
    for at in _walk(directory):
        try:
            found.extend(map(int, _read_or_raise(f"{at}/cgroup.procs").split()))
        except FileNotFoundError:
            pass
        except OSError as error:
            # Removed while it was read, or a user's threaded group, whose processes its parent lists.
            if error.errno not in (errno.ENODEV, errno.EOPNOTSUPP):
                raise
    return found


def is_populated(dirs: tuple[str, ...]) -> bool:
    """Whether any process, zombies included, is still in the groups."""
    directory = _tracking(dirs)
    if directory is None:
        return False
    if _is_unified(directory):
        return "populated 1" in _read(f"{directory}/cgroup.events")
    return bool(procs(dirs))


def freeze(dirs: tuple[str, ...], frozen: bool) -> bool:
    """Freeze or thaw; False when there is no freezer here."""
    for directory in dirs:
        for name, values in (("cgroup.freeze", ("0", "1")), ("freezer.state", ("THAWED", "FROZEN"))):
            path = f"{directory}/{name}"
            if os.access(path, os.W_OK):
                try:
                    _write(path, values[frozen])
                except OSError:
                    continue
                return True
    return False


def kill(dirs: tuple[str, ...]) -> bool:
    """SIGKILL to everything in the groups; False when there is no group to be killed.

    Frozen first, so that nobody forks meanwhile; then each process by itself, until two looks in a row
    bring no new one; then `cgroup.kill` for whoever has escaped that.  A killed group is not used again.
    """
    directory = _tracking(dirs)
    if directory is None:
        return False
    frozen = freeze(dirs, True)
    try:
        _kill_each(dirs)
        if os.access(f"{directory}/cgroup.kill", os.W_OK):
            _try_write(f"{directory}/cgroup.kill", "1", [])
    finally:
        if frozen:
            freeze(dirs, False)
    return True


def _kill_each(dirs: tuple[str, ...]) -> None:
    done: set[int] = set()
    quiet = 0
    for _ in range(KILL_ROUNDS):
        try:
            fresh = set(procs(dirs)) - done - {os.getpid()}
        except OSError:
            return
        quiet = 0 if fresh else quiet + 1
        if quiet == 2:
            return
        for pid in fresh:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        done |= fresh


def wait_empty(dirs: tuple[str, ...], timeout: float) -> bool:
    """Block until no process is left, at most `timeout` seconds; whether it came to that."""
    deadline = time.monotonic() + timeout
    directory = _tracking(dirs)
    events = -1
    if directory is not None and _is_unified(directory):
        try:
            events = os.open(f"{directory}/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return not is_populated(dirs)
    try:
        poller = select.poll()
        if events >= 0:
            poller.register(events, select.POLLPRI)
        while is_populated(dirs):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            # v1 tells nobody when a group gets empty.
            poller.poll(min(left, 1.0 if events >= 0 else 0.02) * 1000)
        return True
    finally:
        if events >= 0:
            os.close(events)


def remove(dirs: tuple[str, ...]) -> list[str]:
    """Remove the groups, the ones below them first, and the job's group when this was its last step.

    Returns:
        Directories that could not be removed: something is still in them; try again a little later.
    """
    left = []
    for directory in dirs:
        for at in reversed(_walk(directory)):
            try:
                os.rmdir(at)
            except FileNotFoundError:
                pass
            except OSError:
                left.append(at)
        parent = os.path.dirname(directory)
        if directory not in left and os.path.basename(parent).startswith("job_"):
            try:
                os.rmdir(parent)
            except OSError:
                pass  # other steps are there
    return left


def job_dirs(dirs: tuple[str, ...]) -> tuple[str, ...]:
    """The groups of the job that the groups of a step lie in."""
    parents = tuple(os.path.dirname(directory) for directory in dirs)
    return tuple(parent for parent in parents if os.path.basename(parent).startswith("job_"))


def oom_kills(dirs: tuple[str, ...]) -> int:
    """How many processes of the groups the kernel has killed for want of memory."""
    total = 0
    for directory in dirs:
        for name in ("memory.events", "memory.oom_control"):
            for line in _read(f"{directory}/{name}").splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    total += int(value)
    return total


def failures(dirs: tuple[str, ...]) -> int:
    """How often the groups have run into their memory limit, on kernels that do not count kills; else 0."""
    for directory in dirs:
        for name in ("memory.events", "memory.oom_control"):
            if "oom_kill " in _read(f"{directory}/{name}"):
                return 0
    return _first_number(dirs, ("memory.failcnt",))


def oom_control(dirs: tuple[str, ...]) -> str | None:
    """The v1 directory whose `memory.oom_control` tells of a kill, None where v2 kills whole groups."""
    for directory in dirs:
        if os.access(f"{directory}/cgroup.event_control", os.W_OK) and os.access(
            f"{directory}/memory.oom_control", os.R_OK
        ):
            return directory
    return None


def memory_bytes(dirs: tuple[str, ...]) -> int:
    """Memory in use by the groups; 0 where nobody counts it."""
    return _first_number(dirs, ("memory.current", "memory.usage_in_bytes"))


def cpu_usec(dirs: tuple[str, ...]) -> int:
    """CPU time used by the groups, microseconds; 0 where nobody counts it."""
    for directory in dirs:
        for line in _read(f"{directory}/cpu.stat").splitlines():
            key, _, value = line.partition(" ")
            if key == "usage_usec":
                return int(value)
    return 0


def _first_number(dirs: tuple[str, ...], names: tuple[str, ...]) -> int:
    for directory in dirs:
        for name in names:
            text = _read(f"{directory}/{name}").strip()
            if text.isdigit():
                return int(text)
    return 0


def _walk(directory: str) -> list[str]:
    """The group and all groups below it, parents first."""
    found = [directory]
    for at in found:
        try:
            with os.scandir(at) as entries:
                found.extend(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            continue
    return found


def _try_write(path: str, text: str, warnings: list[str]) -> None:
    try:
        _write(path, text)
    except OSError as error:
        warnings.append(f"{path}: {error.strerror}")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read_or_raise(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = bytearray()
        while part := os.read(fd, 4096):
            data += part
        return data.decode()
    finally:
        os.close(fd)


def _read(path: str) -> str:
    try:
        return _read_or_raise(path)
    except OSError:
        return ""
