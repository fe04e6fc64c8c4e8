"""Generic resources: `--gres=gpu:h100:2,shard:4`, per node; and what a node has."""

from spur_core.errors import GrammarError

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
            raise _bad()
        if word.lower() == "none":
            continue
        name, gres_type, count = _item(word)
        totals[name, gres_type] = totals.get((name, gres_type), 0) + count
    return [(name, gres_type, count) for (name, gres_type), count in totals.items() if count]


def _item(word: str) -> GresItem:
    parts = word.replace("=", ":").split(":")
    if not all(parts) or len(parts) > 3 or not _is_name(parts[0]):
        raise _bad()
    if len(parts) == 1:
        return parts[0], "", 1
    count = _count(parts[-1])
    if len(parts) == 2:
        return (parts[0], "", count) if count is not None else (parts[0], _type(parts[1]), 1)
    if count is None:
        raise _bad()
    return parts[0], _type(parts[1]), count


def parse_gpus(text: str) -> list[GresItem]:
    """`[type:]N[,type:N...]` of the `--gpus*` options as `gpu` items.

    Raises:
        GrammarError: as `parse_gres`.
    """
    return parse_gres(",".join("gpu:" + part.strip() for part in text.split(",")))


def format_gres(items: list[GresItem]) -> str:
    """`gpu:h100:2,shard:4`."""
    return ",".join(f"{name}:{kind}:{count}" if kind else f"{name}:{count}" for name, kind, count in items)


def _count(text: str) -> int | None:
    factor = 1
    if text and text[-1].lower() in _SUFFIX and text[:-1].isdigit():
        factor, text = _SUFFIX[text[-1].lower()], text[:-1]
    return int(text) * factor if text.isascii() and text.isdigit() and len(text) < 16 else None


def _type(text: str) -> str:
    if not _is_name(text):
        raise _bad()
    return text


def _is_name(text: str) -> bool:
    return bool(text) and not text[0].isdigit() and all(c.isalnum() or c in "_-./" for c in text)


def _bad() -> GrammarError:
    return GrammarError("Invalid generic resource (gres) specification")
