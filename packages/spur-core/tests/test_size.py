"""Memory sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_core.grammar.size import format_kib, format_mem, parse_mem


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [
        ("100", 100),
        ("100M", 100),
        ("100m", 100),
        ("100MB", 100),
        ("4G", 4096),
        ("4gb", 4096),
        ("2T", 2 * 1024**2),
        ("1024K", 1),
        ("1025K", 2),
        ("5kb", 1),
        ("5K", 1),
        ("0", 0),
        ("0K", 0),
    ],
)
def test_sizes(text, mebibytes):
    """Default MiB, kibibytes round up, zero stays zero (all memory of a node)."""
    assert parse_mem(text) == mebibytes


@pytest.mark.parametrize(
    "text", ["", "x", "1.5G", "-1", "5B", "B", "G", "GB", "5X", "5 G", "٥", "9" * 5000, "5GG", "5P"]
)
def test_bad_sizes(text):
    """The error names the option."""
    with pytest.raises(GrammarError, match=r"^Invalid --mem specification$"):
        parse_mem(text)
    with pytest.raises(GrammarError, match=r"^Invalid --mem-per-cpu specification$"):
        parse_mem(text, "--mem-per-cpu")


@pytest.mark.parametrize(
    ("mebibytes", "plain", "kept", "in_g"),
    [
        (0, "0", "0", "0"),
        (1, "1M", "1M", "0.00G"),
        (1500, "1500M", "1500M", "1.46G"),
        (4096, "4G", "4096M", "4.00G"),
        (1024**2, "1T", "1048576M", "1024.00G"),
        (1024**4, "1024P", "1099511627776M", "1073741824.00G"),
    ],
)
def test_display(mebibytes, plain, kept, in_g):
    """Exact conversion only; --noconvert keeps M; --units forces two decimals."""
    assert format_mem(mebibytes) == plain
    assert format_mem(mebibytes, noconvert=True) == kept
    assert format_mem(mebibytes, units="G") == in_g


def test_unknown_units():
    """A user's word, so a user's error."""
    with pytest.raises(GrammarError, match="Invalid --units specification: X"):
        format_mem(5, units="X")


@pytest.mark.parametrize(("kib", "text"), [(0, "0"), (1780, "1780K"), (2048, "2M"), (1024**2, "1G")])
def test_kibibytes(kib, text):
    """sacct's MaxRSS."""
    assert format_kib(kib) == text


@given(st.integers(1, 10**12))
def test_what_is_printed_is_read_back(mebibytes):
    """Except for petabytes, which no option takes."""
    text = format_mem(mebibytes)
    if not text.endswith("P"):
        assert parse_mem(text) == mebibytes
    assert parse_mem(format_mem(mebibytes, noconvert=True)) == mebibytes
