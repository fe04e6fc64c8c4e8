"""What an agent believes: who calls, and what the controller signed.  Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from spur_auth import gate
from spur_auth.kinds import CONTROLLER, NOBODY, USER, Identity, LaunchStatement, asserted_user
from spur_auth.ownership import may_act_on, require_controller
from spur_auth.term_proof import proves
from spur_auth.verify import verify_launch
from spur_core.errors import AccessDenied, Unsupported
from spur_core.ids import RuntimeId

#: What a caller without a credential says it is, where that is believed.
USER_KEY: Final = "x-spur-user"

_CONTROLLER: Final = frozenset({CONTROLLER})
_OWNERS: Final = frozenset({USER, CONTROLLER})
#: Which kinds of token each RPC takes.  An RPC that is not here is refused.
KINDS: Final[Mapping[str, frozenset[str]]] = {
    "/slurm.SlurmAgent/LaunchJob": _CONTROLLER,
    "/slurm.SlurmAgent/RunCommand": _CONTROLLER,
    "/slurm.SlurmAgent/CancelJob": _CONTROLLER,
    "/slurm.SlurmAgent/SuspendJob": _CONTROLLER,
    "/slurm.SlurmAgent/ProbeStepd": _CONTROLLER,
    "/slurm.SlurmAgent/StreamJobOutput": _OWNERS,
    "/slurm.SlurmAgent/InteractiveSession": _OWNERS,
}


class Rules(NamedTuple):
    """The `[auth]` settings that decide about a call."""

    mode: str
    keys: tuple[bytes, ...]

    @property
    def open_cluster(self) -> bool:
        """No key exists, so nobody can prove anything."""
        return not self.keys or self.mode == gate.DISABLED


def rules(plugin: str, mode: str, key: bytes | None) -> Rules:
    """The rules of an agent with these settings."""
    return Rules(mode, (key,) if key is not None and plugin != "none" else ())


def is_loopback_peer(peer: str) -> bool:
    """Whether gRPC's name of the other side is this host."""
    kind, _, rest = peer.partition(":")
    if kind == "unix":
        return True
    host = rest.replace("%5B", "[").replace("%5D", "]").rpartition(":")[0]
    return (kind == "ipv4" and host.startswith("127.")) or (
        kind == "ipv6" and (host == "[::1]" or host.startswith("[::ffff:127."))
    )


def identify(
    rules: Rules, method: str, header: str | None, claimed: str | None, peer: str, now: float
) -> Identity:
    """The caller of `method`; for calls that belong to the controller it is the controller.

    Args:
        header: the value of `authorization`, or None.
        claimed: the value of `x-spur-user`, or None.
        peer: gRPC's name of the other side.

    Raises:
        CredentialError: the credential is missing, bad, expired or of a kind this call does not take.
        AccessDenied: the caller may not make this call.
        Unsupported: nobody decided who may make it.
    """
    kinds = KINDS.get(method)
    if kinds is None:
        raise Unsupported(f"{method} is not available in this release")
    mode = rules.mode if rules.keys or rules.mode == gate.REQUIRED else gate.DISABLED
    identity = gate.authenticate(mode, rules.keys or None, header, kinds, now)
    if kinds is _CONTROLLER:
        require_controller(identity, open_cluster=rules.open_cluster)
        return identity
    if identity is NOBODY and claimed and mode != gate.REQUIRED:
        if not is_loopback_peer(peer):
            raise AccessDenied("a caller without a credential is believed only on the agent's own host")
        return asserted_user(claimed)
    return identity


def require_owner(identity: Identity, uid: int, user: str) -> None:
    """The caller may read and drive a step of that user.

    Raises:
        AccessDenied: it may not.
    """
    if not may_act_on(identity, uid, user):
        raise AccessDenied


def believed_term(rules: Rules, term: int, proof: bytes) -> int:
    """The term that a controller's answer names; 0 when whoever answered did not prove that it may name one.

    Orders come with a credential; an answer comes from whoever listens at the address.
    """
    return term if rules.open_cluster or proves(rules.keys, proof, term) else 0


def check_statement(
    rules: Rules, token: str, rid: RuntimeId, uid: int, gid: int, digest: str, node: str, now: float
) -> None:
    """The controller signed exactly this launch; on a cluster without a key there is nothing to check.

    Raises:
        CredentialError: the statement is missing, forged or expired.
        AccessDenied: it says something else than the request; the text names the part.
    """
    if rules.open_cluster:
        return
    said = verify_launch(rules.keys, token, now)
    wanted = LaunchStatement(rid, uid, gid, digest, node)
    for name, signed, asked in zip(LaunchStatement._fields, said, wanted, strict=True):
        if signed != asked:
            raise AccessDenied(f"the launch statement is for another {name.replace('_', ' ')}")
