"""Lists of small numbers, `0-3,8`: CPUs of a node, devices of a kind.  In masks bit 8 is number 8."""

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

#: A list names lower numbers only, so that a short text never stands for a huge mask.
HIGHEST = 1 << 16


def mask_of(text: str) -> int:
    """The mask of a list; of an empty one 0.

    Raises:
        GrammarError: not a list of numbers and ascending ranges below `HIGHEST`.
    """
    mask = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        low = digits(first, 5)
        high = digits(last, 5) if dash else low
        if low is None or high is None or not low <= high < HIGHEST:
            raise GrammarError(f"{text[:80]!r} is not a list of numbers such as 0-3,8")
        mask |= (1 << (high + 1)) - (1 << low)
    return mask


def text_of(mask: int) -> str:
    """The list of a mask, as short as can be."""
    parts = []
    base = 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        base += skip
        run = (~mask & (mask + 1)).bit_length() - 1
        parts.append(str(base) if run == 1 else f"{base}-{base + run - 1}")
        mask >>= run
        base += run
    return ",".join(parts)


def numbers(mask: int) -> tuple[int, ...]:
    """The numbers of a mask, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


def mask_from(values: "Iterable[int]") -> int:
    """The mask of numbers."""
    mask = 0
    for value in values:
        mask |= 1 << value
    return mask
