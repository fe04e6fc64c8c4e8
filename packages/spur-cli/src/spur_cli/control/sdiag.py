"""sdiag: what the controllers say of themselves.  Slurm's labels, and who leads."""

from typing import TYPE_CHECKING

from spur_cli import formats
from spur_cli.cli_errors import CONNECT_FAILURE, CallFailed
from spur_cli.context import Context, Stop
from spur_cli.control.members import Group, gather
from spur_cli.options.engine import OPTIONAL, Option, Table
from spur_cli.options.front import cluster_option, common, open_options
from spur_cli.transport import Transport
from spur_core.errors import ConfigError

if TYPE_CHECKING:
    from spur_proto import controller_pb2

STARS = "*" * 55
#: Options that sort the calls.
SORTS = ("sort-by-id", "sort-by-time", "sort-by-time2")


def table() -> Table:
    """The options of sdiag."""
    return Table(
        [
            Option("all", "a", idle="all that is counted is always shown"),
            Option("reset", "r", help="begin to count anew"),
            Option("sort-by-id", "i", help="calls by their number, users by uid"),
            Option("sort-by-time", "t", help="those first that took most time in all"),
            Option("sort-by-time2", "T", help="those first that take most time each"),
            Option("no-trunc", "", idle="nothing is cut"),
            Option("json", "", OPTIONAL, "everything as JSON", metavar="PARSER"),
            Option("yaml", "", OPTIONAL, "everything as YAML", metavar="PARSER"),
            cluster_option(),
            *common(),
        ],
        synopsis="[OPTIONS]",
    )


def run(ctx: Context) -> int:
    """The command."""
    options = open_options(ctx, table())
    if options.operands:
        raise ctx.stop(f"sdiag takes no arguments: {options.operands[0]}")
    form = ""
    if options.has("json") or options.has("yaml"):
        from spur_cli.data import document

        form = document.wanted(ctx, options)
    from spur_cli.submit.sbatch import cluster_name

    try:
        transport = Transport(ctx, options.get("controller"))
        cluster_name(ctx, transport, options.get("clusters"))
        if options.has("reset"):
            _ask(transport, reset=True)
            ctx.out("Reset scheduling statistics\n")
            return 0
        group = gather(transport)
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        raise Stop(1, f"slurm_get_statistics: {failure.text}") from None
    if group.told is None:
        raise Stop(1, f"slurm_get_statistics: {CONNECT_FAILURE}")
    order = next((name for name in SORTS if options.has(name)), "")
    try:
        told = _ask(transport)
        if form:
            from spur_cli.data import sdiag as data

            tree = {"statistics": data.statistics_tree(told, order)}
            ctx.out(document.text(ctx, form, tree, cluster=group.told.cluster_name))
            return 0
    except CallFailed as failure:  # of a group without a leader the rest is what somebody needs to see
        lines = [*head(ctx.clock(), None), *_controllers(group, group.told)]
        ctx.out("".join(f"{line}\n" for line in lines))
        raise Stop(1, f"slurm_get_statistics: {failure.text}") from None
    ctx.out(report(ctx.clock(), told, order) + "".join(f"{line}\n" for line in _group(group, group.told)))
    return 0


def _ask(transport: Transport, *, reset: bool = False) -> "controller_pb2.GetStatisticsResponse":
    from spur_proto import controller_pb2 as pb

    return transport.call("GetStatistics", pb.GetStatisticsRequest(reset=reset), pb.GetStatisticsResponse)


def report(now: float, told: "controller_pb2.GetStatisticsResponse", order: str = "") -> str:
    """The whole text but the controllers.

    Args:
        order: a name of `SORTS`; "" = those first that come most often.
    """
    from spur_cli.control import sdiag_text

    lines = [*head(now, told.since), *sdiag_text.body(told, order)]
    return "".join(f"{line}\n" for line in lines)


def head(now: float, since: float | None) -> list[str]:
    """The lines between the stars."""
    lines = [STARS, f"sdiag output at {when(now)}"]
    if since is not None:
        lines.append(f"Data since      {when(since)}")
    return [*lines, STARS]


def when(at: float) -> str:
    """`Mon Nov 30 01:55:10 2026 (1796003710)`."""
    return f"{formats.date_line(at).strip()} ({int(at)})"


def _group(group: Group, told: "controller_pb2.PingResponse") -> list[str]:
    return ["", *_controllers(group, told)]


def _controllers(group: Group, told: "controller_pb2.PingResponse") -> list[str]:
    """Who answered, who leads, and how far each one's log goes."""
    lines = ["Controllers"]
    leads = f"{told.leader_id} at {told.leader_address}" if told.leader_id else "none"
    if group.several:
        lines += [f"\tAnswered by:  {told.member_id} at {told.hostname}", f"\tLeader:       {leads}"]
    else:
        lines.append(f"\tAnswered by:  {told.hostname}")
    if told.term:
        lines.append(f"\tTerm:         {told.term}")
    if told.applied:
        lines.append(f"\tLog applied:  {told.applied}")
    if told.command_version:
        lines.append(f"\tCommands:     version {told.command_version}")
    if group.several:
        known = {one.id: one for one in told.members}
        for member in group.members:
            words = [f"\t{member.number} at {member.address}: {'UP' if member.up else 'DOWN'}"]
            if member.answer is not None:
                words.append(f"applied {member.answer.applied}")
                if member.number != told.leader_id:
                    words.append(f"leader silent for {member.answer.leader_silent_secs:.1f} s")
            # Only the leader knows how far the others' logs go.
            if told.member_id == told.leader_id and known[member.number].match:
                words.append(f"log {known[member.number].match}")
            if known[member.number].version:
                words.append(f"version {known[member.number].version}")
            if known[member.number].command_version:
                words.append(f"commands {known[member.number].command_version}")
            lines.append(", ".join(words))
    return lines
