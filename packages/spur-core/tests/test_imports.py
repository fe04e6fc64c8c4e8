"""What importing one grammar costs: a supervisor and every command pay for it."""

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
GRAMMARS = sorted(
    path.stem
    for path in (SOURCE / "spur_core" / "grammar").glob("*.py")
    if path.stem not in ("__init__", "_scan")
)
HEAVY = {
    "asyncio",
    "dataclasses",
    "typing",
    "re",
    "enum",
    "signal",
    "datetime",
    "calendar",
    "functools",
    "inspect",
    "logging",
    "json",
    "tomllib",
}
#: A grammar may stand on these others of ours.
ALLOWED = {
    "array": set(),
    "counts": {"signals", "timelimit"},
    "dependency": set(),
    "duration": set(),
    "export": set(),
    "features": set(),
    "filepattern": set(),
    "gpus": {"gres"},
    "gres": set(),
    "hostlist": set(),
    "idlist": set(),
    "instant": set(),
    "jobid": set(),
    "licenses": set(),
    "sharing": set(),
    "signals": set(),
    "size": set(),
    "timelimit": set(),
    "tres": {"size"},
    "wishes": {"gres"},
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_grammar_stands_alone(name, loaded_modules):
    """No heavy module and none of the other grammars, in a fresh interpreter."""
    modules = loaded_modules(f"spur_core.grammar.{name}")
    assert not modules & HEAVY
    prefix = "spur_core.grammar."
    others = {module.removeprefix(prefix) for module in modules if module.startswith(prefix)}
    assert others - {name, "_scan"} <= ALLOWED[name]
    assert not any(module.startswith("spur_core.config") for module in modules)


@pytest.mark.parametrize("name", ["spur_core.ids", "spur_core.errors", "spur_core.reasons"])
def test_the_vocabulary_is_light(name, loaded_modules):
    """The same for what everything else stands on."""
    assert not loaded_modules(name) & HEAVY


def test_no_module_of_a_grammar_is_forgotten():
    """The table above names every grammar."""
    assert set(ALLOWED) == set(GRAMMARS)


def test_every_grammar_starts_in_ten_milliseconds():
    """All of them together, at best of five, on top of the bare interpreter."""
    code = (
        f"import sys, time; sys.path.insert(0, {str(SOURCE)!r}); start = time.perf_counter()\n"
        + "".join(f"import spur_core.grammar.{name}\n" for name in GRAMMARS)
        + "print(time.perf_counter() - start)"
    )

    def once() -> float:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
        )
        return float(done.stdout)

    # The first run may have to compile; the machine may be busy, so the best counts, generously.
    assert min(once() for _ in range(5)) < 0.1
