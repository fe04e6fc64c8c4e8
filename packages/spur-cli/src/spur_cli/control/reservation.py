"""`scontrol create | update | delete reservation`: key=value words to requests."""

from typing import TYPE_CHECKING, Any, Final

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.control.show import Connect
from spur_core.errors import GrammarError

if TYPE_CHECKING:
    from spur_proto import controller_pb2

UNLIMITED: Final = 0xFFFFFFFF
_NOT_MADE: Final = "No reservation created."
Fields = dict[str, Any]

#: Keys, and the words that may stand for them; unique beginnings of a key will do too, as in Slurm.
_KEYS: Final = (
    "accounts allowedpartitions burstbuffer comment corecnt duration endtime features flags groups licenses"
    " maxstartdelay nodecnt nodes partitionname qos skip starttime tres trespernode users"
)
KEYS: Final = _KEYS.split()
#: Slurm's, not ours.
LATER: Final = frozenset({"allowedpartitions", "burstbuffer", "maxstartdelay", "qos", "trespernode"})
#: Lists that `+=` and `-=` change.
_LISTS: Final = frozenset({"users", "accounts", "groups", "flags", "nodes"})


def create(ctx: Context, connect: Connect, words: list[str]) -> int:
    """`create reservation KEY=VALUE ...`; `words` follow `create`."""
    from spur_proto import controller_pb2 as pb

    words, name = _subject(words)
    fields: Fields = {"name": name}
    for word in words:
        key, sign, value = _pair(ctx, word)
        if sign:
            raise _unknown(word, _NOT_MADE)
        try:
            _put(ctx, fields, key, value, word)
        except GrammarError as error:
            raise Stop(1, f"{error.text}.  {_NOT_MADE}") from None
    _whole(fields)
    if "start_at" not in fields:
        raise Stop(1, f"A start time must be given.  {_NOT_MADE}")
    try:
        answer = connect().call(
            "CreateReservation", pb.CreateReservationRequest(**fields), pb.CreateReservationResponse
        )
    except CallFailed as failure:
        raise Stop(1, f"Error creating the reservation: {failure.text}") from None
    ctx.out(f"Reservation created: {answer.name}\n")
    return 0


def _whole(fields: Fields) -> None:
    """What Slurm's own command asks for before it calls."""
    if "start_at" not in fields:
        return
    if "end_at" not in fields and "duration_secs" not in fields:
        raise Stop(1, f"An end time or duration must be given.  {_NOT_MADE}")
    if "end_at" in fields and fields.get("duration_secs") is not None:
        if fields["start_at"] + fields["duration_secs"] != fields["end_at"]:
            raise Stop(1, f"StartTime, EndTime, and Duration are not consistent.  {_NOT_MADE}")
        del fields["duration_secs"]
    if not any(name in fields for name in ("nodes", "node_count", "core_counts", "licenses")):
        raise Stop(1, f"Nodes, NodeCnt, CoreCnt or Licenses must be specified.  {_NOT_MADE}")
    if not any(fields.get(name) for name in ("users", "accounts", "groups")):
        raise Stop(1, f"Either Users/Groups and/or Accounts must be specified.  {_NOT_MADE}")


def _subject(words: list[str]) -> tuple[list[str], str]:
    """The words without what says that it is about a reservation, and its name."""
    rest, name = [], ""
    for at, word in enumerate(words):
        key, equals, value = word.partition("=")
        lower = key.lower()
        if lower and ("reservationname".startswith(lower) and len(lower) >= 3 and equals):
            name = value
        elif at == 0 and not equals and "reservation".startswith(lower):
            continue
        else:
            rest.append(word)
    return rest, name


def is_reservation(word: str) -> bool:
    """Whether `create` or `delete` is about one: `reservation`, `res`, `ReservationName=x`."""
    lower = word.partition("=")[0].lower()
    return len(lower) >= 3 and "reservationname".startswith(lower)


