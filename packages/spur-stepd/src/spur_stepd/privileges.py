"""Whose rights the supervisor uses.

Started by root it keeps 0 as its real and saved ids and works with the job's user as its *effective* ids,
so a user cannot kill or trace it, and root never touches a file on the user's behalf.  Group writes,
session files and signals happen in short explicit sections with effective id 0.  Started by an ordinary
user, nothing is ever switched.
"""

from __future__ import annotations

import os


class Privileges:
    """`with privileges.root():` is a section with root's rights, where there are any."""

    def __init__(self, uid: int, gid: int, groups: tuple[int, ...]) -> None:
        self.uid = uid
        self.gid = gid
        self.groups = tuple(dict.fromkeys((gid, *groups)))
        #: Whether we are root at all.
        self.is_root = os.geteuid() == 0
        self._switches = self.is_root and uid != 0
        # Until `begin` everything is one section.
        self._depth = 1

    def begin(self) -> None:
        """From here on work as the user."""
        if self.is_root:
            os.setgroups(self.groups)
        self.leave()

    def root(self) -> RootSection:
        """A section with effective id 0; sections may be nested."""
        return RootSection(self)

    def enter(self) -> None:
        self._depth += 1
        if self._switches and self._depth == 1:
            os.seteuid(0)
            os.setegid(0)

    def leave(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._to_user()

    def _to_user(self) -> None:
        if self._switches:
            os.setegid(self.gid)
            os.seteuid(self.uid)

    def become_user_for_good(self) -> None:
        """In a task, within a root section: change all ids.

        Raises:
            OSError: refused.
        """
        if self.is_root:
            os.setgroups(self.groups)
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)

    def become_root_for_good(self) -> None:
        """In a script of the node's, within a root section: all ids 0, if we were ever root.

        Raises:
            OSError: refused.
        """
        if self.is_root:
            os.setgroups([0])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)


class RootSection:
    """See `Privileges.root`."""

    def __init__(self, privileges: Privileges) -> None:
        self._privileges = privileges

    def __enter__(self) -> None:
        self._privileges.enter()

    def __exit__(self, *_error: object) -> None:
        self._privileges.leave()
