"""Sub-keys per token kind.

The cluster key itself signs nothing.  Each kind has a 32-byte sub-key, so that a token of one kind cannot
verify as another even if every claim in it were forged (decision 0002).
"""

import functools

from spur_auth.kinds import TOKEN_KINDS
from spur_core.errors import RequestError

#: Changing this label makes every token of every cluster invalid.
_SALT = b"spur-auth/1"


@functools.lru_cache(maxsize=64)
def derive(key: bytes, kind: str) -> bytes:
    """The 32-byte signing key of one kind: HKDF-SHA256 (RFC 5869) of the cluster key, one block long.

    Args:
        key: the cluster key, as many bytes as it has, at least one.
        kind: one of `TOKEN_KINDS`.

    Raises:
        RequestError: an empty key (which would be a key everybody knows).
        ValueError: not a kind.
    """
    import hmac

    if not key:
        raise RequestError("the cluster key is empty; make one with `spur keygen`")
    if kind not in TOKEN_KINDS:
        raise ValueError(f"not a token kind: {kind!r}")
    extracted = hmac.digest(_SALT, key, "sha256")
    return hmac.digest(extracted, f"token/{kind}".encode() + b"\x01", "sha256")
