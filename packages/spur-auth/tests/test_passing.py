"""A controller's seal over what it says of a call."""

from hypothesis import given
from hypothesis import strategies as st

from spur_auth.errors import CredentialError
from spur_auth.kinds import CALLER_KINDS
from spur_auth.passing import seal, sealed
from spur_auth.verify import verify

KEY, OTHER = b"k" * 32, b"o" * 32
WORDS = st.lists(st.text(max_size=8), max_size=3)


@given(WORDS, WORDS)
def test_it_is_over_exactly_what_was_said(said: list[str], other: list[str]) -> None:
    made = seal(KEY, 1000.5, *said)
    assert sealed((OTHER, KEY), made, 1000.0, *said)
    assert sealed((KEY,), made, 1000.0, *other) == (said == other)
    assert not sealed((OTHER,), made, 1000.0, *said)


def test_it_is_soon_over() -> None:
    made = seal(KEY, 1000.0, "x")
    assert sealed((KEY,), made, 1030.0, "x")
    assert not sealed((KEY,), made, 1100.0, "x")
    assert not sealed((KEY,), made, 900.0, "x")


def test_it_is_no_token() -> None:
    try:
        verify(KEY, seal(KEY, 1000.0, "x"), CALLER_KINDS, 1000.0)
    except CredentialError:
        return
    raise AssertionError("taken for a token")


@given(st.text(max_size=90))
def test_nothing_else_is_one(found: str) -> None:
    assert not sealed((KEY,), found, 1000.0, "x")
