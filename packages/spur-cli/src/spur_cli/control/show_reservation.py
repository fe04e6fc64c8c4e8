"""`scontrol show reservation`, `scontrol show licenses`, `sinfo -T`."""

from typing import TYPE_CHECKING

from spur_cli.context import Context, Stop
from spur_cli.control.layout import Style, null, record
from spur_core.grammar import duration
from spur_core.grammar.instant import format_timestamp

if TYPE_CHECKING:
    from spur_cli.transport import Transport
    from spur_proto import common_pb2

    Reservation = common_pb2.ReservationInfo

NONE = "No reservations in the system\n"


def fetch(transport: "Transport") -> "list[Reservation]":
    """All reservations, by name."""
    from spur_proto import controller_pb2 as pb

    answer = transport.call("ListReservations", pb.ListReservationsRequest(), pb.ListReservationsResponse)
    return list(answer.reservations)


def text(one: "Reservation", style: Style) -> str:
    """The record of one reservation."""
    listed = ",".join
    start, end = style.moment(one.start_at), style.moment(one.end_at)
    lines = [
        f"ReservationName={one.name} StartTime={start} EndTime={end}"
        f" Duration={duration.long_form(one.end_at - one.start_at)}",
        f"Nodes={null(one.nodes)} NodeCnt={one.node_count} CoreCnt={one.core_count}"
        f" Features={null(one.features)} PartitionName={null(one.partition)} Flags={listed(one.flags)}",
        f"TRES={null(one.tres)}",
        f"Users={null(listed(one.users))} Groups={null(listed(one.groups))}"
        f" Accounts={null(listed(one.accounts))} Licenses={null(one.licenses)} State={one.state}"
        " BurstBuffer=(null)",
        "MaxStartDelay=(null)",
    ]
    if one.comment:
        lines.append(f"Comment={one.comment}")
    return record(lines, style)


def show(ctx: Context, transport: "Transport", operands: list[str], style: Style) -> int:
    """`show reservation [NAME]`."""
    found = fetch(transport)
    if operands:
        found = [one for one in found if one.name == operands[0]]
        if not found:
            raise Stop(1, f"Reservation {operands[0]} not found")
    if not found:
        ctx.out(NONE)
        return 0
    ctx.out("".join(text(one, style) for one in found))
    return 0


def licenses(ctx: Context, transport: "Transport", operands: list[str], style: Style) -> int:
    """`show licenses [NAME]`."""
    from spur_proto import controller_pb2 as pb

    answer = transport.call("GetLicenses", pb.GetLicensesRequest(), pb.GetLicensesResponse)
    if not answer.licenses:
        ctx.out("No licenses configured in Slurm.\n")
        return 0
    between = " " if style.one_line else "\n    "
    for one in answer.licenses:
        if operands and one.name != operands[0]:
            continue
        free = max(0, one.total - one.used)
        ctx.out(
            f"LicenseName={one.name}{between}Total={one.total} Used={one.used} Free={free}"
            f" Reserved={one.reserved} Remote=no\n"
        )
    return 0


def table(ctx: Context, transport: "Transport", *, header: bool) -> int:
    """`sinfo -T`."""
    found = fetch(transport)
    if not found:
        ctx.out(NONE)
        return 0
    style = ctx.env.get("SLURM_TIME_FORMAT", "")
    width = max(9, *(len(one.name) for one in found))
    rows = [("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST")] if header else []
    for one in sorted(found, key=lambda item: (item.start_at, item.name)):
        start, end = (format_timestamp(moment, style, ctx.clock()) for moment in (one.start_at, one.end_at))
        length = duration.long_form(one.end_at - one.start_at)
        rows.append((one.name, one.state, start, end, length, one.nodes))
    for name, state, start, end, length, nodes in rows:
        ctx.out(f"{name:{width}}  {state:>8}  {start:>19}  {end:>19}  {length:>11}  {nodes}\n")
    return 0
