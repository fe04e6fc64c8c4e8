"""`OverSubscribe` of a partition."""

import pytest

from spur_core.errors import GrammarError
from spur_core.grammar.sharing import Sharing, parse, text_of


@pytest.mark.parametrize(
    ("text", "found", "shown"),
    [
        ("no", Sharing("NO", 1), "NO"),
        ("Exclusive", Sharing("EXCLUSIVE", 1), "EXCLUSIVE"),
        ("YES", Sharing("YES", 4), "YES:4"),
        ("force", Sharing("FORCE", 4), "FORCE:4"),
        ("force:1", Sharing("FORCE", 1), "FORCE:1"),
        ("Yes:12", Sharing("YES", 12), "YES:12"),
    ],
)
def test_reads_and_shows(text, found, shown):
    assert parse(text) == found
    assert text_of(found) == shown
    assert parse(shown) == found


@pytest.mark.parametrize(
    "text", ["", "maybe", "NO:2", "EXCLUSIVE:1", "YES:", "YES:0", "FORCE:x", "FORCE:99999"]
)
def test_refuses(text):
    with pytest.raises(GrammarError):
        parse(text)
