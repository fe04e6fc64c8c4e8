"""What a submission asks for besides nodes, tasks and CPUs.  Pure.

GPUs of the whole job, of tasks and of sockets, the make of nodes, sharing of nodes.
GPUs are asked for in one form only; what follows from them (tasks, how many nodes there may be) is worked out
here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from spur_core.errors import GrammarError, RequestError
from spur_core.grammar import gpus as gpu_rules
from spur_core.grammar import gres as grammar
from spur_ctld import bounds
from spur_ctld.state.records import Gres, Node, Request
from spur_ctld.submit_shape import MAX_TASKS, Shape
from spur_proto import common_pb2 as pb

BAD_GRES: Final = "Invalid generic resource (gres) specification"
BAD_TIME: Final = "Requested time limit is invalid (missing or exceeds some limit)"
#: What --hint means for the threads of a core that are used; None = all of them.
HINTS: Final[dict[str, int | None]] = {"compute_bound": 1, "nomultithread": 1, "multithread": None}
#: Wire field -> words for a value that cannot be.
_COUNTS: Final = {
    "cpus_per_gpu": "CPU count specification invalid",
    "ntasks_per_socket": "Task count specification invalid",
    "ntasks_per_core": "Task count specification invalid",
    "ntasks_per_gpu": "Task count specification invalid",
    "min_cpus": "CPU count specification invalid",
    "sockets_per_node": "Requested node configuration is not available",
    "cores_per_socket": "Requested node configuration is not available",
    "threads_per_core": "Requested node configuration is not available",
    "switches": "Switch count specification invalid",
}
_FLAGS: Final = ("gpus_per_node", "contiguous", "spread", "use_min_nodes", "oversubscribe", "exclusive_user")
_LISTS: Final = ("gres_total", "gres_per_task", "gres_per_socket")


def parse_gres_list(items: Iterable[str], nodes: Mapping[str, Node]) -> tuple[Gres, ...]:
    """Typed resources; a name that no node has is refused, a type that no node has is infeasible later."""
    text = ",".join(items)
    if not text:
        return ()
    found = grammar.parse_gres(text)
    known = {have.name for node in nodes.values() for have in node.gres}
    for name, _, count in found:
        if name not in known or count > 1 << 40:
            raise RequestError(BAD_GRES)
    return tuple(Gres(name=name, type=kind, count=count) for name, kind, count in found)


def fields(wishes: pb.JobWishes, nodes: Mapping[str, Node]) -> dict[str, Any]:
    """The fields of a `Request` that are set in the message, each checked for itself.

    Raises:
        RequestError: a value that cannot be.
    """
    found: dict[str, Any] = {}
    for name in _LISTS:
        if items := getattr(wishes, name):
            bounds.bounded(",".join(items), name, bounds.TEXTS["gres"])
            found[name] = parse_gres_list(items, nodes)
    for name, text in _COUNTS.items():
        if wishes.HasField(name):
            value = getattr(wishes, name)
            if not 0 < value <= MAX_TASKS:
                raise RequestError(text)
            found[name] = value
    for name in ("memory_per_gpu_mb", "tmp_disk_mb"):
        if wishes.HasField(name):
            found[name] = bounds.memory_mb(getattr(wishes, name), name)
    for name in _FLAGS:
        if wishes.HasField(name):
            found[name] = getattr(wishes, name)
    if wishes.HasField("switches_wait_secs"):
        found["switches_wait"] = wishes.switches_wait_secs
    if wishes.HasField("time_min_secs"):
        found["time_min"] = wishes.time_min_secs or None
    if wishes.hint:
        if wishes.hint not in HINTS:
            raise RequestError(f"hint: {wishes.hint[:80]!r} is not one of {', '.join(HINTS)}")
        found["hint"] = wishes.hint
    return found


def resolve(
    spec: pb.JobSpec, shape: Shape, gres: tuple[Gres, ...], limit: int | None, nodes: Mapping[str, Node]
) -> tuple[dict[str, Any], Shape]:
    """The wishes of a submission as fields of its `Request`, and its shape with what follows from them.

    Args:
        gres: of each node, parsed.
        limit: the time limit, seconds.

    Raises:
        RequestError: wishes that contradict each other; Slurm's sentence where it has one.
    """
    found = fields(spec.wishes, nodes)
    _sharing(spec, found)
    _times(found, limit)
    threads = HINTS.get(found.get("hint", ""))
    if threads is not None:
        if "threads_per_core" in found or "ntasks_per_core" in found:
            raise RequestError("--hint cannot be used together with --threads-per-core or --ntasks-per-core")
        found["threads_per_core"] = threads
    return found, _with_gpus(spec, found, shape, gres)


def _sharing(spec: pb.JobSpec, found: dict[str, Any]) -> None:
    if found.get("oversubscribe") and (spec.exclusive or found.get("exclusive_user")):
        raise RequestError("--exclusive and --oversubscribe options are mutually exclusive")
    if found.get("memory_per_gpu_mb") is not None and (
        spec.HasField("memory_per_node_mb") or spec.HasField("memory_per_cpu_mb")
    ):
        raise RequestError("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")
    if "cpus_per_gpu" in found and spec.HasField("cpus_per_task"):
        raise RequestError("--cpus-per-gpu and --cpus-per-task are mutually exclusive")


def switch_wait(found: Mapping[str, Any], most_secs: int) -> dict[str, int]:
    """How long a job that asks for few switches waits for them: as it wishes, within the cluster's bound."""
    if found.get("switches") is None:
        return {"switches_wait": 0}
    return {"switches_wait": min(found.get("switches_wait", most_secs), most_secs)}


