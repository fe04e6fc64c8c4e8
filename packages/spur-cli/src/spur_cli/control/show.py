"""`scontrol show ENTITY [ID]`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed, is_no_such_job
from spur_cli.context import Context, Stop
from spur_cli.control.layout import Style

if TYPE_CHECKING:
    from spur_cli.transport import Transport

Connect = Callable[[], "Transport"]

#: Entities with what there is to say of them; unique prefixes are accepted, and of a shared one that ends
#: before the names part (`res`, `topo`) the entity that Slurm takes, which is written in `_FIRST`.
ENTITIES = (
    "aliases assoc_mgr burstbuffer config daemons federation frontend hostlist hostlistsorted hostnames jobs"
    " licenses nodes partitions reservations resources slurmd steps topoconf topology"
)
_EXACT = {"hostlist": "hostlist", "job": "jobs", "node": "nodes", "partition": "partitions", "step": "steps"}
_FIRST = {"res": "reservations", "topo": "topology"}


def entity_of(word: str) -> str | None:
    """The full name of an entity, None for no such."""
    lower = word.lower()
    if lower in _EXACT:
        return _EXACT[lower]
    if lower in _FIRST:
        return _FIRST[lower]
    found = [name for name in ENTITIES.split() if name.startswith(lower)]
    return found[0] if found and (len(found) == 1 or lower == found[0]) else None


def show(ctx: Context, connect: Connect, words: list[str], style: Style) -> int:
    """The command; `words` follow `show`."""
    if not words:
        raise Stop(1, "too few arguments for keyword:show")
    name, equals, value = words[0].partition("=")
    operands = [value, *words[1:]] if equals else words[1:]
    operands = [word for word in operands if word]
    entity = entity_of(name)
    if entity is None:
        raise Stop(1, f"invalid entity:{name} for keyword:show ")
    if entity.startswith("host"):
        from spur_cli.control import hostlists

        return hostlists.show(ctx, entity, operands)
    if entity == "daemons":
        ctx.out("slurmctld slurmd\n")
        return 0
    shown: dict[str, tuple[str, Callable[[Context, Transport, list[str], Style], int]]] = {
        "jobs": ("slurm_load_jobs", jobs),
        "nodes": ("slurm_load_node", nodes),
        "partitions": ("slurm_load_partitions", partitions),
        "config": ("slurm_load_ctl_conf", config),
        "steps": ("slurm_get_job_steps", steps),
        "reservations": ("slurm_load_reservations", reservations),
        "licenses": ("slurm_load_licenses", licenses),
        "topology": ("slurm_load_topo", topology),
    }
    if entity not in shown:
        raise ctx.stop(f"show {entity} is not supported by this release")
    loader, function = shown[entity]
    try:
        return function(ctx, connect(), operands, style)
    except CallFailed as failure:
        raise Stop(1, f"{loader} error: {failure.text}") from None


def reservations(ctx: Context, transport: "Transport", operands: list[str], style: Style) -> int:
    """`show reservation [NAME]`."""
    from spur_cli.control import show_reservation

    return show_reservation.show(ctx, transport, operands, style)


def licenses(ctx: Context, transport: "Transport", operands: list[str], style: Style) -> int:
    """`show licenses [NAME]`."""
    from spur_cli.control import show_reservation

    return show_reservation.licenses(ctx, transport, operands, style)


def jobs(ctx: Context, transport: "Transport", operands: list[str], style: Style) -> int:
    """`show job [ID]`."""
    from spur_cli.control import show_job
    from spur_cli.queue import select

    if not operands:
        found = select.fetch(transport, detail=style.detail)
        if not found:
            ctx.out("No jobs in the system\n")
            return 0
    else:
        try:
            refs = select.parse_refs(operands[:1])
        except ValueError:
            raise Stop(1, "scontrol_print_job error: Invalid job id specified") from None
        try:
            found = select.fetch(transport, refs=refs, detail=style.detail)
        except CallFailed as failure:
            if not is_no_such_job(failure):
                raise
            found = []
        if not found:
            raise Stop(1, "slurm_load_jobs error: Invalid job id specified")
        # An array: what has not started first, then the started tasks, newest first.
        found.sort(
            key=lambda job: (
                not job.array_pending,
                -job.job_id if job.HasField("array_job_id") else job.job_id,
            )
        )
    ctx.out("".join(show_job.text(job, style) for job in found))
    return 0


def steps(ctx: Context, transport: "Transport", operands: list[str], style: Style) -> int:
    """`show step [JOB[.STEP]]`."""
    from spur_cli.control import show_step
    from spur_cli.queue import select
    from spur_proto import controller_pb2 as pb

    request = pb.GetJobStepsRequest()
    if operands:
        try:
            refs = select.parse_refs(operands[:1])
        except ValueError:
            raise Stop(1, f"Invalid job step id specified: {operands[0]}") from None
        request.jobs.extend(select.target(ref) for ref in refs)
    try:
        found = list(transport.call("GetJobSteps", request, pb.GetJobStepsResponse).steps)
    except CallFailed as failure:
        if not operands or not is_no_such_job(failure):
            raise
        found = []
    if operands and not found:
        name = operands[0] if "." in operands[0] else f"{operands[0]}."
        raise Stop(1, f"Job step {name} not found")
    found.sort(key=lambda step: (step.rid.job_id, step.rid.step_id))
    ctx.out("".join(show_step.text(step, style) for step in found) or "No job steps in the system\n")
    return 0


def nodes(ctx: Context, transport: "Transport", operands: list[str], style: Style) -> int:
    """`show node [HOSTLIST]`."""
    from spur_cli.control import show_node
    from spur_cli.nodes.fetch import all_nodes
    from spur_core.errors import GrammarError
    from spur_core.grammar import hostlist

    found = all_nodes(transport)
    found.sort(key=lambda node: hostlist.natural_key(node.name))
    if not operands:
        text = "".join(show_node.node_text(node, style) for node in found)
        ctx.out(text or "No nodes in the system\n")
        return 0
    by_name = {node.name: node for node in found}
    try:
        wanted = hostlist.expand(operands[0])
    except GrammarError as error:
        raise Stop(1, *error.text.split("\n")) from None
    code = 0
    for name in wanted:
        if name in by_name:
            ctx.out(show_node.node_text(by_name[name], style))
        else:
            ctx.err(f"Node {name} not found\n")
            code = 1
    return code


def partitions(ctx: Context, transport: "Transport", operands: list[str], style: Style) -> int:
    """`show partition [NAME]`."""
    from spur_cli.control import show_node
    from spur_cli.nodes.fetch import all_partitions

    found = all_partitions(transport)
    if operands:
        found = [part for part in found if part.name == operands[0]]
        if not found:
            raise Stop(1, f"Partition {operands[0]} not found")
    ctx.out("".join(show_node.partition_text(part, style) for part in found))
    return 0


def topology(ctx: Context, transport: "Transport", operands: list[str], style: Style) -> int:
    """`show topology [NAME | node=NAME | switch=NAME | block=NAME]`."""
    from spur_cli.control import show_topology

    return show_topology.show(ctx, transport, operands)


def config(ctx: Context, transport: "Transport", operands: list[str], style: Style) -> int:
    """`show config`."""
    from spur_cli.control.ping import ping_lines
    from spur_proto import controller_pb2 as pb

    answer = transport.call("GetConfig", pb.GetConfigRequest(), pb.GetConfigResponse)
    entries = sorted(answer.entries, key=lambda entry: entry.key.lower())
    lines = [f"Configuration data as of {style.moment(answer.server_time or ctx.clock())}"]
    lines += [f"{entry.key:<23} = {entry.value or '(null)'}" for entry in entries]
    lines += ["", *ping_lines(ctx, transport)[0]]
    ctx.out("".join(f"{line}\n" for line in lines))
    return 0
