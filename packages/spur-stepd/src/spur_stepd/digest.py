"""SHA-256 without `hashlib`, which would load a megabyte of OpenSSL into every supervisor."""

from __future__ import annotations

try:
    from _sha2 import sha256  # type: ignore[import-not-found]  # Python 3.12 and later
except ImportError:
    from _sha256 import sha256  # type: ignore[import-not-found]


def hexdigest(data: bytes) -> str:
    """The digest of `data` in hexadecimal."""
    return str(sha256(data).hexdigest())
