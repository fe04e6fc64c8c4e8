"""What the package may import: nothing that evaluates stored bytes, and in the core nothing that acts."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import spur_ctld.replication

PACKAGE = Path(spur_ctld.replication.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
EVALUATORS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "_pickle"}
#: The deciding half.  It may import these and `ALLOWED`, nothing else.
PURE = {"core", "memlog", "progress", "roles", "seeding", "types"}
ALLOWED = {"collections", "enum", "typing", "msgspec"}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_evaluates_stored_bytes(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & EVALUATORS
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
    assert not names & {"eval", "exec", "compile", "__import__"}


@pytest.mark.parametrize("name", sorted(PURE))
def test_the_core_decides_and_does_nothing_else(name: str) -> None:
    own = {f"spur_ctld.replication.{other}" for other in PURE}
    for module in imported(PACKAGE / f"{name}.py"):
        assert module in own or module.split(".")[0] in ALLOWED, module
