"""A forger's workshop: tokens made by hand, byte by byte, never by the code under test."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest

KEY = b"5f" * 32
NOW = 1_800_000_000.0


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.fixture
def key() -> bytes:
    return KEY


@pytest.fixture
def now() -> float:
    return NOW


@pytest.fixture
def forge() -> Callable[..., str]:
    """forge(claims, signing_key, header=...): a compact token with an HMAC-SHA256 signature of that key."""

    def make(claims: Any, signing_key: bytes, header: dict[str, Any] | None = None) -> str:
        head = b64(json.dumps(header or {"alg": "HS256", "typ": "JWT"}).encode())
        body = b64(claims if isinstance(claims, bytes) else json.dumps(claims).encode())
        signature = hmac.new(signing_key, f"{head}.{body}".encode(), hashlib.sha256).digest()
        return f"{head}.{body}.{b64(signature)}"

    return make


@pytest.fixture
def claims() -> dict[str, Any]:
    """The claims of a good user token of the cluster `c1`."""
    return {
        "aud": "spur:user",
        "iss": "c1",
        "kind": "user",
        "sub": "alice",
        "uid": 1000,
        "iat": int(NOW),
        "exp": int(NOW) + 3600,
    }


@pytest.fixture
def subkey() -> Callable[[bytes, str], bytes]:
    """RFC 5869 written out again, so that a change of the derivation does not go unseen."""

    def make(cluster_key: bytes, kind: str) -> bytes:
        prk = hmac.new(b"spur-auth/1", cluster_key, hashlib.sha256).digest()
        return hmac.new(prk, b"token/" + kind.encode() + b"\x01", hashlib.sha256).digest()

    return make
