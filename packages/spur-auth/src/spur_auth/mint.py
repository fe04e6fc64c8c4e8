"""Making tokens.  The caller gives the cluster key and the time; nothing here reads a clock or a file."""

from spur_auth.keys import derive
from spur_auth.kinds import (
    ALGORITHM,
    CONTROLLER,
    CONTROLLER_SUBJECT,
    CONTROLLER_TTL_SECS,
    LAUNCH,
    LAUNCH_TTL_SECS,
    MAX_HOLDER_CHARS,
    NODE,
    NODE_TTL_SECS,
    USER,
    audience,
)
from spur_core.errors import RequestError
from spur_core.ids import RuntimeId


def _sign(key: bytes, kind: str, claims: dict[str, object], ttl: float, now: float, cluster: str) -> str:
    import jwt  # late: it loads cryptography, and commands that need no token start without it

    if ttl <= 0:
        raise RequestError(f"a token's life must be more than 0 seconds, not {ttl:g}")
    issued = int(now)
    body: dict[str, object] = {
        "aud": audience(kind),
        "kind": kind,
        "iat": issued,
        "exp": int(now + ttl),
        **claims,
    }
    if cluster:
        body["iss"] = cluster
    return jwt.encode(body, derive(key, kind), algorithm=ALGORITHM)


def mint_user(key: bytes, user: str, uid: int | None, ttl: float, now: float, *, cluster: str = "") -> str:
    """A token for a user.

    Args:
        key: the cluster key.
        user: the user's name; the identity.
        uid: the user's uid where the token is made, or None; says nothing about rights.
        ttl: life in seconds, more than 0.
        now: seconds since the epoch.
        cluster: the cluster's name; then verifiers of another cluster refuse it.
    """
    if not user:
        raise RequestError("a user token needs a user name")
    claims: dict[str, object] = {"sub": user}
    if uid is not None:
        claims["uid"] = uid
    return _sign(key, USER, claims, ttl, now, cluster)


def mint_node(
    key: bytes, node: str, now: float, ttl: float = NODE_TTL_SECS, *, cluster: str = "", holder: str = ""
) -> str:
    """A token for the agent of the node of that name.

    Args:
        holder: the secret of the agent that has the name (`node_names`); empty = an agent without one.
    """
    if not node:
        raise RequestError("a node token needs a node name")
    if len(holder) > MAX_HOLDER_CHARS:
        raise RequestError(f"a holder's secret has at most {MAX_HOLDER_CHARS} characters")
    claims: dict[str, object] = {"sub": node}
    if holder:
        claims["hid"] = holder
    return _sign(key, NODE, claims, ttl, now, cluster)


def mint_controller(key: bytes, now: float, ttl: float = CONTROLLER_TTL_SECS, *, cluster: str = "") -> str:
    """A token with which the controller calls agents and other controllers."""
    return _sign(key, CONTROLLER, {"sub": CONTROLLER_SUBJECT}, ttl, now, cluster)


def mint_launch(
    key: bytes,
    rid: RuntimeId,
    uid: int,
    gid: int,
    spec_digest: str,
    node: str,
    ttl: float = LAUNCH_TTL_SECS,
    *,
    now: float,
    cluster: str = "",
) -> str:
    """The signed statement that `node` shall run `rid` as uid:gid from the spec of that digest.

    Args:
        spec_digest: lower-case hex SHA-256 of the serialized spec (`spec_digest()` below makes it).
    """
    claims: dict[str, object] = {
        "sub": node,
        "rid": list(rid),
        "uid": uid,
        "gid": gid,
        "digest": spec_digest,
    }
    return _sign(key, LAUNCH, claims, ttl, now, cluster)


def spec_digest(spec: bytes) -> str:
    """Lower-case hex SHA-256 of a serialized launch spec."""
    import hashlib

    return hashlib.sha256(spec).hexdigest()
