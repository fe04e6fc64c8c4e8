"""From a request for a step to what enters the log and what is launched.  Pure.

What can be refused at once is refused with Slurm's sentence; what only has to wait is for the placement.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from spur_core.errors import RequestError
from spur_core.grammar import gres, hostlist
from spur_ctld import bounds
from spur_ctld.dispatch.launch_spec import StepInputs
from spur_ctld.state import distribution
from spur_ctld.state.records import UNLIMITED, Gres, Request, StepAsk
from spur_ctld.submit import environment, step_shape
from spur_proto import controller_pb2 as pb

#: Environment, command and everything else together.
MAX_BYTES: Final = 4 << 20
_MOST_UMASK: Final = 0o777


class Wanted(NamedTuple):
    """A request that makes sense; `time_limit` None = only the job's."""

    ask: StepAsk
    inputs: StepInputs
    name: str
    time_limit: int | None


def resolve(request: pb.CreateJobStepRequest, address: str, job: Request | None = None) -> Wanted:
    """What `request` asks for.

    Args:
        address: the caller's host as the controller sees it.
        job: what its job asked for, if there is such a job.

    Raises:
        RequestError: it cannot be; names the field.
    """
    if request.ByteSize() > MAX_BYTES:
        raise RequestError("the step's environment is too large: more than 4 MiB")
    bounds.check_texts(request)
    if not request.argv and not request.shape.commands:
        raise RequestError("No command given to execute.")
    if any(b"\0" in word for word in request.argv):
        raise RequestError("argv: a word must not contain NUL")
    environment(request.environment)
    if request.HasField("umask") and request.umask > _MOST_UMASK:
        raise RequestError(f"umask: {request.umask:#o} is more than 0777")
    if request.work_dir and not request.work_dir.startswith("/"):
        raise RequestError(f"work_dir: {request.work_dir!r} is not an absolute path")
    inputs = StepInputs(
        argv=tuple(request.argv),
        environment=tuple(request.environment),
        work_dir=request.work_dir,
        umask=request.umask if request.HasField("umask") else None,
        rlimits=tuple(map(bounds.rlimit, request.rlimits)),
        label=request.label,
        stdin_path=request.stdin_path,
        shape=step_shape(request.shape),
        address=address,
    )
    limit = request.time_limit_secs if request.HasField("time_limit_secs") else None
    return Wanted(
        ask=_as_its_job(ask_of(request), job),
        inputs=inputs,
        name=request.name or "srun",
        time_limit=None if limit in (0, UNLIMITED) else limit,
    )


def _as_its_job(ask: StepAsk, job: Request | None) -> StepAsk:
    """Memory for each CPU, as the job has it, is all of the job's for a step with all of its CPUs.

    Threads that the job leaves idle are held, and come without memory.
    """
    if job is None or not job.threads_per_core or ask.exact or ask.cpus_per_task is not None:
        return ask
    if ask.memory_per_cpu_mb != job.memory_per_cpu_mb:
        return ask
    return msgspec.structs.replace(ask, memory_per_cpu_mb=None)


def ask_of(request: pb.CreateJobStepRequest) -> StepAsk:
    """The placement part."""
    distribution.parse(request.distribution)
    per_node = _given(request, "memory_per_node_mb")
    per_cpu = _given(request, "memory_per_cpu_mb")
    if per_node is not None and per_cpu is not None:
        raise RequestError("memory_per_node_mb and memory_per_cpu_mb are mutually exclusive")
    bounds.memory_mb(per_node or per_cpu or 0, "memory")
    if request.HasField("relative") and (request.nodelist or request.exclude):
        raise RequestError("relative: cannot be combined with nodelist or exclude")
    return StepAsk(
        num_tasks=_given(request, "num_tasks"),
        min_nodes=_given(request, "min_nodes"),
        max_nodes=_given(request, "max_nodes"),
        cpus_per_task=_given(request, "cpus_per_task"),
        tasks_per_node=_given(request, "tasks_per_node"),
        distribution=request.distribution,
        exact=request.exact,
        overlap=request.overlap,
        overcommit=request.overcommit,
        nodelist=tuple(hostlist.expand(request.nodelist)) if request.nodelist else (),
        exclude=tuple(hostlist.expand(request.exclude)) if request.exclude else (),
        relative=_given(request, "relative"),
        memory_per_node_mb=per_node,
        memory_per_cpu_mb=per_cpu,
        gres=_gres(request.gres),
        gres_per_task=_gres(request.gres_per_task) or (),
    )


def _given(request: pb.CreateJobStepRequest, name: str) -> int | None:
    return int(getattr(request, name)) if request.HasField(name) else None


def _gres(items: Iterable[str]) -> tuple[Gres, ...] | None:
    """None = not asked; `none` = asked for nothing."""
    text = bounds.bounded(",".join(items), "gres", bounds.TEXTS["gres"])
    if not text:
        return None
    if text.strip().lower() == "none":
        return ()
    found = gres.parse_gres(text)
    if any(count > 1 << 40 for _, _, count in found):
        raise RequestError("Invalid generic resource (gres) specification")
    return tuple(Gres(name=name, type=kind, count=count) for name, kind, count in found)