def _times(found: dict[str, Any], limit: int | None) -> None:
    least = found.get("time_min")
    if least is not None and limit is not None and least > limit:
        raise RequestError(BAD_TIME)


def gpus_of(found: Mapping[str, Any], gres: tuple[Gres, ...]) -> dict[str, list[grammar.GresItem]]:
    """The GPUs asked for, by form."""
    return {
        form: items
        for form, held in (
            (gpu_rules.TOTAL, found.get("gres_total", ())),
            (gpu_rules.PER_NODE, gres),
            (gpu_rules.PER_TASK, found.get("gres_per_task", ())),
            ("gpus-per-socket", found.get("gres_per_socket", ())),
        )
        if (items := [(g.name, g.type, g.count) for g in held if g.name == "gpu"])
    }


def _with_gpus(spec: pb.JobSpec, found: dict[str, Any], shape: Shape, gres: tuple[Gres, ...]) -> Shape:
    asked = gpus_of(found, gres)
    each = found.get("ntasks_per_gpu")
    if each and not asked and shape.tasks_given:
        # Tasks and how many share a GPU: so many GPUs it takes.
        count = -(-shape.num_tasks // each)
        found["gres_total"] = (*found.get("gres_total", ()), Gres(name="gpu", count=count))
        asked = gpus_of(found, gres)
    _one_form(asked)
    if not asked:
        for name in ("cpus_per_gpu", "memory_per_gpu_mb", "ntasks_per_gpu"):
            if name in found:
                option = {"memory_per_gpu_mb": "mem-per-gpu"}.get(name, name.replace("_", "-"))
                raise RequestError(f"{BAD_GRES}: --{option} needs GPUs; add --gpus or --gpus-per-node")
        return shape
    form, items = next(iter(asked.items()))
    count = sum(item[2] for item in items)
    if each:
        if "gres_per_task" in found or "gres_per_socket" in found or shape.tasks_per_node:
            text = "--gpus-per-task, --gpus-per-socket and --ntasks-per-node"
            raise RequestError(f"{text} are mutually exclusive with --ntasks-per-gpu")
        if not shape.tasks_given:
            tasks = count * each * (shape.min_nodes if form == gpu_rules.PER_NODE else 1)
            shape = shape._replace(num_tasks=tasks, tasks_given=True, by_nodes=False)
    if form == gpu_rules.PER_TASK and not shape.tasks_given and shape.min_nodes != shape.max_nodes:
        raise RequestError("--gpus-per-task needs the number of tasks; add --ntasks")
    if form == "gpus-per-socket" and not found.get("sockets_per_node"):
        raise RequestError("--gpus-per-socket needs the number of sockets; add --sockets-per-node")
    return _nodes_of_total(spec, shape, count) if form == gpu_rules.TOTAL else shape


def _one_form(asked: Mapping[str, list[grammar.GresItem]]) -> None:
    if len(asked) > 1:
        names = ", ".join(f"--{form}" for form in asked)
        raise RequestError(f"GPUs are asked for more than once ({names}); use one of them")
    for form, items in asked.items():
        # Of each node several types can be counted out; of a total nobody could say where they lie.
        if form == gpu_rules.PER_NODE:
            continue
        kinds = sorted({kind for _, kind, _ in items})
        if len(kinds) > 1:
            shown = ", ".join(kind or "any" for kind in kinds)
            raise RequestError(f"GPUs of different types are asked for ({shown}); use one type")


def _nodes_of_total(spec: pb.JobSpec, shape: Shape, count: int) -> Shape:
    """Each node has one GPU of the total at least, and without -N the job may have as many nodes."""
    try:
        gpu_rules.check(gpu_rules.GpuDemand(gpu_rules.TOTAL, "", count), shape.min_nodes, None)
    except GrammarError as error:
        raise RequestError(error.text) from None
    if spec.HasField("min_nodes") or spec.HasField("max_nodes"):
        return shape._replace(max_nodes=max(shape.min_nodes, min(shape.max_nodes, count)))
    most = shape.num_tasks if shape.tasks_given else count
    return shape._replace(max_nodes=max(shape.min_nodes, min(most, count)))


def message(request: Request) -> pb.JobWishes:
    """The wishes of a request as the wire shows them."""
    found = pb.JobWishes(hint=request.hint)
    for name in _LISTS:
        getattr(found, name).extend(gres_text(getattr(request, name)))
    for name in (*_COUNTS, "memory_per_gpu_mb", "tmp_disk_mb"):
        value = getattr(request, name)
        if value is not None:
            setattr(found, name, value)
    for name in _FLAGS:
        if getattr(request, name):
            setattr(found, name, True)
    if request.switches is not None:
        found.switches_wait_secs = request.switches_wait
    if request.time_min is not None:
        found.time_min_secs = request.time_min
    return found


def gres_text(items: Iterable[Gres]) -> list[str]:
    """`gpu:h100:2` each."""
    return [grammar.format_gres([(g.name, g.type, g.count)]) for g in items]
