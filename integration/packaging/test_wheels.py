"""What the nine wheels contain and promise: names, programs, types, licence, ranges between siblings."""

import configparser
import re
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Wheel -> programs it must bring.
PROGRAMS = {
    "spur-core": set(),
    "spur-proto-lite": set(),
    "spur-proto": set(),
    "spur-auth": set(),
    "spur-sched": {"spur-simulate"},
    "spur-stepd": {"spurstepd"},
    "spur-agent": {"spurd"},
    "spur-ctld": {"spurctld"},
    "spur-cli": {"spur", "sbatch", "srun", "squeue", "scancel", "sinfo", "sacct", "scontrol"},
}


def programs(wheel: Path) -> set[str]:
    """Console scripts and verbatim scripts of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        found = {n.rpartition("/")[2] for n in archive.namelist() if ".data/scripts/" in n}
        for name in archive.namelist():
            if name.endswith(".dist-info/entry_points.txt"):
                entries = configparser.ConfigParser()
                entries.optionxform = str  # type: ignore[assignment,method-assign]
                entries.read_string(archive.read(name).decode())
                if entries.has_section("console_scripts"):
                    found |= set(entries["console_scripts"])
    return found


def metadata(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_nine_wheels(wheels):
    assert set(wheels) == set(PROGRAMS)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs(name, wheels):
    """At least these; the command line's wheel grows with the commands."""
    found = programs(wheels[name])
    assert found >= PROGRAMS[name]
    assert name == "spur-cli" or found == PROGRAMS[name]


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_one_package_with_types_and_nothing_else(name, wheels):
    package = name.replace("-", "_")
    with zipfile.ZipFile(wheels[name]) as archive:
        names = archive.namelist()
        assert f"{package}/py.typed" in names
        strangers = [n for n in names if not n.startswith((f"{package}/", f"{package}-"))]
        assert not strangers
        assert not [n for n in names if "/tests/" in n or n.endswith(".pyc")]


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_metadata(name, wheels):
    """Siblings are ranges, never one version, and never without an upper end."""
    text = metadata(wheels[name])
    assert text["License-Expression"] == "Apache-2.0"
    assert text["Requires-Python"] == ">=3.11"
    for need in text.get_all("Requires-Dist", []):
        if need.startswith("spur-"):
            assert re.fullmatch(r"spur-[a-z-]+[<>=.,\d]+", need), need
            assert "==" not in need
            assert ">=" in need
            assert "<" in need


def test_every_package_has_its_papers():
    for name in PROGRAMS:
        folder = ROOT / "packages" / name
        version = re.search(r'__version__ = "([^"]+)"', next(folder.glob("src/*/__init__.py")).read_text())
        assert version, name
        assert f"## {version[1]}" in (folder / "CHANGELOG.md").read_text(), name
        assert (folder / "README.md").read_text().startswith(f"# {name}\n")
