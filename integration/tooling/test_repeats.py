"""`tools/run_tests.py`: what failed beside the others and passes alone is named; nothing else is forgiven."""

import os
from pathlib import Path

import pytest
import run_tests

TOOLS = Path(run_tests.__file__).parent
#: Fails as often as the file beside it says, counting down.
TIMES = """
from pathlib import Path
left = Path(__file__).with_suffix(".left")

def test_it():
    count = int(left.read_text())
    left.write_text(str(max(count - 1, 0)))
    assert count == 0
"""


@pytest.fixture
def tried(tmp_path, monkeypatch, capsys):
    """tried(**{name: source}): (status, what was printed, names of the unsteady) of a tree of such tests."""

    def run(*, fails: int = 0, **sources: str) -> tuple[int, str, list[str]]:
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p testkit.failures -p no:cacheprovider\n")
        for name, source in sources.items():
            (tmp_path / f"test_{name}.py").write_text(source)
            (tmp_path / f"test_{name}.left").write_text(str(fails))
        monkeypatch.setattr(run_tests, "ROOT", tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(TOOLS))
        paths = [f"test_{name}.py" for name in sources]
        report = tmp_path / "report.xml"
        first = run_tests.run("toys", run_tests.pytest_command(report, *paths), report, dict(os.environ))
        results, unsteady = run_tests.repeated([first], tmp_path)
        status = run_tests.summary(results, unsteady)
        return status, capsys.readouterr().out, unsteady

    return run


def test_what_passes_alone_every_time_is_named(tried):
    status, out, unsteady = tried(fails=1, one=TIMES, good="def test_it(): pass")
    assert (status, unsteady) == (0, ["toys: test_one.py::test_it"])
    assert "UNSTEADY, to be mended" in out
    assert out.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize("fails", [2, 9])
def test_what_fails_alone_too_is_a_failure(tried, fails):
    status, out, unsteady = tried(fails=fails, one=TIMES)
    assert (status, unsteady) == (1, [])
    assert out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_one_failure_in_three_repeats_is_enough(tried):
    seldom = TIMES.replace("assert count == 0", "assert count not in (2, 4)")
    assert tried(fails=4, one=seldom)[0] == 1


def test_one_that_fails_beside_one_that_does_not_forgives_neither(tried):
    assert tried(fails=1, one=TIMES, bad="def test_it(): assert False")[0] == 1


def test_many_failures_are_not_repeated(tried):
    status, out, _ = tried(fails=1, **{f"n{n}": TIMES for n in range(run_tests.UNSTEADY_MAX + 1)})
    assert status == 1
    assert "again, alone" not in out


def test_a_failure_outside_a_test_is_not_repeated(tried):
    status, out, _ = tried(broken="import no_such_module_anywhere")
    assert status == 1
    assert "again, alone" not in out


def test_all_passing_is_not_repeated(tried):
    status, out, unsteady = tried(good="def test_it(): pass")
    assert (status, unsteady) == (0, [])
    assert "again, alone" not in out


def test_failures_of_a_pytest_that_a_test_runs_are_not_its_own(tried):
    nested = """
import subprocess, sys
from pathlib import Path

def test_it(tmp_path):
    (tmp_path / "test_mutant.py").write_text("def test_it(): assert False")
    words = "-m pytest -p testkit.failures -p no:cacheprovider test_mutant.py"
    assert subprocess.run([sys.executable, *words.split()], cwd=tmp_path).returncode == 1
"""
    assert tried(fails=1, one=TIMES, nested=nested)[::2] == (0, ["toys: test_one.py::test_it"])
