"""Reservations as the state keeps them, and as the scheduler takes them.  Pure."""

from collections.abc import Iterable

from spur_ctld.state.records import Record
from spur_sched.reservations.access import Rules
from spur_sched.reservations.model import Reservation as Model
from spur_sched.reservations.model import Span


class Reservation(Record, frozen=True, kw_only=True):
    """Nodes, CPUs or licences kept for some users.

    `start_at` and `end_at` are the present occurrence's, or the next one's; the wall clock of all that follow
    is that of `first_start` and `first_end` in `zone`.  A name behind "-" in a list is kept out.
    """

    name: str
    start_at: float
    end_at: float
    first_start: float
    first_end: float
    #: "HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY"; empty = once.
    repeat: str = ""
    zone: str = "UTC"
    #: In natural order.
    nodes: tuple[str, ...] = ()
    #: CPUs of each node that are kept; None = all.
    cpus: tuple[tuple[str, int], ...] | None = None
    #: What was asked for instead of names; 0 and "" = nothing.
    node_count: int = 0
    core_count: int = 0
    features: str = ""
    partition: str = ""
    flags: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    #: Users of those groups, when they were looked up.
    members: tuple[str, ...] = ()
    licenses: tuple[tuple[str, int], ...] = ()
    #: It goes, or its occurrence ends, when it is unused for so many seconds.
    purge_after: int | None = None
    #: Seconds by which its start stays ahead of the present.
    floating: float | None = None
    owner: str = ""
    owner_uid: int | None = None
    comment: str = ""
    #: Index of the entry that changed it last.
    changed: int = 0


def model(one: Reservation) -> Model:
    """As `spur_sched` takes it."""
    return Model(
        name=one.name,
        span=Span(one.start_at, one.end_at),
        first=Span(one.first_start, one.first_end),
        nodes=frozenset(one.nodes),
        repeat=one.repeat,
        zone=one.zone,
        cpus=one.cpus,
        licenses=one.licenses,
        maintenance="MAINT" in one.flags,
        overlap="OVERLAP" in one.flags,
        flex="FLEX" in one.flags,
        floating=one.floating,
    )


def rules(one: Reservation) -> Rules:
    """Whom it lets in."""
    return Rules(one.users, one.accounts, one.groups, one.members)


def is_active(one: Reservation, now: float) -> bool:
    """Whether it holds now."""
    return one.floating is None and one.start_at <= now < one.end_at


def names(text: str) -> tuple[str, ...]:
    """Of a job's comma list."""
    return tuple(name for name in text.split(",") if name)


def covering(reservations: Iterable[Reservation], now: float) -> dict[str, Reservation]:
    """Node -> the active reservation that it is under; of several one with maintenance, else the first."""
    found: dict[str, Reservation] = {}
    for one in reservations:
        if not is_active(one, now):
            continue
        for node in one.nodes:
            if node not in found or ("MAINT" in one.flags and "MAINT" not in found[node].flags):
                found[node] = one
    return found
