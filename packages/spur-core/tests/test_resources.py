"""GRES, GPUs, TRES and licences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_core.grammar.gpus import PER_NODE, PER_TASK, TOTAL, GpuDemand, check, combine, spread
from spur_core.grammar.gres import format_gres, parse_gpus, parse_gres
from spur_core.grammar.licenses import LicenseRequest, format_licenses, parse_licenses
from spur_core.grammar.tres import format_tres, parse_tres


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("gpu", [("gpu", "", 1)]),
        ("gpu:2", [("gpu", "", 2)]),
        ("gpu:h100", [("gpu", "h100", 1)]),
        ("gpu:h100:2", [("gpu", "h100", 2)]),
        ("gpu:h100:2,shard:4", [("gpu", "h100", 2), ("shard", "", 4)]),
        ("gpu:1,gpu:2", [("gpu", "", 3)]),
        ("gpu:a:1,gpu:b:1", [("gpu", "a", 1), ("gpu", "b", 1)]),
        ("bandwidth:2k", [("bandwidth", "", 2048)]),
        ("bandwidth:lustre:1M", [("bandwidth", "lustre", 1048576)]),
        ("bandwidth:1g", [("bandwidth", "", 1073741824)]),
        ("none", []),
        ("NONE", []),
        ("gpu:0", []),
        ("gres:gpu:2", [("gpu", "", 2)]),
        ("gres/gpu:2", [("gpu", "", 2)]),
        ("gpu=2", [("gpu", "", 2)]),
        ("gpu:1g.5gb:2", [("gpu", "1g.5gb", 2)]),
    ],
)
def test_gres(text, items):
    """name[[:type]:count], count 1, suffixes, none."""
    assert parse_gres(text) == items


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gpu:",
        ":2",
        "gpu::2",
        "gpu:h100:x",
        "gpu:a:b:2",
        "gpu,",
        "gpu:-1",
        "2",
        "gpu:2x",
        "gpu:4:2",
        "g p u",
        "gpu:٥",
    ],
)
def test_bad_gres(text):
    """One sentence for all."""
    with pytest.raises(GrammarError, match=r"^Invalid generic resource \(gres\) specification$"):
        parse_gres(text)


GRES = st.lists(
    st.tuples(
        st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True).filter(lambda name: name != "none"),
        st.from_regex(r"([a-z][a-z0-9]{0,4}[a-z_]|)", fullmatch=True),
        st.integers(1, 10**9),
    ),
    max_size=5,
    unique_by=lambda item: item[:2],
)


@given(GRES)
def test_gres_round_trip(items):
    """What is written is read back."""
    if items:
        assert parse_gres(format_gres(items)) == items


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("4", [("gpu", "", 4)]),
        ("mi300x:4", [("gpu", "mi300x", 4)]),
        ("gpu:4", [("gpu", "", 4)]),
        ("any:4", [("gpu", "", 4)]),
        ("0", []),
        ("a:1,b:2", [("gpu", "a", 1), ("gpu", "b", 2)]),
        ("a:1,a:2", [("gpu", "a", 3)]),
        ("1g.5gb:2", [("gpu", "1g.5gb", 2)]),
    ],
)
def test_gpu_values(text, items):
    """[type:]N; gpu and any are no types."""
    assert parse_gpus(text) == items


@pytest.mark.parametrize("text", ["", "x", "a:", ":1", "a:b:1", "-1", "1,"])
def test_bad_gpu_values(text):
    """A count is always needed."""
    with pytest.raises(GrammarError, match="Invalid generic resource"):
        parse_gpus(text)


@pytest.mark.parametrize(
    ("arguments", "demand"),
    [
        ({}, None),
        ({"total": "4"}, GpuDemand(TOTAL, "", 4)),
        ({"per_node": "h100:2"}, GpuDemand(PER_NODE, "h100", 2)),
        ({"per_task": "1"}, GpuDemand(PER_TASK, "", 1)),
        ({"gres": parse_gres("gpu:h100:1,gpu:h100:2,shard:3")}, GpuDemand(PER_NODE, "h100", 3)),
        ({"gres": parse_gres("shard:3")}, None),
        ({"total": "0"}, None),
    ],
)
def test_gpu_demands(arguments, demand):
    """One form, one type."""
    assert combine(**arguments) == demand


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"total": "4", "per_task": "1"}, r"more than once \(--gpus, --gpus-per-task\)"),
        ({"per_node": "1", "gres": parse_gres("gpu:1")}, r"more than once \(--gpus-per-node, --gres=gpu\)"),
        ({"total": "a:1,b:1"}, r"different types are asked for \(a, b\)"),
        ({"gres": parse_gres("gpu:1,gpu:a:1")}, r"different types are asked for \(any, a\)"),
        ({"total": "x"}, "Invalid generic resource"),
    ],
)
def test_conflicting_gpu_demands(arguments, why):
    """Never a silent choice."""
    with pytest.raises(GrammarError, match=why):
        combine(**arguments)


def test_gpu_demands_must_fit_the_shape():
    """One per node at least; tasks must be known."""
    check(GpuDemand(TOTAL, "", 4), 4, None)
    check(GpuDemand(PER_TASK, "", 1), 1, 8)
    check(GpuDemand(PER_NODE, "", 1), 100, None)
    with pytest.raises(GrammarError, match="less than the 5 nodes"):
        check(GpuDemand(TOTAL, "", 4), 5, None)
    with pytest.raises(GrammarError, match="add --ntasks"):
        check(GpuDemand(PER_TASK, "", 1), 1, None)


@pytest.mark.parametrize(
    ("total", "free", "counts"),
    [
        (4, [4, 4], [3, 1]),
        (8, [4, 4], [4, 4]),
        (9, [4, 4], None),
        (2, [1, 8], [1, 1]),
        (6, [1, 8], [1, 5]),
        (2, [0, 8], None),
        (1, [4, 4], None),
        (5, [2, 3, 1], [1, 3, 1]),
    ],
)
def test_a_job_total_is_spread(total, free, counts):
    """The best stocked first, and nobody without."""
    assert spread(total, free) == counts


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.integers(1, 40))
def test_a_spread_is_exact(free, total):
    """Either all of it within what is free, or nothing."""
    counts = spread(total, free)
    possible = all(free) and len(free) <= total <= sum(free)
    assert (counts is not None) == possible
    if counts is not None:
        assert sum(counts) == total
        assert all(1 <= count <= have for count, have in zip(counts, free))


AMOUNTS = {
    "cpu": 8,
    "mem": 16384,
    "gres/gpu": 4,
    "gres/gpu:h100": 4,
    "node": 2,
    "billing": 8,
    "license/x": 1,
    "energy": 0,
    "fs/disk": 5,
    "vmem": 1500,
    "pages": 7,
}


def test_tres_order():
    """scontrol's order, and sacct's by name; zeros vanish."""
    assert format_tres(AMOUNTS) == (
        "cpu=8,mem=16G,node=2,billing=8,fs/disk=5,vmem=1500M,pages=7,gres/gpu=4,gres/gpu:h100=4,license/x=1"
    )
    assert format_tres(AMOUNTS, by_name=True) == (
        "billing=8,cpu=8,fs/disk=5,gres/gpu=4,gres/gpu:h100=4,license/x=1,mem=16G,node=2,pages=7,vmem=1500M"
    )
    assert format_tres({}) == ""


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        (
            "cpu=8,mem=16G,gres/gpu=4,gres/gpu:h100=4,node=2,billing=8,license/x=1",
            {
                "cpu": 8,
                "mem": 16384,
                "gres/gpu": 4,
                "gres/gpu:h100": 4,
                "node": 2,
                "billing": 8,
                "license/x": 1,
            },
        ),
        ("CPU=1,Memory=5,nodes=2,gpu=3", {"cpu": 1, "mem": 5, "node": 2, "gres/gpu": 3}),
        ("gres/gpu:H100=1", {"gres/gpu:H100": 1}),
        ("FS/Disk=1", {"fs/disk": 1}),
        ("cpu=1,cpu=2", {"cpu": 2}),
        (" cpu=1 ,, ", {"cpu": 1}),
        ("", {}),
        ("cpu=0", {"cpu": 0}),
    ],
)
def test_tres_in(text, amounts):
    """Names in any case, types as they are."""
    assert parse_tres(text) == amounts


@pytest.mark.parametrize(
    "text", ["cpu", "cpu=", "cpu=x", "cpu=-1", "x=1", "gres/=1", "mem=1.5G", "=1", "fs/x=1"]
)
def test_bad_tres(text):
    """The item is named."""
    with pytest.raises(GrammarError, match=r"^Invalid TRES specification: "):
        parse_tres(f"node=1,{text}")


@given(st.dictionaries(st.sampled_from(sorted(AMOUNTS)), st.integers(1, 10**9)), st.booleans())
def test_tres_round_trip(amounts, by_name):
    """Either order reads back."""
    assert parse_tres(format_tres(amounts, by_name=by_name)) == amounts


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("matlab", LicenseRequest((("matlab", 1),), False)),
        ("matlab:2", LicenseRequest((("matlab", 2),), False)),
        ("ansys@server:3,matlab", LicenseRequest((("ansys@server", 3), ("matlab", 1)), False)),
        ("a:1,a:2", LicenseRequest((("a", 3),), False)),
        ("a|b:2", LicenseRequest((("a", 1), ("b", 2)), True)),
        ("a;b", LicenseRequest((("a", 1), ("b", 1)), True)),
    ],
)
def test_licenses(text, request_):
    """All of them, or alternatives."""
    assert parse_licenses(text) == request_
    assert parse_licenses(format_licenses(request_)) == request_


@pytest.mark.parametrize("text", ["", "a:0", "a:", ":1", "a:x", "a,", "a|b,c", "a b", "@s", "a@", "a:-1"])
def test_bad_licenses(text):
    """One sentence for all."""
    with pytest.raises(GrammarError, match=r"^Invalid license specification$"):
        parse_licenses(text)
