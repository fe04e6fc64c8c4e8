"""Which tests failed, for whoever started pytest: one node id a line in the file named by SPUR_FAILED_TO."""

import os
from pathlib import Path

import pytest

VARIABLE = "SPUR_FAILED_TO"
#: Stands for a failure outside a test, which cannot be run again by name.
NAMELESS = "?"


class _Recorder:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._note(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note(NAMELESS)

    def pytest_internalerror(self) -> None:
        self._note(NAMELESS)

    def _note(self, name: str) -> None:
        if name not in self._seen:  # a test may fail in its call and in its teardown
            self._seen.add(name)
            with self._path.open("a") as out:
                out.write(f"{name}\n")


def pytest_configure(config: pytest.Config) -> None:
    # Taken out: tests that run pytest themselves, on mutants for example, have failures of their own.
    path = os.environ.pop(VARIABLE, None)
    if path and not hasattr(config, "workerinput"):  # workers of xdist tell the one that has them
        config.pluginmanager.register(_Recorder(Path(path)), "spur-failures")
