"""Which settings keep a daemon from starting, and which are warned about."""

import pytest

from spur_auth.posture import is_loopback, posture

KEY = b"k" * 64
HERE, THERE = "127.0.0.1:6817", "0.0.0.0:6817"


@pytest.mark.parametrize(
    ("plugin", "mode", "key", "addr", "forced", "refused", "warned"),
    [
        ("jwt", "required", KEY, THERE, False, None, None),
        ("spur", "required", KEY, THERE, False, None, None),
        ("jwt", "required", None, HERE, False, "needs a key", None),
        ("none", "required", None, HERE, False, 'cannot work with plugin = "none"', None),
        ("none", "required", KEY, HERE, False, 'cannot work with plugin = "none"', None),
        ("none", "disabled", None, HERE, False, None, "ignores credentials"),
        ("none", "permissive", None, THERE, False, "serves loopback only", "anybody there"),
        ("none", "permissive", None, THERE, True, None, "is forced"),
        ("jwt", "permissive", KEY, HERE, False, None, "without a credential"),
        ("jwt", "permissive", KEY, THERE, False, None, "reached from other hosts"),
        ("jwt", "disabled", None, THERE, False, None, "reached from other hosts"),
        ("jwt", "required", b"short", HERE, False, "5 of at least 16 bytes", None),
        ("munge", "required", KEY, HERE, False, "no munged", None),
        ("jtw", "required", KEY, HERE, False, '"jtw" is not one of', None),
        ("jwt", "strict", KEY, HERE, False, '"strict" is not one of', None),
    ],
)
def test_posture(plugin, mode, key, addr, forced, refused, warned):
    got = posture(plugin, mode, key, addr, forced=forced)
    assert bool(got.refusals) is (refused is not None)
    assert bool(got.warnings) is (warned is not None)
    assert refused is None or refused in " ".join(got.refusals)
    assert warned is None or warned in " ".join(got.warnings)
    assert all("\n" not in line for line in got.refusals + got.warnings)


def test_a_local_warning_is_quieter():
    (near,), (far,) = (posture("jwt", "permissive", KEY, a).warnings for a in (HERE, THERE))
    assert len(near) < len(far)


@pytest.mark.parametrize(
    ("addr", "local"),
    [
        ("127.0.0.1:6817", True),
        ("127.8.9.1:1", True),
        ("[::1]:6817", True),
        ("::1", True),
        ("localhost:6817", True),
        ("unix:/run/x", True),
        ("0.0.0.0:6817", False),
        ("[::]:6817", False),
        ("10.0.0.1:6817", False),
        (":6817", False),
        ("", False),
        ("localhost.evil.example:1", False),
        ("myhost:6817", False),
    ],
)
def test_loopback(addr, local):
    assert is_loopback(addr) is local
