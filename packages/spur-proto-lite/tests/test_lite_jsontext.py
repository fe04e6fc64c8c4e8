"""JSON by the C half of the standard library alone: the same as `json` says, and the same refusals."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_proto_lite import jsontext

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)

BAD = [
    b"",
    b"  ",
    b"{",
    b"[1,",
    b"[1 2]",
    b'{"a" 1}',
    b'{"a":}',
    b"{1:2}",
    b'"\\q"',
    b'"\\u12"',
    b'"open',
    b'"\x01"',
    b"[] []",
    b"nul",
    b"1" * 5000,
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"\xff",
]


@given(values)
def test_what_is_written_is_what_json_writes_and_reads(value):
    data = jsontext.encode(value)
    assert data == json.dumps(value, separators=(",", ":")).encode()
    assert jsontext.decode(data) == json.loads(data) == value


@given(st.text('[]{}:,"\\ \n1e.-tfnu0a', max_size=12) | st.text(max_size=8))
def test_what_is_read_is_what_json_reads(text):
    data = text.encode("utf-8", "surrogatepass")
    try:
        expected = json.loads(data.decode("utf-8", "surrogatepass"))
    except ValueError:
        with pytest.raises(ValueError):
            jsontext.decode(data)
    else:
        assert repr(jsontext.decode(data)) == repr(expected)


def test_undecodable_bytes_of_an_environment_survive():
    text = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert jsontext.decode(jsontext.encode({"A": text})) == {"A": text}


def test_what_has_no_form_in_json_is_refused():
    with pytest.raises(TypeError, match="a set cannot be written"):
        jsontext.encode({"a": {1}})


@pytest.mark.parametrize("data", BAD, ids=lambda data: repr(data[:8]))
def test_bad_texts_are_refused(data):
    with pytest.raises(ValueError):
        jsontext.decode(data)


def test_bad_texts_are_refused_where_json_is_not_loaded():
    """As in a supervisor, where the C half cannot find the exception it would raise."""
    code = f"""
import sys
sys.path[:0] = {[p for p in sys.path if p]!r}
from spur_proto_lite import jsontext
for data in eval(sys.stdin.read()):
    try:
        jsontext.decode(data)
    except ValueError:
        continue
    print("taken:", data[:20])
print(jsontext.decode(b" [1, 2.5] "), "re" in sys.modules and sys.version_info < (3, 13))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], input=repr(BAD), capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[1, 2.5] False\n", "")
