"""Texts that other users chose, for a line on somebody's terminal.

A job may be named anything.  Shown as it is, a name with a line break makes rows that no job has, and one
with a control sequence drives the terminal of whoever looks.
"""

import re
from typing import Final

#: Control characters, what breaks lines, and what turns the direction of the text around it.
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


_SHOWN: Final = 60


def is_text(text: str) -> bool:
    """Whether `text` came as UTF-8; other bytes are lone surrogates in it, which no message takes."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf8(text: str) -> str:
    """`text` with `\\xNN` for each byte that is not UTF-8: for what is only shown."""
    return (
        text if is_text(text) else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    )


def unescape(text: str) -> str:
    r"""`text` with `\t` and `\xNN` as the characters that they stand for."""
    if "\\" not in text:
        return text
    return re.sub(r"\\(?:t|x([0-9a-fA-F]{2}))", lambda m: chr(int(m[1], 16)) if m[1] else "\t", text)


def not_text(what: str, text: str) -> str:
    """The sentence that refuses `text`.

    Args:
        what: the option, variable or argument that it was given for; "" = not known.
    """
    shown = printable(utf8(text))
    if len(shown) > _SHOWN:
        shown = shown[:_SHOWN] + "..."
    return f"{what}{': ' if what else ''}'{shown}' is not UTF-8 text; write it in UTF-8"


def printable(text: str) -> str:
    """`text` on one line, with a `?` for each character that is not for showing."""
    return text if text.isprintable() else _UNFIT.sub("?", text)
