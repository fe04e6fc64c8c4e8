"""What a server makes of the authorization header of one call, by mode: the same rule for every service.

    mode        no header     valid token    bad token   malformed header   token, but no key
    disabled    anonymous     anonymous      anonymous   refused            anonymous
    permissive  anonymous     identified     refused     refused            refused
    required    refused       identified     refused     refused            refused at start

The gRPC interceptors of controller and agent are thin shells around `authenticate`.
"""

from collections.abc import Collection
from typing import Final

from spur_auth.errors import MalformedCredential, MissingCredential, NoKeyConfigured
from spur_auth.kinds import NOBODY, Identity
from spur_auth.verify import Keys, verify

DISABLED: Final = "disabled"
PERMISSIVE: Final = "permissive"
REQUIRED: Final = "required"
MODES: Final = (DISABLED, PERMISSIVE, REQUIRED)


def bearer(header: str | None) -> str | None:
    """The token of an authorization header; None when there is no header.

    Raises:
        MalformedCredential: anything but `Bearer TOKEN`.
    """
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme not in ("Bearer", "bearer"):
        raise MalformedCredential("the authorization header does not start with Bearer")
    if not token or any(c.isspace() for c in token):
        raise MalformedCredential("the authorization header must be Bearer and one token")
    return token


def authenticate(
    mode: str,
    keys: Keys | None,
    header: str | None,
    kinds: str | Collection[str],
    now: float,
    *,
    cluster: str | None = None,
) -> Identity:
    """The caller's identity; `NOBODY` for a caller without a credential where the mode allows that.

    Args:
        mode: one of `MODES`.
        keys: the cluster key or keys; None (or none) when no key is configured.
        header: the value of `authorization`, or None.
        kinds: the kinds of token that the called method takes.
        now: seconds since the epoch.
        cluster: this cluster's name, or None to accept tokens of any cluster with this key.

    Raises:
        CredentialError: refused; the text says why.
    """
    if mode not in MODES:
        raise ValueError(f"not an auth mode: {mode!r}")
    token = bearer(header)
    if mode == DISABLED:
        return NOBODY
    if token is None:
        if mode == REQUIRED:
            raise MissingCredential
        return NOBODY
    if not keys:
        raise NoKeyConfigured
    return verify(keys, token, kinds, now, cluster=cluster)
