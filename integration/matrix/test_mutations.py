"""The list of faults keeps up with the sources: every text is there once, every test exists."""

from pathlib import Path

import pytest
from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]


def test_every_requirement_has_a_fault() -> None:
    assert {mutation.number for mutation in MUTATIONS} == set(range(1, 26))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"v{m.number:02}")
def test_a_fault_fits_the_sources(mutation: Mutation) -> None:
    texts: dict[str, str] = {}
    for edit in mutation.edits:
        text = texts.setdefault(edit.file, (ROOT / edit.file).read_text())
        assert text.count(edit.old) == 1, f"{edit.file}: {edit.old!r} is there {text.count(edit.old)} times"
        texts[edit.file] = text.replace(edit.old, edit.new)
    file, _, name = mutation.test.partition("::")
    assert f"test_v{mutation.number:02}_" in name
    assert f"def {name}(" in (ROOT / file).read_text()
