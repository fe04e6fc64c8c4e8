"""Proof of a term."""

from hypothesis import given
from hypothesis import strategies as st

from spur_auth.term_proof import prove, proves

KEY, OTHER = b"k" * 32, b"o" * 32
TERMS = st.integers(0, (1 << 64) - 1)


@given(TERMS, TERMS)
def test_a_proof_is_for_one_term(term: int, other: int) -> None:
    assert proves((OTHER, KEY), prove(KEY, term), term)
    assert proves((KEY,), prove(KEY, term), other) == (term == other)


@given(TERMS, st.binary(max_size=40))
def test_nothing_else_proves_it(term: int, proof: bytes) -> None:
    assert not proves((KEY,), proof, term)
    assert not proves((), prove(KEY, term), term)
    assert not proves((OTHER,), prove(KEY, term), term)
