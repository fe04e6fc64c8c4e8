"""Proof that whoever names a term of the controllers has the cluster's key.

Agents refuse orders of every term below the highest that they have heard of, also after a restart.  They
hear of terms in answers too, and whoever listens at a controller's address can answer: a made-up term would
lock the real controllers out for ever.  Terms never fall, so a proof needs no end.
"""

from collections.abc import Sequence

from spur_auth.keys import derive
from spur_auth.kinds import CONTROLLER

#: No token is signed over text that begins so.
_LABEL = "spur term "


def prove(key: bytes, term: int) -> bytes:
    """What goes beside `term` in an answer; 32 bytes."""
    import hmac

    return hmac.digest(derive(key, CONTROLLER), f"{_LABEL}{term}".encode(), "sha256")


def proves(keys: Sequence[bytes], proof: bytes, term: int) -> bool:
    """Whether `proof` was made with one of the cluster's keys for exactly that term."""
    import hmac

    return any(hmac.compare_digest(prove(key, term), proof) for key in keys)
