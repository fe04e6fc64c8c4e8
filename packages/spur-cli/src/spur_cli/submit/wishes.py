"""Options beyond nodes, tasks and CPUs to the fields of a `JobWishes`: GPUs, the make of nodes, sharing."""

from typing import TYPE_CHECKING, Any

from spur_core.errors import GrammarError

if TYPE_CHECKING:
    from spur_cli.submit.request import Builder

#: Option -> field, for whole numbers above zero.
_COUNTS = {
    "cpus-per-gpu": "cpus_per_gpu",
    "ntasks-per-socket": "ntasks_per_socket",
    "ntasks-per-core": "ntasks_per_core",
    "ntasks-per-gpu": "ntasks_per_gpu",
    "mincpus": "min_cpus",
    "sockets-per-node": "sockets_per_node",
    "cores-per-socket": "cores_per_socket",
    "threads-per-core": "threads_per_core",
}
_SIZES = {"mem-per-gpu": "memory_per_gpu_mb", "tmp": "tmp_disk_mb"}
_FLAGS = {
    "contiguous": "contiguous",
    "spread-job": "spread",
    "use-min-nodes": "use_min_nodes",
    "oversubscribe": "oversubscribe",
}
#: Forms in which GPUs are asked for -> field; those of each node are in the job's own `gres`.
GPU_FORMS = {
    "gpus": "gres_total",
    "gpus-per-node": "",
    "gpus-per-task": "gres_per_task",
    "gpus-per-socket": "gres_per_socket",
}
_SHAPE = ("sockets_per_node", "cores_per_socket", "threads_per_core")


def fields(builder: "Builder") -> dict[str, Any]:
    """The fields of the `JobWishes`; `gres` and counts that follow go into the builder's own.

    Raises:
        Stop: a value that cannot be used, or two that exclude each other.
    """
    from spur_core.grammar import counts, size

    found: dict[str, Any] = {}
    for option, field in _COUNTS.items():
        number = builder.parsed(option, lambda text, o=option: counts.parse_positive(text, f"--{o}"))  # type: ignore[misc]
        if number is not None:
            found[field] = number
    shape = builder.parsed("extra-node-info", counts.parse_shape)
    if shape is not None:
        found.update((name, count) for name, count in zip(_SHAPE, shape, strict=True) if count)
    for option, field in _SIZES.items():
        mebibytes = builder.parsed(option, lambda text, o=option: size.parse_mem(text, f"--{o}"))  # type: ignore[misc]
        if mebibytes is not None:
            found[field] = mebibytes
    found.update((field, True) for option, field in _FLAGS.items() if option in builder.values)
    _switches(builder, found)
    hint = builder.values.get("hint")
    if hint:
        found["hint"] = hint.lower()
    if builder.values.get("exclusive") == "user":
        found["exclusive_user"] = True
    _least_time(builder, found)
    _gpus(builder, found)
    _tasks_of_shape(builder, found, by_shape=shape is not None)
    return found


def _switches(builder: "Builder", found: dict[str, Any]) -> None:
    """How few switches, and how long to wait for so few: with the option, or by a variable of its own."""
    from spur_core.grammar import counts, timelimit

    asked = builder.parsed("switches", counts.parse_switches)
    if asked is None:
        return
    found["switches"], wait = asked
    if "@" not in (builder.values.get("switches") or ""):
        prefix = {"sbatch": "SBATCH", "salloc": "SALLOC"}.get(builder.ctx.name, "SLURM")
        variable = f"{prefix}_WAIT4SWITCH"
        text = builder.ctx.env.get(variable)
        if text:
            try:
                wait = timelimit.parse_time_limit(text, variable)
            except GrammarError as error:
                raise builder.ctx.stop(error.text, builder.code) from None
    if wait is not None:
        found["switches_wait_secs"] = wait


def _least_time(builder: "Builder", found: dict[str, Any]) -> None:
    from spur_core.grammar.timelimit import parse_time_limit

    limit = builder.parsed("time-min", lambda text: parse_time_limit(text, "--time-min"))
    if limit is not None:
        found["time_min_secs"] = limit


def _gpus(builder: "Builder", found: dict[str, Any]) -> None:
    """GPUs of one form only; other resources of `--gres` stand beside them."""
    from spur_core.grammar import gres

    items = list(builder.parsed("gres", gres.parse_gres) or [])
    asked = [option for option in GPU_FORMS if builder.values.get(option)]
    if len(asked) > 1 or (asked and any(name == "gpu" for name, _, _ in items)):
        names = [f"--{option}" for option in asked]
        if any(name == "gpu" for name, _, _ in items):
            names.append("--gres=gpu")
        text = f"GPUs are asked for more than once ({', '.join(names)}); use one of them"
        raise builder.ctx.stop(text, builder.code)
    for option in asked:
        gpus = builder.parsed(option, gres.parse_gpus) or []
        if not GPU_FORMS[option]:
            items += gpus
            found["gpus_per_node"] = bool(gpus)
        elif gpus:
            found[GPU_FORMS[option]] = [gres.format_gres([item]) for item in gpus]
    if items:
        builder.fields["gres"] = [gres.format_gres([item]) for item in items]


def _tasks_of_shape(builder: "Builder", found: dict[str, Any], *, by_shape: bool) -> None:
    """Without -n a shape of nodes that is given together with their number says how many tasks there are."""
    fields = builder.fields
    low, high = fields.get("min_nodes"), fields.get("max_nodes")
    known = (low is not None and low == high) or (low is None and by_shape)
    counts = [found[name] for name in _SHAPE if name in found]
    if not known or not counts or "num_tasks" in fields or "tasks_per_node" in fields:
        return
    tasks = low or 1
    for count in counts:
        tasks *= count
    fields["num_tasks"] = tasks
