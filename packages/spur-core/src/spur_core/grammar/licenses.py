"""Licences: `matlab:2,ansys@server:1`, or alternatives `matlab|octave:2`."""

from collections import namedtuple

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class LicenseRequest(NamedTuple):
        """(name with its @server, count) items; all of them, or with `any_of` one of them."""

        items: tuple[tuple[str, int], ...]
        any_of: bool
else:
    LicenseRequest = namedtuple("LicenseRequest", ("items", "any_of"))


def parse_licenses(text: str) -> LicenseRequest:
    """Items of `name[@server][:N]` joined by commas (all) or by `|` or `;` (one of them); N is 1 or more.

    Equal names joined by commas are added up.

    Raises:
        GrammarError: "Invalid license specification"; also when both ways of joining are mixed.
    """
    any_of = "|" in text or ";" in text
    if any_of and "," in text:
        raise _bad()
    items: list[tuple[str, int]] = []
    for item in text.replace(";", "|").split("|" if any_of else ","):
        name, colon, count = item.strip().partition(":")
        number = digits(count, 9) if colon else 1
        if not number or not is_name(name):
            raise _bad()
        items.append((name, number))
    if any_of:
        return LicenseRequest(tuple(items), True)
    totals: dict[str, int] = {}
    for name, number in items:
        totals[name] = totals.get(name, 0) + number
    return LicenseRequest(tuple(totals.items()), False)


def format_licenses(request: LicenseRequest) -> str:
    """The text that parses to `request`."""
    return ("|" if request.any_of else ",").join(f"{name}:{count}" for name, count in request.items)


def is_name(text: str) -> bool:
    """Whether jobs can ask for a licence of that name."""
    name, at, server = text.partition("@")
    words = (name, server) if at else (name,)
    return all(word and all(char.isalnum() or char in "_-.+/" for char in word) for word in words)


def _bad() -> GrammarError:
    return GrammarError("Invalid license specification")
