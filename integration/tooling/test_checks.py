"""The workspace's own checks: they find what they are for."""

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name: str):
    spec = importlib.util.spec_from_file_location(f"tool_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("lines", "docstring", "good"),
    [
        (600, "Short.", True),
        (601, "Too long.", False),
        (601, "A table.\n\nLong because it is one table.", True),
        (601, None, False),
    ],
)
def test_sizes(lines, docstring, good, tmp_path):
    head = f'"""{docstring}"""\n' if docstring else ""
    path = tmp_path / "m.py"
    path.write_text(head + "x = 1\n" * (lines - head.count("\n")))
    assert (load("check_sizes").problem(path) is None) is good


def test_no_module_of_ours_is_too_long():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "check_sizes.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_wheels_refuses_an_unknown_name(tmp_path):
    command = [sys.executable, ROOT / "tools" / "wheels.py", tmp_path, "spur-nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "spur-nonsense" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([("a", 0, 3, 0, 0)], 0),
        ([("a", 0, 3, 0, 0), ("b", 5, 0, 0, 0)], 0),
        ([("a", 0, 3, 0, 0), ("b", 1, 3, 1, 0)], 1),
        ([("a", 5, 0, 0, 0)], 1),
        ([("a", 0, 2, 0, 2)], 1),
        ([("compile", 1, 0, 0, 0), ("a", 0, 3, 0, 0)], 1),
        ([("a", 124, 0, 0, 0), ("b", 0, 3, 0, 0)], 1),
    ],
)
def test_exit_status_of_a_whole_run(results, status, capsys):
    """One failed run fails all, and so does a run of nothing."""
    tool = load("run_tests")
    assert tool.summary([tool.Result(*r) for r in results]) == status
    assert " passed, " in capsys.readouterr().out


def test_a_run_beside_another_is_shown_when_it_is_over(tmp_path, capsys):
    """Two runs at once do not write into each other's lines, and a failure of the hidden one counts."""
    tool = load("run_tests")
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite tests="3" failures="1" errors="0" skipped="0"/></testsuites>')
    command = [sys.executable, "-c", "print('its words'); raise SystemExit(1)"]
    beside = tool.Run("beside", command, report, output=tmp_path / "log")
    assert beside.child.wait(timeout=30) == 1
    assert capsys.readouterr().out == ""
    assert beside.result() == tool.Result("beside", 1, 3, 1, 0)
    shown = capsys.readouterr().out
    assert "=== beside" in shown
    assert "its words" in shown


def test_ci_script_parses():
    done = subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_workspace_file_parses_and_names_its_commands():
    """A duplicated key stops every hatch command, so it is found here first."""
    scripts = tomllib.loads((ROOT / "hatch.toml").read_text())["envs"]["default"]["scripts"]
    assert {"check", "test", "bench", "demo", "fmt", "wheels"} <= set(scripts)
    assert {"lint", "types", "borders", "sizes", "hatch run proto:check"} == set(scripts["check"])
