"""Time limits: `-t`, `TimeLimit=`, `MaxTime`.

Slurm's forms are minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes and
days-hours:minutes:seconds; fields carry over.  The suffixed forms `90m`, `1h30m`, `2d12h`, `30s` are an
extension.  Seconds are kept inside; displays round up to the minute.
"""

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits

_NO_LIMIT = ("INFINITE", "UNLIMITED", "-1")
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
#: Largest limit that fits Slurm's 32-bit minutes.
_MAX_SECS = 0xFFFFFFFD * 60


def parse_time_limit(text: str, option: str = "--time") -> int | None:
    """Seconds, or None for no limit (`0`, `-1`, `INFINITE`, `UNLIMITED`).

    Args:
        option: what the value belongs to, for the error.

    Raises:
        GrammarError: "Invalid OPTION specification".
    """
    if text.upper() in _NO_LIMIT:
        return None
    seconds = _slurm_form(text)
    if seconds is None:
        seconds = _suffixed(text)
    if seconds is None or seconds > _MAX_SECS:
        raise GrammarError(f"Invalid {option} specification")
    return seconds or None


def minutes_rounded_up(seconds: int) -> int:
    """Whole minutes that cover `seconds`."""
    return -(-seconds // 60)


def _fields(text: str) -> list[int] | None:
    """One to three numbers between colons."""
    numbers = [digits(part, 10) for part in text.split(":")]
    found = [number for number in numbers if number is not None]
    return found if len(found) == len(numbers) <= 3 else None


def _slurm_form(text: str) -> int | None:
    days_text, dash, rest = text.partition("-")
    if not dash:
        fields = _fields(text)
        if fields is None:
            return None
        # One field is minutes, two are minutes and seconds, three are hours, minutes and seconds.
        units: tuple[int, ...] = ((60,), (60, 1), (3600, 60, 1))[len(fields) - 1]
        return sum(field * unit for field, unit in zip(fields, units))
    days = digits(days_text, 10)
    if days is None:
        return None
    fields = _fields(rest) if rest else []
    if fields is None:
        return None
    return days * 86400 + sum(field * unit for field, unit in zip(fields, (3600, 60, 1)))


def _suffixed(text: str) -> int | None:
    """`2d12h30m10s`: any of the units, each with its number."""
    total, number = 0, ""
    for char in text.lower():
        if char in _UNITS:
            amount = digits(number, 10)
            if amount is None:
                return None
            total += amount * _UNITS[char]
            number = ""
        else:
            number += char
    return total if text and not number else None
