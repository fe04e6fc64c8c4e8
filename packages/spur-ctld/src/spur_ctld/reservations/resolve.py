"""From requests to reservation records: everything is checked and filled in here, once.  Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from spur_core.errors import GrammarError, RequestError
from spur_core.grammar import features
from spur_core.grammar.licenses import parse_licenses
from spur_ctld import bounds
from spur_ctld.reservations import flags as words
from spur_ctld.reservations.nodes import check_idle, in_order, named, pick
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import UNLIMITED, Partition
from spur_ctld.state.reservations import Reservation, model
from spur_proto import controller_pb2 as pb
from spur_sched.reservations.access import mixed
from spur_sched.reservations.model import UNLIMITED_SECS, Span
from spur_sched.reservations.recurrence import PERIODS, following, zone_of
from spur_sched.reservations.windows import conflict

INVALID: Final = "Requested reservation is invalid"
NOBODY: Final = "Reservation request lacks users, groups or accounts"
#: A start may lie so far behind: somebody typed it.
_LATE_SECS: Final = 600.0
#: PURGE_COMP without a time.
PURGE_SECS: Final = 300
_NAME: Final = frozenset("-_.:@+") | frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
)

NO_CHOICE = "Features goes with NodeCnt or CoreCnt; nodes that are named are taken as they are"


class BadReservation(RequestError):
    """The request means nothing."""

    code = "bad_reservation"

    def __init__(self, detail: str = "") -> None:
        super().__init__(f"{INVALID}: {detail}" if detail else INVALID)


class Overlaps(RequestError):
    """Another reservation keeps one of the nodes at the same time."""

    code = "reservation_overlap"

    def __init__(self) -> None:
        super().__init__("Requested reservation overlaps with another reservation")


class Site(NamedTuple):
    """What a request is looked at with.

    Attributes:
        partitions: with all their members.
        zone: for new reservations.
        members: users of each group that the request names, None for one that there is not; `known_users`
            likewise those users of it that there are.
    """

    state: ClusterState
    partitions: Mapping[str, Partition]
    now: float
    zone: str
    members: Mapping[str, Sequence[str] | None]
    known_users: Collection[str]


def create(
    request: pb.CreateReservationRequest, site: Site, owner: str, owner_uid: int | None
) -> Reservation:
    """The record of a new one; its name may be left open.

    Raises:
        RequestError: refused, with Slurm's sentence where it has one.
    """
    bounds.check_texts(request)
    given = words.split(request.flags)
    start = request.start_at if request.HasField("start_at") else site.now
    end = _end(request, start)
    one = Reservation(
        name=_name(request.name),
        start_at=start,
        end_at=end,
        first_start=start,
        first_end=end,
        repeat=given.repeat,
        zone=site.zone,
        node_count=request.node_count,
        core_count=sum(request.core_counts),
        features=request.features,
        partition=request.partition,
        flags=given.words,
        users=_plain(request.users),
        accounts=_plain(request.accounts),
        groups=_plain(request.groups),
        licenses=_licenses(request.licenses, site.state),
        purge_after=_purge(request, given.purge),
        floating=max(0.0, start - site.now) if request.time_float or given.time_float else None,
        owner=owner,
        owner_uid=owner_uid,
        comment=request.comment,
    )
    _check_times(one, site.now)
    one = _checked_access(one, site)
    one = _with_nodes(one, request.nodes, tuple(request.core_counts), site)
    check_idle(site.state, one, one.nodes)
    _check_overlap(one, site.state)
    return one


def _name(text: str) -> str:
    if len(text) > 128 or set(text) - _NAME or text[:1] in ("-", "+"):
        raise BadReservation("a name has letters, digits and _ - . : @ + only")
    return text


def _plain(items: Sequence[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(item.strip() for item in items if item.strip()))
    if mixed(found):
        raise BadReservation("a list either lets in or, with - before each name, keeps out")
    return found


def _end(request: pb.CreateReservationRequest, start: float) -> float:
    if request.HasField("end_at"):
        return request.end_at
    if not request.HasField("duration_secs"):
        raise BadReservation("an end or a duration is missing")
    return start + _seconds(request.duration_secs)


def _seconds(duration: int) -> int:
    if duration == 0:
        raise BadReservation("its duration is zero")
    return UNLIMITED_SECS if duration == UNLIMITED else duration


def _purge(request: "pb.CreateReservationRequest | pb.UpdateReservationRequest", flag: bool) -> int | None:
    if request.HasField("purge_comp_secs"):
        return request.purge_comp_secs
    return PURGE_SECS if flag else None


def _licenses(text: str, state: ClusterState) -> tuple[tuple[str, int], ...]:
    if not text:
        return ()
    try:
        parsed = parse_licenses(text)
    except GrammarError as error:
        raise RequestError(error.text) from None
    total = dict(state.settings.licenses)
    if parsed.any_of or any(count > total.get(name, 0) for name, count in parsed.items):
        raise RequestError("Invalid license specification")
    return parsed.items


def _check_times(one: Reservation, now: float) -> None:
    bounds.instant(one.start_at)
    bounds.instant(one.end_at)
    if one.end_at <= one.start_at or one.end_at <= now or one.start_at < now - _LATE_SECS:
        raise RequestError("Invalid time specified")
    _check_period(one)


def _check_period(one: Reservation) -> None:
    if not one.repeat:
        return
    if one.floating is not None:
        raise BadReservation("one whose start moves on does not repeat")
    if one.first_end - one.first_start > PERIODS[one.repeat]:
        raise BadReservation(f"it lasts longer than {one.repeat} allows")


def _checked_access(one: Reservation, site: Site) -> Reservation:
    """With the members of its groups.

    Raises:
        RequestError: nobody is named, or somebody who is not there.
    """
    if not (one.users or one.accounts or one.groups):
        raise RequestError(NOBODY)
    if one.users and one.groups:
        raise BadReservation("users and groups exclude each other")
    if any(name.removeprefix("-") not in site.known_users for name in one.users):
        raise RequestError("Invalid user id")
    members: set[str] = set()
    for group in one.groups:
        found = site.members.get(group.removeprefix("-"))
        if found is None:
            raise RequestError("Invalid group id")
        members.update(found)
    return msgspec.structs.replace(one, members=tuple(sorted(members)))


def _with_nodes(one: Reservation, text: str, cores: tuple[int, ...], site: Site) -> Reservation:
    """With the nodes that are named, or chosen."""
    state = site.state
    if one.partition and one.partition not in site.partitions:
        raise RequestError("Invalid partition name specified")
    _check_features(one.features)
    if one.features and not _chooses(one, text, cores, state):
        raise BadReservation(NO_CHOICE)
    if "LICENSE_ONLY" in one.flags:
        if not one.licenses or text or one.node_count or cores:
            raise BadReservation("LICENSE_ONLY keeps licences, and no nodes")
        return msgspec.structs.replace(one, node_count=0, core_count=0)
    if text.upper() == "ALL":
        return _all_nodes(one, site)
    if "PART_NODES" in one.flags:
        raise BadReservation("PART_NODES needs PartitionName and Nodes=ALL")
    if text and not one.node_count:
        nodes = named(text, state)
        marked = words.ordered({*one.flags, "SPEC_NODES"})
        one = msgspec.structs.replace(one, nodes=nodes, flags=marked, node_count=0)
        return _some_cores(one, cores, site) if cores else one
    if one.node_count or cores:
        if not one.partition:
            default = [part.name for part in site.partitions.values() if part.default]
            first = default or list(site.partitions)[:1]
            one = msgspec.structs.replace(one, partition=first[0] if first else "")
        return chosen(one, site, named(text, state) if text else ())
    if one.licenses:
        return one
    raise BadReservation("neither nodes nor licences are named")


def _chooses(one: Reservation, text: str, cores: tuple[int, ...], state: ClusterState) -> bool:
    """Whether nodes are chosen for it, rather than taken as they are named."""
    if "LICENSE_ONLY" in one.flags or text.upper() == "ALL":
        return False
    if one.node_count or not text:
        return bool(one.node_count or cores)
    return bool(cores) and len(cores) != len(named(text, state))


def _all_nodes(one: Reservation, site: Site) -> Reservation:
    if "PART_NODES" in one.flags:
        if not one.partition:
            raise BadReservation("PART_NODES needs PartitionName and Nodes=ALL")
        return msgspec.structs.replace(
            one, nodes=in_order(site.partitions[one.partition].nodes), node_count=0
        )
    marked = words.ordered({*one.flags, "ALL_NODES"})
    return msgspec.structs.replace(one, nodes=in_order(site.state.nodes), flags=marked, node_count=0)


def _some_cores(one: Reservation, cores: tuple[int, ...], site: Site) -> Reservation:
    """Of each named node so many cores, or of all of them together."""
    nodes = site.state.nodes
    if len(cores) == len(one.nodes):
        cpus = []
        for name, count in zip(one.nodes, cores, strict=True):
            threads = max(1, nodes[name].threads_per_core)
            if not 0 < count * threads <= nodes[name].cpus:
                raise RequestError("Requested node configuration is not available")
            cpus.append((name, count * threads))
        return msgspec.structs.replace(one, cpus=tuple(cpus))
    if len(cores) != 1:
        raise BadReservation("CoreCnt has one number, or one for each node")
    return chosen(one, site, one.nodes)


def _check_features(text: str) -> None:
    if text:
        try:
            features.parse(text)
        except GrammarError:
            raise RequestError("Invalid feature specification") from None


def chosen(
    one: Reservation, site: Site, pool: Sequence[str] = (), avoid: frozenset[str] = frozenset()
) -> Reservation:
    """With nodes chosen by the numbers that it asks for.

    Raises:
        RequestError: there are not so many.
    """
    found = pick(site.state, site.partitions, one, pool, avoid=avoid)
    if found is None:
        raise RequestError("Requested nodes are busy")
    return msgspec.structs.replace(one, nodes=found.nodes, cpus=found.cpus)


def _check_overlap(one: Reservation, state: ClusterState) -> None:
    cpus = {name: node.cpus for name, node in state.nodes.items()}
    if conflict(model(one), map(model, state.reservations.values()), cpus) is not None:
        raise Overlaps
    total = dict(state.settings.licenses)
    for name, count in one.licenses:
        # All others at any time: licences are too few to be clever.
        kept = sum(
            dict(other.licenses).get(name, 0)
            for other in state.reservations.values()
            if other.name != one.name
        )
        if count + kept > total.get(name, 0):
            raise RequestError("Invalid license specification")


def update(request: pb.UpdateReservationRequest, old: Reservation, site: Site) -> Reservation:
    """The record as it is to be.

    Raises:
        RequestError: as `create`; or nothing to change.
    """
    bounds.check_texts(request)
    if len(request.ListFields()) < 2:
        raise RequestError("No changes specified")
    one = skipped(old) if request.skip else old
    one = _with_flags(one, request)
    one = _with_times(one, request, site.now)
    one = msgspec.structs.replace(
        one,
        users=_changed(one.users, request, "users"),
        accounts=_changed(one.accounts, request, "accounts"),
        groups=_changed(one.groups, request, "groups"),
        comment=request.comment if request.HasField("comment") else one.comment,
    )
    if request.HasField("licenses"):
        one = msgspec.structs.replace(one, licenses=_licenses(request.licenses, site.state))
    one = _checked_access(one, site)
    one = _new_nodes(one, request, site)
    if one.repeat and one.floating is not None:
        raise BadReservation("one whose start moves on does not repeat")
    added = set(one.nodes) - set(old.nodes)
    check_idle(site.state, one, one.nodes if one.start_at < old.start_at else added)
    if (one.nodes, one.cpus, one.licenses) != (old.nodes, old.cpus, old.licenses) or _when(one) != _when(old):
        _check_overlap(one, site.state)
    return one


def _when(one: Reservation) -> tuple[object, ...]:
    return one.start_at, one.end_at, one.first_start, one.first_end, one.repeat, "OVERLAP" in one.flags


def skipped(one: Reservation) -> Reservation:
    """On to its next occurrence."""
    span = following(
        Span(one.first_start, one.first_end), one.repeat, zone_of(one.zone), Span(one.start_at, one.end_at)
    )
    if span is None:
        raise BadReservation("only one that repeats can be skipped")
    return msgspec.structs.replace(one, start_at=span.start, end_at=span.end)


def _with_flags(one: Reservation, request: pb.UpdateReservationRequest) -> Reservation:
    if request.HasField("purge_comp_secs"):
        one = msgspec.structs.replace(one, purge_after=request.purge_comp_secs)
    if not request.HasField("flags"):
        return one
    have = {*one.flags, *([one.repeat] if one.repeat else [])}
    if one.purge_after is not None:
        have.add("PURGE_COMP")
    change = request.flags
    if change.replace:
        kept = have & {"SPEC_NODES", "ALL_NODES", "PART_NODES"}
        have = kept | {words.word(text) for text in change.set}
    have |= {words.word(text) for text in change.add}
    have -= {words.word(text) for text in change.remove}
    shown = have & {"ALL_NODES"}
    given = words.split(have - shown)
    if given.time_float and one.floating is None:
        raise BadReservation("TIME_FLOAT is for new ones only")
    first = {}
    if given.repeat != one.repeat:
        first = {"first_start": one.start_at, "first_end": one.end_at, "repeat": given.repeat}
    changed = msgspec.structs.replace(
        one,
        flags=words.ordered({*given.words, *shown}),
        purge_after=(one.purge_after or PURGE_SECS) if given.purge else None,
        **first,
    )
    _check_period(changed)
    return changed


def _with_times(one: Reservation, request: pb.UpdateReservationRequest, now: float) -> Reservation:
    start, end = one.start_at, one.end_at
    if request.HasField("start_at"):
        start = request.start_at
    if request.HasField("end_at"):
        end = request.end_at
    if request.HasField("duration_secs"):
        end = start + _seconds(request.duration_secs)
    if request.HasField("duration_delta_secs"):
        end += request.duration_delta_secs
    if (start, end) == (one.start_at, one.end_at):
        return one
    changed = msgspec.structs.replace(
        one,
        start_at=start,
        end_at=end,
        first_start=start,
        first_end=end,
        floating=None if one.floating is None else max(0.0, start - now),
    )
    if start != one.start_at:
        _check_times(changed, now)
    elif end <= start:
        raise RequestError("Invalid time specified")
    _check_period(changed)
    return changed


def _changed(have: tuple[str, ...], request: pb.UpdateReservationRequest, field: str) -> tuple[str, ...]:
    if not request.HasField(field):
        return have
    change: pb.ListChange = getattr(request, field)
    items = list(change.set) if change.replace else list(have)
    items += [name for name in change.add if name not in items]
    gone = {name.removeprefix("-") for name in change.remove}
    return _plain([name for name in items if name.removeprefix("-") not in gone])


def _new_nodes(one: Reservation, request: pb.UpdateReservationRequest, site: Site) -> Reservation:
    state = site.state
    if request.HasField("partition"):
        if request.partition and request.partition not in site.partitions:
            raise RequestError("Invalid partition name specified")
        one = msgspec.structs.replace(one, partition=request.partition)
    if request.HasField("features"):
        _check_features(request.features)
        counted = one.node_count or one.core_count or request.node_count or request.core_counts
        if request.features and (request.HasField("nodes") or not counted):
            raise BadReservation(NO_CHOICE)
        one = msgspec.structs.replace(one, features=request.features)
    if request.HasField("node_count") or request.core_counts:
        counts = {"node_count": request.node_count} if request.HasField("node_count") else {}
        if request.core_counts:
            counts["core_count"] = sum(request.core_counts)
        if not one.partition:
            counts["partition"] = next((part.name for part in site.partitions.values() if part.default), "")  # type: ignore[assignment]
        bare = tuple(word for word in one.flags if word not in ("SPEC_NODES", "ALL_NODES", "PART_NODES"))
        asked = msgspec.structs.replace(one, flags=bare, **counts)
        if not asked.node_count and not asked.core_count:
            if not asked.licenses:
                raise BadReservation("neither nodes nor licences are left")
            return msgspec.structs.replace(asked, nodes=(), cpus=None)
        return chosen(asked, site)
    if not request.HasField("nodes"):
        return one
    change = request.nodes
    if change.replace and [text.upper() for text in change.set] == ["ALL"]:
        return _all_nodes(msgspec.structs.replace(one, cpus=None), site)
    have = set(named(",".join(change.set), state) if change.set else ()) if change.replace else set(one.nodes)
    if change.add:
        have |= set(named(",".join(change.add), state))
    if change.remove:
        have -= set(named(",".join(change.remove), state))
    if not have and not one.licenses:
        raise BadReservation("no node is left")
    cpus = one.cpus
    if cpus is not None:
        part = dict(cpus)
        cpus = tuple((name, part.get(name, state.nodes[name].cpus)) for name in in_order(have))
    marked = words.ordered({*one.flags, "SPEC_NODES"} - {"ALL_NODES", "PART_NODES"})
    return msgspec.structs.replace(
        one, nodes=in_order(have), cpus=cpus, flags=marked, node_count=0, core_count=0
    )
