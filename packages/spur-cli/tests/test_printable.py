"""What other users have named their jobs does not reach a terminal as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_cli import formats
from spur_cli.control.layout import Style, record
from spur_cli.history import fields
from spur_cli.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain name", "plain name"),
        ("größe 数 🚀", "größe 数 🚀"),
        ("a\nb\rc\td\ve", "a?b?c?d?e"),
        ("\x1b]0;title\x07\x1b[2J", "?]0;title??[2J"),
        ("\x9b31m\x7f\0", "?31m??"),
        ("a\u2028b\u2029c", "a?b?c"),
        ("\u202etxt.exe\u2066", "?txt.exe?"),
        ("no\u00a0break", "no\u00a0break"),
        ("\udcff", "\udcff"),
    ],
)
def test_texts(text, shown):
    assert printable(text) == shown


@given(st.text())
def test_any_text_is_one_line_of_the_same_length(text):
    shown = printable(text)
    assert len(shown) == len(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)
    assert printable(shown) == shown


def test_every_layout_shows_one_line_for_one_row():
    evil = "x\n 99 root R\x1b[2J"
    form = formats.parse_letters("%i %j", {"i", "j"})
    assert formats.render(form, lambda key: evil, ()).count("\n") == 1
    line = formats.line_maker(form, lambda key: lambda row: evil, ())
    assert line(None).count("\n") == 1
    assert "\x1b" not in line(None)
    style = Style(one_line=False, detail=False, time="", now=0.0)
    assert record([f"JobId=1 JobName={evil}", "b"], style).count("\n") == 3
    column = fields.Column("JobName", 10, lambda row: evil)
    for text in (
        fields.table_text([column], [None], header=False),
        fields.parsable_text([column], [None], header=False, delimiter="|", trailing=False),
    ):
        assert text.count("\n") == 1
        assert "\x1b" not in text
