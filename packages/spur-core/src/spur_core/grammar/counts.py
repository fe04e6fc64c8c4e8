"""Counts and small words of the submit options."""

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits
from spur_core.grammar.signals import parse_signal, parse_warn_signal, signal_name
from spur_core.grammar.timelimit import parse_time_limit

__all__ = [
    "MAIL_ALL",
    "MAIL_TYPES",
    "parse_distribution",
    "parse_exclusive",
    "parse_mail_type",
    "parse_nice",
    "parse_node_count",
    "parse_node_sizes",
    "parse_open_mode",
    "parse_positive",
    "parse_priority",
    "parse_shape",
    "parse_signal",
    "parse_switches",
    "parse_warn_signal",
    "signal_name",
]

_NICE_LIMIT = 2147483645
_MULTIPLIERS = {"k": 1024, "m": 1024 * 1024}
MAIL_TYPES = (
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "ALL",
    "INVALID_DEPEND",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
)
#: What ALL stands for.
MAIL_ALL = ("BEGIN", "END", "FAIL", "INVALID_DEPEND", "REQUEUE", "STAGE_OUT")
#: Priorities are 32-bit; the two highest values mean "not set" and "infinite".
_MAX_PRIORITY = 0xFFFFFFFD
#: Slurm's largest node count.
_MAX_NODES = 0xFFFFFFFD


def _count(text: str) -> int | None:
    factor = _MULTIPLIERS.get(text[-1:].lower())
    number = digits(text if factor is None else text[:-1], 9)
    return None if number is None else number * (factor or 1)


def parse_node_count(text: str) -> tuple[int, int]:
    """(min, max) of `min[-max]` or of a size list such as `2,4-8:2`; one number means both.

    Zero is a count here: whether it can be satisfied is for the controller to say.

    Raises:
        GrammarError: not a count, or max below min.
    """
    return parse_node_sizes(text)[:2]


def parse_node_sizes(text: str) -> tuple[int, int, tuple[tuple[int, int, int], ...]]:
    """(min, max, sizes) of `-N`: `sizes` are runs (first, last, step) of allowed counts.

    Empty `sizes` mean that every count from min to max will do.

    Raises:
        GrammarError: not a count, or max below min.
    """
    runs: list[tuple[int, int, int]] = []
    for item in text.split(","):
        span, colon, step_text = item.partition(":")
        low_text, dash, high_text = span.partition("-")
        low = _count(low_text)
        high = _count(high_text) if dash else low
        step = digits(step_text, 9) if colon else 1
        if low is None or high is None or not step or (colon and not dash):
            raise GrammarError(f'invalid number of nodes (-N "{text}")')
        if high < low:
            raise GrammarError(f"Maximum node count {high} is less than minimum node count {low}")
        runs.append((low, high - (high - low) % step, step))
    lowest, highest = min(run[0] for run in runs), max(run[1] for run in runs)
    if highest > _MAX_NODES:
        raise GrammarError(f'invalid number of nodes (-N "{text}")')
    return lowest, highest, () if len(runs) == 1 and runs[0][2] == 1 else tuple(sorted(runs))


def parse_positive(text: str, option: str) -> int:
    """A whole number above zero.

    Raises:
        GrammarError: Slurm's sentence naming the option.
    """
    number = digits(text, 9)
    if not number:
        raise GrammarError(f'Invalid numeric value "{text}" for {option}.')
    return number


def parse_nice(text: str | None) -> int:
    """`--nice[=N]`, default 100; larger is less urgent.

    Raises:
        GrammarError: not a number within Slurm's limits.
    """
    if text is None or text == "":
        return 100
    number = digits(text[1:] if text[0] in "+-" else text, 12)
    if number is None:
        raise GrammarError(f'Invalid numeric value "{text}" for --nice.')
    if number > _NICE_LIMIT:
        raise GrammarError(f"Invalid nice value, must be between -{_NICE_LIMIT} and {_NICE_LIMIT}")
    return -number if text[0] == "-" else number


def parse_priority(text: str) -> "int | str":
    """A number, or `TOP`.

    Raises:
        GrammarError: "Invalid --priority specification".
    """
    if text.upper() == "TOP":
        return "TOP"
    number = digits(text, 10)
    if number is None or number > _MAX_PRIORITY:
        raise GrammarError("Invalid --priority specification")
    return number


def parse_exclusive(text: str | None) -> str:
    """`node` for a bare `--exclusive`, else `user`, `mcs` or `topo`.

    Raises:
        GrammarError: "Invalid --exclusive specification".
    """
    if text is None or text == "":
        return "node"
    word = text.lower()
    if word not in ("user", "mcs", "topo"):
        raise GrammarError("Invalid --exclusive specification")
    return word


def parse_open_mode(text: str) -> str:
    """`append` or `truncate`, any case; a prefix is enough.

    Raises:
        GrammarError: "Invalid --open-mode specification".
    """
    word = text.lower()
    for mode in ("append", "truncate"):
        if word and mode.startswith(word):
            return mode
    raise GrammarError("Invalid --open-mode specification")


def parse_mail_type(text: str) -> list[str]:
    """Upper-case event names, ALL spelled out, each once; NONE is no event.

    Raises:
        GrammarError: "Invalid --mail-type specification".
    """
    found: dict[str, None] = {}
    for word in text.upper().split(","):
        name = word.strip()
        if name not in MAIL_TYPES:
            raise GrammarError("Invalid --mail-type specification")
        if name == "NONE":
            found.clear()
        else:
            found.update(dict.fromkeys(MAIL_ALL if name == "ALL" else (name,)))
    return list(found)


def parse_shape(text: str) -> tuple[int | None, int | None, int | None]:
    """`-B sockets[:cores[:threads]]`; `*` or a missing field is None.

    Raises:
        GrammarError: "invalid resource allocation -B `X'".
    """
    parts = text.split(":")
    fields = [None if part == "*" else _count(part) for part in parts]
    if len(parts) > 3 or any(not field and part != "*" for part, field in zip(parts, fields)):
        raise GrammarError(f"invalid resource allocation -B `{text}'")
    fields += [None] * (3 - len(fields))
    return fields[0], fields[1], fields[2]


#: Words of each level: over nodes, over sockets, over cores.
_NODE_LEVEL = ("block", "cyclic", "arbitrary", "*")
_INNER_LEVEL = ("block", "cyclic", "fcyclic", "*")


def parse_switches(text: str) -> tuple[int, int | None]:
    """(switches, seconds to wait for so few) of `N[@TIME]`; None = as long as the cluster lets a job wait.

    Raises:
        GrammarError: "Invalid --switches specification".
    """
    count, at, wait = text.partition("@")
    number = digits(count, 9)
    if not number:
        raise GrammarError(f"Invalid --switches specification: {text!r}; write N or N@TIME")
    return number, parse_time_limit(wait, "--switches") if at else None


def parse_distribution(text: str) -> str:
    """A `--distribution` value in lower case: `block|cyclic|arbitrary|plane=N|*[:..[:..]][,pack|nopack]`.

    Raises:
        GrammarError: "Invalid --distribution specification".
    """
    levels, *extra = text.lower().split(",")
    nodes, *inner = levels.split(":")
    known = nodes in _NODE_LEVEL or (nodes.startswith("plane=") and bool(digits(nodes[6:], 9)))
    if (
        not known
        or len(inner) > 2
        or any(word not in _INNER_LEVEL for word in inner)
        or len(extra) > 1
        or any(word not in ("pack", "nopack") for word in extra)
    ):
        raise GrammarError("Invalid --distribution specification")
    return text.lower()
