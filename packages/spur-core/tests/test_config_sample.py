"""The sample file: it loads, shows every key that has an effect, and each of its lines can be set."""

import dataclasses
import tomllib

import pytest

from spur_core.config import Config, parse_config
from spur_core.config.sample import render
from spur_core.config.schema import specs
from spur_core.config.unsupported import TABLE, row_for

SAMPLE = render()


def _key_lines() -> list[tuple[str, str]]:
    """(heading, line) of each commented-out key."""
    heading, found = "", []
    for line in SAMPLE.splitlines():
        if line.lstrip("#").startswith("["):
            heading = line.lstrip("#")
        elif line.startswith("#") and not line.startswith("# "):
            found.append((heading, line[1:]))
    return found


def _paths(cls: type, prefix: str = "") -> list[str]:
    out = []
    for name, spec in specs(cls).items():
        out += [prefix + name] if spec.table is None else _paths(spec.table, f"{prefix}{name}.")
    return out


def test_it_loads_as_it_is():
    """The file as shipped: one partition with every node, everything else at its default."""
    config = parse_config(SAMPLE)
    assert [one.name for one in config.partitions if one.default] == ["batch"]
    assert dataclasses.replace(config, partitions=()) == Config(cluster_name="spur")


@pytest.mark.parametrize(("heading", "line"), _key_lines())
def test_every_key_of_it_can_be_set(heading, line):
    """Each line, switched on by itself, is accepted."""
    needed = {
        "[[partitions]]": 'name = "p"\n',
        "[[nodes]]": "" if line.startswith(("names", "selector")) else 'names = "n1"\n',
        "[[devices.gres]]": "" if line.startswith("name ") else 'name = "g"\n',
    }.get(heading, "")
    if line == "selector = {}":
        needed = 'names = "n1"\n'
    if line.startswith(("client_addrs", "raft_tls_dir")):
        needed = next(f"{other}\n" for _, other in _key_lines() if other.startswith("peers"))
    if line.startswith("block_size"):
        needed = 'plugin = "block"\n'
    if heading == "[[topology.switches]]":
        # Two leaves and the switch that the line is about, each key as the line or as it takes to be whole.
        heading = '[topology]\nplugin = "tree"\n[[topology.switches]]\nname = "s0"\nnodes = "n0"\n' + heading
        given = {} if "=" not in line else {line.partition(" =")[0]: line}
        whole = {"name": 'name = "s1"', "nodes": 'nodes = "n1"'} | given
        if "switches" in given:
            del whole["nodes"]
        needed, line = "", "\n".join(whole.values())
    text = f'cluster_name = "c"\n{heading}\n{needed}{line}\n'
    if not heading:
        text = f'cluster_name = "c"\n{line}\n'
    assert tomllib.loads(text)
    parse_config(text)


def test_it_shows_every_key_that_has_an_effect():
    """No key is known only to the source."""
    shown = {line.lstrip("#").partition(" = ")[0] for line in SAMPLE.splitlines()}
    for path in _paths(Config):
        row = row_for(path)
        if row is None or row.partial:
            assert path.rpartition(".")[2] in shown, path


def test_the_table_of_missing_features_names_real_keys():
    """A row that covers nothing would hide a mistake."""
    paths = _paths(Config)
    for row in TABLE:
        assert any(path == row.path or path.startswith(row.path + ".") for path in paths), row.path
