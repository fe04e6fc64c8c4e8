"""Texts that other users chose, for a line on somebody's terminal.

A job may be named anything.  Shown as it is, a name with a line break makes rows that no job has, and one
with a control sequence drives the terminal of whoever looks.
"""

import re
from typing import Final

#: Control characters, what breaks lines, and what turns the direction of the text around it.
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """`text` on one line, with a `?` for each character that is not for showing."""
    return text if text.isprintable() else _UNFIT.sub("?", text)
