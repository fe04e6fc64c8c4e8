"""Signal names and numbers, without the cost of the `signal` module; Linux's common numbering."""

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits

# fmt: off
_NAMES = (
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
    "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
    "WINCH", "IO", "PWR", "SYS",
)
# fmt: on
_ALIASES = {"IOT": 6, "CLD": 17, "POLL": 29, "RTMIN": 34, "RTMAX": 64}
_NUMBERS = {name: at + 1 for at, name in enumerate(_NAMES)} | _ALIASES
_LAST = 64


def parse_signal(text: str) -> int:
    """A signal number from `9`, `KILL` or `SIGKILL`, any case.

    Raises:
        GrammarError: "Unknown job signal: X".
    """
    number = digits(text, 2)
    if number is None:
        number = _NUMBERS.get(text.upper().removeprefix("SIG"))
    if number is None or not 1 <= number <= _LAST:
        raise GrammarError(f"Unknown job signal: {text}")
    return number


def signal_name(number: int) -> str:
    """`KILL` for 9; the number as text when it has no name."""
    return _NAMES[number - 1] if 1 <= number <= len(_NAMES) else str(number)


def parse_warn_signal(text: str) -> tuple[str, int, int]:
    """`--signal` as (scope, signal, seconds before the limit) of `[R|B:]sig[@seconds]`.

    The scope is "" (steps only), "B" (only the batch shell), "R" (allow reservations to end early) or both;
    60 seconds unless given.

    Raises:
        GrammarError: "Invalid --signal specification".
    """
    scope, colon, rest = text.partition(":")
    if not colon:
        scope, rest = "", text
    name, at, seconds_text = rest.partition("@")
    seconds = digits(seconds_text, 5) if at else 60
    try:
        number = parse_signal(name)
    except GrammarError:
        number = 0
    if not number or scope.upper() not in ("", "B", "R", "RB", "BR") or seconds is None or seconds > 65535:
        raise GrammarError("Invalid --signal specification")
    return "".join(sorted(scope.upper())), number, seconds
