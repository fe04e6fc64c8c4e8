"""Points in time: `now+2hours`, `16:00`, `2026-12-24T08:30`, `uts1735689600`; local time unless said.

A bare time of day that is past moves to tomorrow for begin and deadline; for sacct and sreport it means
the most recent one.  A date without a year is the next, or for history the last, one of that name.
"""

import time

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    #: Seconds since the epoch to local wall clock, as `time.localtime`.
    LocalTime = Callable[[float], time.struct_time]
    #: Local wall clock to seconds since the epoch, as `time.mktime`.
    MakeTime = Callable[[tuple[int, int, int, int, int, int, int, int, int]], float]

_UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 604800}
_TIMES = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}
_DAYS = {"today": 0, "tomorrow": 1}
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
Clock = tuple[int, int, int]
Date = tuple[int, int, int]


class _Fault(Exception):
    """Something at this position of the text cannot be used."""


def parse_instant(
    text: str,
    now: float,
    *,
    prefer_future: bool = True,
    localtime: "LocalTime" = time.localtime,
    mktime: "MakeTime" = time.mktime,
) -> float:
    """Seconds since the epoch.

    Args:
        now: the present, seconds since the epoch.
        prefer_future: False for history: what lies ahead today means its last occurrence.
        localtime, mktime: the local zone; the process's unless given.

    Raises:
        GrammarError: "Invalid time specification (pos=N): TEXT".
    """
    try:
        return _Parser(text, now, prefer_future, localtime, mktime).parse()
    except (_Fault, OverflowError, ValueError, OSError) as fault:
        # The last three: a moment that the C library cannot represent.
        pos = fault.args[0] if isinstance(fault, _Fault) else 0
        raise GrammarError(f"Invalid time specification (pos={pos}): {text}") from None


class _Parser:
    """One text: `text` in lower case, `at` the position that is read next."""

    def __init__(
        self, text: str, now: float, prefer_future: bool, localtime: "LocalTime", mktime: "MakeTime"
    ) -> None:
        # Only ASCII is folded, so that positions stay those of the text.
        self.text = text.lower() if text.isascii() else text
        self.at = 0
        self.now = now
        self.today = localtime(now)
        self.future = prefer_future
        self.localtime = localtime
        self.mktime = mktime

    def parse(self) -> float:
        self._blanks()
        if self.text.startswith("now", self.at):
            return self._relative()
        if self.text.startswith("uts", self.at):
            number = digits(self.text[self.at + 3 :].rstrip(" "), 11)
            if number is None:
                raise _Fault(self.at + 3)
            return float(number)
        date = self._date()
        if date is not None:
            self._separator()
        start = self.at
        clock = self._clock()
        zone = self._zone() if date is not None and clock is not None else None
        self._blanks()
        if self.at < len(self.text) or (date is None and clock is None):
            raise _Fault(start if clock is None and date is not None else self.at)
        if date is None:
            assert clock is not None
            return self._time_of_day(clock)
        if zone is not None:
            return _utc(date, clock or (0, 0, 0)) - zone
        return self._epoch(date, clock or (0, 0, 0))

    # Scanning.

    def _blanks(self) -> None:
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1

    def _number(self, most: int) -> int | None:
        """A run of at most `most` digits that no other digit follows."""
        end = self.at
        while end < len(self.text) and "0" <= self.text[end] <= "9":
            end += 1
        number = digits(self.text[self.at : end], most)
        if number is not None:
            self.at = end
        return number

    def _skip(self, word: str) -> bool:
        if not self.text.startswith(word, self.at):
            return False
        self.at += len(word)
        return True

    def _word(self, choices: dict[str, int]) -> int | None:
        for word, value in choices.items():
            if self._skip(word):
                return value
        return None

    def _separator(self) -> None:
        """What stands between date and time: a T, a dash (after MMDDYY) or blanks."""
        if self.text[self.at : self.at + 1] in ("t", "-"):
            self.at += 1
            if self.at == len(self.text):
                raise _Fault(self.at)
        else:
            self._blanks()

    # Parts.

    def _relative(self) -> float:
        """`now`, `now+2hours`, `now - 1 day`."""
        self.at += 3
        self._blanks()
        if self.at == len(self.text):
            return self.now
        sign = 1 if self._skip("+") else -1 if self._skip("-") else 0
        if not sign:
            raise _Fault(self.at)
        self._blanks()
        amount = self._number(10)
        if amount is None:
            raise _Fault(self.at)
        self._blanks()
        start = self.at
        word = self.text[start:].rstrip(" \t")
        # Singular, plural and any beginning of them: m, min, minute, minutes.
        factor = next((secs for unit, secs in _UNITS.items() if unit.startswith(word)), None)
        if factor is None:
            raise _Fault(start)
        return self.now + sign * amount * factor

    def _date(self) -> Date | None:
        """A date, or None (and nothing read) when a time of day stands here."""
        offset = self._word(_DAYS)
        if offset is not None:
            return _next_day(self.today[:3]) if offset else self.today[:3]
        start = self.at
        end = start
        while end < len(self.text) and "0" <= self.text[end] <= "9":
            end += 1
        mark = self.text[end : end + 1]
        length = end - start
        if length == 4 and mark == "-":
            year = self._number(4)
            return self._checked(start, year, self._after("-"), self._after("-"))
        if 1 <= length <= 2 and mark in ("/", "."):
            month = self._number(2)
            day = self._after(mark)
            return self._checked(start, self._year() if self._skip(mark) else None, month, day)
        if length in (4, 6) and mark != ":":
            self.at = end
            packed = self.text[start:end]
            year = 2000 + int(packed[4:]) if length == 6 else None
            return self._checked(start, year, int(packed[:2]), int(packed[2:4]))
        return None

    def _after(self, mark: str) -> int | None:
        """A number of one or two digits after `mark`, which must stand here."""
        if not self._skip(mark):
            raise _Fault(self.at)
        return self._number(2)

    def _year(self) -> int:
        start = self.at
        year = self._number(4)
        if year is None or self.at - start not in (2, 4):
            raise _Fault(start)
        return year + 2000 if self.at - start == 2 else year

    def _checked(self, start: int, year: int | None, month: int | None, day: int | None) -> Date:
        if month is None or day is None:
            raise _Fault(self.at)
        if year is None:
            year = self.today.tm_year
            if self.future and (month, day) < (self.today.tm_mon, self.today.tm_mday):
                year += 1
            elif not self.future and month > self.today.tm_mon:
                year -= 1
        if not (1970 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= _days_in(year, month)):
            raise _Fault(start)
        return year, month, day

    def _clock(self) -> Clock | None:
        """`HH:MM[:SS][AM|PM]`, `HHam`, a word such as noon, or None when the text is over."""
        hour = self._word(_TIMES)
        if hour is not None:
            return hour, 0, 0
        start = self.at
        hour = self._number(2)
        if hour is None:
            return None
        minute = second = 0
        bare = True
        if self._skip(":"):
            bare = False
            minute = self._sixty()
            if self._skip(":"):
                second = self._sixty()
        blanks_at = self.at
        self._blanks()
        half = "am" if self._skip("am") else "pm" if self._skip("pm") else ""
        if not half:
            self.at = blanks_at
            if bare:
                raise _Fault(start)
        elif not 1 <= hour <= 12:
            raise _Fault(start)
        else:
            hour = hour % 12 + (12 if half == "pm" else 0)
        if hour > 23:
            raise _Fault(start)
        return hour, minute, second

    def _sixty(self) -> int:
        start = self.at
        number = self._number(2)
        if number is None or number > 59:
            raise _Fault(start)
        return number

    def _zone(self) -> int | None:
        """Seconds east of Greenwich of a trailing `Z` or `+HH:MM`."""
        if self._skip("z"):
            return 0
        sign = 1 if self._skip("+") else -1 if self._skip("-") else 0
        if not sign:
            return None
        start = self.at
        hours = self._number(2)
        if hours is None or hours > 24 or not self._skip(":"):
            raise _Fault(start)
        return sign * (hours * 3600 + self._sixty() * 60)

    # From wall clock to instant.

    def _time_of_day(self, clock: Clock) -> float:
        today: Date = self.today[:3]
        moment = self._epoch(today, clock)
        if self.future and moment < self.now:
            return self._epoch(_next_day(today), clock)
        if not self.future and moment > self.now:
            # Noon less a day is yesterday whatever the clocks did.
            return self._epoch(self.localtime(self._epoch(today, (12, 0, 0)) - 86400)[:3], clock)
        return moment

    def _epoch(self, date: Date, clock: Clock) -> float:
        """Of two equal wall clocks the earlier; one that the clocks skip counts from before the skip."""
        for daylight in (1, 0):
            moment = self.mktime((*date, *clock, 0, 0, daylight))
            if self.localtime(moment)[:6] == (*date, *clock):
                return moment
        return moment


