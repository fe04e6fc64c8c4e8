"""scontrol's records: lines of `Key=value`, continuation lines three blanks in, an empty line behind."""

from collections.abc import Sequence

from spur_cli.printable import printable
from spur_core.grammar.instant import format_timestamp


class Style:
    """How records are printed: `-o`, `-d`, SLURM_TIME_FORMAT."""

    __slots__ = ("detail", "now", "one_line", "time")

    def __init__(self, one_line: bool, detail: bool, time: str, now: float) -> None:
        self.one_line = one_line
        self.detail = detail
        self.time = time
        self.now = now

    def moment(self, at: float, missing: str = "Unknown") -> str:
        """A timestamp; 0 is missing."""
        return format_timestamp(at, self.time, self.now) if at else missing


def record(lines: Sequence[str], style: Style) -> str:
    """One record."""
    lines = [printable(line) for line in lines]
    if style.one_line:
        return " ".join(line.strip() for line in lines if line.strip()) + "\n"
    return "\n   ".join(lines) + "\n\n"


def null(text: str) -> str:
    """Unset strings print as `(null)`."""
    return text or "(null)"
