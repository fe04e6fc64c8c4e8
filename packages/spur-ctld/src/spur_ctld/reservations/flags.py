"""Words of `Flags=`: what they mean, and how they are shown.  Pure."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from spur_core.errors import RequestError, Unsupported
from spur_core.grammar.duration import long_form
from spur_ctld.state.reservations import Reservation
from spur_sched.reservations.model import REPEATS

#: Given by administrators; those in `_MADE` are shown only.
WORDS: Final = (
    "MAINT",
    "FLEX",
    "OVERLAP",
    "IGNORE_JOBS",
    "HOURLY",
    "DAILY",
    "WEEKDAY",
    "WEEKEND",
    "WEEKLY",
    "SPEC_NODES",
    "ALL_NODES",
    "ANY_NODES",
    "STATIC",
    "PART_NODES",
    "LICENSE_ONLY",
    "TIME_FLOAT",
    "REPLACE",
    "REPLACE_DOWN",
    "PURGE_COMP",
    "NO_HOLD_JOBS_AFTER_END",
    "USER_DELETE",
    "MAGNETIC",
)
#: Shown, never asked for.
_MADE: Final = frozenset({"ALL_NODES"})
_SYNONYMS: Final = {
    "STATIC_ALLOC": "STATIC",
    "NO_HOLD_JOBS": "NO_HOLD_JOBS_AFTER_END",
    "NO_HOLD_JOBS_AFTER": "NO_HOLD_JOBS_AFTER_END",
}
#: Slurm's, not ours.
_LATER: Final = frozenset({"FIRST_CORES", "FORCE_START"})
#: Kept in fields of their own.
_FIELDS: Final = frozenset({*REPEATS, "TIME_FLOAT", "PURGE_COMP"})


class Flags(NamedTuple):
    """`words` are kept as they are, in the order in which they are shown."""

    words: tuple[str, ...]
    repeat: str
    time_float: bool
    purge: bool


def word(text: str) -> str:
    """The full name of a flag.

    Raises:
        RequestError: there is none, or several begin so.
        Unsupported: Slurm has it.
    """
    upper = text.strip().upper()
    upper = _SYNONYMS.get(upper, upper)
    if upper in _LATER:
        raise Unsupported(f"Requested operation not supported on this system: Flags={upper}")
    if upper in WORDS and upper not in _MADE:
        return upper
    found = [name for name in WORDS if upper and name.startswith(upper) and name not in _MADE]
    if len(found) != 1:
        raise RequestError(f"Invalid reservation flag: {text.strip()[:64]}")
    return found[0]


def split(texts: Iterable[str]) -> Flags:
    """The flags by what they are.

    Raises:
        RequestError: one is unknown, or two ways of repeating.
    """
    given = {word(text) for text in texts}
    repeats = [name for name in REPEATS if name in given]
    if len(repeats) > 1:
        raise RequestError(f"Requested reservation is invalid: both {repeats[0]} and {repeats[1]}")
    return Flags(
        words=ordered(given - _FIELDS),
        repeat=repeats[0] if repeats else "",
        time_float="TIME_FLOAT" in given,
        purge="PURGE_COMP" in given,
    )


def ordered(words: Iterable[str]) -> tuple[str, ...]:
    """In the order in which they are shown."""
    given = set(words)
    return tuple(name for name in WORDS if name in given)


def shown(one: Reservation) -> Sequence[str]:
    """All flags of a reservation as Slurm prints them."""
    more = {one.repeat} if one.repeat else set()
    if one.floating is not None:
        more.add("TIME_FLOAT")
    if one.purge_after is not None:
        more.add("PURGE_COMP")
    named = ordered({*one.flags, *more})
    return [
        f"PURGE_COMP={long_form(one.purge_after or 0)}" if name == "PURGE_COMP" else name for name in named
    ]
