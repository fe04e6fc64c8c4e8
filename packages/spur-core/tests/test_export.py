"""--export."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_core.grammar.export import parse_file, select, split, step_option

ENV = {
    b"HOME": b"/home/ann",
    b"A": b"1",
    b"C": b"3",
    b"SLURM_X": b"x",
    b"SPANK_Y": b"y",
    b"SPUR_CONF": b"/c",
    b"SLURM_JWT": b"secret",
    b"SPUR_AUTH_TOKEN": b"secret",
}
SECRETS = {b"SLURM_JWT", b"SPUR_AUTH_TOKEN"}
EVERYTHING = ENV
WITHOUT_SECRETS = {name: value for name, value in ENV.items() if name not in SECRETS}
KEPT = {name: ENV[name] for name in (b"SLURM_X", b"SPANK_Y", b"SPUR_CONF")}


@pytest.mark.parametrize(
    ("option", "env", "export_env", "load"),
    [
        (None, WITHOUT_SECRETS, None, False),
        ("ALL", EVERYTHING, None, False),
        ("all", EVERYTHING, None, False),
        ("NONE", KEPT, b"NONE", True),
        ("none", KEPT, b"NONE", True),
        ("NIL", KEPT, b"NIL", False),
        ("A,B=v", {**KEPT, b"A": b"1", b"B": b"v"}, b"A,B=v", True),
        ("ALL,B=v", {**EVERYTHING, b"B": b"v"}, b"ALL,B=v", True),
        ("B=v,ALL", {**EVERYTHING, b"B": b"v"}, b"B=v,ALL", True),
        ("ALL,A=9", {**EVERYTHING, b"A": b"9"}, b"ALL,A=9", True),
        ("MISSING", KEPT, b"MISSING", True),
        ("B=", {**KEPT, b"B": b""}, b"B=", True),
        ("B=x=y", {**KEPT, b"B": b"x=y"}, b"B=x=y", True),
        ("'B=x,y',A", {**KEPT, b"B": b"x,y", b"A": b"1"}, b"'B=x,y',A", True),
        ('B="x,y"', {**KEPT, b"B": b"x,y"}, b'B="x,y"', True),
        ("SLURM_JWT", {**KEPT, b"SLURM_JWT": b"secret"}, b"SLURM_JWT", True),
        ("", KEPT, b"", True),
    ],
)
def test_every_row(option, env, export_env, load):
    """What goes to the job, what SLURM_EXPORT_ENV says, and whether the node adds the login variables."""
    expected = dict(env)
    if export_env is not None:
        expected[b"SLURM_EXPORT_ENV"] = export_env
    found = select(option, ENV)
    assert found.env == expected
    assert found.load_user_env is load


def test_bytes_that_are_no_text_survive():
    """Environments are bytes."""
    found = select("\udcff=\udcfe,A", {b"A": b"\xfd"})
    assert found.env[b"\xff"] == b"\xfe"
    assert found.env[b"A"] == b"\xfd"


@pytest.mark.parametrize("option", ["=v", "A B", "A,=", "'A"])
def test_bad_values(option):
    """The word is named."""
    with pytest.raises(GrammarError, match=r"^Invalid --export specification: "):
        select(option, ENV)


@pytest.mark.parametrize(
    ("text", "words"),
    [("a,b", ["a", "b"]), ("'a,b',c", ["a,b", "c"]), ("a,,b", ["a", "b"]), ('a"\'"b', ["a'b"]), ("", [])],
)
def test_words(text, words):
    """Quotes keep commas."""
    assert split(text) == words


@pytest.mark.parametrize(
    ("option", "env", "value"),
    [
        (None, {}, None),
        (None, {b"SLURM_EXPORT_ENV": b"NONE"}, "NONE"),
        (None, {b"SLURM_EXPORT_ENV": b"NONE", b"SRUN_EXPORT_ENV": b"ALL"}, "ALL"),
        ("A", {b"SLURM_EXPORT_ENV": b"NONE", b"SRUN_EXPORT_ENV": b"ALL"}, "A"),
    ],
)
def test_srun_in_a_job(option, env, value):
    """The job's own --export holds for its steps unless srun is told otherwise."""
    assert step_option(option, env) == value


@given(st.dictionaries(st.from_regex(rb"[A-Z_]{1,8}", fullmatch=True), st.binary(max_size=20)))
def test_export_files(env):
    """NUL-separated assignments, any bytes as values."""
    env = {name: value.replace(b"\0", b"") for name, value in env.items()}
    assert parse_file(b"\0".join(name + b"=" + value for name, value in env.items())) == env


@pytest.mark.parametrize("data", [b"A", b"A=1\0B", b"=1"])
def test_bad_export_files(data):
    """The entry is shown."""
    with pytest.raises(GrammarError, match=r"^Invalid --export-file entry"):
        parse_file(data)
