"""Generic resources: `--gres=gpu:h100:2,shard:4`, per node; and what a node has."""

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits

_SUFFIX = {"k": 1024, "m": 1024**2, "g": 1024**3}
#: (name, type or "", count)
GresItem = tuple[str, str, int]


def parse_gres(text: str) -> list[GresItem]:
    """Items of `name[[:type]:count]`, in order; equal (name, type) are added up; `none` is nothing.

    Raises:
        GrammarError: "Invalid generic resource (gres) specification".
    """
    totals: dict[tuple[str, str], int] = {}
    for item in text.split(","):
        word = item.strip().removeprefix("gres/").removeprefix("gres:")
        if not word:
            raise bad_gres()
        if word.lower() == "none":
            continue
        name, kind, count = _item(word)
        totals[name, kind] = totals.get((name, kind), 0) + count
    return [(name, kind, count) for (name, kind), count in totals.items() if count]


def _item(word: str) -> GresItem:
    name, *rest = word.replace("=", ":").split(":")
    if not _is_name(name) or len(rest) > 2:
        raise bad_gres()
    if not rest:
        return name, "", 1
    count = parse_count(rest[-1])
    if len(rest) == 1 and count is not None:
        return name, "", count
    if len(rest) == 1 and _is_name(rest[0]):
        return name, rest[0], 1
    if len(rest) == 1 or count is None or not _is_type(rest[0]):
        raise bad_gres()
    return name, rest[0], count


def parse_gpus(text: str) -> list[GresItem]:
    """`[type:]N[,type:N...]` of the `--gpus*` options as `gpu` items; `gpu:N` and `any:N` have no type.

    Raises:
        GrammarError: as `parse_gres`.
    """
    totals: dict[str, int] = {}
    for item in text.split(","):
        kind, colon, number = item.strip().rpartition(":")
        count = parse_count(number)
        if count is None or (colon and not _is_type(kind)):
            raise bad_gres()
        kind = "" if kind in ("gpu", "any") else kind
        totals[kind] = totals.get(kind, 0) + count
    return [("gpu", kind, count) for kind, count in totals.items() if count]


def format_gres(items: "list[GresItem] | tuple[GresItem, ...]") -> str:
    """`gpu:h100:2,shard:4`."""
    return ",".join(f"{name}:{kind}:{count}" if kind else f"{name}:{count}" for name, kind, count in items)


def parse_count(text: str) -> int | None:
    """A count with an optional suffix k, m or g; None when it is none."""
    factor = _SUFFIX.get(text[-1:].lower())
    number = digits(text if factor is None else text[:-1], 15)
    return None if number is None else number * (factor or 1)


def _is_name(text: str) -> bool:
    """A name begins with a letter, so that it is never a count."""
    return text[:1].isalpha() and _is_word(text)


def _is_type(text: str) -> bool:
    """A type that has its place may begin with a digit (`1g.5gb`), but it is no count."""
    return _is_word(text) and parse_count(text) is None


def _is_word(text: str) -> bool:
    return bool(text) and all(char.isalnum() or char in "_-./" for char in text)


def bad_gres() -> GrammarError:
    """The error of every text that is no gres."""
    return GrammarError("Invalid generic resource (gres) specification")
