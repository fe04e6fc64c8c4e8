"""The kinds of values a key can have: each maker returns a function from TOML's value to the stored one.

Each of those raises GrammarError with what is wanted ("must be a whole number"); the reader puts the key
and the value in front.
"""

from collections.abc import Callable
from typing import Any

from spur_core.config.address import split_address, with_port
from spur_core.errors import GrammarError
from spur_core.grammar import sharing as oversubscribe

Convert = Callable[[Any], Any]


def boolean(value: object) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise GrammarError("must be true or false")
    return value


def text(value: object) -> str:
    """Any text."""
    if not isinstance(value, str):
        raise GrammarError("must be a text in quotes")
    return value


def name(value: object) -> str:
    """A text that is not empty and holds neither blanks nor commas, for it is used in lists."""
    word = text(value)
    if not word or any(char.isspace() or char in ",;:/|=" or not char.isprintable() for char in word):
        raise GrammarError("must be a name: not empty, no blanks and none of , ; : / | =")
    return word


#: No amount of anything is larger; sums of it still fit into 64 bits.
_LARGEST = 1 << 53


def whole(low: int = 0, high: int | None = None) -> Convert:
    """A whole number within bounds, both included."""
    most = _LARGEST if high is None else high

    def convert(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise GrammarError("must be a whole number")
        if value < low:
            raise GrammarError(f"must be at least {low}")
        if value > most:
            raise GrammarError(f"must be at most {most}")
        return value

    return convert


def word(*choices: str, aliases: "dict[str, str] | None" = None) -> Convert:
    """One of `choices`, any case; stored as it is written there."""

    def convert(value: object) -> str:
        given = text(value).lower()
        for choice in choices:
            if given == choice.lower():
                return choice
        if aliases and given in aliases:
            return aliases[given]
        raise GrammarError(f"must be one of {', '.join(choices)}")

    return convert


def sharing(value: object) -> str:
    """How CPUs are shared; stored as it is shown: `FORCE:4`."""
    return oversubscribe.text_of(oversubscribe.parse(text(value)))


def words(*choices: str) -> Convert:
    """A list of some of `choices`, any case, each at most once; stored as they are written there."""

    def convert(value: object) -> tuple[str, ...]:
        given = {one.upper() for one in texts(value)}
        if not given <= {choice.upper() for choice in choices}:
            raise GrammarError(f"must be a list of words out of {', '.join(choices)}")
        return tuple(choice for choice in choices if choice.upper() in given)

    return convert


def texts(value: object) -> tuple[str, ...]:
    """A list of texts, none of them empty."""
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        raise GrammarError("must be a list of texts in quotes")
    return tuple(value)


def labels(value: object) -> dict[str, str]:
    """A table of text to text."""
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise GrammarError('must be a table of texts, such as { rack = "r1" }')
    return dict(value)


def amounts(value: object) -> dict[str, int]:
    """A table of licences to whole numbers, none negative."""
    from spur_core.grammar.licenses import is_name

    if not isinstance(value, dict):
        raise GrammarError("must be a table of whole numbers, such as { matlab = 10 }")
    for item in value:
        if not is_name(item):
            raise GrammarError(f'"{item}" is no name of a licence; examples: matlab, "ansys@server"')
    return {item: whole()(amount) for item, amount in value.items()}


#: Weights of priorities are 32 bits wide.
weight = whole(0, 0xFFFFFFFF)


def tres_weights(value: object) -> dict[str, int]:
    """A table of TRES names to weights, by canonical name."""
    from spur_core.grammar.tres import parse_tres

    if not isinstance(value, dict):
        raise GrammarError('must be a table of weights, such as { cpu = 1000, "gres/gpu" = 5000 }')
    found = {}
    for item, number in value.items():
        try:
            (name,) = parse_tres(f"{item}=1")
        except (GrammarError, ValueError):
            raise GrammarError(f'"{item}" is no TRES; examples: cpu, mem, node, "gres/gpu"') from None
        found[name] = weight(number)
    return found


def address(value: object) -> str:
    """`host:port` of a listener."""
    given = text(value)
    split_address(given)
    return given


def addresses(value: object) -> tuple[str, ...]:
    """A list of `host:port`."""
    given = texts(value)
    for one in given:
        split_address(one)
    return given


def host(value: object) -> str:
    """A host name or address, with or without a port."""
    given = text(value)
    with_port(given, 0)
    return given


def path(value: object) -> str:
    """An absolute path, or empty for "not set"."""
    given = text(value)
    if given and (not given.startswith("/") or "\0" in given):
        raise GrammarError("must be an absolute path")
    return given


def home_path(value: object) -> str:
    """An absolute path, or one that begins with `~/`."""
    given = text(value)
    return given if given.startswith("~/") else path(given)


def duration(value: object) -> int | None:
    """Seconds in whole minutes, rounded up; a number is minutes; None = unlimited."""
    from spur_core.grammar.timelimit import minutes_rounded_up, parse_time_limit

    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise GrammarError('must be a duration: minutes, or a text such as "2-12:00:00" or "UNLIMITED"')
    try:
        seconds = parse_time_limit(value)
    except GrammarError:
        raise GrammarError('not a duration; examples: 60, "1:30:00", "2-12", "90m", "UNLIMITED"') from None
    return None if seconds is None else minutes_rounded_up(seconds) * 60


def span(value: object) -> int:
    """A duration that ends: seconds, at least a minute."""
    seconds = duration(value)
    if not seconds:
        raise GrammarError("must be at least a minute and not unlimited")
    return seconds


def memory(value: object) -> int | None:
    """MiB; a number is MiB, a text has a suffix (`"4G"`); 0 = None."""
    from spur_core.grammar.size import parse_mem

    if isinstance(value, int) and not isinstance(value, bool):
        return whole()(value) or None
    if not isinstance(value, str):
        raise GrammarError('must be a size: MiB, or a text such as "4G"')
    try:
        return parse_mem(value) or None
    except GrammarError:
        raise GrammarError('not a size; examples: 4096, "4G", "500M"') from None


def hostlist(value: object) -> str:
    """A hostlist, or `ALL`, or empty; kept as text."""
    from spur_core.grammar.hostlist import expand

    given = text(value).strip()
    if given.upper() == "ALL":
        return "ALL"
    try:
        expand(given)
    except GrammarError:
        raise GrammarError('not a hostlist; examples: "n[1-4]", "a1,b[01-16]", "ALL"') from None
    return given


def gres_list(value: object) -> tuple[str, ...]:
    """A list of `name[:type]:count`."""
    from spur_core.grammar.gres import parse_gres

    given = texts(value)
    for one in given:
        parse_gres(one)
    return given


#: Stands for "never killed for its time limit": a hundred years, in seconds.
FOREVER_SECS = 100 * 365 * 86400


def grace(value: object) -> int:
    """Seconds that a job may run on past its limit; 0 = none, UNLIMITED = FOREVER_SECS."""
    if value == 0 and not isinstance(value, bool):
        return 0
    seconds = duration(value)
    if seconds is None:
        return 0 if value == "0" else FOREVER_SECS
    return seconds
