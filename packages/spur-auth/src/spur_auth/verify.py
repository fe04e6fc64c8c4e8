"""Checking tokens.

Order: shape, algorithm, signature, kind, audience and cluster, not yet valid, expired.  Nothing in a token is
believed before its signature is checked, except which sub-key to try: then a genuine token of the wrong kind
can be told from a forged one.
"""

from collections.abc import Collection, Sequence
from typing import Any

from spur_auth.errors import (
    ExpiredCredential,
    ForgedCredential,
    MalformedCredential,
    MissingCredential,
    NotYetValid,
    WrongAudience,
    WrongKind,
)
from spur_auth.keys import derive
from spur_auth.kinds import (
    ALGORITHM,
    CALLER_KINDS,
    CONTROLLER,
    CONTROLLER_SUBJECT,
    LAUNCH,
    LEEWAY_SECS,
    MAX_HOLDER_CHARS,
    NODE,
    TOKEN_KINDS,
    USER,
    Identity,
    LaunchStatement,
    audience,
)
from spur_core.ids import U32_MAX, RuntimeId

Keys = bytes | Sequence[bytes]

#: A token longer than this is not one of ours; it is not even parsed.
MAX_TOKEN_CHARS = 8192


def verify(
    keys: Keys, token: str | None, kind: str | Collection[str], now: float, *, cluster: str | None = None
) -> Identity:
    """Who the token names.

    Args:
        keys: the cluster key, or all keys accepted during a rotation.
        token: the token without its `Bearer`; None or empty means that none was sent.
        kind: the kind, or the kinds, that this call takes: of `CALLER_KINDS`.
        now: seconds since the epoch.
        cluster: refuse tokens that do not name this cluster; None = do not look.

    Raises:
        CredentialError: one of its subclasses, by reason.
    """
    wanted = (kind,) if isinstance(kind, str) else tuple(kind)
    if isinstance(kind, (set, frozenset)):
        wanted = tuple(sorted(wanted))  # or the sentence of a refusal would differ from run to run
    if not wanted or any(k not in CALLER_KINDS for k in wanted):
        raise ValueError(f"not kinds of caller: {wanted!r}")
    claims = _checked_claims(keys, token, wanted, now, cluster)
    got, name = claims["kind"], claims["sub"]
    if got == CONTROLLER and name != CONTROLLER_SUBJECT:
        raise MalformedCredential(f"a controller credential names {name!r}")
    uid = _u32(claims, "uid") if got == USER and "uid" in claims else None
    return Identity(got, name, uid, True, _holder(claims) if got == NODE else "")


def verify_launch(
    keys: Keys, token: str | None, now: float, *, cluster: str | None = None
) -> LaunchStatement:
    """What the controller signed.  The caller compares every part with what it is asked to run.

    Raises:
        CredentialError: one of its subclasses, by reason.
    """
    claims = _checked_claims(keys, token, (LAUNCH,), now, cluster)
    rid = claims.get("rid")
    if not (isinstance(rid, list) and len(rid) == 3 and all(_is_u32(n) for n in rid)):
        raise MalformedCredential("rid is not three numbers")
    digest = claims.get("digest")
    if not isinstance(digest, str) or not digest:
        raise MalformedCredential("digest is missing")
    return LaunchStatement(RuntimeId(*rid), _u32(claims, "uid"), _u32(claims, "gid"), digest, claims["sub"])


def _checked_claims(
    keys: Keys, token: str | None, wanted: tuple[str, ...], now: float, cluster: str | None
) -> dict[str, Any]:
    """The claims of a genuine, timely token of a wanted kind; `kind` and `sub` are non-empty strings."""
    if not token:
        raise MissingCredential
    claimed = _claimed_kind(token)
    claims = _signed_claims(keys, token, claimed)
    if claimed not in wanted:
        raise WrongKind(claimed, wanted)
    if claims.get("aud") != audience(claimed):
        raise WrongAudience(claims.get("aud"), audience(claimed))
    if cluster is not None and claims.get("iss") != cluster:
        raise WrongAudience(claims.get("iss", "no cluster"), cluster)
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise MalformedCredential("it names nobody")
    _check_times(claims, now)
    return claims


def _claimed_kind(token: str) -> str:
    """Which sub-key to try.  Read before the signature is checked, so it decides nothing else."""
    import jwt

    if len(token) > MAX_TOKEN_CHARS:
        raise MalformedCredential(f"longer than {MAX_TOKEN_CHARS} characters")
    try:
        header = jwt.get_unverified_header(token)
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError):  # UnicodeError is a ValueError
        raise MalformedCredential("not a JSON web token") from None
    if header.get("alg") != ALGORITHM:
        raise ForgedCredential(f"algorithm {header.get('alg')!r} is not {ALGORITHM}")
    claimed = claims.get("kind")
    if claimed not in TOKEN_KINDS:
        raise MalformedCredential("it names no known kind")
    return str(claimed)


def _signed_claims(keys: Keys, token: str, kind: str) -> dict[str, Any]:
    """The claims, once some key's sub-key of that kind is found to have signed them."""
    import jwt

    options: Any = {
        "require": ["exp", "iat", "sub", "aud"],
        # Times are compared with the caller's clock and audiences with our own words, below.
        **dict.fromkeys(
            ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss", "verify_sub"), False
        ),
    }
    for key in (keys,) if isinstance(keys, bytes) else keys:
        try:
            # PyJWT compares the signature with hmac.compare_digest.
            return jwt.decode(token, derive(key, kind), algorithms=[ALGORITHM], options=options)
        except jwt.InvalidSignatureError:
            continue
        except jwt.MissingRequiredClaimError as e:
            raise MalformedCredential(f"claim {e.claim} is missing") from None
        except jwt.PyJWTError:
            raise MalformedCredential("not a JSON web token of ours") from None
    raise ForgedCredential


def _check_times(claims: dict[str, Any], now: float) -> None:
    times = {}
    for name in ("iat", "exp", "nbf"):
        value = claims.get(name, claims.get("iat"))
        # An infinite or absurd number must not turn into an OverflowError further down.
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**53:
            raise MalformedCredential(f"claim {name} is not a time")
        times[name] = value
    starts = max(times["iat"], times["nbf"])
    if starts > now + LEEWAY_SECS:
        raise NotYetValid(int(starts - now))
    if now >= times["exp"] + LEEWAY_SECS:
        raise ExpiredCredential(int(now - times["exp"]))


def _holder(claims: dict[str, Any]) -> str:
    value = claims.get("hid", "")
    if not isinstance(value, str) or len(value) > MAX_HOLDER_CHARS:
        raise MalformedCredential("claim hid is not a holder's secret")
    return value


def _is_u32(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U32_MAX


def _u32(claims: dict[str, Any], name: str) -> int:
    value = claims.get(name)
    if not _is_u32(value):
        raise MalformedCredential(f"claim {name} is not an id")
    return int(claims[name])
