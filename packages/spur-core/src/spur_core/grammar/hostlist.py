"""Hostlists: `n[1-3,5],c0[1-2]` and back.

Expanding keeps order and duplicates.  Compressing folds only the last run of digits of a name; the
sorted form, used for node lists and environment variables, is also free of duplicates and never has two
brackets for one prefix.
"""

from spur_core.errors import GrammarError

#: Names that one list may expand to.
MAX_HOSTS = 65536


def expand(text: str) -> list[str]:
    """All names of `text`, in its order.

    Raises:
        GrammarError: a bad range, text after the last bracket, or more than 64k names.
    """
    names: list[str] = []
    for term in _terms(text):
        names.extend(_expand_term(term, text))
        if len(names) > MAX_HOSTS:
            raise GrammarError(f"Invalid hostlist: {text}: more than {MAX_HOSTS} names")
    return names


def _terms(text: str) -> list[str]:
    """Split at commas and blanks outside brackets."""
    terms, depth, current = [], 0, ""
    for char in text:
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        if depth not in (0, 1):
            raise GrammarError(f"Invalid hostlist: {text}")
        if depth == 0 and char in ", \t\n":
            if current:
                terms.append(current)
            current = ""
        else:
            current += char
    if depth:
        raise GrammarError(f"Invalid hostlist: {text}")
    if current:
        terms.append(current)
    return terms


def _expand_term(term: str, whole: str) -> list[str]:
    if "[" not in term:
        if "]" in term:
            raise GrammarError(f"Invalid hostlist: {whole}")
        return [term]
    names = [""]
    rest = term
    while "[" in rest:
        prefix, _, rest = rest.partition("[")
        inner, _, rest = rest.partition("]")
        parts = _ranges(inner, whole)
        if len(names) * len(parts) > MAX_HOSTS:
            raise GrammarError(f"Invalid hostlist: {whole}: more than {MAX_HOSTS} names")
        names = [name + prefix + part for name in names for part in parts]
    if rest:
        raise GrammarError(f"Invalid hostlist: {whole}")
    return names


def _ranges(inner: str, whole: str) -> list[str]:
    out: list[str] = []
    for item in inner.split(","):
        low, dash, high = item.partition("-")
        if not low.isdigit() or not low.isascii() or (dash and not (high.isdigit() and high.isascii())):
            raise GrammarError(f"Invalid range: {item or '[]'}\nInvalid hostlist: {whole}")
        first, last = int(low), int(high) if dash else int(low)
        if last < first or last - first >= MAX_HOSTS:
            raise GrammarError(f"Invalid range: {item}\nInvalid hostlist: {whole}")
        out.extend(f"{number:0{len(low)}d}" for number in range(first, last + 1))
    return out


def _split_name(name: str) -> tuple[str, str]:
    """(prefix, last digits); digits empty when the name does not end in one."""
    at = len(name)
    while at and name[at - 1].isascii() and name[at - 1].isdigit():
        at -= 1
    return name[:at], name[at:]


def compress(names: list[str]) -> str:
    """Fold neighbours, order kept: `n3,n1,n2` becomes `n[3,1-2]`."""
    out: list[str] = []
    at = 0
    while at < len(names):
        prefix, digits = _split_name(names[at])
        if not digits:
            out.append(names[at])
            at += 1
            continue
        group = [digits]
        at += 1
        while at < len(names):
            next_prefix, next_digits = _split_name(names[at])
            if next_prefix != prefix or not next_digits:
                break
            group.append(next_digits)
            at += 1
        out.append(prefix + _fold(group))
    return ",".join(out)


def _fold(group: list[str]) -> str:
    if len(group) == 1:
        return group[0]
    parts: list[str] = []
    at = 0
    while at < len(group):
        start = end = at
        while end + 1 < len(group) and _follows(group[end], group[end + 1]):
            end += 1
        parts.append(group[start] if start == end else f"{group[start]}-{group[end]}")
        at = end + 1
    return "[" + ",".join(parts) + "]"


def _follows(left: str, right: str) -> bool:
    """Whether a range may run from `left` to `right`: the next number at the same padding."""
    if int(right) != int(left) + 1:
        return False
    padded = left[0] == "0" and len(left) > 1
    if padded or (right[0] == "0" and len(right) > 1):
        return len(left) == len(right)
    return True


def natural_key(name: str) -> tuple[str, int, int, str]:
    """Sort key: by prefix, then digits as a number, shorter padding first."""
    prefix, digits = _split_name(name)
    if not digits:
        return (name, -1, 0, "")
    # Unequal padding is another family of names: n[1,01], not interleaved.
    padding = len(digits) if digits[0] == "0" and len(digits) > 1 else 0
    return (prefix, int(digits), padding, digits)


def _sort_key(name: str) -> tuple[str, int, int, int]:
    prefix, digits = _split_name(name)
    if not digits:
        return (name, 0, -1, 0)
    return (prefix, 0, int(digits), len(digits))


def compress_sorted(names: list[str]) -> str:
    """Sorted, without duplicates, folded: what node lists and environment variables hold."""
    return compress(sorted(set(names), key=_sort_key))
