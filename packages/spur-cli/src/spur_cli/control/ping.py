"""`scontrol ping`: which controllers answer."""

from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context

if TYPE_CHECKING:
    from spur_cli.transport import Transport


def ping_lines(ctx: Context, transport: "Transport") -> tuple[list[str], bool]:
    """(one line a controller, whether any is up)."""
    from spur_proto import controller_pb2 as pb

    lines, up = [], False
    for at, address in enumerate(transport.where.addresses):
        role = "primary" if at == 0 else "backup" if at == 1 else f"backup{at - 1}"
        host = address.rpartition(":")[0].strip("[]")
        state = "DOWN"
        try:
            answer = transport.only(address).call("Ping", pb.PingRequest(), pb.PingResponse, timeout=5.0)
        except CallFailed as failure:
            if failure.reached:
                state = "UP"
        else:
            state, host = "UP", answer.hostname or host
        up = up or state == "UP"
        lines.append(f"Slurmctld({role}) at {host} is {state}")
    return lines, up
