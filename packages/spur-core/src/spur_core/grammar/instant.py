"""Points in time: `now+2hours`, `16:00`, `2026-12-24T08:30`, `uts1735689600`; local time unless said.

Naked times of day that are past move to tomorrow for begin and deadline; for sacct they mean the most
recent one.
"""

import time

from spur_core.errors import GrammarError

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_WORDS = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}


def parse_instant(text: str, now: float, *, prefer_future: bool = True) -> float:
    """Seconds since the epoch.

    Args:
        now: the present, seconds since the epoch.
        prefer_future: a bare time of day already past means tomorrow; otherwise one still to come means
            yesterday.

    Raises:
        GrammarError: "Invalid time specification (pos=N): TEXT".
    """
    word = text.strip()
    lower = word.lower()
    if lower.startswith("now"):
        return _relative(text, lower[3:], now)
    if lower.startswith("uts") and lower[3:].isdigit():
        return float(lower[3:])
    today = time.localtime(now)
    if lower in ("today", "tomorrow"):
        return _local(today.tm_year, today.tm_mon, today.tm_mday + (lower == "tomorrow"), 0, 0, 0, text)
    if lower in _WORDS:
        return _time_of_day((_WORDS[lower], 0, 0), now, prefer_future, text)
    zone, word = _zone(word)
    date_text, separator, clock_text = word.partition("T")
    if not separator and " " in word:
        date_text, separator, clock_text = word.partition(" ")
    if not separator and len(word) > 7 and word[6] == "-" and word[:6].isdigit():
        date_text, separator, clock_text = word[:6], "-", word[7:]
    if not separator:
        clock = _clock(word)
        if clock is not None:
            if zone is not None:
                raise _bad(text, 0)
            return _time_of_day(clock, now, prefer_future, text)
    date = _date(date_text, now, text)
    clock = (0, 0, 0)
    if separator:
        found = _clock(clock_text)
        if found is None:
            raise _bad(text, len(date_text) + 1)
        clock = found
    if zone is not None:
        import calendar

        return float(calendar.timegm((*date, *clock, 0, 0, 0)) - zone)
    return _local(*date, *clock, text)


def _relative(text: str, rest: str, now: float) -> float:
    body = rest.replace(" ", "")
    if not body:
        return now
    sign = {"+": 1, "-": -1}.get(body[0])
    digits = ""
    at = 1
    while at < len(body) and body[at].isdigit():
        digits += body[at]
        at += 1
    unit = body[at:].removesuffix("s") or "second"
    # A prefix is enough: min, hour, d.
    factor = next((secs for name, secs in _UNITS.items() if name.startswith(unit)), None)
    if sign is None or not digits or factor is None:
        raise _bad(text, 3 + at)
    return now + sign * int(digits) * factor


def _zone(word: str) -> tuple[int | None, str]:
    """(offset in seconds, rest) of a trailing `Z` or `+HH:MM`; only dated forms carry one."""
    if "T" not in word:
        return None, word
    if word.endswith("Z"):
        return 0, word[:-1]
    if len(word) > 6 and word[-6] in "+-" and word[-3] == ":":
        hours, minutes = word[-5:-3], word[-2:]
        if hours.isdigit() and minutes.isdigit():
            offset = int(hours) * 3600 + int(minutes) * 60
            return (offset if word[-6] == "+" else -offset), word[:-6]
    return None, word


def _clock(text: str) -> tuple[int, int, int] | None:
    """`HH:MM[:SS][AM|PM]`, or a bare hour with AM or PM."""
    body, half = text.upper(), ""
    if body.endswith(("AM", "PM")):
        body, half = body[:-2].strip(), body[-2:]
    parts = body.split(":")
    if not (2 <= len(parts) <= 3 or (half and len(parts) == 1)):
        return None
    if not all(part.isascii() and part.isdigit() and len(part) <= 2 for part in parts):
        return None
    hour, minute, second = ([int(part) for part in parts] + [0, 0])[:3]
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "PM" else 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return hour, minute, second


