"""Who may register under a node's name, and speak for the node afterwards.

A name that nobody has is free.  The agent that registers under it becomes its holder: it made a random
secret before, kept it on its disk, and its tokens carry it; the controller remembers the secret's digest.
As long as the node is not down, only a token with that secret, or an administrator, registers under the
name again: a second agent with the same name (a copied disk image, a typing error, a stranger) is refused
and hurts nobody.

A node that registered without a secret (an agent of an earlier release) is held by whoever can show any node
token for its name.
"""

import hashlib
from enum import Enum

from spur_auth.errors import NotTheHolder, WrongKind
from spur_auth.kinds import ANONYMOUS, NODE, Identity
from spur_auth.ownership import require_node
from spur_core.errors import AccessDenied


class Name(Enum):
    """How a node's name stands."""

    FREE = "never registered, or down with nothing on it"
    #: What the node ran is being made certain to be over: its next agent's word decides about that.
    DOWN = "down, and runs are still booked on it"
    HELD = "registered, and not down"


class NameTaken(AccessDenied):
    """The name belongs to a node that is alive, and the caller did not prove to be it."""

    code = "node_name_taken"

    def __init__(self, node: str) -> None:
        super().__init__(
            f"node {node} is registered by another agent and not down; bring back its state directory,"
            " wait until the node is down, or set it down with scontrol"
        )


def digest(holder: str) -> str:
    """What the controller remembers of a holder's secret; empty for none."""
    return hashlib.sha256(holder.encode()).hexdigest() if holder else ""


def is_holder(identity: Identity, held_by: str) -> bool:
    """Whether a node's identity carries the secret with that digest; with none on record any does."""
    return not held_by or digest(identity.holder) == held_by


def require_registration(
    identity: Identity,
    node: str,
    name: Name,
    held_by: str,
    *,
    admin: bool = False,
    open_cluster: bool = False,
) -> None:
    """Register as that node.

    Args:
        held_by: digest of the present holder's secret; empty = none on record.
        admin: the caller is a proven administrator.
        open_cluster: no key exists, so nobody can prove anything.

    Raises:
        NameTaken: the name is held, and not by the caller.
        AccessDenied: the credential is of another node.
        WrongKind: it is a user's.
    """
    if admin:
        return
    if open_cluster and not identity.verified and identity.kind == ANONYMOUS:
        return
    if identity.verified and identity.kind == NODE:
        if not node or identity.name != node:
            raise AccessDenied
        if name is Name.HELD and not is_holder(identity, held_by):
            raise NameTaken(node)
        return
    if identity.kind != ANONYMOUS:
        raise WrongKind(identity.kind, (NODE,))
    if name is not Name.FREE:
        raise NameTaken(node)


def require_agent(identity: Identity, node: str, held_by: str, *, open_cluster: bool = False) -> None:
    """Report as that node: its own token, and of the agent that has the name at present.

    Raises:
        AccessDenied: not a token of that node.
        NotTheHolder: another agent has the name.
    """
    require_node(identity, node, open_cluster=open_cluster)
    if identity.kind == NODE and not is_holder(identity, held_by):
        raise NotTheHolder(node)
