"""`scontrol takeover [N]`: another controller is to lead."""

from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.control.members import gather

if TYPE_CHECKING:
    from spur_cli.transport import Transport

#: The leader waits until the other one has everything.
TAKEOVER_SECS = 15.0


def takeover(ctx: Context, transport: "Transport", words: list[str]) -> int:
    """Hand over to controller N, or to the first one that is up and does not lead.

    Raises:
        Stop: there is none, or it was refused.
    """
    from spur_proto import controller_pb2 as pb

    if len(words) > 1:
        raise ctx.stop(f"too many arguments for keyword:takeover: {' '.join(words[1:])}")
    if words and not (words[0].isascii() and words[0].isdigit() and 0 < int(words[0]) < 1 << 32):
        raise ctx.stop(f"takeover: {words[0]} is not the number of a controller; scontrol ping shows them")
    number = int(words[0]) if words else _deputy(transport)
    if not number:
        raise Stop(1, "slurm_takeover error: there is no other controller that is up")
    request = pb.TakeoverRequest(member=number)
    try:
        answer = transport.call("Takeover", request, pb.TakeoverResponse, timeout=TAKEOVER_SECS)
    except CallFailed as failure:
        raise Stop(1, f"slurm_takeover error: {failure.text}") from None
    if answer.leader_id != number:
        raise Stop(1, f"slurm_takeover error: controller {answer.leader_id} leads now, not {number}")
    return 0


def _deputy(transport: "Transport") -> int:
    group = gather(transport)
    up = (one.number for one in group.members if one.answer is not None)
    return next((number for number in up if number and number != group.leader), 0) if group.several else 0
