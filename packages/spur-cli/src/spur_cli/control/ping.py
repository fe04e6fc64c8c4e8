"""`scontrol ping`: which controllers answer, and which one leads."""

from typing import TYPE_CHECKING

from spur_cli.control.members import Group, gather

if TYPE_CHECKING:
    from spur_cli.context import Context
    from spur_cli.transport import Transport


def ping_lines(ctx: "Context", transport: "Transport") -> tuple[list[str], bool]:
    """(one line a controller, in a group one more about its leader; whether any is up)."""
    group = gather(transport)
    lines = []
    for role, member in zip(roles(group), group.members, strict=True):
        lines.append(f"Slurmctld({role}) at {member.host} is {'UP' if member.up else 'DOWN'}")
    if group.several:
        lines.append(leader_line(group))
    return lines, any(member.up for member in group.members)


def roles(group: Group) -> list[str]:
    """What each is called: the leader is the primary, without one the first is."""
    found, backups = [], 0
    for at, member in enumerate(group.members):
        if member.number == group.leader if group.leader else at == 0:
            found.append("primary")
        else:
            found.append(f"backup{backups}" if backups else "backup")
            backups += 1
    return found


def leader_line(group: Group) -> str:
    """Who leads, by whose word."""
    told = group.told
    assert told is not None
    by = f"(told by controller {told.member_id})"
    if not told.leader_id:
        return f"No controller leads, term {told.term} {by}"
    return f"Controller {told.leader_id} at {told.leader_address} leads, term {told.term} {by}"
