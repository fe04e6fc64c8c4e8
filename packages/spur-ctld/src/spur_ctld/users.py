"""The host's user database, asked rarely: uid, gid and group of a user name.

Look-ups may go over the network (LDAP), so they run in a thread and are remembered for a minute.
"""

import asyncio
import grp
import os
import pwd
import time
from collections.abc import Callable
from typing import NamedTuple

from spur_core.errors import RequestError

#: Seconds an answer is trusted.
REMEMBER_SECS = 60.0


class UserRecord(NamedTuple):
    """One account of the controller's host."""

    name: str
    uid: int
    gid: int
    group: str
    #: Names of all its groups.
    groups: tuple[str, ...] = ()


class UnknownUser(RequestError):
    """The name has no account on the controller's host."""

    code = "unknown_user"

    def __init__(self, name: str) -> None:
        super().__init__(f"Invalid user id: {name!r} is not a user of the controller's host")


def look_up(name: str) -> UserRecord | None:
    """The account of that name, or None."""
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        return None
    groups = os.getgrouplist(found.pw_name, found.pw_gid)
    return UserRecord(
        found.pw_name,
        found.pw_uid,
        found.pw_gid,
        group_name(found.pw_gid),
        tuple(group_name(gid) for gid in sorted(set(groups))),
    )


def group_name(gid: int) -> str:
    """The group's name, or its number as text."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def user_name(uid: int) -> str:
    """The user's name, or the number as text."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class UserDirectory:
    """Remembers answers of the user database.

    Args:
        find: asks the database; may block.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        find: Callable[[str], UserRecord | None] = look_up,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._clock = clock
        self._known: dict[str, tuple[float, UserRecord]] = {}

    async def by_name(self, name: str) -> UserRecord:
        """The account of `name`.

        Raises:
            UnknownUser: the host has none of that name.
        """
        held = self._known.get(name)
        if held is not None and self._clock() - held[0] < REMEMBER_SECS:
            return held[1]
        found = await asyncio.to_thread(self._find, name)
        if found is None:
            self._known.pop(name, None)
            raise UnknownUser(name)
        self._known[name] = (self._clock(), found)
        return found
