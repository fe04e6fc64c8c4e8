"""What the host's user database says of a job's user."""

import os
import pwd
from typing import NamedTuple


class Account(NamedTuple):
    """One line of passwd."""

    name: str
    home: str
    shell: str


def account_of(uid: int) -> Account | None:
    """The account with that uid; None when the host knows none."""
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return None
    return Account(found.pw_name, found.pw_dir, found.pw_shell or "/bin/sh")


def groups_of(name: str, gid: int) -> tuple[int, ...]:
    """All groups of the user, the primary one first; only that one when the host does not know the user."""
    try:
        found = os.getgrouplist(name, gid)
    except OSError:
        return (gid,)
    return (gid, *(g for g in found if g != gid))


def known(name: str) -> bool:
    """Whether the host's user database has that name."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
