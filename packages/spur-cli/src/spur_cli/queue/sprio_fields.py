"""Every column of sprio: header, text, sort key."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spur_proto import controller_pb2

    Row = controller_pb2.JobPriority
    Factors = controller_pb2.PriorityFactors

#: Letter -> (header, name of the factor), lower case for the normalized, upper case for the weighted one.
FACTORS = {
    "A": ("AGE", "age"),
    "B": ("ASSOC", "assoc"),
    "F": ("FAIRSHARE", "fairshare"),
    "J": ("JOBSIZE", "job_size"),
    "P": ("PARTITION", "partition"),
    "Q": ("QOS", "qos"),
}
_HIGHEST = 4294967295


def normalized(row: "Row") -> "Factors":
    """From 0 to 1."""
    return row.normalized


def weighted(row: "Row") -> "Factors":
    """With the weights."""
    return row.weighted


def tres_text(tres: Any, form: str) -> str:
    """`cpu=12,gres/gpu=3`."""
    return ",".join(f"{name}={tres[name]:{form}}" for name in sorted(tres))


#: What is no factor: header, text of a row, sort key.
OTHERS: dict[str, tuple[str, Callable[["Row"], str], Callable[["Row"], Any]]] = {
    "c": ("CLUSTER", lambda row: "", lambda row: ""),
    "i": ("JOBID", lambda row: str(row.job_id), lambda row: row.job_id),
    "n": ("QOSNAME", lambda row: row.qos, lambda row: row.qos),
    "N": ("NICE", lambda row: str(row.nice), lambda row: row.nice),
    "o": ("ACCOUNT", lambda row: row.account, lambda row: row.account),
    "r": ("PARTITION", lambda row: row.partition, lambda row: row.partition),
    "s": ("SLUID", lambda row: "", lambda row: ""),
    "S": ("SITE", lambda row: str(row.site_factor), lambda row: row.site_factor),
    "t": ("TRES", lambda row: tres_text(row.normalized.tres, ".2f"), lambda row: sum_of(row.normalized)),
    "T": ("TRES", lambda row: tres_text(row.weighted.tres, ".0f"), lambda row: sum_of(row.weighted)),
    "u": ("USER", lambda row: row.user or str(row.uid), lambda row: row.user),
    "y": ("PRIORITY", lambda row: f"{row.priority / _HIGHEST:.14f}", lambda row: row.priority),
    "Y": ("PRIORITY", lambda row: str(row.priority), lambda row: row.priority),
}
LETTERS = frozenset(OTHERS) | frozenset(FACTORS) | frozenset(letter.lower() for letter in FACTORS)


def sum_of(factors: "Factors") -> float:
    """Of all TRES."""
    return float(sum(factors.tres.values()))


def header(letter: str) -> str:
    """The head of a column."""
    found = OTHERS.get(letter)
    return found[0] if found is not None else FACTORS[letter.upper()][0]


def text(letter: str) -> "Callable[[Row], str]":
    """What stands in a column; a set priority is made of nothing."""
    found = OTHERS.get(letter)
    if found is not None:
        return found[1]
    name = FACTORS[letter.upper()][1]
    if letter.isupper():
        return lambda row: f"{getattr(row.weighted, name):.0f}"
    return lambda row: f"{getattr(row.normalized, name):.7f}"


def key(letter: str) -> "Callable[[Row], Any]":
    """What a column is sorted by."""
    found = OTHERS.get(letter)
    if found is not None:
        return found[2]
    name = FACTORS[letter.upper()][1]
    of = weighted if letter.isupper() else normalized
    return lambda row: getattr(of(row), name)


def weight(letter: str, weights: "Factors") -> str:
    """What stands in a column of `sprio -w`."""
    if letter == "i":
        return "Weights"
    if letter == "S":
        return "1"
    if letter in "tT":
        return tres_text(weights.tres, ".0f")
    found = FACTORS.get(letter.upper()) if letter not in OTHERS else None
    return f"{getattr(weights, found[1]):.0f}" if found is not None else ""


def default_format(weights: "Factors", *, long: bool, norm: bool) -> str:
    """Slurm's default columns: of the factors those that have a weight, with `long` all."""
    head = "%.15i %9r" + (" %.8u %.8o" if long else "")
    head += " %10y %.10S" if norm else " %.10Y %.10S"
    found = [head]
    for letter, (_, name) in FACTORS.items():
        if letter == "Q" and long:
            found.append("%.10n")
        if long or getattr(weights, name):
            found.append(f"%10{letter.lower()}" if norm else f"%.10{letter}")
    if long:
        found.append("%.11N")
    if long or weights.tres:
        found.append("%20t" if norm else "%.20T" if long else "%20T")
    return " ".join(found)


def sort(rows: "list[Row]", spec: str) -> None:
    """Sort in place by letters, "-" before one for descending.

    Raises:
        ValueError: a letter nobody knows; its text is the letter.
    """
    keys, descending = [], False
    for char in spec:
        if char in "+-":
            descending = char == "-"
        elif char not in ", ":
            if char not in LETTERS:
                raise ValueError(char)
            keys.append((char, descending))
            descending = False
    for letter, reverse in reversed(keys):
        rows.sort(key=key(letter), reverse=reverse)
