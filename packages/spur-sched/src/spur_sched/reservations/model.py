"""What a reservation is to the scheduler.  Instants are seconds since the epoch."""

from typing import Final, NamedTuple

#: How it repeats; "" = once.
REPEATS: Final = ("HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY")
#: A reservation without an end: a year, as Slurm takes UNLIMITED.
UNLIMITED_SECS: Final = 365 * 86_400


class Span(NamedTuple):
    """[start, end)."""

    start: float
    end: float

    def meets(self, other: "Span") -> bool:
        """Whether both hold at some instant."""
        return self.start < other.end and other.start < self.end


class Reservation(NamedTuple):
    """What decides about time, nodes and licences.

    Attributes:
        span: the present occurrence, or the next one.
        first: the occurrence from which the wall clock of all others is taken.
        zone: name of the time zone whose wall clock a repeated one follows.
        cpus: kept CPUs by node; None = whole nodes.
        floating: its start stays so many seconds ahead of the present; None = it stands still.
    """

    name: str
    span: Span
    first: Span
    nodes: frozenset[str] = frozenset()
    repeat: str = ""
    zone: str = "UTC"
    cpus: tuple[tuple[str, int], ...] | None = None
    licenses: tuple[tuple[str, int], ...] = ()
    maintenance: bool = False
    overlap: bool = False
    flex: bool = False
    floating: float | None = None
