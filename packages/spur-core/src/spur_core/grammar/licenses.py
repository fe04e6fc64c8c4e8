"""Licences: `matlab:2,ansys@server:1`."""

from spur_core.errors import GrammarError


def parse_licenses(text: str) -> list[tuple[str, int]]:
    """(name, count) items; a count of zero is an error.

    Raises:
        GrammarError: "Invalid license specification".
    """
    out: list[tuple[str, int]] = []
    for item in text.replace(";", ",").split(","):
        name, colon, count = item.strip().partition(":")
        number = int(count) if colon and count.isascii() and count.isdigit() else 0 if colon else 1
        if not name or number < 1:
            raise GrammarError("Invalid license specification")
        out.append((name, number))
    return out
