"""One deliberate fault in a process of its own: `python -m ...testing.mutant NAME --cases FILES --seeds N`.

The modules are loaded from changed text, so nothing is written anywhere.  Prints one JSON object; the process
must not have imported the protocol before.
"""

import argparse
import importlib.machinery
import importlib.util
import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from spur_ctld.replication.testing.mutations import Mutation, by_name

PACKAGE = Path(__file__).resolve().parent.parent
PREFIX = "spur_ctld.replication."


def mutated(mutation: Mutation) -> dict[str, str]:
    """Module -> its text with the fault.

    Raises:
        ValueError: an edit does not fit any more.
    """
    texts: dict[str, str] = {}
    for module, old, new in mutation.edits:
        text = texts.get(module) or (PACKAGE / f"{module}.py").read_text()
        if text.count(old) != 1:
            raise ValueError(f"{mutation.name}: {text.count(old)} times in {module}.py: {old!r}")
        texts[module] = text.replace(old, new)
    return texts


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads changed text under the name and path of the original."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_data(self, path: str) -> bytes:
        return self._text.encode()

    def path_stats(self, path: str) -> dict[str, float]:
        raise OSError  # no byte-code is read or written


class Finder:
    """For `sys.meta_path`."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        text = self._texts.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
        if text is None:
            return None
        where = str(PACKAGE / f"{name.removeprefix(PREFIX)}.py")
        return importlib.util.spec_from_file_location(name, where, loader=_Loader(name, where, text))


class _First:
    """A plugin of pytest: the first test that failed."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: object) -> None:
        if getattr(report, "failed", False) and not self.name:
            self.name = getattr(report, "nodeid", "").rpartition("::")[2]


def caught_by_case(files: Sequence[str]) -> str:
    """Name of the scripted case that fails; "" = none."""
    import pytest  # only where there are cases

    first = _First()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files], plugins=[first])
    return first.name or ("" if status in (0, 5) else f"pytest status {int(status)}")


def caught_by_seed(first: int, count: int, *, files: bool) -> tuple[int | None, str]:
    """The first seed that fails, and how."""
    from spur_ctld.replication.testing.sweep import run_seed  # with the fault in it

    for seed in range(first, first + count):
        problem = run_seed(seed, files=files).problem
        if problem is not None:
            return seed, problem
    return None, ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutant")
    parser.add_argument("name")
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=0)
    given = parser.parse_args()
    assert f"{PREFIX}core" not in sys.modules, "too late for a fault"
    mutation = by_name(given.name)
    sys.meta_path.insert(0, Finder(mutated(mutation)))
    case = caught_by_case(given.cases) if given.cases else ""
    seed, problem = caught_by_seed(given.first, given.seeds, files=mutation.files)
    sys.stdout.write(json.dumps({"case": case, "seed": seed, "problem": problem}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
