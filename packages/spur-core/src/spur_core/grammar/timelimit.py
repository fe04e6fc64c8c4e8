"""Time limits: `-t`, `TimeLimit=`, `MaxTime`.

Slurm's forms are minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes and
days-hours:minutes:seconds; fields carry over.  The suffixed forms `90m`, `1h30m`, `2d12h`, `30s` are an
extension.  Seconds are kept inside; displays round up to the minute.
"""

from spur_core.errors import GrammarError

_NO_LIMIT = ("INFINITE", "UNLIMITED", "-1")
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
#: Largest limit that fits Slurm's 32-bit minutes.
_MAX_SECS = 0xFFFFFFFD * 60


def parse_time_limit(text: str) -> int | None:
    """Seconds, or None for no limit (`0`, `-1`, `INFINITE`, `UNLIMITED`).

    Raises:
        GrammarError: any other form; the text names the value.
    """
    if text.upper() in _NO_LIMIT:
        return None
    seconds = _suffixed(text)
    if seconds is None:
        seconds = _slurm_form(text)
    if seconds is None or seconds > _MAX_SECS:
        raise GrammarError(f"Invalid time limit specification: {text!r}")
    return seconds or None


def minutes_rounded_up(seconds: int) -> int:
    """Whole minutes that cover `seconds`."""
    return -(-seconds // 60)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _slurm_form(text: str) -> int | None:
    days_text, dash, rest = text.partition("-")
    if not dash:
        fields = [_number(part) for part in text.split(":")]
        if not 1 <= len(fields) <= 3 or None in fields:
            return None
        numbers = [field or 0 for field in fields]
        if len(numbers) == 1:
            return numbers[0] * 60
        if len(numbers) == 2:
            return numbers[0] * 60 + numbers[1]
        return numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    days = _number(days_text)
    if days is None:
        return None
    if not rest:
        return days * 86400
    fields = [_number(part) for part in rest.split(":")]
    if len(fields) > 3 or None in fields:
        return None
    total = days * 86400
    for field, unit in zip(fields, (3600, 60, 1), strict=False):
        total += (field or 0) * unit
    return total


def _suffixed(text: str) -> int | None:
    total, digits, seen = 0, "", False
    for char in text.lower():
        if char.isascii() and char.isdigit():
            digits += char
        elif char in _UNITS and digits:
            total += int(digits) * _UNITS[char]
            digits, seen = "", True
        else:
            return None
    return total if seen and not digits else None
