"""Who may act on whose job: the one rule that controller, agent, REST and command line share.

Rights come from the caller's checked identity and from the controller's own records, never from a claim that
a caller could choose.  Operators and account coordinators join here, as further members of `Admins`.
"""

from collections import namedtuple
from typing import TYPE_CHECKING, Final

from spur_auth.kinds import ANONYMOUS, CONTROLLER, NODE, USER, Identity
from spur_core.errors import AccessDenied

if TYPE_CHECKING:
    from typing import NamedTuple

    class _Admins(NamedTuple):
        names: frozenset[str]
        uids: frozenset[int]
else:
    _Admins = namedtuple("_Admins", ("names", "uids"))


class Admins(_Admins):
    """The administrators: by name, or by uid."""

    __slots__ = ()


#: Whoever is root on the login node.
ROOT_ONLY: Final = Admins(frozenset({"root"}), frozenset({0}))


def is_admin(identity: Identity, *, admins: Admins = ROOT_ONLY) -> bool:
    """A verified user among the administrators.  A name or uid that is only asserted never is."""
    if not identity.verified or identity.kind != USER:
        return False
    return identity.name in admins.names or identity.uid in admins.uids


def is_owner(identity: Identity, owner_uid: int | None, owner_name: str) -> bool:
    """The user whose job it is: the same non-empty name, and no uid that says otherwise."""
    if identity.kind != USER or not identity.name or identity.name != owner_name:
        return False
    return identity.uid is None or owner_uid is None or identity.uid == owner_uid


def may_act_on(
    identity: Identity, owner_uid: int | None, owner_name: str, *, admins: Admins = ROOT_ONLY
) -> bool:
    """Cancel, change, requeue, attach to or read the output of a job of that owner.

    The owner, an administrator, or the controller itself (which has asked the same question before).  An
    unverified caller is taken at its word (the gate let it in), but only as an owner: asserting `root`, or
    nothing, opens nobody else's job.
    """
    if identity.verified and identity.kind == CONTROLLER:
        return True
    return is_owner(identity, owner_uid, owner_name) or is_admin(identity, admins=admins)


def require_node(identity: Identity, node: str, *, open_cluster: bool = False) -> None:
    """Report as the node of that name: a node's token for exactly that name.

    Args:
        open_cluster: no key exists, so nodes have no token either.

    Raises:
        AccessDenied: it may not.
    """
    if identity.verified and identity.kind == NODE and node and identity.name == node:
        return
    if open_cluster and not identity.verified and identity.kind == ANONYMOUS:
        return
    raise AccessDenied


def require_controller(identity: Identity, *, open_cluster: bool = False) -> None:
    """Launch, cancel or probe on a node: the controller alone.

    Args:
        open_cluster: no key exists, so the controller has no token either.

    Raises:
        AccessDenied: it may not.
    """
    if identity.verified and identity.kind == CONTROLLER:
        return
    if open_cluster and not identity.verified and identity.kind == ANONYMOUS:
        return
    raise AccessDenied
