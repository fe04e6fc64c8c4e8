"""Counts and small words of the submit options."""

import signal as _signal

from spur_core.errors import GrammarError

_NICE_LIMIT = 2147483645
_MULTIPLIERS = {"k": 1024, "m": 1024 * 1024}
MAIL_TYPES = (
    "NONE BEGIN END FAIL REQUEUE ALL INVALID_DEPEND STAGE_OUT TIME_LIMIT TIME_LIMIT_90 TIME_LIMIT_80"
    " TIME_LIMIT_50 ARRAY_TASKS"
)


def _count(text: str) -> int | None:
    factor = 1
    if text and text[-1].lower() in _MULTIPLIERS:
        factor, text = _MULTIPLIERS[text[-1].lower()], text[:-1]
    return int(text) * factor if text.isascii() and text.isdigit() and len(text) < 10 else None


def parse_node_count(text: str) -> tuple[int, int]:
    """(min, max) of `min[-max]`; one number means both.

    Raises:
        GrammarError: not a count, or max below min.
    """
    low_text, dash, high_text = text.partition("-")
    low, high = _count(low_text), _count(high_text) if dash else _count(low_text)
    if low is None or high is None:
        raise GrammarError(f'invalid number of nodes (-N "{text}")')
    if high < low:
        raise GrammarError(f"Maximum node count {high} is less than minimum node count {low}")
    return low, high


def parse_positive(text: str, option: str) -> int:
    """A whole number above zero.

    Raises:
        GrammarError: Slurm's sentence naming the option.
    """
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if number < 1:
        raise GrammarError(f'Invalid numeric value "{text}" for {option}.')
    return number


def parse_nice(text: str | None) -> int:
    """`--nice[=N]`, default 100."""
    if text is None or text == "":
        return 100
    try:
        number = int(text)
    except ValueError:
        raise GrammarError(f"Invalid --nice value: {text}") from None
    if abs(number) > _NICE_LIMIT:
        raise GrammarError(f"Invalid --nice value: {text}")
    return number


def parse_signal(text: str) -> int:
    """A signal number from `9`, `KILL` or `SIGKILL`, any case.

    Raises:
        GrammarError: "Unknown job signal: X".
    """
    if text.isascii() and text.isdigit():
        number = int(text)
        if 1 <= number <= 64:
            return number
    else:
        name = text.upper()
        if not name.startswith("SIG"):
            name = "SIG" + name
        found = getattr(_signal, name, None)
        if isinstance(found, _signal.Signals):
            return int(found)
    raise GrammarError(f"Unknown job signal: {text}")


def signal_name(number: int) -> str:
    """`KILL` for 9; the number as text when it has no name."""
    try:
        return _signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)


def parse_warn_signal(text: str) -> tuple[str, int, int]:
    """(scope "", "B" or "R"; signal; seconds before the limit) of `[R|B:]sig[@seconds]`, default 60.

    Raises:
        GrammarError: "Invalid --signal specification".
    """
    scope, colon, rest = text.partition(":")
    if not colon:
        scope, rest = "", text
    name, at, seconds_text = rest.partition("@")
    seconds = 60
    if at:
        seconds = int(seconds_text) if seconds_text.isascii() and seconds_text.isdigit() else -1
    try:
        number = parse_signal(name)
    except GrammarError:
        number = 0
    if not number or scope.upper() not in ("", "B", "R", "RB", "BR") or not 0 <= seconds <= 65535:
        raise GrammarError("Invalid --signal specification")
    return scope.upper(), number, seconds


def parse_open_mode(text: str) -> str:
    """`append` or `truncate`, any case, one letter is enough.

    Raises:
        GrammarError: anything else.
    """
    word = text.lower()
    for mode in ("append", "truncate"):
        if word and mode.startswith(word):
            return mode
    raise GrammarError(f"Invalid --open-mode argument: {text}. Ignored")


def parse_mail_type(text: str) -> list[str]:
    """Upper-case event names.

    Raises:
        GrammarError: a word that is no event.
    """
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    known = MAIL_TYPES.split(" ")
    for word in words:
        if word not in known:
            raise GrammarError("Invalid --mail-type specification")
    return words


def parse_shape(text: str) -> tuple[int | None, int | None, int | None]:
    """`-B sockets[:cores[:threads]]`; `*` or a missing field is None.

    Raises:
        GrammarError: "invalid resource allocation -B `X'".
    """
    parts = text.split(":")
    if not 1 <= len(parts) <= 3:
        raise GrammarError(f"invalid resource allocation -B `{text}'")
    fields: list[int | None] = [None, None, None]
    for at, part in enumerate(parts):
        if part != "*":
            number = _count(part)
            if not number:
                raise GrammarError(f"invalid resource allocation -B `{text}'")
            fields[at] = number
    return fields[0], fields[1], fields[2]


_DISTRIBUTIONS = ("block", "cyclic", "arbitrary", "*", "fcyclic")


def parse_distribution(text: str) -> str:
    """A `--distribution` value in lower case.

    Raises:
        GrammarError: an unknown word.
    """
    levels, *extra = text.lower().split(",")
    words = levels.split(":")
    ok = len(words) <= 3 and all(word in ("pack", "nopack") for word in extra)
    for at, word in enumerate(words):
        plane, equals, size = word.partition("=")
        if plane == "plane" and at == 0 and equals:
            ok = ok and size.isdigit() and int(size) > 0
        else:
            ok = ok and word in _DISTRIBUTIONS
    if not ok:
        raise GrammarError(f"Invalid --distribution specification: {text}")
    return text.lower()
