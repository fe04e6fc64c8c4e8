"""Lists of CPUs and devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_core.grammar import idlist


@pytest.mark.parametrize(
    ("text", "found"),
    [("", ()), ("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), ("5-5,7,6", (5, 6, 7)), ("65535", (65535,))],
)
def test_a_list_names_numbers(text, found):
    assert idlist.numbers(idlist.mask_of(text)) == found


@pytest.mark.parametrize("text", [",", "1,", "a", "3-1", "-1", "1-", "65536", "0-99999", "0x3", "1 2", "٣"])
def test_what_is_no_list_is_refused(text):
    with pytest.raises(GrammarError):
        idlist.mask_of(text)


@given(st.sets(st.integers(0, 300)))
def test_text_and_mask_are_the_same(values):
    mask = idlist.mask_from(values)
    assert idlist.numbers(mask) == tuple(sorted(values))
    assert idlist.mask_of(idlist.text_of(mask)) == mask


def test_the_text_is_short():
    assert idlist.text_of(0b1_0000_1011) == "0-1,3,8"
