"""Daemons whose waits are short: constants that nobody can configure, set before the program begins."""

import sys
from collections.abc import Mapping

_START = """
import importlib, runpy, sys
for one in sys.argv[1].split(","):
    name, value = one.split("=")
    module, _, constant = name.rpartition(".")
    module = importlib.import_module(module)
    assert isinstance(getattr(module, constant), float), one
    setattr(module, constant, float(value))
sys.argv[:2] = []
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def tuned(program: str, waits: Mapping[str, float]) -> list[str]:
    """The words that start a Python program of ours with other waits.

    Args:
        waits: "module.CONSTANT" -> seconds; the constant must be there.
    """
    if not waits:
        return [program]
    text = ",".join(f"{constant}={secs}" for constant, secs in waits.items())
    return [sys.executable, "-c", _START, text, program]
