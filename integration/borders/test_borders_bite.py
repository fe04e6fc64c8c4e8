"""Every import contract of .importlinter fails when a forbidden import is planted: the borders are real.

The workspace's sources are copied, one import is planted in the copy, and the linter runs there.
"""

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(p.name for p in ROOT.glob("packages/*/src/*") if (p / "__init__.py").is_file())


def contracts() -> dict[str, tuple[str, list[str]]]:
    """Contract id -> (package it guards, what that may not import)."""
    parsed = configparser.ConfigParser()
    parsed.read(ROOT / ".importlinter")
    found = {}
    for section in parsed.sections():
        if section.startswith("importlinter:contract:"):
            rule = parsed[section]
            found[section.rpartition(":")[2]] = (rule["source_modules"], rule["forbidden_modules"].split())
    return found


#: What each wheel may import of ours; everything else of ours is forbidden.
ARROWS = {
    "spur_core": set(),
    "spur_proto_lite": {"spur_core"},
    "spur_stepd": {"spur_core", "spur_proto_lite"},
    "spur_proto": {"spur_core"},
    "spur_auth": {"spur_core"},
    "spur_sched": {"spur_core"},
    "spur_agent": {"spur_core", "spur_proto", "spur_proto_lite", "spur_auth"},
    "spur_cli": {"spur_core", "spur_proto", "spur_auth"},
    "spur_ctld": {"spur_core", "spur_proto", "spur_auth", "spur_sched"},
}


def test_the_arrows_are_complete():
    """Each wheel has a contract, and it forbids every wheel of ours that the arrows do not allow."""
    ours = {package: set(forbidden) for package, forbidden in contracts().values()}
    assert set(ours) == set(ARROWS) == set(PACKAGES)
    for package, allowed in ARROWS.items():
        assert set(ARROWS) - allowed - {package} == ours[package] & set(ARROWS), package


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The sources in one folder, with the contracts."""
    root = tmp_path_factory.mktemp("borders")
    for package in PACKAGES:
        (source,) = ROOT.glob(f"packages/*/src/{package}")
        shutil.copytree(source, root / package, ignore=shutil.ignore_patterns("__pycache__", "*.pyi"))
    shutil.copy(ROOT / ".importlinter", root)
    return root


def lint(root: Path, *contract: str) -> subprocess.CompletedProcess[str]:
    wanted = [word for name in contract for word in ("--contract", name)]
    code = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache", *wanted],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_sources_as_they_are_pass(copy):
    done = lint(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(contracts()))
def test_a_planted_import_is_caught(name, copy):
    """Every single forbidden module, one planted file with all of them: each is named as broken."""
    package, forbidden = contracts()[name]
    planted = copy / package / "zz_planted.py"
    planted.write_text("".join(f"import {module}\n" for module in forbidden))
    try:
        done = lint(copy, name)
    finally:
        planted.unlink()
    assert done.returncode != 0
    said = done.stdout.replace("\n", " ")
    missed = [m for m in forbidden if f"{package} is not allowed to import {m}" not in said]
    assert not missed, done.stdout


@pytest.mark.parametrize(
    ("name", "between"),
    [("agent", "spur_proto"), ("cli", "spur_proto"), ("ctld", "spur_proto"), ("stepd", "spur_proto_lite")],
)
def test_a_detour_is_caught_too(name, between, copy):
    """Importing the forbidden through an allowed wheel is the same breach."""
    package, forbidden = contracts()[name]
    target = next(m for m in forbidden if not m.startswith("spur_"))
    bridge, user = copy / between / "zz_bridge.py", copy / package / "zz_user.py"
    bridge.write_text(f"import {target}\n")
    user.write_text(f"import {between}.zz_bridge\n")
    try:
        done = lint(copy, name)
    finally:
        bridge.unlink()
        user.unlink()
    assert done.returncode != 0
    assert f"{package}.zz_user" in done.stdout
