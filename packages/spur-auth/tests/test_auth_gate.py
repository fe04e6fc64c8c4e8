"""The table of modes against headers, as the same rule for controller and agent."""

import pytest

from spur_auth import errors
from spur_auth.gate import DISABLED, PERMISSIVE, REQUIRED, authenticate, bearer
from spur_auth.kinds import NOBODY, USER
from spur_auth.mint import mint_user

GOOD, EXPIRED, FORGED, NONE, MANGLED = "good", "expired", "forged", "none", "mangled"


@pytest.fixture
def headers(key, now):
    return {
        GOOD: "Bearer " + mint_user(key, "alice", 1000, 60, now),
        EXPIRED: "Bearer " + mint_user(key, "alice", 1000, 60, now - 3600),
        FORGED: "Bearer " + mint_user(b"x" * 32, "alice", 1000, 60, now),
        NONE: None,
        MANGLED: "Basic YWxpY2U6",
    }


@pytest.mark.parametrize(
    ("mode", "has_key", "header", "outcome"),
    [
        (DISABLED, True, NONE, NOBODY),
        (DISABLED, True, GOOD, NOBODY),
        (DISABLED, True, EXPIRED, NOBODY),
        (DISABLED, True, FORGED, NOBODY),
        (DISABLED, False, GOOD, NOBODY),
        (DISABLED, True, MANGLED, errors.MalformedCredential),
        (PERMISSIVE, True, NONE, NOBODY),
        (PERMISSIVE, True, GOOD, (USER, "alice", 1000, True, "")),
        (PERMISSIVE, True, EXPIRED, errors.ExpiredCredential),
        (PERMISSIVE, True, FORGED, errors.ForgedCredential),
        (PERMISSIVE, True, MANGLED, errors.MalformedCredential),
        (PERMISSIVE, False, NONE, NOBODY),
        (PERMISSIVE, False, GOOD, errors.NoKeyConfigured),
        (REQUIRED, True, NONE, errors.MissingCredential),
        (REQUIRED, True, GOOD, (USER, "alice", 1000, True, "")),
        (REQUIRED, True, EXPIRED, errors.ExpiredCredential),
        (REQUIRED, True, FORGED, errors.ForgedCredential),
        (REQUIRED, True, MANGLED, errors.MalformedCredential),
        (REQUIRED, False, GOOD, errors.NoKeyConfigured),
        (REQUIRED, False, NONE, errors.MissingCredential),
    ],
)
def test_modes(mode, has_key, header, outcome, headers, key, now):
    def call():
        return authenticate(mode, key if has_key else None, headers[header], USER, now)

    if isinstance(outcome, tuple):
        assert call() == outcome
        return
    with pytest.raises(outcome):
        call()


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None),
        ("Bearer a.b.c", "a.b.c"),
        ("bearer a.b.c", "a.b.c"),
        ("Bearer  a.b.c ", "a.b.c"),
        ("Bearer", errors.MalformedCredential),
        ("Bearer ", errors.MalformedCredential),
        ("", errors.MalformedCredential),
        ("a.b.c", errors.MalformedCredential),
        ("Bearer a b", errors.MalformedCredential),
        ("Token a", errors.MalformedCredential),
        ("BEARER a", errors.MalformedCredential),
    ],
)
def test_bearer(header, token):
    if token is None or isinstance(token, str):
        assert bearer(header) == token
        return
    with pytest.raises(token):
        bearer(header)


def test_unknown_mode_is_a_bug(key, now):
    """A typing error in a mode must never mean "let everybody in"."""
    with pytest.raises(ValueError, match="requird"):
        authenticate("requird", key, None, USER, now)
