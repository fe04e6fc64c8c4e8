"""Whom a reservation lets in."""

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Rules(NamedTuple):
    """Lists as the administrator wrote them; names behind "-" are kept out, the rest is let in.

    `members` are the names of users that the groups had when they were last looked up.
    """

    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    members: tuple[str, ...] = ()


def admits(rules: Rules, user: str, account: str, groups: Collection[str], *, admin: bool = False) -> bool:
    """Whether a job of that user and account may use it: every list that there is must agree.

    Args:
        groups: names of the user's groups, as far as they are known.
        admin: administrators may use every reservation.
    """
    if admin:
        return True
    if not _passes(rules.users, (user,)) or not _passes(rules.accounts, (account,)):
        return False
    if not rules.groups:
        return True
    denying = rules.groups[0].startswith("-")
    inside = user in rules.members or any(name.removeprefix("-") in groups for name in rules.groups)
    return inside != denying


def _passes(listed: Sequence[str], names: Collection[str]) -> bool:
    if not listed:
        return True
    inside = any(name.removeprefix("-") in names for name in listed)
    return inside != listed[0].startswith("-")


def mixed(listed: Sequence[str]) -> bool:
    """Whether a list both lets in and keeps out, which means nothing."""
    return len({name.startswith("-") for name in listed}) > 1