def _pair(ctx: Context, word: str) -> tuple[str, str, str]:
    """(key, sign, value)."""
    key, equals, value = word.partition("=")
    sign = key[-1:] if equals and key[-1:] in ("+", "-") else ""
    lower = (key[:-1] if sign else key).lower()
    if not equals and lower == "skip":
        return "skip", "", ""
    exact = [lower] if lower in KEYS else [name for name in KEYS if lower and name.startswith(lower)]
    if not equals or len(exact) != 1:
        raise _unknown(word, "Request aborted")
    if exact[0] in LATER:
        raise ctx.stop(f"{key} is not supported by this release")
    return exact[0], sign, value


def _unknown(word: str, end: str) -> Stop:
    return Stop(1, f"Update of this parameter is not supported: {word}", end)


def _split(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]


def _number(value: str) -> int:
    factor = 1024 if value[-1:] in ("k", "K") else 1
    digits = value[:-1] if factor > 1 else value
    if not (digits.isascii() and digits.isdigit()) or int(digits) * factor >= UNLIMITED:
        raise GrammarError(f"Invalid number: {value}")
    return int(digits) * factor


def _seconds(value: str) -> int:
    from spur_core.grammar.timelimit import parse_time_limit

    try:
        limit = parse_time_limit(value)
    except GrammarError:
        raise GrammarError(f"Invalid time specification: {value}") from None
    return UNLIMITED if limit is None else limit


def _lasting(value: str) -> int:
    """Seconds of a duration, in which 0 is no word for endless, other than in a job's limit."""
    found = _seconds(value)
    if found == UNLIMITED and value[:1].isdigit():
        raise GrammarError(f"Invalid duration: {value} (write a time, such as 1:00:00, or UNLIMITED)")
    return found


def _put(ctx: Context, fields: Fields, key: str, value: str, word: str) -> None:
    """What one word of `create` sets; also the plain values of `update`.

    Raises:
        GrammarError: a value that cannot be used.
    """
    if key in ("starttime", "endtime"):
        from spur_core.grammar.instant import parse_instant

        fields["start_at" if key == "starttime" else "end_at"] = parse_instant(value, ctx.clock())
    elif key == "duration":
        fields["duration_secs"] = _lasting(value)
    elif key == "nodecnt":
        # Several counts are for topologies that come in pieces; what matters is their sum.
        fields["node_count"] = sum(_number(item) for item in _split(value))
    elif key == "corecnt":
        fields["core_counts"] = [_number(item) for item in _split(value)]
    elif key == "tres":
        _tres(fields, value)
    elif key == "flags":
        words, purge = _flags(value)
        fields["flags"] = words
        if purge is not None:
            fields["purge_comp_secs"] = purge
    elif key in ("users", "accounts", "groups"):
        fields[key] = _split(value)
    elif key == "partitionname":
        fields["partition"] = value
    elif key in ("features", "licenses", "comment", "nodes"):
        fields[key] = value
    else:
        raise _unknown(word, "Request aborted")


def _flags(value: str) -> tuple[list[str], int | None]:
    """(words, seconds of PURGE_COMP where they are given)."""
    words, purge = [], None
    for item in _split(value):
        name, equals, time = item.partition("=")
        words.append(name.lstrip("+") if not item.startswith("-") else item)
        if equals:
            if not name.upper().startswith("PURGE"):
                raise GrammarError(f"Invalid reservation flag: {item}")
            purge = _seconds(time)
    return words, purge


def _tres(fields: Fields, value: str) -> None:
    licenses = []
    for item in _split(value):
        name, equals, count = item.partition("=")
        lower = name.lower()
        if not equals:
            raise GrammarError(f"Invalid TRES specification: {item}")
        if lower == "cpu":
            fields["core_counts"] = [_number(count)]
        elif lower == "node":
            fields["node_count"] = _number(count)
        elif lower.startswith("license/"):
            licenses.append(f"{name[8:]}:{_number(count)}")
        else:
            raise GrammarError(
                f"TRES={item} is not supported by this release (cpu, node and license/NAME are)"
            )
    if licenses:
        fields["licenses"] = ",".join(licenses)


