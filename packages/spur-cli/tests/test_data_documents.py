"""The document around every tree: meta, JSON, YAML, what --json may ask for."""

import json
import os

import pytest

from spur_cli.context import Context, Stop
from spur_cli.data import document
from spur_cli.data.values import exit_tree, nv
from spur_cli.options.engine import OPTIONAL, Option, Table, parse

TABLE = Table([Option("json", "", OPTIONAL), Option("yaml", "", OPTIONAL)])


@pytest.fixture
def context():
    return Context("squeue", ["--json"], {}, "/", stdin=os.open("/dev/null", os.O_RDONLY))


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ([], ""),
        (["--json"], "json"),
        (["--yaml"], "yaml"),
        (["--json", "--yaml"], "yaml"),
        (["--json=v0.0.40"], "json"),
        (["--json=data_parser/v0.0.44"], "json"),
        (["--yaml=v0.0.43+prefer_refs"], "yaml"),
    ],
)
def test_what_is_asked_for(context, words, form):
    assert document.wanted(context, parse(TABLE, words)) == form


@pytest.mark.parametrize(
    ("value", "code", "first"),
    [
        ("list", 0, "Possible data_parser plugins:"),
        (
            "v0.0.39",
            1,
            "squeue: error: --json=v0.0.39: no such data_parser; v0.0.40 to v0.0.44 are known",
        ),
    ],
)
def test_other_values(context, value, code, first):
    with pytest.raises(Stop) as stop:
        document.wanted(context, parse(TABLE, [f"--json={value}"]))
    assert (stop.value.code, stop.value.lines[0]) == (code, first)


def test_a_document(context):
    told = json.loads(document.text(context, "json", {"jobs": [{"name": "ä"}]}, cluster="alpha"))
    assert list(told) == ["jobs", "meta", "errors", "warnings"]
    assert (told["jobs"], told["errors"], told["warnings"]) == ([{"name": "ä"}], [], [])
    meta = told["meta"]
    assert meta["plugin"]["data_parser"] == "data_parser/v0.0.44"
    assert set(meta["client"]) == {"source", "user", "group"}
    assert meta["command"] == ["squeue", "--json"]
    assert meta["slurm"] == {
        "version": {"major": "25", "micro": "0", "minor": "11"},
        "release": "25.11.0",
        "cluster": "alpha",
    }


def test_yaml(context):
    tree = {"jobs": [{"a": 1, "b": [], "c": {"d": "x: 'y'", "e": None}}, [True, 1.5]], "none": {}}
    out = document.text(context, "yaml", tree)
    assert out.startswith(
        "---\n"
        "jobs:\n"
        "  -\n"
        "    a: 1\n"
        "    b: []\n"
        "    c:\n"
        "      d: \"x: 'y'\"\n"
        "      e: null\n"
        "  -\n"
        "    - true\n"
        "    - 1.5\n"
        "none: {}\n"
        "meta:\n"
        "  plugin:\n"
    )
    assert out.endswith("errors: []\nwarnings: []\n...\n")


def test_values():
    assert nv(4) == {"set": True, "infinite": False, "number": 4}
    assert nv(None) == {"set": False, "infinite": False, "number": 0}
    assert nv(None, infinite=True) == {"set": False, "infinite": True, "number": 0}
    assert exit_tree(3)["status"] == ["ERROR"]
    assert exit_tree(0, 15) == {
        "status": ["SIGNALED"],
        "return_code": {"set": True, "infinite": False, "number": 0},
        "signal": {"id": {"set": True, "infinite": False, "number": 15}, "name": "TERM"},
    }