def _days_in(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _LENGTHS[month - 1]


def _next_day(date: Date) -> Date:
    year, month, day = date
    if day < _days_in(year, month):
        return year, month, day + 1
    return (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)


def _day_number(date: Date) -> int:
    """Days since the epoch, by the civil calendar."""
    year, month, day = date
    # Years that begin in March put the leap day last.
    year -= month < 3
    month_of_year = (month + 9) % 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (month_of_year * 153 + 2) // 5 + day - 719469


def _utc(date: Date, clock: Clock) -> float:
    return float(_day_number(date) * 86400 + clock[0] * 3600 + clock[1] * 60 + clock[2])


def format_timestamp(
    moment: float,
    style: str = "standard",
    now: float | None = None,
    localtime: "LocalTime" = time.localtime,
) -> str:
    """Local time as SLURM_TIME_FORMAT says: `standard`, `relative`, or a strftime pattern.

    Args:
        now: the present, for `relative`; None = the clock's.
    """
    local = localtime(moment)
    if style in ("", "standard"):
        # By hand, because this runs for every cell of a long listing.
        return (
            f"{local.tm_year:04}-{local.tm_mon:02}-{local.tm_mday:02}"
            f"T{local.tm_hour:02}:{local.tm_min:02}:{local.tm_sec:02}"
        )
    if style != "relative":
        # %s is done here: the C library would count in the process's own zone.
        pieces = style.split("%%")
        return time.strftime("%%".join(piece.replace("%s", str(int(moment))) for piece in pieces), local)
    days = _day_number(local[:3]) - _day_number(localtime(time.time() if now is None else now)[:3])
    if days == 0:
        return time.strftime("%H:%M:%S", local)
    if days == -1:
        return time.strftime("Ystday %H:%M", local)
    if days == 1:
        return time.strftime("Tomorr %H:%M", local)
    return time.strftime("%a %H:%M" if -7 < days < 7 else "%d %b %H:%M", local)