def update(ctx: Context, connect: Connect, name: str, words: list[str]) -> int:
    """`update ReservationName=NAME KEY=VALUE ...`; `words` follow the name."""
    from spur_proto import controller_pb2 as pb

    fields: Fields = {}
    lists: dict[str, controller_pb2.ListChange] = {}
    for word in words:
        key, sign, value = _pair(ctx, word)
        try:
            if key == "skip":
                if value.lower() in ("", "yes", "y", "1"):
                    fields["skip"] = True
                elif value.lower() not in ("no", "n", "0"):
                    raise GrammarError(f"Invalid value, use yes or no: {value}")
            elif key in _LISTS:
                _change(lists.setdefault(key, pb.ListChange()), fields, key, sign, value)
            elif key == "duration" and (sign or value[:1] in ("+", "-")):
                amount = _lasting(value.lstrip("+-"))
                fields["duration_delta_secs"] = -amount if "-" in (sign, value[:1]) else amount
            elif sign:
                raise _unknown(word, "Request aborted")
            else:
                _put(ctx, fields, key, value, word)
        except GrammarError as error:
            raise Stop(1, error.text, "Request aborted") from None
    fields.update(lists)
    if not fields:
        raise Stop(1, "No changes specified")
    try:
        request = pb.UpdateReservationRequest(name=name, **fields)
        connect().call("UpdateReservation", request, pb.UpdateReservationResponse)
    except CallFailed as failure:
        raise Stop(1, f"Error updating the reservation: {failure.text}") from None
    ctx.out("Reservation updated.\n")
    return 0


def _change(change: "controller_pb2.ListChange", fields: Fields, key: str, sign: str, value: str) -> None:
    """One word about a list: `users=a,b`, `users+=c`, `users=+c,-a`, `flags-=MAINT`."""
    if key == "nodes":
        words, purge = [value], None
        if not sign and value[:1] in ("+", "-"):
            sign, words = value[0], [value[1:]]
    else:
        words, purge = _flags(value) if key == "flags" else (_split(value), None)
    if purge is not None:
        fields["purge_comp_secs"] = purge
    if sign:
        (change.add if sign == "+" else change.remove).extend(words)
        return
    if key == "flags" and any(word.startswith("-") for word in words):
        change.remove.extend(word[1:] for word in words if word.startswith("-"))
        change.add.extend(word for word in words if not word.startswith("-"))
        return
    if key in ("users", "accounts", "groups") and any(word.startswith("+") for word in words):
        change.add.extend(word[1:] for word in words if word.startswith("+"))
        change.remove.extend(word[1:] for word in words if word.startswith("-"))
        return
    change.replace = True
    change.set.extend(words)


def delete(ctx: Context, connect: Connect, words: list[str]) -> int:
    """`delete reservation NAME`, `delete ReservationName=NAME`; `words` follow `delete`."""
    from spur_proto import controller_pb2 as pb

    first, equals, name = words[0].partition("=")
    rest = words[1:]
    if not equals and rest:
        name, rest = rest[0].partition("=")[2] or rest[0], rest[1:]
    if not name:
        raise ctx.stop("delete: a reservation's name is missing; use delete ReservationName=NAME")
    if rest:
        raise ctx.stop(f"too many arguments for keyword:delete: {' '.join(rest)}")
    try:
        connect().call(
            "DeleteReservation", pb.DeleteReservationRequest(name=name), pb.DeleteReservationResponse
        )
    except CallFailed as failure:
        shown = f"{first.lower()}={name}" if equals else f"reservationname={name}"
        raise Stop(1, f"delete_reservation {shown}: {failure.text}") from None
    return 0
