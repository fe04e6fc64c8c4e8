"""sdiag: what the controllers say of themselves.  Only what is really counted is shown."""

from typing import TYPE_CHECKING

from spur_cli import formats
from spur_cli.cli_errors import CONNECT_FAILURE, CallFailed
from spur_cli.context import Context, Stop
from spur_cli.control.members import Group, gather
from spur_cli.options.engine import OPTIONAL, Option, Table
from spur_cli.options.front import cluster_option, common, open_options
from spur_cli.transport import Transport
from spur_core.errors import ConfigError
from spur_core.states import JobState

if TYPE_CHECKING:
    from spur_proto import controller_pb2

STARS = "*" * 55


def table() -> Table:
    """The options of sdiag."""
    return Table(
        [
            Option("all", "a", idle="all that is counted is always shown"),
            Option("reset", "r", refuse="*"),
            Option("sort-by-id", "i", refuse="*"),
            Option("sort-by-time", "t", refuse="*"),
            Option("sort-by-time2", "T", refuse="*"),
            Option("no-trunc", "", idle="nothing is cut"),
            Option("json", "", OPTIONAL, refuse="*"),
            Option("yaml", "", OPTIONAL, refuse="*"),
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
    from spur_cli.submit.sbatch import cluster_name

    try:
        transport = Transport(ctx, options.get("controller"))
        cluster_name(ctx, transport, options.get("clusters"))
        group = gather(transport)
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        raise Stop(1, f"slurm_get_statistics: {failure.text}") from None
    if group.told is None:
        raise Stop(1, f"slurm_get_statistics: {CONNECT_FAILURE}")
    lines = [*_head(ctx), *_controllers(group, group.told)]
    ctx.out("".join(f"{line}\n" for line in lines))
    try:
        counts = _counts(transport)
    except CallFailed as failure:  # of a group without a leader the above is what somebody needs to see
        raise Stop(1, f"slurm_get_statistics: {failure.text}") from None
    ctx.out("".join(f"{line}\n" for line in ("", *counts)))
    if group.told.HasField("scheduler"):
        ctx.out("".join(f"{line}\n" for line in _scheduler(group.told)))
    return 0


def _head(ctx: Context) -> list[str]:
    now = ctx.clock()
    when = formats.date_line(now).strip()
    return [STARS, f"sdiag output at {when} ({int(now)})", STARS]


def _counts(transport: Transport) -> list[str]:
    """Jobs by state, as they are in the queue now."""
    from spur_cli.queue import select

    jobs = select.fetch(transport, states=(JobState.PENDING, JobState.RUNNING))
    pending = sum(max(job.array_pending_count, 1) for job in jobs if int(job.state) == JobState.PENDING)
    running = sum(1 for job in jobs if int(job.state) == JobState.RUNNING)
    return [f"Jobs pending:   {pending}", f"Jobs running:   {running}"]


def _scheduler(told: "controller_pb2.PingResponse") -> list[str]:
    """Passes of the scheduler as Slurm names them; times in microseconds, since the controller leads."""
    found = told.scheduler

    def micro(secs: float) -> int:
        return round(secs * 1e6)

    def mean(total: float, count: int) -> float:
        return total / count if count else 0

    minutes = max(1.0, (told.server_time - found.first_at) / 60) if found.first_at else 1.0
    lines = [
        "",
        "Main schedule statistics (microseconds):",
        f"\tLast cycle:   {micro(found.last_secs)}",
        f"\tMax cycle:    {micro(found.most_secs)}",
        f"\tTotal cycles: {found.cycles}",
        f"\tMean cycle:   {micro(mean(found.total_secs, found.cycles))}",
        f"\tMean depth cycle:  {round(mean(found.total_depth, found.cycles))}",
        f"\tCycles per minute: {round(found.cycles / minutes)}",
        f"\tLast queue length: {found.queue}",
        f"\tJobs started: {found.started}",
        "",
        "Backfilling stats",
        f"\tTotal cycles: {found.backfill_cycles}",
    ]
    if found.backfill_cycles:
        lines += [
            f"\tLast cycle when: {formats.date_line(found.backfill_last_at).strip()}"
            f" ({int(found.backfill_last_at)})",
            f"\tLast cycle: {micro(found.backfill_last_secs)}",
            f"\tMax cycle:  {micro(found.backfill_most_secs)}",
            f"\tMean cycle: {micro(mean(found.backfill_total_secs, found.backfill_cycles))}",
            f"\tLast depth cycle: {found.backfill_last_depth}",
            f"\tDepth Mean: {round(mean(found.backfill_total_depth, found.backfill_cycles))}",
            f"\tLast queue length: {found.queue}",
        ]
    return lines


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
