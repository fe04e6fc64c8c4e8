"""Hostlists: `n[1-3,5],c0[1-2]` and back.

Expanding keeps order and duplicates.  Compressing folds only the last run of digits of a name; the
sorted form, used for node lists and environment variables, is also free of duplicates and never has two
brackets for one prefix.
"""

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits

#: Names that one list may expand to.
MAX_HOSTS = 65536
#: A longer run of digits is a name, not a number.
_MAX_DIGITS = 18


def expand(text: str) -> list[str]:
    """All names of `text`, in its order.

    Raises:
        GrammarError: "Invalid hostlist: TEXT" (after a line "Invalid range: ITEM" for a bad range): text
            after the last bracket, unbalanced brackets, or more than 64k names.
    """
    names: list[str] = []
    for term in _terms(text):
        names.extend(_expand_term(term, text))
        if len(names) > MAX_HOSTS:
            raise _too_many(text)
    return names


def _terms(text: str) -> list[str]:
    """Split at commas and blanks outside brackets; empty terms vanish."""
    terms: list[str] = []
    start, inside = 0, False
    for at, char in enumerate(text):
        if char in "[]":
            # Brackets do not nest, and each closes before the next opens.
            if inside == (char == "["):
                raise _bad(text)
            inside = not inside
        elif char in ", \t\n\r" and not inside:
            terms.append(text[start:at])
            start = at + 1
    if inside:
        raise _bad(text)
    terms.append(text[start:])
    return [term for term in terms if term]


def _expand_term(term: str, whole: str) -> list[str]:
    if "[" not in term:
        return [term]
    names = [""]
    rest = term
    while "[" in rest:
        prefix, _, rest = rest.partition("[")
        inner, _, rest = rest.partition("]")
        parts = _ranges(inner, whole)
        if len(names) * len(parts) > MAX_HOSTS:
            raise _too_many(whole)
        names = [name + prefix + part for name in names for part in parts]
    if rest:
        raise _bad(whole)
    return names


def _ranges(inner: str, whole: str) -> list[str]:
    """The padded numbers between two brackets; the low end of a range gives its width."""
    out: list[str] = []
    for item in inner.split(","):
        low, dash, high = item.partition("-")
        first, last = digits(low, _MAX_DIGITS), digits(high if dash else low, _MAX_DIGITS)
        if first is None or last is None or last < first:
            raise GrammarError(f"Invalid range: {item or '[]'}\nInvalid hostlist: {whole}")
        if len(out) + last - first >= MAX_HOSTS:
            raise _too_many(whole)
        width = len(low)
        out.extend(f"{number:0{width}d}" for number in range(first, last + 1))
    return out


def _bad(whole: str) -> GrammarError:
    return GrammarError(f"Invalid hostlist: {whole}")


def _too_many(whole: str) -> GrammarError:
    shown = whole if len(whole) <= 80 else whole[:77] + "..."
    return GrammarError(f"Invalid hostlist: {shown}: more than {MAX_HOSTS} names")


def _split_name(name: str) -> tuple[str, str]:
    """(prefix, last digits); no digits when the name does not end in a run of them that is a number."""
    at = len(name.rstrip("0123456789"))
    return (name[:at], name[at:]) if len(name) - at <= _MAX_DIGITS else (name, "")


def compress(names: list[str]) -> str:
    """Fold neighbours, order kept: `n3,n1,n2` becomes `n[3,1-2]`."""
    out: list[str] = []
    prefix, group = "", list[str]()
    for name in names:
        own_prefix, own_digits = _split_name(name)
        if group and (own_prefix != prefix or not own_digits):
            out.append(prefix + _fold(group))
            group = []
        if own_digits:
            prefix = own_prefix
            group.append(own_digits)
        else:
            out.append(name)
    if group:
        out.append(prefix + _fold(group))
    return ",".join(out)


def _fold(group: list[str]) -> str:
    """The bracket of these numbers; a single one stands without brackets."""
    if len(group) == 1:
        return group[0]
    parts: list[str] = []
    start = end = group[0]
    number = int(start)
    for following in group[1:]:
        next_number = int(following)
        if next_number == number + 1 and _same_padding(end, following):
            end = following
        else:
            parts.append(start if start is end else f"{start}-{end}")
            start = end = following
        number = next_number
    parts.append(start if start is end else f"{start}-{end}")
    return "[" + ",".join(parts) + "]"


def _same_padding(left: str, right: str) -> bool:
    """Whether a range may run from `left` to the next number `right`: equal widths, or no padding at all."""
    if len(left) == len(right):
        return True
    return (left[0] != "0" or left == "0") and right[0] != "0"


def _natural(text: str) -> tuple["str | int", ...]:
    """Text and numbers in turn, so that rack2 sorts before rack10; text stands at even places."""
    parts: list[str | int] = []
    start, at = 0, 0
    while at < len(text):
        if "0" <= text[at] <= "9":
            end = at
            while end < len(text) and "0" <= text[end] <= "9" and end - at < _MAX_DIGITS:
                end += 1
            parts += [text[start:at], int(text[at:end])]
            start = at = end
        else:
            at += 1
    parts.append(text[start:])
    return tuple(parts)


def natural_key(name: str) -> tuple[tuple["str | int", ...], str, int, int]:
    """Sort key of a node name: prefix (its numbers as numbers), then number, then shorter padding first."""
    prefix, number = _split_name(name)
    return (_natural(prefix), prefix, int(number), len(number)) if number else (_natural(name), name, -1, 0)


def compress_sorted(names: "list[str] | tuple[str, ...] | set[str] | frozenset[str]") -> str:
    """Sorted, without duplicates, folded: what node lists and environment variables hold."""
    families: dict[str, list[str]] = {}
    for name in set(names):
        prefix, number = _split_name(name)
        families.setdefault(prefix, []).append(number)
    out: list[str] = []
    for prefix in sorted(families, key=lambda prefix: (_natural(prefix), prefix)):
        numbers = families[prefix]
        if "" in numbers:
            numbers.remove("")
            out.append(prefix)
        if numbers:
            numbers.sort(key=lambda number: (int(number), len(number)))
            out.append(prefix + _fold(numbers))
    return ",".join(out)
