"""Hostlists, both ways."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_core.grammar.hostlist import MAX_HOSTS, compress, compress_sorted, expand, natural_key


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3,5],c0[1-2]", "n1 n2 n3 n5 c01 c02"),
        ("n[01-03,7]", "n01 n02 n03 n7"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[1-2]-[3-4]", "n1-3 n1-4 n2-3 n2-4"),
        ("rack[0-1]node[0-1]", "rack0node0 rack0node1 rack1node0 rack1node1"),
        ("a,b,a", "a b a"),
        ("n[1,1]", "n1 n1"),
        ("n1 n2", "n1 n2"),
        ("n1\tn2", "n1 n2"),
        ("10.0.0.[1-2]", "10.0.0.1 10.0.0.2"),
        ("", ""),
        (",, n1 ,", "n1"),
        ("n1", "n1"),
        ("[1-2]", "1 2"),
        ("n[5]", "n5"),
        ("n[99-101]", "n99 n100 n101"),
        ("n[1-2],m[1-2]", "n1 n2 m1 m2"),
    ],
)
def test_expand(text, names):
    """Every row of the table."""
    assert expand(text) == names.split()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("n[1-3]x", ["Invalid hostlist: n[1-3]x"]),
        ("n[1-3]/2", ["Invalid hostlist: n[1-3]/2"]),
        ("n[3-1]", ["Invalid range: 3-1", "Invalid hostlist: n[3-1]"]),
        ("n[]", ["Invalid range: []", "Invalid hostlist: n[]"]),
        ("n[1,]", ["Invalid range: []", "Invalid hostlist: n[1,]"]),
        ("n[a]", ["Invalid range: a", "Invalid hostlist: n[a]"]),
        ("n[1-2-3]", ["Invalid range: 1-2-3", "Invalid hostlist: n[1-2-3]"]),
        ("n[1, 2]", ["Invalid range:  2", "Invalid hostlist: n[1, 2]"]),
        ("n[-1]", ["Invalid range: -1", "Invalid hostlist: n[-1]"]),
        ("n[٥]", ["Invalid range: ٥", "Invalid hostlist: n[٥]"]),
        ("n[1", ["Invalid hostlist: n[1"]),
        ("n1]", ["Invalid hostlist: n1]"]),
        ("n[[1]]", ["Invalid hostlist: n[[1]]"]),
        ("n]1[", ["Invalid hostlist: n]1["]),
    ],
)
def test_bad_hostlists(text, lines):
    """A bad range is named first."""
    with pytest.raises(GrammarError) as caught:
        expand(text)
    assert caught.value.text.split("\n") == lines


@pytest.mark.parametrize(
    "text",
    [
        "n[1-65537]",
        "n[1-300][1-300]",
        "n[1-40000],m[1-40000]",
        "n[1-999999999999999999]",
        "n[0-40000,0-40000]",
        "n[1-2]" * 20,
    ],
)
def test_there_is_a_limit(text):
    """A short text must not fill the memory."""
    start = time.monotonic()
    with pytest.raises(GrammarError, match=f"more than {MAX_HOSTS} names"):
        expand(text)
    assert time.monotonic() - start < 5


def test_the_limit_itself_is_allowed():
    """64k names."""
    assert len(expand("n[1-65536]")) == MAX_HOSTS


@pytest.mark.parametrize(
    ("names", "plain", "in_order"),
    [
        ("n1 n2 n3 n5", "n[1-3,5]", "n[1-3,5]"),
        ("n3 n1 n2", "n[3,1-2]", "n[1-3]"),
        ("n9 n10 n11", "n[9-11]", "n[9-11]"),
        ("n09 n10", "n[09-10]", "n[09-10]"),
        ("n01 n1", "n[01,1]", "n[1,01]"),
        ("n9 n010 n011", "n[9,010-011]", "n[9,010-011]"),
        ("a1b a2b", "a1b,a2b", "a1b,a2b"),
        ("r0n0 r0n1 r1n0 r1n1", "r0n[0-1],r1n[0-1]", "r0n[0-1],r1n[0-1]"),
        ("n1 m1 n2", "n1,m1,n2", "m1,n[1-2]"),
        ("n1", "n1", "n1"),
        ("", "", ""),
        ("n1 n1", "n[1,1]", "n1"),
        ("login", "login", "login"),
        ("n2 n n1", "n2,n,n1", "n,n[1-2]"),
        ("rack10n1 rack2n1", "rack10n1,rack2n1", "rack2n1,rack10n1"),
        ("n99 n100", "n[99-100]", "n[99-100]"),
        ("10 9", "[10,9]", "[9-10]"),
    ],
)
def test_compress(names, plain, in_order):
    """Every row of the table: order kept, and sorted without duplicates."""
    assert compress(names.split()) == plain
    assert compress_sorted(names.split()) == in_order


def test_sorted_lists_never_have_two_brackets_for_one_prefix():
    """Clients of SLURM_JOB_NODELIST parse one bracket per prefix."""
    text = compress_sorted(["n1", "m5", "n3", "n02", "m4", "n2"])
    assert text == "m[4-5],n[1-2,02,3]"


NAMES = st.lists(
    st.from_regex(r"[a-c]{0,2}[0-9]{0,3}[a-b-]{0,2}[0-9]{0,4}", fullmatch=True).filter(bool), max_size=40
)


@given(NAMES)
def test_compressing_loses_nothing(names):
    """Order and duplicates survive."""
    assert expand(compress(names)) == names


@given(NAMES)
def test_the_sorted_form_is_the_set(names):
    """And does not depend on the order of the input."""
    text = compress_sorted(names)
    assert sorted(expand(text)) == sorted(set(names))
    assert expand(text) == sorted(set(names), key=natural_key)
    assert compress_sorted(list(reversed(names))) == text
    prefixes = [term.partition("[")[0] for term in text.split("],") if "[" in term]
    assert len(prefixes) == len(set(prefixes))


@given(st.text(alphabet="n[]-,0123 x", max_size=16))
def test_no_text_breaks_the_parser(text):
    """Names or GrammarError, nothing else."""
    try:
        names = expand(text)
    except GrammarError:
        return
    assert expand(compress(names)) == names


def test_five_thousand_nodes_are_quick():
    """Node lists are compressed for every job that is shown."""
    names = [f"rack{rack}node{node:03}" for rack in range(50) for node in range(100)]
    start = time.monotonic()
    text = compress_sorted(names)
    assert time.monotonic() - start < 0.5
    assert text.startswith("rack0node[000-099],rack1node[000-099]")
    assert len(expand(text)) == 5000


def test_a_run_of_digits_too_long_for_a_number_is_a_name():
    """Nothing is folded, nothing lost."""
    names = ["n" + "1" * 30, "n" + "1" * 29 + "2"]
    assert compress(names) == ",".join(names)
    assert expand(compress_sorted(names)) == names
