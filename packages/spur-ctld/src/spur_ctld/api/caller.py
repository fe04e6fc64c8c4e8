"""Who calls: from the credential of a call to an identity, and what each call takes.  Pure.

The identity comes from a token, or where no token is asked for from what a loopback caller says of itself
(`x-spur-user`), checked against the host's user database when it matters.
"""

from contextvars import ContextVar
from typing import Final, NamedTuple

from spur_auth import gate
from spur_auth.errors import MissingCredential
from spur_auth.kinds import NOBODY, NODE, USER, Identity, asserted_user
from spur_auth.ownership import is_admin
from spur_core.errors import AccessDenied, Unsupported

USER_KEY: Final = "x-spur-user"

#: The caller of the RPC that is being handled.
CALLER: ContextVar[Identity] = ContextVar("spur_caller", default=NOBODY)
#: gRPC's name of the caller's host, also when another controller passed the call on.
PEER: ContextVar[str] = ContextVar("spur_peer", default="")
#: Whether another controller passed the call on.
FORWARDED: ContextVar[bool] = ContextVar("spur_forwarded", default=False)
#: RPC and request id of the call, "" when its caller gave none: the same when it is repeated.
REQUEST: ContextVar[str] = ContextVar("spur_request", default="")

_USERS: Final = frozenset({USER})
_NODES: Final = frozenset({NODE})
_BOTH: Final = frozenset({USER, NODE})

#: Which kinds of token each RPC takes.  An RPC that is not here is refused.
KINDS: Final[dict[str, frozenset[str]]] = {
    "/slurm.SlurmController/SubmitJob": _USERS,
    "/slurm.SlurmController/GetJobs": _USERS,
    "/slurm.SlurmController/WatchJob": _USERS,
    "/slurm.SlurmController/CancelJob": _USERS,
    "/slurm.SlurmController/UpdateJob": _USERS,
    "/slurm.SlurmController/RequeueJob": _USERS,
    "/slurm.SlurmController/SuspendJob": _USERS,
    "/slurm.SlurmController/ResumeJob": _USERS,
    "/slurm.SlurmController/CompleteJob": _USERS,
    "/slurm.SlurmController/JobKeepalive": _USERS,
    "/slurm.SlurmController/CreateJobStep": _USERS,
    "/slurm.SlurmController/GetJobSteps": _USERS,
    "/slurm.SlurmController/WatchStep": _USERS,
    "/slurm.SlurmController/GetNodes": _USERS,
    "/slurm.SlurmController/UpdateNode": _USERS,
    "/slurm.SlurmController/GetPartitions": _USERS,
    "/slurm.SlurmController/CreatePartition": _USERS,
    "/slurm.SlurmController/UpdatePartition": _USERS,
    "/slurm.SlurmController/DeletePartition": _USERS,
    "/slurm.SlurmController/GetPriorities": _USERS,
    "/slurm.SlurmController/GetConfig": _USERS,
    "/slurm.SlurmController/GetTopology": _USERS,
    "/slurm.SlurmController/CreateReservation": _USERS,
    "/slurm.SlurmController/UpdateReservation": _USERS,
    "/slurm.SlurmController/DeleteReservation": _USERS,
    "/slurm.SlurmController/ListReservations": _USERS,
    "/slurm.SlurmController/GetLicenses": _USERS,
    "/slurm.SlurmController/Ping": _BOTH,
    "/slurm.SlurmController/Takeover": _USERS,
    "/slurm.SlurmController/GetStatistics": _USERS,
    "/slurm.SlurmController/DrainNode": _BOTH,
    "/slurm.SlurmController/RegisterAgent": _BOTH,
    "/slurm.SlurmController/Heartbeat": _NODES,
    "/slurm.SlurmController/DeregisterAgent": _NODES,
    "/slurm.SlurmController/ReportJobStatus": _NODES,
    "/slurm.SlurmController/ReportStepdRecovery": _NODES,
    "/slurm.SlurmAccounting/GetJobHistory": _USERS,
}


class GateRules(NamedTuple):
    """The `[auth]` settings that decide about a call.

    `trust_claims`: callers without a token are believed on loopback (plugin none, or a mode that lets them
    in).  `owner_uid`: whom the controller runs as; like Slurm's SlurmUser that user may do everything.
    """

    mode: str
    keys: tuple[bytes, ...]
    trust_claims: bool
    owner_uid: int = 0

    @property
    def open_cluster(self) -> bool:
        """No key exists, so neither users nor nodes can prove anything."""
        return not self.keys or self.mode == gate.DISABLED


def rules(plugin: str, mode: str, key: bytes | None, owner_uid: int = 0) -> GateRules:
    """The rules of a cluster with these `[auth]` settings."""
    keys = (key,) if key is not None and plugin != "none" else ()
    return GateRules(mode, keys, plugin == "none" or mode != gate.REQUIRED, owner_uid)


def is_loopback_peer(peer: str) -> bool:
    """Whether gRPC's name of the other side (`ipv4:127.0.0.1:5`, `ipv6:[::1]:5`, `unix:`) is this host."""
    kind, _, rest = peer.partition(":")
    if kind == "unix":
        return True
    if kind == "ipv4":
        return rest.startswith("127.")
    host = rest.replace("%5B", "[").replace("%5D", "]").rpartition(":")[0]
    return kind == "ipv6" and (host == "[::1]" or host.startswith("[::ffff:127."))


def identify(
    rules: GateRules, method: str, header: str | None, claimed: str | None, peer: str, now: float
) -> Identity:
    """The caller of `method`.

    Args:
        header: the value of `authorization`, or None.
        claimed: the value of `x-spur-user`, or None.
        peer: gRPC's name of the other side.

    Raises:
        CredentialError: the credential is missing, bad, expired or of a kind this call does not take.
        Unsupported: nobody decided who may call this.
    """
    kinds = KINDS.get(method)
    if kinds is None:
        raise Unsupported(f"{method} is not available in this release")
    mode = rules.mode if rules.keys or rules.mode == gate.REQUIRED else gate.DISABLED
    identity = gate.authenticate(mode, rules.keys or None, header, kinds, now)
    if identity is not NOBODY or USER not in kinds or claimed is None or not rules.trust_claims:
        return identity
    if not is_loopback_peer(peer):
        raise AccessDenied("a caller without a credential is believed only on the controller's own host")
    return asserted_user(claimed)


def caller_is_admin(identity: Identity, uid: int, rules: GateRules) -> bool:
    """Administrators: root and the controller's own user, proven; or asserted where the cluster trusts what
    local users say.

    Args:
        uid: the caller's in the host's user database, or what the credential proves.
    """
    privileged = identity.kind == USER and uid in (0, rules.owner_uid)
    if identity.verified:
        return is_admin(identity) or privileged
    return rules.open_cluster and privileged


def require_user(identity: Identity) -> str:
    """The user's name.

    Raises:
        MissingCredential: the caller said nothing about itself.
    """
    if identity.kind != USER or not identity.name:
        raise MissingCredential
    return identity.name