def _date(text: str, now: float, whole: str) -> tuple[int, int, int]:
    """(year, month, day) of the dated forms."""
    this_year = time.localtime(now).tm_year
    year: int | str = this_year
    parts: list[str]
    if "-" in text:
        parts = text.split("-")
        if len(parts) != 3 or len(parts[0]) != 4:
            raise _bad(whole, 0)
        year, month, day = parts[0], parts[1], parts[2]
    elif "/" in text or "." in text:
        parts = text.split("/" if "/" in text else ".")
        if not 2 <= len(parts) <= 3:
            raise _bad(whole, 0)
        month, day = parts[0], parts[1]
        if len(parts) == 3:
            year = parts[2]
    elif text.isdigit() and len(text) in (4, 6):
        month, day = text[:2], text[2:4]
        if len(text) == 6:
            year = text[4:]
    else:
        raise _bad(whole, 0)
    fields = [str(year), month, day]
    if not all(field.isascii() and field.isdigit() for field in fields):
        raise _bad(whole, 0)
    number = int(fields[0])
    return (number + 2000 if len(fields[0]) == 2 else number), int(month), int(day)


def _time_of_day(clock: tuple[int, int, int], now: float, prefer_future: bool, text: str) -> float:
    today = time.localtime(now)
    moment = _local(today.tm_year, today.tm_mon, today.tm_mday, *clock, text)
    if prefer_future and moment < now:
        return _local(today.tm_year, today.tm_mon, today.tm_mday + 1, *clock, text)
    if not prefer_future and moment > now:
        return _local(today.tm_year, today.tm_mon, today.tm_mday - 1, *clock, text)
    return moment


def _local(year: int, month: int, day: int, hour: int, minute: int, second: int, text: str) -> float:
    """Local wall clock to an instant; a wall clock that does not exist is an error."""
    if not (1970 <= year <= 9999 and 1 <= month <= 12 and 0 <= day <= 32):
        raise _bad(text, 0)
    try:
        # isdst -1: the zone decides; of two equal wall clocks the C library takes one, we the earlier.
        moment = time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
    except (OverflowError, ValueError):
        raise _bad(text, 0) from None
    back = time.localtime(moment)
    if (back.tm_hour, back.tm_min) != (hour, minute):
        raise _bad(text, 0)
    earlier = time.localtime(moment - 3600)
    if (earlier.tm_hour, earlier.tm_min, earlier.tm_mday) == (back.tm_hour, back.tm_min, back.tm_mday):
        moment -= 3600
    if 1 <= day <= 31 and day <= 28 and back.tm_mday != day:
        raise _bad(text, 0)
    if day > 28 and back.tm_mday != day and not _rolls_over(year, month, day):
        raise _bad(text, 0)
    return moment


def _rolls_over(year: int, month: int, day: int) -> bool:
    """Only the day after the last of a month may be written as one more (tomorrow)."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    return day == lengths[month - 1] + 1


def _bad(text: str, pos: int) -> GrammarError:
    return GrammarError(f"Invalid time specification (pos={pos}): {text}")


def format_timestamp(moment: float, style: str = "standard", now: float | None = None) -> str:
    """Local time as SLURM_TIME_FORMAT says: `standard`, `relative`, or a strftime pattern."""
    local = time.localtime(moment)
    if style in ("", "standard"):
        return time.strftime("%Y-%m-%dT%H:%M:%S", local)
    if style != "relative":
        return time.strftime(style.replace("%s", str(int(moment))), local)
    today = time.localtime(now)
    days = _day_number(local) - _day_number(today)
    if days == 0:
        return time.strftime("%H:%M:%S", local)
    if days == -1:
        return time.strftime("Ystday %H:%M", local)
    if days == 1:
        return time.strftime("Tomorr %H:%M", local)
    if -7 < days < 7:
        return time.strftime("%a %H:%M", local)
    return time.strftime("%d %b %H:%M", local)


def _day_number(local: time.struct_time) -> int:
    import calendar

    return int(calendar.timegm((local.tm_year, local.tm_mon, local.tm_mday, 0, 0, 0, 0, 0, 0))) // 86400
