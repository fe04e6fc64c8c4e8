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
        lines += upgrade_lines(group)
        lines += alarm_lines(group)
    return lines, any(member.up for member in group.members)


def roles(group: Group) -> list[str]:
    """What each is called: the leader is the primary, without one the first is.

    As Slurm names them: a single backup has no number, several count from 1.
    """
    found: list[str] = []
    numbered = len(group.members) > 2
    for at, member in enumerate(group.members):
        if member.number == group.leader if group.leader else at == 0:
            found.append("primary")
        else:
            before = sum(role != "primary" for role in found)
            found.append(f"backup{before + 1}" if numbered else "backup")
    return found


def alarm_lines(group: Group) -> list[str]:
    """What controllers cry out about, each thing once, whoever says it."""
    said = [alarm for member in group.members if member.answer is not None for alarm in member.answer.alarms]
    return [f"ALARM: {alarm}" for alarm in dict.fromkeys(said)]


def upgrade_lines(group: Group) -> list[str]:
    """In the middle of an upgrade: what is held back, and because of whom."""
    told = group.told
    assert told is not None
    newest = max(one.command_version for one in told.members)
    # An older release that leads does not say what the group uses.
    used = max(one.answer.command_version for one in group.members if one.answer is not None)
    if not used or newest <= used:
        return []
    behind = [
        f"{known.id} ({f'version {known.command_version}' if member.up else 'DOWN'})"
        for known, member in zip(told.members, group.members, strict=True)
        if known.command_version < newest or not member.up
    ]
    if not behind:
        return []
    return [f"Commands of version {newest} wait for controller {', '.join(behind)}"]


def leader_line(group: Group) -> str:
    """Who leads, by whose word."""
    told = group.told
    assert told is not None
    by = f"(told by controller {told.member_id})"
    if not told.leader_id:
        return f"No controller leads, term {told.term} {by}"
    return f"Controller {told.leader_id} at {told.leader_address} leads, term {told.term} {by}"
