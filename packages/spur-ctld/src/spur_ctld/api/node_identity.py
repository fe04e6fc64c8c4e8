"""Which agent speaks for a node: the rules of `spur_auth.node_names` over the replicated state."""

import secrets
from typing import NamedTuple

from spur_auth import mint
from spur_auth.kinds import NODE, USER, Identity
from spur_auth.node_names import Name, digest, require_agent, require_registration
from spur_auth.term_proof import prove
from spur_core.errors import RequestError, SpurError
from spur_core.states import NodeAvail
from spur_ctld.api.caller import CALLER
from spur_ctld.site import Site

_HOLDER_BYTES = 16


class Claim(NamedTuple):
    """A registration that is allowed.

    Attributes:
        held_by: digest on record when it was allowed; compared again at apply.
        secret: what the holder's tokens carry from now on; empty for an agent that knows none.
    """

    held_by: str
    secret: str

    @property
    def holder(self) -> str:
        """What goes on record."""
        return digest(self.secret)


def name_of(site: Site, node: str) -> Name:
    """How a node's name stands now."""
    known = site.ledger.state.nodes.get(node)
    if known is None or known.avail is NodeAvail.UNKNOWN:
        return Name.FREE
    if known.avail is not NodeAvail.DOWN:
        return Name.HELD
    use = site.ledger.state.use.get(node)
    return Name.DOWN if use is not None and use.jobs else Name.FREE


async def claim(site: Site, node: str) -> Claim:
    """Allow the present caller to register as `node`, or refuse.

    Raises:
        AccessDenied: the name is another's, or the credential is.
        WrongKind: the credential is a user's who is no administrator.
    """
    if not node:
        raise RequestError("node: missing")
    identity: Identity = CALLER.get()
    admin = identity.kind == USER and await _is_admin(site)
    known = site.ledger.state.nodes.get(node)
    held_by = known.holder if known is not None else ""
    require_registration(
        identity, node, name_of(site, node), held_by, admin=admin, open_cluster=site.rules.open_cluster
    )
    if identity.kind == NODE:
        return Claim(held_by, identity.holder)
    # Who showed no secret gets one with its token, on a cluster where tokens mean anything.
    return Claim(held_by, "" if site.rules.open_cluster else secrets.token_hex(_HOLDER_BYTES))


async def _is_admin(site: Site) -> bool:
    try:
        return (await site.caller())[1]
    except SpurError:
        return False  # nobody whom this host knows


def require_speaker(site: Site, node: str, identity: Identity | None = None) -> None:
    """The caller (or `identity`) is the agent that has that node's name.

    Raises:
        AccessDenied: it is not a token of that node.
        NotTheHolder: another agent has the name at present.
    """
    if not node:
        raise RequestError("node: missing")
    known = site.ledger.state.nodes.get(node)
    require_agent(
        CALLER.get() if identity is None else identity,
        node,
        known.holder if known is not None else "",
        open_cluster=site.rules.open_cluster,
    )


def term_proof(site: Site, term: int) -> bytes:
    """With which the agent believes the term; empty on a cluster without a key."""
    if site.key is None or not site.rules.keys:
        return b""
    return prove(site.key, term)


def token_for(site: Site, node: str, secret: str, now: float) -> str:
    """The node's token; empty on a cluster without a key."""
    if site.key is None or not site.rules.keys:
        return ""
    return mint.mint_node(site.key, node, now, cluster=site.ledger.state.settings.cluster_name, holder=secret)
